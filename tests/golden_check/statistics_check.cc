// See statistics_check.h.
#include "tests/golden_check/statistics_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/statistics.h"
#include "nlohmann/json.hpp"

namespace ablate {
namespace {

using Json = nlohmann::json;
using Number = std::optional<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kReferenceQuantileError = 1e-8;  // of t, as far as it has been seen

double RelativeError(Number ours, Number expected) {
  if (!ours.has_value() || !expected.has_value()) return ours.has_value() == expected.has_value() ? 0 : kInfinity;
  const double difference = std::abs(*ours - *expected);
  if (std::isnan(difference)) return kInfinity;
  return *expected == 0 ? difference : difference / std::abs(*expected);
}

double StudentDensity(double df, double t) {
  return std::exp(std::lgamma((df + 1) / 2) - std::lgamma(df / 2) - (df + 1) / 2 * std::log1p(t * t / df)) /
         std::sqrt(df * std::numbers::pi);
}

// The error of a t quantile at level q, ours being `t` and the reference's `t + difference`: see "quantiles" in the
// header. The larger of the two densities, so that a reference far out in the tail hides nothing.
double QuantileError(double df, double q, double t, double difference) {
  const double relative = std::abs(difference / t);
  if (!(relative <= kReferenceQuantileError)) return std::isnan(relative) ? kInfinity : relative;
  const double density = std::max(StudentDensity(df, t), StudentDensity(df, t + difference));
  return std::min(relative, density * std::abs(difference) / q);
}

// What a bound of a t interval is made of.
struct Quantile {
  int64_t n = 0;
  double tail = 0;  // above the quantile
  double sem = 0;
};

// One entry of the file: reads its inputs, compares its numbers, and remembers which fields were looked at.
class Entry {
 public:
  Entry(std::string name, const Json& json) : json_(json) { result_.name = std::move(name); }

  // ---- inputs: a missing one, or one of another type, is a fault of the file ----

  double Double(const Json& at, const std::string& key) {
    const Json* value = Input(at, key);
    if (value != nullptr && value->is_number()) return value->get<double>();
    Fault(key, "a number");
    return 0;
  }

  int64_t Int(const Json& at, const std::string& key) {
    const Json* value = Input(at, key);
    if (value != nullptr && value->is_number_integer()) return value->get<int64_t>();
    Fault(key, "an integer");
    return 0;
  }

  std::vector<double> Doubles(const Json& at, const std::string& key) {
    std::vector<double> out;
    const Json* value = Input(at, key);
    if (value == nullptr || !value->is_array()) {
      Fault(key, "a list of numbers");
      return out;
    }
    for (const Json& element : *value) {
      if (!element.is_number()) {
        Fault(key, "a list of numbers");
        return {};
      }
      out.push_back(element.get<double>());
    }
    return out;
  }

  double DoubleOr(const Json& at, const std::string& key, double otherwise) {
    return at.contains(key) ? Double(at, key) : otherwise;
  }

  // ---- comparisons: a number that the file does not have is reported as not covered ----

  void Compare(const Json& at, const std::string& path, const std::string& key, Number ours) {
    const Json* expected = Input(at, key);
    if (expected == nullptr) return Absent(path, key);
    if (!expected->is_number() && !expected->is_null()) return Fault(key, "a number or null");
    Worse(Path(path, key), RelativeError(ours, expected->is_null() ? Number() : Number(expected->get<double>())));
  }

  // A bound mean -+ t sem.
  void CompareBound(const Json& at, const std::string& path, const std::string& key, Number ours,
                    const Quantile& quantile) {
    const Json* expected = Input(at, key);
    if (expected == nullptr) return Absent(path, key);
    if (!ours.has_value() || !expected->is_number()) return Compare(at, path, key, ours);
    const double value = expected->get<double>();
    double error = RelativeError(ours, value);
    const auto t = TCritical(quantile.n - 1, 1 - 2 * quantile.tail);
    if (t.ok() && quantile.sem > 0) {
      error = std::min(error, QuantileError(static_cast<double>(quantile.n - 1), 1 - quantile.tail, *t,
                                            (value - *ours) / quantile.sem));
    }
    Worse(Path(path, key), error);
  }

  // False, and an infinite error, where our function refused the input.
  template <typename T>
  bool Ok(const absl::StatusOr<T>& result, const std::string& path) {
    if (result.ok()) return true;
    Worse(absl::StrCat(path, path.empty() ? "" : ": ", result.status().message()), kInfinity);
    return false;
  }

  void Worse(const std::string& path, double error) {
    ++compared_;
    if (result_.worst.empty() || error > result_.max_relative_error) {
      result_.max_relative_error = error;
      result_.worst = path;
    }
  }

  void Absent(const std::string& path, const std::string& key) { absent_.push_back(Path(path, key)); }
  void Seen(const Json& at) { seen_.insert(&at); }
  const Json& json() const { return json_; }

  // The entry's own result, then one for each number in it that nothing looked at, or that it lacks.
  absl::Status Finish(std::vector<CaseResult>& results) {
    ABLATE_RETURN_IF_ERROR(fault_);
    result_.covered = compared_ > 0;
    results.push_back(result_);
    if (!result_.covered) return absl::OkStatus();
    Unseen(json_, result_.name, results);
    for (const std::string& path : absent_) results.push_back({.name = Path(result_.name, path), .covered = false});
    return absl::OkStatus();
  }

  static std::string Path(const std::string& path, const std::string& key) {
    return path.empty() ? key : absl::StrCat(path, ".", key);
  }

 private:
  const Json* Input(const Json& at, const std::string& key) {
    const auto found = at.find(key);
    if (found == at.end()) return nullptr;
    seen_.insert(&*found);
    return &*found;
  }

  void Fault(const std::string& key, const char* wanted) {
    if (fault_.ok()) {
      fault_ = absl::InvalidArgumentError(absl::StrCat(result_.name, ": \"", key, "\" must be ", wanted));
    }
  }

  void Unseen(const Json& at, const std::string& path, std::vector<CaseResult>& results) const {
    for (const auto& [key, value] : at.items()) {
      if (seen_.contains(&value)) {
        if (value.is_object()) Unseen(value, Path(path, key), results);
      } else {
        results.push_back({.name = Path(path, key), .covered = false});
      }
    }
  }

  const Json& json_;
  CaseResult result_;
  int compared_ = 0;
  std::vector<std::string> absent_;
  std::set<const Json*> seen_;
  absl::Status fault_;
};

void CompareSummary(Entry& entry, const Json& at, const std::string& path, const std::vector<double>& values) {
  const auto ours = Summarize(values, entry.DoubleOr(at, "level", 0.95));
  if (!entry.Ok(ours, path)) return;
  entry.Compare(at, path, "n", static_cast<double>(ours->n));
  entry.Compare(at, path, "mean", ours->mean);
  entry.Compare(at, path, "sd", ours->sd);
  entry.Compare(at, path, "sem", ours->sem);
  const Quantile quantile{ours->n, (1 - ours->level) / 2, ours->sem.value_or(0)};
  entry.CompareBound(at, path, "low", ours->low, quantile);
  entry.CompareBound(at, path, "high", ours->high, quantile);
}

// Every member "ci..." of the entry is an interval of `values`.
void CompareSummaries(Entry& entry, const std::vector<double>& values) {
  for (const auto& [key, value] : entry.json().items()) {
    if (!key.starts_with("ci") || !value.is_object()) continue;
    entry.Seen(value);
    CompareSummary(entry, value, key, values);
  }
}

void ComparePaired(Entry& entry, const Json& at, const std::string& path,
                   const absl::StatusOr<PairedDifference>& ours) {
  if (!entry.Ok(ours, path)) return;
  entry.Compare(at, path, "n", static_cast<double>(ours->n));
  entry.Compare(at, path, "mean_difference", ours->mean_difference);
  entry.Compare(at, path, "sd_difference", ours->sd_difference);
  entry.Compare(at, path, "t", ours->t);
  entry.Compare(at, path, "df", static_cast<double>(ours->df));
  entry.Compare(at, path, "p_two_sided", ours->p_two_sided);
  const double sem = ours->sd_difference.value_or(0) / std::sqrt(static_cast<double>(ours->n));
  const Quantile quantile{ours->n, (1 - ours->level) / 2, sem};
  entry.CompareBound(at, path, "low", ours->low, quantile);
  entry.CompareBound(at, path, "high", ours->high, quantile);
  entry.Compare(at, path, "cohen_dz", ours->cohen_dz);
  const auto tost = at.find("tost");
  if (tost == at.end()) return entry.Absent(path, "tost");
  if (!tost->is_object()) return;
  entry.Seen(*tost);
  const std::string tost_path = Entry::Path(path, "tost");
  const auto equivalence = Tost(*ours, entry.Double(*tost, "margin"), entry.DoubleOr(*tost, "alpha", 0.05));
  if (!entry.Ok(equivalence, tost_path)) return;
  entry.Compare(*tost, tost_path, "p", equivalence->p);
  const Quantile inner{ours->n, (1 - equivalence->level) / 2, sem};
  entry.CompareBound(*tost, tost_path, "low90", equivalence->low, inner);
  entry.CompareBound(*tost, tost_path, "high90", equivalence->high, inner);
}

const Json* Object(Entry& entry, const std::string& key) {
  const auto found = entry.json().find(key);
  if (found == entry.json().end()) entry.Absent("", key);
  if (found == entry.json().end() || !found->is_object()) return nullptr;
  entry.Seen(*found);
  return &*found;
}

void CheckCase(Entry& entry) {
  const std::vector<double> arm = entry.Doubles(entry.json(), "arm");
  CompareSummaries(entry, arm);
  if (const Json* paired = Object(entry, "paired")) {
    ComparePaired(entry, *paired, "paired",
                  Paired(arm, entry.Doubles(entry.json(), "baseline"), entry.DoubleOr(*paired, "level", 0.95)));
  }
}

void CheckTies(Entry& entry) { CompareSummaries(entry, entry.Doubles(entry.json(), "values")); }

void CheckDifferenceInDifferences(Entry& entry) {
  const Json* result = Object(entry, "result");
  if (result == nullptr) return;
  const Json& at = entry.json();
  ComparePaired(entry, *result, "result",
                DifferenceInDifferences(entry.Doubles(at, "arm_short"), entry.Doubles(at, "arm_long"),
                                        entry.Doubles(at, "baseline_short"), entry.Doubles(at, "baseline_long"),
                                        entry.DoubleOr(*result, "level", 0.95)));
}

// {"p975": t, ...} for one number of degrees of freedom: pNNN is the quantile at 0.NNN.
void CheckTCritical(Entry& entry, int64_t df) {
  for (const auto& [key, value] : entry.json().items()) {
    const bool is_quantile = key.size() > 1 && key[0] == 'p' &&
                             key.find_first_not_of("0123456789", 1) == std::string::npos && value.is_number();
    if (!is_quantile) continue;
    entry.Seen(value);
    const double q = std::stod("0." + key.substr(1));
    if (q <= 0.5) {
      entry.Worse(key, kInfinity);
      continue;
    }
    const auto ours = TCritical(df, 2 * q - 1);
    if (!entry.Ok(ours, key)) continue;
    entry.Worse(key, QuantileError(static_cast<double>(df), q, *ours, value.get<double>() - *ours));
  }
}

void CheckHolm(Entry& entry) {
  const std::vector<double> expected = entry.Doubles(entry.json(), "adjusted");
  const auto ours = Holm(entry.Doubles(entry.json(), "p"));
  if (!entry.Ok(ours, "")) return;
  if (ours->size() != expected.size()) return entry.Worse("adjusted (length)", kInfinity);
  for (size_t i = 0; i < expected.size(); ++i) {
    entry.Worse(absl::StrCat("adjusted[", i, "]"), RelativeError((*ours)[i], expected[i]));
  }
}

void CheckWilson(Entry& entry) {
  const Json& at = entry.json();
  const auto ours = Wilson(entry.Int(at, "successes"), entry.Int(at, "trials"), entry.DoubleOr(at, "level", 0.95));
  if (!entry.Ok(ours, "")) return;
  entry.Compare(at, "", "low", ours->low);
  entry.Compare(at, "", "high", ours->high);
}

void CompareValue(Entry& entry, const std::string& key, const absl::StatusOr<double>& ours) {
  if (entry.Ok(ours, "")) entry.Compare(entry.json(), "", key, *ours);
}

void CheckSmallestDetectable(Entry& entry) {
  const Json& at = entry.json();
  const int64_t n = entry.Int(at, "n");
  const double alpha = entry.Double(at, "alpha");
  const auto ours = SmallestDetectable(n, alpha, entry.Double(at, "power"));
  if (!entry.Ok(ours, "")) return;
  // The noncentrality is near t, so an error of t moves both by about the same.
  const double root_n = std::sqrt(static_cast<double>(n));
  entry.CompareBound(at, "", "value", *ours, {.n = n, .tail = alpha / 2, .sem = 1 / root_n});
}

void CheckSdUpperLimit(Entry& entry) {
  const Json& at = entry.json();
  CompareValue(entry, "value",
               SdUpperLimit(entry.Double(at, "sd"), entry.Int(at, "n"), entry.Double(at, "confidence")));
}

void CheckStein(Entry& entry) {
  const Json& at = entry.json();
  const auto ours = SteinSampleSize(entry.Int(at, "n0"), entry.Double(at, "s0"), entry.Double(at, "half_width"),
                                    entry.Int(at, "m"), entry.DoubleOr(at, "level", 0.95));
  if (entry.Ok(ours, "")) entry.Compare(at, "", "n", static_cast<double>(ours->n));
}

void CheckSignTest(Entry& entry) {
  CompareValue(entry, "p", SignTest(entry.Int(entry.json(), "wins"), entry.Int(entry.json(), "losses")));
}

void CheckMcNemar(Entry& entry) {
  CompareValue(entry, "p", McNemarExact(entry.Int(entry.json(), "only_arm"), entry.Int(entry.json(), "only_baseline")));
}

void CheckBonferroni(Entry& entry) {
  const Json& at = entry.json();
  const auto ours = BonferroniPaired(entry.Doubles(at, "arm"), entry.Doubles(at, "baseline"), entry.Int(at, "family"),
                                     entry.DoubleOr(at, "level", 0.95));
  if (!entry.Ok(ours, "")) return;
  const double sem = ours->sd_difference.value_or(0) / std::sqrt(static_cast<double>(ours->n));
  const Quantile quantile{ours->n, (1 - ours->level) / 2, sem};
  entry.CompareBound(at, "", "low", ours->low, quantile);
  entry.CompareBound(at, "", "high", ours->high, quantile);
}

using Check = std::function<void(Entry&)>;

const std::map<std::string, Check>& Checks() {
  static const auto& checks =
      *new std::map<std::string, Check>{{"cases", CheckCase},
                                        {"ties", CheckTies},
                                        {"difference_in_differences", CheckDifferenceInDifferences},
                                        {"holm", CheckHolm},
                                        {"wilson", CheckWilson},
                                        {"smallest_detectable_in_sd", CheckSmallestDetectable},
                                        {"sd_upper_limit", CheckSdUpperLimit},
                                        {"stein", CheckStein},
                                        {"sign_test", CheckSignTest},
                                        {"mcnemar_exact", CheckMcNemar},
                                        {"bonferroni", CheckBonferroni}};
  return checks;
}

absl::Status CheckOne(std::string name, const Json& json, const Check& check, std::vector<CaseResult>& results) {
  if (!json.is_object()) {
    results.push_back({.name = std::move(name), .covered = false});
    return absl::OkStatus();
  }
  Entry entry(std::move(name), json);
  check(entry);
  return entry.Finish(results);
}

absl::Status CheckTCriticals(const Json& section, std::vector<CaseResult>& results) {
  if (!section.is_object()) {
    results.push_back({.name = "t_critical", .covered = false});
    return absl::OkStatus();
  }
  for (const auto& [key, json] : section.items()) {
    const std::string name = absl::StrCat("t_critical.", key);
    if (key.empty() || key.size() > 15 || key.find_first_not_of("0123456789") != std::string::npos) {
      results.push_back({.name = name, .covered = false});
      continue;
    }
    const int64_t df = std::stoll(key);
    ABLATE_RETURN_IF_ERROR(CheckOne(
        name, json, [df](Entry& entry) { CheckTCritical(entry, df); }, results));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<CaseResult>> CheckStatisticsFile(const std::string& path) {
  ABLATE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": not a JSON object"));
  std::vector<CaseResult> results;
  for (const auto& [section, json] : file.items()) {
    absl::Status status;
    const auto check = Checks().find(section);
    if (section == "t_critical") {
      status = CheckTCriticals(json, results);
    } else if (check == Checks().end()) {
      results.push_back({.name = section, .covered = false});
    } else if (json.is_array()) {
      for (size_t i = 0; i < json.size() && status.ok(); ++i) {
        status = CheckOne(absl::StrCat(section, "[", i, "]"), json[i], check->second, results);
      }
    } else {
      status = CheckOne(section, json, check->second, results);
    }
    if (!status.ok()) return WithContext(status, path);
  }
  return results;
}

}  // namespace ablate
