// The Backend of kernels/backend.h on CUDA: memory, order and errors, over the kernels of this folder. The same class
// runs on a GPU (library.cc) and on the emulator (emulated_backend.h). Must not know models.
//
// Memory: one stream, so a block that was freed is safe to give again; freed blocks are kept for the next Allocate
// where `reuse_memory` is set. Everything counts against the limit, the backend's own workspaces included. bf16:
// weights are float32; the blocks in which products find weights have a rounded twin of half their size, which AdamW
// writes beside the weights (2 bytes a parameter more) and which is made anew after any other write: a product never
// rounds weights itself. Copies to the device pass through pinned memory, so that the host goes on at once. Repeat: the
// first call with a key runs plainly (workspaces grow, algorithms are chosen), the second is recorded as a CUDA graph,
// later ones replay it. Where recording is not supported or fails, each call runs plainly. Failures: the first one,
// with file, line and kernel, becomes the Status of the next Synchronize. Thread rule: one thread at a time for all
// backends of a process (kernels/cuda/gpu.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

struct BackendOptions {
  Precision precision = Precision::kFloat32;
  int64_t memory_limit_bytes = 0;  // 0: all that the device has free
  std::string device_name;         // the middle of device_kind: cuda/<name>/<name of the products>
  bool reuse_memory = true;
};

using GemmMaker = std::unique_ptr<Gemm>(cudaStream_t stream);

// On the current device. ResourceExhausted: not even its own workspaces fit; Internal: a device fault.
absl::StatusOr<std::unique_ptr<Backend>> NewBackend(const BackendOptions& options, GemmMaker* make_gemm);

// A failure as a Status: ResourceExhausted when it was memory, else Internal; OK when there was none.
absl::Status StatusOf(const Failure& failure);

}  // namespace ablate::cuda
