#include "server/artifacts/artifact_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ablate {
namespace {

constexpr int64_t kForgetPartialSeconds = 7 * 24 * 3600;
constexpr size_t kHashChunk = 1 << 20;

absl::Status CheckName(const std::string& sha256) {
  if (IsSha256Hex(sha256)) return absl::OkStatus();
  return absl::InvalidArgumentError("sha256: expected 64 lower-case hexadecimal digits");
}

absl::Status SyncDir(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open", path, errno);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (result != 0) return FileError("cannot fsync", path, error);
  return absl::OkStatus();
}

int64_t SizeOr(const std::string& path, int64_t otherwise) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return otherwise;
  return info.st_size;
}

}  // namespace

// What all uploads of one hash share. `size` never falls while `fd` is open, and every upload starts at or below it,
// so the bytes below `size` have all been written.
struct ArtifactStore::Upload::Entry {
  explicit Entry(std::string hash) : sha256(std::move(hash)) {}
  ~Entry() {
    if (fd >= 0) ::close(fd);
  }
  const std::string sha256;
  Mutex mutex;
  int fd ABLATE_GUARDED_BY(mutex) = -1;
  int64_t size ABLATE_GUARDED_BY(mutex) = 0;
  bool complete ABLATE_GUARDED_BY(mutex) = false;  // has its final name: never written again
  std::atomic<bool> broken = false;                // the content was false, or removed, and is gone
};

absl::StatusOr<std::unique_ptr<ArtifactStore>> ArtifactStore::Open(const std::string& root,
                                                                     int64_t min_free_bytes) {
  const std::string partial = JoinPath(root, "partial");
  ABLATE_RETURN_IF_ERROR(MakeDirs(partial));
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(partial));
  for (const std::string& name : names) {
    const std::string path = JoinPath(partial, name);
    struct stat info;
    if (::stat(path.c_str(), &info) == 0 && ::time(nullptr) - info.st_mtime > kForgetPartialSeconds) {
      LOG(INFO) << "forgetting the partial upload " << name << ", untouched for a week";
      ABLATE_RETURN_IF_ERROR(RemoveFile(path));
    }
  }
  return std::unique_ptr<ArtifactStore>(new ArtifactStore(root, min_free_bytes));
}

std::string ArtifactStore::FinalPath(const std::string& sha256) const {
  return absl::StrCat(root_, "/", sha256.substr(0, 2), "/", sha256.substr(2));
}

std::string ArtifactStore::PartialPath(const std::string& sha256) const {
  return absl::StrCat(root_, "/partial/", sha256);
}

absl::StatusOr<ArtifactStore::StatResult> ArtifactStore::Stat(const std::string& sha256) {
  ABLATE_RETURN_IF_ERROR(CheckName(sha256));
  if (const int64_t size = SizeOr(FinalPath(sha256), -1); size >= 0) return StatResult{.complete = true, .bytes = size};
  return StatResult{.complete = false, .bytes = SizeOr(PartialPath(sha256), 0)};
}

bool ArtifactStore::Has(const std::string& sha256) const {
  return IsSha256Hex(sha256) && SizeOr(FinalPath(sha256), -1) >= 0;
}

absl::StatusOr<std::unique_ptr<ArtifactStore::Upload>> ArtifactStore::StartUpload(const std::string& sha256,
                                                                                  int64_t total, int64_t offset) {
  ABLATE_RETURN_IF_ERROR(CheckName(sha256));
  if (total < 0) return absl::InvalidArgumentError("bytes: must not be negative");
  if (offset < 0 || offset > total) {
    return absl::OutOfRangeError(absl::StrCat("offset: ", offset, " is not within 0 and ", total, " bytes"));
  }
  std::shared_ptr<Upload::Entry> entry;
  bool alone = false;
  {
    MutexLock lock(&mutex_);
    std::weak_ptr<Upload::Entry>& slot = entries_[sha256];
    entry = slot.lock();
    // A broken one is only kept by those who still have to hear of it.
    if (entry != nullptr && entry->broken) entry = nullptr;
    if (entry == nullptr) {
      entry = std::make_shared<Upload::Entry>(sha256);
      slot = entry;
      alone = true;
    }
    std::erase_if(entries_, [](const auto& item) { return item.second.expired(); });
  }

  MutexLock lock(&entry->mutex);
  if (entry->complete || SizeOr(FinalPath(sha256), -1) >= 0) {
    entry->complete = true;
    return std::unique_ptr<Upload>(new Upload(this, entry, total, offset));
  }
  const std::string path = PartialPath(sha256);
  if (entry->fd < 0) {
    entry->fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (entry->fd < 0 && errno == ENOENT) {
      // Somebody removed the folders under a running server.
      LOG(WARNING) << Dirname(path) << " was gone; making it again";
      ABLATE_RETURN_IF_ERROR(MakeDirs(Dirname(path)));
      entry->fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    }
    if (entry->fd < 0) return FileError("cannot open", path, errno);
    entry->size = SizeOr(path, 0);
  }
  if (alone && entry->size > total) {
    if (::ftruncate(entry->fd, 0) != 0) return FileError("cannot truncate", path, errno);
    entry->size = 0;
  }
  if (offset > entry->size) {
    return absl::OutOfRangeError(
        absl::StrCat("offset: ", offset, " is beyond the ", entry->size, " bytes that are here"));
  }
  ABLATE_ASSIGN_OR_RETURN(const uint64_t free, FreeBytes(root_));
  if (static_cast<uint64_t>(total - std::min(total, entry->size) + min_free_bytes_) > free) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no room for ", HumanBytes(static_cast<uint64_t>(total)), ": ", HumanBytes(free),
        " are free on the server's disk, of which ", HumanBytes(static_cast<uint64_t>(min_free_bytes_)), " stay free"));
  }
  return std::unique_ptr<Upload>(new Upload(this, entry, total, offset));
}

ArtifactStore::Upload::Upload(ArtifactStore* store, std::shared_ptr<Entry> entry, int64_t total, int64_t position)
    : store_(store), entry_(std::move(entry)), total_(total), position_(position) {}

ArtifactStore::Upload::~Upload() = default;

absl::Status ArtifactStore::Upload::Append(std::string_view chunk) {
  if (static_cast<int64_t>(chunk.size()) > total_ - position_) {
    return absl::InvalidArgumentError(absl::StrCat("more than the announced ", total_, " bytes"));
  }
  MutexLock lock(&entry_->mutex);
  if (entry_->broken) {
    return absl::AbortedError("another upload of this hash carried other content; start again");
  }
  if (entry_->complete) {
    position_ += static_cast<int64_t>(chunk.size());
    return absl::OkStatus();
  }
  while (!chunk.empty()) {
    const ssize_t count = ::pwrite(entry_->fd, chunk.data(), chunk.size(), position_);
    if (count < 0) {
      if (errno == EINTR) continue;
      return FileError("cannot write", store_->PartialPath(entry_->sha256), errno);
    }
    chunk.remove_prefix(static_cast<size_t>(count));
    position_ += count;
    if (position_ > entry_->size) entry_->size = position_;
  }
  return absl::OkStatus();
}

absl::Status ArtifactStore::Upload::Finish() {
  MutexLock lock(&entry_->mutex);
  if (entry_->broken) {
    return absl::AbortedError("another upload of this hash carried other content; start again");
  }
  if (entry_->complete) return absl::OkStatus();
  if (position_ < total_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the upload ended at byte ", position_, " of ", total_, "; go on from what StatArtifact says"));
  }
  const std::string partial = store_->PartialPath(entry_->sha256);
  if (::fsync(entry_->fd) != 0) return FileError("cannot fsync", partial, errno);
  const absl::StatusOr<std::string> hash = Sha256HexOfFile(partial);
  if (absl::IsNotFound(hash.status())) {
    entry_->broken = true;
    return absl::AbortedError(absl::StrCat(partial, " was removed meanwhile; start again"));
  }
  ABLATE_RETURN_IF_ERROR(hash.status());
  const std::string& found = *hash;
  if (entry_->size != total_ || found != entry_->sha256) {
    entry_->broken = true;
    ABLATE_RETURN_IF_ERROR(RemoveFile(partial));
    return absl::DataLossError(absl::StrCat("the content has SHA-256 ", found, ", not ", entry_->sha256,
                                            "; it was thrown away, upload it again"));
  }
  if (entry_->broken) return absl::AbortedError("the artifact was removed meanwhile; start again");
  const std::string path = store_->FinalPath(entry_->sha256);
  ABLATE_RETURN_IF_ERROR(MakeDirs(Dirname(path)));
  ABLATE_RETURN_IF_ERROR(RenameFile(partial, path));
  entry_->complete = true;
  ABLATE_RETURN_IF_ERROR(SyncDir(Dirname(path)));
  return SyncDir(store_->root_);
}

ArtifactStore::Reader::~Reader() { ::close(fd_); }

absl::Status ArtifactStore::Reader::Read(size_t max, std::string* out) {
  out->resize(max);
  while (true) {
    const ssize_t count = ::read(fd_, out->data(), max);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("cannot read", "the artifact", errno);
    out->resize(static_cast<size_t>(count));
    hash_.Update(out->data(), out->size());
    position_ += count;
    if ((count == 0 || position_ >= total_) && !ended_) {
      ended_ = true;
      if (const std::string found = hash_.HexDigest(); found != sha256_) {
        out->clear();
        store_->SetAside(sha256_, found);
        return absl::DataLossError(absl::StrCat("artifact ", sha256_, " was damaged on the server's disk (its bytes have SHA-256 ",
                                                found, "); it was set aside"));
      }
    }
    return absl::OkStatus();
  }
}

void ArtifactStore::SetAside(const std::string& sha256, const std::string& found) const {
  const std::string path = FinalPath(sha256);
  const absl::Status status = RenameFile(path, path + ".corrupt");
  LOG(ERROR) << "artifact " << sha256 << " is damaged (its bytes have SHA-256 " << found << "); "
             << (status.ok() ? "set aside as " + path + ".corrupt" : std::string(status.message()));
}

absl::StatusOr<std::unique_ptr<ArtifactStore::Reader>> ArtifactStore::OpenReader(const std::string& sha256,
                                                                                 int64_t offset) const {
  ABLATE_RETURN_IF_ERROR(CheckName(sha256));
  const std::string path = FinalPath(sha256);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT)
    return absl::NotFoundError(absl::StrCat("artifact ", sha256, " is not here (or was collected)"));
  if (fd < 0) return FileError("cannot open", path, errno);
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return FileError("cannot stat", path, error);
  }
  std::unique_ptr<Reader> reader(new Reader(this, sha256, fd, info.st_size));
  if (offset < 0 || offset > info.st_size) {
    return absl::OutOfRangeError(absl::StrCat("offset: ", offset, " is not within 0 and ", info.st_size, " bytes"));
  }
  std::string skipped;
  while (reader->position_ < offset) {
    const size_t rest = static_cast<size_t>(offset - reader->position_);
    ABLATE_RETURN_IF_ERROR(reader->Read(std::min(rest, kHashChunk), &skipped));
    if (skipped.empty()) break;
  }
  return reader;
}

void ArtifactStore::RemoveUnnamed(const std::function<bool(const std::string&)>& is_named, int64_t min_age_seconds) {
  int64_t count = 0, bytes = 0;
  for (const std::string& folder : ListDir(root_).value_or(std::vector<std::string>())) {
    if (folder.size() != 2) continue;
    for (const std::string& rest : ListDir(JoinPath(root_, folder)).value_or(std::vector<std::string>())) {
      const std::string sha256 = folder + rest;
      struct stat info;
      if (!IsSha256Hex(sha256) || is_named(sha256) || ::stat(FinalPath(sha256).c_str(), &info) != 0) continue;
      // A newer one may be data of a sweep that is about to be submitted, or a state whose report is on its way.
      if (::time(nullptr) - info.st_mtime < min_age_seconds || !Remove(sha256).ok()) continue;
      ++count;
      bytes += info.st_size;
    }
  }
  LOG_IF(INFO, count > 0) << "removed " << count << " artifacts that nothing names ("
                          << HumanBytes(static_cast<uint64_t>(bytes)) << ")";
}

absl::Status ArtifactStore::Remove(const std::string& sha256) {
  ABLATE_RETURN_IF_ERROR(CheckName(sha256));
  std::shared_ptr<Upload::Entry> entry;
  {
    // Those who still upload it must not believe that it stays: they see a broken entry and start again.
    MutexLock lock(&mutex_);
    const auto found = entries_.find(sha256);
    if (found != entries_.end()) entry = found->second.lock();
    entries_.erase(sha256);
  }
  if (entry != nullptr) entry->broken = true;  // without its lock: Finish may be hashing gigabytes
  ABLATE_RETURN_IF_ERROR(RemoveFile(PartialPath(sha256)));
  return RemoveFile(FinalPath(sha256));
}

}  // namespace ablate
