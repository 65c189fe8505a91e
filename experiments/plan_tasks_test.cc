#include <set>

#include "base/hash.h"
#include "experiments/axes.h"
#include "experiments/plan_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// With the hashes that a client would have found.
v1::SweepSpec Hashed(const std::string& yaml) {
  v1::SweepSpec spec = Spec(yaml);
  char digit = 'b';
  for (v1::ProbeSpec& probe : *spec.mutable_evaluate()->mutable_probes()) {
    for (auto* files : {probe.mutable_files(), probe.mutable_tokenizer()}) {
      for (v1::DataFile& file : *files) file.set_sha256(std::string(64, digit++));
    }
  }
  return spec;
}

std::string PlanRefusal(const v1::SweepSpec& spec) {
  const auto plan = MakePlan(spec);
  EXPECT_FALSE(plan.ok());
  return std::string(plan.status().message());
}

constexpr char kTasks[] = R"(
settings: {train.steps: 100}
axes: {eval.ntk: [off, dynamic]}
arms: [{attention.variant: softmax}, {attention.variant: lssar}]
seeds: 2
evaluate:
  lengths: [1x, 2x]
  tasks:
    - {task: passkey, eval.passkey.prompt: short}
    - {task: passkey, name: far, lengths: [1x, 16x], eval.passkey.prompt: short, eval.passkey.trials: 32}
    - {task: attention, lengths: [4x]}
    - {task: attention_map, name: psalm, path: psalm.txt}
    - {task: multiple_choice, name: arc_easy, path: arc.jsonl}
    - {task: summaries, path: mine.jsonl, eval.summaries.tokens: 20}
)";

TEST(Tasks, EachArmSeedLengthAndNtkCellIsOneEvaluationOfTheSharedStage) {
  const v1::SweepSpec spec = Hashed(kTasks);
  const Plan plan = PlanOf(spec);
  CheckInvariants(plan);
  EXPECT_EQ(plan.stages.size(), 4u);  // two arms, two seeds, whatever is measured
  std::vector<std::string> cells;
  for (const int e : plan.points[0].evaluations) {
    const PlannedEvaluation& one = plan.evaluations[e];
    cells.push_back(one.task + " " + one.split + " " + std::to_string(one.length_tokens) + (one.ntk ? " ntk" : ""));
  }
  // NTK cells that are the same by construction are there once: 1x, and inputs with lengths of their own.
  EXPECT_THAT(cells,
              ElementsAre("loss selection 256", "loss selection 512", "loss selection 512 ntk", "passkey passkey 256",
                          "passkey passkey 512", "passkey passkey 512 ntk", "passkey far 256", "passkey far 4096",
                          "passkey far 4096 ntk", "attention selection 1024", "attention selection 1024 ntk",
                          "attention_map psalm 256", "multiple_choice arc_easy 256", "summaries summaries 256"));
  EXPECT_EQ(plan.evaluations.size(), 4 * cells.size());
  const PlannedEvaluation& choice = plan.evaluations[plan.points[0].evaluations[12]];
  const v1::EvaluationTask task = MakeEvaluationTask(spec, plan, choice);
  EXPECT_EQ(task.files(0).path(), "arc.jsonl");
  EXPECT_EQ(task.split(), "arc_easy");
  EXPECT_EQ(ToJson(task.eval_config()), R"({"eval.task":"multiple_choice"})");
  EXPECT_EQ(MakeEvaluationTask(spec, plan, plan.evaluations[0]).files_size(), 0);
}

// Permanent, as Plan.GoldenKeys.
TEST(Tasks, GoldenKeys) {
  const v1::SweepSpec spec = Hashed(kTasks);
  const Plan plan = PlanOf(spec);
  const auto key = [&](int i) { return plan.evaluations[plan.points[0].evaluations[i]].key; };
  const std::string& state = plan.stages[0].key;
  EXPECT_EQ(
      key(5),
      Sha256Hex(
          R"({"eval":{"eval.ntk":"dynamic","eval.passkey.prompt":"short","eval.task":"passkey"},"length":512,"split":"passkey",)"
          R"("state":")" +
          state + R"(","what":"evaluation"})"));
  EXPECT_EQ(key(6),
            Sha256Hex(R"({"eval":{"eval.passkey.prompt":"short","eval.passkey.trials":32,"eval.task":"passkey"},)"
                      R"("length":256,"split":"far","state":")" +
                      state + R"(","what":"evaluation"})"));
  EXPECT_EQ(key(11), Sha256Hex(R"({"eval":{"eval.task":"attention_map"},"files":[")" + std::string(64, 'b') +
                               R"("],"length":256,"split":"psalm","state":")" + state + R"(","what":"evaluation"})"));
  const v1::SweepSpec shards = [] {
    v1::SweepSpec with = Hashed(
        "settings: {train.steps: 100}\nseeds: 1\nevaluate: {lengths: [], tasks: [{task: multiple_choice, path: a, "
        "tokenizer: [e, v]}]}");
    with.mutable_data()->set_format(v1::DataRef::TOKEN_SHARDS);
    return with;
  }();
  const Plan tokens = PlanOf(shards);
  EXPECT_EQ(tokens.evaluations[0].key,
            Sha256Hex(R"({"eval":{"eval.task":"multiple_choice"},"files":[")" + std::string(64, 'b') +
                      R"("],"length":256,"split":"multiple_choice","state":")" + tokens.stages[0].key +
                      R"(","tokenizer":[")" + std::string(64, 'c') + R"(",")" + std::string(64, 'd') +
                      R"("],"what":"evaluation"})"));
  // Other contents are another evaluation.
  v1::SweepSpec changed = shards;
  changed.mutable_evaluate()->mutable_probes(0)->mutable_tokenizer(1)->set_sha256(std::string(64, 'e'));
  EXPECT_NE(PlanOf(changed).evaluations[0].key, tokens.evaluations[0].key);
  EXPECT_NE(PlanOf(changed).sha256, tokens.sha256);
}

TEST(Tasks, WhatIsAskedBesideALossChangesNoKeyOfTheLoss) {
  const std::string base = "settings: {train.steps: 100}\nseeds: 1\n";
  const auto plain = Keys(PlanOf(Spec(base)));
  const auto more = Keys(PlanOf(Hashed(base + "evaluate: {tasks: [{task: passkey, lengths: [2x]}, attention]}\n")));
  EXPECT_THAT(plain, ::testing::IsSubsetOf(more));
  // Options of tasks among the arms' settings act in their tasks alone.
  const Plan options = PlanOf(Hashed(
      "settings: {train.steps: 100, eval.passkey.trials: 7, eval.target_spans: 8}\nseeds: 1\nevaluate: {lengths: "
      "[1x], tasks: [{task: passkey, lengths: [2x], eval.passkey.depths: 5}, attention]}"));
  EXPECT_EQ(ToJson(options.evaluations[0].eval_config), R"({"eval.target_spans":8})");
  EXPECT_EQ(ToJson(options.evaluations[1].eval_config),
            R"({"eval.passkey.depths":5,"eval.passkey.trials":7,"eval.task":"passkey"})");
  EXPECT_EQ(ToJson(options.evaluations[2].eval_config), R"({"eval.task":"attention"})");
}

TEST(Tasks, OverridesAtEvaluationActInTasksToo) {
  const Plan plan = PlanOf(Hashed(
      "settings: {train.steps: 100}\naxes: {eval.attention.p: [none, 3], eval.passkey.prompt: [full, short]}\nseeds: "
      "1\nevaluate: {lengths: [], tasks: [{task: passkey, lengths: [2x]}]}"));
  EXPECT_EQ(plan.stages.size(), 1u);
  std::set<std::string> settings;
  for (const PlannedEvaluation& one : plan.evaluations) settings.insert(ToJson(one.eval_config));
  EXPECT_THAT(settings,
              ElementsAre(R"({"eval.attention.p":3,"eval.passkey.prompt":"short","eval.task":"passkey"})",
                          R"({"eval.attention.p":3,"eval.task":"passkey"})",
                          R"({"eval.passkey.prompt":"short","eval.task":"passkey"})", R"({"eval.task":"passkey"})"));
}

// Its text may be longer than train.length, at which it is planned: 512 tokens, or 16 T.
TEST(Tasks, OverridesActUpToTheLongestTextOfAnAttentionMap) {
  const auto settings = [](const std::string& training, const std::string& override) {
    const Plan plan = PlanOf(
        Hashed("settings: {train.steps: 100, " + training + "}\nseeds: 1\narms: [{" + override +
               "}]\nevaluate: {lengths: [1x], tasks: [{task: attention_map, path: a}, {task: summaries, path: b}]}"));
    EXPECT_EQ(plan.evaluations.size(), 3u);
    if (plan.evaluations.size() != 3) return std::string();
    EXPECT_EQ(ToJson(plan.evaluations[0].eval_config), "{}");
    EXPECT_EQ(ToJson(plan.evaluations[2].eval_config), R"({"eval.task":"summaries"})");  // cut to train.length
    EXPECT_EQ(plan.evaluations[1].length_tokens, ConfigView(plan.stages[0].config).Integer("train.length"));
    return ToJson(plan.evaluations[1].eval_config);
  };
  const std::string ssmax = "attention.variant: ssmax, ", sharpened = "attention.variant: softmax_sharpened, ",
                    none = R"({"eval.task":"attention_map"})";
  EXPECT_EQ(settings("train.length: 256", "eval.attention.window: 256"),
            R"({"eval.attention.window":256,"eval.task":"attention_map"})");
  EXPECT_EQ(settings("train.length: 256", "eval.attention.window: 511"),
            R"({"eval.attention.window":511,"eval.task":"attention_map"})");
  EXPECT_EQ(settings("train.length: 256", ssmax + "eval.attention.scale_clamp: true"),
            R"({"eval.attention.scale_clamp":true,"eval.task":"attention_map"})");
  EXPECT_EQ(settings("train.length: 256", sharpened + "eval.attention.sharpen_clamp: true"),
            R"({"eval.attention.sharpen_clamp":true,"eval.task":"attention_map"})");
  EXPECT_EQ(settings("train.length: 256", "eval.attention.window: 512"), none);
  EXPECT_EQ(settings("train.length: 16", "eval.attention.window: 256"), none);
  EXPECT_EQ(settings("train.length: 512", ssmax + "eval.attention.scale_clamp: true"), none);
  EXPECT_EQ(settings("train.length: 256, model.position: learned", ssmax + "eval.attention.scale_clamp: true"), none);
}

TEST(Tasks, SummaryCountsThem) {
  v1::SweepSpec spec = Hashed(kTasks);
  spec.mutable_evaluate()->mutable_probes(4)->mutable_files(0)->set_bytes(1000);
  const Plan plan = PlanOf(spec);
  const v1::PlanSummary summary = Summarize(spec, plan);
  int64_t expected = 0;
  for (const int64_t length : {256, 512, 512}) {
    expected += 64 * length + 65536;  // loss: spans and windows
    expected += 100 * length;         // passkey
  }
  expected += 32 * (256 + 4096 + 4096) + 2 * 16384 + 1000;
  EXPECT_EQ(summary.evaluation_tokens(), 4 * expected);
  EXPECT_THAT(
      summary.notes(),
      ElementsAre("task passkey at 1x, 2x: 12 evaluations", "task passkey (far) at 1x, 16x: 12 evaluations",
                  "task attention at 4x on selection: 8 evaluations", "task attention_map (psalm): 4 evaluations",
                  "task multiple_choice (arc_easy): 4 evaluations", "task summaries: 4 evaluations"));
}

constexpr char kMqar[] = R"(
name: recall
data: {format: mqar}
settings: {train.steps: 100, train.length: 64}
seeds: 1
)";

v1::SweepSpec Mqar(const std::string& more = "") {
  auto spec = ParseSweepFile(kMqar + more, "f.yaml");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : v1::SweepSpec();
}

std::string MqarRefusal(const std::string& more) {
  SweepPlaces places;
  const auto spec = ParseSweepFile(kMqar + more, "f.yaml", &places);
  const absl::Status status = spec.ok() ? MakePlan(*spec, places).status() : spec.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << more;
  return std::string(status.message());
}

TEST(Tasks, MadeDataNeedsNoFileAndIsMeasuredByItsTask) {
  const v1::SweepSpec spec = Mqar();
  EXPECT_EQ(spec.data().sha256(), Sha256Hex("mqar 1"));
  EXPECT_EQ(spec.data().files_size(), 0);
  const Plan plan = PlanOf(spec);
  EXPECT_EQ(plan.stages[0].key,
            Sha256Hex(R"({"data":{"format":"mqar","sha256":")" + Sha256Hex("mqar 1") +
                      R"("},"device":"any","executor":"trainer","numerics":1,"seed":0,"segments":[[{"train.length":64,)"
                      R"("train.steps":100},0,100]],"what":"state"})"));
  std::vector<int64_t> lengths;
  for (const PlannedEvaluation& one : plan.evaluations) {
    EXPECT_EQ(one.task, "mqar");
    lengths.push_back(one.length_tokens);
  }
  EXPECT_THAT(lengths, ElementsAre(64, 128, 256, 512));
  // The embedding has the vocabulary's rows.
  EXPECT_LT(Summarize(spec, plan).peak_disk_bytes(),
            Summarize(Mqar("axes: {data.mqar.vocabulary: [512]}"), PlanOf(Mqar("axes: {data.mqar.vocabulary: [512]}")))
                .peak_disk_bytes());
  const Plan only = PlanOf(Mqar("evaluate: {tasks: [{task: mqar, lengths: [1x, 16x], eval.mqar.pairs: 8}]}"));
  ASSERT_EQ(only.evaluations.size(), 2u);
  EXPECT_EQ(only.evaluations[0].key, plan.evaluations[0].key);  // the pairs that training has
  EXPECT_EQ(PlanOf(Mqar("evaluate: {lengths: []}")).evaluations.size(), 0u);
}

TEST(Tasks, MadeDataRefusesWhatNeedsAText) {
  EXPECT_THAT(MqarRefusal("evaluate: {lengths: [1x]}"), HasSubstr("f.yaml:6:21: data of format mqar has no text"));
  EXPECT_THAT(MqarRefusal("evaluate: {tasks: [passkey]}"), HasSubstr("needs a model of text"));
  EXPECT_THAT(MqarRefusal("evaluate: {tasks: [attention]}"), HasSubstr("needs a model of text"));
  EXPECT_THAT(MqarRefusal("tune: {learning_rates: [1e-3, 2e-3]}"), HasSubstr("tune goes by a loss"));
  EXPECT_THAT(MqarRefusal("axes: {data.mqar.pairs: [8, 32]}"), HasSubstr("32 pairs and their queries take 128 tokens"));
  EXPECT_THAT(MqarRefusal("axes: {data.mqar.vocabulary: [128, 16]}"), HasSubstr("has 7: at least 18"));
  EXPECT_THAT(MqarRefusal("axes: {data.mixture: [0, 0.5]}"), HasSubstr("needs data of format text"));
  EXPECT_THAT(MqarRefusal("evaluate: {tasks: [{task: mqar, lengths: [0.25x]}]}"),
              HasSubstr("f.yaml:6:33: arm default: task mqar at 16 tokens: 8 pairs"));
  for (const char* data : {"{format: mqar, path: a}", "{format: mqar, sha256: a}", "{format: mqr}"}) {
    EXPECT_FALSE(ParseSweepFile(std::string("data: ") + data, "f.yaml").ok()) << data;
  }
  EXPECT_THAT(Refusal("settings: {data.mqar.pairs: 4}"), HasSubstr("acts with data: {format: mqar} alone"));
  EXPECT_THAT(Refusal("evaluate: {tasks: [mqar]}"),
              HasSubstr("f.yaml:2:20: task mqar needs a model that was trained on"));
}

TEST(Tasks, RefusalsHaveTheirPlace) {
  const auto refused = [](const std::string& task) { return Refusal("evaluate:\n  tasks: [" + task + "]"); };
  EXPECT_THAT(refused("paskey"), HasSubstr("f.yaml:3:11: expected one of passkey, mqar"));
  EXPECT_THAT(refused("paskey"), HasSubstr("did you mean \"passkey\"?"));
  EXPECT_THAT(refused("loss"), HasSubstr("expected one of passkey"));
  EXPECT_THAT(refused("{name: a}"), HasSubstr("f.yaml:3:11: the entry has no task"));
  EXPECT_THAT(refused("{task: passkey, length: [1x]}"), HasSubstr("f.yaml:3:27: unknown key \"length\", did you mean"));
  EXPECT_THAT(refused("{task: passkey, lengths: [17x]}"), HasSubstr("too long"));
  EXPECT_THAT(refused("{task: passkey, lengths: [4097]}"), HasSubstr("expected 1 to 4096"));
  EXPECT_THAT(refused("{task: passkey, lengths: []}"), HasSubstr("at least one length"));
  EXPECT_THAT(refused("{task: passkey, splits: [selection]}"), HasSubstr("takes nothing of the data's splits"));
  EXPECT_THAT(refused("{task: passkey, path: a}"), HasSubstr("takes no file"));
  EXPECT_THAT(refused("{task: passkey, tokenizer: a}"), HasSubstr("has no SHA-256"));
  EXPECT_THAT(refused("{task: mqar, tokenizer: a}"), HasSubstr("no text to turn into tokens"));
  EXPECT_THAT(refused("{task: passkey, eval.passkey.trial: 3}"), HasSubstr("eval.passkey.trials"));
  EXPECT_THAT(refused("{task: passkey, eval.passkey.trials: 0}"), HasSubstr("f.yaml:3:48: expected a whole number"));
  EXPECT_THAT(refused("{task: passkey, eval.mqar.pairs: 3}"),
              HasSubstr("no option of task passkey, which has eval.passkey.trials"));
  EXPECT_THAT(refused("{task: passkey, eval.ntk: on}"), HasSubstr("belongs under settings, axes or arms"));
  EXPECT_THAT(refused("{task: attention, name: a}"), HasSubstr("has the names of its splits"));
  EXPECT_THAT(refused("{task: attention_map, lengths: [1x], path: a}"), HasSubstr("its inputs have their own"));
  EXPECT_THAT(refused("{task: summaries, path: a, labels: b}"), HasSubstr("task summaries has no file of labels"));
  EXPECT_THAT(refused("{task: multiple_choice}"), HasSubstr("has no path: name its file, questions as JSON lines"));
  EXPECT_THAT(refused("{task: multiple_choice, path: arc.jsonl}"),
              HasSubstr("f.yaml:3:35: the file arc.jsonl of task multiple_choice has no SHA-256"));
  EXPECT_THAT(refused("passkey, {task: passkey, eval.passkey.prompt: short}"),
              HasSubstr("two entries of task passkey are named passkey"));
  EXPECT_THAT(refused("attention, {task: attention, lengths: [16x]}"), HasSubstr("are named selection"));
  EXPECT_THAT(refused("{task: passkey, name: confirmation}"), HasSubstr("cannot be named confirmation"));
  EXPECT_THAT(refused("{task: passkey, name: a b}"), HasSubstr("expected a name"));
  for (const std::string name : {"-a", ".a", "_a", "-"}) {
    EXPECT_THAT(refused("{task: passkey, name: " + (name == "-" ? "\"-\"" : name) + "}"),
                HasSubstr("a task's name begins with a letter or digit, found \"" + name + "\""));
  }
  EXPECT_THAT(refused("{task: passkey, name: mqar}"),
              HasSubstr("f.yaml:3:27: task passkey cannot be named mqar, as another task is"));
  EXPECT_THAT(refused("{task: passkey, name: loss}"), HasSubstr("cannot be named loss"));
  EXPECT_TRUE(MakePlan(Spec("evaluate: {lengths: [2x], tasks: [{task: passkey, name: passkey}, {task: passkey, name: "
                            "7-a}]}"))
                  .ok());
  EXPECT_TRUE(MakePlan(Spec("evaluate: {lengths: [2x], tasks: [passkey, {task: passkey, name: b, eval.passkey.prompt: "
                            "short}]}"))
                  .ok());
  EXPECT_THAT(refused("passkey"), HasSubstr("task passkey at 256 tokens: the full prompt with 10 depths and the answer "
                                            "take at least 264 bytes"));
  EXPECT_THAT(refused("{task: passkey, lengths: [40], eval.passkey.prompt: short}"),
              HasSubstr("lower eval.passkey.depths"));
  EXPECT_THAT(Refusal("evaluate: {lengths: [], tasks: [passkey]}"),
              HasSubstr("f.yaml:2:33: task passkey has no lengths"));
  EXPECT_THAT(Refusal("settings: {eval.task: passkey}"), HasSubstr("write evaluate: {tasks: [passkey]}"));
  EXPECT_THAT(Refusal("axes: {eval.task: [loss, passkey]}"), HasSubstr("eval.task is no axis"));
  EXPECT_THAT(
      Refusal("axes: {eval.passkey.trials: [1, 2]}\nevaluate: {tasks: [{task: passkey, eval.passkey.trials: 3}]}"),
      HasSubstr("set for the task and varied by the arms"));
  v1::SweepSpec text = Hashed("evaluate: {tasks: [{task: multiple_choice, path: a, tokenizer: b.tiktoken}]}");
  EXPECT_THAT(PlanRefusal(text), HasSubstr("leave the tokenizer out"));
  text.mutable_evaluate()->mutable_probes(0)->clear_tokenizer();
  EXPECT_TRUE(MakePlan(text).ok()) << MakePlan(text).status();
  text.mutable_data()->set_format(v1::DataRef::TOKEN_SHARDS);
  EXPECT_THAT(PlanRefusal(text), HasSubstr("write tokenizer: [encoder.json, vocab.bpe]"));
}

TEST(Tasks, OfASweepWithClaims) {
  const Plan plan = PlanOf(Hashed(Replaced(
      kSealed, "select:\n",
      "select:\nevaluate: {lengths: [1x], tasks: [{task: passkey, lengths: [1x], eval.passkey.prompt: short}]}\n")));
  CheckInvariants(plan);
  for (const Point& point : plan.points) {
    int tasks = 0;
    for (const int e : point.evaluations) tasks += plan.evaluations[e].task == "passkey";
    EXPECT_EQ(tasks, point.phase == v1::CONFIRMING ? 0 : 1);
  }
  EXPECT_THAT(
      Refusal(Replaced(kSealed, "select:\n",
                       "select:\nevaluate: {lengths: [1x], tasks: [{task: attention, splits: [confirmation]}]}\n")),
      HasSubstr("the split of the confirming documents"));
}

}  // namespace
}  // namespace ablate
