// GPT-2's byte-pair encoding, from the files it is distributed in. Must not know models or tasks.
// Thread rule: const after Open; any thread.
//
// A text is split by GPT-2's pattern (words with the space before them, numbers, other characters, white space); within
// a piece the pair of neighbouring tokens whose joined bytes have the lowest rank is merged until no pair has one.
// Letters, numbers and white space are those of Unicode, as PCRE2 knows them; bytes that are not UTF-8 are a piece
// each.
// "<|endoftext|>" in a text is text: no task means it otherwise.
// Source: the encoder published with GPT-2 (Radford et al., 2019); byte-pair encoding: arXiv 1508.07909.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/tokenizer.h"

namespace ablate {

class Gpt2Tokenizer : public Tokenizer {
 public:
  // `paths`: encoder.json and vocab.bpe in either order (known by their content), or one .tiktoken file (lines of
  // base64 and rank). InvalidArgument: not such files, or not those of GPT-2 (a token with another number of bytes than
  // GPT-2's: names it); NotFound and others: ReadFile.
  static absl::StatusOr<std::unique_ptr<Gpt2Tokenizer>> Open(const std::vector<std::string>& paths);
  ~Gpt2Tokenizer() override;

  int vocabulary() const override { return kGpt2Vocabulary; }
  std::vector<int32_t> Encode(std::string_view text) const override;
  std::string Decode(const std::vector<int32_t>& tokens) const override;

 private:
  class Splitter;  // the pattern
  Gpt2Tokenizer();
  void EncodePiece(std::string_view piece, std::vector<int32_t>* tokens) const;

  std::vector<std::string> bytes_;                     // by token; the last, the end of a text, has none
  std::unordered_map<std::string, int32_t> token_of_;  // of bytes; GPT-2's tokens are in the order of their ranks
  std::unique_ptr<Splitter> splitter_;
};

}  // namespace ablate
