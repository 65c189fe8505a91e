// Ends what is left of trainers when the daemon is gone, however it went. The kernel kills a trainer with its daemon
// (PR_SET_PDEATHSIG), but not what the trainer itself has started: a wrapper's program, a helper. So a process of its own
// waits for the daemon's end and then kills the process groups that were told to it. A process that has left its group
// (setsid, setpgid) is not found: orphans go to the nearest reaper above the daemon, which the guard is not. Whoever starts
// the daemon ends such a one, as a cgroup (a systemd unit, a container) does. Must not know trainers or jobs.
// Thread rule: Start before the program has threads; Watch and Forget from any.
#pragma once

#include <sys/types.h>

#include <memory>

#include "absl/status/statusor.h"

namespace ablate {

class ChildGuard {
 public:
  // ResourceExhausted: no process or descriptor left.
  static absl::StatusOr<std::unique_ptr<ChildGuard>> Start();
  // The guard kills what is being watched, and ends.
  ~ChildGuard();
  ChildGuard(const ChildGuard&) = delete;
  ChildGuard& operator=(const ChildGuard&) = delete;

  void Watch(pid_t process_group);
  void Forget(pid_t process_group);

 private:
  explicit ChildGuard(int fd) : fd_(fd) {}
  void Tell(pid_t number);
  const int fd_;
};

}  // namespace ablate
