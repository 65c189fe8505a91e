#include "cli/report/report_files.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/version.h"
#include "cli/claim_tables.h"
#include "cli/output/printers.h"
#include "cli/report/attention_figure.h"
#include "cli/report/passkey_figure.h"
#include "cli/report/remake.h"
#include "cli/report/tensorboard.h"
#include "cli/result_tables.h"
#include "experiments/metrics.h"
#include "experiments/table.h"

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

std::string IntervalText(bool has, double low, double high, int decimals) {
  return has ? absl::StrFormat("[%.*f, %.*f]", decimals, low, decimals, high) : "-";
}

// Of every claim what its verdict rests on.
Sheet ClaimNumbers(const v1::GetClaimsResponse& response) {
  Sheet sheet{.title = "claims: intervals and margins",
              .columns = {{.title = "claim"},
                          {.title = "estimate", .right = true},
                          {.title = "plain interval", .right = true},
                          {.title = "family-wise interval", .right = true},
                          {.title = "p", .right = true},
                          {.title = "p (Holm)", .right = true},
                          {.title = "margin"},
                          {.title = "verdict"}},
              .footer = {"family-wise: simultaneous over the declared family (Bonferroni)"}};
  const auto number = [](bool has, double value) { return has ? std::optional<double>(value) : std::nullopt; };
  for (const v1::ClaimRow& row : response.claims()) {
    const v1::ClaimSpec& claim = row.claim();
    const int decimals = DecimalsFor(row.has_low() && row.has_high() ? (row.high() - row.low()) / 2 : 0);
    std::string margin = claim.margin() > 0 ? ShortestDouble(claim.margin()) : "-";
    if (!claim.margin_reason().empty()) absl::StrAppend(&margin, ": ", claim.margin_reason());
    sheet.rows.push_back(
        {claim.name(), row.has_estimate() ? absl::StrFormat("%.*f", decimals, row.estimate()) : "-",
         IntervalText(row.has_low() && row.has_high(), row.low(), row.high(), decimals),
         IntervalText(row.has_family_low() && row.has_family_high(), row.family_low(), row.family_high(), decimals),
         FormatP(number(row.has_p(), row.p())), FormatP(number(row.has_p_adjusted(), row.p_adjusted())), margin,
         VerdictText(row.verdict())});
  }
  return sheet;
}

std::string JobsText(const v1::ClaimRow& row) {
  return row.job_ids().empty() ? "no job yet" : absl::StrCat("jobs ", absl::StrJoin(row.job_ids(), " "));
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
  // Tables with what is said of them as text, not as comments.
  void AddLatex(const Report& report);
  void AddLatexText(const std::string& text);

  void Head();
  void Claims();
  void Tables();
  void Maps();
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

void Writer::AddLatex(const Report& report) {
  for (const Sheet& sheet : report.sheets) {
    Sheet bare = sheet;
    bare.title.clear();
    bare.footer.clear();
    if (!sheet.title.empty()) absl::StrAppend(&latex_, "\\paragraph{", LatexEscape(sheet.title), "}\n\n");
    latex_ += Print({.records = {}, .sheets = {bare}}, OutputFormat::kLatex);
    for (const std::string& line : sheet.footer) AddLatexText(line);
    latex_ += "\n";
  }
}

void Writer::AddLatexText(const std::string& text) {
  absl::StrAppend(&latex_, "\n\\noindent{\\footnotesize ", LatexEscape(text), "\\par}\n");
}

void Writer::Head() {
  const v1::Sweep& sweep = input_.sweep;
  Say(absl::StrCat("# ", sweep.name()));
  Say("");
  if (!sweep.description().empty()) Say(absl::StrCat(Prose(sweep.description()), "\n"));
  const v1::JobCounts& jobs = sweep.jobs();
  const int64_t open = jobs.blocked() + jobs.queued() + jobs.running();
  std::map<v1::Phase, std::set<int64_t>> seeds;
  for (const SeedValue& one : input_.seeds) seeds[one.phase].insert(one.seed);
  const auto of_phase = [&](v1::Phase phase, const char* what) {
    return seeds.contains(phase) ? absl::StrCat(", ", Counted(static_cast<int64_t>(seeds[phase].size()), what)) : "";
  };
  Say(absl::StrCat(Counted(sweep.arms(), "arm"), sweep.seeds() > 0 ? ", " : "",
                   sweep.seeds() > 0 ? Counted(sweep.seeds(), "seed") : "",
                   of_phase(v1::CONFIRMING, "confirming seed"), of_phase(v1::TUNING, "tuning seed"), "; ",
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
  if (claims.claims().empty() && !claims.has_gate() && claims.tuning().empty() && claims.deviations().empty()) return;
  Section("Claims");
  Report report = ClaimsReport(claims);
  if (!claims.claims().empty()) report.sheets.insert(report.sheets.begin() + 1, ClaimNumbers(claims));
  Say(Sheets(report));
  if (!claims.claims().empty()) {
    Say("Behind the numbers of the claims:\n");
    for (const v1::ClaimRow& row : claims.claims()) Say(absl::StrCat("* ", row.claim().name(), ": ", JobsText(row)));
    Say("");
  }
  if (claims.deviations().empty()) Say("No deviation from the plan and no amendment is recorded.\n");
  Say("What was seen in other databases cannot be policed; within this one, confirming work was not run before the "
      "lock.\n");
  if (const std::optional<Figure> figure = ClaimsForest({claims.claims().begin(), claims.claims().end()}))
    Show({*figure});
  if (claims.has_lock() && !claims.lock().evidence_json().empty())
    Say(absl::StrCat("What the rule saw:\n\n", Fenced("json", claims.lock().evidence_json())));
  AddLatex(report);
  for (const v1::ClaimRow& row : claims.claims()) AddLatexText(absl::StrCat(row.claim().name(), ": ", JobsText(row)));
  if (!claims.claims().empty())
    Say("Their numbers, with jobs, seeds and method, are in [data/claims.json](data/claims.json) as well.\n");
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
  for (const Metric& task_metric : Metrics()) {
    if (task_metric.headline && task_metric.task != "loss") {
      Show(LossByLength(rows, input_.seeds, std::string(task_metric.name), input_.baseline_json));
    }
  }
  Show(PasskeyMaps({input_.depths.rows().begin(), input_.depths.rows().end()}));
  if (!input_.depths.rows().empty()) AddData("passkey", TableReport(input_.depths).records);
  Maps();
  const Report report = TableReport(table);
  Say(Sheets(report));
  if (!others.empty()) Say(absl::StrCat("Measured as well: ", absl::StrJoin(others, ", "), " (data/table.csv)."));
  AddLatex(report);
  if (differences.empty()) return;
  Section("Differences from the baseline");
  Show(DifferenceForests(differences, best));
  const Report compared = ComparisonReport(comparisons);
  Say(Sheets(compared));
  AddLatex(compared);
}

void Writer::Maps() {
  std::vector<Figure> figures;
  for (const ReportInput::Map& map : input_.maps) {
    absl::StatusOr<std::string> svg = AttentionMapSvg(map.map, map.title);
    if (!svg.ok()) continue;
    figures.push_back({.name = absl::StrCat("attention-map-", Slug(map.name)),
                       .caption = absl::StrCat("Attention weights, ", map.title,
                                               ": layers from top to bottom, heads from left to right; queries from top to "
                                               "bottom, keys from left to right."),
                       .svg = *std::move(svg)});
  }
  Show(figures);
}

void Writer::Effects() {
  if (input_.effects.rows().empty()) return;
  Section("Effects of the factors");
  Show(EffectForests({input_.effects.rows().begin(), input_.effects.rows().end()}));
  const Report report = EffectsReport(input_.effects);
  Say(Sheets(report));
  AddLatex(report);
  AddData("effects", report.records);
}

void Writer::Spread() {
  const Report report = SpreadReport(input_.spread);
  if (report.sheets.empty()) return;
  Section("Seeds and documents");
  Say("Intervals above are over seeds, for these texts. This is how much the loss varies by document as well.\n");
  Say(Sheets(report));
  AddLatex(report);
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
    Say(absl::StrCat("No job was run a second time; `ablate job verify ", ShellQuoted(input_.sweep.name()),
                     " --sample 5` does, with a coordinator on its data folder and a worker of the same device kind "
                     "running (`ablate-server --data-dir ...`, `ablate-worker --server ...`)."));
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
  for (const PlanVersion& version : input_.versions) {
    if (input_.versions.size() > 1) Say(absl::StrCat("* ", Prose(version.why), ": plan `", version.plan_sha256, "`"));
  }
  for (const ReportInput::DataFile& file : input_.data_files)
    Say(absl::StrCat("* data ", Prose(input_.data_name), ", ", Prose(file.path), ": `", file.sha256, "` (SHA-256)"));
  Say(absl::StrCat("* numerics version ", kNumericsVersion, " (equal numbers need an equal one); report by ablate ",
                   BuildVersion()));
  if (!input_.devices.rows.empty()) Say(absl::StrCat("* computed by:\n\n", RecordTable(input_.devices)));
  Say("Again, from the sweep file and the data (the same build on the same device kind gives the same bits):\n");
  Say(Fenced("sh", absl::StrJoin(RemakeCommands(input_), "\n")));
  const std::vector<std::pair<std::string, std::string>> sweep_files = SweepFiles(input_);
  for (const auto& [name, yaml] : sweep_files) files_[name] = yaml;
  for (size_t i = 0; i + 1 < sweep_files.size(); ++i)
    Say(absl::StrCat("As it was before it was extended: [", sweep_files[i].first, "](", sweep_files[i].first, ").\n"));
  Say(absl::StrCat("The file, as submitted (", Prose(input_.file_name), "; also [sweep.yaml](sweep.yaml)):\n\n",
                   Fenced("yaml", input_.yaml)));
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
