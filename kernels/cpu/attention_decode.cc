#include "kernels/cpu/attention_decode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "glog/logging.h"
#include "kernels/attention/score.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace ablate {
namespace {

using attention::kKeyBlock;
using attention::RowSpan;

constexpr float kSmallestNorm = 1e-12f;  // as QkvForward has it

// What all heads of a call share.
struct Decode {
  const AttentionSpec& spec;
  score::Config config;
  attention::ForwardRow forward_row;
  int D, half;
  const float* cos;  // null: no rotation
  const float* sin;
  bool normalise;
};

// rotated = x turned by the angles of `position`.
void Rotate(const Decode& call, const float* x, int position, float* rotated) {
  if (call.cos == nullptr) {
    std::memcpy(rotated, x, sizeof(float) * call.D);
    return;
  }
  const int half = call.half;
  const float* const cos = call.cos + int64_t{position} * half;
  const float* const sin = call.sin + int64_t{position} * half;
  for (int i = 0; i < half; ++i) {
    rotated[i] = x[i] * cos[i] - x[half + i] * sin[i];
    rotated[half + i] = x[half + i] * cos[i] + x[i] * sin[i];
  }
}

// The inverse of the norm that x is to be divided by.
float InverseNorm(const Decode& call, const float* x) {
  if (!call.normalise) return 1;
  F8 lanes = {};
  int i = 0;
  for (; i + kLanes <= call.D; i += kLanes) lanes += LoadF8(x + i) * LoadF8(x + i);
  float squares = SumLanes(lanes);
  for (; i < call.D; ++i) squares += x[i] * x[i];
  return 1.0f / std::max(__builtin_sqrtf(squares), kSmallestNorm);
}

// q . rotate(key), for a rotated q.
float RotatedProduct(const Decode& call, const float* q, const float* key, int position) {
  F8 lanes = {};
  float sum = 0;
  int i = 0;
  if (call.cos == nullptr) {
    for (; i + kLanes <= call.D; i += kLanes) lanes += LoadF8(q + i) * LoadF8(key + i);
    for (; i < call.D; ++i) sum += q[i] * key[i];
    return SumLanes(lanes) + sum;
  }
  const int half = call.half;
  const float* const cos = call.cos + int64_t{position} * half;
  const float* const sin = call.sin + int64_t{position} * half;
  for (; i + kLanes <= half; i += kLanes) {
    const F8 a = LoadF8(key + i), b = LoadF8(key + half + i), c = LoadF8(cos + i), s = LoadF8(sin + i);
    lanes += LoadF8(q + i) * (a * c - b * s);
    lanes += LoadF8(q + half + i) * (b * c + a * s);
  }
  for (; i < half; ++i) {
    sum += q[i] * (key[i] * cos[i] - key[half + i] * sin[i]);
    sum += q[half + i] * (key[half + i] * cos[i] + key[i] * sin[i]);
  }
  return SumLanes(lanes) + sum;
}

// out = scale * sum_j weights[j] values[j, :], over the keys in order; nearly all weights of a sharpened row are zero.
void WeightedSum(const float* weights, const float* values, int keys, int D, float scale, float* out) {
  std::fill_n(out, D, 0.0f);
  for (int j = 0; j < keys; ++j, values += D) {
    const float weight = weights[j];
    if (weight == 0) continue;
    for (int d = 0; d < D; ++d) out[d] += weight * values[d];
  }
  for (int d = 0; d < D; ++d) out[d] *= scale;
}

}  // namespace

void CpuCacheKeyValue(int threads, const float* qkv, float* keys, float* values, const AttentionShape& shape,
                      int capacity) {
  CHECK(shape.T <= capacity) << "a cache of " << capacity << " positions is given " << shape.T;
  const int64_t C = int64_t{shape.H} * shape.D;
  ParallelFor(threads, int64_t{shape.B} * shape.H, [&](int64_t head) {
    const int64_t b = head / shape.H, h = head % shape.H;
    for (int64_t t = 0; t < shape.T; ++t) {
      const float* const row = qkv + (b * shape.T + t) * 3 * C + h * shape.D;
      const int64_t at = (head * capacity + t) * shape.D;
      std::memcpy(keys + at, row + C, sizeof(float) * shape.D);
      std::memcpy(values + at, row + 2 * C, sizeof(float) * shape.D);
    }
  });
}

void CpuAttentionDecode(int threads, const AttentionSpec& spec, const AttentionShape& shape, int capacity,
                        const int32_t* lengths, const float* qkv, const float* cos, const float* sin,
                        const float* learned_s, const float* learned_b, float* keys, float* values, float* out) {
  CHECK(shape.B > 0 && shape.T > 0 && shape.H > 0 && shape.D > 0 && shape.window >= 0 && shape.T <= capacity);
  CHECK(cos == nullptr || shape.D % 2 == 0);
  CHECK(!spec.has_learned_scale() || learned_s != nullptr) << "attention: learned_s is missing";
  CHECK(!spec.has_learned_bias() || learned_b != nullptr) << "attention: learned_b is missing";
  const score::Config config = score::MakeConfig(spec, shape.D);
  const Decode call = {.spec = spec,
                       .config = config,
                       .forward_row = attention::ForwardRowFor(spec.activation, config),
                       .D = shape.D,
                       .half = shape.D / 2,
                       .cos = cos,
                       .sin = sin,
                       .normalise = spec.qk_norm == QkNorm::kL2};
  const int D = shape.D;
  const int64_t C = int64_t{shape.H} * D;
  ParallelFor(threads, int64_t{shape.B} * shape.H, [&](int64_t head) {
    const FlushDenormals flush;
    const int64_t b = head / shape.H;
    const int h = static_cast<int>(head % shape.H);
    const int n = lengths == nullptr ? shape.T : lengths[b];
    CHECK(n >= 1 && n <= shape.T) << "sequence " << b << " has " << n << " keys, not 1 to " << shape.T;
    const float* const row = qkv + b * 3 * C + int64_t{h} * D;
    float* const head_keys = keys + head * capacity * D;
    float* const head_values = values + head * capacity * D;
    std::memcpy(head_keys + int64_t{n - 1} * D, row + C, sizeof(float) * D);
    std::memcpy(head_values + int64_t{n - 1} * D, row + 2 * C, sizeof(float) * D);

    const int low = shape.window > 0 ? std::max(0, n - shape.window) : 0;
    const int first_block = low / kKeyBlock, last_block = (n + kKeyBlock - 1) / kKeyBlock;
    std::vector<float> q(D), scores(int64_t{last_block - first_block} * kKeyBlock);
    Rotate(call, row, n - 1, q.data());
    const float q_inverse = InverseNorm(call, q.data());
    for (float& x : q) x *= q_inverse;
    float* const by_key = scores.data() - first_block * kKeyBlock;
    for (int j = low; j < n; ++j) {
      const float* const key = head_keys + int64_t{j} * D;
      by_key[j] = RotatedProduct(call, q.data(), key, j) * InverseNorm(call, key);
    }

    const RowSpan span = {
        .offset = 0, .stride = kKeyBlock, .first = first_block, .last = last_block, .low = low, .high = n};
    score::RowConst constants =
        score::MakeRowConst(config, n - 1, n - low, spec.has_learned_scale() ? learned_s[h] : 1.0f,
                            spec.has_learned_bias() ? learned_b[h] : 0.0f,
                            spec.alibi ? score::AlibiSlope(h, shape.H) : 0.0f);
    if (config.recentre) constants = attention::Recentre(constants, span, scores.data());
    if (spec.alibi) constants = attention::ApplyAlibi(constants, n - 1, span, scores.data());
    float scale = 0;
    call.forward_row(config, constants, span, scores.data(), &scale);
    WeightedSum(by_key + low, head_values + int64_t{low} * D, n - low, D, scale, out + b * C + int64_t{h} * D);
  });
}

}  // namespace ablate
