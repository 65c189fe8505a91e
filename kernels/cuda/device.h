// gpu.h as nvcc reads it: the CUDA runtime, the instructions that need assembly (sm_80 and up), and the launch.
// Included through gpu.h only. The other half is emulator/emulator.h; both declare the same names.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#if defined(__CUDACC__)
#define CUDA_SHARED(type, name, dims) __shared__ __align__(16) type name dims
#define CUDA_DYNAMIC_SHARED(type, name)                                   \
  extern __shared__ __align__(128) unsigned char ablate_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(ablate_dynamic_shared)
#define GPU_NOINLINE __noinline__
#endif

namespace ablate::cuda {

using bf16 = __nv_bfloat16;
using bf162 = __nv_bfloat162;

__host__ __device__ __forceinline__ float ToFloat(float x) { return x; }
__host__ __device__ __forceinline__ float ToFloat(bf16 x) { return __bfloat162float(x); }
__host__ __device__ __forceinline__ float2 ToFloat2(bf162 x) { return __bfloat1622float2(x); }
// Round to nearest, ties to even.
__host__ __device__ __forceinline__ bf16 ToBf16(float x) { return __float2bfloat16_rn(x); }
__host__ __device__ __forceinline__ bf162 ToBf162(float low, float high) { return __floats2bfloat162_rn(low, high); }

#if defined(__CUDACC__)
// The special-function unit: 2^x, log2 x, 1 / x with errors near 2^-22, subnormals as zero; exact on the host.
namespace ptx {
__host__ __device__ __forceinline__ float ex2_approx(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}
__host__ __device__ __forceinline__ float lg2_approx(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return log2f(x);
#endif
}
__host__ __device__ __forceinline__ float rcp_approx(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}
}  // namespace ptx

// Instructions of the PTX ISA, sections 9.7.14 (mma, ldmatrix) and 9.7.9.25 (cp.async).
namespace ptx {

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// d[16,8] = a[16,16] b[16,8] + c[16,8], all lanes of the warp; d may be c. With g = lane / 4 and t = lane % 4, register
// by register:
//   a0 = (g, 2t..2t+1)  a1 = (g+8, 2t..)  a2 = (g, 2t+8..)  a3 = (g+8, 2t+8..)
//   b0 = (k 2t..2t+1, n g)  b1 = (k 2t+8.., n g)
//   c0 c1 = (g, 2t), (g, 2t+1)  c2 c3 = (g+8, 2t), (g+8, 2t+1)
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                                  const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// Four 8x8 matrices of 16-bit elements. Lane i gives the address of row i % 8 of matrix i / 8 (16 bytes, 16-byte
// aligned, shared); lane l receives in r[m] the elements (l/4, 2(l%4)) and (l/4, 2(l%4)+1) of matrix m; transposed: the
// elements (2(l%4), l/4) and (2(l%4)+1, l/4). x2: the same for two matrices, addresses from lanes 0 to 15.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(shared))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(shared))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(SharedAddress(shared))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(SharedAddress(shared))
               : "memory");
}

// Starts a copy of 16 bytes from global to shared memory, both 16-byte aligned; invalid: 16 zero bytes, and nothing is
// read. Visible to the thread after cp_async_wait, to others after a barrier that follows it.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
// Ends a group of copies.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending of this thread's latest groups are under way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace ptx
#endif  // __CUDACC__

struct LaunchSite {
  const char* text;  // the arguments of Launch as written: the kernel's name comes first
  const char* file;
  int line;
};

// Notes what cudaLaunchKernel says of it, and remembers the site for faults that show later. failure.cc.
void NoteLaunch(cudaError_t code, const LaunchSite& site);

template <class... Params, class... Args>
void LaunchAt(const LaunchSite& site, void (*kernel)(Params...), dim3 grid, dim3 block, size_t dynamic_shared_bytes,
              cudaStream_t stream, Args&&... args) {
  const void* function = reinterpret_cast<const void*>(kernel);
  cudaError_t code = cudaSuccess;
  if (dynamic_shared_bytes > 0) {  // with the static part it may pass 48 KiB, which must be asked for
    code = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(dynamic_shared_bytes));
  }
  if (code == cudaSuccess) {
    std::tuple<Params...> params(std::forward<Args>(args)...);
    std::apply(
        [&](auto&... param) {
          void* pointers[] = {const_cast<void*>(static_cast<const void*>(&param))..., nullptr};
          code = cudaLaunchKernel(function, grid, block, pointers, dynamic_shared_bytes, stream);
        },
        params);
  }
  NoteLaunch(code, site);
}

}  // namespace ablate::cuda
