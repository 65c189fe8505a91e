#include "worker/trainer/scoring.h"

#include <algorithm>

#include "base/log.h"
#include "base/status_macros.h"
#include "worker/trainer/gpt2_token_bytes.h"

namespace ablate {

size_t PositionBinOf(int64_t position, int train_length) {
  size_t bin = 0;
  // Bin ends are sums of powers of two, so the products are exact.
  while (bin + 1 < kPositionBins.size() && static_cast<double>(position) > kPositionBins[bin].end * train_length) ++bin;
  return bin;
}

absl::StatusOr<Score> ScoreWindows(const std::vector<Window>& windows, int length, const TokenData& data,
                                   const EvalConfig& config, Model* model, TaskControl* control) {
  const auto rows_at_once = static_cast<size_t>(config.SequencesAtOnce(static_cast<int64_t>(windows.size()), length));
  const auto L = static_cast<size_t>(length);
  std::vector<int32_t> tokens(rows_at_once * L), targets(rows_at_once * L);
  std::vector<float> losses(rows_at_once * L);
  const bool text = data.format() == DataFormat::kText;
  std::vector<size_t> bin_of(L);
  for (size_t i = 0; i < L; ++i) bin_of[i] = PositionBinOf(static_cast<int64_t>(i) + 1, model->config().train_length);
  Score score;
  for (size_t first = 0; first < windows.size(); first += rows_at_once) {
    if (control->ShouldStop() != TaskControl::Stop::kNo) {
      score.stopped = true;
      return score;
    }
    const size_t rows = std::min(rows_at_once, windows.size() - first);
    for (size_t row = 0; row < rows; ++row) {
      const Window& window = windows[first + row];
      int32_t* const row_targets = &targets[row * L];
      ABLATE_RETURN_IF_ERROR(data.Read(window.begin, length, &tokens[row * L]));
      ABLATE_RETURN_IF_ERROR(data.Read(window.begin + 1, length, row_targets));
      std::fill(row_targets, row_targets + window.first_scored, -1);
      std::fill(row_targets + window.end_scored, row_targets + length, -1);
    }
    ABLATE_ASSIGN_OR_RETURN(const BatchLoss loss, model->Evaluate(tokens.data(), targets.data(), static_cast<int>(rows),
                                                                  length, config.options, losses.data()));
    LOG_EVERY_T(INFO, 60) << first + rows << " of " << windows.size() << " windows of " << length << " tokens done";
    for (size_t i = 0; i < rows * L; ++i) {
      if (targets[i] < 0) continue;
      for (Score::Part* part :
           {&score.all, &score.bins[bin_of[i % L]], &score.documents[windows[first + i / L].document]}) {
        part->loss_sum += losses[i];
        ++part->targets;
      }
      score.bytes += text ? 1 : Gpt2TokenBytes(targets[i]);
    }
    score.counts.zero_rows += loss.counts.zero_rows;
    score.counts.uncontrasted_rows += loss.counts.uncontrasted_rows;
    // A sign of life: the worker tells a long evaluation from a hanging one by it.
    control->Progress(static_cast<int64_t>(first + rows), 0);
  }
  return score;
}

}  // namespace ablate
