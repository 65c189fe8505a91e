// A child process with pipes to its stdin and stdout and its stderr captured by the caller.
// The child dies with its parent (PR_SET_PDEATHSIG is set between fork and exec).
// Thread rule: one owner thread, which must live as long as the child: Linux sends the parent-death signal when
// the thread that forked ends, not the process. Kill may be called from any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sandbox.h"

namespace ablate {

struct SubprocessOptions {
  std::vector<std::string> argv;                   // argv[0] is the path of the program
  std::map<std::string, std::string> environment;  // added to ours
  bool pipe_stdin = true;                          // else /dev/null
  bool pipe_stdout = true;                         // else inherited
  std::string stderr_path;                         // appended to this file; "" = a pipe, read through stderr_fd
  // Of our environment only these names are passed on ("LC_*": all that begin so); unset: all.
  std::optional<std::vector<std::string>> inherited_environment;
  // Entered before the program starts; then nothing but stdin, stdout and stderr is inherited either. Null: none.
  std::shared_ptr<const Sandbox> sandbox;
  bool own_process_group = true;                   // a terminal's Ctrl-C does not reach the child
};

struct ExitStatus {
  int code = 0;    // exit code, or -1 when it ended by a signal
  int signal = 0;  // the signal that ended it, or 0
  int64_t peak_rss_bytes = 0;
  double user_seconds = 0;
  double system_seconds = 0;
  std::string Describe() const;  // "exit code 3", "signal 9 (Killed)"
};

class Subprocess {
 public:
  // NotFound: argv[0] does not exist or cannot be run. ResourceExhausted: no process or descriptor left.
  static absl::StatusOr<Subprocess> Start(const SubprocessOptions& options);
  // Kills (SIGKILL) and reaps a child that still runs.
  ~Subprocess();
  Subprocess(Subprocess&& other) noexcept;
  Subprocess& operator=(Subprocess&& other) noexcept;

  pid_t pid() const { return pid_; }
  int stdin_fd() const { return stdin_fd_; }    // -1 when not piped or closed
  int stdout_fd() const { return stdout_fd_; }  // -1 when not piped
  int stderr_fd() const { return stderr_fd_; }  // -1 when it goes to a file
  void CloseStdin();

  void Kill(int signal);
  // Blocks. May be called again after the end; gives the same answer.
  ExitStatus Wait();
  // True when it has ended (and has been reaped); then Wait does not block.
  bool HasExited();

 private:
  Subprocess() = default;
  bool Reap(bool block);
  void Release();

  pid_t pid_ = -1;
  int stdin_fd_ = -1;
  int stdout_fd_ = -1;
  int stderr_fd_ = -1;
  bool exited_ = false;
  ExitStatus exit_;
};

}  // namespace ablate
