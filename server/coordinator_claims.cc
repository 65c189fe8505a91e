// Decisions of sweeps with phases: tuning, selection, the lock, looks; and their claims. See coordinator_impl.h.
// Whatever is decided, together with the jobs that it lets go, drops or makes, is one transaction; and it follows from
// what is stored alone, so that after a crash between any two of them the same is decided again.
#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/plan_claims.h"
#include "server/coordinator_impl.h"
#include "server/sweep_jobs.h"
#include "server/table_input.h"

namespace ablate {
namespace {

ClaimsHistory HistoryOf(const StoredClaims& stored) {
  return {.tuning = stored.tuning,
          .lock = stored.lock,
          .looks_done = stored.looks_done,
          .confirming_seeds = stored.confirming_seeds,
          .over = stored.over};
}

bool SameTuning(const std::vector<v1::TunedArm>& left, const std::vector<v1::TunedArm>& right) {
  return std::equal(
      left.begin(), left.end(), right.begin(), right.end(),
      [](const v1::TunedArm& a, const v1::TunedArm& b) { return a.SerializeAsString() == b.SerializeAsString(); });
}

// Which learning rates there are to run, or are chosen: what a plan depends on.
bool SamePlan(const std::vector<v1::TunedArm>& left, const std::vector<v1::TunedArm>& right) {
  const TuningResults a = TuningResultsOf(left), b = TuningResultsOf(right);
  return a.rates == b.rates && a.tries == b.tries;
}

}  // namespace

absl::StatusOr<std::shared_ptr<CoordinatorImpl::Loaded>> CoordinatorImpl::LoadSweep(const std::string& id_or_name) {
  SweepRow row = 0;
  {
    MutexLock lock(&mutex_);
    ABLATE_ASSIGN_OR_RETURN(row, FindSweepRow(id_or_name));
  }
  return LoadSweep(row);
}

absl::StatusOr<std::shared_ptr<CoordinatorImpl::Loaded>> CoordinatorImpl::LoadSweep(SweepRow row) {
  auto loaded = std::make_shared<Loaded>();
  loaded->row = row;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    loaded->version = scheduler_->sweep(row).version;
    loaded->plans_version = plans_version_;
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(loaded->file, ReadSweepFile(db, row));
    ABLATE_ASSIGN_OR_RETURN(loaded->stored, ReadClaims(db, row));
    ABLATE_ASSIGN_OR_RETURN(loaded->table, ReadTable(db, row));
    return absl::OkStatus();
  }));
  ABLATE_ASSIGN_OR_RETURN(loaded->plan, MakePlan(loaded->file.spec, {}, TuningResultsOf(loaded->stored.tuning)));
  return loaded;
}

absl::Status CoordinatorImpl::Apply(const Loaded& loaded, const ClaimsStep& step, const ByHand* by_hand) {
  const v1::SweepSpec& spec = loaded.file.spec;
  auto next = std::make_shared<StoredClaims>(loaded.stored);
  next->tuning = step.tuning;
  const bool locks = step.lock.has_value() && !next->lock.has_value();
  if (locks) {
    next->lock = step.lock;
    next->lock->set_at_us(options_.clock->WallMicros());
  }
  next->looks_done = step.looks_done;
  next->confirming_seeds = step.release_seeds;
  next->over = step.over;

  auto plan = std::make_shared<Plan>(loaded.plan);
  const bool replanned = !SamePlan(loaded.stored.tuning, next->tuning);
  std::vector<Candidate> candidates;
  if (replanned) {
    ABLATE_ASSIGN_OR_RETURN(*plan, MakePlan(spec, {}, TuningResultsOf(next->tuning)));
    ABLATE_ASSIGN_OR_RETURN(candidates, FindCandidates(spec, *plan));
  }
  PlanChange change;
  change.requirement = RequirementOf(spec);
  if (replanned) change.add = JobsOf(*plan);
  std::vector<std::string> arms;
  std::vector<int64_t> seeds;
  if (next->lock.has_value()) {
    for (int arm : step.confirming_arms) arms.push_back(loaded.plan.arms[arm].json);
    seeds.assign(plan->confirming_seeds.begin(),
                 plan->confirming_seeds.begin() + std::min<size_t>(plan->confirming_seeds.size(), step.release_seeds));
    const JobSet sealed = SealedJobs(*plan);
    const JobSet released = ReleasedJobs(*plan, step.confirming_arms, step.release_seeds);
    change.unseal = KeysOf(*plan, released);
    // What the lock did not choose goes at once; what it chose and no look asked for, in the end.
    const JobSet chosen = ReleasedJobs(*plan, step.confirming_arms, static_cast<int>(plan->confirming_seeds.size()));
    change.drop = KeysOf(*plan, sealed, step.over ? &released : &chosen);
  }

  Change written;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    const Scheduler::Sweep& sweep = scheduler_->sweep(loaded.row);
    if (plans_version_ != loaded.plans_version || (by_hand == nullptr && sweep.version != loaded.version)) {
      return absl::AbortedError("the sweep has changed meanwhile");
    }
    const auto not_sealed = [&](const std::string& key) {
      const Scheduler::Job* job = scheduler_->JobOfSweep(loaded.row, key);
      return job == nullptr || !sweep.sealed.contains(job->record.row);
    };
    std::erase_if(change.unseal, not_sealed);
    std::erase_if(change.drop, not_sealed);
    change.sweep = sweep.record;
    change.sweep.phase = PhaseOf(spec, *plan, next->lock.has_value());
    change.sweep.pending = !step.over;
    change.sweep.sealed = NeedsLock(spec) && !next->lock.has_value();
    const bool decides = replanned || locks || step.over != loaded.stored.over || !change.unseal.empty() ||
                         !change.drop.empty() || step.release_seeds != loaded.stored.confirming_seeds ||
                         step.looks_done != loaded.stored.looks_done || !SameTuning(loaded.stored.tuning, step.tuning);
    // Where something was decided, jobs are open now, or the next decision comes at once.
    change.sweep.waiting_for = decides && !step.over ? "" : step.waiting_for;
    if (!decides && change.sweep.waiting_for == sweep.record.waiting_for) {
      decided_version_[loaded.row] = sweep.version;
      return absl::OkStatus();
    }
    Effects effects;
    ABLATE_ASSIGN_OR_RETURN(const SubmitOutcome outcome, scheduler_->OnPlanChange(change, NowTime(), &effects));
    ++plans_version_;
    // Nothing but words: asked again only when something happens.
    if (!decides) decided_version_[loaded.row] = sweep.version;
    Body seen = nullptr;
    if (!candidates.empty()) seen = RecordSeen(loaded.row, SeenOf(candidates), candidates);
    Body remember = nullptr;
    if (by_hand != nullptr) {
      *by_hand->response = MakeSweep(loaded.row);
      remember = Remember(by_hand->request_id, "LockSweep", *by_hand->response);
    }
    const std::string why = !plan->complete ? "a learning rate more" : "tuned";
    const PlanVersion version{why, sweep.record.spec_sha256, plan->sha256, options_.clock->WallMicros()};
    const auto deviation = by_hand == nullptr ? std::nullopt : std::optional(by_hand->deviation);
    LOG(INFO) << "sweep " << spec.name() << ": "
              << (locks       ? absl::StrCat("locked at ",
                                       next->lock->arm_json().empty() ? "what the file names" : next->lock->arm_json())
                        : step.over ? "decided"
                  : replanned ? why
                              : "goes on")
              << "; " << outcome.new_jobs << " new jobs, " << change.unseal.size() << " let go, " << change.drop.size()
              << " dropped";
    written = Enqueue(
        std::move(effects), by_hand == nullptr ? "" : by_hand->request_id,
        [row = loaded.row, spec = std::make_shared<v1::SweepSpec>(spec), plan, next, replanned, version, arms, seeds,
         seen, deviation, over = step.over](Connection& db, std::vector<std::string>* unreferenced) -> absl::Status {
          if (replanned) ABLATE_RETURN_IF_ERROR(ExtendPlan(db, row, *spec, *plan, nullptr, version));
          ABLATE_RETURN_IF_ERROR(WriteClaims(db, row, *next));
          if (seen) ABLATE_RETURN_IF_ERROR(seen(db, unreferenced));
          if (deviation.has_value()) ABLATE_RETURN_IF_ERROR(AddDeviation(db, row, *deviation));
          if (!next->lock.has_value()) return absl::OkStatus();
          ABLATE_RETURN_IF_ERROR(OpenPoints(db, row, arms, seeds));
          return DropPoints(db, row, over ? std::vector<std::string>() : arms);
        },
        remember);
  }
  return Finish(written);
}

absl::Status CoordinatorImpl::Decide(SweepRow row) {
  ABLATE_ASSIGN_OR_RETURN(const std::shared_ptr<Loaded> loaded, LoadSweep(row));
  const TableInput input = MakeTableInput(loaded->table);
  ABLATE_ASSIGN_OR_RETURN(const ClaimsStep step,
                          NextStep(loaded->file.spec, loaded->plan, HistoryOf(loaded->stored), input.measurements));
  return Apply(*loaded, step, nullptr);
}

std::string CoordinatorImpl::WaitingFor(SweepRow row) const {
  const Scheduler::Sweep& sweep = scheduler_->sweep(row);
  if (sweep.record.state == v1::SWEEP_CANCELLED) return "";
  // Nothing more will be decided, but a retry may fill a gap.
  if (!sweep.record.pending) return sweep.record.state == v1::SWEEP_FAILED ? sweep.record.waiting_for : "";
  if (!scheduler_->AwaitsDecision(row)) {
    const int64_t open = sweep.counts.blocked() - sweep.sealed_blocked + sweep.counts.queued() + sweep.counts.running();
    return absl::StrCat(open, open == 1 ? " job" : " jobs", " of the ", ToAbsl(PhaseName(sweep.record.phase)),
                        " phase to end");
  }
  return sweep.record.waiting_for.empty() ? "the next decision" : sweep.record.waiting_for;
}

void CoordinatorImpl::DecideAll() {
  std::vector<std::pair<SweepRow, int64_t>> rows;
  {
    MutexLock lock(&mutex_);
    if (stopping_ || broken_) return;
    for (SweepRow row = 1; row <= static_cast<SweepRow>(scheduler_->sweep_count()); ++row) {
      if (!scheduler_->AwaitsDecision(row)) continue;
      const int64_t version = scheduler_->sweep(row).version;
      const auto decided = decided_version_.find(row);
      if (decided == decided_version_.end() || decided->second != version) rows.push_back({row, version});
    }
  }
  for (const auto& [row, version] : rows) {
    const absl::Status status = Decide(row);
    if (status.ok() || absl::IsAborted(status) || absl::IsUnavailable(status)) continue;
    // Not asked again before something happens: it would only say the same. The sweep says why it stands still.
    Change change;
    {
      MutexLock lock(&mutex_);
      if (!CheckOpen().ok()) return;
      const Scheduler::Sweep& sweep = scheduler_->sweep(row);
      LOG(ERROR) << "sweep " << sweep.record.name << " cannot be decided: " << status;
      PlanChange words;
      words.sweep = sweep.record;
      words.sweep.waiting_for = absl::StrCat("a decision that failed: ", status.message());
      Effects effects;
      if (!scheduler_->OnPlanChange(words, NowTime(), &effects).ok()) continue;
      decided_version_[row] = sweep.version;
      change = Enqueue(std::move(effects));
    }
    if (const absl::Status stored = Finish(change); !stored.ok()) LOG(ERROR) << "it could not be stored: " << stored;
  }
}

absl::StatusOr<v1::Sweep> CoordinatorImpl::LockSweep(const v1::LockSweepRequest& request) {
  while (true) {
    {
      MutexLock lock(&mutex_);
      ABLATE_RETURN_IF_ERROR(CheckOpen());
      ABLATE_ASSIGN_OR_RETURN(auto repeated, Repeated<v1::Sweep>(request.request_id(), "LockSweep"));
      if (repeated.has_value()) return *repeated;
    }
    ABLATE_ASSIGN_OR_RETURN(const std::shared_ptr<Loaded> loaded, LoadSweep(request.sweep()));
    const v1::SweepSpec& spec = loaded->file.spec;
    if (!spec.has_select()) {
      return absl::FailedPreconditionError(
          absl::StrCat("sweep \"", spec.name(), "\" selects nothing, so there is nothing to lock"));
    }
    if (!loaded->plan.complete) {
      return absl::FailedPreconditionError(
          absl::StrCat("sweep \"", spec.name(), "\" is still tuning: lock it when every arm has its learning rate"));
    }
    const TableInput input = MakeTableInput(loaded->table);
    ClaimsHistory history = HistoryOf(loaded->stored);
    ABLATE_ASSIGN_OR_RETURN(v1::Lock made, MakeLockByHand(spec, loaded->plan, history, input.measurements,
                                                          request.arm_json(), request.why()));
    history.lock = made;
    ABLATE_ASSIGN_OR_RETURN(ClaimsStep step, NextStep(spec, loaded->plan, history, input.measurements));
    step.lock = made;
    v1::Sweep response;
    ByHand by_hand{.request_id = request.request_id(), .response = &response};
    by_hand.deviation.set_at_us(options_.clock->WallMicros());
    by_hand.deviation.set_kind("lock_by_hand");
    by_hand.deviation.set_text(absl::StrCat(
        "locked by hand at ", made.arm_json(), ": ", request.why(), ". The rule ",
        made.rule_arm_json().empty() ? "had not picked an arm yet" : absl::StrCat("picks ", made.rule_arm_json())));
    const absl::Status status = Apply(*loaded, step, &by_hand);
    if (absl::IsAborted(status)) continue;
    if (!status.ok()) return status;
    return response;
  }
}

absl::StatusOr<v1::GetClaimsResponse> CoordinatorImpl::GetClaims(const v1::GetClaimsRequest& request) {
  v1::GetClaimsResponse response;
  std::vector<std::string> names{request.sweep()};
  names.insert(names.end(), request.also().begin(), request.also().end());
  std::vector<std::shared_ptr<Loaded>> sweeps;
  std::vector<const v1::SweepSpec*> specs;
  for (const std::string& name : names) {
    ABLATE_ASSIGN_OR_RETURN(std::shared_ptr<Loaded> loaded, LoadSweep(name));
    sweeps.push_back(std::move(loaded));
    specs.push_back(&sweeps.back()->file.spec);
  }
  ABLATE_RETURN_IF_ERROR(CheckTexts(specs));
  std::vector<std::vector<v1::ClaimRow>> texts;
  for (const std::shared_ptr<Loaded>& loaded : sweeps) {
    const v1::SweepSpec& spec = loaded->file.spec;
    const StoredClaims& stored = loaded->stored;
    std::vector<StoredSeen> seen_rows;
    ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
      ABLATE_ASSIGN_OR_RETURN(seen_rows, ReadSeen(db, loaded->row));
      return absl::OkStatus();
    }));
    std::vector<std::pair<std::string, std::string>> seen;
    for (int i = 0; i < spec.claims_size() && i < static_cast<int>(loaded->plan.claims.size()); ++i) {
      const PlannedClaim& claim = loaded->plan.claims[i];
      std::set<std::string> arms{loaded->plan.arms[claim.against].json};
      if (claim.arm >= 0) {
        arms.insert(loaded->plan.arms[claim.arm].json);
      } else if (stored.lock.has_value()) {
        arms.insert(stored.lock->arm_json());
      }
      std::string job;
      for (const StoredSeen& row : seen_rows) {
        if (job.empty() && arms.contains(row.arm_json)) job = row.job_id;
      }
      seen.push_back({spec.claims(i).name(), job});
    }
    const TableInput input = MakeTableInput(loaded->table);
    ABLATE_ASSIGN_OR_RETURN(std::vector<v1::ClaimRow> rows,
                            JudgeClaims(spec, loaded->plan, HistoryOf(stored), input.measurements, seen));
    if (sweeps.size() > 1) {
      // A claim is refuted if it is on one of k texts: at alpha / k on each, so that all together err at alpha.
      v1::SweepSpec strict = spec;
      strict.set_alpha((spec.alpha() > 0 ? spec.alpha() : 0.05) / static_cast<double>(sweeps.size()));
      ABLATE_ASSIGN_OR_RETURN(const std::vector<v1::ClaimRow> refuting,
                              JudgeClaims(strict, loaded->plan, HistoryOf(stored), input.measurements, seen));
      for (size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].verdict() == v1::REFUTED && refuting[i].verdict() != v1::REFUTED) rows[i] = refuting[i];
      }
    }
    texts.push_back(std::move(rows));
    for (const v1::Deviation& deviation : stored.deviations) {
      v1::Deviation* message = response.add_deviations();
      *message = deviation;
      if (names.size() > 1) message->set_text(absl::StrCat(spec.name(), ": ", deviation.text()));
    }
    std::string waiting_for;
    {
      MutexLock lock(&mutex_);
      ABLATE_RETURN_IF_ERROR(CheckOpen());
      const Scheduler::Sweep& sweep = scheduler_->sweep(loaded->row);
      waiting_for = WaitingFor(loaded->row);
      if (texts.size() == 1) response.set_phase(sweep.record.phase);
    }
    if (!waiting_for.empty()) {
      response.set_waiting_for(absl::StrCat(response.waiting_for(), response.waiting_for().empty() ? "" : "; ",
                                            names.size() > 1 ? absl::StrCat(spec.name(), ": ") : "", waiting_for));
    }
    if (texts.size() > 1) continue;
    response.set_plan_sha256(stored.sealed_plan_sha256);
    ABLATE_ASSIGN_OR_RETURN(const std::optional<v1::ValidityGate> gate,
                            GateOfBaseline(spec, loaded->plan, input.measurements));
    if (gate.has_value()) *response.mutable_gate() = *gate;
    if (stored.lock.has_value()) {
      *response.mutable_lock() = *stored.lock;
      ABLATE_ASSIGN_OR_RETURN(const std::optional<v1::Lock> later,
                              WithLaterRule(spec, loaded->plan, input.measurements, *stored.lock));
      if (later.has_value()) {
        *response.mutable_lock() = *later;
        v1::Deviation* deviation = response.add_deviations();
        deviation->set_at_us(later->at_us());
        deviation->set_kind("rule_after_lock");
        deviation->set_text(absl::StrCat("the rule could pick only after the lock by hand: by now it picks ",
                                         later->rule_arm_json(), " (exploratory)"));
      }
    }
    for (const v1::TunedArm& arm : stored.tuning) *response.add_tuning() = arm;
  }
  if (texts.size() > 1) {
    ABLATE_ASSIGN_OR_RETURN(texts.front(), CombineTexts(texts));
  }
  for (v1::ClaimRow& row : texts.front()) *response.add_claims() = std::move(row);
  return response;
}

}  // namespace ablate
