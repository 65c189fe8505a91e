// The element-wise passes over one row of a panel: scores -> weights, and scores and output gradients -> weights and
// score gradients. Must not know matrices or threads. Formulas: kernels/attention/score.h. Thread rule: free functions;
// the row and the scratch belong to the caller.
#pragma once

#include "kernels/attention/score.h"
#include "kernels/attention/variants.h"

namespace ablate::attention {

// A row in tile layout (attention_tiles.h): the 16 columns of block b at offset + (b - first) * stride. Columns [low,
// high) are attended; the others of blocks [first, last) become zero.
struct RowSpan {
  int64_t offset;  // of the row's first block from the tiles' start
  int64_t stride;  // floats from one block to the next
  int first, last;
  int low, high;
};

// Bare products q.k -> scores with ALiBi's bias, in place, for a row that has a slope; returns the row whose scores
// they are as they stand (c = 1, beta = 0), to be given to the two passes below. query: the row's position. A pass of
// its own, so that the members without ALiBi pay nothing.
score::RowConst ApplyAlibi(const score::RowConst& row, int query, const RowSpan& span, float* scores);

// The row whose scores are re-centred (its beta less c times the mean of the span's bare products), to be given to
// ApplyAlibi or the passes below; and score gradients -> less their mean over the span, in place. Only for members that
// are re-centred: the others pay nothing.
score::RowConst Recentre(const score::RowConst& row, const RowSpan& span, const float* scores);
void RecentreGradients(const RowSpan& span, float* gradients);

// Scores (bare products q.k) -> unscaled weights, in place; returns what backward needs and, in *scale, the factor that
// makes them weights (0 for a zero row).
using ForwardRow = score::RowStat (*)(const score::Config& config, const score::RowConst& row, const RowSpan& span,
                                      float* scores, float* scale);

// Scores (bare products q.k) -> kAttentionStatistics floats of the row's weights (backend.h); the scores are
// overwritten.
using StatisticsRow = void (*)(const score::Config& config, const score::RowConst& row, const RowSpan& span,
                               float* scores, float* statistics);

// In place: scores -> weights (scaled), output gradients G -> score gradients dS (by c q.k + beta). mean_gradient: D, 0
// without l1. scratch: 16 floats a block.
using BackwardRow = void (*)(const score::Config& config, const score::RowConst& row, const score::RowStat& stat,
                             const RowSpan& span, float mean_gradient, float* scores, float* gradients, float* scratch);

ForwardRow ForwardRowFor(Activation activation, const score::Config& config);
StatisticsRow StatisticsRowFor(Activation activation, const score::Config& config);
BackwardRow BackwardRowFor(Activation activation, const score::Config& config);

}  // namespace ablate::attention
