// The entry of the CUDA backend's shared library (libablate_cuda.so), which only the trainer loads, with dlopen. Plain
// data over a C boundary, so that a program that never loads it needs nothing of it. Must not include CUDA.
//
// A Backend crosses the boundary as a C++ object: library and program must have the same idea of it, so
// CudaInterface() is the first argument and another one than the library's own is refused (kCudaWrongBuild) before
// anything else happens.
// Thread rule: one call at a time. The library is never unloaded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace ablate {

// The build's version and a hash of all that both sides must have in common (cmake/ablate_interface_hash.cmake), e.g.
// "0.1.0-3f7a90c2d1e4". Static: each side must see its own.
static inline const char* CudaInterface() { return ABLATE_CUDA_INTERFACE; }

struct CudaOptions {
  int device = 0;  // as CUDA counts them (CUDA_VISIBLE_DEVICES applies)
  Precision precision = Precision::kFloat32;
  // Bytes that this backend may allocate, its workspaces included; 0: all that is free. Allocate beyond it is
  // ResourceExhausted, and FreeBytes counts it.
  int64_t memory_limit_bytes = 0;
};

struct CudaDevice {
  int index = 0;
  char name[128] = {};  // "NVIDIA H200"
  int64_t total_bytes = 0, free_bytes = 0;
  int compute_major = 0, compute_minor = 0;
  char driver[32] = {};  // the CUDA version of the driver, "13.0"
};

// What the functions return; in every case but kCudaOk `error` says in one line what is wrong and what to do.
enum CudaOpenResult : int {
  kCudaOk = 0,
  kCudaWrongBuild = 1,    // library and program are of two builds
  kCudaNoDriver = 2,      // no driver, or one too old for this CUDA
  kCudaNoDevice = 3,      // no GPU, or none with this number
  kCudaTooOld = 4,        // compute capability below 8.0
  kCudaOutOfMemory = 5,   // not even the backend's own workspaces fit
  kCudaOtherFailure = 6,  // cuBLAS is missing, a device fault, ...
};

inline constexpr char kCudaOpenSymbol[] = "ablate_cuda_open";
inline constexpr char kCudaDevicesSymbol[] = "ablate_cuda_devices";

}  // namespace ablate

extern "C" {

// The backend of one GPU; the caller deletes it. `error` gets a NUL-terminated message, cut to error_bytes.
using AblateCudaOpen = int(const char* interface, const ablate::CudaOptions* options, ablate::Backend** out,
                           char* error, size_t error_bytes);
AblateCudaOpen ablate_cuda_open;

// The GPUs there are, those too old included: writes up to `capacity` and sets *count to how many there are. No GPU is
// kCudaNoDevice, no driver kCudaNoDriver.
using AblateCudaDevices = int(const char* interface, ablate::CudaDevice* devices, int capacity, int* count, char* error,
                              size_t error_bytes);
AblateCudaDevices ablate_cuda_devices;

}  // extern "C"
