// The trainer child of one slot: started, spoken to over its pipe, listened to together with its stderr and a stop
// signal, and reaped. Must not know jobs. Thread rule: one thread, which must outlive the object (base/subprocess.h
// says why).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/subprocess.h"
#include "proto/trainer.pb.h"
#include "worker/child_guard.h"
#include "worker/executor.h"
#include "worker/pipe.h"

namespace ablate {

struct TrainerCommand {
  std::vector<std::string> argv;  // program, --device cpu --threads K
  std::map<std::string, std::string> environment;  // beside the little that it inherits
  std::shared_ptr<const Sandbox> sandbox;          // null: none
  ChildGuard* guard = nullptr;  // is told of the child's process group; may be null
};

class TrainerProcess {
 public:
  enum class Wake {
    kEvent,    // `event` is set
    kLog,      // the child wrote to its stderr: it lives
    kStop,     // the stop signal was raised (further)
    kTimeout,  // nothing of all this
    kEnded,    // the child ended, cleanly or not: see exit()
    kBroken,   // what came over the pipe is no message (fault() says what); the child has been killed
  };

  // NotFound: no such program. ResourceExhausted: no process or descriptor left.
  static absl::StatusOr<std::unique_ptr<TrainerProcess>> Start(const TrainerCommand& command);
  // Closes the child's stdin, waits a moment for it to end, kills it if it does not.
  ~TrainerProcess();

  // Unavailable, DeadlineExceeded: the child does not take it; Wait will say why.
  absl::Status Send(const v1::TrainerRequest& request);
  // Waits for whichever comes first. `stop` may be null.
  Wake Wait(v1::TrainerEvent* event, const StopSignal* stop, int64_t timeout_ms);
  // SIGKILL, to whatever it has started too; reaped on return.
  void Kill();

  const ExitStatus& exit() const { return exit_; }
  const std::string& fault() const { return fault_; }
  // The last 16 KiB of its stderr since the last ForgetLog.
  const std::string& stderr_tail() const { return tail_; }
  void ForgetLog() { tail_.clear(); }
  pid_t pid() const { return child_.pid(); }

 private:
  TrainerProcess(Subprocess child, ChildGuard* guard) : child_(std::move(child)), guard_(guard) {}
  void Reap();
  // Reads what is there. False: the end of the file.
  bool ReadEvents();
  bool ReadLog(bool* grew);
  Wake Ended();

  Subprocess child_;
  ChildGuard* const guard_;
  MessageBuffer buffer_;
  std::string tail_;
  std::string fault_;
  ExitStatus exit_;
  bool ended_ = false;
  bool log_open_ = true;
};

}  // namespace ablate
