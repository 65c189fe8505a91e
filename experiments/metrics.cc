#include "experiments/metrics.h"

namespace ablate {

const std::vector<Metric>& Metrics() {
  static const auto& metrics = *new std::vector<Metric>{
      {"loss_targets", true, true, false, "mean loss over the target spans, the same tokens at every length"},
      {"loss", true, true, false, "mean loss over all positions of consecutive windows"},
      {"loss_per_byte", false, true, false, "loss_targets per byte of the targets' text, in nats"},
      {"bits_per_byte", false, true, false, "the same in bits"},
      {"loss_targets_windowed", false, true, false,
       "with eval.gain: loss_targets where each position sees train.length keys"},
      {"gain", false, true, false,
       "with eval.gain: loss_targets_windowed less loss_targets, what farther keys are good for"},
      {"loss_by_position.T/64", false, true, false, "`loss` at positions up to 1/64 of train.length"},
      {"loss_by_position.T/32", false, true, false, "`loss` at positions after those, up to 1/32"},
      {"loss_by_position.T/16", false, true, false, "after those, up to 1/16"},
      {"loss_by_position.T/8", false, true, false, "after those, up to 1/8"},
      {"loss_by_position.T/4", false, true, false, "after those, up to 1/4"},
      {"loss_by_position.T/2", false, true, false, "after those, up to 1/2"},
      {"loss_by_position.3T/4", false, true, false, "after those, up to 3/4"},
      {"loss_by_position.T", false, true, false, "after those, up to train.length"},
      {"loss_by_position.2T", false, true, false, "after those, up to 2 times train.length"},
      {"loss_by_position.4T", false, true, false, "after those, up to 4 times"},
      {"loss_by_position.8T", false, true, false, "after those, up to 8 times"},
      {"loss_by_position.16T", false, true, false, "after those, up to 16 times"},
      {"loss_tokens", false, true, false, "targets that `loss` scored"},
      {"target_tokens", false, true, false, "targets that `loss_targets` scored"},
      {"zero_rows", false, true, true, "attention rows whose weights are all zero"},
      {"uncontrasted_rows", false, true, true, "attention rows without contrast to sharpen"},
      {"final_train_loss", false, false, true, "mean training loss of the last 20 steps"},
      {"max_gradient_norm", false, false, true, "largest gradient norm before clipping"},
      {"tokens", false, false, true, "tokens trained on"},
  };
  return metrics;
}

std::vector<std::string> MetricNames() {
  std::vector<std::string> names;
  for (const Metric& metric : Metrics()) names.emplace_back(metric.name);
  return names;
}

bool IsHeadline(std::string_view metric) {
  const auto rank = static_cast<size_t>(MetricRank(metric));
  return rank < Metrics().size() && Metrics()[rank].headline;
}

bool IsLoss(std::string_view metric) {
  return metric == "bits_per_byte" || (metric.substr(0, 4) == "loss" && metric != "loss_tokens" &&
                                       static_cast<size_t>(MetricRank(metric)) < Metrics().size());
}

bool IsGain(std::string_view metric) { return metric == "gain"; }

PositionRange PositionsOf(std::string_view metric) {
  constexpr std::string_view kPrefix = "loss_by_position.";
  PositionRange range;
  for (const Metric& known : Metrics()) {
    if (known.name.substr(0, kPrefix.size()) != kPrefix) continue;
    // "3T/4"
    const std::string end(known.name.substr(kPrefix.size()));
    const size_t t = end.find('T'), slash = end.find('/');
    range = {range.to, t == 0 ? 1 : std::stod(end)};
    if (slash != std::string::npos) range.to /= std::stod(end.substr(slash + 1));
    if (known.name == metric) return range;
  }
  return {};
}

int MetricRank(std::string_view metric) {
  int rank = 0;
  for (const Metric& known : Metrics()) {
    if (known.name == metric) break;
    ++rank;
  }
  return rank;
}

}  // namespace ablate
