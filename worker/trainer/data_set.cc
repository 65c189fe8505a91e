#include "worker/trainer/data_set.h"

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/mqar_rules.h"
#include "proto/resources.pb.h"
#include "worker/trainer/mqar.h"

namespace ablate {

absl::StatusOr<std::unique_ptr<DataSet>> DataSet::Open(const v1::DataRef& ref, const std::vector<std::string>& paths) {
  const std::string name = absl::StrCat("data \"", ref.name(), "\"");
  if (ref.format() == v1::DataRef::MQAR) return OpenMade(ref, paths);
  if (ref.format() != v1::DataRef::TEXT && ref.format() != v1::DataRef::TOKEN_SHARDS) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has no format: expected text, token shards or mqar"));
  }
  if (ref.files_size() != 0 && static_cast<size_t>(ref.files_size()) != paths.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", ref.files_size(), " files, but ", paths.size(), " paths came"));
  }
  auto set = std::unique_ptr<DataSet>(new DataSet);
  const DataFormat format = ref.format() == v1::DataRef::TEXT ? DataFormat::kText : DataFormat::kTokenShards;
  auto tokens = TokenData::Open(format, paths);
  if (!tokens.ok()) return WithContext(tokens.status(), name);
  for (int i = 0; i < ref.files_size(); ++i) {
    ABLATE_ASSIGN_OR_RETURN(const uint64_t bytes, FileSize(paths[static_cast<size_t>(i)]));
    if (ref.files(i).bytes() > 0 && bytes != static_cast<uint64_t>(ref.files(i).bytes())) {
      return absl::DataLossError(absl::StrCat(name, ": ", paths[static_cast<size_t>(i)], " has ", bytes, " bytes, but ",
                                              ref.files(i).bytes(), " when the sweep was submitted"));
    }
  }
  set->tokens_ = *std::move(tokens);
  set->sha256_ = ref.sha256();
  set->reference_ = ref.SerializeAsString();
  set->paths_ = paths;
  return set;
}

absl::StatusOr<std::unique_ptr<DataSet>> DataSet::OpenMade(const v1::DataRef& ref,
                                                           const std::vector<std::string>& paths) {
  const std::string name = absl::StrCat("data \"", ref.name(), "\"");
  if (ref.files_size() != 0 || !paths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is made by the trainer, but files came"));
  }
  if (ref.sha256() != Sha256Hex(kMqarRules)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is to be made by the rules of SHA-256 ", ref.sha256(),
                                                   ", and this build knows \"", std::string(kMqarRules), "\" (",
                                                   Sha256Hex(kMqarRules), ") only; use a worker of the sweep's build"));
  }
  auto set = std::unique_ptr<DataSet>(new DataSet);
  set->sha256_ = ref.sha256();
  set->reference_ = ref.SerializeAsString();
  return set;
}

bool DataSet::Is(const v1::DataRef& ref, const std::vector<std::string>& paths) const {
  return paths == paths_ && ref.SerializeAsString() == reference_;
}

absl::StatusOr<DataSplits> DataSet::Splits(int train_length) {
  if (made()) {
    return absl::InvalidArgumentError(
        "associative recall (format mqar) has no text, so no splits and no loss on them; measure the task mqar instead "
        "(evaluate: lengths: [] and tasks: [mqar])");
  }
  return MakeSplits(*tokens_, train_length);
}

absl::StatusOr<const TargetSpans*> DataSet::Spans(int train_length, Split split) {
  const auto key = std::make_pair(train_length, split);
  auto it = spans_.find(key);
  if (it == spans_.end()) {
    ABLATE_ASSIGN_OR_RETURN(const DataSplits splits, Splits(train_length));
    ABLATE_ASSIGN_OR_RETURN(TargetSpans spans, MakeTargetSpans(*tokens_, splits.of(split), train_length));
    it = spans_.emplace(key, std::move(spans)).first;
  }
  return &it->second;
}

}  // namespace ablate
