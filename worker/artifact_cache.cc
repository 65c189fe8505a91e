#include "worker/artifact_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ablate {
namespace {

constexpr char kPart[] = ".part";
constexpr int64_t kPartLifeSeconds = 24 * 3600;
constexpr int kMaxMismatches = 3;
constexpr size_t kMaxHeld = 256;
constexpr size_t kChunkBytes = 1 << 20;
constexpr int64_t kStopPollMicros = 50'000;

// What a later try may mend. Trouble with files of this machine is for the caller: only he knows who could do without
// it.
bool IsTransient(const absl::Status& status) {
  if (ErrnoOf(status) != 0) return false;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kOutOfRange:
      return true;
    default:
      return false;
  }
}

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("cannot write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace

ArtifactCache::Pin& ArtifactCache::Pin::operator=(Pin&& other) noexcept {
  if (this == &other) return *this;
  Release();
  cache_ = std::exchange(other.cache_, nullptr);
  sha256_ = std::move(other.sha256_);
  path_ = std::move(other.path_);
  return *this;
}

void ArtifactCache::Pin::Release() {
  if (cache_ != nullptr) std::exchange(cache_, nullptr)->Unpin(sha256_);
}

absl::StatusOr<std::unique_ptr<ArtifactCache>> ArtifactCache::Open(ArtifactCacheOptions options) {
  std::unique_ptr<ArtifactCache> cache(new ArtifactCache(std::move(options)));
  ABLATE_RETURN_IF_ERROR(MakeDirs(cache->options_.dir));
  ABLATE_RETURN_IF_ERROR(cache->Scan());
  return cache;
}

absl::Status ArtifactCache::Scan() {
  ABLATE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(options_.dir));
  std::vector<std::pair<int64_t, std::string>> by_age;
  MutexLock lock(&mutex_);
  for (const std::string& name : names) {
    const std::string path = JoinPath(options_.dir, name);
    struct stat info = {};
    if (::stat(path.c_str(), &info) != 0) continue;
    if (IsSha256Hex(name)) {
      Entry& entry = entries_[name];
      entry.here = true;
      entry.bytes = info.st_size;
      total_bytes_ += info.st_size;
      by_age.emplace_back(static_cast<int64_t>(info.st_atim.tv_sec) * 1'000'000'000 + info.st_atim.tv_nsec, name);
    } else if (absl::EndsWith(name, kPart) && ::time(nullptr) - info.st_mtime > kPartLifeSeconds) {
      ABLATE_RETURN_IF_ERROR(RemoveFile(path));
    }
  }
  std::sort(by_age.begin(), by_age.end());
  for (const auto& [age, name] : by_age) entries_[name].last_use = ++uses_;
  EvictLocked();
  return absl::OkStatus();
}

std::string ArtifactCache::PathOf(const std::string& sha256) const { return JoinPath(options_.dir, sha256); }

ArtifactCache::Pin ArtifactCache::PinLocked(const std::string& sha256) {
  Entry& entry = entries_[sha256];
  entry.last_use = ++uses_;
  ++entry.pins;
  Pin pin;
  pin.cache_ = this;
  pin.sha256_ = sha256;
  pin.path_ = PathOf(sha256);
  // The next process orders by these. Not the time of writing: a trainer knows by it that a file is the one it has
  // loaded. (UTIME_NOW would be of the kernel's coarse clock, which does not order uses within some milliseconds.)
  struct timespec times[2] = {{0, 0}, {0, UTIME_OMIT}};
  ::clock_gettime(CLOCK_REALTIME, &times[0]);
  ::utimensat(AT_FDCWD, pin.path_.c_str(), times, 0);
  return pin;
}

void ArtifactCache::Unpin(const std::string& sha256) {
  MutexLock lock(&mutex_);
  --entries_[sha256].pins;
  EvictLocked();
}

void ArtifactCache::EvictLocked() {
  while (total_bytes_ > options_.max_bytes) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      const Entry& entry = it->second;
      if (!entry.here || entry.busy || entry.pins > 0) continue;
      if (oldest == entries_.end() || entry.last_use < oldest->second.last_use) oldest = it;
    }
    if (oldest == entries_.end()) return;
    const absl::Status removed = RemoveFile(PathOf(oldest->first));
    if (!removed.ok()) LOG(WARNING) << "artifact cache: " << removed.message();
    total_bytes_ -= oldest->second.bytes;
    entries_.erase(oldest);
  }
}

bool ArtifactCache::BackOff(int64_t* wait_ms, const StopSignal& stop, StopSignal::Mode at) const {
  *wait_ms = *wait_ms == 0 ? options_.first_backoff_ms : std::min(*wait_ms * 2, options_.max_backoff_ms);
  return !stop.WaitFor(*wait_ms * 1000, at);
}

absl::Status ArtifactCache::Verify(const std::string& sha256, int64_t bytes) {
  const std::string path = PathOf(sha256);
  ABLATE_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
  if (static_cast<int64_t>(size) == bytes) {
    ABLATE_ASSIGN_OR_RETURN(const std::string actual, Sha256HexOfFile(path));
    if (actual == sha256) return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(path, " does not have the hash of its name"));
}

absl::StatusOr<ArtifactCache::Pin> ArtifactCache::Fetch(const v1::ArtifactRef& ref, const StopSignal& stop) {
  const std::string& sha256 = ref.sha256();
  if (!IsSha256Hex(sha256)) return absl::InvalidArgumentError(absl::StrCat("\"", sha256, "\" is not a SHA-256"));
  bool verify = false;
  int64_t bytes = 0;
  {
    MutexLock lock(&mutex_);
    while (entries_[sha256].busy) {
      if (stop.raised()) return absl::CancelledError("stopped while another slot fetched the file");
      changed_.WaitFor(&mutex_, kStopPollMicros);
    }
    Entry& entry = entries_[sha256];
    if (entry.here && entry.verified && FileExists(PathOf(sha256))) return PinLocked(sha256);
    if (stop.raised()) return absl::CancelledError("stopped before the file was fetched");
    verify = entry.here;
    bytes = entry.bytes;
    entry.busy = true;
  }
  absl::Status status;
  bool whole = false;
  if (verify) {
    status = Verify(sha256, bytes);
    whole = status.ok();
    if (!whole) {
      LOG(WARNING) << "artifact cache: " << status.message() << "; fetching it again";
      status = RemoveFile(PathOf(sha256));
    }
  }
  if (status.ok() && !whole) status = Download(ref, stop);
  const int64_t size = static_cast<int64_t>(FileSize(PathOf(sha256)).value_or(0));
  MutexLock lock(&mutex_);
  return SettleLocked(sha256, status, size);
}

absl::Status ArtifactCache::Download(const v1::ArtifactRef& ref, const StopSignal& stop) {
  int64_t wait_ms = 0;
  int mismatches = 0;
  const std::string part = PathOf(ref.sha256()) + kPart;
  for (;;) {
    const int64_t before = static_cast<int64_t>(FileSize(part).value_or(0));
    const absl::Status status = DownloadOnce(ref, stop);
    if (status.ok()) return status;
    if (stop.raised()) return absl::CancelledError("stopped while the file was fetched");
    if (absl::IsDataLoss(status)) {
      if (++mismatches == kMaxMismatches) return status;
    } else if (!IsTransient(status)) {
      return status;
    }
    LOG_IF(WARNING, wait_ms == 0) << "fetching " << ref.sha256().substr(0, 12) << ": " << status.message()
                                  << "; trying again";
    if (static_cast<int64_t>(FileSize(part).value_or(0)) > before) wait_ms = 0;  // it moves: no reason to wait long
    if (!BackOff(&wait_ms, stop, StopSignal::Mode::kRelease))
      return absl::CancelledError("stopped while the file was fetched");
  }
}

absl::Status ArtifactCache::DownloadOnce(const v1::ArtifactRef& ref, const StopSignal& stop) {
  const std::string path = PathOf(ref.sha256()), part = path + kPart;
  const Fd fd(::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (fd.get() < 0) return FileError("cannot open", part, errno);

  // The hash is of the whole file, so what is here already is read again.
  Sha256 hash;
  int64_t have = 0;
  std::string buffer(kChunkBytes, '\0');
  for (;;) {
    const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("cannot read", part, errno);
    if (count == 0) break;
    hash.Update(buffer.data(), static_cast<size_t>(count));
    have += count;
  }

  const auto mismatch = [&](std::string_view what) {
    RemoveFile(part).IgnoreError();
    return absl::DataLossError(absl::StrCat("the coordinator's file ", ref.sha256(), " ", ToAbsl(what)));
  };
  if (ref.bytes() == 0 || have < ref.bytes()) {
    const absl::Status moved = options_.transport->Download(
        ref.sha256(), have,
        [&](std::string_view chunk) {
          hash.Update(chunk.data(), chunk.size());
          have += static_cast<int64_t>(chunk.size());
          if (ref.bytes() > 0 && have > ref.bytes()) return absl::DataLossError("is longer than announced");
          return WriteAll(fd.get(), chunk, part);
        },
        stop, StopSignal::Mode::kRelease);
    if (absl::IsDataLoss(moved)) return mismatch(ToStd(moved.message()));
    if (absl::IsOutOfRange(moved)) RemoveFile(part).IgnoreError();
    ABLATE_RETURN_IF_ERROR(moved);
  }
  if (ref.bytes() > 0 && have < ref.bytes()) {
    return absl::UnavailableError(absl::StrCat("the transfer ended after ", have, " of ", ref.bytes(), " bytes"));
  }
  if (hash.HexDigest() != ref.sha256()) return mismatch("has another hash");
  if (::fsync(fd.get()) != 0) return FileError("cannot write", part, errno);
  return RenameFile(part, path);
}

bool ArtifactCache::InPlace(const v1::DataFile& file, std::string* path) {
  if (options_.data_root.empty() || file.path().empty()) return false;
  // Neither "..", nor an absolute path, nor a link leads out of the root.
  const absl::StatusOr<std::string> real = ResolveBeneath(options_.data_root, file.path());
  if (!real.ok()) {
    LOG_IF(WARNING, !absl::IsNotFound(real.status())) << "not used: " << real.status().message();
    return false;
  }
  *path = *real;

  struct stat info = {};
  if (::stat(path->c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  if (info.st_size != file.bytes()) {
    LOG(WARNING) << *path << " has " << info.st_size << " bytes where the sweep's data has " << file.bytes()
                 << ": not used";
    return false;
  }
  const std::string key = absl::StrCat(*path, "\n", info.st_size, " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec,
                                       " ", info.st_ino, " ", file.sha256());
  {
    MutexLock lock(&mutex_);
    const auto it = in_place_.find(key);
    if (it != in_place_.end()) return it->second;
  }
  const absl::StatusOr<std::string> actual = Sha256HexOfFile(*path);
  const bool same = actual.ok() && *actual == file.sha256();
  LOG_IF(WARNING, !same) << *path << " is not the sweep's data (another SHA-256): not used";
  MutexLock lock(&mutex_);
  return in_place_[key] = same;
}

absl::StatusOr<ArtifactCache::Pin> ArtifactCache::FetchData(const v1::DataFile& file, const StopSignal& stop) {
  Pin pin;
  if (InPlace(file, &pin.path_)) return pin;
  if (file.bytes() > kMaxTravellingDataBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data file ", file.path(), " (", HumanBytes(static_cast<uint64_t>(file.bytes())),
        ") is too large to be sent; put it under a folder on this node and start ablate-worker with --data-root FOLDER",
        options_.data_root.empty() ? ""
                                   : absl::StrCat(" (now ", options_.data_root, ": not there, or another content)")));
  }
  v1::ArtifactRef ref;
  ref.set_sha256(file.sha256());
  ref.set_bytes(file.bytes());
  return Fetch(ref, stop);
}

absl::StatusOr<ArtifactCache::Pin> ArtifactCache::Adopt(const std::string& path, const v1::ArtifactRef& ref) {
  if (!IsSha256Hex(ref.sha256()))
    return absl::InvalidArgumentError(absl::StrCat("\"", ref.sha256(), "\" is not a SHA-256"));
  ABLATE_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
  const std::string target = PathOf(ref.sha256());
  {
    MutexLock lock(&mutex_);
    while (entries_[ref.sha256()].busy) changed_.Wait(&mutex_);
    Entry& entry = entries_[ref.sha256()];
    if (entry.here && entry.verified && FileExists(target)) return PinLocked(ref.sha256());
    entry.busy = true;
  }
  // Where a link cannot be had this copies, and that takes a while: not under the lock, which the heartbeat takes too.
  absl::Status status = RemoveFile(target);
  if (status.ok() && ::link(path.c_str(), target.c_str()) != 0) {
    std::error_code error;
    std::filesystem::copy_file(path, target, error);
    if (error) {
      RemoveFile(target).IgnoreError();
      status = FileError("cannot copy to", target, error.value());
    }
  }
  MutexLock lock(&mutex_);
  return SettleLocked(ref.sha256(), status, static_cast<int64_t>(size));
}

absl::StatusOr<ArtifactCache::Pin> ArtifactCache::SettleLocked(const std::string& sha256, const absl::Status& status,
                                                               int64_t bytes) {
  Entry& entry = entries_[sha256];
  entry.busy = false;
  changed_.NotifyAll();
  if (entry.here) total_bytes_ -= entry.bytes;
  entry.here = entry.verified = status.ok();
  if (!status.ok()) {
    if (entry.pins == 0) entries_.erase(sha256);
    return status;
  }
  entry.bytes = bytes;
  total_bytes_ += bytes;
  Pin pin = PinLocked(sha256);
  EvictLocked();
  return pin;
}

absl::Status ArtifactCache::Upload(const v1::ArtifactRef& ref, const StopSignal& stop, StopSignal::Mode give_up_at,
                                   int64_t patience_ms) {
  const std::string path = PathOf(ref.sha256());
  int64_t wait_ms = 0;
  int refusals = 0;
  int64_t answered_us = Clock::Real().MonotonicMicros();
  for (;;) {
    if (stop.mode() >= give_up_at) return absl::CancelledError("stopped before the upload was done");
    absl::Status status;
    const absl::StatusOr<ArtifactTransport::Stat> there =
        options_.transport->StatArtifact(ref.sha256(), stop, give_up_at);
    if (there.ok()) answered_us = Clock::Real().MonotonicMicros();
    if (!there.ok()) {
      status = there.status();
    } else if (there->complete) {
      return absl::OkStatus();
    } else {
      const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (fd.get() < 0) return FileError("cannot open", path, errno);
      const int64_t bytes = static_cast<int64_t>(FileSize(path).value_or(0));
      int64_t at = std::min(there->bytes, bytes);
      status = options_.transport->Upload(
          ref.sha256(), bytes, at,
          [&]() -> absl::StatusOr<std::string> {
            std::string chunk(kChunkBytes, '\0');
            ssize_t count = 0;
            do {
              count = ::pread(fd.get(), chunk.data(), chunk.size(), at);
            } while (count < 0 && errno == EINTR);
            if (count < 0) return FileError("cannot read", path, errno);
            at += count;
            chunk.resize(static_cast<size_t>(count));
            return chunk;
          },
          stop, give_up_at);
      if (status.ok()) return status;
    }
    if (stop.mode() >= give_up_at) return absl::CancelledError("stopped before the upload was done");
    if (absl::IsDataLoss(status)) {
      // Either this disk or the way there changed a bit: only the first is for good.
      const absl::StatusOr<std::string> actual = Sha256HexOfFile(path);
      if (!actual.ok() || *actual != ref.sha256()) return absl::DataLossError(absl::StrCat(path, " is damaged"));
      if (++refusals == kMaxMismatches) return status;
    } else if (!IsTransient(status)) {
      return status;
    }
    if (patience_ms > 0 && Clock::Real().MonotonicMicros() - answered_us >= patience_ms * 1000) {
      return absl::UnavailableError(absl::StrCat("the coordinator does not answer: ", status.message()));
    }
    LOG_IF(WARNING, wait_ms == 0) << "uploading " << ref.sha256().substr(0, 12) << ": " << status.message()
                                  << "; trying again";
    if (!BackOff(&wait_ms, stop, give_up_at)) return absl::CancelledError("stopped before the upload was done");
  }
}

void ArtifactCache::Discard(const std::string& sha256) {
  MutexLock lock(&mutex_);
  const auto it = entries_.find(sha256);
  if (it == entries_.end() || !it->second.here || it->second.busy || it->second.pins > 0) return;
  RemoveFile(PathOf(sha256)).IgnoreError();
  total_bytes_ -= it->second.bytes;
  entries_.erase(it);
}

void ArtifactCache::Hold(const std::string& stage_key, const std::string& weights_sha256) {
  MutexLock lock(&mutex_);
  held_.remove_if([&](const auto& held) { return held.first == stage_key; });
  held_.emplace_front(stage_key, weights_sha256);
  if (held_.size() > kMaxHeld) held_.pop_back();
}

std::vector<std::string> ArtifactCache::HeldStageKeys() const {
  std::vector<std::string> keys;
  MutexLock lock(&mutex_);
  for (const auto& [stage_key, sha256] : held_) {
    const auto it = entries_.find(sha256);
    if (it != entries_.end() && it->second.here) keys.push_back(stage_key);
  }
  return keys;
}

int64_t ArtifactCache::bytes() const {
  MutexLock lock(&mutex_);
  return total_bytes_;
}

}  // namespace ablate
