// Whose fault a failure is: the one place where a status becomes the kind that decides about a retry. Must not know
// jobs. Thread rule: pure.
#pragma once

#include "absl/status/status.h"
#include "proto/resources.pb.h"

namespace ablate {

// PREEMPTED: trouble of this node, which says nothing about the job (IsNodeTrouble: a full disk, an unwritable folder);
// not counted. INVALID_CONFIG: a retry cannot mend it. OUT_OF_MEMORY: ResourceExhausted of no file. CODE_ERROR: all
// else.
v1::FailureKind FailureKindOf(const absl::Status& status);

}  // namespace ablate
