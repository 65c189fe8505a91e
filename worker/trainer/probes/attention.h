// Statistics of attention's rows by layer and head, and attention's weights over one text. Must not know kernels: a
// model hands out rows and maps. Definitions: docs/evaluations.md. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/trainer/probes/probe.h"

namespace ablate {

// Sums over the rows of one head, in double.
class HeadStatistics {
 public:
  // One row of `keys` attended keys: kAttentionStatistics floats.
  void Add(const float* row, int keys);
  void Add(const HeadStatistics& other);

  // Means over all rows.
  double largest() const { return largest_ / static_cast<double>(rows_); }
  double first() const { return first_ / static_cast<double>(rows_); }
  double zeros() const { return zeros_ / static_cast<double>(rows_); }
  double uncontrasted() const { return static_cast<double>(uncontrasted_) / static_cast<double>(rows_); }
  double zero_rows() const { return static_cast<double>(zero_rows_) / static_cast<double>(rows_); }
  // Means over the rows whose weights are not all zero; of the ratio those of two keys and more. NaN: there are none.
  double entropy() const { return entropy_ / static_cast<double>(rows_ - zero_rows_); }
  double entropy_ratio() const { return ratio_ / static_cast<double>(fitted_); }
  // Least squares of entropy on log n over the rows of the ratio. NaN where all have the same n.
  double entropy_slope() const;

 private:
  int64_t rows_ = 0, uncontrasted_ = 0, zero_rows_ = 0, fitted_ = 0;
  double entropy_ = 0, largest_ = 0, first_ = 0, zeros_ = 0, ratio_ = 0;
  double x_ = 0, xx_ = 0, y_ = 0, xy_ = 0;  // x = log n, y = entropy, of fitted rows
  int least_keys_ = 0, most_keys_ = 0;      // of fitted rows
};

// The metrics attention_*, of all heads and of each. `heads` [layers, H].
void AddAttentionMetrics(const std::vector<HeadStatistics>& heads, int heads_per_layer, v1::TaskResult* result);

}  // namespace ablate
