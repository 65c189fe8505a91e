// Fuzz target: data files, as shards of tokens or as text. First byte: the format; second: in how many files the rest
// lies (of shards, each with a true header where its lowest bit is set).
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/utf8.h"
#include "tests/fuzz/memory_file.h"
#include "worker/trainer/data_tokens.h"

namespace ablate {
namespace {

std::string Shard(std::string_view tokens) {
  int32_t header[256] = {20240520, 1, static_cast<int32_t>(tokens.size() / 2)};
  std::string shard(reinterpret_cast<const char*>(header), sizeof(header));
  return shard.append(tokens.substr(0, tokens.size() / 2 * 2));
}

}  // namespace
}  // namespace ablate

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ablate;  // NOLINT
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const bool text = TakeByte(&rest) % 2 == 1;
  const unsigned how = TakeByte(&rest);
  const size_t parts = 1 + how / 2 % 4;
  std::vector<std::unique_ptr<MemoryFile>> files;
  std::vector<std::string> paths;
  bool utf8 = true;
  for (size_t i = 0; i < parts; ++i) {
    const std::string_view part =
        rest.substr(rest.size() * i / parts, rest.size() * (i + 1) / parts - rest.size() * i / parts);
    utf8 = utf8 && IsUtf8(part);
    files.push_back(std::make_unique<MemoryFile>(!text && how % 2 == 1 ? Shard(part) : std::string(part)));
    paths.push_back(files.back()->path());
  }
  const auto tokens = TokenData::Open(text ? DataFormat::kText : DataFormat::kTokenShards, paths);
  if (!tokens.ok()) {
    CHECK(absl::IsInvalidArgument(tokens.status())) << tokens.status();
    return 0;
  }
  if (text) CHECK(utf8) << "bytes that are no UTF-8 were taken for text";
  const int64_t count = (*tokens)->size();
  CHECK_GT(count, 0);
  std::vector<int32_t> read(static_cast<size_t>(count));
  const absl::Status status = (*tokens)->Read(0, count, read.data());
  if (status.ok()) {
    for (const int32_t token : read) CHECK(token >= 0 && token < (*tokens)->vocabulary());
  } else {
    CHECK(absl::IsInvalidArgument(status)) << status;
  }
  // Works begin in order, and first and last agree on whether there is one.
  for (const int64_t from : {int64_t{0}, int64_t{1}, count / 3, count - 1}) {
    for (const int64_t to : {count, count / 2, from + 1}) {
      const auto first = (*tokens)->FirstWorkStart(from, to), last = (*tokens)->LastWorkStart(from, to);
      CHECK_EQ(first.has_value(), last.has_value());
      if (first) CHECK(from <= *first && *first <= *last && *last < to);
    }
  }
  return 0;
}
