// Our statistics, one request a line on stdin, one line of numbers each on stdout: what the test against SciPy compares
// (statistics_peer_test.py). Knows experiments/statistics.h only. "-" stands for a value that does not exist.
//
//   t_critical DF LEVEL | upper_tail DF T | normal_quantile P | sd_upper SD N CONFIDENCE
//   summary LEVEL X...                        -> n mean sd low high
//   paired LEVEL N ARM... BASELINE...         -> mean sd t p low high
//   bonferroni LEVEL FAMILY N ARM... BASELINE... -> low high
//   tost MARGIN ALPHA N ARM... BASELINE...    -> p low high
//   did LEVEL N ARM_SHORT... ARM_LONG... BASELINE_SHORT... BASELINE_LONG... -> mean sd t p low high
//   holm P...  | wilson SUCCESSES TRIALS LEVEL -> low high | sign WINS LOSSES
//   detectable N ALPHA POWER | power N EFFECT ALPHA | equivalence_power N MARGIN ALPHA
//   seeds_to_detect EFFECT ALPHA POWER | seeds_to_show MARGIN ALPHA POWER | stein N0 S0 HALF_WIDTH MAXIMUM LEVEL
#include <cstdint>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "experiments/statistics.h"

namespace ablate {
namespace {

using Numbers = std::vector<std::optional<double>>;

class Request {
 public:
  explicit Request(const std::string& line) {
    std::istringstream in(line);
    in >> what;
    double value = 0;
    while (in >> value) values_.push_back(value);
    if (!in.eof()) fault_ = true;
  }

  double Next() {
    if (at_ >= values_.size()) {
      fault_ = true;
      return 0;
    }
    return values_[at_++];
  }
  int64_t Int() { return static_cast<int64_t>(Next()); }
  std::vector<double> List(int64_t n) {
    std::vector<double> list;
    for (int64_t i = 0; i < n && !fault_; ++i) list.push_back(Next());
    return list;
  }
  std::vector<double> Rest() { return List(static_cast<int64_t>(values_.size() - at_)); }
  bool Whole() const { return !fault_ && at_ == values_.size(); }

  std::string what;

 private:
  std::vector<double> values_;
  size_t at_ = 0;
  bool fault_ = false;
};

Numbers OfPairs(const PairedDifference& d) {
  return {d.mean_difference, d.sd_difference, d.t, d.p_two_sided, d.low, d.high};
}

absl::StatusOr<Numbers> One(const absl::StatusOr<double>& value) {
  if (!value.ok()) return value.status();
  return Numbers{*value};
}

absl::StatusOr<Numbers> Count(const absl::StatusOr<std::optional<int64_t>>& value) {
  if (!value.ok()) return value.status();
  if (!value->has_value()) return Numbers{std::nullopt};
  return Numbers{static_cast<double>(**value)};
}

absl::StatusOr<Numbers> Pairs(Request& in) {
  const std::string what = in.what;
  const double first = in.Next();
  const double second = what == "bonferroni" || what == "tost" ? in.Next() : 0;
  const int64_t n = in.Int();
  const std::vector<double> a = in.List(n), b = in.List(n);
  if (what == "did") {
    const std::vector<double> c = in.List(n), d = in.List(n);
    ABLATE_ASSIGN_OR_RETURN(const PairedDifference did, DifferenceInDifferences(a, b, c, d, first));
    return OfPairs(did);
  }
  if (what == "bonferroni") {
    ABLATE_ASSIGN_OR_RETURN(const PairedDifference wide, BonferroniPaired(a, b, static_cast<int64_t>(second), first));
    return Numbers{wide.low, wide.high};
  }
  if (what == "tost") {
    ABLATE_ASSIGN_OR_RETURN(const PairedDifference pairs, Paired(a, b));
    ABLATE_ASSIGN_OR_RETURN(const Equivalence equivalence, Tost(pairs, first, second));
    return Numbers{equivalence.p, equivalence.low, equivalence.high};
  }
  ABLATE_ASSIGN_OR_RETURN(const PairedDifference pairs, Paired(a, b, first));
  return OfPairs(pairs);
}

// Arguments are read one a statement: the order of evaluation within a call is not defined.
absl::StatusOr<Numbers> Answer(Request& in) {
  const std::string& what = in.what;
  if (what == "paired" || what == "did" || what == "bonferroni" || what == "tost") return Pairs(in);
  if (what == "holm") {
    ABLATE_ASSIGN_OR_RETURN(const std::vector<double> adjusted, Holm(in.Rest()));
    return Numbers(adjusted.begin(), adjusted.end());
  }
  const double a = in.Next();
  if (what == "normal_quantile") return One(NormalQuantile(a));
  if (what == "summary") {
    ABLATE_ASSIGN_OR_RETURN(const Summary s, Summarize(in.Rest(), a));
    return Numbers{static_cast<double>(s.n), s.mean, s.sd, s.low, s.high};
  }
  const double b = in.Next();
  const auto n = static_cast<int64_t>(a);
  if (what == "t_critical") return One(TCritical(n, b));
  if (what == "upper_tail") return One(StudentUpperTail(n, b));
  if (what == "sign") return One(SignTest(n, static_cast<int64_t>(b)));
  const double c = in.Next();
  if (what == "sd_upper") return One(SdUpperLimit(a, static_cast<int64_t>(b), c));
  if (what == "wilson") {
    ABLATE_ASSIGN_OR_RETURN(const RateInterval interval, Wilson(n, static_cast<int64_t>(b), c));
    return Numbers{interval.low, interval.high};
  }
  if (what == "detectable") return One(SmallestDetectable(n, b, c));
  if (what == "power") return One(PairedPower(n, b, c));
  if (what == "equivalence_power") return One(EquivalencePower(n, b, c));
  if (what == "seeds_to_detect") return Count(SeedsToDetect(a, b, c));
  if (what == "seeds_to_show") return Count(SeedsToShowEquivalence(a, b, c));
  if (what == "stein") {
    const int64_t maximum = in.Int();
    ABLATE_ASSIGN_OR_RETURN(const SteinPlan plan, SteinSampleSize(n, b, c, maximum, in.Next()));
    return Numbers{static_cast<double>(plan.n)};
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown request ", what));
}

}  // namespace
}  // namespace ablate

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    ablate::Request request(line);
    const auto answer = ablate::Answer(request);
    if (!answer.ok() || !request.Whole()) {
      std::cerr << line << ": " << (answer.ok() ? "wrong number of values" : answer.status().ToString()) << "\n";
      return 2;
    }
    std::string out;
    for (const std::optional<double>& value : *answer) {
      absl::StrAppend(&out, out.empty() ? "" : " ", value.has_value() ? absl::StrFormat("%.17g", *value) : "-");
    }
    std::cout << out << "\n";
  }
  return 0;
}
