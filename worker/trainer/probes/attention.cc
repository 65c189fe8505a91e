#include "worker/trainer/probes/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "experiments/attention_map.h"
#include "proto/resources.pb.h"

namespace ablate {
namespace {

// A map's text is cut here before it is encoded: far more than its tokens take.
constexpr size_t kMapTextBytes = size_t{64} << 10;

// What rows of a pass add to the heads' sums.
Model::StatisticsVisitor AddTo(std::vector<HeadStatistics>* heads, int H, int T, int window) {
  return [=](int layer, int, int sequences, const float* statistics) {
    for (int b = 0; b < sequences; ++b) {
      for (int h = 0; h < H; ++h) {
        HeadStatistics& sums = (*heads)[static_cast<size_t>(layer) * H + h];
        for (int i = 0; i < T; ++i, statistics += kAttentionStatistics) {
          sums.Add(statistics, window == 0 ? i + 1 : std::min(i + 1, window));
        }
      }
    }
  };
}

}  // namespace

void HeadStatistics::Add(const float* row, int keys) {
  ++rows_;
  largest_ += row[kRowLargest];
  first_ += row[kRowFirst];
  zeros_ += row[kRowZeros];
  if (row[kRowKind] == 1) ++uncontrasted_;
  if (row[kRowKind] == 2) {
    ++zero_rows_;
    return;
  }
  const double y = row[kRowEntropy];
  entropy_ += y;
  if (keys < 2) return;
  const double x = std::log(static_cast<double>(keys));
  ratio_ += y / x;
  x_ += x;
  xx_ += x * x;
  y_ += y;
  xy_ += x * y;
  least_keys_ = fitted_ == 0 ? keys : std::min(least_keys_, keys);
  most_keys_ = std::max(most_keys_, keys);
  ++fitted_;
}

void HeadStatistics::Add(const HeadStatistics& other) {
  if (other.fitted_ > 0) {
    least_keys_ = fitted_ == 0 ? other.least_keys_ : std::min(least_keys_, other.least_keys_);
    most_keys_ = std::max(most_keys_, other.most_keys_);
  }
  rows_ += other.rows_;
  uncontrasted_ += other.uncontrasted_;
  zero_rows_ += other.zero_rows_;
  fitted_ += other.fitted_;
  entropy_ += other.entropy_;
  largest_ += other.largest_;
  first_ += other.first_;
  zeros_ += other.zeros_;
  ratio_ += other.ratio_;
  x_ += other.x_;
  xx_ += other.xx_;
  y_ += other.y_;
  xy_ += other.xy_;
}

double HeadStatistics::entropy_slope() const {
  if (fitted_ == 0 || least_keys_ == most_keys_) return std::numeric_limits<double>::quiet_NaN();
  const auto n = static_cast<double>(fitted_);
  return (xy_ - x_ * y_ / n) / (xx_ - x_ * x_ / n);
}

void AddAttentionMetrics(const std::vector<HeadStatistics>& heads, int heads_per_layer, v1::TaskResult* result) {
  const auto add = [&](const std::string& suffix, const HeadStatistics& of) {
    for (const auto& [name, value] : {std::pair{"attention_entropy", of.entropy()},
                                      {"attention_entropy_ratio", of.entropy_ratio()},
                                      {"attention_entropy_slope", of.entropy_slope()},
                                      {"attention_largest", of.largest()},
                                      {"attention_first", of.first()},
                                      {"attention_zeros", of.zeros()},
                                      {"attention_uncontrasted", of.uncontrasted()},
                                      {"attention_zero_rows", of.zero_rows()}}) {
      // NaN: no row has what the mean is over.
      if (!std::isnan(value)) AddMetric(result, absl::StrCat(name, suffix), value);
    }
  };
  HeadStatistics all;
  for (const HeadStatistics& head : heads) all.Add(head);
  add("", all);
  for (size_t i = 0; i < heads.size(); ++i) {
    add(absl::StrCat(".l", i / heads_per_layer, ".h", i % heads_per_layer), heads[i]);
  }
}

absl::StatusOr<bool> RunAttention(const ProbeContext& context, v1::TaskResult* result) {
  const auto split = ParseSplit(context.name);
  if (!split) {
    return absl::InvalidArgumentError(
        absl::StrCat("split \"", context.name, "\" is unknown; expected selection or confirmation"));
  }
  const ModelConfig& model = context.model->config();
  const int L = context.length, H = model.heads;
  ABLATE_ASSIGN_OR_RETURN(const DataSplits splits, context.data->Splits(model.train_length));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<Window> windows,
                          LossWindows(splits.of(*split), model.train_length, L, context.eval.attention_tokens));
  const auto count = static_cast<int64_t>(windows.size());
  ABLATE_RETURN_IF_ERROR(context.reserve(EvaluationPass::kStatistics, count, L));
  const int at_once = context.eval.SequencesAtOnce(count, L);
  std::vector<int32_t> tokens(static_cast<size_t>(at_once) * L), targets(tokens.size());
  std::vector<HeadStatistics> heads(static_cast<size_t>(model.layers) * H);
  bool finite = true;
  for (int64_t first = 0; first < count; first += at_once) {
    if (context.control->ShouldStop() != TaskControl::Stop::kNo) return false;
    const int rows = static_cast<int>(std::min<int64_t>(at_once, count - first));
    for (int row = 0; row < rows; ++row) {
      const int64_t begin = windows[static_cast<size_t>(first + row)].begin;
      ABLATE_RETURN_IF_ERROR(context.data->tokens().Read(begin, L, &tokens[static_cast<size_t>(row) * L]));
      ABLATE_RETURN_IF_ERROR(context.data->tokens().Read(begin + 1, L, &targets[static_cast<size_t>(row) * L]));
    }
    ABLATE_ASSIGN_OR_RETURN(const BatchLoss loss, context.model->AttentionStatistics(
                                                      tokens.data(), targets.data(), rows, L, context.eval.options,
                                                      nullptr, AddTo(&heads, H, L, context.eval.options.window)));
    finite = finite && std::isfinite(loss.loss_sum);
    LOG_EVERY_T(INFO, 60) << first + rows << " of " << count << " windows of " << L << " tokens done";
    context.control->Progress(first + rows, 0);
  }
  AddAttentionMetrics(heads, H, result);
  SetOutcome(context, finite, result);
  return true;
}

absl::StatusOr<bool> RunAttentionMap(const ProbeContext& context, v1::TaskResult* result) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, TokenizerOf(context));
  ABLATE_ASSIGN_OR_RETURN(const std::string text, OnlyFile(context));
  const ModelConfig& model = context.model->config();
  const int H = model.heads;
  AttentionMap map{.layers = model.layers, .heads = H};
  map.tokens = tokenizer->Encode(std::string_view(text).substr(0, kMapTextBytes));
  if (map.tokens.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("task attention_map: ", context.task.files(0).path(), " is empty; name a text"));
  }
  const int64_t longest =
      model.position == PositionKind::kLearned ? model.train_length : kMaxLengthMultiple * model.train_length;
  map.tokens.resize(
      std::min({map.tokens.size(), static_cast<size_t>(kLongestAttentionMap), static_cast<size_t>(longest)}));
  const int T = map.length();
  std::vector<int32_t> targets(map.tokens.begin() + 1, map.tokens.end());
  targets.push_back(-1);
  // The base of RoPE is that of this text's length.
  ABLATE_ASSIGN_OR_RETURN(const EvalConfig eval, EvalConfigFrom(context.task.config(), context.task.eval_config(), T));
  if (context.control->ShouldStop() != TaskControl::Stop::kNo) return false;
  ABLATE_RETURN_IF_ERROR(context.reserve(EvaluationPass::kMaps, 1, T));
  ABLATE_ASSIGN_OR_RETURN(
      const BatchLoss loss,
      context.model->AttentionMaps(map.tokens.data(), targets.data(), T, eval.options, [&](int, const float* weights) {
        for (int h = 0; h < H; ++h) map.maps.push_back(QuantizeAttention(weights + int64_t{h} * T * T, T));
      }));
  const bool finite = std::isfinite(loss.loss_sum);
  // A picture of a broken model shows nothing.
  if (finite) {
    ABLATE_RETURN_IF_ERROR(WriteArtifact(context, std::string(kAttentionMapFile), std::string(kAttentionMapMediaType),
                                         EncodeAttentionMap(map), result));
  }
  ABLATE_RETURN_IF_ERROR(context.reserve(EvaluationPass::kStatistics, 1, T));
  std::vector<HeadStatistics> heads(static_cast<size_t>(model.layers) * H);
  ABLATE_RETURN_IF_ERROR(context.model
                             ->AttentionStatistics(map.tokens.data(), targets.data(), 1, T, eval.options, nullptr,
                                                   AddTo(&heads, H, T, eval.options.window))
                             .status());
  AddAttentionMetrics(heads, H, result);
  SetOutcome(context, finite, result);
  return true;
}

}  // namespace ablate
