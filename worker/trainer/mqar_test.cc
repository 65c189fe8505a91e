// Sequences of associative recall: the rules on hand-checked ones, what they depend on, and what is refused.
#include "worker/trainer/mqar.h"

#include <map>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Sequence {
  std::vector<int32_t> tokens, targets;
  bool operator==(const Sequence&) const = default;
};

MqarMaker Maker(int64_t vocabulary, int64_t pairs, int64_t length, uint64_t seed = 1,
                std::string_view name = kMqarTraining) {
  auto maker = MqarMaker::Make(vocabulary, pairs, length, seed, name);
  EXPECT_TRUE(maker.ok()) << maker.status();
  return *std::move(maker);
}

Sequence Of(const MqarMaker& maker, uint64_t sample, int length) {
  const auto size = static_cast<size_t>(length);
  Sequence sequence{std::vector<int32_t>(size, 99), std::vector<int32_t>(size, 99)};
  maker.Fill(sample, sequence.tokens.data(), sequence.targets.data());
  return sequence;
}

// Worked out by hand from the numbers of the streams: Philox itself is checked against Random123's values.
TEST(MqarTest, FollowsTheRulesByHand) {
  const uint64_t seed = 5, sample = 3;
  const PhiloxStream keys(seed, "mqar/keys"), values(seed, "mqar/values"), places(seed, "mqar/places");
  const Sequence made = Of(Maker(7, 2, 11, seed), sample, 11);
  // V = 7: keys 1, 2; values 3 to 6. Two pairs, then three places of two tokens, and a blank.
  const auto key_swap = static_cast<int>(keys.Below(6, 2));
  const int key0 = key_swap == 0 ? 1 : 2, key1 = 3 - key0;
  std::vector<int> rest = {3, 4, 5, 6};
  std::swap(rest[0], rest[values.Below(6, 4)]);
  std::swap(rest[1], rest[1 + values.Below(7, 3)]);
  std::vector<int> at = {4, 6, 8};
  std::swap(at[0], at[places.Below(6, 3)]);
  std::swap(at[1], at[1 + places.Below(7, 2)]);
  Sequence expected{std::vector<int32_t>(11, 0), std::vector<int32_t>(11, -1)};
  expected.tokens[0] = key0;
  expected.tokens[1] = rest[0];
  expected.tokens[2] = key1;
  expected.tokens[3] = rest[1];
  expected.tokens[static_cast<size_t>(at[0])] = key0;
  expected.targets[static_cast<size_t>(at[0])] = rest[0];
  expected.tokens[static_cast<size_t>(at[1])] = key1;
  expected.targets[static_cast<size_t>(at[1])] = rest[1];
  EXPECT_EQ(made, expected);
}

// Names and rules are permanent: they fix every result of this data.
TEST(MqarTest, KeepsItsNumbers) {
  const Sequence made = Of(Maker(16, 3, 14), 0, 14);
  EXPECT_THAT(made.tokens, ElementsAre(1, 11, 7, 12, 5, 13, 5, 0, 1, 0, 7, 0, 0, 0));
  EXPECT_THAT(made.targets, ElementsAre(-1, -1, -1, -1, -1, -1, 13, -1, 11, -1, 12, -1, -1, -1));
}

TEST(MqarTest, PairsThenQueriesAndNothingElse) {
  for (const auto& [vocabulary, pairs, length] : {std::tuple{4, 1, 4}, {5, 1, 5}, {32, 8, 32}, {33, 8, 513}}) {
    const MqarMaker maker = Maker(vocabulary, pairs, length);
    for (uint64_t sample = 0; sample < 50; ++sample) {
      const Sequence made = Of(maker, sample, length);
      std::map<int32_t, int32_t> value_of;
      std::set<int32_t> values;
      for (int j = 0; j < pairs; ++j) {
        const int32_t key = made.tokens[static_cast<size_t>(2 * j)],
                      value = made.tokens[static_cast<size_t>(2 * j + 1)];
        EXPECT_TRUE(key >= 1 && key < vocabulary / 2) << key;
        EXPECT_TRUE(value >= vocabulary / 2 && value < vocabulary) << value;
        EXPECT_TRUE(value_of.emplace(key, value).second);
        EXPECT_TRUE(values.insert(value).second);
      }
      std::set<int32_t> asked;
      for (int i = 0; i < length; ++i) {
        const int32_t token = made.tokens[static_cast<size_t>(i)], target = made.targets[static_cast<size_t>(i)];
        if (i < 2 * pairs || token == 0) {
          EXPECT_EQ(target, -1);
          continue;
        }
        EXPECT_EQ(i % 2, 0);
        EXPECT_EQ(target, value_of.at(token));
        EXPECT_TRUE(asked.insert(token).second) << "asked twice";
      }
      EXPECT_EQ(asked.size(), static_cast<size_t>(pairs));
    }
  }
}

TEST(MqarTest, QueriesAreSpreadOverTheWholeLengthAndKeysOverAllOfThem) {
  const int length = 512;
  const MqarMaker maker = Maker(32, 8, length, length, kMqarTrial);
  std::vector<int> in_eighth(8), asked(16);
  for (uint64_t sample = 0; sample < 2000; ++sample) {
    const Sequence made = Of(maker, sample, length);
    for (int i = 16; i < length; ++i) {
      if (made.targets[static_cast<size_t>(i)] < 0) continue;
      ++in_eighth[static_cast<size_t>((i - 16) * 8 / (length - 16))];
      ++asked[static_cast<size_t>(made.tokens[static_cast<size_t>(i)])];
    }
  }
  // 16,000 queries: 2,000 in each eighth (deviation 42), 1,067 of each key (deviation 23 at most).
  for (const int count : in_eighth) EXPECT_NEAR(count, 2000, 250);
  EXPECT_EQ(asked[0], 0);
  for (size_t key = 1; key < 16; ++key) EXPECT_NEAR(asked[key], 16000 / 15, 150);
}

TEST(MqarTest, DependsOnSeedNameAndSampleAlone) {
  const MqarMaker maker = Maker(64, 8, 64, 1);
  const Sequence fifth = Of(maker, 5, 64);
  for (uint64_t sample = 100; sample-- > 0;) Of(maker, sample, 64);
  EXPECT_EQ(Of(maker, 5, 64), fifth);
  EXPECT_EQ(Of(Maker(64, 8, 64, 1), 5, 64), fifth);
  EXPECT_NE(Of(Maker(64, 8, 64, 2), 5, 64), fifth);
  EXPECT_NE(Of(Maker(64, 8, 64, 1, kMqarTrial), 5, 64), fifth);
  EXPECT_NE(Of(maker, 6, 64), fifth);
  // Pairs are the same at every length of one seed: only the places differ.
  const Sequence longer = Of(Maker(64, 8, 1024, 1), 5, 1024);
  EXPECT_TRUE(std::equal(fifth.tokens.begin(), fifth.tokens.begin() + 16, longer.tokens.begin()));
}

TEST(MqarTest, RefusesWhatDoesNotFit) {
  auto message = [](int64_t vocabulary, int64_t pairs, int64_t length) {
    return std::string(MqarMaker::Make(vocabulary, pairs, length, 1, kMqarTraining).status().message());
  };
  EXPECT_THAT(message(16, 8, 64), HasSubstr("needs 8 keys, but data.mqar.vocabulary 16 has 7; raise it to 18"));
  EXPECT_EQ(message(18, 8, 64), "");
  EXPECT_THAT(message(18, 8, 31), HasSubstr("at least 32 tokens (4 a pair), and this has 31; lower the pairs to 7"));
  EXPECT_EQ(message(18, 8, 32), "");
  EXPECT_THAT(message(64, 0, 32), HasSubstr("0 pairs is none"));
}

}  // namespace
}  // namespace ablate
