// The prompt to the letter, exact lengths, places of the key, and what counts as the answer.
#include "worker/trainer/passkey_text.h"

#include <set>

#include "experiments/eval_tasks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

const ByteTokenizer kBytes;

std::string Text(const absl::StatusOr<std::vector<int32_t>>& tokens) {
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return tokens.ok() ? kBytes.Decode(*tokens) : "";
}

TEST(PasskeyTextTest, TheFullPromptIsTheOneOfThePapers) {
  const PasskeyText full(PasskeyPrompt::kFull, kBytes);
  const std::string instruction =
      "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will quiz you "
      "about "
      "the important information there.\n";
  const std::string statement = "\nThe pass key is 12345. Remember it. 12345 is the pass key.\n";
  const std::string question = "\nWhat is the pass key? The pass key is";
  EXPECT_EQ(full.least_prompt_tokens(), static_cast<int>((instruction + statement + question).size()));
  EXPECT_EQ(LeastPasskeyLength(/*full_prompt=*/true, 1), full.least_prompt_tokens() + 10);  // what planning refuses
  EXPECT_EQ(full.least_document_tokens(), full.least_prompt_tokens() + 8);
  EXPECT_EQ(Text(full.Prompt({12345, 0.5}, full.least_prompt_tokens())), instruction + statement + question);
  // 183 tokens of filler: a place of 0.5 is after 92 of them.
  const std::string round = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";
  ASSERT_EQ(round.size(), 89u);
  EXPECT_EQ(Text(full.Prompt({12345, 0.5}, full.least_prompt_tokens() + 183)),
            instruction + round + " Th" + statement + round + " T" + question);
}

TEST(PasskeyTextTest, TheShortPromptFitsASmallModel) {
  const PasskeyText brief(PasskeyPrompt::kShort, kBytes);
  EXPECT_LE(brief.least_document_tokens(), 80);
  EXPECT_EQ(Text(brief.Prompt({7, 0}, 62)), "\nThe pass key is 7.\nThe \nWhat is the pass key? The pass key is");
  EXPECT_EQ(Text(brief.Document({7, 0.999}, 71)),
            "The grass\nThe pass key is 7.\n\nWhat is the pass key? The pass key is 7.\n");
}

TEST(PasskeyTextTest, EveryPromptHasTheTokensAskedForAndEveryPlaceIsReached) {
  for (const PasskeyPrompt form : {PasskeyPrompt::kFull, PasskeyPrompt::kShort}) {
    const PasskeyText text(form, kBytes);
    const PhiloxStream stream(5, "test");
    std::set<size_t> places;
    for (uint64_t i = 0; i < 200; ++i) {
      const PasskeyDraw draw = DrawPasskey(stream, i);
      const int tokens = text.least_document_tokens() + 4;
      const auto document = text.Document(draw, tokens);
      ASSERT_TRUE(document.ok());
      EXPECT_EQ(static_cast<int>(document->size()), tokens);
      if (draw.key >= 10000) places.insert(kBytes.Decode(*document).find("\nThe pass key is"));
      EXPECT_EQ(text.Prompt(draw, 1000)->size(), 1000u);
    }
    EXPECT_EQ(places.size(), 5u);  // 4 tokens of filler: 0 to 4 before the key
  }
}

TEST(PasskeyTextTest, KeysAndPlacesAreUniformAndOfTheirIndexAlone) {
  const PhiloxStream stream(3, "test");
  int least = kLargestPasskey, most = 0;
  double keys = 0, places = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    const PasskeyDraw draw = DrawPasskey(stream, i);
    least = std::min(least, draw.key);
    most = std::max(most, draw.key);
    keys += draw.key / 20000.0;
    places += draw.place / 20000.0;
    ASSERT_TRUE(draw.place >= 0 && draw.place < 1);
  }
  EXPECT_GE(least, 1);
  EXPECT_LT(least, 20);
  EXPECT_LE(most, 50000);
  EXPECT_GT(most, 49980);
  EXPECT_NEAR(keys, 25000.5, 500);  // 5 standard errors
  EXPECT_NEAR(places, 0.5, 0.011);
  EXPECT_EQ(DrawPasskey(stream, 17).key, DrawPasskey(PhiloxStream(3, "test"), 17).key);
  EXPECT_NE(DrawPasskey(stream, 17).key, DrawPasskey(PhiloxStream(4, "test"), 17).key);
}

TEST(PasskeyTextTest, WhatDoesNotFitIsRefused) {
  const PasskeyText text(PasskeyPrompt::kFull, kBytes);
  const auto short_one = text.Prompt({1, 0}, text.least_prompt_tokens() - 1);
  EXPECT_EQ(short_one.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(short_one.status().message()), HasSubstr("without any filler"));
  for (const PasskeyDraw& draw :
       {PasskeyDraw{0, 0}, PasskeyDraw{50001, 0}, PasskeyDraw{1, 1.0}, PasskeyDraw{1, -0.1}}) {
    EXPECT_FALSE(text.Prompt(draw, 1000).ok());
  }
}

TEST(FirstIntegerTest, TakesTheFirstRunOfDigits) {
  EXPECT_EQ(FirstInteger("12345"), 12345);
  EXPECT_EQ(FirstInteger(" 12345."), 12345);
  EXPECT_EQ(FirstInteger("12345abc"), 12345);
  EXPECT_EQ(FirstInteger("the key: 12345 6"), 12345);
  EXPECT_EQ(FirstInteger("12,345"), 12);
  EXPECT_EQ(FirstInteger("0123"), 123);
  EXPECT_EQ(FirstInteger("-7"), 7);
  EXPECT_EQ(FirstInteger("1\n2"), 1);
  EXPECT_EQ(FirstInteger("\xff 9"), 9);
  EXPECT_EQ(FirstInteger("abc"), std::nullopt);
  EXPECT_EQ(FirstInteger(""), std::nullopt);
  EXPECT_EQ(FirstInteger("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(FirstInteger("9223372036854775808"), std::nullopt);
}

TEST(TokenizerTest, BytesAreTokensAndFilesMustFitTheData) {
  EXPECT_EQ(kBytes.Encode("a\xff"), (std::vector<int32_t>{97, 255}));
  EXPECT_EQ(kBytes.Decode({97, -1, 300, 255}), "a\xff");
  EXPECT_TRUE(OpenTokenizer(DataFormat::kText, {}).ok());
  EXPECT_THAT(std::string(OpenTokenizer(DataFormat::kText, {"vocab.bpe"}).status().message()),
              HasSubstr("leave it out"));
  const auto none = OpenTokenizer(DataFormat::kTokenShards, {});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("tokenizer: [encoder.json, vocab.bpe]"));
}

}  // namespace
}  // namespace ablate
