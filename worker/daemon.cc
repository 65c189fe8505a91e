#include "worker/daemon.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ablate {
namespace {

// The coordinator keeps an idle worker for 30 s at most.
constexpr int64_t kIdleSyncMs = 45'000;
constexpr int64_t kBusySyncMs = 10'000;
constexpr int64_t kDrainSyncMs = 2'000;
// One that knew this worker and refuses it so often in a row means it: another daemon goes by this worker's id, or its
// release changed.
constexpr int kMaxRefusals = 3;
// The last part of the grace is for telling the coordinator.
constexpr double kAbandonShare = 0.85;
// A daemon that has saved everything waits so long for a coordinator that does not answer: it may have been stopped
// together with this node. What it would have said is in results/, for its next incarnation.
constexpr int64_t kLastWordsMicros = 2'000'000;

}  // namespace

Daemon::Daemon(DaemonOptions options)
    : options_(std::move(options)), spool_(options_.results_dir), state_(options_.link) {
  SlotEvents events;
  events.progress = [this](const AttemptKey& key, const TaskProgress& progress) {
    MutexLock lock(&mutex_);
    state_.OnProgress(key, progress);
  };
  events.checkpoint = [this](const AttemptKey& key, const v1::CheckpointRef& checkpoint) {
    MutexLock lock(&mutex_);
    state_.OnCheckpoint(key, checkpoint);
  };
  events.ended = [this](const AttemptKey& key, const v1::AttemptReport& report) {
    MutexLock lock(&mutex_);
    const int64_t now_us = options_.clock->MonotonicMicros();
    if (report.phase() == v1::AttemptReport::SUCCEEDED) {
      pause_ms_ = 0;
    } else if (report.phase() == v1::AttemptReport::FAILED && report.failure().kind() == v1::PREEMPTED &&
               now_us >= pause_until_us_) {
      pause_ms_ = pause_ms_ == 0 ? options_.first_pause_ms : std::min(pause_ms_ * 2, options_.max_pause_ms);
      pause_until_us_ = now_us + pause_ms_ * 1000;
      LOG(WARNING) << "this node is in trouble (" << report.failure().message() << "): takes no new work for "
                   << HumanSeconds(static_cast<double>(pause_ms_) * 1e-3);
    }
    state_.OnEnded(key, report);
    changed_.NotifyAll();
  };
  for (int i = 0; i < std::max(1, options_.link.worker.slots()); ++i) {
    slots_.push_back(std::make_unique<Slot>(i, options_.executor, events));
  }
}

Daemon::~Daemon() = default;

void Daemon::Drain() {
  {
    MutexLock lock(&mutex_);
    if (end_at_us_ != 0) return;
    const int64_t now_us = options_.clock->MonotonicMicros();
    abandon_at_us_ = now_us + static_cast<int64_t>(static_cast<double>(options_.grace_ms) * kAbandonShare * 1000);
    end_at_us_ = now_us + options_.grace_ms * 1000;
    state_.BeginDrain();
    if (in_flight_ != 0) options_.transport->CancelSync(in_flight_);
    changed_.NotifyAll();
  }
  for (const auto& slot : slots_) slot->StopAll(StopSignal::Mode::kRelease);
}

bool Daemon::WaitUntilDue() {
  bool abandon = false;
  {
    MutexLock lock(&mutex_);
    for (;;) {
      if (state_.finished()) return false;
      const int64_t now_us = options_.clock->MonotonicMicros();
      if (end_at_us_ != 0 && now_us >= end_at_us_) return false;
      if (abandon_at_us_ != 0 && now_us >= abandon_at_us_ && !abandoned_) {
        abandoned_ = abandon = true;
        break;
      }
      int64_t until_us = state_.next_contact_us();
      if (now_us >= until_us) break;
      if (end_at_us_ != 0) until_us = std::min(until_us, abandoned_ ? end_at_us_ : abandon_at_us_);
      changed_.WaitFor(&mutex_, std::max<int64_t>(until_us - now_us, 1));
    }
  }
  if (abandon) {
    for (const auto& slot : slots_) slot->StopAll(StopSignal::Mode::kAbandon);
  }
  return true;
}

void Daemon::UpdatePause(int64_t now_us) {
  const std::string trouble = options_.node_trouble ? options_.node_trouble() : "";
  const bool paused = !trouble.empty() || now_us < pause_until_us_;
  if (paused && !paused_ && !trouble.empty()) LOG(WARNING) << "takes no new work: " << trouble;
  LOG_IF(INFO, paused_ && !paused) << "takes new work again";
  paused_ = paused;
  state_.SetPaused(paused);
}

absl::Status Daemon::Run() {
  {
    ABLATE_ASSIGN_OR_RETURN(const std::vector<v1::AttemptReport> left, spool_.Load());
    LOG_IF(INFO, !left.empty()) << left.size() << " results of an earlier run wait to be handed in";
    MutexLock lock(&mutex_);
    for (const v1::AttemptReport& report : left) state_.Restore(report);
  }
  bool had_contact = false;
  int refusals = 0;
  int64_t away_since_us = 0;  // 0: the coordinator answers
  int64_t over_since_us = 0;  // draining, all has ended, and nobody answers; 0: not so
  int64_t thinned = 0;
  while (WaitUntilDue()) {
    std::vector<std::string> held;
    if (options_.held_stage_keys) held = options_.held_stage_keys();
    v1::SyncRequest request;
    int64_t timeout_ms = kBusySyncMs;
    {
      MutexLock lock(&mutex_);
      if (state_.thinned() > 0 && thinned == 0) {
        LOG(WARNING) << "the coordinator has been away for so long that curve points are thinned out: of two neighbours "
                        "the larger stays";
      }
      thinned = state_.thinned();
      state_.SetHeldStageKeys(std::move(held));
      UpdatePause(options_.clock->MonotonicMicros());
      if (state_.idle()) timeout_ms = kIdleSyncMs;
      if (state_.draining()) timeout_ms = kDrainSyncMs;
      request = state_.BuildRequest();
      in_flight_ = request.sequence();
    }
    const absl::StatusOr<v1::SyncResponse> response = options_.transport->Sync(request, timeout_ms);
    const int64_t now_us = options_.clock->MonotonicMicros();
    if (response.ok()) {
      LinkState::Actions actions;
      {
        MutexLock lock(&mutex_);
        in_flight_ = 0;
        actions = state_.OnResponse(request.sequence(), *response, now_us);
      }
      if (!had_contact || away_since_us != 0) {
        LOG(INFO) << (had_contact ? "the coordinator answers again" : "connected to the coordinator") << " at "
                  << options_.address
                  << (away_since_us == 0
                          ? ""
                          : absl::StrCat(" after ", HumanSeconds(static_cast<double>(now_us - away_since_us) * 1e-6)));
      }
      had_contact = true;
      refusals = 0;
      away_since_us = over_since_us = 0;
      Dispatch(actions);
      continue;
    }
    {
      MutexLock lock(&mutex_);
      in_flight_ = 0;
      // Cut short by Drain: what it has to say is due now.
      if (!absl::IsCancelled(response.status())) state_.OnFailure(request.sequence(), now_us);
    }
    if (absl::IsCancelled(response.status())) continue;
    if (absl::IsUnauthenticated(response.status()) || absl::IsPermissionDenied(response.status())) {
      // Asking again would change nothing. Results stay in results_dir, for the next start with a good token.
      SpoolUnacknowledged();
      return absl::Status(response.status().code(),
                          absl::StrCat("the coordinator at ", options_.address, " does not let this worker in: ",
                                       response.status().message()));
    }
    refusals = absl::IsFailedPrecondition(response.status()) ? refusals + 1 : 0;
    if (refusals > (had_contact ? kMaxRefusals : 0)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the coordinator at ", options_.address, " refuses this worker: ", response.status().message()));
    }
    if (away_since_us == 0) {
      away_since_us = now_us;
      LOG(WARNING) << (had_contact ? "the coordinator at " : "waiting for the coordinator at ") << options_.address
                   << (had_contact ? " does not answer; work goes on" : "") << " (" << response.status().message()
                   << ")";
    }
    SpoolUnacknowledged();
    MutexLock lock(&mutex_);
    if (end_at_us_ == 0 || state_.running() > 0) continue;
    // Nothing to hand back, and nobody there to be told.
    if (state_.attempts() == 0) break;
    if (over_since_us == 0) over_since_us = now_us;
    if (now_us - over_since_us >= kLastWordsMicros) break;
  }
  SpoolUnacknowledged();
  MutexLock lock(&mutex_);
  LOG_IF(WARNING, state_.running() > 0) << state_.running()
                                        << " attempts could not be ended in time; the coordinator will"
                                        << " miss this worker and queue them again";
  const int left = state_.attempts() - state_.running();
  LOG_IF(WARNING, left > 0) << left << " attempts could not be handed back; the next start of this worker does it";
  return absl::OkStatus();
}

void Daemon::SpoolUnacknowledged() {
  std::vector<v1::AttemptReport> reports;
  {
    MutexLock lock(&mutex_);
    reports = state_.Unacknowledged();
  }
  for (const v1::AttemptReport& report : reports) {
    // A result; that it was given back, so that no failure is counted; or how it failed, which nobody else knows.
    if (report.phase() == v1::AttemptReport::CANCELLED) continue;
    const absl::Status saved = spool_.Save(report);
    LOG_IF(WARNING, !saved.ok()) << "a result is in memory only: " << saved.message();
  }
}

void Daemon::Dispatch(const LinkState::Actions& actions) {
  for (const v1::AttemptAck& ack : actions.forgotten) {
    LOG_IF(WARNING, !ack.accepted()) << ack.job_id() << " attempt " << ack.attempt()
                                     << " was refused: " << ack.reason();
    spool_.Remove({ack.job_id(), ack.attempt()});
  }
  for (const AttemptKey& key : actions.stop) {
    VLOG(1) << "stopping " << key.job_id << " attempt " << key.attempt;
    for (const auto& slot : slots_) slot->Stop(key, StopSignal::Mode::kCancel);
  }
  LOG_IF(INFO, actions.drain) << "the coordinator asks for a drain: what runs is finished, nothing new is taken";
  for (const v1::Assignment& assignment : actions.start) SlotOf(assignment.slot())->Enqueue(assignment);
  bool draining = false;
  {
    MutexLock lock(&mutex_);
    draining = end_at_us_ != 0;
  }
  // A Drain that came while these were on their way has not seen them.
  if (draining && !actions.start.empty()) {
    for (const auto& slot : slots_) slot->StopAll(StopSignal::Mode::kRelease);
  }
}

}  // namespace ablate
