// Figures and files of a report, from rows made by hand.
#include "cli/report/report_files.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "cli/report/attention_figure.h"
#include "cli/report/panel.h"
#include "cli/report/passkey_figure.h"
#include "cli/report/svg.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int Count(const std::string& text, const std::string& what) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

std::string Arm(double p) { return absl::StrCat("{\"attention.p\":", p, ",\"attention.variant\":\"lssar\"}"); }
const std::string kSoftmax = "{\"attention.variant\":\"softmax\"}";

v1::ConfidenceRow Row(const std::string& arm, int64_t length, double mean, int n = 3) {
  v1::ConfidenceRow row;
  row.set_sweep("demo");
  row.set_arm_json(arm);
  row.set_metric("loss_targets");
  row.set_length(length);
  row.set_split("selection");
  row.set_phase(v1::PLAIN);
  row.set_n(n);
  row.set_level(0.95);
  row.set_method("student_t");
  row.set_standing("exploratory");
  if (n > 0) row.set_mean(mean);
  if (n > 1) {
    row.set_low(mean - 0.1);
    row.set_high(mean + 0.1);
  }
  for (int i = 0; i < n; ++i) {
    row.add_seeds(i);
    row.add_job_ids(absl::StrCat("job_", length, "_", i));
  }
  return row;
}

std::vector<v1::ConfidenceRow> Rows(const std::vector<double>& values) {
  std::vector<v1::ConfidenceRow> rows;
  for (const int64_t length : {128, 1024}) {
    rows.push_back(Row(kSoftmax, length, 2.0 + static_cast<double>(length) / 5000));
    for (const double p : values) rows.push_back(Row(Arm(p), length, 1.9 + p / 500));
  }
  return rows;
}

// Well-formed as far as tags go, and every number finite.
void CheckSvg(const std::string& svg) {
  EXPECT_EQ(Count(svg, "<svg "), 1);
  EXPECT_EQ(Count(svg, "</svg>"), 1);
  EXPECT_EQ(Count(svg, "<text "), Count(svg, "</text>"));
  EXPECT_EQ(Count(svg, "<title>"), Count(svg, "</title>"));
  for (const char* bad : {"nan", "inf", "& ", "<<"}) EXPECT_THAT(svg, Not(HasSubstr(bad)));
}

TEST(Figures, APasskeyMapShowsEveryLengthAndDepthOfEachArm) {
  std::vector<v1::ConfidenceRow> rows;
  for (const std::string& arm : {kSoftmax, Arm(15)}) {
    for (const int64_t length : {128, 256, 512}) {
      for (int bin = 1; bin <= 4; ++bin) {
        v1::ConfidenceRow row = Row(arm, length, bin == 4 ? 0.75 : 0.25);
        row.set_metric(absl::StrCat("passkey_accuracy.depth_", bin, "_of_4"));
        row.set_split("passkey");
        if (arm == kSoftmax && length == 512 && bin == 1) row.clear_mean();  // every seed diverged
        rows.push_back(row);
      }
    }
  }
  rows.push_back(Row(kSoftmax, 128, 2));  // of another metric
  const auto figures = PasskeyMaps(rows);
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures[0].name, "passkey-map-passkey-4");
  CheckSvg(figures[0].svg);
  EXPECT_EQ(Count(figures[0].svg, ">0.25</text>"), 2 * 3 * 3 - 1);
  EXPECT_EQ(Count(figures[0].svg, ">0.75</text>"), 2 * 3);
  EXPECT_EQ(Count(figures[0].svg, "<line "), 1);  // crossed out
  EXPECT_THAT(figures[0].svg, HasSubstr("lssar p=15"));
  EXPECT_TRUE(PasskeyMaps({Row(kSoftmax, 128, 2)}).empty());
  // With NTK on the training length is the same number.
  const size_t off = rows.size();
  for (size_t i = 0; i < off; ++i) {
    if (rows[i].length() == 128) continue;
    v1::ConfidenceRow on = rows[i];
    on.set_ntk(true);
    rows.push_back(on);
  }
  const auto both = PasskeyMaps(rows);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1].name, "passkey-map-passkey-ntk-4");
  EXPECT_EQ(Count(both[1].svg, ">128</text>"), 2);
}

TEST(Figures, WhatTasksMeasureHasAFigureOfItsOwnName) {
  std::vector<v1::ConfidenceRow> rows = Rows({3, 15});
  for (v1::ConfidenceRow& row : rows) row.set_metric("attention_entropy");
  const auto figures = LossByLength(rows, {}, "attention_entropy", kSoftmax);
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures[0].name, "attention_entropy-by-length-selection");
}

TEST(Figures, AnAttentionMapIsAGridOfHeads) {
  AttentionMap map;
  map.layers = 2;
  map.heads = 3;
  map.tokens = {1, 2, 3};
  const float weights[9] = {1, 0, 0, 0.5, 0.5, 0, 0.25, 0, 0.75};
  for (int head = 0; head < 6; ++head) map.maps.push_back(QuantizeAttention(weights, 3));
  const auto png = AttentionMapPng(map);
  ASSERT_TRUE(png.ok()) << png.status();
  EXPECT_EQ(png->substr(0, 8), "\x89PNG\r\n\x1a\n");
  const auto number = [&](size_t at) {  // of IHDR, big-endian
    return static_cast<unsigned char>((*png)[at + 2]) * 256 + static_cast<unsigned char>((*png)[at + 3]);
  };
  EXPECT_EQ(number(16), 3 * 96 + 2 * 4);  // 3 tokens of 32 pixels, and the gaps
  EXPECT_EQ(number(20), 2 * 96 + 4);
  EXPECT_EQ(AttentionMapPng(map).value(), *png);
  const auto svg = AttentionMapSvg(map, "psalm, a < b");
  ASSERT_TRUE(svg.ok());
  for (const char* text : {">head 2<", ">layer 1<", "psalm, a &lt; b", "data:image/png;base64,", ">0.001<"}) {
    EXPECT_THAT(*svg, HasSubstr(text));
  }
  // Of any size that a file may have.
  map.tokens.assign(kLongestAttentionMap, 7);
  map.layers = map.heads = 12;
  const std::vector<float> even(static_cast<size_t>(kLongestAttentionMap) * kLongestAttentionMap, 0.002f);
  map.maps.assign(144, QuantizeAttention(even.data(), kLongestAttentionMap));
  const auto large = AttentionMapPng(map);
  ASSERT_TRUE(large.ok());
  EXPECT_LT(large->size(), size_t{4} << 20);
}

TEST(Figures, EveryMeanIsAMarkThatNamesItsJobs) {
  std::vector<SeedValue> seeds = {{kSoftmax, "loss_targets", "selection", v1::PLAIN, 128, false, 0, 2.01},
                                  {kSoftmax, "loss_targets", "selection", v1::PLAIN, 128, false, 1, std::nullopt},
                                  {kSoftmax, "loss_targets", "confirmation", v1::PLAIN, 128, false, 0, 9.0}};
  const auto figures = LossByLength(Rows({3, 15}), seeds, "loss_targets", kSoftmax);
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures[0].name, "loss-by-length-selection");
  const std::string& svg = figures[0].svg;
  CheckSvg(svg);
  EXPECT_EQ(Count(svg, "; jobs job_"), 6);
  EXPECT_THAT(svg, HasSubstr("softmax (baseline)"));
  EXPECT_THAT(svg, HasSubstr("lssar p=15"));
  EXPECT_THAT(svg, HasSubstr("n = 3 seeds, with the 95 % Student t interval"));
  EXPECT_EQ(Count(svg, "r=\"1.6\""), 1);  // the one seed of this view that has a value
}

TEST(Figures, ASingleSeedHasNoBandAndTroubleIsInView) {
  std::vector<v1::ConfidenceRow> rows = {Row(kSoftmax, 128, 2, 1), Row(kSoftmax, 256, 2.1, 1), Row(Arm(50), 128, 2, 2),
                                         Row(Arm(50), 256, 2, 0)};
  rows[3].add_diverged_seeds(0);
  rows[3].add_diverged_seeds(1);
  rows[0].add_missing_seeds(4);
  const auto figures = LossByLength(rows, {}, "loss_targets", kSoftmax);
  ASSERT_EQ(figures.size(), 1u);
  CheckSvg(figures[0].svg);
  EXPECT_EQ(Count(figures[0].svg, "<polygon points=\"") - Count(figures[0].svg, "opacity=\"0.13\""), 2);  // markers
  EXPECT_EQ(Count(figures[0].svg, "opacity=\"0.13\""), 0);  // no band: neither arm has two intervals
  EXPECT_THAT(figures[0].svg, HasSubstr("lssar p=50: 2 diverged (not in the mean)"));
  EXPECT_THAT(figures[0].svg, HasSubstr("softmax: 1 missing"));
  EXPECT_THAT(figures[0].svg, HasSubstr("n = 0 to 2 seeds"));
}

TEST(Figures, ManyArmsAreSmallMultiplesAndPGoesOnALogAxis) {
  const auto rows = Rows({1, 2, 3, 5, 8, 10, 15, 50, 100});
  const auto by_length = LossByLength(rows, {}, "loss_targets", kSoftmax);
  ASSERT_EQ(by_length.size(), 1u);
  CheckSvg(by_length[0].svg);
  EXPECT_THAT(by_length[0].svg, HasSubstr("softmax (base)"));
  const auto by_p = LossByNumber(rows, {}, "loss_targets", kSoftmax);
  ASSERT_EQ(by_p.size(), 1u);
  EXPECT_EQ(by_p[0].name, "loss-by-p-selection");
  CheckSvg(by_p[0].svg);
  EXPECT_THAT(by_p[0].svg, HasSubstr("p (log scale)"));
  EXPECT_THAT(by_p[0].svg, HasSubstr(">50</text>"));
  EXPECT_THAT(by_p[0].svg, HasSubstr(">100</text>"));
  EXPECT_EQ(Count(by_p[0].svg, "; jobs job_"), 18);
  EXPECT_TRUE(LossByNumber(Rows({3, 15}), {}, "loss_targets", kSoftmax).empty());
  // From 0 on there is no logarithm.
  const auto from_zero = LossByNumber(Rows({0, 1, 10, 100}), {}, "loss_targets", kSoftmax);
  ASSERT_EQ(from_zero.size(), 1u);
  CheckSvg(from_zero[0].svg);
  EXPECT_THAT(from_zero[0].svg, Not(HasSubstr("p (log scale)")));
}

TEST(Figures, AnArmFarOffDoesNotPressTheOthersIntoOneLine) {
  std::vector<v1::ConfidenceRow> rows = Rows({1, 2, 3, 5});
  for (v1::ConfidenceRow& row : rows) {
    if (row.arm_json() != Arm(5)) continue;
    row.set_mean(1e13);
    row.set_low(-3e13);
    row.set_high(5e13);
  }
  for (const auto& figures :
       {LossByLength(rows, {}, "loss_targets", kSoftmax), LossByNumber(rows, {}, "loss_targets", kSoftmax)}) {
    ASSERT_EQ(figures.size(), 1u);
    CheckSvg(figures[0].svg);
    EXPECT_THAT(figures[0].svg, HasSubstr("6 values (means, ends of intervals, seeds) so far off lie at the edge"));
    EXPECT_EQ(Count(figures[0].svg, "fill=\"#ffffff\" stroke"), 2);  // open triangles: two lengths
    EXPECT_THAT(figures[0].svg, HasSubstr(">2.1</text>"));
    EXPECT_THAT(figures[0].svg, Not(HasSubstr("0000000</text>")));
  }
  int off = 0;
  // A loss that doubles is no outlier, however close the others are.
  EXPECT_EQ(RobustRange({2.0, 2.001, 2.002, 2.001, 5.0}, &off).high, 5.0);
  EXPECT_EQ(off, 0);
  EXPECT_EQ(RobustRange({2.0, 2.0, 2.0, 1e9}, &off).high, 2.0);
  EXPECT_EQ(off, 1);
  EXPECT_TRUE(RobustRange({}, &off).empty);
}

TEST(Figures, NoLineByANumberIsLeftOut) {
  std::vector<v1::ConfidenceRow> rows;
  for (int width = 1; width <= 8; ++width) {
    for (const int p : {1, 3, 15}) {
      const std::string arm = absl::StrCat("{\"attention.p\":", p, ",\"model.norm\":\"n", width, "\"}");
      rows.push_back(Row(arm, 128, 2 + p));
    }
  }
  const auto figures = LossByNumber(rows, {}, "loss_targets", kSoftmax);
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_EQ(figures[1].name, "loss-by-p-selection-2");
  EXPECT_EQ(Count(figures[0].svg, "; jobs job_") + Count(figures[1].svg, "; jobs job_"), 24);
}

TEST(Figures, TitlesOfSmallMultiplesTellTheirPanelsApart) {
  std::vector<v1::ConfidenceRow> rows;
  std::vector<std::string> titles;
  for (const char* norm : {"none", "l2"}) {
    for (const char* gate : {"no_gate", "headwise"}) {
      for (const int p : {3, 15}) {
        const std::string arm =
            absl::StrCat("{\"attention.normalization_long_name\":\"something_in_common\",\"attention.p\":", p,
                         ",\"attention.qk_norm\":\"", norm, "\",\"attention.xgate\":\"", gate, "\"}");
        titles.push_back(absl::StrCat(">p=", p, " qk_norm=", norm, "</text>"));
        for (const int64_t length : {128, 1024}) rows.push_back(Row(arm, length, 2 + p));
      }
    }
  }
  const auto figures = LossByLength(rows, {}, "loss_targets", rows[0].arm_json());
  ASSERT_EQ(figures.size(), 1u);
  CheckSvg(figures[0].svg);
  for (const std::string& title : titles) EXPECT_EQ(Count(figures[0].svg, title), 2) << title;
  EXPECT_EQ(Count(figures[0].svg, ">xgate=headwise</text>"), 4);
  EXPECT_EQ(Count(figures[0].svg, ">xgate=no_gate (base)</text>"), 1);
  EXPECT_THAT(figures[0].svg, HasSubstr("all arms: normalization_long_name=something_in_common"));
}

TEST(Figures, ScalesAndTicks) {
  EXPECT_EQ(Panel::LeftMargin({0, 1, false}, 5), 64);
  EXPECT_GE(Panel::LeftMargin({0, 1e9, false}, 5), 90);

  const Scale log{.low = 1, .high = 100, .from = 0, .to = 200, .log = true};
  EXPECT_DOUBLE_EQ(log.At(10), 100);
  EXPECT_EQ(LinearTicks(0, 1, 5), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(LinearTicks(3.21, 3.29, 4).size(), 4u);
  EXPECT_GE(LinearTicks(2.12, 2.96, 4).size(), 2u);
  EXPECT_EQ(TickText(0.6000000000000001, 0.2), "0.6");
  EXPECT_EQ(TickText(-0.0, 0.5), "0.0");
  EXPECT_EQ(TickText(300, 100), "300");
}

TEST(Figures, SeedsOfPhasesAreDrawnInTheirOwnFigure) {
  const auto row = [](const char* phase, int64_t seed, double value) {
    return std::vector<Cell>{Cell::Json(kSoftmax), Cell::Text("loss_targets"), Cell::Text("selection"),
                             Cell::Integer(128),   Cell::Integer(0),           Cell::Integer(seed),
                             Cell::Text(phase),    Cell::Number(value)};
  };
  Records records{.columns = {"arm", "metric", "split", "length", "ntk", "seed", "phase", "value"},
                  .rows = {row("selecting", 0, 2.05), row("selecting", 1, 1.95), row("confirming", 100, 2.01)}};
  const auto seeds = SeedsOf(records);
  ASSERT_TRUE(seeds.ok()) << seeds.status();
  std::vector<v1::ConfidenceRow> rows;
  for (const v1::Phase phase : {v1::SELECTING, v1::CONFIRMING}) {
    for (const int64_t length : {128, 256}) {
      rows.push_back(Row(kSoftmax, length, 2));
      rows.back().set_phase(phase);
    }
  }
  const auto figures = LossByLength(rows, *seeds, "loss_targets", kSoftmax);
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_EQ(figures[0].name, "loss-by-length-selection-selecting");
  EXPECT_EQ(Count(figures[0].svg, "r=\"1.6\""), 2);
  EXPECT_EQ(figures[1].name, "loss-by-length-selection-confirming");
  EXPECT_EQ(Count(figures[1].svg, "r=\"1.6\""), 1);
  records.rows.push_back(row("plain", 0, 1));
  EXPECT_TRUE(SeedsOf(records).ok());
  records.rows.push_back(row("looking", 0, 1));
  EXPECT_THAT(std::string(SeedsOf(records).status().message()), HasSubstr("unknown phase \"looking\""));
}

TEST(Figures, DifferencesSayTheirPhase) {
  v1::ComparisonRow row;
  row.set_arm_json(Arm(15));
  row.set_baseline_json(kSoftmax);
  row.set_metric("loss_targets");
  row.set_split("confirmation");
  row.set_phase(v1::CONFIRMING);
  row.set_difference(-0.1);
  const auto figures = DifferenceForests({row}, "loss_targets");
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures[0].name, "differences-confirmation-confirming");
  EXPECT_THAT(figures[0].svg, HasSubstr("confirmation split, confirming seeds, NTK off"));
}

ReportInput Input() {
  ReportInput input;
  input.sweep.set_name("demo");
  input.sweep.set_arms(3);
  input.sweep.set_seeds(3);
  input.sweep.set_plan_sha256("abc123");
  input.sweep.mutable_jobs()->set_succeeded(12);
  input.yaml = "name: demo";
  input.file_name = "demo.yaml";
  input.baseline_json = kSoftmax;
  for (v1::ConfidenceRow& row : Rows({3, 15})) *input.table.add_rows() = row;
  v1::ComparisonRow* difference = input.comparisons.add_rows();
  difference->set_sweep("demo");
  difference->set_arm_json(Arm(15));
  difference->set_baseline_json(kSoftmax);
  difference->set_metric("loss_targets");
  difference->set_length(1024);
  difference->set_split("selection");
  difference->set_phase(v1::PLAIN);
  difference->set_n(3);
  difference->set_difference(-0.3);
  difference->set_low(-0.4);
  difference->set_high(-0.2);
  difference->set_p(0.01);
  difference->set_p_adjusted(0.02);
  difference->set_family_size(2);
  difference->set_level(0.95);
  input.curves.push_back({.arm_json = Arm(15), .seed = 1, .points = {{"train/train_loss", 10, 3.5}}, .at_us = 5000000});
  input.sweep.set_spec_sha256("5pec");
  input.data_name = "words";
  input.data_files = {{"text.txt", "da7a"}};
  input.versions = {{"submitted", input.yaml, "abc123", 1}};
  return input;
}

TEST(ReportFiles, TheSameInputGivesTheSameBytesAndEveryLinkIsThere) {
  const auto files = ReportFiles(Input());
  EXPECT_EQ(files, ReportFiles(Input()));
  const std::string& text = files.at("report.md");
  for (size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
    const std::string target = text.substr(at + 2, text.find(')', at) - at - 2);
    EXPECT_TRUE(files.contains(target)) << target;
  }
  for (const char* part :
       {"abc123", "ablate run sweep.yaml --data-dir again\nablate report demo --data-dir again -o again/report\n",
        "da7a", "numerics version", "```yaml\nname: demo\n```", "Every planned run is there",
        "No job was run a second time", "lssar p=15"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(files.at("tables.tex"), HasSubstr("\\begin{tabular}"));
  EXPECT_THAT(files.at("data/table.csv"), HasSubstr("job_128_0"));
  EXPECT_TRUE(files.contains("tensorboard/lssar_p_15/seed1/events.out.tfevents.5.ablate"));
}

TEST(ReportFiles, WhatWentWrongIsSaid) {
  ReportInput input = Input();
  input.sweep.mutable_jobs()->set_failed(1);
  input.sweep.mutable_jobs()->set_queued(2);
  input.sweep.set_diverged(1);
  input.table.mutable_rows(1)->add_diverged_seeds(7);
  input.table.mutable_rows(2)->add_missing_seeds(8);
  input.failures = {.columns = {"job", "message"}, .rows = {{Cell::Text("job_9"), Cell::Text("no memory")}}};
  v1::Verification* one = input.verifications.add_verifications();
  one->set_job_id("job_1");
  one->set_result(v1::Verification::DIFFERENT);
  one->set_difference("loss 3 and 4");
  v1::ClaimRow* claim = input.claims.add_claims();
  claim->mutable_claim()->set_name("p15 lower");
  claim->set_verdict(v1::UNDECIDED);
  claim->set_sentence("undecided: p = 0.2");
  claim->set_estimate(-0.1);
  claim->set_low(-0.3);
  claim->set_high(0.1);
  claim->set_family_low(-0.4567);
  claim->set_family_high(0.2567);
  claim->set_p(0.2);
  claim->set_p_adjusted(0.4);
  claim->mutable_claim()->set_margin(0.5);
  claim->mutable_claim()->set_margin_reason("half_a nat");
  claim->add_job_ids("job_77");
  v1::Deviation* deviation = input.claims.add_deviations();
  deviation->set_kind("lock_by_hand");
  deviation->set_text("locked by hand: the rule's arm diverged");
  const auto files = ReportFiles(input);
  const std::string& text = files.at("report.md");
  for (const char* part :
       {"unfinished sweep", "1 failed", "lssar p=3, seed 7", "lssar p=15, seed 8", "no memory", "1 different",
        "loss 3 and 4", "undecided: p = 0.2", "locked by hand: the rule's arm diverged", "figures/claims.svg"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("No deviation")));
  EXPECT_THAT(
      text, HasSubstr("| p15 lower | -0.100 | [-0.300, 0.100] | [-0.457, 0.257] | 0.2000 | 0.4000 | 0.5: half_a nat | "
                      "undecided |"));
  EXPECT_THAT(text, HasSubstr("* p15 lower: jobs job_77"));
  const std::string& latex = files.at("tables.tex");
  EXPECT_THAT(latex, HasSubstr("0.5: half\\_a nat"));
  EXPECT_THAT(latex, HasSubstr("{\\footnotesize p15 lower: undecided: p = 0.2\\par}"));
  EXPECT_THAT(latex, HasSubstr("jobs job\\_77"));
}

TEST(ReportFiles, TheCommandsAreOfWhatHappened) {
  ReportInput input = Input();
  input.versions.push_back({"tuned", "", "b", 2});
  input.versions.push_back({"extended: 1 seed", "name: demo # more", "c", 9});
  input.yaml = "name: demo # more";
  auto files = ReportFiles(input);
  EXPECT_THAT(files.at("report.md"),
              HasSubstr("ablate run sweep-1.yaml --data-dir again\nablate sweep extend sweep.yaml --data-dir "
                        "again\nablate run sweep.yaml --data-dir again\nablate report demo"));
  EXPECT_EQ(files.at("sweep-1.yaml"), "name: demo");
  EXPECT_EQ(files.at("sweep.yaml"), "name: demo # more");
  input.claims.mutable_lock()->set_by_hand(true);
  input.claims.mutable_lock()->set_arm_json(Arm(15));
  input.claims.mutable_lock()->set_why("it's better");
  input.claims.mutable_lock()->set_at_us(5);
  files = ReportFiles(input);
  EXPECT_THAT(
      files.at("report.md"),
      HasSubstr("ablate sweep submit sweep-1.yaml\nablate sweep lock demo --arm "
                "'{\"attention.p\":15,\"attention.variant\":\"lssar\"}' --why 'it'\\''s better'\nablate-worker "));
  EXPECT_THAT(files.at("report.md"), HasSubstr("worker=$!\nablate sweep extend sweep.yaml\nablate sweep wait demo\n"));
}

TEST(ReportFiles, TextOfTheUserBreaksNothing) {
  ReportInput input = Input();
  input.sweep.set_description("p < 3 & <script>alert(1)</script>");
  input.yaml = "name: demo\n# ```\n# ````\n";
  const std::string text = ReportFiles(input).at("report.md");
  EXPECT_THAT(text, HasSubstr("p &lt; 3 &amp; &lt;script>alert(1)&lt;/script>"));
  EXPECT_THAT(text, HasSubstr("`````yaml\nname: demo\n# ```\n# ````\n`````\n"));
}

// A sweep whose arms are fixed beforehand has no other seeds than those that confirm.
TEST(ReportFiles, SeedsAreCountedByPhase) {
  ReportInput input = Input();
  EXPECT_THAT(ReportFiles(input).at("report.md"), HasSubstr("\n3 arms, 3 seeds; 12 jobs done.\n"));
  input.sweep.set_seeds(0);
  for (const int64_t seed : {200, 201, 200}) input.seeds.push_back({.metric = "loss", .phase = v1::CONFIRMING, .seed = seed});
  input.seeds.push_back({.metric = "loss", .phase = v1::TUNING, .seed = 1000});
  EXPECT_THAT(ReportFiles(input).at("report.md"),
              HasSubstr("\n3 arms, 2 confirming seeds, 1 tuning seed; 12 jobs done.\n"));
}

// What a sweep asked for by eval.gain is shown beside the losses: a flat loss is not yet use of context.
TEST(ReportFiles, GainIsShownWhereItIsMeasured) {
  ReportInput input = Input();
  EXPECT_THAT(ReportFiles(input).at("report.md"), Not(HasSubstr("demo: gain")));
  v1::ConfidenceRow row = input.table.rows(0);
  row.set_metric("gain");
  *input.table.add_rows() = row;
  EXPECT_THAT(ReportFiles(input).at("report.md"), HasSubstr("demo: gain"));
}

TEST(ReportFiles, CurvesOfEachArmAndPhaseHaveAFolderOfTheirOwn) {
  ReportInput input = Input();
  input.curves.clear();
  for (const char* arm : {"{\"model.activation\":\"a b\"}", "{\"model.activation\":\"a_b\"}"}) {
    for (const v1::Phase phase : {v1::SELECTING, v1::CONFIRMING})
      input.curves.push_back({.arm_json = arm, .phase = phase, .seed = 1, .points = {{"train/train_loss", 10, 3.5}}});
  }
  std::set<std::string> folders;
  for (const auto& [name, content] : ReportFiles(input)) {
    if (name.rfind("tensorboard/", 0) == 0) folders.insert(name.substr(0, name.rfind('/')));
  }
  EXPECT_EQ(folders.size(), 4u);
  for (const std::string& folder : folders) EXPECT_THAT(folder, HasSubstr("ing/seed1"));
}

TEST(ReportFiles, ASweepWithoutResultsSaysSo) {
  ReportInput input = Input();
  input.table.Clear();
  input.comparisons.Clear();
  input.curves.clear();
  const auto files = ReportFiles(input);
  EXPECT_THAT(files.at("report.md"), HasSubstr("Nothing is measured yet."));
}

}  // namespace
}  // namespace ablate
