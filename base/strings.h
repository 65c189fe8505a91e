// Small string helpers that every room shares: Abseil/std string_view borders, nearest names, number text.
// Debian's Abseil has a string_view of its own which does not convert to std's; our APIs use std types only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ablate {

inline absl::string_view ToAbsl(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view ToStd(absl::string_view s) { return {s.data(), s.size()}; }

// `status` with "context: " in front of its message; OK stays OK.
absl::Status WithContext(const absl::Status& status, std::string_view context);

// The candidate with the smallest edit distance to `name`, or "" when none is near
// (distance above max(2, length / 3)).
std::string NearestName(std::string_view name, const std::vector<std::string>& candidates);

// `, did you mean "x"?` with the nearest candidate, or `; known: a, b, c` when none is near.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates);

// The shortest decimal text that reads back as exactly `value`: 0.0001 -> "0.0001", 15 -> "15".
// nan, inf and -inf are written so.
std::string ShortestDouble(double value);

// 1536 -> "1.5 KiB".
std::string HumanBytes(uint64_t bytes);
// 75.2 s -> "1m15s".
std::string HumanSeconds(double seconds);

}  // namespace ablate
