// Speed of the trainer's model in tokens a second of CPU time, the number that bench/train_vs_pytorch.sh compares:
//   train_bench train|eval tiny|small softmax|lssar|... LENGTH BATCH STEPS [THREADS] [--profile]
// Prints one line: tokens a second (median over steps, and best), peak memory of the process in MB. With --profile, a
// line an op.
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "bench/profiled_backend.h"
#include "kernels/backend.h"
#include "worker/trainer/model.h"
#include "worker/trainer/philox.h"

namespace ablate {
namespace {

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int Usage() {
  std::fputs("usage: train_bench train|eval tiny|small VARIANT LENGTH BATCH STEPS [THREADS] [--profile]\n", stderr);
  return 2;
}

int Main(std::vector<std::string> args) {
  const auto profile_flag = std::find(args.begin(), args.end(), "--profile");
  const bool profile = profile_flag != args.end();
  if (profile) args.erase(profile_flag);
  if (args.size() < 6 || args.size() > 7) return Usage();
  const bool train = args[0] == "train";
  ModelConfig config;
  if (args[1] == "small") {
    config.layers = 6;
    config.width = 384;
    config.heads = 6;
  } else if (args[1] != "tiny") {
    return Usage();
  }
  const AttentionVariant* variant = FindAttentionVariant(args[2]);
  const int T = std::atoi(args[3].c_str()), B = std::atoi(args[4].c_str()), steps = std::atoi(args[5].c_str());
  const int threads = args.size() == 7 ? std::atoi(args[6].c_str()) : 1;
  if ((!train && args[0] != "eval") || variant == nullptr || T < 1 || B < 1 || steps < 1 || threads < 1) return Usage();
  config.attention = variant->spec;
  config.train_length = train ? T : 256;

  auto cpu = NewCpuBackend(threads);
  CHECK(cpu.ok()) << cpu.status();
  std::unique_ptr<Backend> backend = *std::move(cpu);
  std::map<std::string, double> seconds;
  if (profile) backend = NewProfiledBackend(std::move(backend), &seconds);
  auto model = Model::Create(backend.get(), config);
  CHECK(model.ok()) << model.status();
  CHECK((*model)->InitWeights(1).ok());
  // Text-like: repeated and skewed.
  const int n = B * T;
  std::vector<int32_t> tokens(n), targets(n);
  const PhiloxStream stream(1, "bench");
  for (int i = 0; i < n; ++i) {
    const double u = stream.Uniform(i);
    tokens[i] = static_cast<int32_t>(255 * u * u);
  }
  for (int i = 0; i < n; ++i) targets[i] = tokens[(i + 1) % n];

  std::vector<double> rates;
  double loss = 0;
  for (int step = -1; step < steps; ++step) {  // the first step allocates and is not counted
    if (step == 0) seconds.clear();
    const double start = CpuSeconds();
    if (train) {
      auto result = (*model)->ForwardBackward(tokens.data(), targets.data(), B, T, 1.0 / n);
      CHECK(result.ok()) << result.status();
      loss = result->mean();
      CHECK((*model)->AdamWStep({}).ok());
    } else {
      auto result = (*model)->Evaluate(tokens.data(), targets.data(), B, T, {}, nullptr);
      CHECK(result.ok()) << result.status();
      loss = result->mean();
    }
    if (step >= 0) rates.push_back(n / (CpuSeconds() - start));
  }
  std::sort(rates.begin(), rates.end());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%s %s %s T=%d B=%d tokens_per_cpu_second median %.1f best %.1f peak_mb %.1f loss %.4f\n",
              args[0].c_str(), args[1].c_str(), args[2].c_str(), T, B, rates[rates.size() / 2], rates.back(),
              static_cast<double>(usage.ru_maxrss) / 1024.0, loss);
  double total = 0;
  for (const auto& [op, s] : seconds) total += s;
  for (const auto& [op, s] : seconds) {
    std::printf("  %-34s %8.2f ms a step  %5.1f %%\n", op.c_str(), 1e3 * s / steps, 100 * s / total);
  }
  return 0;
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) {
  ablate::InitLogging(argv[0]);
  return ablate::Main(std::vector<std::string>(argv + 1, argv + argc));
}
