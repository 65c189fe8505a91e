// From a plan to the jobs that the scheduler makes of it. Pure; any thread. Must not know SQL or gRPC.
#pragma once

#include <string>
#include <vector>

#include "experiments/plan.h"
#include "experiments/plan_claims.h"
#include "server/scheduler/scheduler.h"

namespace ablate {

Requirement RequirementOf(const v1::SweepSpec& spec);

// Stages, then evaluations; sealed where only confirming points need them.
std::vector<SubmitPlan::PlannedJob> JobsOf(const Plan& plan);
// The same without the sealed ones: what an extension may add.
std::vector<SubmitPlan::PlannedJob> OpenJobsOf(const Plan& plan);

// Keys of the jobs in `set`; with `but`, of those that are not in that.
std::vector<std::string> KeysOf(const Plan& plan, const JobSet& set, const JobSet* but = nullptr);

// The phase in which a sweep stands.
v1::Phase PhaseOf(const v1::SweepSpec& spec, const Plan& plan, bool locked);

// The parts of a sweep's record that follow from its file and plan.
void FillRecord(const v1::SweepSpec& spec, const std::string& spec_sha256, const Plan& plan, SweepRecord* record);

}  // namespace ablate
