#include "worker/result_spool.h"

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace ablate {

std::string ResultSpool::PathOf(const AttemptKey& key) const {
  return JoinPath(dir_, absl::StrCat(Sha256Hex(key.job_id).substr(0, 32), "-", key.attempt, ".report"));
}

absl::StatusOr<std::vector<v1::AttemptReport>> ResultSpool::Load() {
  ABLATE_RETURN_IF_ERROR(MakeDirs(dir_));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(dir_));
  std::vector<v1::AttemptReport> reports;
  for (const std::string& name : names) {
    const std::string path = JoinPath(dir_, name);
    const absl::StatusOr<std::string> bytes = ReadFile(path);
    v1::AttemptReport report;
    if (!bytes.ok() || !report.ParseFromString(*bytes) || report.job_id().empty()) {
      LOG(WARNING) << path << " is not a stored result: removed";
      ABLATE_RETURN_IF_ERROR(RemoveFile(path));
      continue;
    }
    saved_.insert({report.job_id(), report.attempt()});
    reports.push_back(std::move(report));
  }
  return reports;
}

absl::Status ResultSpool::Save(const v1::AttemptReport& report) {
  const AttemptKey key{report.job_id(), report.attempt()};
  if (saved_.count(key) > 0) return absl::OkStatus();
  ABLATE_RETURN_IF_ERROR(WriteFileAtomic(PathOf(key), report.SerializeAsString()));
  saved_.insert(key);
  return absl::OkStatus();
}

void ResultSpool::Remove(const AttemptKey& key) {
  if (saved_.erase(key) > 0) RemoveFile(PathOf(key)).IgnoreError();
}

}  // namespace ablate
