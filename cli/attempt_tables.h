// A job's attempts and what each failed one left behind, for people and as JSON. Must not know gRPC calls.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/output/report.h"
#include "proto/resources.pb.h"

namespace ablate {

using AttemptList = google::protobuf::RepeatedPtrField<v1::Attempt>;

// "out_of_memory"; "" where nothing failed.
std::string FailureKindText(const v1::Failure& failure);

// One row an attempt: where and when it ran, how it ended and why.
Sheet AttemptSheet(const AttemptList& attempts);

// One sheet for each attempt whose trainer left evidence (exit code or signal, peak memory, stderr): that, with the kind and the
// message. Of stderr the last `lines` lines; a footer counts those before.
std::vector<Sheet> EvidenceSheets(const AttemptList& attempts, size_t lines);

// One object with every field.
std::string AttemptJson(const v1::Attempt& attempt);

}  // namespace ablate
