// The time seam. Wall time is for people; leases and time-outs use monotonic time only.
// Thread rule: every implementation is safe to call from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace ablate {

class Clock {
 public:
  virtual ~Clock() = default;
  // UTC microseconds since the epoch. May step.
  virtual int64_t WallMicros() const = 0;
  // Microseconds from an arbitrary start; never goes back, not moved by wall-clock steps.
  virtual int64_t MonotonicMicros() const = 0;

  // The process's real clock.
  static const Clock& Real();
};

// For tests of whole programs: another clock whose wall time is moved by as many seconds as a file says (none: 0), read
// anew at each call, as an administrator moves a machine's clock.
class SteppedClock : public Clock {
 public:
  SteppedClock(const Clock* clock, std::string path) : clock_(clock), path_(std::move(path)) {}
  int64_t WallMicros() const override;
  int64_t MonotonicMicros() const override { return clock_->MonotonicMicros(); }

 private:
  const Clock* const clock_;
  const std::string path_;
};

// For tests: stands still until told.
class FakeClock : public Clock {
 public:
  int64_t WallMicros() const override { return wall_us_.load(); }
  int64_t MonotonicMicros() const override { return monotonic_us_.load(); }
  // Moves both clocks.
  void Advance(int64_t micros) {
    wall_us_ += micros;
    monotonic_us_ += micros;
  }
  // Moves the wall clock alone, as an administrator or NTP would.
  void StepWall(int64_t micros) { wall_us_ += micros; }

 private:
  std::atomic<int64_t> wall_us_{1'700'000'000'000'000};
  std::atomic<int64_t> monotonic_us_{1'000'000};
};

}  // namespace ablate
