#include "experiments/axes.h"

#include <cmath>

#include "experiments/attention_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

v1::Configuration Config(std::initializer_list<std::pair<std::string, std::string>> settings) {
  v1::Configuration config;
  for (const auto& [axis, text] : settings) {
    v1::Setting* setting = config.add_settings();
    setting->set_axis(axis);
    const auto value = ParseSetting(axis, text);
    EXPECT_TRUE(value.ok()) << value.status();
    if (value.ok()) *setting->mutable_value() = *value;
  }
  return config;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(Axes, EveryRowIsWellFormedAndItsDefaultPassesItsOwnCheck) {
  std::set<std::string_view> names;
  for (const Axis& axis : Axes()) {
    EXPECT_TRUE(names.insert(axis.name).second) << axis.name;
    EXPECT_FALSE(axis.summary.empty()) << axis.name;
    EXPECT_EQ(FindAxis(axis.name), &axis);
    if (axis.default_value.kind_case() != v1::Value::KIND_NOT_SET) {
      EXPECT_TRUE(CheckSetting(axis.name, axis.default_value).ok()) << CheckSetting(axis.name, axis.default_value);
    }
    EXPECT_EQ(axis.scope == AxisScope::kEvaluation, axis.name.substr(0, 5) == "eval.") << axis.name;
  }
  EXPECT_EQ(FindAxis("attention.q"), nullptr);
}

TEST(Axes, EveryPresetAndVariantIsAValidConfiguration) {
  for (const std::string& preset : FindAxis("model.preset")->choices) {
    for (const std::string& variant : FindAxis("attention.variant")->choices) {
      const auto config = Config({{"model.preset", preset}, {"attention.variant", variant}});
      EXPECT_TRUE(CheckConfiguration(config).ok()) << preset << " " << variant << " " << CheckConfiguration(config);
      const auto spec = AttentionSpecFrom(ConfigView(config));
      ASSERT_TRUE(spec.ok());
      AttentionSpec expected = FindAttentionVariant(variant)->spec;
      expected.train_length = static_cast<int>(ConfigView(config).Integer("train.length"));
      EXPECT_EQ(*spec, expected) << variant;
    }
  }
}

TEST(Axes, PresetsAreThoseOfTheDesign) {
  const struct {
    const char* name;
    int layers, width, heads;
  } presets[] = {{"tiny", 4, 128, 4},
                 {"small", 6, 384, 6},
                 {"gpt2-45m", 6, 512, 8},
                 {"gpt2-124m", 12, 768, 12},
                 {"gpt2-355m", 24, 1024, 16}};
  for (const auto& preset : presets) {
    const ConfigView view(Config({{"model.preset", preset.name}}));
    EXPECT_EQ(view.Integer("model.layers"), preset.layers);
    EXPECT_EQ(view.Integer("model.width"), preset.width);
    EXPECT_EQ(view.Integer("model.heads"), preset.heads);
  }
  const ConfigView paper(Config({{"model.preset", "gpt2-124m"}}));
  EXPECT_EQ(paper.Integer("train.batch") * paper.Integer("train.length"), 524288);
  EXPECT_EQ(paper.Integer("train.steps"), 18865);
  // GPT-2 small without learned positions, and with.
  EXPECT_EQ(ParameterCount(paper, 50257), 124439808 - 1024 * 768);
  EXPECT_EQ(ParameterCount(ConfigView(Config({{"model.preset", "gpt2-124m"}, {"model.position", "learned"}})), 50257),
            124439808);
  EXPECT_EQ(ConfigView({}).Text("model.preset"), "tiny");
}

TEST(Axes, NumbersInAllTheirSpellingsAreOneValue) {
  for (const char* text : {"1e-4", "1E-4", "0.0001", "+1e-4", "1.0e-04", ".0001"}) {
    const auto value = ParseSetting("train.learning_rate", text);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->number(), 0.0001) << text;
  }
  EXPECT_EQ(ParseSetting("attention.p", "15.0")->number(), 15);
  EXPECT_EQ(ParseSetting("attention.p", "none")->text(), "none");
  EXPECT_EQ(ParseSetting("eval.ntk", "on")->text(), "dynamic");
  EXPECT_EQ(ParseSetting("eval.ntk", "False")->text(), "off");
  for (const char* text : {"", "nan", "inf", "-inf", "1e", "1 2", "0x10", "1e999", "+-1", "1,5"}) {
    EXPECT_FALSE(ParseSetting("train.learning_rate", text).ok()) << text;
  }
}

TEST(Axes, OptionsOfOtherTasksAreLeftOut) {
  const auto eval = Config({{"eval.passkey.trials", "20"},
                            {"eval.target_spans", "8"},
                            {"eval.mqar.sequences", "256"},
                            {"eval.attention.p", "3"},
                            {"eval.batch_tokens", "512"}});
  EXPECT_EQ(ToJson(ActingFor("loss", {}, eval)),
            R"({"eval.attention.p":3,"eval.batch_tokens":512,"eval.target_spans":8})");
  EXPECT_EQ(ToJson(ActingFor("passkey", {}, eval)),
            R"({"eval.attention.p":3,"eval.batch_tokens":512,"eval.passkey.trials":20,"eval.task":"passkey"})");
  EXPECT_EQ(ToJson(ActingFor("attention_map", {}, eval)), R"({"eval.attention.p":3,"eval.task":"attention_map"})");
  // What is a default depends on the preset.
  EXPECT_EQ(
      ActingFor("loss", Config({{"model.preset", "gpt2-124m"}}), Config({{"eval.target_spans", "64"}})).settings_size(),
      1);
  for (const Axis& axis : Axes()) {
    if (axis.scope != AxisScope::kEvaluation) continue;
    v1::Configuration one;
    one.add_settings()->set_axis(std::string(axis.name));
    *one.mutable_settings(0)->mutable_value() = NumberValue(7);
    int tasks = 0;
    for (const std::string& task : FindAxis("eval.task")->choices) {
      const v1::Configuration acting = ActingFor(task, {}, one);
      for (const v1::Setting& setting : acting.settings()) tasks += setting.axis() == axis.name;
    }
    EXPECT_GE(tasks, 1) << axis.name;
  }
  // Without a mixture it has no prompt.
  EXPECT_EQ(ToJson(Canonical(Config({{"data.mixture_prompt", "full"}}))), "{}");
  EXPECT_EQ(Canonical(Config({{"data.mixture_prompt", "full"}, {"data.mixture", "0.1"}})).settings_size(), 2);
}

TEST(Axes, RefusalsSayWhatWasExpectedAndTheNearestName) {
  EXPECT_THAT(Message(ParseSetting("train.learning_rate", "fast").status()),
              HasSubstr("expected a number from 0 to 10 for train.learning_rate, found \"fast\""));
  EXPECT_THAT(Message(ParseSetting("train.learning_rate", "1e-4", true).status()), HasSubstr("without the quotes"));
  EXPECT_THAT(Message(ParseSetting("train.steps", "1.5").status()), HasSubstr("expected a whole number"));
  EXPECT_THAT(Message(ParseSetting("attention.p", "0.5").status()), HasSubstr("or none for attention.p, found 0.5"));
  EXPECT_THAT(Message(ParseSetting("attention.variant", "sofmax").status()), HasSubstr("did you mean \"softmax\"?"));
  EXPECT_THAT(Message(ParseSetting("atention.variant", "softmax").status()),
              HasSubstr("did you mean \"attention.variant\"?"));
  EXPECT_THAT(Message(ParseSetting("train.lr", "1").status()), HasSubstr("train.learning_rate"));
  EXPECT_THAT(Message(ParseSetting("zzz", "1").status()), HasSubstr("unknown axis \"zzz\"; axes are named model.*"));
  EXPECT_FALSE(CheckSetting("attention.p", NumberValue(std::nan(""))).ok());
  EXPECT_FALSE(CheckSetting("attention.p", FlagValue(true)).ok());
  EXPECT_FALSE(CheckSetting("attention.p", v1::Value()).ok());
}

TEST(ConfigView, TakesTheSettingThenTheVariantThenThePresetThenTheTable) {
  const ConfigView view(Config({{"attention.variant", "lssar"}, {"model.preset", "small"}, {"model.heads", "12"}}));
  EXPECT_EQ(view.Integer("model.heads"), 12);
  EXPECT_EQ(view.Integer("model.width"), 384);
  EXPECT_EQ(view.Number("attention.p"), 15);
  EXPECT_EQ(view.Text("attention.activation"), "softplus");
  EXPECT_EQ(view.Number("train.beta2"), 0.95);
  EXPECT_TRUE(view.Has("attention.p"));
  const ConfigView off(Config({{"attention.variant", "lssar"}, {"attention.p", "none"}}));
  EXPECT_FALSE(off.Has("attention.p"));
  EXPECT_TRUE(std::isnan(off.Number("attention.p")));
  EXPECT_FALSE(AttentionSpecFrom(off)->sharpen_p.has_value());
  EXPECT_FALSE(off.Has("eval.attention.p"));
  EXPECT_EQ(off.Get("eval.attention.p").kind_case(), v1::Value::KIND_NOT_SET);
}

TEST(ConfigView, EvaluationOverridesAttentionAtEvaluationOnly) {
  const auto training = Config({{"attention.variant", "lssar"}});
  EXPECT_EQ(AttentionSpecFrom(ConfigView(training, Config({{"eval.attention.p", "3"}})))->sharpen_p, 3.0);
  EXPECT_EQ(AttentionSpecFrom(ConfigView(training, Config({{"eval.attention.p", "none"}})))->sharpen_p, std::nullopt);
  EXPECT_EQ(AttentionSpecFrom(ConfigView(training, Config({{"eval.attention.scale", "log_d"}})))->scale,
            ScoreScale::kLogD);
  EXPECT_EQ(AttentionSpecFrom(ConfigView(training))->sharpen_p, 15.0);
}

TEST(ConfigView, ClampsAreToTheTrainingLengthAtEvaluationOnly) {
  const auto training = Config({{"attention.variant", "lssar"}, {"train.length", "100"}});
  const AttentionSpec trained = *AttentionSpecFrom(ConfigView(training));
  EXPECT_EQ(trained.scale_clamp, 0);
  EXPECT_EQ(trained.sharpen_clamp, 0);
  AttentionSpec spec = *AttentionSpecFrom(ConfigView(training, Config({{"eval.attention.scale_clamp", "on"}})));
  EXPECT_EQ(spec.scale_clamp, 100);
  EXPECT_EQ(spec.sharpen_clamp, 0);
  spec = *AttentionSpecFrom(ConfigView(training, Config({{"eval.attention.sharpen_clamp", "true"}})));
  EXPECT_EQ(spec.scale_clamp, 0);
  EXPECT_EQ(spec.sharpen_clamp, 100);
}

TEST(ConfigView, DefaultsGiveWayToWhatWasSet) {
  const ConfigView shorter(Config({{"train.steps", "150"}}));
  EXPECT_EQ(shorter.Integer("train.warmup_steps"), 15);
  const ConfigView paper(Config({{"model.preset", "gpt2-124m"}, {"train.batch", "12"}}));
  EXPECT_EQ(paper.Integer("train.accumulation"), 4);
}

TEST(ConfigView, SettingsThatNoCheckPassedAreNotRead) {
  v1::Configuration bad;
  v1::Setting* setting = bad.add_settings();
  setting->set_axis("train.steps");
  setting->mutable_value()->set_text("many");
  bad.add_settings()->set_axis("no.such.axis");
  EXPECT_EQ(ConfigView(bad).Integer("train.steps"), 600);
}

TEST(Canonical, SortsResolvesAndLeavesDefaultsOut) {
  auto config = Config({{"train.steps", "100"},
                        {"attention.variant", "lssar"},
                        {"attention.p", "15"},
                        {"model.preset", "tiny"},
                        {"train.learning_rate", "1e-3"},
                        {"train.warmup_steps", "10"},
                        {"train.steps", "200"}});
  EXPECT_EQ(ToJson(Canonical(config)), R"({"attention.variant":"lssar","train.steps":200,"train.warmup_steps":10})");
  EXPECT_EQ(ToJson(Canonical(Config({{"model.preset", "small"}, {"model.layers", "6"}}))),
            R"({"model.preset":"small"})");
  EXPECT_EQ(ToJson(Canonical(Config({{"eval.attention.p", "none"}}))), R"({"eval.attention.p":"none"})");
  EXPECT_EQ(ToJson(Canonical({})), "{}");
}

TEST(Canonical, LeavesOutWhatCannotAct) {
  EXPECT_EQ(ToJson(Canonical(Config({{"attention.scale_constant", "2"},
                                     {"attention.ssmax_init", "0.2"},
                                     {"train.min_learning_rate_ratio", "0"}}))),
            R"({"train.min_learning_rate_ratio":0})");
  EXPECT_EQ(ToJson(Canonical(Config({{"attention.scale_constant", "2"}, {"attention.scale", "constant"}}))),
            R"({"attention.scale":"constant","attention.scale_constant":2})");
  EXPECT_EQ(ToJson(Canonical(Config({{"attention.scale_constant", "2"}, {"attention.scale", "constant_log_n"}}))),
            R"({"attention.scale":"constant_log_n","attention.scale_constant":2})");
  EXPECT_EQ(ToJson(Canonical(Config({{"eval.attention.scale_clamp", "off"}, {"eval.attention.sharpen_clamp", "on"}}))),
            R"({"eval.attention.sharpen_clamp":true})");
  EXPECT_EQ(
      ToJson(Canonical(Config({{"attention.ssmax_init", "0.2"},
                               {"attention.variant", "ssmax"},
                               {"train.schedule", "constant"},
                               {"train.min_learning_rate_ratio", "0"},
                               {"model.position", "none"},
                               {"model.rope_base", "500"}}))),
      R"({"attention.ssmax_init":0.2,"attention.variant":"ssmax","model.position":"none","train.schedule":"constant"})");
}

TEST(Canonical, IsIdempotentAndIndifferentToOrder) {
  const auto a =
      Config({{"attention.variant", "ssmax"}, {"attention.p", "3"}, {"eval.ntk", "on"}, {"train.steps", "5"}});
  const auto b =
      Config({{"train.steps", "5"}, {"eval.ntk", "dynamic"}, {"attention.p", "3.0"}, {"attention.variant", "ssmax"}});
  EXPECT_EQ(ToJson(Canonical(a)), ToJson(Canonical(b)));
  EXPECT_EQ(ToJson(Canonical(Canonical(a))), ToJson(Canonical(a)));
}

// Permanent: this text is hashed into every content key that users' databases hold.
TEST(Json, Golden) {
  v1::Configuration config =
      Config({{"train.learning_rate", "1e-4"}, {"attention.p", "2.5"}, {"attention.variant", "lssar"}});
  v1::Setting* odd = config.add_settings();
  odd->set_axis("a\"b\\c\n");
  *odd->mutable_value() = FlagValue(true);
  EXPECT_EQ(ToJson(config),
            "{\"a\\\"b\\\\c\\u000a\":true,\"attention.p\":2.5,\"attention.variant\":\"lssar\",\"train.learning_rate\":"
            "0.0001}");
  const auto back = ConfigurationFromJson(ToJson(config));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ToJson(*back), ToJson(config));
}

TEST(Json, RefusesWhatIsNoConfiguration) {
  for (const char* text : {"", "[]", "{", "{\"a\":[]}", "{\"a\":null}", "nonsense", "{\"a\":{}}"}) {
    EXPECT_FALSE(ConfigurationFromJson(text).ok()) << text;
  }
}

TEST(Label, LeavesTheGroupOutWhereTheLastPartIsAlone) {
  EXPECT_EQ(Label(Config({{"attention.variant", "lssar"}, {"attention.p", "3"}})), "variant=lssar p=3");
  EXPECT_EQ(Label(Config({{"attention.p", "15"}, {"eval.attention.p", "3"}})), "attention.p=15 eval.attention.p=3");
  EXPECT_EQ(Label({}), "default");
}

TEST(CheckEvaluationLength, KnowsTheLongest) {
  const ConfigView rope(Config({{"train.length", "100"}}));
  EXPECT_TRUE(CheckEvaluationLength(rope, 1).ok());
  EXPECT_TRUE(CheckEvaluationLength(rope, 1600).ok());
  EXPECT_THAT(Message(CheckEvaluationLength(rope, 0)), HasSubstr("length of 0"));
  EXPECT_THAT(Message(CheckEvaluationLength(rope, 1601)), HasSubstr("length of 1601 tokens: expected 1 to 1600"));
  const ConfigView learned(Config({{"train.length", "100"}, {"model.position", "learned"}}));
  EXPECT_TRUE(CheckEvaluationLength(learned, 100).ok());
  EXPECT_THAT(Message(CheckEvaluationLength(learned, 101)), HasSubstr("learned positions end at train.length 100"));
  EXPECT_THAT(Message(CheckEvaluationLength(learned, 1601)), HasSubstr("expected 1 to 1600"));
  const ConfigView alibi(Config({{"train.length", "100"}, {"model.position", "alibi"}}));
  EXPECT_TRUE(CheckEvaluationLength(alibi, 1600).ok());
}

TEST(CheckConfiguration, FindsWhatDoesNotFitTogether) {
  const struct {
    v1::Configuration training, eval;
    const char* message;
  } cases[] = {
      {Config({{"model.heads", "3"}}), {}, "not divisible by model.heads 3"},
      {Config({{"model.width", "12"}}), {}, "even head dimension"},
      {Config({{"train.steps", "10"}, {"train.warmup_steps", "11"}}), {}, "more than train.steps"},
      {Config({{"train.accumulation", "3"}}), {}, "not divisible by train.accumulation"},
      {Config({{"attention.variant", "relu"}, {"attention.p", "3"}}), {}, "attention.normalisation"},
      {Config({{"attention.variant", "sigmoid"}}), Config({{"eval.attention.p", "3"}}), "attention.normalisation"},
      {{}, Config({{"eval.attention.scale", "ssmax"}}), "learned parameters"},
      {{}, Config({{"eval.attention.scale", "constant"}}), "needs eval.attention.scale_constant"},
      {Config({{"attention.scale", "constant"}}), Config({{"eval.attention.scale", "constant_log_n"}}),
       "eval.attention.scale constant_log_n needs eval.attention.scale_constant"},
      {Config({{"eval.attention.scale_clamp", "on"}}), {}, "acts at evaluation only"},
      {Config({{"eval.ntk", "on"}}), {}, "acts at evaluation only"},
      {{}, Config({{"attention.p", "3"}}), "shapes training"},
      {Config({{"model.width", "8"}}), Config({{"eval.ntk", "on"}}), "head dimension above 2"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Message(CheckConfiguration(c.training, c.eval)), HasSubstr(c.message));
  }
  EXPECT_TRUE(
      CheckConfiguration(Config({{"attention.variant", "ssmax_bias"}}), Config({{"eval.attention.scale", "ssmax"}}))
          .ok());
}

}  // namespace
}  // namespace ablate
