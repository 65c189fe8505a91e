#include "experiments/metrics.h"

namespace ablate {
namespace {

// Each <word> of the pattern is a number without a sign.
bool FitsFamily(std::string_view pattern, std::string_view name) {
  size_t at = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '<') {
      if (at >= name.size() || name[at++] != pattern[i]) return false;
      continue;
    }
    const size_t begin = at;
    while (at < name.size() && name[at] >= '0' && name[at] <= '9') ++at;
    if (at == begin) return false;
    i = pattern.find('>', i);
  }
  return at == name.size();
}

}  // namespace

const std::vector<Metric>& Metrics() {
  static const auto& metrics = *new std::vector<Metric>{
      {"loss_targets", true, true, false, "mean loss over the target spans, the same tokens at every length"},
      {"loss", true, true, false, "mean loss over all positions of consecutive windows"},
      {"passkey_accuracy", true, true, false, "share of prompts whose key was repeated", "passkey"},
      {"mqar_accuracy", true, true, false, "share of queries answered with their key's value", "mqar"},
      {"attention_entropy", true, true, false, "entropy of a row's weights in nats, mean over rows, layers and heads",
       "attention"},
      {"attention_entropy_ratio", true, true, false,
       "entropy / log n, mean over rows from the second on, layers and heads", "attention"},
      {"attention_entropy_slope", true, true, false,
       "slope of row entropy on log n (least squares) over the rows of all layers and heads", "attention"},
      {"acc", true, true, false, "share of questions whose right choice is the most likely", "multiple_choice"},
      {"acc_norm", true, true, false, "the same with log likelihoods per character of the choice", "multiple_choice"},
      {"rouge1", true, true, false, "F1 of ROUGE-1, mean over texts", "summaries"},
      {"rouge2", true, true, false, "F1 of ROUGE-2", "summaries"},
      {"rougeL", true, true, false, "F1 of ROUGE-L", "summaries"},
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
      {"passkey_accuracy.depth_<k>_of_<n>", false, true, false,
       "passkey_accuracy where the key lies in the k-th of n bins", "passkey"},
      {"passkey_trials", false, true, false, "prompts asked", "passkey"},
      {"passkey_trials.depth_<k>_of_<n>", false, true, false, "prompts whose key lies in the k-th of n bins",
       "passkey"},
      {"mqar_loss", false, true, false, "mean loss over the answers", "mqar"},
      {"mqar_queries", false, true, false, "queries asked", "mqar"},
      {"attention_largest", false, true, false, "largest weight of a row, mean over rows, layers and heads",
       "attention"},
      {"attention_first", false, true, false, "weight on the first token", "attention"},
      {"attention_zeros", false, true, false, "share of a row's weights that are exactly zero", "attention"},
      {"attention_uncontrasted", false, true, false, "share of rows without contrast to sharpen", "attention"},
      {"attention_zero_rows", false, true, false, "share of rows whose weights are all zero", "attention"},
      {"attention_entropy.l<layer>.h<head>", false, true, false, "attention_entropy of one head", "attention"},
      {"attention_entropy_ratio.l<layer>.h<head>", false, true, false, "attention_entropy_ratio of one head",
       "attention"},
      {"attention_entropy_slope.l<layer>.h<head>", false, true, false, "attention_entropy_slope of one head",
       "attention"},
      {"attention_largest.l<layer>.h<head>", false, true, false, "attention_largest of one head", "attention"},
      {"attention_first.l<layer>.h<head>", false, true, false, "attention_first of one head", "attention"},
      {"attention_zeros.l<layer>.h<head>", false, true, false, "attention_zeros of one head", "attention"},
      {"attention_uncontrasted.l<layer>.h<head>", false, true, false, "attention_uncontrasted of one head",
       "attention"},
      {"attention_zero_rows.l<layer>.h<head>", false, true, false, "attention_zero_rows of one head", "attention"},
      {"choice_items", false, true, false, "questions asked", "multiple_choice"},
      {"choice_items_cut", false, true, false, "questions whose beginning did not fit into train.length",
       "multiple_choice"},
      {"summary_items", false, true, false, "texts summarised", "summaries"},
      {"summary_items_cut", false, true, false, "texts whose end did not fit into train.length", "summaries"},
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

const Metric* FindMetric(std::string_view name) {
  const auto rank = static_cast<size_t>(MetricRank(name));
  return rank < Metrics().size() ? &Metrics()[rank] : nullptr;
}

bool IsHeadline(std::string_view metric) {
  const Metric* found = FindMetric(metric);
  return found != nullptr && found->headline;
}

bool IsOfFamily(std::string_view metric) {
  const Metric* found = FindMetric(metric);
  return found != nullptr && found->name.find('<') != std::string_view::npos;
}

std::string TriesOf(std::string_view metric) {
  static constexpr struct {
    std::string_view rate, tries;
  } kTries[] = {{"passkey_accuracy", "passkey_trials"},
                {"mqar_accuracy", "mqar_queries"},
                {"acc", "choice_items"},
                {"acc_norm", "choice_items"}};
  for (const auto& [rate, tries] : kTries) {
    if (metric == rate) return std::string(tries);
    // A family's members have a count of their own.
    if (metric.substr(0, rate.size()) == rate && metric.size() > rate.size() && metric[rate.size()] == '.') {
      return std::string(tries) + std::string(metric.substr(rate.size()));
    }
  }
  return "";
}

bool IsOfTask(const Metric& metric, std::string_view task) {
  return metric.task == (task == "attention_map" ? "attention" : task);
}

bool MatchesMetric(std::string_view pattern, std::string_view metric) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == metric;
  if (metric.substr(0, star) != pattern.substr(0, star)) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t from = star; from <= metric.size(); ++from) {
    if (MatchesMetric(rest, metric.substr(from))) return true;
  }
  return false;
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
    if (known.name == metric || (known.name.find('<') != std::string_view::npos && FitsFamily(known.name, metric)))
      break;
    ++rank;
  }
  return rank;
}

}  // namespace ablate
