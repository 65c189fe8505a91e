#include "kernels/cuda/library.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/gpu.h"

namespace ablate {
namespace {

constexpr int kLeastMajor = 8;

int Say(CudaOpenResult result, const std::string& message, char* error, size_t error_bytes) {
  if (error != nullptr && error_bytes > 0) std::snprintf(error, error_bytes, "%s", message.c_str());
  return result;
}

int CheckInterface(const char* interface, char* error, size_t error_bytes) {
  if (interface != nullptr && std::strcmp(interface, CudaInterface()) == 0) return kCudaOk;
  return Say(kCudaWrongBuild,
             absl::StrCat("libablate_cuda.so is of another build (", CudaInterface(), ") than this program (",
                          interface == nullptr ? "unnamed" : interface, "): install both from one build"),
             error, error_bytes);
}

// Every failure to count means that there is no GPU to be had; what differs is what to do about it.
int CountDevices(int* count, char* error, size_t error_bytes) {
  *count = 0;
  const cudaError_t code = cudaGetDeviceCount(count);
  cudaGetLastError();
  if (code == cudaErrorInsufficientDriver || code == cudaErrorStubLibrary || code == cudaErrorSystemDriverMismatch) {
    int version = 0;
    cudaDriverGetVersion(&version);
    int runtime = 0;
    cudaRuntimeGetVersion(&runtime);
    const auto name = [](int v) { return absl::StrCat(v / 1000, ".", v % 1000 / 10); };
    return Say(kCudaNoDriver,
               version == 0
                   ? "there is no NVIDIA driver here: install one, or use --device cpu"
                   : absl::StrCat("the NVIDIA driver here knows CUDA ", name(version), ", and this build needs ",
                                  name(runtime), ": update the driver, or use --device cpu"),
               error, error_bytes);
  }
  if (code == cudaErrorNoDevice || (code == cudaSuccess && *count == 0)) {
    return Say(kCudaNoDevice,
               "no GPU is visible here: look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu", error,
               error_bytes);
  }
  if (code != cudaSuccess) {
    return Say(kCudaOtherFailure, absl::StrCat("cudaGetDeviceCount: ", cudaGetErrorString(code)), error, error_bytes);
  }
  return kCudaOk;
}

// CUDA's own words for a failed call.
int Failed(const char* call, cudaError_t code, char* error, size_t error_bytes) {
  cudaGetLastError();
  return Say(code == cudaErrorMemoryAllocation ? kCudaOutOfMemory : kCudaOtherFailure,
             absl::StrCat(call, ": ", cudaGetErrorString(code)), error, error_bytes);
}

}  // namespace
}  // namespace ablate

extern "C" {

__attribute__((visibility("default"))) int ablate_cuda_open(const char* interface, const ablate::CudaOptions* options,
                                                            ablate::Backend** out, char* error, size_t error_bytes) {
  using namespace ablate;
  if (const int wrong = CheckInterface(interface, error, error_bytes); wrong != kCudaOk) return wrong;
  *out = nullptr;
  int count = 0;
  if (const int none = CountDevices(&count, error, error_bytes); none != kCudaOk) return none;
  if (options->device < 0 || options->device >= count) {
    return Say(kCudaNoDevice,
               absl::StrCat("there is no GPU ", options->device, " here: they are numbered 0 to ", count - 1), error,
               error_bytes);
  }
  if (const cudaError_t code = cudaSetDevice(options->device); code != cudaSuccess) {
    return Failed("cudaSetDevice", code, error, error_bytes);
  }
  cudaDeviceProp properties = {};
  if (const cudaError_t code = cudaGetDeviceProperties(&properties, options->device); code != cudaSuccess) {
    return Failed("cudaGetDeviceProperties", code, error, error_bytes);
  }
  if (properties.major < kLeastMajor) {
    return Say(kCudaTooOld,
               absl::StrCat(properties.name, " has compute capability ", properties.major, ".", properties.minor,
                            ", and these kernels need ", kLeastMajor, ".0: use a newer GPU, or --device cpu"),
               error, error_bytes);
  }
  cuda::BackendOptions backend_options;
  backend_options.precision = options->precision;
  backend_options.memory_limit_bytes = options->memory_limit_bytes;
  backend_options.device_name = properties.name;
  auto backend = cuda::NewBackend(backend_options, cuda::NewCublasGemm);
  if (!backend.ok()) {
    const bool memory = backend.status().code() == absl::StatusCode::kResourceExhausted;
    return Say(memory ? kCudaOutOfMemory : kCudaOtherFailure, std::string(backend.status().message()), error,
               error_bytes);
  }
  *out = backend->release();
  return kCudaOk;
}

__attribute__((visibility("default"))) int ablate_cuda_devices(const char* interface, ablate::CudaDevice* devices,
                                                               int capacity, int* count, char* error,
                                                               size_t error_bytes) {
  using namespace ablate;
  if (const int wrong = CheckInterface(interface, error, error_bytes); wrong != kCudaOk) return wrong;
  if (const int none = CountDevices(count, error, error_bytes); none != kCudaOk) return none;
  int version = 0;
  cudaDriverGetVersion(&version);
  for (int i = 0; i < std::min(*count, capacity); ++i) {
    CudaDevice& device = devices[i];
    device = {};
    device.index = i;
    cudaDeviceProp properties = {};
    if (const cudaError_t code = cudaGetDeviceProperties(&properties, i); code != cudaSuccess) {
      return Failed("cudaGetDeviceProperties", code, error, error_bytes);
    }
    std::memcpy(device.name, properties.name, sizeof(device.name) - 1);
    device.compute_major = properties.major;
    device.compute_minor = properties.minor;
    device.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    std::snprintf(device.driver, sizeof(device.driver), "%d.%d", version / 1000, version % 1000 / 10);
    // Asking how much is free sets up a context on the device; one that refuses has nothing free.
    size_t free = 0, total = 0;
    if (cudaSetDevice(i) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess) {
      device.free_bytes = static_cast<int64_t>(free);
    }
    cudaGetLastError();
  }
  return kCudaOk;
}

}  // extern "C"
