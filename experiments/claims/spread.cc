// See spread.h.
#include "experiments/claims/spread.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "experiments/claims/measured.h"

namespace ablate {
namespace {

using Documents = std::vector<std::pair<int32_t, int32_t>>;  // number and targets

Documents DocumentsOf(const DocumentMeasurement& measurement) {
  Documents documents;
  for (const v1::DocumentLoss& loss : measurement.documents) {
    if (loss.targets() > 0) documents.emplace_back(loss.document(), loss.targets());
  }
  return documents;
}

}  // namespace

absl::StatusOr<std::vector<v1::SpreadRow>> SpreadRows(std::span<const DocumentMeasurement> measurements, double level,
                                                      const Resampling& resampling) {
  if (level == 0) level = 0.95;
  using Place = std::tuple<std::string, int64_t, std::string, bool, v1::Phase>;
  std::vector<std::pair<Place, std::vector<const DocumentMeasurement*>>> groups;
  std::map<Place, size_t> known;
  for (const DocumentMeasurement& m : measurements) {
    const Place place{m.arm_json, m.length_tokens, m.split, m.ntk, m.phase};
    const auto [it, fresh] = known.emplace(place, groups.size());
    if (fresh) groups.push_back({place, {}});
    groups[it->second].second.push_back(&m);
  }
  std::vector<v1::SpreadRow> rows;
  for (auto& [place, group] : groups) {
    // The order of the seeds is part of the resampling: ascending, whatever the order of the input.
    std::stable_sort(group.begin(), group.end(), [](const auto* a, const auto* b) { return a->seed < b->seed; });
    std::map<Documents, int> count;
    for (const auto* m : group) ++count[DocumentsOf(*m)];
    const auto most =
        std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<ScoredDocuments> seeds;
    std::vector<int64_t> apart;
    std::vector<std::string> jobs;
    for (const auto* m : group) {
      if (DocumentsOf(*m) != most->first) {
        apart.push_back(m->seed);
        continue;
      }
      jobs.push_back(m->job_id);
      ScoredDocuments& seed = seeds.emplace_back();
      for (const v1::DocumentLoss& loss : m->documents) {
        if (loss.targets() <= 0) continue;
        seed.loss_sums.push_back(loss.loss_sum());
        seed.targets.push_back(loss.targets());
      }
    }
    v1::SpreadRow row;
    row.set_arm_json(std::get<0>(place));
    row.set_length(std::get<1>(place));
    row.set_split(std::get<2>(place));
    row.set_ntk(std::get<3>(place));
    row.set_phase(std::get<4>(place));
    row.set_level(level);
    for (const std::string& job : jobs) row.add_job_ids(job);
    std::vector<std::string> notes;
    if (most->first.empty()) {
      notes.push_back("no losses by document");
    } else {
      ABLATE_ASSIGN_OR_RETURN(const TwoWaySpread spread, SpreadBySeedAndDocument(seeds, level, resampling));
      row.set_seeds(static_cast<int32_t>(spread.seeds));
      row.set_documents(static_cast<int32_t>(spread.documents));
      row.set_mean(spread.mean);
      if (spread.sd_seeds.has_value()) row.set_sd_seeds(*spread.sd_seeds);
      if (spread.sd_documents.has_value()) row.set_sd_documents(*spread.sd_documents);
      if (spread.low.has_value()) row.set_low(*spread.low);
      if (spread.high.has_value()) row.set_high(*spread.high);
      for (const std::string* text : {&spread.reason, &spread.note}) {
        if (!text->empty()) notes.push_back(*text);
      }
    }
    if (!apart.empty()) notes.push_back(absl::StrCat("left out, other documents: ", SeedsText(apart)));
    row.set_note(absl::StrJoin(notes, "; "));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace ablate
