// Who asks for what is sealed, and what was seen before it was. See coordinator_impl.h. The rules: docs/claims.md;
// source: docs/statistics.md, part 4.
#include <algorithm>
#include <map>
#include <set>

#include "experiments/axes.h"
#include "experiments/plan_claims.h"
#include "server/coordinator_impl.h"

namespace ablate {

absl::Status CoordinatorImpl::CheckSeals(const v1::SweepSpec& spec, const Plan& plan, SweepRow self,
                                         bool unless_there) {
  std::vector<SweepRow> sealed;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    for (SweepRow row = 1; row <= static_cast<SweepRow>(scheduler_->sweep_count()); ++row) {
      const SweepRecord& record = scheduler_->sweep(row).record;
      if (row != self && record.sealed && record.state != v1::SWEEP_CANCELLED) sealed.push_back(row);
    }
  }
  for (SweepRow row : sealed) {
    ABLATE_ASSIGN_OR_RETURN(const std::shared_ptr<Loaded> theirs, LoadSweep(row));
    std::vector<Overlap> overlaps = Overlaps(theirs->file.spec, theirs->plan, spec, plan);
    if (unless_there) {
      MutexLock lock(&mutex_);
      ABLATE_RETURN_IF_ERROR(CheckOpen());
      std::erase_if(overlaps, [&](const Overlap& overlap) {
        const std::string& key = plan.evaluations[overlap.evaluation].key;
        const Scheduler::Job* job = scheduler_->LatestOfKey(key);
        return scheduler_->IsReusable(key) && !job->record.sealed;
      });
    }
    if (overlaps.empty()) continue;
    const std::string& name = theirs->file.spec.name();
    std::string more;
    if (overlaps.size() > 1) {
      more = absl::StrCat(" (and ", overlaps.size() - 1, overlaps.size() == 2 ? " more)" : " others)");
    }
    return absl::FailedPreconditionError(
        absl::StrCat("sweep \"", spec.name(), "\" asks for what sweep \"", name,
                     "\" has sealed until its selection is locked: ", overlaps.front().text, more,
                     ". Wait for the lock (ablate claims ", name, " says what it waits for), or leave these out"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CoordinatorImpl::Candidate>> CoordinatorImpl::FindCandidates(const v1::SweepSpec& spec,
                                                                                        const Plan& plan) {
  std::map<int64_t, std::vector<SealedState>> states;  // by seed
  std::set<int64_t> seeds;
  for (SealedState& state : SealedStates(spec, plan)) {
    if (!state.confirming_seed) continue;
    seeds.insert(state.seed);
    states[state.seed].push_back(std::move(state));
  }
  std::vector<Candidate> candidates;
  if (states.empty()) return candidates;
  std::vector<StoredEvaluation> found;
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(found, FindEvaluations(db, spec.data().sha256(), spec.executor(), seeds));
    return absl::OkStatus();
  }));
  std::map<std::vector<std::string>, std::string> identities;  // by history
  for (const StoredEvaluation& evaluation : found) {
    const auto [identity, fresh] = identities.try_emplace(evaluation.configs);
    if (fresh) {
      std::vector<v1::Configuration> configs;
      for (const std::string& json : evaluation.configs) {
        ABLATE_ASSIGN_OR_RETURN(configs.emplace_back(), ConfigurationFromJson(json));
      }
      std::vector<const v1::Configuration*> history;
      for (const v1::Configuration& config : configs) history.push_back(&config);
      identity->second = ArmIdentity(history);
    }
    for (const SealedState& state : states[evaluation.seed]) {
      if (state.identity != identity->second ||
          !IsSealed(state, evaluation.train_length, evaluation.length, evaluation.split)) {
        continue;
      }
      candidates.push_back({plan.arms[state.arm].json, plan.arms[state.arm].label, state.seed, evaluation.key});
    }
  }
  return candidates;
}

std::vector<Seen> CoordinatorImpl::SeenOf(const std::vector<Candidate>& candidates) const {
  std::vector<Seen> seen;
  for (const Candidate& candidate : candidates) {
    // Any job that has measured it, or that will without waiting for a lock.
    for (const Scheduler::Job* job = scheduler_->LatestOfKey(candidate.evaluation_key); job != nullptr;
         job = job->record.retry_of == 0 ? nullptr : &scheduler_->job(job->record.retry_of)) {
      const v1::JobState state = job->record.state;
      if (state == v1::FAILED || state == v1::CANCELLED || job->record.sealed) continue;
      seen.push_back({candidate.arm_json, candidate.seed, candidate.evaluation_key, job->record.row});
      break;
    }
  }
  return seen;
}

CoordinatorImpl::Body CoordinatorImpl::RecordSeen(SweepRow row, std::vector<Seen> seen,
                                                  const std::vector<Candidate>& candidates) const {
  if (seen.empty()) return nullptr;
  const auto first = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return candidate.evaluation_key == seen.front().evaluation_key;
  });
  v1::Deviation deviation;
  deviation.set_at_us(options_.clock->WallMicros());
  deviation.set_kind("seen_before");
  deviation.set_text(absl::StrCat(seen.size(), seen.size() == 1 ? " evaluation" : " evaluations",
                                  " of what the sweep seals were there before, the first of ", first->arm_label,
                                  ", seed ", first->seed, ", in job ", scheduler_->job(seen.front().job).record.job_id,
                                  ": claims about these arms are exploratory"));
  return [row, seen = std::move(seen), deviation](Connection& db, std::vector<std::string>*) -> absl::Status {
    ABLATE_RETURN_IF_ERROR(WriteSeen(db, row, seen));
    return AddDeviation(db, row, deviation);
  };
}

}  // namespace ablate
