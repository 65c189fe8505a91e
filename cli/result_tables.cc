#include "cli/result_tables.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "cli/claim_tables.h"
#include "experiments/axes.h"
#include "experiments/metrics.h"
#include "experiments/table.h"

namespace ablate {
namespace {

Cell Optional(bool has, double value) { return has ? Cell::Number(value) : Cell::Null(); }

template <typename Repeated>
Cell Seeds(const Repeated& seeds) {
  return Cell::Json(JsonList(std::vector<int64_t>(seeds.begin(), seeds.end())));
}

Cell Jobs(const google::protobuf::RepeatedPtrField<std::string>& jobs) {
  return Cell::Json(JsonList(std::vector<std::string>(jobs.begin(), jobs.end())));
}

std::string LevelText(double level) { return absl::StrCat(ShortestDouble(level * 100), " %"); }

std::string MethodText(const std::string& method) {
  if (method == "student_t") return "Student t interval";
  if (method == "paired_t") return "paired t interval";
  return absl::StrCat(method, " interval");
}

// A note and the cells that have it.
struct Note {
  std::string text;
  std::vector<std::string> places;
};

// One block of a pivot: the cells of one (sweep, metric, split), arms in the order of their first row.
// "plain" for PLAIN, where PhaseText shows nothing.
std::string PhaseName(v1::Phase phase) {
  const std::string text = PhaseText(phase);
  return text.empty() ? "plain" : text;
}

struct Block {
  std::string sweep, metric, split;
  v1::Phase phase = v1::PLAIN;  // tables of different phases are never mixed
  bool marked = false;          // the sweep has phases: what a number counts as is said of each
  std::map<std::string, std::map<std::string, std::vector<std::string>>> standings;  // standing -> arm -> places
  std::vector<std::string> arms;
  std::set<std::pair<bool, int64_t>> columns;  // (ntk, length): NTK off first, lengths ascending
  std::map<std::tuple<std::string, bool, int64_t>, std::string> cells;
  std::set<int64_t> counts;  // every n seen
  std::set<std::string> methods, levels;
  std::vector<double> half_widths;
  double half_width = 0;  // the median
  int decimals = 4;       // by it: a column is read at a glance only if its points line up
  std::vector<Note> notes;
  int64_t diverged = 0;
  bool pooled = false;  // some cell has the interval of its tries
};

template <typename Rows>
std::vector<Block> MakeBlocks(const Rows& rows, bool phases) {
  std::vector<Block> blocks;
  for (const auto& row : rows) {
    auto block = std::find_if(blocks.begin(), blocks.end(), [&](const Block& b) {
      return b.sweep == row.sweep() && b.metric == row.metric() && b.split == row.split() && b.phase == row.phase();
    });
    if (block == blocks.end()) {
      const bool phase = row.phase() != v1::PLAIN && row.phase() != v1::PHASE_UNSPECIFIED;
      blocks.push_back({.sweep = row.sweep(),
                        .metric = row.metric(),
                        .split = row.split(),
                        .phase = row.phase(),
                        .marked = phases || phase});
      block = blocks.end() - 1;
    }
    if (std::find(block->arms.begin(), block->arms.end(), row.arm_json()) == block->arms.end()) {
      block->arms.push_back(row.arm_json());
    }
    block->columns.insert({row.ntk(), row.length()});
    block->counts.insert(row.n());
    block->standings[row.standing()][row.arm_json()].push_back(absl::StrCat(row.length(), row.ntk() ? " NTK" : ""));
    block->levels.insert(LevelText(row.level()));
    if (!row.method().empty()) block->methods.insert(MethodText(row.method()));
    if (row.has_low() && row.has_high()) block->half_widths.push_back((row.high() - row.low()) / 2);
  }
  for (Block& block : blocks) {
    if (block.half_widths.empty()) continue;
    const auto median = block.half_widths.begin() + block.half_widths.size() / 2;
    std::nth_element(block.half_widths.begin(), median, block.half_widths.end());
    block.half_width = *median;
    block.decimals = DecimalsFor(*median);
  }
  // The metrics that people come for go first.
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const Block& a, const Block& b) { return MetricRank(a.metric) < MetricRank(b.metric); });
  return blocks;
}

Sheet SheetOfBlock(const Block& block, const std::string& title) {
  Sheet sheet;
  sheet.title = absl::StrCat(block.sweep, ": ", title, block.split.empty() ? "" : ", ", SplitText(block.split));
  // A sweep without phases has nothing to tell apart.
  if (block.marked) {
    const std::string phase = PhaseText(block.phase);
    absl::StrAppend(&sheet.title, phase.empty() ? "" : ", ", phase, " (",
                    block.standings.size() == 1 ? block.standings.begin()->first : "standing by cell: see below", ")");
  }
  sheet.columns.push_back({.title = "arm"});
  for (const auto& [ntk, length] : block.columns) {
    const bool of_training = length == 0;
    sheet.columns.push_back({.title = of_training ? "training" : absl::StrCat("length ", length),
                             .right = true,
                             .group = of_training ? ""
                                      : ntk       ? "NTK on"
                                                  : "NTK off"});
  }
  for (const std::string& arm : block.arms) {
    std::vector<std::string> row = {ArmLabel(arm)};
    for (const auto& [ntk, length] : block.columns) {
      const auto cell = block.cells.find({arm, ntk, length});
      row.push_back(cell == block.cells.end() ? "" : cell->second);
    }
    sheet.rows.push_back(std::move(row));
  }
  return sheet;
}

// A row of another size than the block's median has decimals of its own: with one arm far off, the others would be
// "0.0 ± 0.0".
int DecimalsOf(const Block& block, bool has, double low, double high) {
  const double half_width = has ? (high - low) / 2 : 0;
  if (half_width <= 0 || block.half_width <= 0) return block.decimals;
  const double ratio = half_width / block.half_width;
  return ratio > 100 || ratio < 0.01 ? DecimalsFor(half_width) : block.decimals;
}

std::string CountText(const Block& block, const char* what) {
  return absl::StrCat("n = ", Counted(*block.counts.rbegin(), what),
                      block.counts.size() == 1 ? " in every cell" : " unless a cell says otherwise");
}

template <typename Row>
void TakeNote(const Row& row, Block* block) {
  if (row.note().empty()) return;
  const std::string place =
      absl::StrCat(ArmLabel(row.arm_json()), ", length ", row.length(), row.ntk() ? ", NTK on" : "");
  auto same =
      std::find_if(block->notes.begin(), block->notes.end(), [&](const Note& note) { return note.text == row.note(); });
  if (same == block->notes.end()) same = block->notes.insert(same, {.text = row.note()});
  same->places.push_back(place);
}

void AddNotes(const Block& block, Sheet* sheet) {
  constexpr size_t kMaxNotes = 8;
  std::vector<std::string> once;
  for (const auto& [ntk, length] : block.columns) {
    if (!ntk && length > 0 && block.columns.count({true, length}) == 0 && block.columns.rbegin()->first)
      once.push_back(absl::StrCat(length));
  }
  if (block.marked && block.standings.size() > 1) {
    for (const auto& [standing, arms] : block.standings) {
      sheet->footer.push_back(absl::StrCat(standing, " are:"));
      for (const std::string& arm : block.arms) {
        const auto places = arms.find(arm);
        if (places != arms.end()) {
          sheet->footer.push_back(absl::StrCat("  ", ArmLabel(arm), ", length ", absl::StrJoin(places->second, ", ")));
        }
      }
    }
  }
  if (!once.empty())
    sheet->footer.push_back(
        absl::StrCat("length ", absl::StrJoin(once, ", "), ": NTK on and off are the same there, shown once"));
  // What is said of many cells is said once.
  constexpr size_t kMaxPlaces = 2;
  std::vector<std::string> lines;
  for (const Note& note : block.notes) {
    if (note.places.size() == block.cells.size() && note.places.size() > 1) {
      lines.push_back(absl::StrCat("every cell: ", note.text));
    } else if (note.places.size() > kMaxPlaces) {
      lines.push_back(absl::StrCat(note.places.size(), " cells: ", note.text, " (which: see -o json)"));
    } else {
      for (const std::string& place : note.places) lines.push_back(absl::StrCat(place, ": ", note.text));
    }
  }
  for (size_t i = 0; i < lines.size() && i < kMaxNotes; ++i) sheet->footer.push_back(lines[i]);
  if (lines.size() > kMaxNotes)
    sheet->footer.push_back(absl::StrCat("and ", Counted(lines.size() - kMaxNotes, "more note"), ": see -o json"));
}

template <typename Response>
bool KeepRowsWithMetric(Response* response) {
  const auto rest = std::stable_partition(response->mutable_rows()->begin(), response->mutable_rows()->end(),
                                          [](const auto& row) { return !row.metric().empty(); });
  response->mutable_rows()->erase(rest, response->mutable_rows()->end());
  return !response->rows().empty();
}

template <typename Row>
std::optional<double> Opt(const Row& row, bool (Row::*has)() const, double (Row::*get)() const) {
  return (row.*has)() ? std::optional<double>((row.*get)()) : std::nullopt;
}

}  // namespace

std::string ArmLabel(const std::string& arm_json) {
  const absl::StatusOr<v1::Configuration> arm = ConfigurationFromJson(arm_json);
  if (!arm.ok()) return arm_json;  // of a newer server, perhaps: still better than nothing
  std::string variant;
  v1::Configuration rest;
  for (const v1::Setting& setting : arm->settings()) {
    if (setting.axis() == "attention.variant")
      variant = setting.value().text();
    else
      *rest.add_settings() = setting;
  }
  if (variant.empty()) return Label(rest);
  return rest.settings().empty() ? variant : absl::StrCat(variant, " ", Label(rest));
}

std::string SplitText(const std::string& split) {
  const bool of_text = split == "selection" || split == "confirmation" || split == "train";
  return of_text ? split + " split" : split;
}

bool KeepMeasured(v1::GetTableResponse* response) { return KeepRowsWithMetric(response); }
bool KeepMeasured(v1::CompareArmsResponse* response) { return KeepRowsWithMetric(response); }

Report TableReport(const v1::GetTableResponse& response) {
  Report report;
  report.records.columns = {
      "sweep",   "arm",  "metric",        "length", "ntk",    "split",    "n",        "mean",
      "sd",      "low",  "high",          "level",  "method", "seeds",    "diverged", "diverged_seeds",
      "missing", "jobs", "diverged_jobs", "note",   "phase",  "standing", "rate_low", "rate_high",
      "tries"};
  std::vector<Block> blocks = MakeBlocks(response.rows(), response.phases());
  for (const v1::ConfidenceRow& row : response.rows()) {
    report.records.rows.push_back({Cell::Text(row.sweep()),
                                   Cell::Json(row.arm_json()),
                                   Cell::Text(row.metric()),
                                   Cell::Integer(row.length()),
                                   Cell::Flag(row.ntk()),
                                   Cell::Text(row.split()),
                                   Cell::Integer(row.n()),
                                   Optional(row.has_mean(), row.mean()),
                                   Optional(row.has_sd(), row.sd()),
                                   Optional(row.has_low(), row.low()),
                                   Optional(row.has_high(), row.high()),
                                   Cell::Number(row.level()),
                                   Cell::Text(row.method()),
                                   Seeds(row.seeds()),
                                   Cell::Integer(row.diverged_seeds_size()),
                                   Seeds(row.diverged_seeds()),
                                   Seeds(row.missing_seeds()),
                                   Jobs(row.job_ids()),
                                   Jobs(row.diverged_job_ids()),
                                   Cell::Text(row.note()),
                                   Cell::Text(PhaseName(row.phase())),
                                   Cell::Text(row.standing()),
                                   Optional(row.has_rate_low(), row.rate_low()),
                                   Optional(row.has_rate_high(), row.rate_high()),
                                   row.has_rate_low() ? Cell::Integer(row.tries()) : Cell::Null()});

    Block& block = *std::find_if(blocks.begin(), blocks.end(), [&](const Block& b) {
      return b.sweep == row.sweep() && b.metric == row.metric() && b.split == row.split() && b.phase == row.phase();
    });
    using Row = v1::ConfidenceRow;
    std::string text = FormatMeanInterval(Opt(row, &Row::has_mean, &Row::mean), Opt(row, &Row::has_low, &Row::low),
                                          Opt(row, &Row::has_high, &Row::high),
                                          DecimalsOf(block, row.has_low(), row.low(), row.high()));
    std::vector<std::string> extra;
    // Where seeds give no interval: of the tries.
    if (row.has_rate_low() && !row.has_low()) {
      absl::StrAppend(&text, absl::StrFormat(" [%.3f, %.3f]", row.rate_low(), row.rate_high()));
      block.pooled = true;
    }
    if (row.n() > 0 && row.n() != *block.counts.rbegin()) extra.push_back(absl::StrCat("n=", row.n()));
    if (row.diverged_seeds_size() > 0) {
      extra.push_back(absl::StrCat(row.diverged_seeds_size(), " diverged"));
      block.diverged += row.diverged_seeds_size();
    }
    if (row.missing_seeds_size() > 0) extra.push_back(absl::StrCat(row.missing_seeds_size(), " missing"));
    if (!extra.empty()) absl::StrAppend(&text, " (", absl::StrJoin(extra, ", "), ")");
    TakeNote(row, &block);
    block.cells[{row.arm_json(), row.ntk(), row.length()}] = text;
  }
  for (const Block& block : blocks) {
    Sheet sheet = SheetOfBlock(block, block.metric);
    sheet.footer.push_back(absl::StrCat("mean ± half-width of the ", absl::StrJoin(block.levels, "/"), " ",
                                        absl::StrJoin(block.methods, ", "), " over seeds; ", CountText(block, "seed")));
    if (block.pooled) {
      sheet.footer.push_back(absl::StrCat("[low, high]: ", absl::StrJoin(block.levels, "/"),
                                          " Wilson interval of the tries of all seeds pooled; ignores seed variance"));
    }
    if (block.diverged > 0) {
      sheet.footer.push_back(
          "diverged: the run's loss or gradient stopped being finite; it is not in the mean (survivors only)");
    }
    AddNotes(block, &sheet);
    report.sheets.push_back(std::move(sheet));
  }
  return report;
}

Report ComparisonReport(const v1::CompareArmsResponse& response) {
  Report report;
  report.records.columns = {
      "sweep",      "arm",          "baseline", "metric",         "length",  "ntk",        "split",       "n",
      "difference", "sd",           "low",      "high",           "p",       "p_adjusted", "family_size", "level",
      "method",     "seeds",        "diverged", "diverged_seeds", "missing", "note",       "phase",       "standing",
      "jobs",       "diverged_jobs"};
  std::vector<Block> blocks = MakeBlocks(response.rows(), response.phases());
  std::map<const Block*, std::set<std::string>> baselines;
  std::map<const Block*, std::set<int64_t>> families;
  for (const v1::ComparisonRow& row : response.rows()) {
    report.records.rows.push_back({Cell::Text(row.sweep()),
                                   Cell::Json(row.arm_json()),
                                   Cell::Json(row.baseline_json()),
                                   Cell::Text(row.metric()),
                                   Cell::Integer(row.length()),
                                   Cell::Flag(row.ntk()),
                                   Cell::Text(row.split()),
                                   Cell::Integer(row.n()),
                                   Optional(row.has_difference(), row.difference()),
                                   Optional(row.has_sd(), row.sd()),
                                   Optional(row.has_low(), row.low()),
                                   Optional(row.has_high(), row.high()),
                                   Optional(row.has_p(), row.p()),
                                   Optional(row.has_p_adjusted(), row.p_adjusted()),
                                   Cell::Integer(row.family_size()),
                                   Cell::Number(row.level()),
                                   Cell::Text(row.method()),
                                   Seeds(row.seeds()),
                                   Cell::Integer(row.diverged_seeds_size()),
                                   Seeds(row.diverged_seeds()),
                                   Seeds(row.missing_seeds()),
                                   Cell::Text(row.note()),
                                   Cell::Text(PhaseName(row.phase())),
                                   Cell::Text(row.standing()),
                                   Jobs(row.job_ids()),
                                   Jobs(row.diverged_job_ids())});

    Block& block = *std::find_if(blocks.begin(), blocks.end(), [&](const Block& b) {
      return b.sweep == row.sweep() && b.metric == row.metric() && b.split == row.split() && b.phase == row.phase();
    });
    baselines[&block].insert(ArmLabel(row.baseline_json()));
    families[&block].insert(row.family_size());
    using Row = v1::ComparisonRow;
    std::string text = FormatMeanInterval(Opt(row, &Row::has_difference, &Row::difference),
                                          Opt(row, &Row::has_low, &Row::low), Opt(row, &Row::has_high, &Row::high),
                                          DecimalsOf(block, row.has_low(), row.low(), row.high()));
    std::vector<std::string> extra;
    if (row.has_p()) extra.push_back(absl::StrCat("p ", FormatP(row.p())));
    if (row.has_p_adjusted()) extra.push_back(absl::StrCat("Holm ", FormatP(row.p_adjusted())));
    if (row.diverged_seeds_size() > 0) extra.push_back(absl::StrCat(row.diverged_seeds_size(), " diverged"));
    if (row.n() > 0 && row.n() != *block.counts.rbegin()) extra.push_back(absl::StrCat("n=", row.n()));
    if (!extra.empty()) absl::StrAppend(&text, " (", absl::StrJoin(extra, ", "), ")");
    TakeNote(row, &block);
    block.cells[{row.arm_json(), row.ntk(), row.length()}] = text;
  }
  for (const Block& block : blocks) {
    Sheet sheet =
        SheetOfBlock(block, absl::StrCat(block.metric, ", difference from ", absl::StrJoin(baselines[&block], " / ")));
    sheet.footer.push_back(absl::StrCat("mean paired difference (arm minus baseline, same seed) ± half-width of the ",
                                        absl::StrJoin(block.levels, "/"), " ", absl::StrJoin(block.methods, ", "), "; ",
                                        CountText(block, "pair")));
    sheet.footer.push_back(
        absl::StrCat("p: two-sided, unadjusted; Holm: the same, adjusted over ", absl::StrJoin(families[&block], "/"),
                     *families[&block].rbegin() == 1 ? " comparison of " : " comparisons of ", block.metric));
    AddNotes(block, &sheet);
    report.sheets.push_back(std::move(sheet));
  }
  return report;
}

}  // namespace ablate
