// The fewest rights for a child process: no new privileges, no network, no tricks on other processes, no core dumps, and
// only the files that are named. Prepared before fork; entered between fork and exec, for good: whatever the child
// starts has the same bounds. Linux: no_new_privs, seccomp (a filter of system calls), Landlock (files, from 5.13 on).
// Must not know what runs in it.
// Thread rule: Prepare and Probe from any thread; Enter only in a fresh child.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

struct SandboxOptions {
  bool restrict_files = true;         // Landlock
  // Files and folders to read, list and execute; /proc/self is always there. Those that are absent are left out.
  std::vector<std::string> readable;
  std::vector<std::string> writable;  // folders (and what is in them) or files to change as well
  // Sockets of this machine (AF_UNIX, AF_NETLINK), which drivers of devices may want. Else no socket at all; pairs
  // (socketpair) and pipes are always there.
  bool local_sockets = false;
};

class Sandbox {
 public:
  // What this kernel lacks, in words; empty: nothing. Tried out in a child.
  static std::vector<std::string> Missing();

  // Leaves out what the kernel lacks. Unavailable: a file that is there cannot be opened.
  static absl::StatusOr<std::shared_ptr<const Sandbox>> Prepare(const SandboxOptions& options);
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  // Async-signal-safe. 0, or the errno of what failed: then the child must not go on.
  int Enter() const;

 private:
  Sandbox() = default;
  int ruleset_ = -1;              // Landlock's; -1: none
  bool filter_ = false;           // seccomp
  bool local_sockets_ = false;
};

}  // namespace ablate
