#include "experiments/sweep_file.h"

#include <cmath>
#include <random>

#include "experiments/axes.h"
#include "experiments/ranges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kFull[] = R"(name: everything
description: Each key once.
data: {name: kjv, path: ../kjv.txt, format: text}
settings:
  model.preset: tiny
  train.learning_rate: 1E-4
axes:
  eval.ntk: [off, on]
  train.batch: {from: 4, to: 16, factor: 2}
  train.weight_decay: {from: 0, to: 0.3, step: 0.1}
arms:
  - {attention.variant: softmax}
  - attention.variant: lssar
    attention.p: [none, 3, 15]
  - {attention.variant: softmax, switch: [{at_step: 100, attention.variant: ssmax, attention.ssmax_init: 0.1685}]}
exclude:
  - {attention.variant: lssar, attention.p: 3, train.batch: [4, 8]}
baseline: {attention.variant: softmax}
seeds: [3, 5, 8]
evaluate: {lengths: [1x, 2.5x, 4096], splits: [selection, confirmation]}
requires: {device: cpu, memory: 1.5GiB, labels: [fast, big disk]}
priority: -2
keep: all
executor: trainer
)";

std::string Error(const std::string& yaml) {
  const auto spec = ParseSweepFile(yaml, "dir/file.yaml");
  EXPECT_FALSE(spec.ok()) << yaml;
  if (spec.ok()) return "";
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(spec.status().message());
}

// A file with one line more.
std::string With(const std::string& line) { return "data: {path: a.txt}\n" + line + "\n"; }

TEST(SweepFile, ReadsEveryKey) {
  const auto spec = ParseSweepFile(kFull, "full.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name(), "everything");
  EXPECT_EQ(spec->description(), "Each key once.");
  EXPECT_EQ(spec->data().name(), "kjv");
  EXPECT_EQ(spec->data().format(), v1::DataRef::TEXT);
  EXPECT_EQ(spec->data().files(0).path(), "../kjv.txt");
  EXPECT_EQ(ToJson(spec->settings()), R"({"model.preset":"tiny","train.learning_rate":0.0001})");
  ASSERT_EQ(spec->axes_size(), 3);
  EXPECT_EQ(spec->axes(0).values(1).text(), "dynamic");
  ASSERT_EQ(spec->axes(1).values_size(), 3);
  EXPECT_EQ(spec->axes(1).values(2).number(), 16);
  ASSERT_EQ(spec->axes(2).values_size(), 4);
  EXPECT_EQ(spec->axes(2).values(3).number(), 0.3);
  ASSERT_EQ(spec->arms_size(), 5);
  EXPECT_EQ(ToJson(spec->arms(1).settings()), R"({"attention.p":"none","attention.variant":"lssar"})");
  EXPECT_EQ(ToJson(spec->arms(3).settings()), R"({"attention.p":15,"attention.variant":"lssar"})");
  ASSERT_EQ(spec->arms(4).switches_size(), 1);
  EXPECT_EQ(spec->arms(4).switches(0).at_step(), 100);
  EXPECT_EQ(ToJson(spec->arms(4).switches(0).settings()),
            R"({"attention.ssmax_init":0.1685,"attention.variant":"ssmax"})");
  ASSERT_EQ(spec->exclude_size(), 2);
  EXPECT_EQ(ToJson(spec->baseline()), R"({"attention.variant":"softmax"})");
  EXPECT_THAT(spec->seeds(), ElementsAre(3, 5, 8));
  ASSERT_EQ(spec->evaluate().lengths_size(), 3);
  EXPECT_EQ(spec->evaluate().lengths(1).multiple(), 2.5);
  EXPECT_EQ(spec->evaluate().lengths(2).tokens(), 4096);
  EXPECT_THAT(spec->evaluate().splits(), ElementsAre("selection", "confirmation"));
  EXPECT_EQ(spec->requirements().device(), "cpu");
  EXPECT_EQ(spec->requirements().memory_bytes(), 1610612736);
  EXPECT_THAT(spec->requirements().labels(), ElementsAre("fast", "big disk"));
  EXPECT_EQ(spec->priority(), -2);
  EXPECT_EQ(spec->keep(), v1::KEEP_ALL);
  EXPECT_EQ(spec->executor(), v1::EXECUTOR_TRAINER);
}

TEST(SweepFile, FillsInDefaults) {
  const auto spec = ParseSweepFile("data: {path: some/corpus.v2.txt}", "/tmp/My-Sweep.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name(), "My-Sweep");
  EXPECT_EQ(spec->data().name(), "corpus");
  EXPECT_THAT(spec->seeds(), ElementsAre(0, 1, 2));
  EXPECT_EQ(spec->evaluate().lengths_size(), 4);
  EXPECT_EQ(spec->evaluate().lengths(3).multiple(), 8);
  EXPECT_THAT(spec->evaluate().splits(), ElementsAre("selection"));
  EXPECT_EQ(spec->keep(), v1::KEEP_WEIGHTS);
  const auto noop = ParseSweepFile("executor: noop", "n.yaml");
  ASSERT_TRUE(noop.ok()) << noop.status();
  EXPECT_EQ(noop->evaluate().lengths_size(), 0);
  const auto without = ParseSweepFile("data: {path: a.txt}\nevaluate: {lengths: []}", "n.yaml");
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->evaluate().lengths_size(), 0);
}

TEST(SweepFile, ReadsShardsByRange) {
  const auto spec = ParseSweepFile("data: {path: 'fw/train_{000008..000011}.bin'}", "s.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data().format(), v1::DataRef::TOKEN_SHARDS);
  ASSERT_EQ(spec->data().files_size(), 4);
  EXPECT_EQ(spec->data().files(0).path(), "fw/train_000008.bin");
  EXPECT_EQ(spec->data().files(3).path(), "fw/train_000011.bin");
}

TEST(SweepFile, ErrorsSayWhereAndWhat) {
  const struct {
    const char *line, *start, *part;
  } cases[] = {
      {"settings: {train.learning_rate: fast}",
       "dir/file.yaml:2:33: ", "expected a number from 0 to 10 for train.learning_rate, found \"fast\""},
      {"settings: {train.learning_rate: \"1e-4\"}", "dir/file.yaml:2:33: ", "without the quotes"},
      {"settings: {train.learning_rates: 1}", "dir/file.yaml:2:12: ", "did you mean \"train.learning_rate\"?"},
      {"settings: {train.steps: 1, train.steps: 2}", "dir/file.yaml:2:28: ", "\"train.steps\" is there twice"},
      {"setings: {}", "dir/file.yaml:2:1: ", "unknown key \"setings\", did you mean \"settings\"?"},
      {"train.steps: 3", "dir/file.yaml:2:1: ", "put it under settings"},
      {"settings: [1]", "dir/file.yaml:2:11: ", "expected a map of settings, found a list"},
      {"settings: {train.steps: [1, 2]}", "dir/file.yaml:2:25: ", "expected one value for train.steps, found a list"},
      {"settings: {train.steps: }", "dir/file.yaml:2:", "found nothing"},
      {"axes: {train.steps: 3}", "dir/file.yaml:2:21: ", "one value belongs under settings"},
      {"axes: {train.steps: []}", "dir/file.yaml:2:21: ", "at least one value"},
      {"axes: {train.steps: [1, 2, 1.0]}", "dir/file.yaml:2:28: ", "1 is there twice"},
      {"axes: {train.steps: [1, 0]}", "dir/file.yaml:2:25: ", "from 1 to 1000000000 for train.steps, found 0"},
      {"axes: {train.steps: {from: 1, to: 9}}", "dir/file.yaml:2:21: ", "either step or factor"},
      {"axes: {train.steps: {from: 1, to: 9, step: 0}}", "dir/file.yaml:2:21: ", "never leads from 1 to 9"},
      {"axes: {train.steps: {from: 1, to: 9, step: -1}}", "dir/file.yaml:2:21: ", "never leads from 1 to 9"},
      {"axes: {train.steps: {from: 1, to: 9, factor: 0.5}}", "dir/file.yaml:2:21: ", "never leads"},
      {"axes: {train.steps: {from: 1, to: 3, step: 0.5}}", "dir/file.yaml:2:21: ", "whole number"},
      {"axes: {attention.offset: {from: 0, to: 1, step: 1e-9}}", "dir/file.yaml:2:26: ", "more than 1000000 values"},
      {"axes: {attention.offset: {from: 0, to: 1, stp: 1}}", "dir/file.yaml:2:43: ", "did you mean \"step\"?"},
      {"settings: {train.steps: 5}\naxes: {train.steps: [1]}", "dir/file.yaml:3:8: ", "under settings too"},
      {"axes: {attention.p: [1]}\narms: [{attention.p: 2}]", "dir/file.yaml:3:8: ", "under axes too"},
      {"arms: [{attention.variant: softmaxx}]", "dir/file.yaml:2:28: ", "did you mean \"softmax\"?"},
      {"arms: [{switch: [{attention.variant: ssmax}]}]", "dir/file.yaml:2:18: ", "no at_step"},
      {"arms: [{switch: [{at_step: 5}]}]", "dir/file.yaml:2:18: ", "changes nothing"},
      {"arms: [{switch: [{at: end}]}]", "dir/file.yaml:2:18: ", "name settings, or steps to go on as before"},
      {"arms: [{switch: [{at: end, steps: 0}]}]", "dir/file.yaml:2:18: ", "changes nothing"},
      {"arms: [{switch: [{at_step: 5, attention.p: 2}, {at_step: 5, attention.p: 3}]}]",
       "dir/file.yaml:2:48: ", "order of their steps"},
      {"exclude: [{}]", "dir/file.yaml:2:11: ", "every arm"},
      {"seeds: 0", "dir/file.yaml:2:8: ", "seeds (a count, or a list of seeds)"},
      {"seeds: [1, 1]", "dir/file.yaml:2:12: ", "seed 1 is there twice"},
      {"seeds: three", "dir/file.yaml:2:8: ", "found \"three\""},
      {"evaluate: {lengths: [2y]}", "dir/file.yaml:2:22: ", "multiple of train.length such as 2x"},
      {"evaluate: {lengths: [0x]}", "dir/file.yaml:2:22: ", "multiple of train.length"},
      {"evaluate: {lengths: [16x, 16.5x]}", "dir/file.yaml:2:27: ", "16.5x is too long"},
      {"evaluate: {splits: [selektion]}", "dir/file.yaml:2:21: ", "did you mean \"selection\"?"},
      {"requires: {memory: 4 gigs}", "dir/file.yaml:2:20: ", "such as 4GiB"},
      {"requires: {device: gpu}", "dir/file.yaml:2:20: ", "expected one of cpu, cuda for device"},
      {"keep: everything", "dir/file.yaml:2:7: ", "none, weights, all"},
      {"name: a/b", "dir/file.yaml:2:7: ", "expected a name"},
      {"priority: 1.5", "dir/file.yaml:2:11: ", "whole number"},
      {"data: {path: b.txt}", "dir/file.yaml:2:1: ", "there twice"},
      {"settings: &a {}", "dir/file.yaml:2:11: ", "anchors"},
      {"settings: *a", "dir/file.yaml:2:", ""},
      {"settings: !!map {}", "dir/file.yaml:2:11: ", "tags"},
      {"? [a]\n: 1", "dir/file.yaml:2:", "expected a name before the colon"},
      {"settings: {", "dir/file.yaml:", "malformed YAML"},
      {"---\nname: x", "dir/file.yaml:3:1: ", "second one"},
      {"name: \"\\uD800\"", "dir/file.yaml:2:", ""},
      {"axes: {attention.offset: {from: 0, to: 1, step: 0.0001}, attention.p: {from: 1, to: 400, step: 1}, "
       "train.steps: {from: 1, to: 900000, step: 1}}",
       "dir/file.yaml:2:7: ", "points (arms x seeds)"},
  };
  for (const auto& c : cases) {
    const std::string message = Error(With(c.line));
    EXPECT_THAT(message, StartsWith(c.start)) << c.line;
    EXPECT_THAT(message, HasSubstr(c.part)) << c.line;
  }
  EXPECT_THAT(Error("name: x"), HasSubstr("data is missing"));
  EXPECT_THAT(Error(""), HasSubstr("expected a sweep file"));
  EXPECT_THAT(Error("data: {path: a, paths: [b]}"), HasSubstr("either path or paths"));
  EXPECT_THAT(Error("data: {path: a, sha256: abc}"), HasSubstr("64 lower-case hex digits"));
  EXPECT_THAT(Error("data: {paths: [a, b], format: text}"), HasSubstr("one file of format text"));
  EXPECT_THAT(Error("data: {path: \"a{1..99999999}.bin\"}"), HasSubstr("at most 10000 files"));
}

TEST(Ranges, EndWhereTheyShould) {
  EXPECT_THAT(*StepRange(0, 1, 0.1, 100), ElementsAre(0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1));
  EXPECT_THAT(*StepRange(1, 2, 0.3, 100), ElementsAre(1, 1.3, 1.6, 1.9));
  EXPECT_THAT(*StepRange(3, 1, -1, 100), ElementsAre(3, 2, 1));
  EXPECT_THAT(*StepRange(5, 5, 1, 100), ElementsAre(5));
  EXPECT_THAT(*FactorRange(1, 1000, 10, 100), ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(*FactorRange(1e-3, 1e-5, 0.1, 100), ElementsAre(1e-3, 1e-4, 1e-5));
  EXPECT_THAT(*FactorRange(1, 9, 2, 100), ElementsAre(1, 2, 4, 8));
  EXPECT_FALSE(StepRange(-1e308, 1e308, 1, 100).ok());
  EXPECT_FALSE(StepRange(0, 100, 1, 100).ok());
  EXPECT_FALSE(FactorRange(-1, 4, 2, 100).ok());
  EXPECT_FALSE(FactorRange(1, 4, 1, 100).ok());
}

TEST(SweepFile, RefusesHostileFilesQuickly) {
  EXPECT_THAT(Error(std::string((1 << 20) + 1, '#')), HasSubstr("expected at most 1048576 bytes"));
  EXPECT_THAT(Error("settings: " + std::string(40, '[') + std::string(40, ']')), HasSubstr("nested deeper than 32"));
  EXPECT_THAT(Error("name: a\xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(Error(std::string("name: a\0b", 9)), HasSubstr("UTF-8"));
  for (const char* piece : {"[",   "{",    "- ", "? ",    "{a: ",  "[{", "&a ", "*a ", "!x ", "\"", "'", "|\n",
                            "a: ", "- - ", "%",  "---\n", "a:\n ", "\\", "#",   ": ",  ",",   "]",  "}"}) {
    std::string text;
    while (text.size() < 20000) text += piece;
    (void)ParseSweepFile(text, "hostile.yaml");
    (void)ParseSweepFile("settings: " + text, "hostile.yaml");
  }
}

TEST(SweepFile, SurvivesRandomMutations) {
  std::mt19937 random(20250601);
  const std::string seed = kFull;
  const std::string alphabet = "{}[]:,-#&*!|>'\"%@`?\n\t \\0123456789.eExXaz\x80\xff";
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = seed;
    const int edits = 1 + static_cast<int>(random() % 8);
    for (int e = 0; e < edits && !text.empty(); ++e) {
      const size_t at = random() % text.size();
      switch (random() % 5) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        case 2:
          text.erase(at, 1 + random() % 20);
          break;
        case 3:
          text.insert(at, text.substr(random() % text.size(), random() % 60));
          break;
        case 4:
          text.resize(at);
          break;
      }
    }
    const auto spec = ParseSweepFile(text, "mutant.yaml");
    if (spec.ok()) {
      ++parsed;
      std::string bytes;
      ASSERT_TRUE(spec->SerializeToString(&bytes));
      v1::SweepSpec back;
      ASSERT_TRUE(back.ParseFromString(bytes));
    } else {
      ASSERT_THAT(std::string(spec.status().message()), StartsWith("mutant.yaml:"));
    }
  }
  EXPECT_GT(parsed, 100);
}

}  // namespace
}  // namespace ablate
