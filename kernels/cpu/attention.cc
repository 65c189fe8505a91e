#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "glog/logging.h"
#include "kernels/attention/score.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace ablate {
namespace {

using attention::BlockRange;
using attention::kKeyBlock;
using attention::kRowTile;
using attention::RoundUp;
using attention::RowSpan;
using score::Config;
using score::RowConst;
using score::RowStat;

// Rows of a panel: enough to reuse what the products load, few enough for `panels` arrays of scores to stay in the L2
// cache.
int PanelRows(int T, int window, int panels) {
  constexpr int kLargest = 48, kSmallest = 12, kCacheFloats = 144 * 1024;
  const int keys = window > 0 ? std::min(T, window + kLargest) : T;
  const int rows = kCacheFloats / panels / std::max(1, keys) / kRowTile * kRowTile;
  return std::min(std::clamp(rows, kSmallest, kLargest), RoundUp(T, kRowTile));
}

// A thread's memory, kept between calls (fresh pages at every call would cost more than the kernel at small T).
class Scratch {
 public:
  // 64-byte aligned; valid until the next Reset on this thread.
  float* Take(int64_t floats) {
    float* memory = memory_.get() + used_;
    used_ += Padded(floats);
    CHECK_LE(used_, capacity_);
    return memory;
  }
  void Reset(int64_t floats) {
    used_ = 0;
    if (floats <= capacity_) return;
    memory_.reset();
    memory_.reset(static_cast<float*>(std::aligned_alloc(64, sizeof(float) * static_cast<size_t>(Padded(floats)))));
    CHECK(memory_ != nullptr) << "attention: out of memory for " << floats << " floats";
    capacity_ = Padded(floats);
  }
  static int64_t Padded(int64_t floats) { return (floats + 15) / 16 * 16; }

 private:
  struct FreeDeleter {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, FreeDeleter> memory_;
  int64_t capacity_ = 0, used_ = 0;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

// What one call knows about all heads.
struct Call {
  const AttentionSpec& spec;
  AttentionShape shape;
  Config config;
  int width;  // D rounded up to whole vectors
  int R;      // rows of a panel
  const float* learned_s;
  const float* learned_b;
  std::vector<float> slopes;  // of ALiBi, by head; empty without it

  Call(const AttentionSpec& attention_spec, const AttentionShape& attention_shape, int panels, const float* s,
       const float* b)
      : spec(attention_spec),
        shape(attention_shape),
        config(score::MakeConfig(attention_spec, attention_shape.D)),
        width(RoundUp(attention_shape.D, kLanes)),
        R(PanelRows(attention_shape.T, attention_shape.window, panels)),
        learned_s(attention_spec.has_learned_scale() ? s : nullptr),
        learned_b(attention_spec.has_learned_bias() ? b : nullptr) {
    CHECK(!spec.has_learned_scale() || s != nullptr) << "attention: learned_s is missing";
    CHECK(!spec.has_learned_bias() || b != nullptr) << "attention: learned_b is missing";
    for (int h = 0; spec.alibi && h < shape.H; ++h) slopes.push_back(score::AlibiSlope(h, shape.H));
    CHECK(shape.B > 0 && shape.T > 0 && shape.H > 0 && shape.D > 0 && shape.window >= 0);
  }

  int first_key(int row) const { return shape.window > 0 ? std::max(0, row - shape.window + 1) : 0; }
  int64_t model_width() const { return int64_t{shape.H} * shape.D; }
  // The most key blocks that a panel covers.
  int panel_blocks() const {
    const int keys = shape.window > 0 ? std::min(shape.T, shape.window + R + kKeyBlock) : shape.T;
    return (keys + kKeyBlock - 1) / kKeyBlock + 1;
  }
  int64_t padded_T() const { return RoundUp(shape.T, kKeyBlock); }
  RowConst Row(int row, int h) const {
    return score::MakeRowConst(config, row, row - first_key(row) + 1, learned_s != nullptr ? learned_s[h] : 1.0f,
                               learned_b != nullptr ? learned_b[h] : 0.0f, slopes.empty() ? 0.0f : slopes[h]);
  }
};

// Rows [begin, begin + rows) of one head against their keys. Rows that only fill up the last tile take part in the
// products as zeros.
struct Panel {
  int begin, rows;
  int R;  // rows rounded up to whole tiles
  std::vector<BlockRange> ranges;
  int first_block = 0, last_block = 0;

  void Set(const Call& call, int begin_row, int end_row) {
    begin = begin_row;
    rows = std::min(call.R, end_row - begin_row);
    R = RoundUp(rows, kRowTile);
    ranges.resize(R / kRowTile);
    for (int g = 0; g < R / kRowTile; ++g) {
      const int first_row = begin + g * kRowTile, last_row = std::min(first_row + kRowTile, begin + rows);
      ranges[g] = {call.first_key(first_row) / kKeyBlock, (last_row + kKeyBlock - 1) / kKeyBlock};
    }
    first_block = ranges.front().first;
    last_block = ranges.back().last;
  }

  RowSpan Span(const Call& call, int r) const {
    const BlockRange& range = ranges[r / kRowTile];
    const int64_t stride = int64_t{R} * kKeyBlock;
    return {.offset = (range.first - first_block) * stride + int64_t{r} * kKeyBlock,
            .stride = stride,
            .first = range.first,
            .last = range.last,
            .low = call.first_key(begin + r),
            .high = begin + r + 1};
  }
};

// A row's constants once its scores are there, which ALiBi changes in place.
RowConst Settle(const Call& call, RowConst constants, int row, const RowSpan& span, float* scores) {
  if (call.config.recentre) constants = attention::Recentre(constants, span, scores);
  if (!call.slopes.empty()) constants = attention::ApplyAlibi(constants, row, span, scores);
  return constants;
}

// Rows of a head as [T, width]: in place where D is whole vectors.
const float* WholeVectors(const Call& call, const float* x, int first_row, int last_row, float* packed) {
  const int D = call.shape.D;
  if (call.width == D) return x;
  attention::PackRows(x + int64_t{first_row} * D, D, last_row - first_row, last_row - first_row, D, call.width, nullptr,
                      packed + int64_t{first_row} * call.width);
  return packed;
}

// Splits of a head's rows, which depend on the shape alone so that results do not depend on the threads.
struct Chunks {
  std::vector<int> begin;  // and one past the last
  int count() const { return static_cast<int>(begin.size()) - 1; }
};

Chunks EvenChunks(int T, int rows) {
  Chunks chunks;
  for (int row = 0; row < T; row += rows) chunks.begin.push_back(row);
  chunks.begin.push_back(T);
  return chunks;
}

Chunks ForwardChunks(int T) {
  constexpr int kChunkRows = 384;
  return EvenChunks(T, T >= 2 * kChunkRows ? kChunkRows : T);
}

// Each chunk has a partial dk and dv, so there are few, and none where heads alone keep threads busy. Causal work grows
// with the square of the row.
Chunks BackwardChunks(const Call& call) {
  constexpr int kCount = 4, kManyHeads = 16, kLongRows = 1024;
  const int T = call.shape.T;
  Chunks chunks{{0}};
  if (T >= kLongRows && call.shape.B * call.shape.H < kManyHeads) {
    for (int i = 1; i < kCount; ++i) {
      const double share = static_cast<double>(i) / kCount;
      const int row = static_cast<int>((call.shape.window > 0 ? share : std::sqrt(share)) * T) / call.R * call.R;
      if (row > chunks.begin.back() && row < T) chunks.begin.push_back(row);
    }
  }
  chunks.begin.push_back(T);
  return chunks;
}

// work(task) for every task, on up to `threads` threads.
template <class Work>
void ForTasks(int threads, int64_t tasks, Work work) {
  ParallelFor(threads, tasks, [&](int64_t task) {
    const FlushDenormals flush;
    work(task);
  });
}

void ForwardChunk(const Call& call, attention::ForwardRow forward_row, int b, int h, int begin, int end, const float* q,
                  const float* k, const float* v, float* out, float* row_stats, AttentionCounts* counts) {
  const AttentionShape& shape = call.shape;
  const int D = shape.D, width = call.width;
  Scratch& scratch = ThreadScratch();
  const int64_t tile_floats = int64_t{call.panel_blocks()} * call.R * kKeyBlock, row_floats = int64_t{call.R} * width;
  scratch.Reset(tile_floats + call.padded_T() * (D + width) + 2 * row_floats + call.R + 128);
  float* const tiles = scratch.Take(tile_floats);
  float* const packed_k = scratch.Take(call.padded_T() * D);
  float* const packed_v = scratch.Take(call.padded_T() * width);
  float* const q_rows = scratch.Take(row_floats);
  float* const sums = scratch.Take(row_floats);
  float* const scales = scratch.Take(call.R);

  const int first_key = call.first_key(begin);
  attention::PackTransposed(k, D, first_key / kKeyBlock, (end + kKeyBlock - 1) / kKeyBlock, shape.T, D, packed_k);
  v = WholeVectors(call, v, first_key / kKeyBlock * kKeyBlock, end, packed_v);

  Panel panel;
  for (int row = begin; row < end; row += call.R) {
    panel.Set(call, row, end);
    attention::PackRows(q + int64_t{row} * D, D, panel.rows, panel.R, D, width, nullptr, q_rows);
    attention::ScoreTiles(q_rows, width, D, packed_k, panel.R, panel.ranges.data(), panel.first_block, tiles);
    for (int r = 0; r < panel.rows; ++r) {
      const RowSpan span = panel.Span(call, r);
      const RowConst constants = Settle(call, call.Row(row + r, h), row + r, span, tiles);
      const RowStat stat = forward_row(call.config, constants, span, tiles, &scales[r]);
      counts->zero_rows += stat.c == 0;
      counts->uncontrasted_rows += stat.c < 0;
      if (row_stats != nullptr) std::memcpy(row_stats + 4 * (int64_t{row} + r), &stat, sizeof(stat));
    }
    std::memset(sums, 0, sizeof(float) * row_floats);
    attention::AccumulateRows(tiles, panel.R, panel.ranges.data(), panel.first_block, v, width, shape.T,
                              call.config.sharpen, sums);
    for (int r = 0; r < panel.rows; ++r) {
      float* to = out + (int64_t{b} * shape.T + row + r) * call.model_width() + int64_t{h} * D;
      for (int d = 0; d < D; ++d) to[d] = sums[r * width + d] * scales[r];
    }
  }
}

// statistics: of the chunk's head.
void StatisticsChunk(const Call& call, attention::StatisticsRow statistics_row, int h, int begin, int end,
                     const float* q, const float* k, float* statistics) {
  const AttentionShape& shape = call.shape;
  const int D = shape.D, width = call.width;
  Scratch& scratch = ThreadScratch();
  const int64_t tile_floats = int64_t{call.panel_blocks()} * call.R * kKeyBlock;
  scratch.Reset(tile_floats + call.padded_T() * D + int64_t{call.R} * width + 64);
  float* const tiles = scratch.Take(tile_floats);
  float* const packed_k = scratch.Take(call.padded_T() * D);
  float* const q_rows = scratch.Take(int64_t{call.R} * width);
  attention::PackTransposed(k, D, call.first_key(begin) / kKeyBlock, (end + kKeyBlock - 1) / kKeyBlock, shape.T, D,
                            packed_k);
  Panel panel;
  for (int row = begin; row < end; row += call.R) {
    panel.Set(call, row, end);
    attention::PackRows(q + int64_t{row} * D, D, panel.rows, panel.R, D, width, nullptr, q_rows);
    attention::ScoreTiles(q_rows, width, D, packed_k, panel.R, panel.ranges.data(), panel.first_block, tiles);
    for (int r = 0; r < panel.rows; ++r) {
      const RowSpan span = panel.Span(call, r);
      const RowConst constants = Settle(call, call.Row(row + r, h), row + r, span, tiles);
      statistics_row(call.config, constants, span, tiles, statistics + (int64_t{row} + r) * kAttentionStatistics);
    }
  }
}

struct ScaleGradients {
  double s = 0, b = 0;
};

// dk, dv [padded T, width]: this chunk's sums, overwritten.
ScaleGradients BackwardChunk(const Call& call, attention::BackwardRow backward_row, int b, int h, int begin, int end,
                             const float* q, const float* k, const float* v, const float* out, const float* dout,
                             const float* row_stats, float* dq, float* dk, float* dv) {
  const AttentionShape& shape = call.shape;
  const int D = shape.D, width = call.width;
  Scratch& scratch = ThreadScratch();
  float* const scores = scratch.Take(int64_t{call.panel_blocks()} * call.R * kKeyBlock);
  float* const gradients = scratch.Take(int64_t{call.panel_blocks()} * call.R * kKeyBlock);
  float* const slopes = scratch.Take(int64_t{call.panel_blocks()} * kKeyBlock);
  float* const packed_k = scratch.Take(call.padded_T() * D);
  float* const packed_v = scratch.Take(call.padded_T() * D);
  float* const k_copy = scratch.Take(call.padded_T() * width);
  float* const q_rows = scratch.Take(int64_t{call.R} * width);
  float* const dout_rows = scratch.Take(int64_t{call.R} * width);
  float* const sums = scratch.Take(int64_t{call.R} * width);
  float* const scales = scratch.Take(call.R);

  const int first_block = call.first_key(begin) / kKeyBlock, last_block = (end + kKeyBlock - 1) / kKeyBlock;
  attention::PackTransposed(k, D, first_block, last_block, shape.T, D, packed_k);
  attention::PackTransposed(v, D, first_block, last_block, shape.T, D, packed_v);
  const float* const k_rows = WholeVectors(call, k, first_block * kKeyBlock, end, k_copy);
  std::memset(dk, 0, sizeof(float) * call.padded_T() * width);
  std::memset(dv, 0, sizeof(float) * call.padded_T() * width);

  ScaleGradients by_scale;
  Panel panel;
  for (int row = begin; row < end; row += call.R) {
    panel.Set(call, row, end);
    const BlockRange* const ranges = panel.ranges.data();
    const float* const q_panel = q + int64_t{row} * D;
    const int64_t out_at = (int64_t{b} * shape.T + row) * call.model_width() + int64_t{h} * D;
    attention::PackRows(q_panel, D, panel.rows, panel.R, D, width, nullptr, q_rows);
    attention::PackRows(dout + out_at, call.model_width(), panel.rows, panel.R, D, width, nullptr, dout_rows);
    attention::ScoreTiles(q_rows, width, D, packed_k, panel.R, ranges, panel.first_block, scores);
    attention::ScoreTiles(dout_rows, width, D, packed_v, panel.R, ranges, panel.first_block, gradients);
    for (int r = 0; r < panel.rows; ++r) {
      RowStat stat;
      std::memcpy(&stat, row_stats + 4 * (int64_t{row} + r), sizeof(stat));
      const RowSpan span = panel.Span(call, r);
      const RowConst given = call.Row(row + r, h), constants = Settle(call, given, row + r, span, scores);
      scales[r] = given.c;
      float mean_gradient = 0;
      if (call.config.l1) {
        const float* const out_row = out + out_at + r * call.model_width();
        for (int d = 0; d < D; ++d) mean_gradient += dout_rows[r * width + d] * out_row[d];
      }
      backward_row(call.config, constants, stat, span, mean_gradient, scores, gradients, slopes);
      if (call.config.recentre) attention::RecentreGradients(span, gradients);
    }

    std::memset(sums, 0, sizeof(float) * panel.R * width);
    attention::AccumulateRows(gradients, panel.R, ranges, panel.first_block, k_rows, width, shape.T, false, sums);
    for (int r = 0; r < panel.rows; ++r) {
      float* const dq_row = dq + (int64_t{row} + r) * D;
      for (int d = 0; d < D; ++d) dq_row[d] = sums[r * width + d] * scales[r];
      if (call.learned_s != nullptr) {
        float product = 0;  // by c
        for (int d = 0; d < D; ++d) product += sums[r * width + d] * q_panel[r * D + d];
        by_scale.s += static_cast<double>(product) * call.Row(row + r, h).c_by_s;
        by_scale.b += static_cast<double>(product) * call.config.scale_unit;
      }
    }
    attention::PackRows(q_panel, D, panel.rows, panel.R, D, width, scales, q_rows);
    attention::AccumulateKeys(gradients, panel.R, ranges, panel.first_block, panel.last_block, q_rows, width, dk);
    attention::AccumulateKeys(scores, panel.R, ranges, panel.first_block, panel.last_block, dout_rows, width, dv);
  }
  return by_scale;
}

int64_t BackwardScratchFloats(const Call& call) {
  const int64_t tiles = int64_t{call.panel_blocks()} * call.R * kKeyBlock, T = call.padded_T();
  return 2 * tiles + int64_t{call.panel_blocks()} * kKeyBlock + T * (2 * call.shape.D + 3 * call.width) +
         3 * int64_t{call.R} * call.width + call.R + 16 * 16;
}

}  // namespace

void CpuAttentionForward(int threads, const AttentionSpec& spec, const AttentionShape& shape, const float* q,
                         const float* k, const float* v, const float* learned_s, const float* learned_b, float* out,
                         float* row_stats, AttentionCounts* counts) {
  const Call call(spec, shape, 1, learned_s, learned_b);
  const attention::ForwardRow forward_row = attention::ForwardRowFor(spec.activation, call.config);
  const Chunks chunks = ForwardChunks(shape.T);
  const int64_t heads = int64_t{shape.B} * shape.H, head_floats = int64_t{shape.T} * shape.D;
  const int64_t tasks = heads * chunks.count();
  std::vector<AttentionCounts> task_counts(tasks);
  ForTasks(threads, tasks, [&](int64_t task) {
    const int64_t head = task / chunks.count();
    const int chunk = static_cast<int>(task % chunks.count());
    ForwardChunk(call, forward_row, static_cast<int>(head / shape.H), static_cast<int>(head % shape.H),
                 chunks.begin[chunk], chunks.begin[chunk + 1], q + head * head_floats, k + head * head_floats,
                 v + head * head_floats, out, row_stats == nullptr ? nullptr : row_stats + 4 * head * shape.T,
                 &task_counts[task]);
  });
  if (counts == nullptr) return;
  for (const AttentionCounts& c : task_counts) {
    counts->zero_rows += c.zero_rows;
    counts->uncontrasted_rows += c.uncontrasted_rows;
  }
}

void CpuAttentionStatistics(int threads, const AttentionSpec& spec, const AttentionShape& shape, const float* q,
                            const float* k, const float* learned_s, const float* learned_b, float* statistics) {
  const Call call(spec, shape, 1, learned_s, learned_b);
  const attention::StatisticsRow statistics_row = attention::StatisticsRowFor(spec.activation, call.config);
  const Chunks chunks = ForwardChunks(shape.T);
  const int64_t heads = int64_t{shape.B} * shape.H, head_floats = int64_t{shape.T} * shape.D;
  ForTasks(threads, heads * chunks.count(), [&](int64_t task) {
    const int64_t head = task / chunks.count();
    const int chunk = static_cast<int>(task % chunks.count());
    StatisticsChunk(call, statistics_row, static_cast<int>(head % shape.H), chunks.begin[chunk],
                    chunks.begin[chunk + 1], q + head * head_floats, k + head * head_floats,
                    statistics + head * shape.T * kAttentionStatistics);
  });
}

void CpuAttentionBackward(int threads, const AttentionSpec& spec, const AttentionShape& shape, const float* q,
                          const float* k, const float* v, const float* learned_s, const float* learned_b,
                          const float* out, const float* dout, const float* row_stats, float* dq, float* dk, float* dv,
                          float* dlearned_s, float* dlearned_b) {
  const Call call(spec, shape, 2, learned_s, learned_b);
  const attention::BackwardRow backward_row = attention::BackwardRowFor(spec.activation, call.config);
  const Chunks chunks = BackwardChunks(call);
  const int64_t heads = int64_t{shape.B} * shape.H, head_floats = int64_t{shape.T} * shape.D;
  const int64_t tasks = heads * chunks.count(), sum_floats = call.padded_T() * call.width;
  // Partial dk and dv of a head's chunks; a single chunk writes its head's own as soon as it is done.
  std::vector<float> partial(chunks.count() > 1 ? tasks * sum_floats * 2 : 0);
  std::vector<ScaleGradients> by_scale(tasks);
  const auto unpack = [&](const float* sums, int64_t head, float* to, bool add) {
    for (int64_t t = 0; t < shape.T; ++t) {
      float* const row = to + head * head_floats + t * shape.D;
      for (int d = 0; d < shape.D; ++d) row[d] = sums[t * call.width + d] + (add ? row[d] : 0.0f);
    }
  };
  ForTasks(threads, tasks, [&](int64_t task) {
    const int64_t head = task / chunks.count();
    const int chunk = static_cast<int>(task % chunks.count());
    Scratch& scratch = ThreadScratch();
    scratch.Reset(BackwardScratchFloats(call));
    float* const dk_sums = partial.empty() ? scratch.Take(sum_floats) : partial.data() + task * sum_floats * 2;
    float* const dv_sums = partial.empty() ? scratch.Take(sum_floats) : dk_sums + sum_floats;
    by_scale[task] = BackwardChunk(call, backward_row, static_cast<int>(head / shape.H),
                                   static_cast<int>(head % shape.H), chunks.begin[chunk], chunks.begin[chunk + 1],
                                   q + head * head_floats, k + head * head_floats, v + head * head_floats, out, dout,
                                   row_stats + 4 * head * shape.T, dq + head * head_floats, dk_sums, dv_sums);
    if (partial.empty()) {
      unpack(dk_sums, head, dk, false);
      unpack(dv_sums, head, dv, false);
    }
  });
  if (!partial.empty()) {
    ForTasks(threads, heads, [&](int64_t head) {
      for (int chunk = 0; chunk < chunks.count(); ++chunk) {
        const float* const sums = partial.data() + (head * chunks.count() + chunk) * sum_floats * 2;
        unpack(sums, head, dk, chunk > 0);
        unpack(sums + sum_floats, head, dv, chunk > 0);
      }
    });
  }
  for (int64_t task = 0; task < tasks; ++task) {
    const int64_t h = task / chunks.count() % shape.H;
    if (call.learned_s != nullptr) dlearned_s[h] += static_cast<float>(by_scale[task].s);
    if (call.learned_b != nullptr) dlearned_b[h] += static_cast<float>(by_scale[task].b);
  }
}

}  // namespace ablate
