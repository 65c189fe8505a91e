// Ctrl-C (and SIGTERM, SIGHUP) in a command that has children to stop. Must not know what the command does.
// Thread rule: any thread; the signals are the whole process's.
#pragma once

#include <string>

namespace ablate {

// From now on the signals end the process at once, with `parting` on stderr and kExitInterrupted, wherever it waits;
// children die with it. Without this call they do what they do by default. An ignored SIGHUP (nohup) stays ignored.
void CatchStopSignals(const std::string& parting);

// While one lives, caught signals are only counted: who waits looks at StopCount().
class DeferStop {
 public:
  DeferStop();
  ~DeferStop();
  DeferStop(const DeferStop&) = delete;
  DeferStop& operator=(const DeferStop&) = delete;
};

// How many were counted so far.
int StopCount();

}  // namespace ablate
