#include "cli/report/report_files.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cli/claim_tables.h"
#include "cli/report/tensorboard.h"
#include "cli/result_tables.h"

namespace ablate {
namespace {

// Letters, digits, dots and dashes of `text`, for a file's name.
std::string Slug(const std::string& text) {
  std::string slug;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '@';
    if (plain)
      slug += c;
    else if (!slug.empty() && slug.back() != '_')
      slug += '_';
  }
  while (!slug.empty() && slug.back() == '_') slug.pop_back();
  return slug.empty() ? "default" : slug;
}

// Text of people, as Markdown shows it: without tags and entities of its own.
std::string Prose(const std::string& text) { return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}}); }

// A block of code; its fence is longer than any run of backticks within.
std::string Fenced(const std::string& language, const std::string& text) {
  size_t longest = 0, run = 0;
  for (const char c : text) longest = std::max(longest, run = c == '`' ? run + 1 : 0);
  const std::string fence(std::max<size_t>(3, longest + 1), '`');
  return absl::StrCat(fence, language, "\n", text, text.empty() || text.back() != '\n' ? "\n" : "", fence, "\n");
}

// Sheets as Markdown, under headings of their titles.
std::string Sheets(const Report& report) { return report.sheets.empty() ? "" : Print(report, OutputFormat::kMarkdown); }
std::string RecordTable(const Records& records) {
  return records.rows.empty() ? "" : Print({.records = records, .sheets = {}}, OutputFormat::kMarkdown);
}

class Writer {
 public:
  explicit Writer(const ReportInput& input) : input_(input) {}
  std::map<std::string, std::string> Write();

 private:
  void Section(const std::string& title) { absl::StrAppend(&text_, "\n## ", title, "\n\n"); }
  void Say(const std::string& line) { absl::StrAppend(&text_, line, "\n"); }
  void Show(const std::vector<Figure>& figures);
  void AddData(const std::string& name, const Records& records);

  void Head();
  void Claims();
  void Tables();
  void Effects();
  void Spread();
  void Trouble();
  void Verification();
  void HowItWasMade();
  void TensorBoard();

  const ReportInput& input_;
  std::string text_;
  std::string latex_;
  std::map<std::string, std::string> files_;
};

void Writer::Show(const std::vector<Figure>& figures) {
  for (const Figure& figure : figures) {
    const std::string path = absl::StrCat("figures/", figure.name, ".svg");
    files_[path] = figure.svg;
    Say(absl::StrCat("![", figure.caption, "](", path, ")\n\n*", figure.caption, "*\n"));
  }
}

void Writer::AddData(const std::string& name, const Records& records) {
  files_[absl::StrCat("data/", name, ".csv")] = Print({.records = records, .sheets = {}}, OutputFormat::kCsv);
}

void Writer::Head() {
  const v1::Sweep& sweep = input_.sweep;
  Say(absl::StrCat("# ", sweep.name()));
  Say("");
  if (!sweep.description().empty()) Say(absl::StrCat(Prose(sweep.description()), "\n"));
  const v1::JobCounts& jobs = sweep.jobs();
  const int64_t open = jobs.blocked() + jobs.queued() + jobs.running();
  Say(absl::StrCat(Counted(sweep.arms(), "arm"), ", ", Counted(sweep.seeds(), "seed"), "; ",
                   Counted(jobs.succeeded(), "job"), " done", open > 0 ? absl::StrCat(", ", open, " not yet") : "",
                   jobs.failed() > 0 ? absl::StrCat(", ", jobs.failed(), " failed") : "",
                   sweep.diverged() > 0 ? absl::StrCat(", ", sweep.diverged(), " ended in a diverged run") : "", "."));
  if (open > 0) Say("\n**This report is of an unfinished sweep: numbers will change.**");
  Say("\nEvery number has its jobs in [data/table.csv](data/table.csv), [data/differences.csv](data/differences.csv) "
      "and the "
      "other files of `data/`, by arm, metric, length, split and NTK; single seeds are in "
      "[data/results.csv](data/results.csv). `ablate job show JOB` shows a job.");
}

void Writer::Claims() {
  const v1::GetClaimsResponse& claims = input_.claims;
  if (claims.claims().empty() && claims.tuning().empty() && claims.deviations().empty()) return;
  Section("Claims");
  const Report report = ClaimsReport(claims);
  Say(Sheets(report));
  if (claims.deviations().empty()) Say("No deviation from the plan and no amendment is recorded.\n");
  Say("What was seen in other databases cannot be policed; within this one, confirming work was not run before the "
      "lock.\n");
  if (const std::optional<Figure> figure = ClaimsForest({claims.claims().begin(), claims.claims().end()}))
    Show({*figure});
  if (claims.has_lock() && !claims.lock().evidence_json().empty())
    Say(absl::StrCat("What the rule saw:\n\n", Fenced("json", claims.lock().evidence_json())));
  latex_ += Print(report, OutputFormat::kLatex);
  files_["data/claims.json"] = Print({.records = report.records, .sheets = {}}, OutputFormat::kJson);
}

void Writer::Tables() {
  v1::GetTableResponse table = input_.table;
  AddData("table", TableReport(table).records);
  v1::CompareArmsResponse comparisons = input_.comparisons;
  AddData("differences", ComparisonReport(comparisons).records);
  KeepMeasured(&table);
  KeepMeasured(&comparisons);
  Section("Results");
  if (table.rows().empty()) {
    Say("Nothing is measured yet.");
    return;
  }
  const std::set<std::string> others = KeepHeadlines(&table);
  KeepHeadlines(&comparisons);
  const std::vector<v1::ConfidenceRow> rows(table.rows().begin(), table.rows().end());
  const std::vector<v1::ComparisonRow> differences(comparisons.rows().begin(), comparisons.rows().end());
  // The first headline metric that is there: figures of all would say the same twice.
  const std::string metric = rows.front().metric();
  std::string best = metric;
  for (const v1::ConfidenceRow& row : rows) {
    if (row.metric() == "loss_targets") best = row.metric();
  }
  Show(LossByLength(rows, input_.seeds, best, input_.baseline_json));
  Show(LossByNumber(rows, input_.seeds, best, input_.baseline_json));
  const Report report = TableReport(table);
  Say(Sheets(report));
  if (!others.empty()) Say(absl::StrCat("Measured as well: ", absl::StrJoin(others, ", "), " (data/table.csv)."));
  latex_ += Print(report, OutputFormat::kLatex);
  if (differences.empty()) return;
  Section("Differences from the baseline");
  Show(DifferenceForests(differences, best));
  const Report compared = ComparisonReport(comparisons);
  Say(Sheets(compared));
  latex_ += Print(compared, OutputFormat::kLatex);
}

void Writer::Effects() {
  if (input_.effects.rows().empty()) return;
  Section("Effects of the factors");
  Show(EffectForests({input_.effects.rows().begin(), input_.effects.rows().end()}));
  const Report report = EffectsReport(input_.effects);
  Say(Sheets(report));
  latex_ += Print(report, OutputFormat::kLatex);
  AddData("effects", report.records);
}

void Writer::Spread() {
  const Report report = SpreadReport(input_.spread);
  if (report.sheets.empty()) return;
  Section("Seeds and documents");
  Say("Intervals above are over seeds, for these texts. This is how much the loss varies by document as well.\n");
  Say(Sheets(report));
  latex_ += Print(report, OutputFormat::kLatex);
  AddData("spread", report.records);
}

void Writer::Trouble() {
  Section("Diverged, failed, missing");
  std::set<std::string> diverged, missing;
  for (const v1::ConfidenceRow& row : input_.table.rows()) {
    for (const int64_t seed : row.diverged_seeds())
      diverged.insert(absl::StrCat(ArmLabel(row.arm_json()), ", seed ", seed));
    for (const int64_t seed : row.missing_seeds())
      missing.insert(absl::StrCat(ArmLabel(row.arm_json()), ", seed ", seed));
  }
  if (diverged.empty() && missing.empty() && input_.failures.rows.empty()) {
    Say("Every planned run is there and finite.");
    return;
  }
  if (!diverged.empty())
    Say(absl::StrCat("Diverged (a result; means are of the survivors, and say so): ", absl::StrJoin(diverged, "; "),
                     ".\n"));
  if (!missing.empty()) Say(absl::StrCat("Missing: ", absl::StrJoin(missing, "; "), ".\n"));
  Say(RecordTable(input_.failures));
}

void Writer::Verification() {
  Section("Bits");
  if (input_.verifications.verifications().empty()) {
    Say(absl::StrCat("No job was run a second time; `ablate job verify ", input_.sweep.name(), " --sample 5` does."));
    return;
  }
  std::map<std::string, int> counts;
  for (const v1::Verification& one : input_.verifications.verifications()) ++counts[VerificationText(one.result())];
  std::vector<std::string> parts;
  for (const auto& [result, count] : counts) parts.push_back(absl::StrCat(count, " ", result));
  Say(absl::StrCat("Jobs that were run a second time, results compared bit for bit: ", absl::StrJoin(parts, ", "),
                   ".\n"));
  Say(RecordTable(VerificationsReport(input_.verifications).records));
}

void Writer::HowItWasMade() {
  Section("How it was made");
  const v1::Sweep& sweep = input_.sweep;
  Say(absl::StrCat("* plan `", sweep.plan_sha256(), "`, sweep file `", sweep.spec_sha256(), "` (SHA-256)"));
  Say("* " + std::string("computed by:\n"));
  Say(RecordTable(input_.devices));
  Say("Again, from the sweep file and the data (the same device kind gives the same bits):\n");
  Say(Fenced("sh", absl::StrJoin(input_.remake, "\n")));
  Say(absl::StrCat("The file, as submitted (", Prose(input_.file_name), "; also [sweep.yaml](sweep.yaml)):\n\n",
                   Fenced("yaml", input_.yaml)));
  files_["sweep.yaml"] = input_.yaml;
}

void Writer::TensorBoard() {
  std::map<std::string, std::string> arm_of;  // folder -> arm: two arms' labels may differ in signs alone
  for (const RunCurves& run : input_.curves) {
    const std::string slug = Slug(ArmLabel(run.arm_json));
    std::string folder = slug;
    for (int i = 2; arm_of.try_emplace(folder, run.arm_json).first->second != run.arm_json; ++i)
      folder = absl::StrCat(slug, "_", i);
    std::vector<Scalar> scalars;
    for (const RunCurves::Point& point : run.points) scalars.push_back({point.metric, point.step, point.value});
    const std::string phase = PhaseText(run.phase);
    files_[absl::StrCat("tensorboard/", folder, phase.empty() ? "" : absl::StrCat(".", phase), "/seed", run.seed,
                        "/events.out.tfevents.", run.at_us / 1000000, ".ablate")] =
        EventFile(scalars, static_cast<double>(run.at_us) * 1e-6);
  }
}

std::map<std::string, std::string> Writer::Write() {
  Head();
  Claims();
  Tables();
  Effects();
  Spread();
  Trouble();
  Verification();
  HowItWasMade();
  AddData("results", input_.results);
  TensorBoard();
  files_["report.md"] = text_;
  files_["tables.tex"] = latex_;
  return std::move(files_);
}

}  // namespace

absl::StatusOr<v1::Phase> PhaseFromWord(const std::string& word) {
  v1::Phase phase = v1::PHASE_UNSPECIFIED;
  if (!v1::Phase_Parse(absl::AsciiStrToUpper(word), &phase) || phase == v1::PHASE_UNSPECIFIED)
    return absl::InvalidArgumentError(absl::StrCat("unknown phase \"", word, "\": is the coordinator newer?"));
  return phase;
}

absl::StatusOr<std::vector<SeedValue>> SeedsOf(const Records& results) {
  std::map<std::string, size_t> at;
  for (size_t i = 0; i < results.columns.size(); ++i) at[results.columns[i]] = i;
  for (const char* column : {"arm", "metric", "split", "length", "ntk", "seed", "phase", "value"}) {
    if (!at.contains(column))
      return absl::InvalidArgumentError(absl::StrCat("the view results has no column ", column));
  }
  std::vector<SeedValue> seeds;
  for (const std::vector<Cell>& row : results.rows) {
    const auto cell = [&](const char* column) -> const Cell& { return row[at.at(column)]; };
    SeedValue seed{.arm_json = cell("arm").text,
                   .metric = cell("metric").text,
                   .split = cell("split").text,
                   .length = cell("length").integer,
                   .ntk = cell("ntk").integer != 0,
                   .seed = cell("seed").integer};
    ABLATE_ASSIGN_OR_RETURN(seed.phase, PhaseFromWord(cell("phase").text));
    if (cell("value").kind == Cell::Kind::kNumber) seed.value = cell("value").number;
    if (cell("value").kind == Cell::Kind::kInteger) seed.value = static_cast<double>(cell("value").integer);
    seeds.push_back(std::move(seed));
  }
  return seeds;
}

std::map<std::string, std::string> ReportFiles(const ReportInput& input) { return Writer(input).Write(); }

}  // namespace ablate
