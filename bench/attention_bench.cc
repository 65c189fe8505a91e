// Speed of the CPU attention kernels by variant and length, in CPU time of one thread (robust on a shared machine).
// Run by hand: build/release/bin/attention_bench [variant...]
// Useful GFLOP/s count what a causal row needs: 4 D a pair forward, 10 D backward.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/attention.h"

namespace {

using ablate::AttentionShape;
using Floats = std::vector<float>;

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The median of at least 5 runs and half a second.
template <class Work>
double Median(Work work) {
  work();
  std::vector<double> times;
  for (double total = 0; times.size() < 5 || total < 0.5; total += times.back()) {
    const double start = CpuSeconds();
    work();
    times.push_back(CpuSeconds() - start);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

Floats Normal(int64_t n, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  Floats x(n);
  for (float& value : x) value = normal(generator);
  return x;
}

void Normalise(Floats& x, int D) {
  for (size_t i = 0; i < x.size(); i += D) {
    float norm = 0;
    for (int d = 0; d < D; ++d) norm += x[i + d] * x[i + d];
    for (int d = 0; d < D; ++d) x[i + d] /= std::sqrt(norm);
  }
}

void Bench(const ablate::AttentionVariant& variant, const AttentionShape& shape) {
  const int64_t size = int64_t{shape.B} * shape.H * shape.T * shape.D;
  Floats q = Normal(size, 1), k = Normal(size, 2), v = Normal(size, 3), dout = Normal(size, 4);
  if (variant.spec.qk_norm == ablate::QkNorm::kL2) Normalise(q, shape.D), Normalise(k, shape.D);
  const Floats s(shape.H, 0.5f), b(shape.H, 0.0f);
  Floats out(size), stats(ablate::AttentionRowStatFloats(shape)), dq(size), dk(size), dv(size), ds(shape.H),
      db(shape.H);
  const double forward = Median([&] {
    ablate::CpuAttentionForward(1, variant.spec, shape, q.data(), k.data(), v.data(), s.data(), b.data(), out.data(),
                                stats.data(), nullptr);
  });
  const double backward = Median([&] {
    ablate::CpuAttentionBackward(1, variant.spec, shape, q.data(), k.data(), v.data(), s.data(), b.data(), out.data(),
                                 dout.data(), stats.data(), dq.data(), dk.data(), dv.data(), ds.data(), db.data());
  });
  const double pairs = 0.5 * shape.T * (shape.T + 1.0) * shape.H * shape.B;
  std::printf(
      "%-18s T=%-5d H=%d D=%-3d fwd %8.3f ms %5.1f GFLOP/s %5.2f us/kpair | bwd %8.3f ms %5.1f GFLOP/s | %6.3f "
      "us/token/head\n",
      std::string(variant.name).c_str(), shape.T, shape.H, shape.D, forward * 1e3, 4e-9 * shape.D * pairs / forward,
      forward * 1e9 / pairs, backward * 1e3, 10e-9 * shape.D * pairs / backward,
      (forward + backward) * 1e6 / (static_cast<double>(shape.B) * shape.T * shape.H));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<ablate::AttentionVariant> variants = ablate::AttentionVariants();
  variants.push_back({"softmax_alibi", variants.front().spec, ""});
  variants.push_back({"lssar_alibi", ablate::FindAttentionVariant("lssar")->spec, ""});
  for (size_t i = variants.size() - 2; i < variants.size(); ++i) variants[i].spec.alibi = true;
  for (int T : {256, 1024, 4096}) {
    for (const auto& [D, H] : {std::pair{32, 4}, {64, 6}}) {
      for (const ablate::AttentionVariant& variant : variants) {
        const bool wanted = argc < 2 || std::find(argv + 1, argv + argc, variant.name) != argv + argc;
        if (wanted) Bench(variant, {.B = 1, .T = T, .H = H, .D = D});
      }
    }
  }
  return 0;
}
