// The CUDA backend on the emulator (kernels/cuda/emulator), for tests and golden_check on any machine. Never linked
// into a program that trains: it is thousands of times slower than a GPU and says nothing of speed. Must not include
// gpu.h. Thread rule: one thread at a time for all of a process.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace ablate {

absl::StatusOr<std::unique_ptr<Backend>> NewEmulatedCudaBackend(Precision precision);

}  // namespace ablate
