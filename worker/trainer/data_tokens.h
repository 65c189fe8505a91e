// The tokens of a data set as one stream: text files by bytes, or llm.c .bin shards of GPT-2 tokens, memory-mapped.
// Must not know splits, sampling or models.
//
// A "work" is the unit that a document never straddles: a text file, or what lies between two end-of-text tokens of the
// shards (shards are one stream in the order given; a work may go on in the next file). Plain text has no marks of its
// own for works inside a file, so one file is one work.
// Thread rule: const after Open; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ablate {

enum class DataFormat { kText, kTokenShards };

inline constexpr int kTextVocabulary = 256;
inline constexpr int kGpt2Vocabulary = 50257;
inline constexpr int kGpt2EndOfText = 50256;

class TokenData {
 public:
  // Shard: int32 header[256] = {20240520, 1, number of tokens, 0...}, then uint16 tokens, little-endian; the file must
  // be exactly that long. InvalidArgument: no file, an empty file, a header that is not one (says what was found and
  // expected), a length that does not fit it. NotFound, PermissionDenied, Unavailable: the file cannot be opened or
  // mapped.
  static absl::StatusOr<std::unique_ptr<TokenData>> Open(DataFormat format, const std::vector<std::string>& paths);
  ~TokenData();
  TokenData(const TokenData&) = delete;
  TokenData& operator=(const TokenData&) = delete;

  DataFormat format() const { return format_; }
  int vocabulary() const { return format_ == DataFormat::kText ? kTextVocabulary : kGpt2Vocabulary; }
  int64_t size() const { return size_; }

  // Copies tokens [begin, begin + count), which must lie within [0, size()). InvalidArgument: a token that the
  // vocabulary does not have, with the file and the index in it. (Checked where tokens are used: a look at every token
  // of 20 GB would delay each start.)
  absl::Status Read(int64_t begin, int64_t count, int32_t* out) const;

  // Where works start within [from, to): the first and the last such place. Position 0 is one. Nothing: none there.
  std::optional<int64_t> FirstWorkStart(int64_t from, int64_t to) const;
  std::optional<int64_t> LastWorkStart(int64_t from, int64_t to) const;

 private:
  struct File {
    std::string path;
    void* mapping = nullptr;
    size_t mapped_bytes = 0;
    const unsigned char* tokens = nullptr;  // bytes, or little-endian uint16 pairs
    int64_t begin = 0, end = 0;             // token positions in the stream
  };

  explicit TokenData(DataFormat format) : format_(format) {}
  absl::Status Add(const std::string& path);
  // The file that holds `position`, which must lie within [0, size()).
  const File& FileAt(int64_t position) const;

  const DataFormat format_;
  std::vector<File> files_;
  int64_t size_ = 0;
};

}  // namespace ablate
