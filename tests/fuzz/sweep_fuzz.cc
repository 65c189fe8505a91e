// Fuzz target: a sweep file, as whoever may submit sends it, to a spec and, where it is small, to a plan.
#include <cstdint>
#include <string>

#include "base/hash.h"
#include "base/log.h"
#include "base/utf8.h"
#include "experiments/plan.h"
#include "experiments/sweep_file.h"
#include "proto/coordinator.pb.h"
#include "tests/fuzz/plan_size.h"

namespace ablate {
namespace {

constexpr double kMostCells = 3000;  // points times what is measured of each: more takes too long for one input

// A refusal for people: the file's name, where, and text.
void CheckRefusal(const absl::Status& status) {
  CHECK(absl::IsInvalidArgument(status)) << status;
  CHECK(IsUtf8({status.message().data(), status.message().size()}));
  CHECK_LT(status.message().size(), 100'000u);
}

}  // namespace
}  // namespace ablate

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ablate;  // NOLINT
  const std::string yaml(reinterpret_cast<const char*>(data), size);
  SweepPlaces places;
  absl::StatusOr<v1::SweepSpec> spec = ParseSweepFile(yaml, "fuzz.yaml", &places);
  if (!spec.ok()) {
    CheckRefusal(spec.status());
    CHECK_EQ(spec.status().message().substr(0, 10), "fuzz.yaml:");
    return 0;
  }
  CHECK(spec->IsInitialized());
  if (PlanCells(*spec) > kMostCells) return 0;
  const std::string hash = Sha256Hex("data");
  const auto fill = [&](auto* files) {
    for (v1::DataFile& file : *files) {
      if (file.sha256().empty()) file.set_sha256(hash);
      file.set_bytes(1000);
    }
  };
  fill(spec->mutable_data()->mutable_files());
  if (spec->data().sha256().empty()) spec->mutable_data()->set_sha256(CombinedDataSha256(spec->data()));
  for (v1::ProbeSpec& probe : *spec->mutable_evaluate()->mutable_probes()) {
    fill(probe.mutable_files());
    fill(probe.mutable_tokenizer());
  }
  const absl::StatusOr<Plan> plan = MakePlan(*spec, places);
  if (!plan.ok()) {
    CheckRefusal(plan.status());
    return 0;
  }
  CHECK(IsSha256Hex(plan->sha256));
  CHECK(!plan->arms.empty());
  for (const PlannedStage& stage : plan->stages) CHECK(IsSha256Hex(stage.key));
  for (const PlannedEvaluation& evaluation : plan->evaluations)
    CHECK_LT(evaluation.stage, static_cast<int>(plan->stages.size()));
  // Planned again it is the same, and what is told of it fits.
  const absl::StatusOr<Plan> again = MakePlan(*spec, places);
  CHECK(again.ok() && again->sha256 == plan->sha256);
  const v1::PlanSummary summary = Summarize(*spec, *plan);
  if (!HasPhases(*spec)) CHECK_EQ(summary.points(), static_cast<int64_t>(plan->points.size()));
  return 0;
}
