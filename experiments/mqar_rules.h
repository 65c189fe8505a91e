// The rules of associative recall (MQAR) that planning and the trainer must agree on. How sequences are made by them:
// worker/trainer/mqar.h. Plain functions; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace ablate {

// The rules, named: data that follow them have the SHA-256 of this text. Other rules are another number.
inline constexpr std::string_view kMqarRules = "mqar 1";

// Keys of a vocabulary: token 0 is the blank, keys are below half of it, values from there on.
constexpr int64_t MqarKeys(int64_t vocabulary) { return std::max<int64_t>(0, vocabulary / 2 - 1); }

// Tokens of the shortest sequence: two for a pair, and two for its query.
constexpr int64_t MqarLeastTokens(int64_t pairs) { return 4 * pairs; }

}  // namespace ablate
