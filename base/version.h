// Versions that programs compare with each other.
#pragma once

namespace ablate {

// Of the worker link. A server takes this one and the one before.
inline constexpr int kProtocolVersion = 1;

// Part of every content key: bumped whenever a build may give other results for the same configuration.
inline constexpr int kNumericsVersion = 1;

// What `--version` prints and workers report.
const char* BuildVersion();

}  // namespace ablate
