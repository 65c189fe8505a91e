// golden_check: reads a file of golden values and compares the double-precision reference and a backend with it.
// Exit codes: 0 all within tolerance, 1 a case is not, 2 usage or a file that cannot be used.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "kernels/backend.h"
#include "tests/golden_check/checks.h"
#include "tests/golden_check/statistics_check.h"

namespace ablate {
namespace {

constexpr char kUsage[] =
    "usage: golden_check attention|model|statistics FILE [--backend cpu]\n"
    "  Compares the double-precision reference and the backend with golden values (format: tests/golden/*.json)\n"
    "  and prints the largest relative error of each case.\n";

absl::StatusOr<CheckOutcome> CheckStatistics(const std::string& path) {
  constexpr double kTolerance = 1e-9;
  auto results = CheckStatisticsFile(path);
  if (!results.ok()) return results.status();
  CheckOutcome outcome;
  std::printf("%-50s  %10s\n", "case", "error");
  for (const CaseResult& result : *results) {
    if (!result.covered) {
      std::printf("%-50s  not covered\n", result.name.c_str());
      ++outcome.not_covered;
      continue;
    }
    // A NaN must fail, so the comparison is written to be false for it.
    const bool pass = result.max_relative_error <= kTolerance;
    std::printf("%-50s  %10.2e%s%s\n", result.name.c_str(), result.max_relative_error,
                pass ? "" : "  FAILED: ", pass ? "" : result.worst.c_str());
    ++outcome.cases;
    outcome.failed += pass ? 0 : 1;
  }
  return outcome;
}

int Main(const std::vector<std::string>& args) {
  std::vector<std::string> positional;
  std::string backend_name = "cpu";
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (args[i] == "--backend" && i + 1 < args.size()) {
      backend_name = args[++i];
    } else if (args[i].rfind("--backend=", 0) == 0) {
      backend_name = args[i].substr(10);
    } else if (args[i].rfind("--", 0) == 0) {
      std::fprintf(stderr, "golden_check: unknown or incomplete flag %s\n%s", args[i].c_str(), kUsage);
      return 2;
    } else {
      positional.push_back(args[i]);
    }
  }
  if (positional.size() != 2) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  if (backend_name != "cpu") {
    std::fprintf(stderr, "golden_check: this build has no backend \"%s\"; known: cpu\n", backend_name.c_str());
    return 2;
  }
  absl::StatusOr<CheckOutcome> outcome = absl::InvalidArgumentError(
      absl::StrCat("unknown kind \"", positional[0], "\"; known: attention, model, statistics"));
  if (positional[0] == "statistics") {
    outcome = CheckStatistics(positional[1]);
  } else if (positional[0] == "attention" || positional[0] == "model") {
    auto backend = NewCpuBackend(1);
    if (!backend.ok()) {
      outcome = backend.status();
    } else {
      outcome = positional[0] == "attention" ? CheckAttention(positional[1], backend->get())
                                             : CheckModel(positional[1], backend->get());
    }
  }
  if (!outcome.ok()) {
    std::fprintf(stderr, "golden_check: %s\n", std::string(outcome.status().message()).c_str());
    return 2;
  }
  std::printf("%d cases, %d failed, %d not covered\n", outcome->cases, outcome->failed, outcome->not_covered);
  if (outcome->cases == 0) {
    std::fprintf(stderr, "golden_check: %s has no case that is covered\n", positional[1].c_str());
    return 2;
  }
  return outcome->failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) {
  ablate::InitLogging(argv[0]);
  return ablate::Main(std::vector<std::string>(argv + 1, argv + argc));
}
