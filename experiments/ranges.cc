#include "experiments/ranges.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/strings.h"

namespace ablate {
namespace {

// A step that ends this close to `to`, in steps, meets it.
constexpr double kSlack = 1e-9;

double Rounded(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof(buffer), "%.12g", value);
  return std::strtod(buffer, nullptr);
}

absl::Status NeverLeads(const char* what, double by, double from, double to) {
  return absl::InvalidArgumentError(absl::StrCat("a ", what, " of ", ShortestDouble(by), " never leads from ",
                                                 ShortestDouble(from), " to ", ShortestDouble(to)));
}

absl::Status CheckCount(double last, int64_t limit) {
  // Written so that NaN fails.
  if (last < static_cast<double>(limit)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the range has more than ", limit, " values"));
}

}  // namespace

absl::StatusOr<std::vector<double>> StepRange(double from, double to, double step, int64_t limit) {
  if (step == 0 || (to - from) / step < 0) return NeverLeads("step", step, from, to);
  const double last = std::floor((to - from) / step + kSlack);
  if (const absl::Status status = CheckCount(last, limit); !status.ok()) return status;
  std::vector<double> values;
  for (int64_t i = 0; i <= static_cast<int64_t>(last); ++i)
    values.push_back(Rounded(from + static_cast<double>(i) * step));
  return values;
}

absl::StatusOr<std::vector<double>> FactorRange(double from, double to, double factor, int64_t limit) {
  if (!(from > 0 && to > 0 && factor > 0) || factor == 1) return NeverLeads("factor", factor, from, to);
  const double steps = std::log(to / from) / std::log(factor);
  if (steps < 0) return NeverLeads("factor", factor, from, to);
  const double last = std::floor(steps + kSlack);
  if (const absl::Status status = CheckCount(last, limit); !status.ok()) return status;
  std::vector<double> values;
  for (int64_t i = 0; i <= static_cast<int64_t>(last); ++i) {
    values.push_back(Rounded(from * std::pow(factor, static_cast<double>(i))));
  }
  return values;
}

}  // namespace ablate
