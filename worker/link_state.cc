#include "worker/link_state.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/utf8.h"
#include "base/version.h"

namespace ablate {
namespace {

constexpr int64_t kMicrosPerMilli = 1000;
// A coordinator that asks for a call at once, again and again, must not make this worker spin.
constexpr int64_t kMinContactMs = 2;
constexpr int64_t kMaxContactMs = 60'000;
constexpr size_t kMaxFailureText = 16 << 10;  // under the coordinator's limit, whatever a trainer says

// One byte of a trainer's last words that is no UTF-8, and the coordinator could read no Sync of this worker any more.
v1::Failure Sendable(v1::Failure failure) {
  const std::string& tail = failure.stderr_tail();
  failure.set_message(ToUtf8(std::string_view(failure.message()).substr(0, kMaxFailureText)));
  failure.set_stderr_tail(ToUtf8(std::string_view(tail).substr(tail.size() - std::min(tail.size(), kMaxFailureText))));
  return failure;
}
constexpr int8_t kGone = -1;

}  // namespace

LinkState::LinkState(LinkOptions options) : options_(std::move(options)), jitter_(options_.jitter_seed) {}

void LinkState::OnProgress(const AttemptKey& key, const TaskProgress& progress) {
  const auto it = attempts_.find(key);
  if (it == attempts_.end() || it->second.ended) return;
  Attempt& attempt = it->second;
  attempt.report.set_step(progress.step);
  attempt.report.set_tokens_per_second(progress.tokens_per_second);
  if (progress.resumed_from_step) attempt.report.set_resumed_from_step(*progress.resumed_from_step);
  if (progress.points.empty()) return;
  attempt.points.push_back({++attempt.last_points_sequence, progress.points, {}});
  attempt.points_waiting += static_cast<int64_t>(progress.points.size());
  if (attempt.points_waiting > options_.max_points_waiting) Thin(attempt);
}

// Merges neighbours, the newest quarter aside: that is what somebody who comes back wants to see whole. Those that stand
// for the fewest first, so that the curve is thinned evenly. Batches keep their numbers: what was sent and not
// acknowledged yet is acknowledged as before.
void LinkState::Thin(Attempt& attempt) {
  const auto above = [](const v1::CurvePoint& a, const v1::CurvePoint& b) {
    return std::isnan(a.value()) || (!std::isnan(b.value()) && a.value() > b.value());
  };
  const int64_t newest = options_.max_points_waiting / 4;
  for (int merges = 0; attempt.points_waiting > options_.max_points_waiting - newest && merges < 62; ++merges) {
    const int64_t old = attempt.points_waiting - newest;
    std::map<std::string, std::pair<PointBatch*, size_t>> left;  // by metric: the neighbour before, if it may go or merge
    int64_t seen = 0;
    for (PointBatch& batch : attempt.points) {
      batch.merges.resize(batch.points.size(), 0);
      for (size_t i = 0; i < batch.points.size() && seen < old; ++i, ++seen) {
        const std::string& metric = batch.points[i].metric();
        const auto before = left.find(metric);
        if (batch.merges[i] > merges) {
          if (before != left.end()) left.erase(before);
        } else if (before == left.end()) {
          left.emplace(metric, std::pair(&batch, i));
        } else {
          auto [other, index] = before->second;
          const bool keep_other = above(other->points[index], batch.points[i]);
          (keep_other ? other->merges[index] : batch.merges[i]) = static_cast<int8_t>(merges + 1);
          (keep_other ? batch.merges[i] : other->merges[index]) = kGone;
          left.erase(before);
        }
      }
    }
    for (PointBatch& batch : attempt.points) {
      size_t kept = 0;
      for (size_t i = 0; i < batch.points.size(); ++i) {
        if (batch.merges[i] == kGone) continue;
        if (kept != i) {
          batch.points[kept] = std::move(batch.points[i]);
          batch.merges[kept] = batch.merges[i];
        }
        ++kept;
      }
      thinned_ += static_cast<int64_t>(batch.points.size() - kept);
      attempt.points_waiting -= static_cast<int64_t>(batch.points.size() - kept);
      batch.points.resize(kept);
      batch.merges.resize(kept);
    }
  }
  // Of the batches that are empty now only the last number is needed.
  std::erase_if(attempt.points, [&](const PointBatch& batch) {
    return batch.points.empty() && batch.sequence != attempt.last_points_sequence;
  });
}

int LinkState::running() const {
  return static_cast<int>(
      std::count_if(attempts_.begin(), attempts_.end(), [](const auto& item) { return !item.second.ended; }));
}

void LinkState::OnCheckpoint(const AttemptKey& key, const v1::CheckpointRef& checkpoint) {
  const auto it = attempts_.find(key);
  if (it == attempts_.end() || it->second.ended) return;
  it->second.checkpoint = checkpoint;
  it->second.checkpoint_in_request = 0;
}

void LinkState::OnEnded(const AttemptKey& key, const v1::AttemptReport& report) {
  const auto it = attempts_.find(key);
  if (it == attempts_.end() || it->second.ended) return;
  Attempt& attempt = it->second;
  attempt.ended = true;
  attempt.report.set_phase(report.phase());
  attempt.report.set_tokens_per_second(0);
  if (report.step() > attempt.report.step()) attempt.report.set_step(report.step());
  if (report.has_result()) *attempt.report.mutable_result() = report.result();
  if (report.has_failure()) *attempt.report.mutable_failure() = Sendable(report.failure());
  // Where the coordinator is away, the back-off decides: an ended attempt is no reason to hammer it.
  if (backoff_ms_ == 0) Due();
}

void LinkState::BeginDrain() {
  if (draining_) return;
  draining_ = true;
  if (backoff_ms_ == 0) Due();
}

void LinkState::Restore(const v1::AttemptReport& report) {
  Attempt& attempt = attempts_[KeyOf(report)];
  attempt.report = report;
  attempt.ended = true;
}

v1::SyncRequest LinkState::BuildRequest() {
  v1::SyncRequest request;
  request.set_protocol_version(kProtocolVersion);
  *request.mutable_worker() = options_.worker;
  request.mutable_worker()->set_draining(draining_ || paused_);
  request.set_sequence(++sequence_);
  request.set_draining(draining_ || paused_);
  if (draining_ && drain_request_ == 0) drain_request_ = sequence_;
  for (const std::string& key : held_stage_keys_) request.add_held_stage_keys(key);

  int room = options_.max_points_per_request;
  for (auto& [key, attempt] : attempts_) {
    v1::AttemptReport* report = request.add_attempts();
    *report = attempt.report;
    bool all_points = true;
    for (const PointBatch& batch : attempt.points) {
      // One batch always fits, however large: otherwise it would never leave.
      if (static_cast<int>(batch.points.size()) > room && room < options_.max_points_per_request) {
        all_points = false;
        break;
      }
      for (const v1::CurvePoint& point : batch.points) *report->add_points() = point;
      report->set_points_sequence(batch.sequence);
      room -= static_cast<int>(batch.points.size());
    }
    if (!attempt.checkpoint.stage_key().empty()) {
      *report->mutable_checkpoint() = attempt.checkpoint;
      if (attempt.checkpoint_in_request == 0) attempt.checkpoint_in_request = sequence_;
    }
    if (!attempt.ended) continue;
    if (!all_points) {
      // The coordinator forgets an attempt with its end, so the end goes out with the last points.
      report->set_phase(v1::AttemptReport::RUNNING);
      report->clear_result();
      report->clear_failure();
    } else if (attempt.ended_in_request == 0) {
      attempt.ended_in_request = sequence_;
    }
  }
  return request;
}

LinkState::Actions LinkState::OnResponse(int64_t sequence, const v1::SyncResponse& response, int64_t now_us) {
  Actions actions;
  if (sequence <= digested_) return actions;
  digested_ = sequence;
  backoff_ms_ = 0;
  if (drain_request_ != 0 && sequence >= drain_request_) drain_told_ = true;

  for (const v1::AttemptAck& ack : response.acks()) {
    const auto it = attempts_.find({ack.job_id(), ack.attempt()});
    if (it == attempts_.end()) continue;
    const Attempt& attempt = it->second;
    if (attempt.ended_in_request == 0 || attempt.ended_in_request > sequence) continue;
    actions.forgotten.push_back(ack);
    attempts_.erase(it);
  }
  for (const v1::PointsAck& ack : response.points_acks()) {
    const auto it = attempts_.find({ack.job_id(), ack.attempt()});
    if (it == attempts_.end()) continue;
    std::deque<PointBatch>& points = it->second.points;
    while (!points.empty() && points.front().sequence <= ack.points_sequence()) {
      it->second.points_waiting -= static_cast<int64_t>(points.front().points.size());
      points.pop_front();
    }
  }
  for (auto& [key, attempt] : attempts_) {
    if (attempt.checkpoint_in_request != 0 && attempt.checkpoint_in_request <= sequence) {
      attempt.checkpoint.Clear();
      attempt.checkpoint_in_request = 0;
    }
  }

  if (response.drain() && !drain_said_) {
    drain_said_ = true;
    actions.drain = true;
    BeginDrain();
  }

  bool due = false;
  std::set<AttemptKey> desired;
  std::set<AttemptKey> acknowledged;
  for (const v1::AttemptAck& ack : actions.forgotten) acknowledged.insert({ack.job_id(), ack.attempt()});
  for (const v1::Assignment& assignment : response.desired()) {
    const AttemptKey key{assignment.job_id(), assignment.attempt()};
    desired.insert(key);
    if (attempts_.count(key) > 0 || acknowledged.count(key) > 0) continue;
    Attempt& attempt = attempts_[key];
    attempt.report.set_job_id(key.job_id);
    attempt.report.set_attempt(key.attempt);
    attempt.report.set_slot(assignment.slot());
    if (assignment.task().has_stage()) attempt.report.set_step(assignment.task().stage().from_step());
    if (draining_ || paused_) {
      attempt.ended = true;
      attempt.report.set_phase(v1::AttemptReport::RELEASED);
      attempt.report.mutable_failure()->set_kind(v1::PREEMPTED);
      attempt.report.mutable_failure()->set_message(draining_ ? "its worker was asked to stop"
                                                              : "its worker takes no new work now");
      due = true;
    } else {
      attempt.report.set_phase(v1::AttemptReport::RUNNING);
      actions.start.push_back(assignment);
    }
  }
  for (auto& [key, attempt] : attempts_) {
    if (desired.count(key) > 0 || attempt.ended || attempt.stop_asked) continue;
    attempt.stop_asked = true;
    actions.stop.push_back(key);
  }

  int64_t contact_ms = std::clamp(response.next_contact_ms(), kMinContactMs, kMaxContactMs);
  if (response.lease_ms() > 0) contact_ms = std::min(contact_ms, std::max(kMinContactMs, response.lease_ms() / 3));
  next_contact_us_ = now_us + contact_ms * kMicrosPerMilli;
  for (const auto& [key, attempt] : attempts_) {
    // It ended after this request was built, or its end still waits for its points to go out first.
    if (attempt.ended && (attempt.ended_in_request == 0 || attempt.ended_in_request > sequence)) due = true;
  }
  if (draining_ && !drain_told_) due = true;
  if (due) Due();
  return actions;
}

void LinkState::OnFailure(int64_t sequence, int64_t now_us) {
  if (sequence != sequence_ || sequence <= digested_) return;
  backoff_ms_ = backoff_ms_ == 0 ? options_.first_backoff_ms : std::min(backoff_ms_ * 2, options_.max_backoff_ms);
  if (draining_) backoff_ms_ = std::min(backoff_ms_, options_.drain_backoff_ms);
  // Half of it is random, so that workers that lost the coordinator together do not come back together.
  const int64_t half = std::max<int64_t>(backoff_ms_ / 2, 1);
  const int64_t wait_ms = half + static_cast<int64_t>(jitter_() % static_cast<uint64_t>(half + 1));
  next_contact_us_ = now_us + wait_ms * kMicrosPerMilli;
}

std::vector<v1::AttemptReport> LinkState::Unacknowledged() const {
  std::vector<v1::AttemptReport> reports;
  for (const auto& [key, attempt] : attempts_) {
    if (attempt.ended) reports.push_back(attempt.report);
  }
  return reports;
}

}  // namespace ablate
