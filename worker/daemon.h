// The worker daemon: the slots, the link's state and the loop that talks to the coordinator, wired together. Must not
// know gRPC, the trainer, flags or signals.
//
// The loop is the heartbeat: its thread does nothing else, computes nothing and waits for no slot; the work is in other
// threads and in child processes. Thread rule: Run from one thread, Drain from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "worker/executor.h"
#include "worker/link_state.h"
#include "worker/result_spool.h"
#include "worker/slot.h"
#include "worker/transport.h"

namespace ablate {

struct DaemonOptions {
  LinkOptions link;  // link.worker.slots is the number of slots
  ExecutorFactory executor;
  SyncTransport* transport = nullptr;
  std::string address;                                        // for messages
  std::string results_dir;                                    // of ResultSpool
  std::function<std::vector<std::string>()> held_stage_keys;  // may be empty
  int64_t grace_ms = 20'000;                                  // from Drain to the end, at most
  // Why this node can do no work now, in words, or "". Asked before each contact; must be quick. May be empty.
  std::function<std::string()> node_trouble;
  // After an attempt that failed with trouble of the node (PREEMPTED) no new work is taken for so long, twice as long
  // each further time.
  int64_t first_pause_ms = 5'000;
  int64_t max_pause_ms = 60'000;
  const Clock* clock = &Clock::Real();
};

class Daemon {
 public:
  explicit Daemon(DaemonOptions options);
  ~Daemon();

  // Until drained (by Drain or by the coordinator). FailedPrecondition: the coordinator refuses this worker, at its
  // first contact or again and again (another protocol version, another daemon with this id; its message says which).
  // Unavailable: the folder of results cannot be used.
  absl::Status Run();

  // Takes no new work, saves and hands back what runs, tells the coordinator, and lets Run return, within the grace.
  void Drain();

 private:
  void Dispatch(const LinkState::Actions& actions);
  void SpoolUnacknowledged();
  // Whether new work may be taken now; says in the log when that changes.
  void UpdatePause(int64_t now_us) ABLATE_REQUIRES(mutex_);
  // False: the daemon is to end.
  bool WaitUntilDue();
  Slot* SlotOf(int32_t index) { return slots_[static_cast<size_t>(index) % slots_.size()].get(); }

  const DaemonOptions options_;
  ResultSpool spool_;  // of the thread of Run
  Mutex mutex_;
  CondVar changed_;
  LinkState state_ ABLATE_GUARDED_BY(mutex_);
  int64_t in_flight_ ABLATE_GUARDED_BY(mutex_) = 0;      // sequence of the Sync that blocks now, or 0
  int64_t abandon_at_us_ ABLATE_GUARDED_BY(mutex_) = 0;  // when what still runs is killed; 0: not draining by Drain
  int64_t end_at_us_ ABLATE_GUARDED_BY(mutex_) = 0;
  bool abandoned_ ABLATE_GUARDED_BY(mutex_) = false;
  int64_t pause_until_us_ ABLATE_GUARDED_BY(mutex_) = 0;
  int64_t pause_ms_ ABLATE_GUARDED_BY(mutex_) = 0;  // the last one; 0: all is well
  bool paused_ ABLATE_GUARDED_BY(mutex_) = false;
  // Last: their threads use what is above.
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace ablate
