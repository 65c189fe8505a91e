// The identifier seam: random ids in production, counted ones in tests.
// Thread rule: safe to call from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace ablate {

class IdGenerator {
 public:
  virtual ~IdGenerator() = default;
  // `prefix` + "_" + a part that never repeats, e.g. "worker_5f0c6d2a9b1e4c77".
  virtual std::string NewId(std::string_view prefix) = 0;

  // 64 bits from the operating system's random source.
  static IdGenerator& Random();
};

class CountingIdGenerator : public IdGenerator {
 public:
  std::string NewId(std::string_view prefix) override { return std::string(prefix) + "_" + std::to_string(++count_); }

 private:
  std::atomic<int64_t> count_{0};
};

}  // namespace ablate
