// Losses of a model over windows of text: their sum, and the parts that evaluations report of it. Must not know
// checkpoints, configurations or what a metric is called. Thread rule: one thread, the model's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/data_splits.h"
#include "worker/trainer/model.h"
#include "worker/trainer/task.h"
#include "worker/trainer/train_config.h"

namespace ablate {

// Positions within a window, log-spaced in units of T_train: bin b holds those above the end before it, up to `end` T.
// A position is 1 + the number of tokens that a target's input has before it in the window.
struct PositionBin {
  std::string_view name;  // "T/8"
  double end = 0;
};
inline constexpr std::array<PositionBin, 12> kPositionBins = {{{"T/64", 1.0 / 64},
                                                               {"T/32", 1.0 / 32},
                                                               {"T/16", 1.0 / 16},
                                                               {"T/8", 0.125},
                                                               {"T/4", 0.25},
                                                               {"T/2", 0.5},
                                                               {"3T/4", 0.75},
                                                               {"T", 1},
                                                               {"2T", 2},
                                                               {"4T", 4},
                                                               {"8T", 8},
                                                               {"16T", 16}}};
// The bin of a position from 1 to 16 T.
size_t PositionBinOf(int64_t position, int train_length);

struct Score {
  struct Part {
    double loss_sum = 0;  // nats
    int64_t targets = 0;
    double mean() const { return loss_sum / static_cast<double>(targets); }
  };
  Part all;
  int64_t bytes = 0;  // of text, of all targets
  std::array<Part, kPositionBins.size()> bins;
  std::map<int32_t, Part> documents;  // by Window::document
  AttentionCounts counts;
  bool stopped = false;  // on request; the rest is not to be used
};

// Windows of one length through the model, as many at once as config.batch_tokens allows, losses summed in window
// order. Errors: those of TokenData::Read and Model::Evaluate.
absl::StatusOr<Score> ScoreWindows(const std::vector<Window>& windows, int length, const TokenData& data,
                                   const EvalConfig& config, Model* model, TaskControl* control);

}  // namespace ablate
