// A Backend that passes every op on and adds its CPU time under the op's name (matrix products also by their shape).
// For benches. Thread rule: as the backend that it wraps.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace ablate {

// `seconds` must outlive the backend.
std::unique_ptr<Backend> NewProfiledBackend(std::unique_ptr<Backend> inner, std::map<std::string, double>* seconds);

}  // namespace ablate
