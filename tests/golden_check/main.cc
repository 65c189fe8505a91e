// golden_check: reads a file of golden values and compares the double-precision reference and a backend with it.
// Exit codes: 0 all within tolerance, 1 a case is not, 2 usage or a file that cannot be used.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "kernels/backend.h"
#include "kernels/cuda/emulated_backend.h"
#include "tests/golden_check/checks.h"
#include "tests/golden_check/statistics_check.h"
#include "worker/trainer/cuda_library.h"

namespace ablate {
namespace {

constexpr char kUsage[] =
    "usage: golden_check attention|model|statistics FILE [--backend cpu|cuda|cuda:N|cuda_emulated]\n"
    "                    [--precision fp32|bf16]\n"
    "       golden_check bf16 LENGTH [--backend ...] --precision bf16\n"
    "       golden_check device all|VARIANT [--backend ...] [--precision ...]\n"
    "       golden_check probes all|VARIANT [--backend ...]\n"
    "  Compares the double-precision reference and the backend with golden values (format: tests/golden/*.json)\n"
    "  and prints the largest relative error of each case; bf16: attention in bf16 on generated inputs with the\n"
    "  reference; device: the same in either precision over every width of head, windows, ALiBi and several tiles. "
    "cuda is libablate_cuda.so beside this program, or ABLATE_CUDA_LIBRARY; cuda_emulated runs the same\n"
    "  kernels on this machine's CPU.\n";

absl::StatusOr<std::unique_ptr<Backend>> NewBackend(const std::string& name, Precision precision) {
  if (name == "cpu") {
    if (precision == Precision::kBf16) return absl::InvalidArgumentError("--backend cpu has no bf16");
    return NewCpuBackend(1);
  }
  if (name == "cuda_emulated") return NewEmulatedCudaBackend(precision);
  CudaOptions options;
  options.precision = precision;
  if (name != "cuda" && (name.rfind("cuda:", 0) != 0 || !absl::SimpleAtoi(name.substr(5), &options.device))) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no backend \"", name, "\"; known: cpu, cuda, cuda:N, cuda_emulated"));
  }
  auto library = CudaLibrary::Load();
  if (!library.ok()) return library.status();
  return library->Open(options);
}

absl::StatusOr<CheckOutcome> Check(const std::string& kind, const std::string& argument, Backend* backend) {
  if (kind == "attention") return CheckAttention(argument, backend);
  if (kind == "model") return CheckModel(argument, backend);
  if (kind == "device") return CheckDevice(argument, backend);
  if (kind == "probes") return CheckProbes(argument, backend);
  int length = 0;
  if (!absl::SimpleAtoi(argument, &length) || length < 1 || length > 8192) {
    return absl::InvalidArgumentError(absl::StrCat("bf16 \"", argument, "\": expected a length from 1 to 8192"));
  }
  constexpr int kHeadDim = 64;
  return CheckBf16(length, kHeadDim, backend);
}

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
  std::map<std::string, std::string> flags = {{"--backend", "cpu"}, {"--precision", "fp32"}};
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    const size_t equals = args[i].find('=');
    const auto flag = flags.find(args[i].substr(0, equals));
    if (flag != flags.end() && equals != std::string::npos) {
      flag->second = args[i].substr(equals + 1);
    } else if (flag != flags.end() && i + 1 < args.size()) {
      flag->second = args[++i];
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
  const std::string &kind = positional[0], &precision = flags["--precision"];
  if (precision != "fp32" && precision != "float32" && precision != "bf16") {
    std::fprintf(stderr, "golden_check: --precision \"%s\": expected fp32 or bf16\n", precision.c_str());
    return 2;
  }
  absl::StatusOr<CheckOutcome> outcome = absl::InvalidArgumentError(
      absl::StrCat("unknown kind \"", kind, "\"; known: attention, model, statistics, bf16, device, probes"));
  if (kind == "statistics" && (flags["--backend"] != "cpu" || precision == "bf16")) {
    outcome = absl::InvalidArgumentError(
        "statistics are computed on the CPU in double precision: leave --backend and --precision out");
  } else if (kind == "statistics") {
    outcome = CheckStatistics(positional[1]);
  } else if (kind == "attention" || kind == "model" || kind == "bf16" || kind == "device" || kind == "probes") {
    const auto backend = NewBackend(flags["--backend"], precision == "bf16" ? Precision::kBf16 : Precision::kFloat32);
    outcome =
        backend.ok() ? Check(kind, positional[1], backend->get()) : absl::StatusOr<CheckOutcome>(backend.status());
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
