// Model's passes that look at attention itself: statistics of its rows, and its weights.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "worker/trainer/model_internal.h"

namespace ablate {

absl::Status Model::Impl::EnsureInspectionArrays(int group, int T, bool maps) {
  if (inspection_arrays != nullptr && inspection_arrays->group >= group && inspection_arrays->T == T &&
      inspection_arrays->maps == maps) {
    return absl::OkStatus();
  }
  inspection_arrays.reset();
  auto a = std::make_unique<InspectionArrays>(&memory);
  a->group = group;
  a->T = T;
  a->maps = maps;
  if (maps) {
    a->arena.Take(&a->identity, int64_t{T} * config.width);
    a->arena.Take(&a->columns, int64_t{T} * config.width);
  } else {
    a->arena.Take(&a->statistics, int64_t{group} * config.heads * T * kAttentionStatistics);
  }
  ABLATE_RETURN_IF_ERROR(a->arena.Commit());
  inspection_arrays = std::move(a);
  return absl::OkStatus();
}

absl::StatusOr<BatchLoss> Model::AttentionStatistics(const int32_t* tokens, const int32_t* targets, int B, int T,
                                                     const EvalOptions& options, float* losses,
                                                     const StatisticsVisitor& visit) {
  Impl& m = *impl_;
  ABLATE_ASSIGN_OR_RETURN(const EvalSetting setting, m.Setting(options));
  ABLATE_RETURN_IF_ERROR(m.CheckBatch(tokens, targets, B, T, setting.spec));
  ABLATE_RETURN_IF_ERROR(m.EnsureInspectionArrays(m.EvaluationGroup(B, T), T, /*maps=*/false));
  std::vector<float> host;
  const auto inspect = [&](int layer, int first, const AttentionShape& shape) -> absl::Status {
    const EvalArrays& e = *m.eval_arrays;
    const LayerParameters w = m.Layer(m.weights, layer);
    float* const statistics = m.inspection_arrays->statistics;
    m.backend->AttentionStatistics(setting.spec, shape, e.q, e.k, w.ssmax_s, w.ssmax_b, statistics);
    host.resize(int64_t{shape.B} * shape.H * T * kAttentionStatistics);
    m.backend->CopyToHost(host.data(), statistics, sizeof(float) * host.size());
    ABLATE_RETURN_IF_ERROR(m.backend->Synchronize());
    visit(layer, first, shape.B, host.data());
    return absl::OkStatus();
  };
  return m.Evaluate(tokens, targets, B, T, setting, losses, nullptr, inspect);
}

absl::StatusOr<BatchLoss> Model::AttentionMaps(const int32_t* tokens, const int32_t* targets, int T,
                                               const EvalOptions& options, const MapsVisitor& visit) {
  Impl& m = *impl_;
  ABLATE_ASSIGN_OR_RETURN(const EvalSetting setting, m.Setting(options));
  ABLATE_RETURN_IF_ERROR(m.CheckBatch(tokens, targets, 1, T, setting.spec));
  ABLATE_RETURN_IF_ERROR(m.EnsureInspectionArrays(1, T, /*maps=*/true));
  const int H = m.config.heads, D = m.config.head_dim();
  const bool wide = m.backend->activation_bytes() == 4;
  std::vector<char> host_bytes(int64_t{T} * m.config.width * m.backend->activation_bytes());
  std::vector<float> map(int64_t{H} * T * T);
  AttentionCounts counts;
  // An element as a number: float32, or the upper half of one.
  const auto number = [&](int64_t at) {
    uint32_t bits = 0;
    if (wide) {
      std::copy_n(&host_bytes[4 * at], 4, reinterpret_cast<char*>(&bits));
    } else {
      std::copy_n(&host_bytes[2 * at], 2, reinterpret_cast<char*>(&bits) + 2);
    }
    float value;
    std::copy_n(reinterpret_cast<const char*>(&bits), 4, reinterpret_cast<char*>(&value));
    return value;
  };
  const auto set_one = [&](int64_t at) {
    const uint32_t bits = 0x3f800000;  // 1.0f
    const char* const bytes = reinterpret_cast<const char*>(&bits);
    if (wide) {
      std::copy_n(bytes, 4, &host_bytes[4 * at]);
    } else {
      std::copy_n(bytes + 2, 2, &host_bytes[2 * at]);
    }
  };
  const auto inspect = [&](int layer, int, const AttentionShape& shape) -> absl::Status {
    const EvalArrays& e = *m.eval_arrays;
    const InspectionArrays& a = *m.inspection_arrays;
    const LayerParameters w = m.Layer(m.weights, layer);
    std::fill(map.begin(), map.end(), 0.0f);
    AddCounts(m.backend->TakeAttentionCounts(), &counts);
    // With D columns of the identity as values, attention's output is D columns of its weights.
    for (int column = 0; column < T; column += D) {
      std::fill(host_bytes.begin(), host_bytes.end(), 0);
      for (int h = 0; h < H; ++h) {
        for (int d = 0; d < D && column + d < T; ++d) set_one((int64_t{h} * T + column + d) * D + d);
      }
      m.backend->CopyToDevice(a.identity, host_bytes.data(), host_bytes.size());
      m.backend->AttentionForward(setting.spec, shape, e.q, e.k, a.identity, w.ssmax_s, w.ssmax_b, a.columns, nullptr);
      m.backend->CopyToHost(host_bytes.data(), a.columns, host_bytes.size());
      ABLATE_RETURN_IF_ERROR(m.backend->Synchronize());
      for (int h = 0; h < H; ++h) {
        for (int i = column; i < T; ++i) {
          for (int d = 0; d < D && column + d <= i; ++d) {
            map[(int64_t{h} * T + i) * T + column + d] = number((int64_t{i} * H + h) * D + d);
          }
        }
      }
    }
    m.backend->TakeAttentionCounts();  // of the columns, which are no rows of the evaluation
    visit(layer, map.data());
    return absl::OkStatus();
  };
  ABLATE_ASSIGN_OR_RETURN(BatchLoss loss, m.Evaluate(tokens, targets, 1, T, setting, nullptr, nullptr, inspect));
  AddCounts(counts, &loss.counts);
  return loss;
}

}  // namespace ablate
