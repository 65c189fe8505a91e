#include "worker/trainer/checkpoint_store.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/status_macros.h"

namespace ablate {
namespace {

constexpr char kWeights[] = ".weights";
constexpr char kOptimizer[] = ".optimizer";

}  // namespace

CheckpointStore::CheckpointStore(std::string dir, const std::string& stage_key)
    : dir_(std::move(dir)), prefix_(Sha256Hex(stage_key).substr(0, 16) + "-") {}

absl::Status CheckpointStore::Prepare() {
  ABLATE_RETURN_IF_ERROR(MakeDirs(dir_));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(dir_));
  for (const std::string& name : names) {
    if (absl::StartsWith(name, prefix_) && absl::StrContains(name, ".tmp.")) {
      ABLATE_RETURN_IF_ERROR(RemoveFile(JoinPath(dir_, name)));
    }
  }
  return absl::OkStatus();
}

CheckpointPaths CheckpointStore::PathsOf(int64_t step) const {
  const std::string base = JoinPath(dir_, absl::StrFormat("%s%09d", prefix_, step));
  return {step, base + kWeights, base + kOptimizer};
}

absl::StatusOr<std::vector<CheckpointStore::Entry>> CheckpointStore::Entries() const {
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(dir_));
  std::map<int64_t, Entry, std::greater<>> entries;
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, prefix_)) continue;
    const bool weights = absl::EndsWith(name, kWeights), optimizer = absl::EndsWith(name, kOptimizer);
    const size_t dot = name.rfind('.');
    int64_t step = 0;
    if ((!weights && !optimizer) || !absl::SimpleAtoi(name.substr(prefix_.size(), dot - prefix_.size()), &step))
      continue;
    Entry& entry = entries.try_emplace(step, Entry{step, false, false}).first->second;
    entry.weights |= weights;
    entry.optimizer |= optimizer;
  }
  std::vector<Entry> result;
  for (const auto& [step, entry] : entries) result.push_back(entry);
  return result;
}

absl::StatusOr<std::vector<CheckpointPaths>> CheckpointStore::Complete() const {
  ABLATE_ASSIGN_OR_RETURN(const std::vector<Entry> entries, Entries());
  std::vector<CheckpointPaths> complete;
  for (const Entry& entry : entries) {
    if (entry.weights && entry.optimizer) complete.push_back(PathsOf(entry.step));
  }
  return complete;
}

absl::Status CheckpointStore::KeepNewestTwo(int64_t current) const {
  ABLATE_ASSIGN_OR_RETURN(const std::vector<Entry> entries, Entries());
  bool kept = false;
  for (const Entry& entry : entries) {
    if (entry.step == current) continue;
    if (!kept && entry.step < current && entry.weights && entry.optimizer) {
      kept = true;
      continue;
    }
    const CheckpointPaths paths = PathsOf(entry.step);
    ABLATE_RETURN_IF_ERROR(RemoveFile(paths.weights));
    ABLATE_RETURN_IF_ERROR(RemoveFile(paths.optimizer));
  }
  return absl::OkStatus();
}

}  // namespace ablate
