#include "experiments/bootstrap.h"

#include <cmath>
#include <random>

#include "experiments/statistics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

double Uniform(std::mt19937_64& engine) { return (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53; }
double Normal(std::mt19937_64& engine) {
  const double radius = std::sqrt(-2 * std::log(Uniform(engine)));
  return radius * std::cos(2 * 3.14159265358979323846 * Uniform(engine));
}

// y = 2 + seed effect + document effect + rest, per target.
std::vector<ScoredDocuments> Crossed(int seeds, int documents, double sd_seed, double sd_document, double sd_rest,
                                     uint64_t random_seed = 1) {
  std::mt19937_64 engine(random_seed);
  std::vector<double> of_document(documents), targets(documents);
  for (int d = 0; d < documents; ++d) {
    of_document[d] = sd_document * Normal(engine);
    targets[d] = 100 + static_cast<double>(engine() % 50);
  }
  std::vector<ScoredDocuments> out(seeds);
  for (ScoredDocuments& seed : out) {
    const double of_seed = sd_seed * Normal(engine);
    seed.targets = targets;
    for (int d = 0; d < documents; ++d) {
      seed.loss_sums.push_back(targets[d] * (2 + of_seed + of_document[d] + sd_rest * Normal(engine)));
    }
  }
  return out;
}

TEST(TwoWay, MeanAndSpreadsAreWhatTheySay) {
  // 2 seeds x 3 documents, by hand: targets 1, 1, 2.
  const std::vector<ScoredDocuments> seeds = {{{1.0, 2.0, 6.0}, {1, 1, 2}}, {{3.0, 2.0, 10.0}, {1, 1, 2}}};
  const auto spread = SpreadBySeedAndDocument(seeds);
  ASSERT_TRUE(spread.ok()) << spread.status();
  EXPECT_DOUBLE_EQ(spread->mean, (9.0 / 4 + 15.0 / 4) / 2);
  EXPECT_DOUBLE_EQ(*spread->sd_seeds, 1.5 / std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(*spread->sd_documents, 1.1547005383792515);  // of 2, 2, 4
  EXPECT_EQ(spread->seeds, 2);
  EXPECT_EQ(spread->documents, 3);
  EXPECT_THAT(spread->note, HasSubstr("approximate: 2 seeds and 3 documents"));
  EXPECT_LE(*spread->low, spread->mean);
  EXPECT_GE(*spread->high, spread->mean);
}

TEST(TwoWay, TheSameInputGivesTheSameBitsAndAnotherSeedOthers) {
  const auto seeds = Crossed(8, 20, 0.1, 0.3, 0.05);
  const auto first = SpreadBySeedAndDocument(seeds), again = SpreadBySeedAndDocument(seeds);
  EXPECT_EQ(first->low, again->low);
  EXPECT_EQ(first->high, again->high);
  const auto other = SpreadBySeedAndDocument(seeds, 0.95, {.seed = 2});
  EXPECT_NE(first->low, other->low);
  EXPECT_NEAR(*first->low, *other->low, 0.1 * (*first->high - *first->low));
}

// The interval's width is about 3.92 sqrt(sd_s^2 / n + sd_d^2 / m + ...): both ways of resampling are there.
TEST(TwoWay, ItSeesSeedsAndDocuments) {
  const auto width = [](const std::vector<ScoredDocuments>& seeds) {
    const auto spread = SpreadBySeedAndDocument(seeds);
    return *spread->high - *spread->low;
  };
  const double by_seed = width(Crossed(30, 30, 0.3, 0, 0.001));
  const double by_document = width(Crossed(30, 30, 0, 0.3, 0.001));
  EXPECT_NEAR(by_seed, 3.92 * 0.3 / std::sqrt(30.0), 0.08);
  EXPECT_NEAR(by_document, 3.92 * 0.3 / std::sqrt(30.0), 0.08);
  const double both = width(Crossed(30, 30, 0.3, 0.3, 0.001, 5));
  EXPECT_GT(both, 1.15 * by_seed);
}

TEST(TwoWay, NothingToResampleGivesNoInterval) {
  auto spread = SpreadBySeedAndDocument(Crossed(1, 5, 0.1, 0.1, 0.1));
  EXPECT_FALSE(spread->low || spread->high || spread->sd_seeds);
  EXPECT_TRUE(spread->sd_documents.has_value());
  EXPECT_THAT(spread->reason, HasSubstr("one seed"));
  spread = SpreadBySeedAndDocument(Crossed(5, 1, 0.1, 0.1, 0.1));
  EXPECT_FALSE(spread->low || spread->sd_documents);
  EXPECT_THAT(spread->reason, HasSubstr("one document"));
  const std::vector<ScoredDocuments> equal(3, {{2.0, 4.0}, {1, 2}});
  EXPECT_THAT(SpreadBySeedAndDocument(equal)->reason, HasSubstr("no variance"));
}

TEST(TwoWay, RefusesOtherDocumentsAndWhatIsNotFinite) {
  auto seeds = Crossed(3, 4, 0.1, 0.1, 0.1);
  seeds[1].targets[2] += 1;
  EXPECT_EQ(SpreadBySeedAndDocument(seeds).status().code(), absl::StatusCode::kInvalidArgument);
  seeds = Crossed(3, 4, 0.1, 0.1, 0.1);
  seeds[1].loss_sums[2] = std::nan("");
  EXPECT_FALSE(SpreadBySeedAndDocument(seeds).ok());
  seeds = Crossed(3, 4, 0.1, 0.1, 0.1);
  seeds[1].loss_sums.pop_back();
  EXPECT_FALSE(SpreadBySeedAndDocument(seeds).ok());
  EXPECT_FALSE(SpreadBySeedAndDocument({}).ok());
  EXPECT_FALSE(SpreadBySeedAndDocument(Crossed(3, 4, 1, 1, 1), 0.95, {.replicates = 10}).ok());
  EXPECT_FALSE(SpreadBySeedAndDocument(Crossed(3, 4, 1, 1, 1), 1.0).ok());
}

TEST(Bca, RefusedBelowTenAndApproximateBelowThirty) {
  std::mt19937_64 engine(3);
  std::vector<double> values;
  for (int n = 1; n <= 40; ++n) {
    values.push_back(std::exp(Normal(engine)));
    const auto interval = BcaMean(values);
    if (n < 10) {
      EXPECT_EQ(interval.status().code(), absl::StatusCode::kFailedPrecondition);
      continue;
    }
    ASSERT_TRUE(interval.ok()) << interval.status();
    EXPECT_EQ(interval->approximate, n < 30);
    EXPECT_LT(interval->low, interval->high);
  }
  // A skewed sample: BCa reaches farther up than down.
  const double mean = Summarize(values)->mean;
  const auto interval = BcaMean(values);
  EXPECT_GT(interval->high - mean, mean - interval->low);
  EXPECT_EQ(BcaMean(std::vector<double>(12, 1.5)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Bca, OfNormalValuesItIsCloseToTheTInterval) {
  std::mt19937_64 engine(4);
  std::vector<double> values;
  for (int i = 0; i < 200; ++i) values.push_back(Normal(engine));
  const auto interval = BcaMean(values, 0.95, {.replicates = 9999});
  const auto t = Summarize(values);
  EXPECT_NEAR(interval->low, *t->low, 0.02);
  EXPECT_NEAR(interval->high, *t->high, 0.02);
}

}  // namespace
}  // namespace ablate
