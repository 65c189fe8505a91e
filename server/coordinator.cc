// Opening, writing, recovery, the ticker. See coordinator_impl.h.
#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/strings.h"
#include "server/coordinator_impl.h"

namespace ablate {
namespace {

constexpr int64_t kTickMicros = 200'000;
constexpr int64_t kStallMicros = 1'500'000;  // the ticker wakes more often than that
constexpr int64_t kRememberRequestsMicros = int64_t{30} * 86'400 * 1'000'000;

bool IsOutage(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status) || absl::IsDataLoss(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Open(const CoordinatorOptions& options) {
  return CoordinatorImpl::Open(options);
}

absl::StatusOr<std::unique_ptr<Coordinator>> CoordinatorImpl::Open(const CoordinatorOptions& options) {
  std::unique_ptr<CoordinatorImpl> self(new CoordinatorImpl(options));
  StoreOptions store_options{.data_dir = options.data_dir, .read_only = options.read_only, .before_commit = options.before_commit};
  // A failed group is of the current epoch: a new one starts only when nothing is left to write.
  store_options.on_failure = [raw = self.get()] { raw->failed_epoch_ = raw->current_epoch_.load(); };
  ABLATE_ASSIGN_OR_RETURN(self->store_, Store::Open(std::move(store_options)));
  const int64_t forget_before = options.clock->WallMicros() - kRememberRequestsMicros;
  if (!options.read_only) {
    ABLATE_RETURN_IF_ERROR(
        self->store_->Write([forget_before](Connection& db) { return ForgetRequestsBefore(db, forget_before); }));
  }
  SchedulerSnapshot snapshot;
  std::set<std::string> named;
  ABLATE_RETURN_IF_ERROR(self->store_->Read([&](Connection& db) -> absl::Status {
    if (options.sweeps_alone) {
      ABLATE_ASSIGN_OR_RETURN(snapshot.sweeps, LoadSweepsAlone(db));
      return absl::OkStatus();
    }
    ABLATE_ASSIGN_OR_RETURN(snapshot, LoadSnapshot(db));
    ABLATE_ASSIGN_OR_RETURN(named, ReadNamedArtifacts(db));
    return absl::OkStatus();
  }));
  if (options.sweep_artifacts)
    options.sweep_artifacts([&](const std::string& sha256) { return named.contains(sha256); });
  {
    MutexLock lock(&self->mutex_);
    self->StillHere();
    self->first_revision_ = options.clock->WallMicros();
    self->scheduler_ = self->NewScheduler();
    ABLATE_RETURN_IF_ERROR(self->scheduler_->OnRestart(snapshot, self->NowTime()));
  }
  if (!options.read_only) self->ticker_ = std::thread([raw = self.get()] { raw->TickerLoop(); });
  return self;
}

CoordinatorImpl::~CoordinatorImpl() {
  Shutdown();
  if (ticker_.joinable()) ticker_.join();
}

void CoordinatorImpl::Shutdown() {
  MutexLock lock(&mutex_);
  stopping_ = true;
  changed_.NotifyAll();
  work_changed_.NotifyAll();
}

std::unique_ptr<Scheduler> CoordinatorImpl::NewScheduler() {
  return std::make_unique<Scheduler>(SchedulerOptions{.lease_us = options_.lease_ms * 1000,
                                                      .max_failures = options_.max_failures,
                                                      .retry_delay_us = options_.retry_delay_ms * 1000,
                                                      .sweep_max_failures = options_.sweep_max_failures,
                                                      .has_artifact = options_.has_artifact,
                                                      .no_new_jobs = options_.no_new_jobs},
                                     options_.ids);
}

absl::Status CoordinatorImpl::CheckOpen() const {
  if (stopping_) return absl::UnavailableError("the coordinator is stopping");
  if (broken_) return absl::UnavailableError("the database cannot be read; the coordinator keeps trying (see its log)");
  return absl::OkStatus();
}

CoordinatorImpl::Change CoordinatorImpl::Enqueue(Effects effects, const std::string& request_id, Body before,
                                                 Body after) {
  Change change;
  change.epoch = current_epoch_;
  change.sequence = ++sequence_;
  change.request_id = request_id;
  Announce(effects);
  for (const JobRecord& record : effects.created) NoteMeasured(record.row, false);
  for (const JobRecord& record : effects.changed) {
    if (record.state == v1::SUCCEEDED) NoteMeasured(record.row, false);
  }
  const int64_t wall_us = options_.clock->WallMicros();
  change.ticket =
      store_->Enqueue([this, epoch = change.epoch, wall_us, effects = std::move(effects), before = std::move(before),
                       after = std::move(after), unreferenced = change.unreferenced](Connection& db) -> absl::Status {
        if (failed_epoch_ >= epoch) return absl::UnavailableError("a write that this one builds on failed");
        const absl::Status status = [&]() -> absl::Status {
          if (before) ABLATE_RETURN_IF_ERROR(before(db, unreferenced.get()));
          ABLATE_RETURN_IF_ERROR(ApplyEffects(db, effects, wall_us));
          if (after) ABLATE_RETURN_IF_ERROR(after(db, unreferenced.get()));
          return CollectStates(db, effects.collections, unreferenced.get());
        }();
        // Memory is ahead of the disk now: nothing that builds on it may be stored.
        if (!status.ok()) failed_epoch_ = epoch;
        return status;
      });
  last_change_ = change;
  return change;
}

void CoordinatorImpl::Announce(const Effects& effects) {
  ++change_version_;
  changed_.NotifyAll();
  const bool work = std::any_of(effects.transitions.begin(), effects.transitions.end(),
                                [](const Transition& transition) { return transition.to == v1::QUEUED; });
  if (!work && effects.workers.empty()) return;
  ++work_version_;
  work_changed_.NotifyAll();
}

void CoordinatorImpl::NoteMeasured(JobRow row, bool curves_alone) {
  // A sweep that kept the failed job of this key shows what its successor measured.
  for (; row != 0; row = scheduler_->job(row).record.retry_of) {
    for (SweepRow sweep : scheduler_->job(row).sweeps) {
      ++(curves_alone ? measured_[sweep].points : measured_[sweep].results);
    }
  }
}

absl::Status CoordinatorImpl::Finish(const Change& change) {
  const absl::Status status = store_->Wait(change.ticket);
  if (!status.ok()) {
    Recover(change.epoch);
    return IsOutage(status) ? absl::UnavailableError(status.message()) : status;
  }
  if (!change.request_id.empty() || !change.unreferenced->empty()) {
    MutexLock lock(&mutex_);
    requests_in_flight_.erase(change.request_id);
    DeleteUnreferenced(change);
  }
  return absl::OkStatus();
}

absl::Status CoordinatorImpl::Settle(const std::optional<Change>& last) {
  if (!last.has_value()) return absl::OkStatus();
  const absl::Status status = store_->Wait(last->ticket);
  if (status.ok()) return status;
  Recover(last->epoch);
  return absl::UnavailableError(
      absl::StrCat("something that had just happened could not be stored; try again: ", status.message()));
}

void CoordinatorImpl::DeleteUnreferenced(const Change& change) {
  for (const std::string& sha256 : *change.unreferenced) {
    const auto named = named_at_.find(sha256);
    // A report that came after the collection names it again: it was accepted because it is stored.
    if (named != named_at_.end() && named->second > change.sequence) continue;
    if (options_.delete_artifact) options_.delete_artifact(sha256);
  }
}

void CoordinatorImpl::Recover(int64_t epoch) {
  MutexLock lock(&mutex_);
  if (current_epoch_ > epoch) return;
  // Everything of this epoch that still waits is refused: after this the store is all there is.
  failed_epoch_ = epoch;
  store_->Drain();
  SchedulerSnapshot snapshot;
  std::unique_ptr<Scheduler> scheduler = NewScheduler();
  absl::Status status = store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(snapshot, LoadSnapshot(db));
    return absl::OkStatus();
  });
  if (status.ok()) status = scheduler->OnRestart(snapshot, NowTime());
  broken_ = !status.ok();
  if (broken_) {
    LOG(ERROR) << "the scheduler cannot be rebuilt from the database: " << status;
    return;
  }
  LOG(WARNING) << "a write failed; the scheduler was rebuilt from the database";
  scheduler_ = std::move(scheduler);
  current_epoch_ = epoch + 1;
  requests_in_flight_.clear();
  decided_version_.clear();
  ++plans_version_;
  last_change_.reset();
  ++change_version_;
  ++work_version_;
  changed_.NotifyAll();
  work_changed_.NotifyAll();
}

void CoordinatorImpl::StillHere() {
  alive_real_us_ = Clock::Real().MonotonicMicros();
  alive_us_ = options_.clock->MonotonicMicros();
}

void CoordinatorImpl::CheckStall() {
  const int64_t real_us = Clock::Real().MonotonicMicros() - alive_real_us_;
  const int64_t stall_us = std::min(real_us, options_.clock->MonotonicMicros() - alive_us_);
  StillHere();
  if (stall_us < kStallMicros) return;
  LOG(WARNING) << "the coordinator stood still for " << HumanSeconds(static_cast<double>(stall_us) * 1e-6)
               << ": leases are longer by that";
  scheduler_->OnStall(stall_us);
}

void CoordinatorImpl::TickerLoop() {
  while (true) {
    std::optional<Change> change;
    bool broken = false;
    {
      MutexLock lock(&mutex_);
      // Its own work (decisions, slow disks) is no stall: others go on meanwhile.
      StillHere();
      if (!stopping_) work_changed_.WaitFor(&mutex_, kTickMicros);
      if (stopping_) return;
      CheckStall();
      broken = broken_;
      if (!broken) {
        Effects effects;
        scheduler_->OnTick(NowTime(), &effects);
        if (!effects.empty()) change = Enqueue(std::move(effects));
      }
    }
    if (broken) {
      std::this_thread::sleep_for(std::chrono::microseconds(kTickMicros));
      Recover(current_epoch_);
    }
    if (change.has_value()) {
      if (absl::Status status = Finish(*change); !status.ok())
        LOG(ERROR) << "expired leases could not be stored: " << status;
    }
    if (!broken) DecideAll();
  }
}

absl::StatusOr<std::optional<StoredRequest>> CoordinatorImpl::FindRepeated(const std::string& request_id,
                                                                           const char* method) {
  if (request_id.empty()) return std::nullopt;
  std::optional<StoredRequest> stored;
  if (const auto found = requests_in_flight_.find(request_id); found != requests_in_flight_.end()) {
    stored = found->second;
  } else {
    ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
      ABLATE_ASSIGN_OR_RETURN(stored, FindRequest(db, request_id));
      return absl::OkStatus();
    }));
  }
  if (stored.has_value() && stored->method != method) {
    return absl::InvalidArgumentError(absl::StrCat("request_id \"", request_id, "\" was used for another call (",
                                                   stored->method, "): choose a new one"));
  }
  return stored;
}

CoordinatorImpl::Body CoordinatorImpl::Remember(const std::string& request_id, const char* method,
                                                const google::protobuf::Message& response) {
  if (request_id.empty()) return nullptr;
  StoredRequest request{method, response.SerializeAsString()};
  requests_in_flight_[request_id] = request;
  return [request_id, request = std::move(request), wall_us = options_.clock->WallMicros()](Connection& db,
                                                                                            std::vector<std::string>*) {
    return SaveRequest(db, request_id, request.method, request.response, wall_us);
  };
}

}  // namespace ablate
