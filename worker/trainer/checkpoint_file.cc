#include "worker/trainer/checkpoint_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"

namespace ablate {
namespace {

using Json = nlohmann::json;  // objects are sorted by key: one text for one content

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie in memory");

constexpr char kMagic[] = "ABLATECK";  // 8 bytes
constexpr uint32_t kVersion = 1;
constexpr size_t kPreludeBytes = 16;  // magic, version, header length
constexpr size_t kAlignment = 64;
constexpr size_t kDigestBytes = 64;  // hex digits at the end

size_t AlignUp(size_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

Json HeaderJson(const CheckpointHeader& header) {
  Json json = {{"kind", header.kind},
               {"model", header.model},
               {"config", header.config},
               {"data_sha256", header.data_sha256},
               {"seed", header.seed},
               {"step", header.step},
               {"samples", header.samples},
               {"optimizer_step", header.optimizer_step},
               {"numerics_version", header.numerics_version}};
  if (header.kind == "optimizer") {
    json["totals"] = {{"tokens", header.totals.tokens},
                      {"zero_rows", header.totals.zero_rows},
                      {"uncontrasted_rows", header.totals.uncontrasted_rows},
                      {"max_gradient_norm", header.totals.max_gradient_norm},
                      {"recent_losses", header.totals.recent_losses}};
  }
  return json;
}

struct BadHeader {
  std::string what;
};

// Throws BadHeader on a number that is not whole or out of range: the library would convert 1e300 into any type.
template <typename Number>
Number Whole(const Json& value) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<Number>(value.get<uint64_t>())
                        : value.is_number_integer() && std::in_range<Number>(value.get<int64_t>());
  if (!fits)
    throw BadHeader{absl::StrCat("expected a whole number, found ", value.is_number() ? "another" : value.type_name())};
  return value.get<Number>();
}

// Throws on what is missing or of another type.
CheckpointHeader HeaderFromJson(const Json& json) {
  CheckpointHeader header;
  header.kind = json.at("kind").get<std::string>();
  header.model = json.at("model").get<std::string>();
  header.config = json.at("config").get<std::string>();
  header.data_sha256 = json.at("data_sha256").get<std::string>();
  header.seed = Whole<int64_t>(json.at("seed"));
  header.step = Whole<int64_t>(json.at("step"));
  header.samples = Whole<int64_t>(json.at("samples"));
  header.optimizer_step = Whole<int64_t>(json.at("optimizer_step"));
  header.numerics_version = Whole<int>(json.at("numerics_version"));
  if (header.kind == "optimizer") {
    const Json& totals = json.at("totals");
    header.totals.tokens = Whole<int64_t>(totals.at("tokens"));
    header.totals.zero_rows = Whole<int64_t>(totals.at("zero_rows"));
    header.totals.uncontrasted_rows = Whole<int64_t>(totals.at("uncontrasted_rows"));
    header.totals.max_gradient_norm = totals.at("max_gradient_norm").get<double>();
    header.totals.recent_losses = totals.at("recent_losses").get<std::vector<double>>();
  }
  return header;
}

// The product of a shape; -1 when it is no shape of a file that could exist.
int64_t Count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 1 || count > std::numeric_limits<int64_t>::max() / 4 / size) return -1;
    count *= size;
  }
  return count;
}

// A new file that hashes what goes through it, and removes itself unless committed.
class HashingFile {
 public:
  explicit HashingFile(std::string path)
      : path_(std::move(path)), temporary_(absl::StrCat(path_, ".tmp.", ::getpid())) {}
  ~HashingFile() {
    if (fd_ >= 0) ::close(fd_);
    if (fd_ >= 0 && !committed_) ::unlink(temporary_.c_str());
  }

  absl::Status Open() {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return fd_ < 0 ? Error("cannot create", temporary_) : absl::OkStatus();
  }
  absl::Status Write(const void* data, size_t size) {
    content_.Update(data, size);
    return WriteRaw(data, size);
  }
  absl::Status Pad() {
    static constexpr char kZeros[kAlignment] = {};
    return Write(kZeros, AlignUp(bytes_) - bytes_);
  }
  // Writes the digest of what came before, and makes the file durable under its name.
  absl::StatusOr<FileDigest> Commit() {
    const std::string digest = content_.HexDigest();
    ABLATE_RETURN_IF_ERROR(WriteRaw(digest.data(), digest.size()));
    if (::fsync(fd_) != 0) return Error("cannot fsync", temporary_);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return Error("cannot rename to", path_);
    committed_ = true;
    const int folder = ::open(Dirname(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = folder >= 0 && ::fsync(folder) == 0;
    const absl::Status status = synced ? absl::OkStatus() : Error("cannot fsync the folder of", path_);
    if (folder >= 0) ::close(folder);
    ABLATE_RETURN_IF_ERROR(status);
    return FileDigest{whole_.HexDigest(), static_cast<int64_t>(bytes_)};
  }

 private:
  absl::Status WriteRaw(const void* data, size_t size) {
    whole_.Update(data, size);
    const char* next = static_cast<const char*>(data);
    for (size_t left = size; left > 0;) {
      const ssize_t count = ::write(fd_, next, left);
      if (count < 0) {
        if (errno == EINTR) continue;
        return Error("cannot write", temporary_);
      }
      next += count;
      left -= static_cast<size_t>(count);
    }
    bytes_ += size;
    return absl::OkStatus();
  }
  static absl::Status Error(const char* action, const std::string& path) { return FileError(action, path, errno); }

  const std::string path_, temporary_;
  int fd_ = -1;
  bool committed_ = false;
  size_t bytes_ = 0;
  Sha256 content_, whole_;
};

}  // namespace

absl::StatusOr<FileDigest> WriteCheckpointFile(const std::string& path, const CheckpointHeader& header,
                                               const std::vector<TensorToWrite>& tensors) {
  Json json = HeaderJson(header);
  json["tensors"] = Json::array();
  size_t offset = 0, largest = 0;
  for (const TensorToWrite& tensor : tensors) {
    const int64_t count = Count(tensor.shape);
    if (count < 0) return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " has no valid shape"));
    json["tensors"].push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"offset", offset}});
    offset = AlignUp(offset + 4 * static_cast<size_t>(count));
    largest = std::max(largest, static_cast<size_t>(count));
  }
  json["data_bytes"] = offset;
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("a checkpoint's header is no UTF-8: ", error.what()));
  }

  HashingFile file(path);
  ABLATE_RETURN_IF_ERROR(file.Open());
  const uint32_t numbers[2] = {kVersion, static_cast<uint32_t>(text.size())};
  ABLATE_RETURN_IF_ERROR(file.Write(kMagic, 8));
  ABLATE_RETURN_IF_ERROR(file.Write(numbers, sizeof(numbers)));
  ABLATE_RETURN_IF_ERROR(file.Write(text.data(), text.size()));
  ABLATE_RETURN_IF_ERROR(file.Pad());
  std::vector<float> values(largest);
  for (const TensorToWrite& tensor : tensors) {
    ABLATE_RETURN_IF_ERROR(tensor.read(values.data()));
    ABLATE_RETURN_IF_ERROR(file.Write(values.data(), 4 * static_cast<size_t>(Count(tensor.shape))));
    ABLATE_RETURN_IF_ERROR(file.Pad());
  }
  return file.Commit();
}

absl::StatusOr<std::unique_ptr<CheckpointFile>> CheckpointFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open checkpoint", path, errno);
  auto file = std::unique_ptr<CheckpointFile>(new CheckpointFile);
  file->path_ = path;
  struct stat info {};
  int error = ::fstat(fd, &info) != 0 ? errno : S_ISREG(info.st_mode) ? 0 : EISDIR;
  if (error == 0 && info.st_size > 0) {
    file->bytes_ = static_cast<size_t>(info.st_size);
    file->mapping_ = ::mmap(nullptr, file->bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file->mapping_ == MAP_FAILED) {
      error = errno;
      file->mapping_ = nullptr;
    }
  }
  ::close(fd);
  if (error != 0) return FileError("cannot read checkpoint", path, error);
  ABLATE_RETURN_IF_ERROR(WithContext(file->Parse(), absl::StrCat("checkpoint ", path)));
  return file;
}

CheckpointFile::~CheckpointFile() {
  if (mapping_ != nullptr) ::munmap(mapping_, bytes_);
}

// The digest is checked before anything inside is believed; what fails after it was written wrongly, by us or by a
// stranger.
absl::Status CheckpointFile::Parse() {
  const char* data = static_cast<const char*>(mapping_);
  if (bytes_ < kPreludeBytes + kDigestBytes)
    return absl::DataLossError(absl::StrCat("is cut short: ", bytes_, " bytes"));
  if (std::memcmp(data, kMagic, 8) != 0) {
    return absl::InvalidArgumentError(
        "does not start like an Ablate checkpoint: another kind of file, or damaged at its start");
  }
  uint32_t numbers[2];
  std::memcpy(numbers, data + 8, sizeof(numbers));
  Sha256 content, whole;
  content.Update(data, bytes_ - kDigestBytes);
  whole.Update(data, bytes_);
  const std::string stated(data + bytes_ - kDigestBytes, kDigestBytes);
  if (content.HexDigest() != stated) {
    return absl::DataLossError("is damaged or cut short: its content does not have the SHA-256 at its end");
  }
  if (numbers[0] != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("has format version ", numbers[0], "; this build reads version ", kVersion));
  }
  digest_ = {whole.HexDigest(), static_cast<int64_t>(bytes_)};
  const size_t header_end = kPreludeBytes + numbers[1], data_begin = AlignUp(header_end);
  const size_t data_end = bytes_ - kDigestBytes;
  if (data_begin > data_end) return absl::DataLossError("states a header longer than itself");
  try {
    const Json json = Json::parse(data + kPreludeBytes, data + header_end);
    header_ = HeaderFromJson(json);
    if (Whole<size_t>(json.at("data_bytes")) != data_end - data_begin)
      return absl::DataLossError("states another size of its data");
    for (const Json& entry : json.at("tensors")) {
      Tensor tensor{.name = entry.at("name").get<std::string>()};
      for (const Json& extent : entry.at("shape")) tensor.shape.push_back(Whole<int64_t>(extent));
      tensor.count = Count(tensor.shape);
      const auto offset = Whole<size_t>(entry.at("offset")), available = data_end - data_begin;
      if (tensor.count < 0 || offset % kAlignment != 0 || offset > available ||
          static_cast<size_t>(tensor.count) > (available - offset) / 4) {
        return absl::DataLossError(absl::StrCat("has a tensor ", tensor.name, " outside its data"));
      }
      tensor.data = reinterpret_cast<const float*>(data + data_begin + offset);
      tensors_.push_back(std::move(tensor));
    }
  } catch (const BadHeader& bad) {
    return absl::DataLossError(absl::StrCat("has a header that cannot be read: ", bad.what));
  } catch (const Json::exception& error) {
    return absl::DataLossError(absl::StrCat("has a header that cannot be read: ", error.what()));
  }
  return absl::OkStatus();
}

const CheckpointFile::Tensor* CheckpointFile::Find(std::string_view name) const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace ablate
