// The rule book's bars (docs/statistics.md) by simulation, with fixed seeds. Everything that is judged comes out of the
// product's own functions: Summarize, the tables' Paired, NextStep, JudgeClaims, SpreadBySeedAndDocument. Must not
// compute a statistic itself. Prints a table; exit 1 where a bar is missed.
//
//   statistics_simulation                 the full number of repeats; its output is kept in docs/simulations.md
//   statistics_simulation --fast          a few seconds; bars widened by four standard errors of its repeats
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "experiments/bootstrap.h"
#include "experiments/claims/progress.h"
#include "experiments/claims/testing.h"
#include "experiments/statistics.h"
#include "glog/logging.h"

ABSL_FLAG(bool, fast, false, "few repeats, bars widened accordingly");
ABSL_FLAG(uint64_t, seed, 1, "of all random numbers");

namespace ablate {
namespace {

using namespace claims_testing;  // NOLINT

// Box-Muller: std::normal_distribution differs between standard libraries.
class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : engine_(seed * 1000003 + stream) {}
  double Uniform() { return (static_cast<double>(engine_() >> 11) + 0.5) * 0x1p-53; }
  double Normal() {
    if (spare_) {
      spare_ = false;
      return next_;
    }
    const double radius = std::sqrt(-2 * std::log(Uniform())), angle = 2 * std::numbers::pi * Uniform();
    spare_ = true;
    next_ = radius * std::sin(angle);
    return radius * std::cos(angle);
  }

 private:
  std::mt19937_64 engine_;
  bool spare_ = false;
  double next_ = 0;
};

// One line of the output: a rate in per cent, and the bar it is held to.
class Report {
 public:
  explicit Report(bool fast) : fast_(fast) {}

  void Head(const std::string& text) { std::cout << "\n" << text << "\n"; }

  // A bar of [low, high] per cent; without one the rate is reported only.
  void Rate(const std::string& what, int64_t hits, int64_t repeats, double low = 0, double high = 100) {
    const double rate = 100.0 * static_cast<double>(hits) / static_cast<double>(repeats);
    const double error = 100 * std::sqrt(std::max(rate * (100 - rate), 1.0) / 1e4 / static_cast<double>(repeats));
    const bool gated = low > 0 || high < 100;
    const double slack = fast_ ? 4 * error : 0;
    const bool passed = rate >= low - slack && rate <= high + slack;
    std::string bar = "reported";
    if (gated) {
      bar = low > 0 && high < 100 ? absl::StrFormat("bar %.1f to %.1f", low, high)
            : low > 0             ? absl::StrFormat("bar over %.1f", low)
                                  : absl::StrFormat("bar up to %.1f", high);
      absl::StrAppend(&bar, passed ? ": met" : ": MISSED");
      if (!passed) ++missed_;
    }
    std::cout << absl::StrFormat("  %-76s %6.2f %%  (se %.2f, %d)  %s\n", what, rate, error, repeats, bar);
  }
  void Number(const std::string& what, double value) { std::cout << absl::StrFormat("  %-76s %8.3f\n", what, value); }
  int missed() const { return missed_; }

 private:
  bool fast_;
  int missed_ = 0;
};

template <typename T>
T Must(absl::StatusOr<T> value) {
  CHECK(value.ok()) << value.status();
  return *std::move(value);
}

// ---- 1: coverage of the intervals of one arm ----

void Coverage(Report& report, uint64_t seed, int64_t repeats) {
  report.Head("Student-t interval of a mean, 95 % (rule book, part 1)");
  struct Law {
    std::string name;
    std::function<double(Random&)> draw;
    double mean;
    bool gated;
  };
  const std::vector<Law> laws = {
      {"normal", [](Random& r) { return r.Normal(); }, 0, true},
      {"skewed: exponential", [](Random& r) { return -std::log(r.Uniform()); }, 1, false},
      {"skewed: lognormal, sigma 1", [](Random& r) { return std::exp(r.Normal()); }, std::exp(0.5), false},
      {"heavy tails: t with 3 df",
       [](Random& r) {
         const double z = r.Normal(), a = r.Normal(), b = r.Normal(), c = r.Normal();
         return z / std::sqrt((a * a + b * b + c * c) / 3);
       },
       0, false},
      {"outliers: one in twenty with ten times the sd",
       [](Random& r) { return (r.Uniform() < 0.05 ? 10 : 1) * r.Normal(); }, 0, false}};
  uint64_t stream = 100;
  for (const Law& law : laws) {
    for (const int n : {3, 5, 10}) {
      Random random(seed, ++stream);
      int64_t covered = 0;
      std::vector<double> values(n);
      for (int64_t i = 0; i < repeats; ++i) {
        for (double& value : values) value = law.draw(random);
        const Summary summary = Must(Summarize(values));
        covered += summary.low.has_value() && *summary.low <= law.mean && law.mean <= *summary.high;
      }
      report.Rate(absl::StrCat(law.name, ", n = ", n), covered, repeats, law.gated ? 94.5 : 0, law.gated ? 95.5 : 100);
    }
  }
  for (const int n : {10, 20, 30}) {
    Random random(seed, 150 + n);
    int64_t covered = 0;
    std::vector<double> values(n);
    const int64_t few = std::max<int64_t>(200, repeats / 10);
    for (int64_t i = 0; i < few; ++i) {
      for (double& value : values) value = random.Normal();
      const BcaInterval interval = Must(BcaMean(values, 0.95, {.replicates = 999, .seed = static_cast<uint64_t>(i)}));
      covered += interval.low <= 0 && 0 <= interval.high;
    }
    report.Rate(absl::StrCat("normal, BCa (offered from n = 10 on), n = ", n), covered, few);
  }
}

// ---- 2: the null sweep ----

// Baseline and 15 equal arms, n seeds. A checkpoint's score where it is selected and where it is confirmed correlate by
// rho; the seed's own level is in every arm.
class NullSweep {
 public:
  NullSweep(int n, bool reuse) : spec_(MakeSpec(n, n)), plan_(MakePlanOf(Fifteen())) {
    if (reuse) {
      spec_.mutable_confirm()->clear_seeds();
      spec_.mutable_confirm()->set_reuse_seeds(true);
      for (int i = 0; i < n; ++i) spec_.mutable_confirm()->add_seeds(i);
    }
    AddClaim(&spec_, "lower", v1::DIFFERS)->set_direction(0);
    Complete(spec_, &plan_);
    for (const Arm& arm : plan_.arms) {
      for (int s = 0; s < n; ++s) {
        for (const int64_t length : {256, 512}) selecting_.push_back(Measure(arm, s, v1::SELECTING, length, 0.0));
        confirming_.push_back(Measure(arm, spec_.confirm().seeds(s), v1::CONFIRMING, 1024, 0.0));
      }
    }
  }

  // scores[arm][seed]; reused seeds take `confirming`, fresh ones are drawn by the caller as well.
  bool ErrsSealed(const std::vector<std::vector<double>>& selecting,
                  const std::vector<std::vector<double>>& confirming) {
    Fill(selecting, 2, &selecting_);
    ClaimsHistory history;
    ClaimsStep step = Must(NextStep(spec_, plan_, history, selecting_));
    CHECK(step.lock.has_value()) << step.waiting_for;
    history.lock = step.lock;
    history.confirming_seeds = step.release_seeds;
    Fill(confirming, 1, &confirming_);
    std::vector<Measurement> all;
    all.reserve(selecting_.size() + confirming_.size());
    const std::string& locked = history.lock->arm_json();
    for (size_t a = 0; a < plan_.arms.size(); ++a) {
      if (a != 0 && plan_.arms[a].json != locked) continue;  // what was let go: the baseline and the locked arm
      const size_t n = confirming[a].size();
      all.insert(all.end(), confirming_.begin() + static_cast<long>(a * n),
                 confirming_.begin() + static_cast<long>(a * n + n));
    }
    step = Must(NextStep(spec_, plan_, history, all));
    CHECK(step.over);
    const auto rows = Must(JudgeClaims(spec_, plan_, history, all, {}));
    return rows[0].verdict() == v1::SUPPORTED;
  }

 private:
  static std::vector<double> Fifteen() {
    std::vector<double> p;
    for (int i = 1; i <= 15; ++i) p.push_back(i);
    return p;
  }
  static void Fill(const std::vector<std::vector<double>>& scores, int lengths,
                   std::vector<Measurement>* measurements) {
    size_t i = 0;
    for (const auto& arm : scores) {
      for (const double score : arm) {
        for (int l = 0; l < lengths; ++l) (*measurements)[i++].value = score;
      }
    }
  }

  v1::SweepSpec spec_;
  Plan plan_;
  std::vector<Measurement> selecting_, confirming_;
};

void NullSweeps(Report& report, uint64_t seed, int64_t sweeps) {
  report.Head("Null sweep: baseline and 15 equal arms, n = 5, two-sided 0.05 (part 4)");
  constexpr int kArms = 16, kSeeds = 5;
  NullSweep fresh(kSeeds, false), reused(kSeeds, true);
  for (const double rho : {0.0, 0.8, 0.95}) {
    Random random(seed, 200 + static_cast<uint64_t>(100 * rho));
    int64_t any = 0, picked = 0, sealed = 0, same = 0;
    for (int64_t i = 0; i < sweeps; ++i) {
      std::vector<std::vector<double>> selecting(kArms, std::vector<double>(kSeeds)), again = selecting,
                                                                                      other = selecting;
      std::vector<double> level(kSeeds), fresh_level(kSeeds);
      for (int s = 0; s < kSeeds; ++s) {
        level[s] = 2 * random.Normal();
        fresh_level[s] = 2 * random.Normal();
      }
      for (int a = 0; a < kArms; ++a) {
        for (int s = 0; s < kSeeds; ++s) {
          const double own = random.Normal();
          selecting[a][s] = level[s] + own;
          again[a][s] = level[s] + rho * own + std::sqrt(1 - rho * rho) * random.Normal();
          other[a][s] = fresh_level[s] + random.Normal();
        }
      }
      bool some = false;
      int lowest = 1;
      double lowest_mean = std::numeric_limits<double>::infinity();
      std::vector<double> p(kArms);
      for (int a = 1; a < kArms; ++a) {
        const PairedDifference pairs = Must(Paired(selecting[a], selecting[0]));
        p[a] = *pairs.p_two_sided;
        some = some || p[a] < 0.05;
        if (pairs.mean_difference < lowest_mean) {
          lowest_mean = pairs.mean_difference;
          lowest = a;
        }
      }
      any += some;
      picked += p[lowest] < 0.05;
      sealed += fresh.ErrsSealed(selecting, other);
      same += reused.ErrsSealed(selecting, again);
    }
    const std::string at = absl::StrFormat("correlation %.2f: ", rho);
    const bool gated = rho == 0.8;
    if (gated) {
      report.Rate(at + "any of the 15 unadjusted p below 0.05", any, sweeps, 25, 100);
      report.Rate(at + "the lowest arm picked, then tested on the same data", picked, sweeps);
    }
    report.Rate(at + "sealed, fresh seeds (NextStep, JudgeClaims)", sealed, sweeps, gated ? 4.5 : 0, gated ? 5.5 : 100);
    report.Rate(at + "sealed, reused seeds (declared: conditional)", same, sweeps);
  }
}

// ---- 3: one pair of arms, whatever the schedule ----

// softmax and one arm, S2 in order; values by seed at 1x and 8x. Lets NextStep run to the end and judges.
class PairSweep {
 public:
  explicit PairSweep(int most) : spec_(MakeSpec(1, most)), plan_(MakePlanOf({15})) {
    spec_.clear_select();
    spec_.clear_seeds();
  }
  v1::SweepSpec& spec() { return spec_; }
  v1::ClaimSpec* Add(const std::string& name, v1::ClaimKind kind, double margin = 0) {
    v1::ClaimSpec* claim = AddClaim(&spec_, name, kind, margin);
    claim->set_selected_arm(false);
    *claim->mutable_arm() = Lssar(15);
    if (kind == v1::DIFFERS) claim->set_direction(0);
    return claim;
  }
  // differences at 8x and 1x by seed: at least as many as S2.
  std::vector<v1::ClaimRow> Run(const std::vector<double>& at_8x, const std::vector<double>& at_1x = {}) {
    if (plan_.claims.empty()) Complete(spec_, &plan_);
    ClaimsHistory history;
    std::vector<Measurement> measurements;
    for (int round = 0; round < 10; ++round) {
      const ClaimsStep step = Must(NextStep(spec_, plan_, history, measurements));
      if (step.lock.has_value()) history.lock = step.lock;
      for (int s = history.confirming_seeds; s < step.release_seeds; ++s) {
        for (size_t a = 0; a < 2; ++a) {
          const int64_t of = spec_.confirm().seeds(s);
          measurements.push_back(Measure(plan_.arms[a], of, v1::CONFIRMING, 1024, a == 0 ? 0.0 : at_8x[s]));
          if (at_1x.empty()) continue;
          measurements.push_back(Measure(plan_.arms[a], of, v1::CONFIRMING, 128, a == 0 ? 0.0 : at_1x[s]));
        }
      }
      history.confirming_seeds = step.release_seeds;
      history.over = step.over;
      if (step.over) break;
    }
    CHECK(history.over);
    return Must(JudgeClaims(spec_, plan_, history, measurements, {}));
  }

 private:
  v1::SweepSpec spec_;
  Plan plan_;
};

void Stein(Report& report, uint64_t seed, int64_t repeats) {
  report.Head("Stein's two stages: n0 = 5, half-width 0.8 sd, true difference 0.3 sd (part 4)");
  for (const int most : {60, 12}) {
    PairSweep sweep(most);
    sweep.Add("first", v1::DIFFERS);
    v1::ClaimSpec* second = sweep.Add("second", v1::DIFFERS);
    *second->mutable_length() = Multiple(1);
    sweep.spec().mutable_confirm()->mutable_stein()->set_first(5);
    sweep.spec().mutable_confirm()->mutable_stein()->set_half_width(0.8);
    Random random(seed, 300 + static_cast<uint64_t>(most));
    int64_t covered = 0, covered_second = 0, naive = 0, short_enough = 0;
    double seeds = 0;
    std::vector<double> at_8x(most), at_1x(most);
    for (int64_t i = 0; i < repeats; ++i) {
      for (int s = 0; s < most; ++s) {
        const double z = random.Normal();
        at_8x[s] = 0.3 + z;
        at_1x[s] = 0.1 + 2 * (0.8 * z + 0.6 * random.Normal());
      }
      const auto rows = sweep.Run(at_8x, at_1x);
      covered += rows[0].low() <= 0.3 && 0.3 <= rows[0].high();
      covered_second += rows[1].low() <= 0.1 && 0.1 <= rows[1].high();
      short_enough += rows[0].high() - rows[0].low() <= 1.6 + 1e-9;
      seeds += rows[0].n();
      const std::vector<double> used(at_8x.begin(), at_8x.begin() + rows[0].n());
      const Summary summary = Must(Summarize(used));
      naive += *summary.low <= 0.3 && 0.3 <= *summary.high;
    }
    const std::string at = absl::StrCat("at most ", most, " seeds: ");
    report.Rate(at + "Stein's interval covers (first claim)", covered, repeats, 94.5, 95.5);
    report.Rate(at + "that of another claim, with its own s0, correlation 0.8", covered_second, repeats, 94.5, 95.5);
    report.Rate(at + "the plain t interval of the same seeds would cover", naive, repeats);
    report.Rate(at + "half-width reached", short_enough, repeats);
    report.Number(at + "seeds used, mean", seeds / static_cast<double>(repeats));
  }
}

void Looks(Report& report, uint64_t seed, int64_t repeats) {
  report.Head("Looks at 3, 5, 8 and 10 seeds, no difference (part 4)");
  PairSweep sweep(10);
  sweep.Add("a", v1::DIFFERS);
  const std::vector<int> looks = {3, 5, 8, 10};
  for (const int look : looks) sweep.spec().mutable_confirm()->add_looks(look);
  Random random(seed, 400);
  int64_t unadjusted = 0, scheduled = 0;
  std::vector<double> values(10);
  for (int64_t i = 0; i < repeats; ++i) {
    for (double& value : values) value = random.Normal();
    bool some = false;
    for (const int look : looks) {
      const std::vector<double> seen(values.begin(), values.begin() + look), zeros(look, 0.0);
      some = some || *Must(Paired(seen, zeros)).p_two_sided < 0.05;
    }
    unadjusted += some;
    scheduled += sweep.Run(values)[0].verdict() == v1::SUPPORTED;
  }
  report.Rate("tested at 0.05 at every look", unadjusted, repeats);
  report.Rate("a declared schedule, each at 0.05 / 4 (NextStep, JudgeClaims)", scheduled, repeats, 0, 5.5);
}

// ---- 4: verdicts at the edge of what they claim ----

void Verdicts(Report& report, uint64_t seed, int64_t repeats) {
  report.Head("Wrong verdicts where the claim is just false, or true, n = 8, sd 1 (part 3)");
  struct Case {
    std::string what;
    v1::ClaimKind kind;
    double margin, at_8x, at_1x;  // true differences
    v1::VerdictKind wrong;
    double bar;
  };
  const std::vector<Case> cases = {
      {"equivalent supported, difference = margin", v1::EQUIVALENT, 1, 1, 0, v1::SUPPORTED, 5.5},
      {"equivalent refuted, difference = margin", v1::EQUIVALENT, 1, 1, 0, v1::REFUTED, 5.5},
      {"equivalent refuted, difference 0", v1::EQUIVALENT, 1, 0, 0, v1::REFUTED, 5.5},
      {"differs supported, difference 0", v1::DIFFERS, 1, 0, 0, v1::SUPPORTED, 5.5},
      {"differs refuted as equal, difference = margin", v1::DIFFERS, 2, 2, 0, v1::REFUTED, 5.5},
      {"rises less supported, rises equal, long lower", v1::RISES_LESS, 9, -3, -3, v1::SUPPORTED, 5.5},
      {"rises less supported, short worse by the margin", v1::RISES_LESS, 1, -4, 1, v1::SUPPORTED, 5.5},
      {"rises less supported, long equal", v1::RISES_LESS, 9, 0, 4, v1::SUPPORTED, 5.5},
      {"rises less refuted, just true in all three parts", v1::RISES_LESS, 0, 0, 0, v1::REFUTED, 5.5}};
  uint64_t stream = 500;
  for (const Case& c : cases) {
    PairSweep sweep(8);
    sweep.Add("a", c.kind, c.margin);
    Random random(seed, ++stream);
    int64_t wrong = 0;
    std::vector<double> at_8x(8), at_1x(8);
    for (int64_t i = 0; i < repeats; ++i) {
      for (int s = 0; s < 8; ++s) {
        at_8x[s] = c.at_8x + random.Normal();
        at_1x[s] = c.at_1x + random.Normal();
      }
      wrong += sweep.Run(at_8x, at_1x)[0].verdict() == c.wrong;
    }
    report.Rate(c.what, wrong, repeats, 0, c.bar);
  }
  // A family: three true nulls of correlated claims, one of them supported is one error.
  PairSweep family(8);
  for (const char* name : {"a", "b", "c"}) family.Add(name, v1::DIFFERS);
  *family.spec().mutable_claims(1)->mutable_length() = Multiple(1);
  family.spec().mutable_claims(2)->set_direction(-1);
  Random random(seed, 550);
  int64_t some = 0;
  std::vector<double> at_8x(8), at_1x(8);
  for (int64_t i = 0; i < repeats; ++i) {
    for (int s = 0; s < 8; ++s) {
      at_8x[s] = random.Normal();
      at_1x[s] = random.Normal();
    }
    const auto rows = family.Run(at_8x, at_1x);
    some += std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.verdict() != v1::UNDECIDED; });
  }
  report.Rate("any claim of a family of three nulls decided (Holm)", some, repeats, 0, 5.5);
}

// ---- 5: seeds x documents ----

void TwoWay(Report& report, uint64_t seed, int64_t repeats) {
  report.Head(
      "Two-way bootstrap, 95 % percentile, both factors random: sd 1 of seeds, 1 of documents, 0.5 of cells (part 1)");
  for (const int seeds : {3, 5, 10, 20}) {
    for (const int documents : {10, 40}) {
      Random random(seed, 600 + static_cast<uint64_t>(seeds * 100 + documents));
      int64_t covered = 0, by_t = 0;
      for (int64_t i = 0; i < repeats; ++i) {
        std::vector<double> of_document(documents), of_seed;
        for (double& effect : of_document) effect = random.Normal();
        std::vector<ScoredDocuments> scored(seeds);
        for (ScoredDocuments& s : scored) {
          const double own = random.Normal();
          double sum = 0;
          for (int d = 0; d < documents; ++d) {
            const double loss = own + of_document[d] + 0.5 * random.Normal();
            s.loss_sums.push_back(100 * loss);
            s.targets.push_back(100);
            sum += loss;
          }
          of_seed.push_back(sum / documents);
        }
        const TwoWaySpread spread =
            Must(SpreadBySeedAndDocument(scored, 0.95, {.replicates = 999, .seed = static_cast<uint64_t>(i)}));
        covered += *spread.low <= 0 && 0 <= *spread.high;
        const Summary t = Must(Summarize(of_seed));
        by_t += *t.low <= 0 && 0 <= *t.high;
      }
      const std::string at = absl::StrCat(seeds, " seeds, ", documents, " documents: ");
      report.Rate(at + "two-way bootstrap covers the mean over both", covered, repeats);
      report.Rate(at + "the t interval over seeds covers it (it takes text as fixed)", by_t, repeats);
    }
  }
}

int Main(bool fast, uint64_t seed) {
  Report report(fast);
  std::cout << "statistics_simulation, seed " << seed << (fast ? ", fast: bars widened by 4 standard errors\n" : "\n");
  Coverage(report, seed, fast ? 2000 : 20000);
  NullSweeps(report, seed, fast ? 300 : 20000);
  Stein(report, seed, fast ? 300 : 20000);
  Looks(report, seed, fast ? 500 : 20000);
  Verdicts(report, seed, fast ? 200 : 20000);
  TwoWay(report, seed, fast ? 60 : 2000);
  std::cout << "\n"
            << (report.missed() == 0 ? "every bar is met" : absl::StrCat(report.missed(), " bars are missed")) << "\n";
  return report.missed() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return ablate::Main(absl::GetFlag(FLAGS_fast), absl::GetFlag(FLAGS_seed));
}
