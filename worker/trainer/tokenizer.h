// Text to tokens and back, for tasks whose inputs are text: bytes, or GPT-2's byte-pair encoding. Must not know models
// or tasks. Thread rule: const after construction; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/data_tokens.h"

namespace ablate {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual int vocabulary() const = 0;
  virtual std::vector<int32_t> Encode(std::string_view text) const = 0;
  // The bytes of the tokens' texts, end to end; they need not be UTF-8. Tokens outside of the vocabulary, and the end of
  // a text, have none.
  virtual std::string Decode(const std::vector<int32_t>& tokens) const = 0;
};

// A byte is a token.
class ByteTokenizer : public Tokenizer {
 public:
  int vocabulary() const override { return kTextVocabulary; }
  std::vector<int32_t> Encode(std::string_view text) const override;
  std::string Decode(const std::vector<int32_t>& tokens) const override;
};

// The tokenizer that data of this format were made with. `paths`: local copies of an evaluation's `tokenizer` files.
// InvalidArgument: files for data of bytes; none for data of GPT-2 tokens; data that are no text. The message says what
// to write in the sweep file.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(DataFormat format, const std::vector<std::string>& paths);

}  // namespace ablate
