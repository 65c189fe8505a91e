// What failures have in common: the kind, and the message without what differs from one attempt to the next. A sweep's
// breaker counts by it. Must not know jobs or sweeps.
#pragma once

#include <string>

#include "proto/resources.pb.h"

namespace ablate {

// "code_error: trainer ended with signal # (Aborted) after step #": the first line of the message, words with a digit
// replaced by '#', at most 200 bytes of valid UTF-8. Stored in the table sweep_failures.
std::string FailureSignature(const v1::Failure& failure);

}  // namespace ablate
