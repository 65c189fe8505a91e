// The kept inputs as an ordinary test. Replay runs each file of each target's folder. A target aborts where something
// is wrong; the last line printed then names the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ablate {

struct FuzzTarget {
  const char* name;  // of its folder
  int (*run)(const uint8_t* data, size_t size);
};

// An exit code: 0, or 2 where a target has no inputs in `corpus`, or a folder there no target.
int Replay(const char* corpus, std::span<const FuzzTarget> targets);

}  // namespace ablate
