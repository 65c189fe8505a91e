// Sweeps that are added to. See coordinator_impl.h.
#include <algorithm>
#include <set>

#include "experiments/plan_claims.h"
#include "server/coordinator_impl.h"
#include "server/sweep_jobs.h"

namespace ablate {
namespace {

// "2 arms and 3 seeds more: 10 points, 40 evaluations"
std::string WhatIsNew(const Plan& before, const Plan& now) {
  std::string parts;
  const auto add = [&](size_t old_count, size_t new_count, const char* one, const char* many) {
    if (new_count <= old_count) return;
    absl::StrAppend(&parts, parts.empty() ? "" : ", ", new_count - old_count, " ",
                    new_count - old_count == 1 ? one : many);
  };
  add(before.arms.size(), now.arms.size(), "arm", "arms");
  add(before.seeds.size(), now.seeds.size(), "seed", "seeds");
  add(before.stages.size(), now.stages.size(), "stage of training", "stages of training");
  add(before.evaluations.size(), now.evaluations.size(), "evaluation", "evaluations");
  return parts.empty() ? "nothing new" : absl::StrCat(parts, " more");
}

}  // namespace

absl::StatusOr<v1::SubmitSweepResponse> CoordinatorImpl::ExtendSweep(const v1::ExtendSweepRequest& request) {
  while (true) {
    {
      MutexLock lock(&mutex_);
      ABLATE_RETURN_IF_ERROR(CheckOpen());
      ABLATE_ASSIGN_OR_RETURN(auto repeated, Repeated<v1::SubmitSweepResponse>(request.request_id(), "ExtendSweep"));
      if (repeated.has_value()) return *repeated;
    }
    ABLATE_ASSIGN_OR_RETURN(const std::shared_ptr<Loaded> old, LoadSweep(request.sweep()));
    ABLATE_ASSIGN_OR_RETURN(Planned parsed, ReadAndPlan(request.yaml(), request.file_name(), request.data(),
                                                        request.task_files(), TuningResultsOf(old->stored.tuning)));
    const auto planned = std::make_shared<const Planned>(std::move(parsed));
    const v1::SweepSpec& spec = planned->file.spec;
    if (spec.name() != old->file.spec.name()) {
      return absl::InvalidArgumentError(absl::StrCat("the file is of sweep \"", spec.name(), "\", not of \"",
                                                     old->file.spec.name(), "\": an extension keeps the name"));
    }
    ABLATE_RETURN_IF_ERROR(CheckExtends(old->file.spec, old->plan, spec, planned->plan));
    ABLATE_RETURN_IF_ERROR(CheckSeals(spec, planned->plan, old->row, false));
    if (NeedsLock(spec) && !old->stored.lock.has_value()) {
      // Its own seal binds it, too.
      std::set<std::string> known;
      for (const PlannedEvaluation& evaluation : old->plan.evaluations) known.insert(evaluation.key);
      for (const Overlap& overlap : Overlaps(old->file.spec, old->plan, spec, planned->plan)) {
        if (known.contains(planned->plan.evaluations[overlap.evaluation].key)) continue;
        return absl::FailedPreconditionError(absl::StrCat("sweep \"", spec.name(),
                                                          "\" would see what it has sealed itself: ", overlap.text,
                                                          ". Extend it after its selection is locked"));
      }
    }

    v1::SubmitSweepResponse response;
    Change written;
    {
      MutexLock lock(&mutex_);
      ABLATE_RETURN_IF_ERROR(CheckOpen());
      if (plans_version_ != old->plans_version) continue;
      if (spec.executor() != v1::EXECUTOR_NOOP) ABLATE_RETURN_IF_ERROR(CheckDataIsHere(spec));
      PlanChange change;
      change.sweep = scheduler_->sweep(old->row).record;
      FillRecord(spec, SpecSha256(planned->file), planned->plan, &change.sweep);
      change.requirement = RequirementOf(spec);
      // What is sealed stays as it was declared; what the lock dropped does not come back.
      change.add = OpenJobsOf(planned->plan);
      Effects effects;
      ABLATE_ASSIGN_OR_RETURN(const SubmitOutcome outcome, scheduler_->OnPlanChange(change, NowTime(), &effects));
      ++plans_version_;
      *response.mutable_sweep() = MakeSweep(old->row);
      const bool adds = planned->plan.evaluations.size() > old->plan.evaluations.size() ||
                        planned->plan.stages.size() > old->plan.stages.size() ||
                        planned->plan.points.size() > old->plan.points.size();
      response.set_created(adds);
      response.set_new_jobs(outcome.new_jobs);
      response.set_reused_jobs(outcome.reused_jobs);
      v1::Deviation deviation;
      deviation.set_at_us(options_.clock->WallMicros());
      deviation.set_kind("extended");
      deviation.set_text(absl::StrCat("extended: ", WhatIsNew(old->plan, planned->plan),
                                      HasPhases(spec) ? "; their numbers are exploratory" : ""));
      const PlanVersion version{deviation.text(), change.sweep.spec_sha256, planned->plan.sha256, deviation.at_us()};
      written = Enqueue(
          std::move(effects), request.request_id(),
          [row = old->row, planned, version, deviation, adds](Connection& db,
                                                              std::vector<std::string>*) -> absl::Status {
            if (!adds) return absl::OkStatus();
            ABLATE_RETURN_IF_ERROR(ExtendPlan(db, row, planned->file.spec, planned->plan, &planned->file, version));
            return AddDeviation(db, row, deviation);
          },
          Remember(request.request_id(), "ExtendSweep", response));
    }
    ABLATE_RETURN_IF_ERROR(Finish(written));
    return response;
  }
}

}  // namespace ablate
