#include "kernels/cuda/emulator/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "kernels/cuda/emulator/block.h"

namespace ablate::cuda_emu {
namespace {

constexpr size_t kGuard = 256;  // before and after; also the alignment, as cudaMalloc has it

std::map<uintptr_t, size_t> memory;  // address -> bytes
size_t device_bytes = size_t{1} << 30, in_use = 0;
cudaError_t last_error = cudaSuccess;

cudaError_t Result(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

void Unpoison(const void* address, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(address, bytes); }
void Poison(const void* address, size_t bytes) { ASAN_POISON_MEMORY_REGION(address, bytes); }

// Whether any of these bytes belong to device memory.
bool TouchesDevice(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  auto it = memory.upper_bound(begin + (bytes > 0 ? bytes - 1 : 0));
  if (it == memory.begin()) return false;
  --it;
  return begin < it->first + it->second;
}

bool FitsSide(const void* address, size_t bytes, bool device) {
  return device ? IsDevice(address, bytes) : !TouchesDevice(address, bytes);
}

cudaError_t Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (!LastError().empty()) return cudaErrorLaunchFailure;
  if (bytes == 0) return cudaSuccess;
  if (kind == cudaMemcpyDefault) {
    kind = TouchesDevice(to, bytes) ? (TouchesDevice(from, bytes) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                                    : (TouchesDevice(from, bytes) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  }
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (!FitsSide(to, bytes, to_device) || !FitsSide(from, bytes, from_device)) return Result(cudaErrorInvalidValue);
  if (to_device) Unpoison(to, bytes);
  if (from_device) Unpoison(from, bytes);
  memmove(to, from, bytes);
  if (to_device) Poison(to, bytes);
  if (from_device) Poison(from, bytes);
  return cudaSuccess;
}

cudaError_t Fill(void* address, int value, size_t bytes) {
  if (!LastError().empty()) return cudaErrorLaunchFailure;
  if (bytes == 0) return cudaSuccess;
  if (!IsDevice(address, bytes)) return Result(cudaErrorInvalidValue);
  Unpoison(address, bytes);
  memset(address, value, bytes);
  Poison(address, bytes);
  return cudaSuccess;
}

}  // namespace

bool IsDevice(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  auto it = memory.upper_bound(begin);
  if (it == memory.begin()) return false;
  --it;
  return begin + bytes <= it->first + it->second;
}

void BeginKernelMemory() {
  for (const auto& [address, bytes] : memory) Unpoison(reinterpret_cast<void*>(address), bytes);
}
std::string EndKernelMemory() {
  std::string outside;
  for (const auto& [address, bytes] : memory) {
#if !defined(CUDA_EMU_ASAN)  // which reports at once
    const char* begin = reinterpret_cast<const char*>(address);
    const size_t after = Untouched(begin + bytes, kGuard);
    if (after == kGuard && Untouched(begin - kGuard, kGuard) == kGuard) continue;
    outside = "written outside of a device array of " + std::to_string(bytes) + " bytes, " +
              (after < kGuard ? "at byte " + std::to_string(bytes + after) : std::string("before its begin"));
#endif
    Poison(reinterpret_cast<void*>(address), bytes);
  }
  return outside;
}

void SetDeviceMemory(size_t bytes) { device_bytes = bytes; }
size_t DeviceMemoryInUse() { return in_use; }

}  // namespace ablate::cuda_emu

using namespace ablate::cuda_emu;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidMemcpyDirection:
      return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureImplicit:
      return "cudaErrorStreamCaptureImplicit";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorUnknown:
      return "cudaErrorUnknown";
  }
  return "an unknown error";
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaPeekAtLastError() { return LastError().empty() ? last_error : cudaErrorLaunchFailure; }
cudaError_t cudaGetLastError() {
  const cudaError_t code = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return code;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return Result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return Result(cudaErrorInvalidDevice);
  *properties = {};
  snprintf(properties->name, sizeof(properties->name), "emulated");
  properties->totalGlobalMem = device_bytes;
  properties->major = 8;
  properties->multiProcessorCount = 4;
  properties->sharedMemPerBlockOptin = size_t{99} << 10;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return NotWhileCapturing() ? cudaPeekAtLastError() : cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = device_bytes - in_use;
  *total_bytes = device_bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  *address = nullptr;
  if (!NotWhileCapturing()) return Result(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return cudaSuccess;
  if (bytes > device_bytes - in_use) return Result(cudaErrorMemoryAllocation);
  const size_t body = (bytes + kGuard - 1) / kGuard * kGuard;
  char* base = static_cast<char*>(aligned_alloc(kGuard, body + 2 * kGuard));
  if (base == nullptr) return Result(cudaErrorMemoryAllocation);
  memset(base, kGuardByte, body + 2 * kGuard);
  memset(base + kGuard, 0xff, bytes);
  Poison(base, body + 2 * kGuard);
  *address = base + kGuard;
  memory[reinterpret_cast<uintptr_t>(*address)] = bytes;
  in_use += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  if (!NotWhileCapturing()) return Result(cudaErrorStreamCaptureUnsupported);
  auto it = memory.find(reinterpret_cast<uintptr_t>(address));
  if (it == memory.end()) return Result(cudaErrorInvalidValue);
  char* base = static_cast<char*>(address) - kGuard;
  Unpoison(base, (it->second + kGuard - 1) / kGuard * kGuard + 2 * kGuard);
  in_use -= it->second;
  memory.erase(it);
  free(base);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  *address = malloc(bytes);
  return Result(*address != nullptr || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* address) {
  free(address);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return NotWhileCapturing() ? Copy(to, from, bytes, kind) : Result(cudaErrorStreamCaptureUnsupported);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return Submit(stream, "cudaMemcpyAsync", [=] { return Copy(to, from, bytes, kind); });
}
cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return NotWhileCapturing() ? Fill(address, value, bytes) : Result(cudaErrorStreamCaptureUnsupported);
}
cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return Submit(stream, "cudaMemsetAsync", [=] { return Fill(address, value, bytes); });
}
