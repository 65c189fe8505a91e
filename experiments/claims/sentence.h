// A verdict in plain words, with its numbers. Private to claims/; must not decide anything.
// Thread rule: pure functions, any thread.
#pragma once

#include <string>

#include "experiments/claims/contrast.h"
#include "proto/coordinator.pb.h"
#include "proto/resources.pb.h"

namespace ablate {

// What a sentence is made of; `row` has the numbers.
struct Said {
  std::string arm, baseline;             // for people
  int64_t length = 0, short_length = 0;  // tokens
  double level = 0.95;                   // of the plain interval
};

std::string VerdictSentence(const v1::ClaimRow& row, const ClaimTest& test, Decision decision, const Said& said);

// "arm a against b: loss_targets at 1024 tokens": what a claim is about, where nothing is decided yet.
std::string ClaimSubject(const v1::ClaimSpec& claim, const Said& said);

}  // namespace ablate
