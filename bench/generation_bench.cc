// What the probes cost beside a plain pass, on the CPU: a token by the cache against one whole pass over all tokens so
// far, and the statistics of rows against forward. Both sides in one run, in turns, by CPU time of the process:
//   generation_bench [tiny|small] [VARIANT ...]
// Prints a line a variant: milliseconds, and the ratios.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "kernels/backend.h"
#include "kernels/cpu/attention.h"
#include "worker/trainer/model.h"

namespace ablate {
namespace {

constexpr int kLength = 512, kNewTokens = 64, kRounds = 7;

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Work>
double Seconds(const Work& work) {
  const double start = CpuSeconds();
  work();
  return CpuSeconds() - start;
}

double Median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
  return x[x.size() / 2];
}

// Attention alone, the model's heads: {statistics, forward}, seconds.
std::pair<double, double> Attention(const ModelConfig& config) {
  const AttentionShape shape{.B = 1, .T = kLength, .H = config.heads, .D = config.width / config.heads};
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal(0, config.attention.qk_norm == QkNorm::kL2 ? 1 / std::sqrt(static_cast<float>(shape.D)) : 1.0f);
  std::vector<float> q(int64_t{shape.T} * config.width), k(q.size()), v(q.size()), out(q.size()), s(shape.H, 1.0f),
      b(shape.H), statistics(int64_t{shape.T} * shape.H * kAttentionStatistics);
  for (std::vector<float>* x : {&q, &k, &v}) {
    for (float& value : *x) value = normal(generator);
  }
  std::vector<double> by_statistics, by_forward;
  for (int round = -1; round < 5 * kRounds; ++round) {
    const double a = Seconds([&] {
      CpuAttentionStatistics(1, config.attention, shape, q.data(), k.data(), s.data(), b.data(), statistics.data());
    });
    const double c = Seconds([&] {
      CpuAttentionForward(1, config.attention, shape, q.data(), k.data(), v.data(), s.data(), b.data(), out.data(),
                          nullptr, nullptr);
    });
    if (round >= 0) by_statistics.push_back(a), by_forward.push_back(c);
  }
  return {Median(by_statistics), Median(by_forward)};
}

void Bench(const std::string& name, ModelConfig config) {
  auto backend = NewCpuBackend(1);
  CHECK(backend.ok()) << backend.status();
  auto model = Model::Create(backend->get(), config);
  CHECK(model.ok()) << model.status();
  CHECK((*model)->InitWeights(1).ok());
  std::vector<int32_t> tokens(kLength);
  for (int i = 0; i < kLength; ++i) tokens[i] = i * 7919 % 251;
  const Prompts prompts{.tokens = tokens.data(), .B = 1, .T = kLength - kNewTokens};
  const auto generate = [&](int new_tokens) {
    const auto made = (*model)->Generate(prompts, new_tokens, kLength, {});
    CHECK(made.ok()) << made.status();
  };
  const auto whole = [&] {
    const auto loss = (*model)->Evaluate(tokens.data(), tokens.data(), 1, kLength, {}, nullptr);
    CHECK(loss.ok()) << loss.status();
  };
  const auto statistics = [&] {
    const auto loss = (*model)->AttentionStatistics(tokens.data(), tokens.data(), 1, kLength, {}, nullptr,
                                                    [](int, int, int, const float*) {});
    CHECK(loss.ok()) << loss.status();
  };
  std::vector<double> by_cache, by_whole, by_statistics;
  for (int round = -1; round < kRounds; ++round) {  // the first allocates
    const double prompt = Seconds([&] { generate(1); });
    const double all = Seconds([&] { generate(kNewTokens); });
    const double again = Seconds(whole), rows = Seconds(statistics);
    if (round < 0) continue;
    by_cache.push_back((all - prompt) / (kNewTokens - 1));
    by_whole.push_back(again);
    by_statistics.push_back(rows);
  }
  const double cache = Median(by_cache), pass = Median(by_whole), rows = Median(by_statistics);
  const auto [attention_statistics, attention_forward] = Attention(config);
  std::printf(
      "%-18s T=%d: a token by the cache %.3f ms, by a whole pass %.2f ms: %.0f times; a pass with statistics %.2f of one "
      "without; attention's statistics %.2f ms, its forward %.2f ms: %.2f\n",
      name.c_str(), kLength, 1e3 * cache, 1e3 * pass, pass / cache, rows / pass, 1e3 * attention_statistics,
      1e3 * attention_forward, attention_statistics / attention_forward);
  std::fflush(stdout);
}

int Main(std::vector<std::string> names) {
  ModelConfig config;
  if (!names.empty() && (names[0] == "tiny" || names[0] == "small")) {
    if (names[0] == "small") config.layers = 6, config.width = 384, config.heads = 6;
    names.erase(names.begin());
  }
  if (names.empty()) names = {"softmax", "ssmax", "lssa", "lssar", "sigmoid"};
  config.train_length = kLength;
  for (const std::string& name : names) {
    const AttentionVariant* const variant = FindAttentionVariant(name);
    if (variant == nullptr) {
      std::fprintf(stderr, "no variant %s\nusage: generation_bench [tiny|small] [VARIANT ...]\n", name.c_str());
      return 2;
    }
    config.attention = variant->spec;
    Bench(name, config);
  }
  return 0;
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) {
  ablate::InitLogging(argv[0]);
  return ablate::Main(std::vector<std::string>(argv + 1, argv + argc));
}
