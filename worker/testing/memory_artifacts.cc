#include "worker/testing/memory_artifacts.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace ablate {
namespace {

constexpr size_t kChunk = 1000;  // small, so that small files travel in several

}  // namespace

std::string MemoryArtifacts::Put(const std::string& content) {
  const std::string sha256 = Sha256Hex(content);
  MutexLock lock(&mutex_);
  whole_[sha256] = content;
  return sha256;
}

bool MemoryArtifacts::Has(const std::string& sha256) {
  MutexLock lock(&mutex_);
  return whole_.count(sha256) > 0;
}

std::string MemoryArtifacts::Get(const std::string& sha256) {
  MutexLock lock(&mutex_);
  return whole_[sha256];
}

void MemoryArtifacts::CutNext(int64_t bytes, int times) {
  MutexLock lock(&mutex_);
  cuts_.insert(cuts_.end(), times, bytes);
}

void MemoryArtifacts::CorruptNext(int times) {
  MutexLock lock(&mutex_);
  corrupt_ = times;
}

void MemoryArtifacts::SetAway(bool away, absl::Status how) {
  MutexLock lock(&mutex_);
  how_away_ = std::move(how);
  away_ = away;
}

void MemoryArtifacts::Hold(bool hold) {
  MutexLock lock(&mutex_);
  hold_ = hold;
  changed_.NotifyAll();
}

void MemoryArtifacts::AwaitHeld() {
  MutexLock lock(&mutex_);
  while (held_ == 0) changed_.Wait(&mutex_);
}

std::vector<int64_t> MemoryArtifacts::download_offsets() {
  MutexLock lock(&mutex_);
  return download_offsets_;
}

std::vector<int64_t> MemoryArtifacts::upload_offsets() {
  MutexLock lock(&mutex_);
  return upload_offsets_;
}

int MemoryArtifacts::calls() {
  MutexLock lock(&mutex_);
  return calls_;
}

int64_t MemoryArtifacts::NextCut() {
  if (cuts_.empty()) return -1;
  const int64_t cut = cuts_.front();
  cuts_.erase(cuts_.begin());
  return cut;
}

absl::StatusOr<ArtifactTransport::Stat> MemoryArtifacts::StatArtifact(const std::string& sha256, const StopSignal&,
                                                                      StopSignal::Mode) {
  MutexLock lock(&mutex_);
  ++calls_;
  if (away_) return how_away_;
  if (!IsSha256Hex(sha256)) return absl::InvalidArgumentError("not a SHA-256");
  const auto it = whole_.find(sha256);
  if (it != whole_.end()) return Stat{true, static_cast<int64_t>(it->second.size())};
  return Stat{false, static_cast<int64_t>(partial_[sha256].size())};
}

absl::Status MemoryArtifacts::Download(const std::string& sha256, int64_t offset,
                                       const std::function<absl::Status(std::string_view)>& sink,
                                       const StopSignal& stop, StopSignal::Mode cancel_at) {
  std::string content;
  int64_t cut = -1;
  {
    MutexLock lock(&mutex_);
    ++calls_;
    download_offsets_.push_back(offset);
    ++held_;
    changed_.NotifyAll();
    while (hold_ && stop.mode() < cancel_at) changed_.WaitFor(&mutex_, 1'000);
    --held_;
    if (stop.mode() >= cancel_at) return absl::CancelledError("stopped");
    if (away_) return how_away_;
    const auto it = whole_.find(sha256);
    if (it == whole_.end()) return absl::NotFoundError("no such artifact");
    content = it->second;
    if (offset > static_cast<int64_t>(content.size())) return absl::OutOfRangeError("offset beyond the end");
    if (corrupt_ > 0 && !content.empty()) {
      --corrupt_;
      content.back() ^= 1;
    }
    cut = NextCut();
  }
  size_t at = static_cast<size_t>(offset);
  size_t end = content.size();
  if (cut >= 0) end = std::min(end, at + static_cast<size_t>(cut));
  for (; at < end; at += kChunk) {
    const absl::Status sunk = sink(std::string_view(content).substr(at, std::min(kChunk, end - at)));
    if (!sunk.ok()) return sunk;
  }
  return cut >= 0 ? absl::UnavailableError("the connection broke") : absl::OkStatus();
}

absl::Status MemoryArtifacts::Upload(const std::string& sha256, int64_t bytes, int64_t offset,
                                     const std::function<absl::StatusOr<std::string>()>& source, const StopSignal& stop,
                                     StopSignal::Mode cancel_at) {
  MutexLock lock(&mutex_);
  ++calls_;
  upload_offsets_.push_back(offset);
  if (stop.mode() >= cancel_at) return absl::CancelledError("stopped");
  if (away_) return how_away_;
  const int64_t cut = NextCut();
  std::string& partial = partial_[sha256];
  if (offset > static_cast<int64_t>(partial.size())) return absl::OutOfRangeError("offset beyond what is there");
  partial.resize(static_cast<size_t>(offset));
  for (;;) {
    const absl::StatusOr<std::string> chunk = source();
    if (!chunk.ok()) return chunk.status();
    if (chunk->empty()) break;
    partial.append(*chunk);
    if (cut >= 0 && static_cast<int64_t>(partial.size()) - offset >= cut) {
      partial.resize(static_cast<size_t>(offset + cut));
      return absl::UnavailableError("the connection broke");
    }
  }
  if (static_cast<int64_t>(partial.size()) != bytes || Sha256Hex(partial) != sha256) {
    partial_.erase(sha256);
    return absl::DataLossError("the content does not have this hash");
  }
  whole_[sha256] = partial;
  partial_.erase(sha256);
  return absl::OkStatus();
}

}  // namespace ablate
