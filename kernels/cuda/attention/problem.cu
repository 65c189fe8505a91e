#include "kernels/cuda/attention/problem.h"

#include <algorithm>

#include "glog/logging.h"
#include "kernels/cuda/attention/attention.h"

namespace ablate::cuda {
namespace attention {
namespace {

int64_t Rows(const AttentionShape& shape) { return int64_t{shape.B} * shape.H * shape.T; }

constexpr int64_t kFloatBytes = sizeof(float);

// Of AttentionBackward's workspace, before what re-centring adds.
int64_t PlainWorkspaceBytes(const AttentionShape& shape) {
  const int64_t tiles = int64_t{shape.B} * shape.H * CeilDiv(shape.T, kRowsOfPartial);
  const int64_t of_fp32 = Rows(shape) * static_cast<int64_t>(sizeof(float4));
  const int64_t of_bf16 = tiles * kRowsOfPartial * kBf16RowFloats * kFloatBytes;
  return std::max(of_fp32, of_bf16) + tiles * static_cast<int64_t>(sizeof(float2));
}

// A block a head. Lane l sums the partials l, l + 32, ... of the head in every sequence; then the lanes are folded.
__global__ void __launch_bounds__(kWarpSize)
    AddLearnedGradientsKernel(int B, int H, int tiles, const float2* partials, float* dlearned_s, float* dlearned_b) {
  const int h = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  double by_s = 0, by_b = 0;
  for (int b = 0; b < B; ++b) {
    const float2* const head = partials + (static_cast<int64_t>(b) * H + h) * tiles;
    for (int tile = lane; tile < tiles; tile += kWarpSize) {
      by_s += static_cast<double>(head[tile].x);
      by_b += static_cast<double>(head[tile].y);
    }
  }
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    by_s += __shfl_xor_sync(kFullMask, by_s, distance);
    by_b += __shfl_xor_sync(kFullMask, by_b, distance);
  }
  if (lane != 0) return;
  if (dlearned_s != nullptr) dlearned_s[h] += static_cast<float>(by_s);
  if (dlearned_b != nullptr) dlearned_b[h] += static_cast<float>(by_b);
}

}  // namespace

Problem MakeProblem(const AttentionSpec& spec, const AttentionShape& shape, const float* learned_s,
                    const float* learned_b) {
  CHECK(ValidateAttentionSpec(spec).ok()) << ValidateAttentionSpec(spec);
  CHECK(!spec.has_learned_scale() || learned_s != nullptr) << "attention: learned_s is missing";
  CHECK(!spec.has_learned_bias() || learned_b != nullptr) << "attention: learned_b is missing";
  CHECK(shape.B > 0 && shape.T > 0 && shape.H > 0 && shape.D > 0 && shape.window >= 0)
      << "attention: B " << shape.B << ", T " << shape.T << ", H " << shape.H << ", D " << shape.D << ", window "
      << shape.window;
  return {.config = score::MakeConfig(spec, shape.D),
          .activation = spec.activation,
          .B = shape.B,
          .T = shape.T,
          .H = shape.H,
          .D = shape.D,
          .window = shape.window,
          .alibi = spec.alibi,
          .learned_s = spec.has_learned_scale() ? learned_s : nullptr,
          .learned_b = spec.has_learned_bias() ? learned_b : nullptr};
}

Workspace WorkspaceOf(const AttentionShape& shape, void* workspace) {
  auto* const rows = static_cast<float4*>(workspace);
  return {.rows = rows, .partials = reinterpret_cast<float2*>(rows + Rows(shape))};
}

Recentring ForwardRecentring(const AttentionSpec& spec, void* workspace) {
  if (spec.transform != ScoreTransform::kRecentred) return {};
  CHECK(workspace != nullptr) << "attention: re-centred scores need a workspace";
  return {.mean_products = static_cast<float*>(workspace), .row_weights = nullptr, .vectors = nullptr};
}

Recentring BackwardRecentring(const AttentionSpec& spec, const AttentionShape& shape, void* workspace) {
  if (spec.transform != ScoreTransform::kRecentred) return {};
  float* const parts = static_cast<float*>(workspace) + PlainWorkspaceBytes(shape) / kFloatBytes;
  return {.mean_products = parts, .row_weights = parts + Rows(shape), .vectors = parts + 2 * Rows(shape)};
}

void AddLearnedGradients(cudaStream_t stream, const AttentionSpec& spec, const AttentionShape& shape,
                         const float2* partials, int tiles, float* dlearned_s, float* dlearned_b) {
  if (!spec.has_learned_scale()) return;
  CHECK(dlearned_s != nullptr && (dlearned_b != nullptr || !spec.has_learned_bias()))
      << "attention: gradients of learned scales are missing";
  Launch(AddLearnedGradientsKernel, dim3(static_cast<unsigned>(shape.H)), dim3(kWarpSize), 0, stream, shape.B, shape.H,
         tiles, partials, dlearned_s, spec.has_learned_bias() ? dlearned_b : nullptr);
}

}  // namespace attention

template <>
bool SupportsHeadDim<float>(int D) {
  return D >= 4 && D <= 128 && D % 4 == 0;
}
template <>
bool SupportsHeadDim<bf16>(int D) {
  return D >= 8 && D <= 128 && D % 8 == 0;
}

int64_t AttentionForwardWorkspaceBytes(const AttentionSpec& spec, const AttentionShape& shape) {
  return spec.transform == ScoreTransform::kRecentred ? attention::Rows(shape) * attention::kFloatBytes : 0;
}

int64_t AttentionBackwardWorkspaceBytes(const AttentionSpec& spec, const AttentionShape& shape) {
  const int64_t plain = attention::PlainWorkspaceBytes(shape);
  if (spec.transform != ScoreTransform::kRecentred) return plain;
  return plain + attention::Rows(shape) * (2 + shape.D) * attention::kFloatBytes;
}

}  // namespace ablate::cuda
