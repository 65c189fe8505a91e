// Kernels with one planted bug each, and the right form of each for comparison: a test of the tests. planted_test.py
// says what must catch which. Usage: planted NAME [forward|reverse|SEED]. Prints "right", "wrong: ...", or "failed:
// MESSAGE"; a sanitizer's report ends the program by itself. With --list: the names.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {
namespace {

constexpr int kThreads = 128;

// --- barriers and collectives that do not fit together ---
__global__ void barrier_two_lines_kernel(float* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}
__global__ void barrier_after_return_kernel(float* out) {
  if (threadIdx.x >= 100) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void shuffle_and_barrier_kernel(float* out) {
  if (threadIdx.x % 32 < 16) {
    __syncthreads();
  } else {
    out[threadIdx.x] = __shfl_xor_sync(kFullMask, 1.0f, 1);
  }
}
__global__ void lane_outside_mask_kernel(float* out) { out[threadIdx.x] = __shfl_xor_sync(0xffffu, 1.0f, 1); }
__global__ void two_intrinsics_kernel(float* out) {
  if (threadIdx.x % 32 < 16) {
    out[threadIdx.x] = __shfl_xor_sync(kFullMask, 1.0f, 1);
  } else {
    out[threadIdx.x] = static_cast<float>(__ballot_sync(kFullMask, 1));
  }
}
__global__ void two_masks_kernel(float* out) {
  const unsigned mask = threadIdx.x % 32 < 16 ? kFullMask : 0xffff0000u;
  out[threadIdx.x] = __shfl_sync(mask, 1.0f, 31);
}
__global__ void shuffle_from_outside_kernel(float* out) {
  const unsigned mask = threadIdx.x % 32 < 16 ? 0xffffu : 0xffff0000u;
  out[threadIdx.x] = __shfl_sync(mask, 1.0f, 0);
}
__global__ void mask_of_returned_lanes_kernel(float* out) {
  if (threadIdx.x % 32 == 31) return;
  __syncwarp();
  out[threadIdx.x] = 1;
}

// --- out of bounds, uninitialised, misaligned ---
template <int kPast>
__global__ void shared_kernel(float* out) {
  CUDA_SHARED(float, values, [kThreads]);
  float* target = values;  // as most indexing goes: through a pointer
  target[threadIdx.x + kPast] = 1;
  __syncthreads();
  out[threadIdx.x] = kPast > 0 ? 1 : values[threadIdx.x];
}
template <int kPast>
__global__ void dynamic_shared_kernel(float* out) {
  CUDA_DYNAMIC_SHARED(float, values);
  values[threadIdx.x + kPast] = 1;
  __syncthreads();
  out[threadIdx.x] = kPast > 0 ? 1 : values[threadIdx.x];
}
template <int kPast>
__global__ void global_kernel(float* out) {
  out[threadIdx.x + kPast] = 1;
  if (kPast > 0 && threadIdx.x == 0) out[0] = 1;
}
__global__ void uninitialised_shared_kernel(float* out) {
  CUDA_SHARED(float, values, [kThreads + 1]);
  values[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x + 1];
}
__global__ void copy_kernel(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
template <int kOffset>
__global__ void float4_kernel(float* out) {
  out[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x < 8) *reinterpret_cast<float4*>(out + kOffset + 4 * threadIdx.x) = make_float4(1, 1, 1, 1);
}
template <int kBytes>
__global__ void ldmatrix_kernel(float* out) {
  CUDA_SHARED(bf16, tile, [32 * 8]);
  if (threadIdx.x < 32) {
    for (int i = 0; i < 8; ++i) tile[threadIdx.x * 8 + i] = ToBf16(1);
    __syncwarp();
    uint32_t r[4];
    ptx::ldmatrix_x4(r, reinterpret_cast<const char*>(tile + threadIdx.x * 8) + kBytes);
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = r[i] == PackBf16(1, 1) ? 1 : 0;
  }
}
template <int kTargetBytes, int kSourceBytes, bool kToGlobal>
__global__ void cp_async_kernel(const float* x, float* out) {
  CUDA_SHARED(float, values, [kThreads]);
  if (threadIdx.x < kThreads / 4) {
    char* target = reinterpret_cast<char*>(kToGlobal ? out + 4 * threadIdx.x : values + 4 * threadIdx.x);
    ptx::cp_async_16(target + kTargetBytes, reinterpret_cast<const char*>(x + 4 * threadIdx.x) + kSourceBytes, true);
  }
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}
template <int kFloats>
__global__ void local_array_kernel(float* out) {
  volatile float local[kFloats];
  for (int i = 0; i < kFloats; i += 64) local[kFloats - 1 - i] = 1;
  out[threadIdx.x] = local[kFloats - 1];
}

// --- races ---
__global__ void two_threads_one_word_kernel(float* out) {
  out[threadIdx.x] = 1;
  if (threadIdx.x == 40 || threadIdx.x == 80) out[0] = 1;
}
__global__ void two_blocks_one_word_kernel(float* out) {
  if (threadIdx.x == blockIdx.x) out[0] = 1;
  out[threadIdx.x == 0 ? 0 : threadIdx.x] = 1;
}
template <bool kAtomic>
__global__ void count_kernel(unsigned* count) {
  if (kAtomic) {
    atomicAdd(count, 1u);
  } else {
    *count = *count + 1;
  }
}

// --- missing barriers: kMissing is the one left out, 0 none ---
enum { kNone, kBeforeTree, kInTree, kBeforeBroadcast };
template <int kMissing>
__global__ void reduce_kernel(const float* x, float* out) {
  CUDA_SHARED(float, values, [kThreads]);
  CUDA_SHARED(float, total, [1]);
  const int t = threadIdx.x;
  values[t] = x[t];
  if (kMissing != kBeforeTree) __syncthreads();
  for (int width = kThreads / 2; width > 0; width /= 2) {
    if (t < width) values[t] += values[t + width];
    if (kMissing != kInTree) __syncthreads();
  }
  if (t == 0) total[0] = values[0];
  if (kMissing != kBeforeBroadcast) __syncthreads();
  out[t] = total[0] / kThreads;
}

enum { kWait = 1, kAfterWait, kAtLoopEnd };
// Two buffers filled by cp.async; each thread reads what another thread fetched.
template <int kMissing>
__global__ void ring_kernel(const float* x, float* out) {
  constexpr int kSteps = 5;
  CUDA_SHARED(float, ring, [2][kThreads * 4]);
  const int t = threadIdx.x;
  float sum = 0;
  ptx::cp_async_16(ring[0] + 4 * t, x + 4 * t, true);
  ptx::cp_async_commit();
  for (int step = 0; step < kSteps; ++step) {
    if (step + 1 < kSteps) ptx::cp_async_16(ring[(step + 1) % 2] + 4 * t, x + 4 * t, true);
    ptx::cp_async_commit();
    if (kMissing != kWait) ptx::cp_async_wait<1>();
    if (kMissing != kAfterWait) __syncthreads();
    for (int i = 0; i < 4; ++i) {
      sum += ring[step % 2][(4 * t + i * 133 + 7) % (kThreads * 4)];
      ring[step % 2][(4 * t + i * 133 + 7) % (kThreads * 4)] = NAN;  // used up
    }
    if (kMissing != kAtLoopEnd) __syncthreads();
  }
  out[t] = sum / (4 * kSteps);
}

template <bool kSync>
__global__ void warp_exchange_kernel(float* out) {
  CUDA_SHARED(float, values, [kThreads]);
  const int t = threadIdx.x;
  values[t] = 1;
  const float one = __shfl_xor_sync(kFullMask, 1.0f, 1);  // orders no memory
  if (kSync) __syncwarp();
  out[t] = values[t ^ 5] * one;
}

// --- running them ---
struct Device {
  float *x = nullptr, *out = nullptr;
  unsigned* count = nullptr;
};

struct Planted {
  const char* name;
  std::function<void(const Device&)> run;
  bool counts = false;  // the result is the count: kThreads
};

const std::vector<Planted>& All() {
  static const std::vector<Planted> all = {
      {"barrier_two_lines", [](const Device& d) { Launch(barrier_two_lines_kernel, 1, kThreads, 0, nullptr, d.out); }},
      {"barrier_after_return",
       [](const Device& d) { Launch(barrier_after_return_kernel, 1, kThreads, 0, nullptr, d.out); }},
      {"shuffle_and_barrier",
       [](const Device& d) { Launch(shuffle_and_barrier_kernel, 1, kThreads, 0, nullptr, d.out); }},
      {"lane_outside_mask", [](const Device& d) { Launch(lane_outside_mask_kernel, 1, kThreads, 0, nullptr, d.out); }},
      {"two_intrinsics", [](const Device& d) { Launch(two_intrinsics_kernel, 1, kThreads, 0, nullptr, d.out); }},
      {"two_masks", [](const Device& d) { Launch(two_masks_kernel, 1, kThreads, 0, nullptr, d.out); }},
      {"shuffle_from_outside",
       [](const Device& d) { Launch(shuffle_from_outside_kernel, 1, kThreads, 0, nullptr, d.out); }},
      {"mask_of_returned_lanes",
       [](const Device& d) { Launch(mask_of_returned_lanes_kernel, 1, kThreads, 0, nullptr, d.out); }},
      {"mask_of_missing_lanes", [](const Device& d) { Launch(warp_exchange_kernel<true>, 1, 40, 0, nullptr, d.out); }},
      {"shared_right", [](const Device& d) { Launch(shared_kernel<0>, 1, kThreads, 0, nullptr, d.out); }},
      {"shared_off_by_one", [](const Device& d) { Launch(shared_kernel<1>, 1, kThreads, 0, nullptr, d.out); }},
      {"dynamic_right",
       [](const Device& d) { Launch(dynamic_shared_kernel<0>, 1, kThreads, kThreads * 4, nullptr, d.out); }},
      {"dynamic_off_by_one",
       [](const Device& d) { Launch(dynamic_shared_kernel<1>, 1, kThreads, kThreads * 4, nullptr, d.out); }},
      {"dynamic_forgotten", [](const Device& d) { Launch(dynamic_shared_kernel<0>, 1, kThreads, 0, nullptr, d.out); }},
      {"dynamic_too_large",
       [](const Device& d) { Launch(dynamic_shared_kernel<0>, 1, kThreads, 100 << 10, nullptr, d.out); }},
      {"too_many_threads", [](const Device& d) { Launch(global_kernel<0>, 1, dim3(64, 32), 0, nullptr, d.out); }},
      {"empty_grid", [](const Device& d) { Launch(global_kernel<0>, 0, kThreads, 0, nullptr, d.out); }},
      {"global_right", [](const Device& d) { Launch(global_kernel<0>, 1, kThreads, 0, nullptr, d.out); }},
      {"global_off_by_one", [](const Device& d) { Launch(global_kernel<1>, 1, kThreads, 0, nullptr, d.out); }},
      {"uninitialised_shared",
       [](const Device& d) { Launch(uninitialised_shared_kernel, 1, kThreads, 0, nullptr, d.out); }},
      {"fresh_device_memory",
       [](const Device& d) {
         float* fresh = nullptr;
         GPU_OK(cudaMalloc(&fresh, kThreads * sizeof(float)));
         Launch(copy_kernel, 1, kThreads, 0, nullptr, fresh, d.out);
         GPU_OK(cudaFree(fresh));
       }},
      {"freed_device_memory",
       [](const Device& d) {
         float* freed = nullptr;
         GPU_OK(cudaMalloc(&freed, kThreads * sizeof(float)));
         GPU_OK(cudaFree(freed));
         Launch(copy_kernel, 1, kThreads, 0, nullptr, freed, d.out);
       }},
      {"float4_right", [](const Device& d) { Launch(float4_kernel<0>, 1, kThreads, 0, nullptr, d.out); }},
      {"misaligned_float4", [](const Device& d) { Launch(float4_kernel<1>, 1, kThreads, 0, nullptr, d.out); }},
      {"ldmatrix_right", [](const Device& d) { Launch(ldmatrix_kernel<0>, 1, kThreads, 0, nullptr, d.out); }},
      {"ldmatrix_misaligned", [](const Device& d) { Launch(ldmatrix_kernel<4>, 1, kThreads, 0, nullptr, d.out); }},
      {"ldmatrix_past_the_end", [](const Device& d) { Launch(ldmatrix_kernel<16>, 1, kThreads, 0, nullptr, d.out); }},
      {"cp_async_right",
       [](const Device& d) { Launch(cp_async_kernel<0, 0, false>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"cp_async_misaligned_target",
       [](const Device& d) { Launch(cp_async_kernel<4, 0, false>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"cp_async_misaligned_source",
       [](const Device& d) { Launch(cp_async_kernel<0, 4, false>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"cp_async_past_the_target",
       [](const Device& d) { Launch(cp_async_kernel<16, 0, false>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"cp_async_target_not_shared",
       [](const Device& d) { Launch(cp_async_kernel<0, 0, true>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"local_array", [](const Device& d) { Launch(local_array_kernel<1024>, 1, kThreads, 0, nullptr, d.out); }},
      {"local_array_too_large",
       [](const Device& d) { Launch(local_array_kernel<1 << 16>, 1, kThreads, 0, nullptr, d.out); }},
      {"host_follows_device_pointer", [](const Device& d) { d.out[0] = d.x[0]; }},
      {"copy_past_the_end",
       [](const Device& d) {
         const std::vector<float> ones(kThreads + 1, 1.0f);
         GPU_OK(cudaMemcpy(d.out, ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice));
       }},
      {"copy_in_the_wrong_direction",
       [](const Device& d) {
         const std::vector<float> ones(kThreads, 1.0f);
         GPU_OK(cudaMemcpy(d.out, ones.data(), ones.size() * sizeof(float), cudaMemcpyDeviceToDevice));
       }},
      {"two_threads_one_word",
       [](const Device& d) { Launch(two_threads_one_word_kernel, 1, kThreads, 0, nullptr, d.out); }},
      {"two_blocks_one_word",
       [](const Device& d) { Launch(two_blocks_one_word_kernel, 2, kThreads, 0, nullptr, d.out); }},
      {"count_right", [](const Device& d) { Launch(count_kernel<true>, 4, kThreads / 4, 0, nullptr, d.count); }, true},
      {"count_not_atomic", [](const Device& d) { Launch(count_kernel<false>, 4, kThreads / 4, 0, nullptr, d.count); },
       true},
      {"reduce_right", [](const Device& d) { Launch(reduce_kernel<kNone>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"reduce_no_barrier_before_tree",
       [](const Device& d) { Launch(reduce_kernel<kBeforeTree>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"reduce_no_barrier_in_tree",
       [](const Device& d) { Launch(reduce_kernel<kInTree>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"reduce_no_barrier_before_broadcast",
       [](const Device& d) { Launch(reduce_kernel<kBeforeBroadcast>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"ring_right", [](const Device& d) { Launch(ring_kernel<kNone>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"ring_no_wait", [](const Device& d) { Launch(ring_kernel<kWait>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"ring_no_barrier_after_wait",
       [](const Device& d) { Launch(ring_kernel<kAfterWait>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"ring_no_barrier_at_loop_end",
       [](const Device& d) { Launch(ring_kernel<kAtLoopEnd>, 1, kThreads, 0, nullptr, d.x, d.out); }},
      {"warp_exchange_right",
       [](const Device& d) { Launch(warp_exchange_kernel<true>, 1, kThreads, 0, nullptr, d.out); }},
      {"warp_exchange_no_syncwarp",
       [](const Device& d) { Launch(warp_exchange_kernel<false>, 1, kThreads, 0, nullptr, d.out); }},
  };
  return all;
}

void RunPlanted(const Planted& planted) {
  // x holds kThreads * 4 ones; every kernel is to leave ones in out[kThreads].
  const std::vector<float> ones(kThreads * 4, 1.0f);
  const unsigned zero = 0;
  Device d;
  GPU_OK(cudaMalloc(&d.x, ones.size() * sizeof(float)));
  GPU_OK(cudaMalloc(&d.out, kThreads * sizeof(float)));
  GPU_OK(cudaMalloc(&d.count, sizeof(unsigned)));
  GPU_OK(cudaMemcpy(d.x, ones.data(), ones.size() * sizeof(float), cudaMemcpyHostToDevice));
  GPU_OK(cudaMemcpy(d.count, &zero, sizeof(zero), cudaMemcpyHostToDevice));
  planted.run(d);
  std::vector<float> out(kThreads, 0.0f);
  unsigned count = 0;
  GPU_OK(cudaMemcpy(out.data(), d.out, out.size() * sizeof(float), cudaMemcpyDeviceToHost));
  GPU_OK(cudaMemcpy(&count, d.count, sizeof(count), cudaMemcpyDeviceToHost));
  cudaFree(d.x), cudaFree(d.out), cudaFree(d.count);
  const Failure failure = TakeFailure();
  if (!failure.ok()) {
    printf("failed: %s\n", failure.message.c_str());
    return;
  }
  if (planted.counts) {
    printf(count == kThreads ? "right\n" : "wrong: counted %u\n", count);
    return;
  }
  for (int i = 0; i < kThreads; ++i) {
    if (out[i] != 1) {
      printf("wrong: out[%d] = %g\n", i, out[i]);
      return;
    }
  }
  printf("right\n");
}

}  // namespace
}  // namespace ablate::cuda

int main(int argc, char** argv) {
  using ablate::cuda_emu::Order;
  const std::string order = argc > 1 ? argv[1] : "";
  if (order == "--list") {
    for (const auto& planted : ablate::cuda::All()) printf("%s\n", planted.name);
    return 0;
  }
  for (int i = 2; i < argc; ++i) {
    ablate::cuda_emu::SetSchedule(order == "forward" ? ablate::cuda_emu::Schedule{Order::kForward, 0}
                                  : order == "reverse"
                                      ? ablate::cuda_emu::Schedule{Order::kReverse, 0}
                                      : ablate::cuda_emu::Schedule{Order::kSeeded, strtoull(argv[1], nullptr, 10)});
    for (const auto& planted : ablate::cuda::All()) {
      if (strcmp(argv[i], planted.name) != 0) continue;
      printf("== %s\n", planted.name);
      ablate::cuda::RunPlanted(planted);
      fflush(stdout);
    }
  }
  return 0;
}
