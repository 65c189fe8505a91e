#include "experiments/metrics.h"

namespace ablate {

const std::vector<Metric>& Metrics() {
  static const auto& metrics = *new std::vector<Metric>{
      {"loss_targets", true, true, false, "mean loss over the target spans, the same tokens at every length"},
      {"loss", true, true, false, "mean loss over all positions of consecutive windows"},
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

int MetricRank(std::string_view metric) {
  int rank = 0;
  for (const Metric& known : Metrics()) {
    if (known.name == metric) break;
    ++rank;
  }
  return rank;
}

}  // namespace ablate
