#include "worker/failure_kind.h"

#include "base/files.h"

namespace ablate {

v1::FailureKind FailureKindOf(const absl::Status& status) {
  if (IsNodeTrouble(status)) return v1::PREEMPTED;
  if (ErrnoOf(status) != 0) return v1::CODE_ERROR;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return v1::INVALID_CONFIG;
    case absl::StatusCode::kResourceExhausted:
      return v1::OUT_OF_MEMORY;
    default:
      return v1::CODE_ERROR;
  }
}

}  // namespace ablate
