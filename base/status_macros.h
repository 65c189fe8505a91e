// Early-return macros for absl::Status and absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define ABLATE_CONCAT_INNER(a, b) a##b
#define ABLATE_CONCAT(a, b) ABLATE_CONCAT_INNER(a, b)

// ABLATE_RETURN_IF_ERROR(expr): returns expr's status from the enclosing function unless OK.
#define ABLATE_RETURN_IF_ERROR(expr)     \
  do {                                   \
    absl::Status ablate_status = (expr); \
    if (!ablate_status.ok()) {           \
      return ablate_status;              \
    }                                    \
  } while (false)

// ABLATE_ASSIGN_OR_RETURN(auto x, Foo()): x = *Foo(), or returns Foo()'s status.
#define ABLATE_ASSIGN_OR_RETURN(lhs, expr) \
  ABLATE_ASSIGN_OR_RETURN_IMPL(ABLATE_CONCAT(ablate_statusor_, __LINE__), lhs, expr)
#define ABLATE_ASSIGN_OR_RETURN_IMPL(statusor, lhs, expr) \
  auto statusor = (expr);                                 \
  if (!statusor.ok()) {                                   \
    return std::move(statusor).status();                  \
  }                                                       \
  lhs = *std::move(statusor)
