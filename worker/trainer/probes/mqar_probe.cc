// Associative recall as an evaluation: how many values a model gets right after a repeated key, at any length. One
// forward pass a sequence: a value never stands behind its query, so greedy decoding and teacher forcing are one.
// Sequences are drawn by (length, index) alone (mqar.h), so every arm and every seed is asked the same.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "worker/trainer/mqar.h"
#include "worker/trainer/probes/probe.h"

namespace ablate {

absl::StatusOr<bool> RunMqar(const ProbeContext& context, v1::TaskResult* result) {
  const int L = context.length;
  ABLATE_ASSIGN_OR_RETURN(const MqarMaker maker, MqarMaker::Make(context.train.model.vocab, context.eval.mqar.pairs, L,
                                                                 static_cast<uint64_t>(L), kMqarTrial));
  const int64_t sequences = context.eval.mqar.sequences;
  ABLATE_RETURN_IF_ERROR(context.reserve(EvaluationPass::kLosses, sequences, L));
  const int at_once = context.eval.SequencesAtOnce(sequences, L);
  const size_t cells = static_cast<size_t>(at_once) * static_cast<size_t>(L);
  std::vector<int32_t> tokens(cells), targets(cells), likeliest(cells);
  int64_t right = 0, queries = 0;
  double loss_sum = 0;
  for (int64_t first = 0; first < sequences; first += at_once) {
    if (context.control->ShouldStop() != TaskControl::Stop::kNo) return false;
    const int rows = static_cast<int>(std::min<int64_t>(at_once, sequences - first));
    for (int row = 0; row < rows; ++row) {
      const size_t at = static_cast<size_t>(row) * static_cast<size_t>(L);
      maker.Fill(static_cast<uint64_t>(first + row), &tokens[at], &targets[at]);
    }
    ABLATE_ASSIGN_OR_RETURN(const BatchLoss loss,
                            context.model->Evaluate(tokens.data(), targets.data(), rows, L, context.eval.options,
                                                    nullptr, likeliest.data()));
    for (size_t i = 0; i < static_cast<size_t>(rows) * static_cast<size_t>(L); ++i) {
      right += targets[i] >= 0 && targets[i] == likeliest[i] ? 1 : 0;
    }
    queries += loss.targets;
    loss_sum += loss.loss_sum;
    LOG_EVERY_T(INFO, 60) << first + rows << " of " << sequences << " sequences of " << L << " tokens done";
    context.control->Progress(first + rows, 0);
  }
  const double loss = loss_sum / static_cast<double>(queries);
  AddMetric(result, "mqar_accuracy", static_cast<double>(right) / static_cast<double>(queries));
  AddMetric(result, "mqar_loss", loss);
  AddMetric(result, "mqar_queries", static_cast<double>(queries));
  SetOutcome(context, std::isfinite(loss), result);
  return true;
}

}  // namespace ablate
