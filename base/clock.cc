#include "base/clock.h"

#include <chrono>
#include <fstream>

namespace ablate {
namespace {

class RealClock : public Clock {
 public:
  int64_t WallMicros() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  int64_t MonotonicMicros() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

int64_t SteppedClock::WallMicros() const {
  double seconds = 0;
  if (std::ifstream file(path_); !(file >> seconds)) seconds = 0;
  return clock_->WallMicros() + static_cast<int64_t>(seconds * 1e6);
}

const Clock& Clock::Real() {
  static const RealClock clock;
  return clock;
}

}  // namespace ablate
