// CombineTexts: a claim about text holds on each of them. See progress.h.
#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "experiments/claims/progress.h"
#include "experiments/statistics.h"
#include "experiments/table.h"
#include "google/protobuf/util/message_differencer.h"

namespace ablate {
namespace {

// The margin is of each text's own scale, and so is its reason.
std::string WhatIsClaimed(v1::ClaimSpec claim) {
  claim.clear_margin();
  claim.clear_margin_reason();
  claim.clear_smallest_effect();
  return claim.SerializeAsString();
}

double POf(const v1::ClaimRow& row) { return row.has_p() ? row.p() : 1.0; }

}  // namespace

absl::Status CheckTexts(const std::vector<const v1::SweepSpec*>& specs) {
  const auto comparable = [](v1::SweepSpec spec) {
    spec.clear_name();
    spec.clear_description();
    spec.clear_data();
    spec.clear_priority();
    spec.clear_keep();
    for (v1::ClaimSpec& claim : *spec.mutable_claims()) {
      claim.clear_margin();
      claim.clear_margin_reason();
      claim.clear_smallest_effect();
    }
    return spec;
  };
  for (size_t i = 0; i < specs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (specs[i]->data().sha256() == specs[j]->data().sha256()) {
        return absl::InvalidArgumentError(
            absl::StrCat("sweeps \"", specs[j]->name(), "\" and \"", specs[i]->name(),
                         "\" are on the same text: the same evidence does not count twice"));
      }
      if (!google::protobuf::util::MessageDifferencer::Equals(comparable(*specs[i]), comparable(*specs[j]))) {
        return absl::InvalidArgumentError(
            absl::StrCat("sweeps \"", specs[j]->name(), "\" and \"", specs[i]->name(),
                         "\" differ in more than their text and margins (`ablate sweep show` names their files)"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::ClaimRow>> CombineTexts(const std::vector<std::vector<v1::ClaimRow>>& texts) {
  if (texts.empty()) return absl::InvalidArgumentError("no texts to combine");
  if (texts.size() == 1) return texts.front();
  const size_t claims = texts.front().size();
  for (const auto& text : texts) {
    bool same = text.size() == claims;
    for (size_t i = 0; same && i < claims; ++i) {
      same = WhatIsClaimed(text[i].claim()) == WhatIsClaimed(texts.front()[i].claim());
    }
    if (!same) {
      return absl::InvalidArgumentError(
          "the sweeps state different claims: those to combine must be the same, in the same order, margins apart");
    }
  }
  std::vector<double> largest(claims, 0.0);
  for (size_t i = 0; i < claims; ++i) {
    for (const auto& text : texts) largest[i] = std::max(largest[i], POf(text[i]));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::vector<double> adjusted, Holm(largest));
  std::vector<v1::ClaimRow> rows;
  for (size_t i = 0; i < claims; ++i) {
    const auto worst = std::max_element(texts.begin(), texts.end(),
                                        [&](const auto& a, const auto& b) { return POf(a[i]) < POf(b[i]); });
    const auto count = [&](v1::VerdictKind kind) {
      return std::count_if(texts.begin(), texts.end(), [&](const auto& text) { return text[i].verdict() == kind; });
    };
    const auto all = static_cast<long>(texts.size());
    v1::ClaimRow row = (*worst)[i];
    row.clear_notes();
    row.clear_job_ids();
    bool every_p = true, same_arm = true, one_standing = true;
    for (const auto& text : texts) {
      every_p = every_p && text[i].has_p();
      same_arm = same_arm && text[i].arm_json() == texts.front()[i].arm_json();
      one_standing = one_standing && text[i].standing() == texts.front()[i].standing();
      row.set_alpha(std::min(row.alpha(), text[i].alpha()));
      row.set_n(std::min(row.n(), text[i].n()));
      for (const std::string& job : text[i].job_ids()) row.add_job_ids(job);
    }
    if (!one_standing) {
      const auto apart = std::find_if(texts.begin(), texts.end(),
                                      [&](const auto& text) { return text[i].standing() != "confirmatory"; });
      row.set_standing((*apart)[i].standing());
    }
    row.clear_p();
    row.clear_p_adjusted();
    if (every_p) {
      row.set_p(largest[i]);
      row.set_p_adjusted(adjusted[i]);
    }
    std::string why;
    if (count(v1::REFUTED) > 0) {
      row.set_verdict(v1::REFUTED);
      why = absl::StrCat("Refuted on ", count(v1::REFUTED), " of ", all, " texts");
    } else if (count(v1::NOT_YET) > 0) {
      row = v1::ClaimRow();
      *row.mutable_claim() = texts.front()[i].claim();
      row.set_standing(texts.front()[i].standing());
      row.set_verdict(v1::NOT_YET);
      why = absl::StrCat("Not judged yet on ", count(v1::NOT_YET), " of ", all, " texts");
    } else if (count(v1::SUPPORTED) == all && every_p && adjusted[i] < row.alpha()) {
      row.set_verdict(v1::SUPPORTED);
      why = absl::StrCat("Supported on every one of ", all, " texts");
    } else {
      row.set_verdict(v1::UNDECIDED);
      why = absl::StrCat("Undecided: supported on ", count(v1::SUPPORTED), " of ", all, " texts");
    }
    if (row.has_p_adjusted()) {
      const std::string p = FormatP(row.p_adjusted());
      absl::StrAppend(&why, "; Holm of the largest p ", p[0] == '<' ? "" : "= ", p);
    }
    row.set_sentence(why + ".");
    if (!same_arm && row.verdict() != v1::NOT_YET) {
      row.add_notes("the selected arm is not the same on every text");
    }
    for (size_t k = 0; k < texts.size(); ++k) {
      row.add_notes(absl::StrCat("text ", k + 1, " of ", all, ": ", texts[k][i].sentence()));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace ablate
