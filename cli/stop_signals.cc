#include "cli/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "cli/command_line.h"

namespace ablate {
namespace {

std::atomic<int> deferred = 0, count = 0;
char parting_text[256];
size_t parting_size = 0;

// Only what a signal handler may do.
void OnStop(int) {
  if (deferred > 0) {
    ++count;
    return;
  }
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, parting_text, parting_size);
  ::_exit(kExitInterrupted);
}

}  // namespace

void CatchStopSignals(const std::string& parting) {
  parting_size = parting.copy(parting_text, sizeof(parting_text));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    if (signal == SIGHUP && ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    action.sa_handler = &OnStop;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

DeferStop::DeferStop() { ++deferred; }
DeferStop::~DeferStop() { --deferred; }

int StopCount() { return count; }

}  // namespace ablate
