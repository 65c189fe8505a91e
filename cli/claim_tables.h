// Claims, effects, spreads and verifications as reports: flat records for programs, sheets for people. Must not compute
// statistics. Thread rule: pure functions.
#pragma once

#include <string>

#include "cli/output/report.h"
#include "proto/coordinator.pb.h"

namespace ablate {

// Records: a row a claim. Sheets: claims with verdicts; then, where there are any, the lock with its evidence, the
// tuning and the deviations.
Report ClaimsReport(const v1::GetClaimsResponse& response);
// A row an effect, main effects before interactions within each (metric, length, split, NTK).
Report EffectsReport(const v1::GetEffectsResponse& response);
Report SpreadReport(const v1::GetSpreadResponse& response);
Report VerificationsReport(const v1::ListVerificationsResponse& response);

// "supported"; "not yet".
std::string VerdictText(v1::VerdictKind verdict);
// "same"; "different".
std::string VerificationText(v1::Verification::Result result);
// "selecting"; "" for PLAIN.
std::string PhaseText(v1::Phase phase);

}  // namespace ablate
