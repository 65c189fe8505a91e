#include "kernels/attention/variants.h"

#include <cmath>
#include <limits>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Variants, PermanentNamesInTheOrderOfTheDocs) {
  std::vector<std::string> names;
  for (const AttentionVariant& v : AttentionVariants()) names.emplace_back(v.name);
  EXPECT_THAT(names, ElementsAre("softmax", "ssmax", "ssmax_bias", "ssmax_fixed", "lssa", "lssar", "cosine_softmax",
                                 "softmax_sharpened", "sigmoid", "sigmoid_sharpened", "relu", "relu_squared"));
}

TEST(Variants, EveryRowIsValidFindableAndDistinct) {
  for (const AttentionVariant& v : AttentionVariants()) {
    EXPECT_TRUE(ValidateAttentionSpec(v.spec).ok()) << v.name;
    EXPECT_EQ(FindAttentionVariant(v.name), &v);
    EXPECT_FALSE(v.summary.empty());
    EXPECT_EQ(v.spec.transform, ScoreTransform::kNone) << "attention.transform has no default by variant";
    for (const AttentionVariant& other : AttentionVariants()) {
      EXPECT_EQ(other.spec == v.spec, &other == &v) << v.name << " " << other.name;
    }
  }
  EXPECT_EQ(FindAttentionVariant("nonesuch"), nullptr);
}

TEST(Variants, RowsSayWhatThePapersSay) {
  const AttentionSpec& lssar = FindAttentionVariant("lssar")->spec;
  EXPECT_EQ(lssar.qk_norm, QkNorm::kL2);
  EXPECT_EQ(lssar.scale, ScoreScale::kLogDLogN);
  EXPECT_EQ(lssar.activation, Activation::kSoftplus);
  EXPECT_EQ(lssar.sharpen_p, 15.0);
  EXPECT_EQ(lssar.sharpen_offset, 1.0);
  EXPECT_EQ(lssar.offset_free_rows, 3);
  // lssa is lssar without its second stage; the control differs from lssa by the activation alone.
  AttentionSpec spec = lssar;
  spec.sharpen_p.reset();
  EXPECT_TRUE(spec == FindAttentionVariant("lssa")->spec);
  spec.activation = Activation::kExp;
  EXPECT_TRUE(spec == FindAttentionVariant("cosine_softmax")->spec);
  EXPECT_EQ(FindAttentionVariant("sigmoid")->spec.logit_bias, LogitBias::kNegLogN);
  EXPECT_EQ(FindAttentionVariant("sigmoid")->spec.normalisation, Normalisation::kNone);
  EXPECT_EQ(FindAttentionVariant("relu")->spec.normalisation, Normalisation::kCount);
  EXPECT_TRUE(FindAttentionVariant("ssmax_bias")->spec.has_learned_bias());
  EXPECT_FALSE(FindAttentionVariant("ssmax")->spec.has_learned_bias());
  EXPECT_TRUE(FindAttentionVariant("ssmax")->spec.has_learned_scale());
}

TEST(Variants, GrowingScalesAreThoseWithLogN) {
  for (const std::string& name : ScoreScaleNames()) {
    const bool grows = name.find("log_n") != std::string::npos || name.find("ssmax") == 0;
    EXPECT_EQ((AttentionSpec{.scale = *ParseScoreScale(name)}.has_growing_scale()), grows) << name;
    EXPECT_EQ((AttentionSpec{.scale = *ParseScoreScale(name)}.has_constant()), name.find("constant") == 0) << name;
  }
}

template <class Enum, class Parse>
void RoundTrip(const std::vector<std::string>& names, Parse parse) {
  std::set<std::string> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::optional<Enum> value = parse(names[i]);
    ASSERT_TRUE(value.has_value()) << names[i];
    EXPECT_EQ(static_cast<size_t>(*value), i) << "not in declaration order: " << names[i];
    EXPECT_EQ(Name(*value), names[i]);
    EXPECT_TRUE(seen.insert(names[i]).second);
  }
  EXPECT_EQ(parse("").has_value(), false);
  EXPECT_EQ(parse("EXP").has_value(), false);
}

TEST(Variants, EnumNamesRoundTrip) {
  RoundTrip<QkNorm>(QkNormNames(), ParseQkNorm);
  RoundTrip<ScoreScale>(ScoreScaleNames(), ParseScoreScale);
  RoundTrip<Activation>(ActivationNames(), ParseActivation);
  RoundTrip<Normalisation>(NormalisationNames(), ParseNormalisation);
  RoundTrip<LogitBias>(LogitBiasNames(), ParseLogitBias);
  RoundTrip<ScoreTransform>(ScoreTransformNames(), ParseScoreTransform);
  EXPECT_THAT(ScoreTransformNames(), ElementsAre("none", "inverted", "recentred"));
  EXPECT_EQ(ScoreScaleNames().size(), 10u);
  EXPECT_EQ(ActivationNames().size(), 7u);
}

TEST(Variants, InvalidSpecsNameTheirAxis) {
  const auto message = [](const AttentionSpec& spec) {
    const absl::Status status = ValidateAttentionSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message({.normalisation = Normalisation::kCount, .sharpen_p = 3.0}), HasSubstr("attention.p"));
  EXPECT_THAT(message({.normalisation = Normalisation::kNone, .sharpen_p = 3.0}), HasSubstr("l1"));
  EXPECT_THAT(message({.sharpen_p = 0.5}), HasSubstr("attention.p is 0.5"));
  EXPECT_THAT(message({.sharpen_p = std::nan("")}), HasSubstr("attention.p"));
  EXPECT_THAT(message({.sharpen_p = std::numeric_limits<double>::infinity()}), HasSubstr("attention.p"));
  EXPECT_THAT(message({.sharpen_p = 3.0, .sharpen_offset = -1}), HasSubstr("attention.offset is -1"));
  EXPECT_THAT(message({.offset_free_rows = -1}), HasSubstr("attention.offset_free_rows"));
  EXPECT_THAT(message({.scale = ScoreScale::kConstant, .scale_constant = std::nan("")}),
              HasSubstr("attention.scale_constant"));
  EXPECT_THAT(message({.scale = ScoreScale::kConstantLogN, .scale_constant = std::nan("")}),
              HasSubstr("attention.scale_constant"));
  EXPECT_THAT(message({.scale_clamp = -1}), HasSubstr("eval.attention.scale_clamp is to a length of -1"));
  EXPECT_THAT(message({.sharpen_clamp = -2}), HasSubstr("eval.attention.sharpen_clamp is to a length of -2"));
  EXPECT_TRUE(ValidateAttentionSpec({.sharpen_p = 2.5, .sharpen_offset = 0.5}).ok());
}

}  // namespace
}  // namespace ablate
