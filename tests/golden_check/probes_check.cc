// What probes rest on, in the trainer's own model on any backend: statistics and weights of every attention row against
// the full matrix of the double-precision model, and generation with a cache against whole passes. For every member of
// the family, on generated weights and tokens.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/golden_check/checks.h"
#include "tests/golden_check/reference_model.h"
#include "worker/trainer/model.h"

namespace ablate {
namespace {

// Of what is reported: means over a head's rows, and the slope. Of a single row: where a row's scores all but cancel,
// float32 rounds them by a larger share.
constexpr double kTolerance = 1e-5, kRowTolerance = 1e-4;
// Of weights. With the first, scores are of moderate size: float32 rounds a score by a share of its size, and a power
// of 15 multiplies that by 15. With the second, texts do not repeat one token.
constexpr double kSpread = 0.15, kWideSpread = 0.35;

struct Case {
  ModelConfig config;
  reference::ModelShape shape;
  TensorMap params;
  std::vector<int32_t> tokens;
  int B, T;
};

Case Make(const AttentionVariant& variant, PositionKind position, int B, int T, int train_length, double spread) {
  Case c{.B = B, .T = T};
  c.config = {.layers = 2, .width = 16, .heads = 2, .vocab = 29, .train_length = train_length, .position = position};
  c.config.attention = variant.spec;
  c.shape = {2, 16, 2, 29, variant.spec, position == PositionKind::kRope ? c.config.rope_base : 0.0};
  c.shape.spec.train_length = train_length;
  c.shape.spec.alibi = position == PositionKind::kAlibi;
  int salt = 0;
  for (const ParameterInfo& info : ParameterTable(c.config)) {
    std::vector<double>& values = c.params[info.name];
    ++salt;
    for (int64_t i = 0; i < info.count; ++i) {
      const double wave = std::sin(0.3 + 2.399963 * static_cast<double>(i) + salt);
      values.push_back(static_cast<float>(info.init_std > 0 ? spread * wave : info.init_value + 0.1 * wave));
    }
  }
  for (int i = 0; i < B * T; ++i) c.tokens.push_back(static_cast<int32_t>((int64_t{i} * i + 3 * i + i / 7) % 29));
  return c;
}

absl::StatusOr<std::unique_ptr<Model>> TrainersModel(const Case& c, Backend* backend) {
  ABLATE_ASSIGN_OR_RETURN(auto model, Model::Create(backend, c.config));
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    const std::vector<double>& values = c.params.at(model->parameters()[i].name);
    const std::vector<float> host(values.begin(), values.end());
    ABLATE_RETURN_IF_ERROR(model->WriteState(StateKind::kWeights, static_cast<int>(i), host.data()));
  }
  return model;
}

// Of a value above 1 (weights of members that do not normalise) as a share of it. Infinity for what is not finite.
double Error(double got, double want) {
  const double error = std::abs(got - want) / std::max(1.0, std::abs(want));
  return error <= 1e300 ? error : HUGE_VAL;
}

struct Row {
  double entropy = 0, largest = 0, first = 0, zeros = 0;
  bool zero = false;  // all weights: it has no entropy
};

Row RowOf(const double* weights, int begin, int end) {
  Row row{.first = begin == 0 ? weights[0] : 0};
  double sum = 0;
  for (int j = begin; j < end; ++j) {
    sum += weights[j];
    row.largest = std::max(row.largest, weights[j]);
    row.zeros += weights[j] == 0 ? 1.0 / (end - begin) : 0;
  }
  for (int j = begin; j < end; ++j) {
    if (weights[j] > 0) row.entropy -= weights[j] / sum * std::log(weights[j] / sum);
  }
  row.zero = sum == 0;
  return row;
}
Row RowOf(const float* got) {
  return {got[kRowEntropy], got[kRowLargest], got[kRowFirst], got[kRowZeros], got[kRowKind] == 2};
}

// What is reported of a head (docs/evaluations.md), from its rows and their numbers of keys.
std::vector<double> Reported(const std::vector<Row>& rows, const std::vector<int>& keys) {
  std::vector<double> x, y;
  double entropy = 0, ratio = 0, largest = 0, first = 0, zeros = 0, with_entropy = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto n = static_cast<double>(rows.size());
    largest += rows[i].largest / n, first += rows[i].first / n, zeros += rows[i].zeros / n;
    if (rows[i].zero) continue;
    ++with_entropy;
    entropy += rows[i].entropy;
    if (keys[i] < 2) continue;
    x.push_back(std::log(keys[i]));
    y.push_back(rows[i].entropy);
    ratio += y.back() / x.back();
  }
  const auto fitted = static_cast<double>(x.size());
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) mean_x += x[i] / fitted, mean_y += y[i] / fitted;
  for (size_t i = 0; i < x.size(); ++i)
    xx += (x[i] - mean_x) * (x[i] - mean_x), xy += (x[i] - mean_x) * (y[i] - mean_y);
  return {largest,
          first,
          zeros,
          with_entropy,
          with_entropy > 0 ? entropy / with_entropy : 0,
          fitted > 0 ? ratio / fitted : 0,
          xx > 0 ? xy / xx : 0};
}

struct AttentionErrors {
  double reported = 0, rows = 0, maps = 0;
  bool same_losses = true;  // as Evaluate's, and its special rows
};
absl::StatusOr<AttentionErrors> CompareAttention(const Case& c, int window, Backend* backend) {
  const int T = c.T, H = c.config.heads;
  const std::vector<double> want = reference::AttentionWeights(c.shape, c.params, c.tokens, c.B, T, window);
  ABLATE_ASSIGN_OR_RETURN(const auto model, TrainersModel(c, backend));
  EvalOptions options;
  options.window = window;
  const std::vector<int32_t>& targets = c.tokens;
  const auto head = [&](int layer, int b, int h) {
    return &want[((static_cast<size_t>(layer) * c.B + b) * H + h) * static_cast<size_t>(T) * T];
  };
  AttentionErrors errors;
  int maps = 0;
  const size_t heads = static_cast<size_t>(c.config.layers) * H;
  std::vector<std::vector<Row>> got_rows(heads), want_rows(heads);
  std::vector<int> keys;  // of each row of a head
  for (int i = 0; i < c.B * T; ++i) keys.push_back(window == 0 ? i % T + 1 : std::min(i % T + 1, window));
  ABLATE_ASSIGN_OR_RETURN(
      const BatchLoss inspected,
      model->AttentionStatistics(c.tokens.data(), targets.data(), c.B, T, options, nullptr,
                                 [&](int layer, int first, int sequences, const float* statistics) {
                                   for (int b = first; b < first + sequences; ++b) {
                                     for (int h = 0; h < H; ++h) {
                                       for (int i = 0; i < T; ++i, statistics += kAttentionStatistics) {
                                         const Row got = RowOf(statistics);
                                         const Row want = RowOf(head(layer, b, h) + static_cast<size_t>(i) * T,
                                                                i + 1 - keys[static_cast<size_t>(i)], i + 1);
                                         errors.rows = std::max(
                                             {errors.rows, Error(got.entropy, want.entropy),
                                              Error(got.largest, want.largest), Error(got.first, want.first),
                                              Error(got.zeros, want.zeros), got.zero == want.zero ? 0 : HUGE_VAL});
                                         got_rows[static_cast<size_t>(layer * H + h)].push_back(got);
                                         want_rows[static_cast<size_t>(layer * H + h)].push_back(want);
                                       }
                                     }
                                   }
                                 }));
  for (size_t of = 0; of < heads; ++of) {
    if (got_rows[of].size() != keys.size()) return absl::InternalError("not every row came");
    const std::vector<double> got = Reported(got_rows[of], keys), want = Reported(want_rows[of], keys);
    for (size_t i = 0; i < got.size(); ++i) errors.reported = std::max(errors.reported, Error(got[i], want[i]));
  }
  ABLATE_ASSIGN_OR_RETURN(
      const BatchLoss mapped,
      model->AttentionMaps(c.tokens.data(), targets.data(), T, options, [&](int layer, const float* got) {
        ++maps;
        for (int h = 0; h < H; ++h) {
          const double* const weights = head(layer, 0, h);
          for (int i = 0; i < T * T; ++i, ++got) {
            errors.maps = std::max(errors.maps, Error(*got, weights[i]));
          }
        }
      }));
  if (maps != c.config.layers) return absl::InternalError(absl::StrCat(maps, " maps came"));
  ABLATE_ASSIGN_OR_RETURN(const BatchLoss all,
                          model->Evaluate(c.tokens.data(), targets.data(), c.B, T, options, nullptr));
  ABLATE_ASSIGN_OR_RETURN(const BatchLoss one,
                          model->Evaluate(c.tokens.data(), targets.data(), 1, T, options, nullptr));
  const auto same = [](const BatchLoss& a, const BatchLoss& b) {
    return a.loss_sum == b.loss_sum && a.counts.zero_rows == b.counts.zero_rows &&
           a.counts.uncontrasted_rows == b.counts.uncontrasted_rows;
  };
  errors.same_losses = same(inspected, all) && same(mapped, one);
  return errors;
}

// Tokens that generation with a cache has otherwise than a whole pass over the text so far for each of them.
absl::StatusOr<int> DifferentTokens(const Case& c, int new_tokens, const EvalOptions& options, Backend* backend) {
  const int length = c.T + new_tokens;
  ABLATE_ASSIGN_OR_RETURN(const auto model, TrainersModel(c, backend));
  ABLATE_ASSIGN_OR_RETURN(const Generation cached,
                          model->Generate({c.tokens.data(), nullptr, c.B, c.T}, new_tokens, length, options));
  int different = 0;
  for (int b = 0; b < c.B; ++b) {
    std::vector<int32_t> text(c.tokens.begin() + b * c.T, c.tokens.begin() + (b + 1) * c.T);
    for (int step = 0; step < new_tokens; ++step) {
      ABLATE_ASSIGN_OR_RETURN(
          const Generation whole,
          model->Generate({text.data(), nullptr, 1, static_cast<int>(text.size())}, 1, length, options));
      different += whole.tokens[0] != cached.tokens[static_cast<size_t>(b * new_tokens + step)] ? 1 : 0;
      text.push_back(whole.tokens[0]);
    }
  }
  return different;
}

}  // namespace

absl::StatusOr<CheckOutcome> CheckProbes(const std::string& only, Backend* backend) {
  if (backend->precision() != Precision::kFloat32) {
    return absl::InvalidArgumentError("probes are compared in fp32, where their tolerance is 1e-5");
  }
  CheckOutcome outcome;
  std::printf("%-20s %-8s %4s %7s  %10s %10s %10s  %s\n", "variant", "position", "T", "window", "reported", "a row",
              "a weight", "tokens that differ, NTK off and on");
  for (const AttentionVariant& variant : AttentionVariants()) {
    if (only != "all" && only != variant.name) continue;
    struct {
      PositionKind position;
      int B, T, window;
    } const cases[] = {{PositionKind::kRope, 1, 150, 0},
                       {PositionKind::kRope, 2, 45, 9},
                       {PositionKind::kAlibi, 2, 45, 0},
                       {PositionKind::kNone, 2, 20, 0},
                       {PositionKind::kLearned, 2, 20, 0}};
    for (const auto& [position, B, T, window] : cases) {
      ABLATE_ASSIGN_OR_RETURN(const AttentionErrors errors,
                              CompareAttention(Make(variant, position, B, T, T, kSpread), window, backend));
      const bool pass = errors.reported <= kTolerance && errors.rows <= kRowTolerance && errors.maps <= kRowTolerance &&
                        errors.same_losses;
      std::printf("%-20s %-8s %4d %7d  %10.2e %10.2e %10.2e%s\n", std::string(variant.name).c_str(),
                  std::string(Name(position)).c_str(), T, window, errors.reported, errors.rows, errors.maps,
                  pass                 ? ""
                  : errors.same_losses ? "  FAILED"
                                       : "  FAILED: the losses are not Evaluate's");
      ++outcome.cases;
      outcome.failed += pass ? 0 : 1;
    }
    // From within the training length to beyond it.
    const int prompt = 7, new_tokens = 8, train_length = 10;
    const Case c = Make(variant, PositionKind::kRope, 2, prompt, train_length, kWideSpread);
    EvalOptions ntk;
    ntk.rope_base = DynamicNtkBase(c.config.rope_base, 1, prompt + new_tokens, train_length, c.config.head_dim());
    ABLATE_ASSIGN_OR_RETURN(const int off, DifferentTokens(c, new_tokens, {}, backend));
    ABLATE_ASSIGN_OR_RETURN(const int on, DifferentTokens(c, new_tokens, ntk, backend));
    const bool pass = off + on == 0;
    std::printf("%-20s %-8s %4d %7d  %10s %10s %10s  %d %d of %d%s\n", std::string(variant.name).c_str(), "rope",
                prompt + new_tokens, 0, "", "", "", off, on, 2 * new_tokens, pass ? "" : "  FAILED");
    ++outcome.cases;
    outcome.failed += pass ? 0 : 1;
  }
  if (outcome.cases == 0) return absl::InvalidArgumentError(absl::StrCat("there is no variant \"", only, "\""));
  return outcome;
}

}  // namespace ablate
