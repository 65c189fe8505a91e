// CpuAttentionForward and CpuAttentionBackward by the double-precision reference: right and slow, in place of the tiled kernels
// until they are there (kernels/CMakeLists.txt then leaves this file out).
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/reference/attention.h"

namespace ablate {
namespace {

void Run(const AttentionSpec& spec_in, const AttentionShape& s, const float* q, const float* k, const float* v,
         const float* learned_s, const float* learned_b, const float* dout, float* out, AttentionCounts* counts, float* dq,
         float* dk, float* dv, float* ds, float* db) {
  AttentionSpec spec = spec_in;
  spec.qk_norm = QkNorm::kNone;
  const int64_t TD = int64_t{s.T} * s.D, C = int64_t{s.H} * s.D;
  for (int b = 0; b < s.B; ++b) {
    for (int h = 0; h < s.H; ++h) {
      const int64_t head = (int64_t{b} * s.H + h) * TD;
      auto wide = [&](const float* x) { return std::vector<double>(x + head, x + head + TD); };
      std::vector<double> d;
      for (int t = 0; dout != nullptr && t < s.T; ++t) {
        const float* row = dout + (int64_t{b} * s.T + t) * C + int64_t{h} * s.D;
        d.insert(d.end(), row, row + s.D);
      }
      const reference::AttentionResult r = reference::Attention(
          spec, s.T, s.D, s.window, wide(q).data(), wide(k).data(), wide(v).data(), learned_s == nullptr ? 1.0 : learned_s[h],
          learned_b == nullptr ? 0.0 : learned_b[h], dout == nullptr ? nullptr : d.data());
      if (counts != nullptr) {
        counts->zero_rows += r.counts.zero_rows;
        counts->uncontrasted_rows += r.counts.uncontrasted_rows;
      }
      for (int64_t i = 0; i < TD; ++i) {
        if (dout == nullptr) {
          out[(int64_t{b} * s.T + i / s.D) * C + int64_t{h} * s.D + i % s.D] = static_cast<float>(r.out[i]);
        } else {
          dq[head + i] = static_cast<float>(r.dq[i]);
          dk[head + i] = static_cast<float>(r.dk[i]);
          dv[head + i] = static_cast<float>(r.dv[i]);
        }
      }
      if (ds != nullptr) ds[h] += static_cast<float>(r.dlearned_s);
      if (db != nullptr) db[h] += static_cast<float>(r.dlearned_b);
    }
  }
}

}  // namespace

void CpuAttentionForward(int, const AttentionSpec& spec, const AttentionShape& shape, const float* q, const float* k,
                         const float* v, const float* learned_s, const float* learned_b, float* out, float*,
                         AttentionCounts* counts) {
  Run(spec, shape, q, k, v, learned_s, learned_b, nullptr, out, counts, nullptr, nullptr, nullptr, nullptr, nullptr);
}

void CpuAttentionBackward(int, const AttentionSpec& spec, const AttentionShape& shape, const float* q, const float* k,
                          const float* v, const float* learned_s, const float* learned_b, const float*, const float* dout,
                          const float*, float* dq, float* dk, float* dv, float* dlearned_s, float* dlearned_b) {
  Run(spec, shape, q, k, v, learned_s, learned_b, dout, nullptr, nullptr, dq, dk, dv, dlearned_s, dlearned_b);
}

}  // namespace ablate
