// The worker's side of the link as a pure state machine: which attempts this worker has, what it must tell the
// coordinator (SyncRequest) and what the answer asks it to do (start, stop, forget). Must not know gRPC, threads, files
// or clocks: time is passed in.
//
// What makes lost, doubled and late messages harmless:
//  * A response is digested once, and never after one to a later request: the coordinator's answer to a later request
//  knows more.
//  * An attempt that ended is reported until it is acknowledged in the answer to a request that said so. Curve points
//  and
//    checkpoints are repeated likewise. The attempt's number fences on the coordinator's side.
//  * While the coordinator is away work goes on, and what it should know waits here.
//
// Thread rule: none of its own; SyncLoop calls it under its lock.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "proto/link.pb.h"
#include "worker/task_progress.h"

namespace ablate {

struct AttemptKey {
  std::string job_id;
  int64_t attempt = 0;
  auto operator<=>(const AttemptKey&) const = default;
};

struct LinkOptions {
  v1::WorkerInfo worker;
  uint64_t jitter_seed = 0;
  int64_t first_backoff_ms = 200;
  int64_t max_backoff_ms = 5'000;
  // A request carries at most so many curve points (about 40 bytes each; gRPC takes messages of 4 MiB).
  int max_points_per_request = 30'000;
  // At most so many curve points of one attempt wait for an absent coordinator (about 100 bytes each). Above it the curve
  // is thinned evenly, the newest quarter aside: of two neighbours of a metric the larger stays (NaN counts as largest),
  // so that a spike is never thinned away.
  int max_points_waiting = 200'000;
  // While draining, a coordinator that does not answer is asked again after so long at most.
  int64_t drain_backoff_ms = 400;
};

class LinkState {
 public:
  // What the answer asks for. Starts are in the coordinator's order: jobs of one slot are done one after the other.
  struct Actions {
    std::vector<v1::Assignment> start;
    std::vector<AttemptKey> stop;           // running, no longer wanted; each is named once
    std::vector<v1::AttemptAck> forgotten;  // ended attempts that the coordinator has dealt with
    bool drain = false;                     // the coordinator asks for a drain (said once)
  };

  explicit LinkState(LinkOptions options);

  // ---- from the slots. A key that is not known (any more) is ignored.
  void OnProgress(const AttemptKey& key, const TaskProgress& progress);
  // Uploaded already. A later one replaces an earlier one that was not reported yet.
  void OnCheckpoint(const AttemptKey& key, const v1::CheckpointRef& checkpoint);
  // `report`: phase (SUCCEEDED, FAILED, RELEASED or CANCELLED), result, failure. An attempt ends once.
  void OnEnded(const AttemptKey& key, const v1::AttemptReport& report);

  // ---- from the daemon
  // Takes no new work from now on; an assignment that comes all the same is given back. Makes a Sync due at once.
  void BeginDrain();
  bool draining() const { return draining_; }
  // Takes no new work while it lasts (this node is in trouble); what runs goes on. An assignment that was under way is
  // given back.
  void SetPaused(bool paused) { paused_ = paused; }
  // An ended attempt that an earlier incarnation could not hand in. It counts if no later attempt was granted.
  void Restore(const v1::AttemptReport& report);
  void SetHeldStageKeys(std::vector<std::string> keys) { held_stage_keys_ = std::move(keys); }

  // ---- the wire
  v1::SyncRequest BuildRequest();
  Actions OnResponse(int64_t sequence, const v1::SyncResponse& response, int64_t now_us);
  // The request was not answered. Failures of requests that a later one has overtaken change nothing.
  void OnFailure(int64_t sequence, int64_t now_us);
  // When the next Sync is due, on the clock of the `now_us` that were passed in.
  int64_t next_contact_us() const { return next_contact_us_; }
  // The coordinator may keep this worker waiting in the call: nothing runs, nothing is to be said.
  bool idle() const { return attempts_.empty() && !draining_ && !paused_; }
  // Draining, and nothing is left to do or to hand in, and the coordinator was told.
  bool finished() const { return draining_ && attempts_.empty() && drain_told_; }
  int attempts() const { return static_cast<int>(attempts_.size()); }
  // Attempts that have not ended yet.
  int running() const;
  // Curve points that were thinned out so far.
  int64_t thinned() const { return thinned_; }
  // Ended attempts that wait for their acknowledgement, as they will be reported (without points).
  std::vector<v1::AttemptReport> Unacknowledged() const;

 private:
  struct PointBatch {
    int64_t sequence;
    std::vector<v1::CurvePoint> points;
    std::vector<int8_t> merges;  // how often each was merged: it stands for 2^merges points; shorter: 0
  };
  struct Attempt {
    v1::AttemptReport report;  // as it will be sent, without points and checkpoint
    bool ended = false;
    int64_t ended_in_request = 0;  // the first request that reported the end; 0: none yet
    bool stop_asked = false;
    std::deque<PointBatch> points;
    int64_t points_waiting = 0;  // in all batches
    int64_t last_points_sequence = 0;
    v1::CheckpointRef checkpoint;  // stage_key empty: none
    int64_t checkpoint_in_request = 0;
  };

  void Thin(Attempt& attempt);
  static AttemptKey KeyOf(const v1::AttemptReport& report) { return {report.job_id(), report.attempt()}; }
  void Due() { next_contact_us_ = 0; }

  const LinkOptions options_;
  std::map<AttemptKey, Attempt> attempts_;
  std::vector<std::string> held_stage_keys_;
  bool draining_ = false;
  bool paused_ = false;
  bool drain_said_ = false;    // Actions::drain was given out
  bool drain_told_ = false;    // a request with `draining` was answered
  int64_t drain_request_ = 0;  // the first request that said `draining`
  int64_t sequence_ = 0;       // of the last request built
  int64_t digested_ = 0;       // highest sequence whose response was digested
  int64_t next_contact_us_ = 0;
  int64_t backoff_ms_ = 0;
  int64_t thinned_ = 0;
  std::mt19937_64 jitter_;
};

}  // namespace ablate
