#include "worker/trainer/data_tokens.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace ablate {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are read in place");

constexpr int32_t kShardMagic = 20240520;
constexpr int32_t kShardVersion = 1;
constexpr size_t kShardHeaderBytes = 256 * sizeof(int32_t);

absl::Status OpenError(const std::string& path, int error) { return FileError("cannot read data file", path, error); }

// The number of tokens that the header of a shard of `bytes` bytes states.
absl::StatusOr<int64_t> CheckShardHeader(const std::string& path, const unsigned char* data, size_t bytes) {
  if (bytes < kShardHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is no llm.c token shard: ", bytes, " bytes, less than its header of ", kShardHeaderBytes));
  }
  int32_t header[3];
  std::memcpy(header, data, sizeof(header));
  if (header[0] != kShardMagic) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no llm.c token shard: it starts with ", header[0],
                                                   ", expected ", kShardMagic,
                                                   "; for plain text set the data's format to text"));
  }
  if (header[1] != kShardVersion) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is a token shard of version ", header[1], "; only version ",
                                                   kShardVersion, " (GPT-2 tokens in uint16) can be read"));
  }
  const int64_t tokens = header[2];
  if (tokens < 1) return absl::InvalidArgumentError(absl::StrCat(path, " states ", tokens, " tokens in its header"));
  const uint64_t expected = kShardHeaderBytes + 2 * static_cast<uint64_t>(tokens);
  if (bytes != expected) {
    return absl::InvalidArgumentError(absl::StrCat(path, " states ", tokens, " tokens, which take ", expected,
                                                   " bytes, but has ", bytes,
                                                   bytes < expected ? ": cut short" : ": too long"));
  }
  return tokens;
}

// The offset of the first byte that is no part of well-formed UTF-8 (Unicode 15, table 3-7), or `size`.
size_t Utf8Prefix(const unsigned char* text, size_t size) {
  const auto within = [&](size_t at, unsigned low, unsigned high) {
    return at < size && text[at] >= low && text[at] <= high;
  };
  for (size_t i = 0; i < size;) {
    const unsigned char c = text[i];
    if (c < 0x80) {
      uint64_t word;
      while (i + 8 <= size && (std::memcpy(&word, text + i, 8), (word & 0x8080808080808080u) == 0)) i += 8;
      while (i < size && text[i] < 0x80) ++i;
      continue;
    }
    size_t length = 0;
    if (c >= 0xc2 && c <= 0xdf) length = within(i + 1, 0x80, 0xbf) ? 2 : 0;
    if (c >= 0xe0 && c <= 0xef) length = within(i + 1, c == 0xe0 ? 0xa0 : 0x80, c == 0xed ? 0x9f : 0xbf) ? 3 : 0;
    if (c >= 0xf0 && c <= 0xf4) length = within(i + 1, c == 0xf0 ? 0x90 : 0x80, c == 0xf4 ? 0x8f : 0xbf) ? 4 : 0;
    for (size_t k = 2; k < length; ++k) {
      if (!within(i + k, 0x80, 0xbf)) length = 0;
    }
    if (length == 0) return i;
    i += length;
  }
  return size;
}

uint16_t Token16(const unsigned char* tokens, int64_t index) {
  uint16_t token;
  std::memcpy(&token, tokens + 2 * index, sizeof(token));
  return token;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenData>> TokenData::Open(DataFormat format, const std::vector<std::string>& paths) {
  if (paths.empty()) return absl::InvalidArgumentError("the data set names no file");
  auto data = std::unique_ptr<TokenData>(new TokenData(format));
  data->files_.reserve(paths.size());
  for (const std::string& path : paths) ABLATE_RETURN_IF_ERROR(data->Add(path));
  return data;
}

absl::Status TokenData::Add(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return OpenError(path, errno);
  struct stat info {};
  int error = ::fstat(fd, &info) != 0 ? errno : S_ISREG(info.st_mode) ? 0 : EISDIR;
  if (error != 0 || info.st_size == 0) {
    ::close(fd);
    if (error == 0) return absl::InvalidArgumentError(absl::StrCat("data file ", path, " is empty"));
    return OpenError(path, error);
  }
  File file{.path = path, .mapped_bytes = static_cast<size_t>(info.st_size), .begin = size_};
  file.mapping = ::mmap(nullptr, file.mapped_bytes, PROT_READ, MAP_SHARED, fd, 0);
  error = errno;
  ::close(fd);
  if (file.mapping == MAP_FAILED) return OpenError(path, error);
  const auto* bytes = static_cast<const unsigned char*>(file.mapping);
  if (format_ == DataFormat::kText) {
    if (const size_t valid = Utf8Prefix(bytes, file.mapped_bytes); valid < file.mapped_bytes) {
      const unsigned value = bytes[valid];
      ::munmap(file.mapping, file.mapped_bytes);
      return absl::InvalidArgumentError(
          absl::StrCat("data file ", path, " is no UTF-8 text: byte 0x", absl::Hex(value, absl::kZeroPad2),
                       " at offset ", valid, "; convert it (iconv -t UTF-8), or name its format in the sweep's data"));
    }
    file.tokens = bytes;
    file.end = file.begin + static_cast<int64_t>(file.mapped_bytes);
  } else {
    auto tokens = CheckShardHeader(path, bytes, file.mapped_bytes);
    if (!tokens.ok()) {
      ::munmap(file.mapping, file.mapped_bytes);
      return tokens.status();
    }
    file.tokens = bytes + kShardHeaderBytes;
    file.end = file.begin + *tokens;
  }
  size_ = file.end;
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

TokenData::~TokenData() {
  for (const File& file : files_) ::munmap(file.mapping, file.mapped_bytes);
}

const TokenData::File& TokenData::FileAt(int64_t position) const {
  const auto next = std::upper_bound(files_.begin(), files_.end(), position,
                                     [](int64_t p, const File& file) { return p < file.begin; });
  return *(next - 1);
}

absl::Status TokenData::Read(int64_t begin, int64_t count, int32_t* out) const {
  CHECK(begin >= 0 && count >= 0 && begin + count <= size_) << begin << "+" << count << " of " << size_;
  while (count > 0) {
    const File& file = FileAt(begin);
    const int64_t offset = begin - file.begin;
    const int64_t here = std::min(count, file.end - begin);
    if (format_ == DataFormat::kText) {
      std::copy_n(file.tokens + offset, here, out);
    } else {
      for (int64_t i = 0; i < here; ++i) {
        const int32_t token = Token16(file.tokens, offset + i);
        if (token >= kGpt2Vocabulary) {
          return absl::InvalidArgumentError(absl::StrCat(file.path, ": token ", offset + i, " is ", token,
                                                         ", but GPT-2's vocabulary ends at ", kGpt2Vocabulary - 1));
        }
        out[i] = token;
      }
    }
    begin += here;
    count -= here;
    out += here;
  }
  return absl::OkStatus();
}

std::optional<int64_t> TokenData::FirstWorkStart(int64_t from, int64_t to) const {
  from = std::max<int64_t>(from, 0);
  to = std::min(to, size_);
  if (from >= to) return std::nullopt;
  if (from == 0) return 0;
  if (format_ == DataFormat::kText) {
    for (const File& file : files_) {
      if (file.begin >= from) return file.begin < to ? std::optional(file.begin) : std::nullopt;
    }
    return std::nullopt;
  }
  for (int64_t position = from; position < to;) {
    const File& file = FileAt(position);
    const int64_t end = std::min(to, file.end);
    for (; position < end; ++position) {
      if (Token16(file.tokens, position - file.begin) == kGpt2EndOfText) return position;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> TokenData::LastWorkStart(int64_t from, int64_t to) const {
  from = std::max<int64_t>(from, 0);
  to = std::min(to, size_);
  if (from >= to) return std::nullopt;
  if (format_ == DataFormat::kText) {
    const int64_t begin = FileAt(to - 1).begin;
    return begin >= from ? std::optional(begin) : std::nullopt;
  }
  for (int64_t position = to - 1; position >= from;) {
    const File& file = FileAt(position);
    const int64_t begin = std::max(from, file.begin);
    for (; position >= begin; --position) {
      if (position == 0 || Token16(file.tokens, position - file.begin) == kGpt2EndOfText) return position;
    }
  }
  return std::nullopt;
}

}  // namespace ablate
