// For tests of kernels: device arrays, and every order that threads may run in. Host only, with GoogleTest.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/gpu.h"

namespace ablate::cuda_emu {

// An array in device memory, copied from and to the host.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {  // NaN
    GPU_OK(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    GPU_OK(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  T* get() { return data_; }
  operator T*() { return data_; }
  std::vector<T> ToHost() const {
    std::vector<T> values(count_);
    GPU_OK(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kOneOrder = true;  // ThreadSanitizer finds what no order shows, at a fortieth of the speed
#else
inline constexpr bool kOneOrder = false;
#endif

// Runs `body` forward, in reverse and with three seeds, and fails the test where a kernel failed. `body` is to compare
// its results with the reference; bits must not hang on the order, which a caller may check too.
template <class Body>
void ForEachSchedule(Body body) {
  struct Case {
    const char* name;
    Schedule schedule;
  };
  const Case cases[] = {{"forward", {Order::kForward, 0}},
                        {"reverse", {Order::kReverse, 0}},
                        {"seed 1", {Order::kSeeded, 1}},
                        {"seed 2", {Order::kSeeded, 2}},
                        {"seed 3", {Order::kSeeded, 3}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string("threads run in order: ") + c.name);
    SetSchedule(c.schedule);
    body();
    const cuda::Failure failure = cuda::TakeFailure();
    EXPECT_TRUE(failure.ok()) << failure.message;
    if (kOneOrder) break;
  }
  SetSchedule({});
}

}  // namespace ablate::cuda_emu
