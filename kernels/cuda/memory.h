// Device memory of one backend: blocks by address, a limit, and pinned memory through which the host copies.
// Thread rule: as gpu.h.
#pragma once

#include <cstddef>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

class DeviceMemory {
 public:
  // limit 0: what the device has.
  DeviceMemory(cudaStream_t stream, int64_t limit_bytes, bool reuse);
  ~DeviceMemory();  // frees all of it
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // 256-byte aligned, zeroed. ResourceExhausted: the limit or the device says no; Internal: the device has failed.
  absl::StatusOr<void*> Allocate(size_t bytes);
  void Free(void* memory);
  int64_t FreeBytes();
  // Memory that somebody else allocated for this backend counts too.
  void Count(int64_t bytes) { used_ += bytes; }

 private:
  absl::StatusOr<void*> Take(size_t bytes);
  void ReleaseKept();

  const cudaStream_t stream_;
  const int64_t limit_;
  const bool reuse_;
  std::map<void*, size_t> blocks_;
  std::multimap<size_t, void*> kept_;  // freed, by size
  int64_t used_ = 0;                   // blocks, kept ones and what was counted
  int64_t kept_bytes_ = 0;
};

// Two pinned blocks that take turns.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  bool Init();  // false: no pinned memory; the failure is noted
  // The source may be changed as soon as this returns.
  void ToDevice(void* to, const void* from, size_t bytes);
  // Waits.
  void ToHost(void* to, const void* from, size_t bytes);

 private:
  static constexpr size_t kBytes = size_t{4} << 20;

  const cudaStream_t stream_;
  void* blocks_[2] = {};
  cudaEvent_t done_[2] = {};  // the copy out of the block
  int next_ = 0;
};

}  // namespace ablate::cuda
