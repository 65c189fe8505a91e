#include "cli/attempt_tables.h"

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/strings.h"
#include "cli/commands.h"

namespace ablate {
namespace {

// What a coordinator of before stored no reason for.
constexpr char kHandedBack[] = "handed back unfinished; does not count as a failure";

std::string WhyItEnded(const v1::Attempt& attempt) {
  const v1::Failure& failure = attempt.failure();
  const std::string kind = FailureKindText(failure);
  if (kind.empty()) return attempt.state() == "RELEASED" ? kHandedBack : "";
  return absl::StrCat(kind, failure.message().empty() ? "" : ": ", failure.message());
}

}  // namespace

std::string FailureKindText(const v1::Failure& failure) {
  if (failure.kind() == v1::FAILURE_KIND_UNSPECIFIED && failure.message().empty()) return "";
  return absl::AsciiStrToLower(v1::FailureKind_Name(failure.kind()));
}

Sheet AttemptSheet(const AttemptList& attempts) {
  Sheet sheet;
  sheet.title = "attempts";
  sheet.columns = {{.title = "attempt", .right = true},
                   {.title = "state"},
                   {.title = "worker"},
                   {.title = "slot", .right = true},
                   {.title = "from step", .right = true},
                   {.title = "started"},
                   {.title = "ended"},
                   {.title = "failure"}};
  for (const v1::Attempt& attempt : attempts) {
    sheet.rows.push_back({absl::StrCat(attempt.attempt()), attempt.state(), attempt.worker_id(),
                          absl::StrCat(attempt.slot()), absl::StrCat(attempt.resumed_from_step()),
                          TimeText(attempt.started_at_us()), TimeText(attempt.ended_at_us()), WhyItEnded(attempt)});
  }
  return sheet;
}

std::vector<Sheet> EvidenceSheets(const AttemptList& attempts, size_t lines) {
  std::vector<Sheet> sheets;
  for (const v1::Attempt& attempt : attempts) {
    const v1::Failure& failure = attempt.failure();
    const std::vector<std::string> tail = absl::StrSplit(failure.stderr_tail(), '\n', absl::SkipEmpty());
    if (failure.exit_code() == 0 && failure.signal() == 0 && failure.peak_memory_bytes() == 0 && tail.empty()) continue;
    Sheet sheet;
    sheet.title = absl::StrCat("evidence of attempt ", attempt.attempt());
    sheet.columns = {{.title = "what"}, {.title = "evidence"}};
    sheet.rows = {{"failure", FailureKindText(failure)}};
    if (!failure.message().empty()) sheet.rows.push_back({"message", failure.message()});
    // Workers say -1 of a trainer that a signal ended.
    if (failure.exit_code() > 0) sheet.rows.push_back({"exit code", absl::StrCat(failure.exit_code())});
    if (failure.signal() != 0) {
      sheet.rows.push_back({"signal", absl::StrCat(failure.signal(), " (", ::strsignal(failure.signal()), ")")});
    }
    if (failure.peak_memory_bytes() != 0) {
      sheet.rows.push_back({"peak memory", HumanBytes(failure.peak_memory_bytes())});
    }
    const size_t first = tail.size() > lines ? tail.size() - lines : 0;
    for (size_t i = first; i < tail.size(); ++i) sheet.rows.push_back({i == first ? "stderr" : "", tail[i]});
    if (first > 0) {
      sheet.footer = {absl::StrCat(Counted(first, "line"), " of stderr before these: ablate job logs ", attempt.job_id())};
    }
    sheets.push_back(std::move(sheet));
  }
  return sheets;
}

std::string AttemptJson(const v1::Attempt& attempt) {
  const v1::Failure& failure = attempt.failure();
  return absl::StrCat("{\"attempt\":", attempt.attempt(), ",\"state\":", JsonString(attempt.state()),
                      ",\"worker_id\":", JsonString(attempt.worker_id()), ",\"slot\":", attempt.slot(),
                      ",\"resumed_from_step\":", attempt.resumed_from_step(),
                      ",\"started_at\":", JsonString(TimeText(attempt.started_at_us())),
                      ",\"ended_at\":", JsonString(TimeText(attempt.ended_at_us())),
                      ",\"failure\":", JsonString(FailureKindText(failure)),
                      ",\"message\":", JsonString(failure.message()), ",\"exit_code\":", failure.exit_code(),
                      ",\"signal\":", failure.signal(), ",\"peak_memory_bytes\":", failure.peak_memory_bytes(),
                      ",\"stderr_tail\":", JsonString(failure.stderr_tail()), "}");
}

}  // namespace ablate
