// gpu.h as a host compiler reads it: kernels run here, block after block, every CUDA thread a fiber of one OS thread.
// The other half is kernels/cuda/device.h; both declare the same names. For tests alone: it proves indices, barriers
// and arithmetic, nothing of speed. docs/kernels.md says what is checked. Included through gpu.h only.
//
// Errors (a barrier not reached by all, a lane outside its mask, ...) end the kernel; TakeFailure() has the message,
// with block, thread, file and line. Thread rule: one OS thread uses the emulator at a time. No state is thread_local:
// that would cost seven times a barrier's time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/cuda/emulator/runtime.h"
#include "kernels/cuda/emulator/types.h"

// --- for tests: in which order threads and blocks run, and what the device is ---
namespace ablate::cuda_emu {

enum class Order {
  kForward,  // thread 0 first; each runs until it must wait
  kReverse,  // the last thread and the last block first
  kSeeded,   // even seeds: any thread that can run; odd: one warp as far ahead of the others as it can go
};
struct Schedule {
  Order order = Order::kForward;
  uint64_t seed = 0;
};
void SetSchedule(Schedule schedule);

// A test of the tests, from the environment: CUDA_EMU_SKIP_BARRIER=file.cu:12 makes the __syncthreads and __syncwarp of
// that line do nothing; CUDA_EMU_LIST_BARRIERS=1 prints the lines met, "barrier file.cu:12", when the program ends.

void SetDeviceMemory(size_t bytes);
// Bytes of device memory that were not freed.
size_t DeviceMemoryInUse();

// The message of the error that stopped the emulator, or empty.
const std::string& LastError();
void ClearError();

// --- what the inline functions below stand on ---
struct Place {
  const char* file;
  int line;
};

// Runs `work` now, or keeps it for the graph that `stream` captures. `what` is for messages.
cudaError_t Submit(cudaStream_t stream, const char* what, std::function<cudaError_t()> work);
cudaError_t Run(dim3 grid, dim3 block, size_t dynamic_shared_bytes, void (*body)(void*), void* self);
void BlockBarrier(Place place);
void WarpSync(unsigned mask, Place place);
// `bits` of lane `source`; the lane is worked out by the caller from Lane().
uint64_t WarpExchange(unsigned mask, uint64_t bits, int source, const char* what, Place place);
unsigned WarpBallot(unsigned mask, bool predicate, const char* what, Place place);
int Lane();
void* SharedArray(const void* key, const char* name, size_t bytes);
void* DynamicShared();
// After an atomic operation: lets others run now and then.
void AtomicHappened();
void Mma(float* d, const uint32_t* a, const uint32_t* b, const float* c, Place place);
void Ldmatrix(uint32_t* r, int matrices, bool transposed, const void* shared, Place place);
void CopyAsync(void* shared, const void* global, bool valid, Place place);
void CopyAsyncCommit();
void CopyAsyncWait(int pending);

template <class T>
uint64_t BitsOf(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(value));
  return bits;
}
template <class T>
T FromBitsOf(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace ablate::cuda_emu

// --- what kernels see ---
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

#define CUDA_SHARED(type, name, dims)                           \
  typedef type name##_shared_type dims;                         \
  static char name##_shared_key;                                \
  name##_shared_type& name = *static_cast<name##_shared_type*>( \
      ::ablate::cuda_emu::SharedArray(&name##_shared_key, #name, sizeof(name##_shared_type)))
#define CUDA_DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(::ablate::cuda_emu::DynamicShared())

// Where a collective was called: default arguments, so that the caller's line is taken.
#define ABLATE_EMU_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(ABLATE_EMU_PLACE) { ablate::cuda_emu::BlockBarrier({file, line}); }
inline void __syncwarp(unsigned mask = 0xffffffffu, ABLATE_EMU_PLACE) {
  ablate::cuda_emu::WarpSync(mask, {file, line});
}
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, ABLATE_EMU_PLACE) {
  using namespace ablate::cuda_emu;
  const int lane = Lane(), first = lane & ~(width - 1);
  return FromBitsOf<T>(WarpExchange(mask, BitsOf(value), first + (source & (width - 1)), "__shfl_sync", {file, line}));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, ABLATE_EMU_PLACE) {
  using namespace ablate::cuda_emu;
  const int lane = Lane(), last = lane | (width - 1), source = lane ^ lane_mask;
  return FromBitsOf<T>(
      WarpExchange(mask, BitsOf(value), source > last ? lane : source, "__shfl_xor_sync", {file, line}));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, ABLATE_EMU_PLACE) {
  using namespace ablate::cuda_emu;
  const int lane = Lane(), last = lane | (width - 1), source = lane + static_cast<int>(delta);
  return FromBitsOf<T>(
      WarpExchange(mask, BitsOf(value), source > last ? lane : source, "__shfl_down_sync", {file, line}));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, ABLATE_EMU_PLACE) {
  using namespace ablate::cuda_emu;
  const int lane = Lane(), first = lane & ~(width - 1), source = lane - static_cast<int>(delta);
  return FromBitsOf<T>(
      WarpExchange(mask, BitsOf(value), source < first ? lane : source, "__shfl_up_sync", {file, line}));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, ABLATE_EMU_PLACE) {
  return ablate::cuda_emu::WarpBallot(mask, predicate != 0, "__ballot_sync", {file, line});
}
inline int __any_sync(unsigned mask, int predicate, ABLATE_EMU_PLACE) {
  return ablate::cuda_emu::WarpBallot(mask, predicate != 0, "__any_sync", {file, line}) != 0;
}
inline int __all_sync(unsigned mask, int predicate, ABLATE_EMU_PLACE) {
  return ablate::cuda_emu::WarpBallot(mask, predicate == 0, "__all_sync", {file, line}) == 0;
}

// Integers only. Relaxed, as CUDA's: they order no other memory.
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "sums of floating-point numbers need a fixed order");
  const T old = __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
  ablate::cuda_emu::AtomicHappened();
  return old;
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>);
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (old < value && !__atomic_compare_exchange_n(address, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  ablate::cuda_emu::AtomicHappened();
  return old;
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>);
  __atomic_compare_exchange_n(address, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  ablate::cuda_emu::AtomicHappened();
  return compare;
}

namespace ablate::cuda {

// As device.h describes them.
namespace ptx {
inline float ex2_approx(float x) { return std::exp2(x); }
inline float lg2_approx(float x) { return std::log2(x); }
inline float rcp_approx(float x) { return 1.0f / x; }
inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4],
                              ABLATE_EMU_PLACE) {
  cuda_emu::Mma(d, a, b, c, {file, line});
}
inline void ldmatrix_x4(uint32_t (&r)[4], const void* shared, ABLATE_EMU_PLACE) {
  cuda_emu::Ldmatrix(r, 4, false, shared, {file, line});
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* shared, ABLATE_EMU_PLACE) {
  cuda_emu::Ldmatrix(r, 4, true, shared, {file, line});
}
inline void ldmatrix_x2(uint32_t (&r)[2], const void* shared, ABLATE_EMU_PLACE) {
  cuda_emu::Ldmatrix(r, 2, false, shared, {file, line});
}
inline void ldmatrix_x2_trans(uint32_t (&r)[2], const void* shared, ABLATE_EMU_PLACE) {
  cuda_emu::Ldmatrix(r, 2, true, shared, {file, line});
}
inline void cp_async_16(void* shared, const void* global, bool valid, ABLATE_EMU_PLACE) {
  cuda_emu::CopyAsync(shared, global, valid, {file, line});
}
inline void cp_async_commit() { cuda_emu::CopyAsyncCommit(); }
template <int kPending>
void cp_async_wait() {
  cuda_emu::CopyAsyncWait(kPending);
}
}  // namespace ptx

struct LaunchSite {
  const char* text;  // the arguments of Launch as written: the kernel's name comes first
  const char* file;
  int line;
};
void NoteLaunch(cudaError_t code, const LaunchSite& site);

template <class... Params, class... Args>
void LaunchAt(const LaunchSite& site, void (*kernel)(Params...), dim3 grid, dim3 block, size_t dynamic_shared_bytes,
              cudaStream_t stream, Args&&... args) {
  std::tuple<Params...> params(std::forward<Args>(args)...);
  const auto work = [=]() mutable {
    auto body = [&] { std::apply(kernel, params); };  // each thread gets copies
    const auto run = [](void* self) { (*static_cast<decltype(body)*>(self))(); };
    return cuda_emu::Run(grid, block, dynamic_shared_bytes, run, &body);
  };
  NoteLaunch(cuda_emu::Submit(stream, site.text, work), site);
}

}  // namespace ablate::cuda

#undef ABLATE_EMU_PLACE
