#include "kernels/cuda/memory.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace ablate::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kAddressSpace = size_t{1} << 47;

}  // namespace

DeviceMemory::DeviceMemory(cudaStream_t stream, int64_t limit_bytes, bool reuse)
    : stream_(stream), limit_(limit_bytes > 0 ? limit_bytes : std::numeric_limits<int64_t>::max()), reuse_(reuse) {}

DeviceMemory::~DeviceMemory() {
  ReleaseKept();
  for (const auto& [memory, bytes] : blocks_) cudaFree(memory);
}

absl::StatusOr<void*> DeviceMemory::Allocate(size_t bytes) {
  if (bytes > kAddressSpace) {
    return absl::ResourceExhaustedError(absl::StrCat("no device memory for ", bytes, " bytes"));
  }
  const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = nullptr;
  // A block that is a little too large does as well.
  const auto kept = kept_.lower_bound(rounded);
  if (kept != kept_.end() && kept->first <= rounded + rounded / 8) {
    memory = kept->second;
    blocks_[memory] = kept->first;
    kept_bytes_ -= static_cast<int64_t>(kept->first);
    kept_.erase(kept);
  } else {
    absl::StatusOr<void*> fresh = Take(rounded);
    if (!fresh.ok()) return fresh.status();
    memory = *fresh;
    blocks_[memory] = rounded;
    used_ += static_cast<int64_t>(rounded);
  }
  GPU_OK(cudaMemsetAsync(memory, 0, rounded, stream_));
  return memory;
}

absl::StatusOr<void*> DeviceMemory::Take(size_t bytes) {
  const auto wanted = static_cast<int64_t>(bytes);
  if (wanted > limit_ - used_) ReleaseKept();
  if (wanted > limit_ - used_) {
    return absl::ResourceExhaustedError(absl::StrCat("no device memory for ", bytes, " bytes: ", used_, " of the ",
                                                     limit_,
                                                     " that this job may use are taken; use a smaller batch or model"));
  }
  void* memory = nullptr;
  cudaError_t code = cudaMalloc(&memory, bytes);
  if (code == cudaErrorMemoryAllocation && !kept_.empty()) {
    cudaGetLastError();
    ReleaseKept();
    code = cudaMalloc(&memory, bytes);
  }
  if (code == cudaSuccess) return memory;
  cudaGetLastError();
  if (code != cudaErrorMemoryAllocation) {
    return absl::InternalError(absl::StrCat("cudaMalloc of ", bytes, " bytes: ", cudaGetErrorString(code)));
  }
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return absl::ResourceExhaustedError(absl::StrCat("no device memory for ", bytes, " bytes: ", free, " of ", total,
                                                   " are free; use a smaller batch or model"));
}

void DeviceMemory::Free(void* memory) {
  const auto at = blocks_.find(memory);
  if (at == blocks_.end()) return;
  if (reuse_) {
    kept_.emplace(at->second, memory);
    kept_bytes_ += static_cast<int64_t>(at->second);
  } else {
    used_ -= static_cast<int64_t>(at->second);
    GPU_OK(cudaFree(memory));
  }
  blocks_.erase(at);
}

void DeviceMemory::ReleaseKept() {
  for (const auto& [bytes, memory] : kept_) {
    GPU_OK(cudaFree(memory));  // waits for what still uses it
    used_ -= static_cast<int64_t>(bytes);
  }
  kept_.clear();
  kept_bytes_ = 0;
}

int64_t DeviceMemory::FreeBytes() {
  size_t free = 0, total = 0;
  if (!GPU_OK(cudaMemGetInfo(&free, &total))) return 0;
  return std::max<int64_t>(0, std::min(limit_ - used_, static_cast<int64_t>(free)) + kept_bytes_);
}

Staging::~Staging() {
  for (int i = 0; i < 2; ++i) {
    if (done_[i] != nullptr) cudaEventDestroy(done_[i]);
    if (blocks_[i] != nullptr) cudaFreeHost(blocks_[i]);
  }
}

bool Staging::Init() {
  for (int i = 0; i < 2; ++i) {
    if (!GPU_OK(cudaMallocHost(&blocks_[i], kBytes))) return false;
    if (!GPU_OK(cudaEventCreateWithFlags(&done_[i], cudaEventDisableTiming))) return false;
  }
  return true;
}

void Staging::ToDevice(void* to, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kBytes) {
    const size_t part = std::min(kBytes, bytes - at);
    const int slot = next_;
    next_ = 1 - next_;
    if (!GPU_OK(cudaEventSynchronize(done_[slot]))) return;
    std::memcpy(blocks_[slot], static_cast<const char*>(from) + at, part);
    if (!GPU_OK(cudaMemcpyAsync(static_cast<char*>(to) + at, blocks_[slot], part, cudaMemcpyHostToDevice, stream_)))
      return;
    GPU_OK(cudaEventRecord(done_[slot], stream_));
  }
}

void Staging::ToHost(void* to, const void* from, size_t bytes) {
  // One copy is under way while the one before is taken out of its block.
  size_t taken = 0, started = 0;
  size_t parts[2] = {};
  const auto start = [&](int slot) {
    parts[slot] = std::min(kBytes, bytes - started);
    if (parts[slot] == 0) return true;
    if (!GPU_OK(cudaEventSynchronize(done_[slot]))) return false;
    if (!GPU_OK(cudaMemcpyAsync(blocks_[slot], static_cast<const char*>(from) + started, parts[slot],
                                cudaMemcpyDeviceToHost, stream_))) {
      return false;
    }
    started += parts[slot];
    return GPU_OK(cudaEventRecord(done_[slot], stream_));
  };
  int slot = 0;
  if (!start(0) || !start(1)) return;
  while (taken < bytes) {
    if (!GPU_OK(cudaEventSynchronize(done_[slot]))) return;
    std::memcpy(static_cast<char*>(to) + taken, blocks_[slot], parts[slot]);
    taken += parts[slot];
    if (!start(slot)) return;
    slot = 1 - slot;
  }
}

}  // namespace ablate::cuda
