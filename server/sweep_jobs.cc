#include "server/sweep_jobs.h"

#include <algorithm>

#include "server/store/records.h"

namespace ablate {

Requirement RequirementOf(const v1::SweepSpec& spec) {
  Requirement requirement{.device = spec.requirements().device(), .memory_bytes = spec.requirements().memory_bytes()};
  requirement.labels.assign(spec.requirements().labels().begin(), spec.requirements().labels().end());
  std::sort(requirement.labels.begin(), requirement.labels.end());
  requirement.executor = spec.executor() == v1::EXECUTOR_NOOP ? v1::EXECUTOR_NOOP : v1::EXECUTOR_TRAINER;
  return requirement;
}

std::vector<SubmitPlan::PlannedJob> JobsOf(const Plan& plan) {
  const JobSet sealed = SealedJobs(plan);
  std::vector<SubmitPlan::PlannedJob> jobs;
  jobs.reserve(plan.stages.size() + plan.evaluations.size());
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlannedStage& stage = plan.stages[i];
    jobs.push_back({.kind = v1::STAGE,
                    .key = stage.key,
                    .parent = stage.parent,
                    .from_step = stage.from_step,
                    .to_step = stage.to_step,
                    .sealed = sealed.stages[i]});
  }
  for (size_t i = 0; i < plan.evaluations.size(); ++i) {
    const PlannedEvaluation& evaluation = plan.evaluations[i];
    jobs.push_back(
        {.kind = v1::EVALUATION, .key = evaluation.key, .parent = evaluation.stage, .sealed = sealed.evaluations[i]});
  }
  return jobs;
}

std::vector<SubmitPlan::PlannedJob> OpenJobsOf(const Plan& plan) {
  std::vector<SubmitPlan::PlannedJob> open;
  const std::vector<SubmitPlan::PlannedJob> all = JobsOf(plan);
  std::vector<int> place(all.size(), -1);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].sealed) continue;
    place[i] = static_cast<int>(open.size());
    open.push_back(all[i]);
    // What an open job needs is open.
    if (all[i].parent >= 0) open.back().parent = place[all[i].parent];
  }
  return open;
}

std::vector<std::string> KeysOf(const Plan& plan, const JobSet& set, const JobSet* but) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    if (set.stages[i] && (but == nullptr || !but->stages[i])) keys.push_back(plan.stages[i].key);
  }
  for (size_t i = 0; i < plan.evaluations.size(); ++i) {
    if (set.evaluations[i] && (but == nullptr || !but->evaluations[i])) keys.push_back(plan.evaluations[i].key);
  }
  return keys;
}

v1::Phase PhaseOf(const v1::SweepSpec& spec, const Plan& plan, bool locked) {
  if (!HasPhases(spec)) return v1::PLAIN;
  if (!plan.complete) return v1::TUNING;
  if (spec.has_select() && (!locked || !spec.has_confirm())) return v1::SELECTING;
  return spec.has_confirm() ? v1::CONFIRMING : v1::PLAIN;
}

void FillRecord(const v1::SweepSpec& spec, const std::string& spec_sha256, const Plan& plan, SweepRecord* record) {
  record->name = spec.name();
  record->description = spec.description();
  record->spec_sha256 = spec_sha256;
  record->plan_sha256 = plan.sha256;
  record->data = TravellingFiles(spec);
  record->priority = spec.priority();
  record->keep = spec.keep() == v1::KEEP_UNSPECIFIED ? v1::KEEP_NONE : spec.keep();
  record->arms = static_cast<int32_t>(
      std::count_if(plan.arms.begin(), plan.arms.end(), [](const Arm& arm) { return arm.phase != v1::TUNING; }));
  record->seeds = static_cast<int32_t>(plan.seeds.size());
}

}  // namespace ablate
