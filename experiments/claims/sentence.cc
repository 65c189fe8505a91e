// See sentence.h.
#include "experiments/claims/sentence.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/strings.h"
#include "experiments/table.h"

namespace ablate {
namespace {

std::string MetricName(const v1::ClaimSpec& claim) { return claim.metric().empty() ? "loss_targets" : claim.metric(); }

std::string Where(const v1::ClaimSpec& claim, int64_t length) {
  return absl::StrCat("at ", length, " tokens", claim.ntk() ? " with NTK" : "");
}

std::string Tokens(int64_t short_length, int64_t length) {
  return absl::StrCat("from ", short_length, " to ", length, " tokens");
}

// "difference -0.0312, 95 % interval -0.0500 to -0.0124, n = 8, Holm p 0.0031, not below 0.05".
std::string Numbers(const v1::ClaimRow& row, const ClaimTest& test, const Said& said) {
  const v1::ClaimSpec& claim = row.claim();
  const int decimals = row.has_low() ? DecimalsFor((row.high() - row.low()) / 2) : 4;
  std::string text;
  const bool diverged = !test.arm_diverged.empty() || !test.baseline_diverged.empty();
  if (row.has_estimate()) {
    absl::StrAppend(&text, diverged ? "survivors only: " : "",
                    claim.kind() == v1::RISES_LESS ? "difference of the rises " : "difference ",
                    absl::StrFormat("%+.*f", decimals, row.estimate()));
    if (row.has_low()) {
      absl::StrAppend(&text, ", ", ShortestDouble(std::round(said.level * 1000) / 10), " % interval ",
                      absl::StrFormat("%+.*f to %+.*f", decimals, row.low(), decimals, row.high()));
    }
    absl::StrAppend(&text, ", ");
  }
  absl::StrAppend(&text, "n = ", row.n());
  if (test.method == "sign_test") {
    absl::StrAppend(&text, "; sign test with diverged runs as worst: lower in ", test.wins, ", higher in ", test.losses,
                    " seeds");
  }
  if (row.has_p_adjusted()) {
    const std::string p = FormatP(row.p_adjusted());
    absl::StrAppend(&text, ", Holm p ", p[0] == '<' ? "" : "= ", p,
                    row.p_adjusted() < row.alpha() ? ", below " : ", not below ", absl::StrFormat("%.4g", row.alpha()));
  }
  return text;
}

std::string Power(const v1::ClaimRow& row) {
  std::string text;
  // It is the t test's, over the survivors: of a sign test it says nothing.
  if (row.has_smallest_detectable() && row.claim().kind() != v1::EQUIVALENT && row.method() != "sign_test") {
    absl::StrAppend(&text, " With ", row.n(), " seeds a difference of ",
                    absl::StrFormat("%.3g", row.smallest_detectable()), " would be found with 80 % power.");
  }
  if (row.has_seeds_to_decide()) {
    const bool equivalent = row.claim().kind() == v1::EQUIVALENT;
    absl::StrAppend(&text, " About ", row.seeds_to_decide(), " seeds would decide it, ",
                    equivalent ? "if there is no difference at all."
                               : absl::StrCat("for the declared smallest effect of ",
                                              ShortestDouble(row.claim().smallest_effect()), "."));
  }
  return text;
}

std::string Better(double difference) { return difference < 0 ? "lower" : "higher"; }

}  // namespace

std::string ClaimSubject(const v1::ClaimSpec& claim, const Said& said) {
  const std::string metric = MetricName(claim);
  const std::string margin = ShortestDouble(claim.margin());
  if (claim.kind() == v1::RISES_LESS) {
    return absl::StrCat(metric, " of ", said.arm, " rises less than that of ", said.baseline, " ",
                        Tokens(said.short_length, said.length), claim.ntk() ? " with NTK" : "");
  }
  const std::string where = Where(claim, said.length);
  if (claim.kind() == v1::EQUIVALENT) {
    return absl::StrCat(metric, " of ", said.arm, " equals that of ", said.baseline, " within ±", margin, " ", where);
  }
  const char* how = claim.direction() < 0 ? "is lower than" : claim.direction() > 0 ? "is higher than" : "differs from";
  return absl::StrCat(metric, " of ", said.arm, " ", how, " that of ", said.baseline, " ", where);
}

std::string VerdictSentence(const v1::ClaimRow& row, const ClaimTest& test, Decision decision, const Said& said) {
  const v1::ClaimSpec& claim = row.claim();
  const std::string numbers = absl::StrCat(" (", Numbers(row, test, said), ").");
  const std::string metric = MetricName(claim);
  const std::string margin = ShortestDouble(claim.margin());
  const std::string of = absl::StrCat(metric, " of ", said.arm);
  const std::string subject = ClaimSubject(claim, said);
  switch (decision) {
    case Decision::kSupported:
      if (claim.kind() == v1::DIFFERS && claim.direction() == 0) {
        const double sign = test.method == "sign_test" ? static_cast<double>(test.losses - test.wins) : row.estimate();
        return absl::StrCat("Supported: ", of, " differs from that of ", said.baseline, " ", Where(claim, said.length),
                            ": it is ", Better(sign), numbers);
      }
      if (claim.kind() == v1::RISES_LESS) {
        return absl::StrCat("Supported: ", subject, ", is not worse by more than ", margin, " at ", said.short_length,
                            " tokens and is lower at ", said.length, " tokens", numbers);
      }
      return absl::StrCat("Supported: ", subject, numbers);
    case Decision::kRefutedOtherWay:
      return absl::StrCat("Refuted: ", of, " is ", claim.direction() < 0 ? "higher" : "lower", ", not ",
                          claim.direction() < 0 ? "lower" : "higher", ", than that of ", said.baseline, " ",
                          Where(claim, said.length), numbers);
    case Decision::kRefutedEquivalent:
      return absl::StrCat("Refuted: ", of, " and that of ", said.baseline, " ", Where(claim, said.length),
                          " are equal within the margin of ±", margin, " (TOST p ", FormatP(test.p_equivalent),
                          ", at a share of ", absl::StrFormat("%.4g", row.alpha()), " over the family)", numbers);
    case Decision::kRefutedOutside:
      return absl::StrCat("Refuted: ", of, " and that of ", said.baseline, " ", Where(claim, said.length),
                          " are farther apart than the margin of ±", margin, numbers);
    case Decision::kRefutedPart: {
      std::string what;
      if (test.rises_more) what = absl::StrCat("it rises more ", Tokens(said.short_length, said.length));
      const auto add = [&](const std::string& text) { absl::StrAppend(&what, what.empty() ? "" : ", ", text); };
      if (test.worse_at_short) {
        add(absl::StrCat("it is worse by more than ", margin, " at ", said.short_length, " tokens"));
      }
      if (test.higher_at_long) add(absl::StrCat("it is higher at ", said.length, " tokens"));
      return absl::StrCat("Refuted: it does not hold that ", subject, " without being worse: ", what, numbers);
    }
    case Decision::kUndecided: {
      std::string why;
      if (!row.has_p() && !test.main.reason.empty()) why = absl::StrCat(" There is no test: ", test.main.reason, ".");
      const bool diverged = !test.arm_diverged.empty() || !test.baseline_diverged.empty();
      if (!row.has_p() && diverged) why = " A run diverged, so a claim about means is undecided.";
      return absl::StrCat("Undecided: it is not shown that ", subject, ", nor that it is not so", numbers, why,
                          Power(row));
    }
  }
  return "";
}

}  // namespace ablate
