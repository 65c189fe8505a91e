// See evaluation_key.h.
#include "experiments/evaluation_key.h"

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace ablate {
namespace {

std::string Hashes(const char* name, const std::vector<std::string>& files) {
  std::string list;
  for (const std::string& sha256 : files) absl::StrAppend(&list, list.empty() ? "" : ",", "\"", sha256, "\"");
  return list.empty() ? "" : absl::StrCat(",\"", name, "\":[", list, "]");
}

}  // namespace

std::string EvaluationKeyText::KeyOf(const std::string& stage_key) const {
  return Sha256Hex(absl::StrCat(before, stage_key, "\"", after));
}

EvaluationKeyText MakeEvaluationKeyText(const std::string& eval_json, const std::vector<std::string>& files,
                                        int64_t length_tokens, const std::string& split,
                                        const std::vector<std::string>& tokenizer) {
  return {absl::StrCat("{\"eval\":", eval_json, Hashes("files", files), ",\"length\":", length_tokens, ",\"split\":\"", split,
                       "\",\"state\":\""),
          absl::StrCat(Hashes("tokenizer", tokenizer), ",\"what\":\"evaluation\"}")};
}

}  // namespace ablate
