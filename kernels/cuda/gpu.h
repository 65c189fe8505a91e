// The dialect of every file in kernels/cuda: CUDA C++ that two compilers read. nvcc makes the real kernels of it; g++
// or clang make kernels that run on the host, thread by thread, in tests (kernels/cuda/emulator). A kernel file
// includes this header and no other of CUDA's. tests/layout/cuda_dialect_test.py refuses what only one side
// understands.
//
//   CUDA C++                               here
//   kernel<<<grid, block, bytes, s>>>(a)   Launch(kernel, grid, block, bytes, s, a)
//   __shared__ float tile[32][33];         CUDA_SHARED(float, tile, [32][33]);          16-byte aligned
//   extern __shared__ float all[];         CUDA_DYNAMIC_SHARED(float, all);             128-byte aligned
//   __noinline__                           GPU_NOINLINE
//   __nv_bfloat16, __nv_bfloat162          bf16, bf162; ToFloat, ToBf16, ToBf162, PackBf16
//   asm("mma.sync...")                     ptx::mma_m16n8k16_bf16, ptx::ldmatrix_x4, ptx::cp_async_16, ptx::ex2_approx
//   ... atomicAdd(float*, ...)                 none: sums have a fixed order here, so that equal inputs give equal bits
//
// As in CUDA: __global__, __device__, __host__, __forceinline__, __launch_bounds__, threadIdx and its like,
// __syncthreads, __syncwarp, __shfl_*_sync, __ballot_sync, __any_sync, __all_sync, atomicAdd, atomicMax and atomicCAS
// on integers, float2, float4, int4 and their like, __ldg, rsqrtf, __expf, __fmaf_rn.
// Every thread of a block must reach a __syncthreads, at the same line; a thread may not return before it.
// Shared memory, dynamic and static together: at most kMostSharedBytes. Not here, because the emulation
// would prove nothing: wgmma, TMA, mbarrier, clusters, cooperative grids, textures, printf.
//
// Products and sums: nvcc contracts a * b + c into one rounding, and so may g++ (the default of both; the CPU kernels
// are built so too). Where one rounding is part of the method, write score::MulAdd or __fmaf_rn.
//
// Launch and GPU_OK note the first failure since the last TakeFailure, which the backend makes a Status of. After a
// failure the emulator runs nothing until it is taken, as a device would not.
// Thread rule: one thread at a time drives the device.
#pragma once

#include <string>

// ABLATE_CUDA_TOOLKIT: a host file of the real library, compiled by g++ against the toolkit's headers.
#if defined(__CUDACC__) || defined(ABLATE_CUDA_TOOLKIT)
#include "kernels/cuda/device.h"
#else
#include "kernels/cuda/emulator/emulator.h"
#endif

namespace ablate::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullMask = 0xffffffffu;
// What a block may have on every device of compute capability 8.0 and up: least on 8.6, 8.9 and 12.x (sm_80 has 163
// KiB).
inline constexpr size_t kMostSharedBytes = size_t{99} << 10;

__host__ __device__ constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Two values as one register of an mma operand; `low` is the element of the lower index.
__host__ __device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const bf162 pair = ToBf162(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

struct Failure {
  cudaError_t code = cudaSuccess;
  std::string message;  // "forward_fp32.cu:230: kernel ForwardKernel<Tile>: what happened"
  bool ok() const { return code == cudaSuccess; }
};

// The first failure since the last call, or one that is ok(). An asynchronous fault shows at a later call: its message
// names the kernel launched last, and CUDA_LAUNCH_BLOCKING=1 in the environment finds the very one.
Failure TakeFailure();

// Notes a failure unless there is one. `what` is the call or the kernel. Returns whether code is cudaSuccess.
bool Note(cudaError_t code, const char* what, const char* file, int line);

// A call of the runtime: notes its failure; true if there was none.
#define GPU_OK(call) (::ablate::cuda::Note((call), #call, __FILE__, __LINE__))

// Launch(kernel, grid, block, dynamic_shared_bytes, stream, arguments...). Arguments convert to the kernel's
// parameters.
#define Launch(...) ::ablate::cuda::LaunchAt({#__VA_ARGS__, __FILE__, __LINE__}, __VA_ARGS__)

}  // namespace ablate::cuda
