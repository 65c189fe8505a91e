// For tests of the ops: values, the double-precision reference's copies of them, and the same op in every order of
// threads. Host only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/emulator/testing.h"
#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using cuda_emu::DeviceArray;

template <class T>
std::vector<T> Values(int64_t n, int salt, double scale = 1.0) {
  std::vector<T> out(n);
  for (int64_t i = 0; i < n; ++i) {
    const double x = scale * std::sin(1.0 + 2.399963 * static_cast<double>(i % 100003) + 0.7 * salt);
    if constexpr (std::is_same_v<T, bf16>) {
      out[i] = ToBf16(static_cast<float>(x));
    } else {
      out[i] = static_cast<T>(x);
    }
  }
  return out;
}

template <class T>
Doubles Wide(const std::vector<T>& x) {
  Doubles out;
  for (const T& e : x) out.push_back(ToFloat(e));
  return out;
}
template <class T>
Floats AsFloats(const std::vector<T>& x) {
  Floats out;
  for (const T& e : x) out.push_back(ToFloat(e));
  return out;
}

inline std::vector<int32_t> Tokens(int n, int V, int salt) {
  std::vector<int32_t> out(n);
  for (int i = 0; i < n; ++i) out[i] = static_cast<int32_t>((int64_t{i} * 7919 + salt * 104729 + int64_t{i} * i) % V);
  return out;
}

// Relative to the largest expected value, beside the rounding of an output of type T (half a unit of its last place).
template <class T>
void ExpectClose(const Floats& got, const Doubles& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const double rounding = std::is_same_v<T, bf16> ? 1.0 / 256 : 0.0;
  double largest = 1e-30;
  for (const double w : want) largest = std::max(largest, std::fabs(w));
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << what << "[" << i << "]";
    const double excess = std::fabs(got[i] - want[i]) - rounding * std::fabs(want[i]);
    if (excess > worst) {
      worst = excess;
      where = i;
    }
  }
  EXPECT_LE(worst, tolerance * largest) << what << "[" << where << "] is " << got[where] << ", not " << want[where];
}

// The outputs of `op`, which must be the same bits in every order of threads.
template <class Op>
std::vector<Floats> SameBits(const Op& op) {
  std::vector<Floats> first;
  cuda_emu::ForEachSchedule([&] {
    const std::vector<Floats> outputs = op();
    if (first.empty()) first = outputs;
    ASSERT_EQ(outputs.size(), first.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      ASSERT_EQ(outputs[i].size(), first[i].size());
      EXPECT_EQ(std::memcmp(outputs[i].data(), first[i].data(), sizeof(float) * first[i].size()), 0)
          << "output " << i << " hangs on the order of threads";
    }
  });
  return first;
}

}  // namespace ablate::cuda
