// One opened data set with its splits and spans worked out once, kept by the trainer between tasks. Made data (MQAR)
// has no files: only its rules are opened, and there is neither a token stream nor a split of it. Must not know seeds,
// models or the pipe. Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/data_splits.h"
#include "worker/trainer/data_tokens.h"
#include "worker/trainer/train_config.h"

namespace ablate {

namespace v1 {
class DataRef;
}  // namespace v1

class DataSet {
 public:
  // `paths` are local files, one for each of ref.files. InvalidArgument: no format, another number of paths, made data
  // of rules that this build does not have, and what TokenData refuses. DataLoss: a file has not the size that the
  // reference states.
  static absl::StatusOr<std::unique_ptr<DataSet>> Open(const v1::DataRef& ref, const std::vector<std::string>& paths);

  // The trainer makes the samples (training_data.h).
  bool made() const { return tokens_ == nullptr; }
  // Of text and shards only.
  const TokenData& tokens() const { return *tokens_; }
  // kVocabularyOfConfiguration for made data.
  int vocabulary() const { return made() ? kVocabularyOfConfiguration : tokens_->vocabulary(); }
  const std::string& sha256() const { return sha256_; }
  // Whether Open with these arguments would give this very data.
  bool Is(const v1::DataRef& ref, const std::vector<std::string>& paths) const;

  // InvalidArgument also: made data has no splits.
  absl::StatusOr<DataSplits> Splits(int train_length);
  absl::StatusOr<const TargetSpans*> Spans(int train_length, Split split);

 private:
  DataSet() = default;
  static absl::StatusOr<std::unique_ptr<DataSet>> OpenMade(const v1::DataRef& ref,
                                                           const std::vector<std::string>& paths);

  std::unique_ptr<TokenData> tokens_;  // null: made data
  std::string sha256_;
  std::string reference_;  // the serialized DataRef
  std::vector<std::string> paths_;
  std::map<std::pair<int, Split>, TargetSpans> spans_;
};

}  // namespace ablate
