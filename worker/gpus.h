// The GPUs of this machine and how slots share them: which GPU a slot computes on, and how much of its memory is its
// own. What there is the trainer says (ablate-trainer --list-devices): the daemon itself links nothing of CUDA.
// Thread rule: pure, but for ListGpus, which runs a program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ablate {

struct Gpu {
  int index = 0;  // as CUDA counts them
  int64_t total_bytes = 0, free_bytes = 0;
  double compute = 0;  // "9.0"
  std::string driver;  // the CUDA version that it supports
  std::string name;    // "NVIDIA H200"
  // "GPU 0: NVIDIA H200, 139.8 GiB of memory (139.3 GiB free), compute capability 9.0, driver for CUDA 13.0"
  std::string Describe() const;
};

// The oldest that the CUDA backend runs on.
inline constexpr double kLeastCompute = 8.0;

// Runs `trainer` with --list-devices; no GPU is an empty list. FailedPrecondition: it refuses, in its words (no CUDA
// in this build, no driver); NotFound: no such program; Internal: it says nothing that can be understood.
absl::StatusOr<std::vector<Gpu>> ListGpus(const std::string& trainer);
// What it prints. Internal: a line that is none.
absl::StatusOr<std::vector<Gpu>> ParseGpus(std::string_view lines);

struct GpuSlots {
  std::vector<Gpu> gpus;  // all of one kind
  int per_gpu = 1;
  int64_t share_bytes = 0;  // of a slot; what its context takes is not in it

  int slots() const { return static_cast<int>(gpus.size()) * per_gpu; }
  // Neighbouring slots are on different GPUs, so that few jobs share none.
  const Gpu& OfSlot(int slot) const { return gpus[static_cast<size_t>(slot) % gpus.size()]; }
  // For ablate-trainer. A slot that has a GPU for itself takes all that is free.
  std::vector<std::string> TrainerFlags(int slot) const;
};

// `wanted`: indices, as --gpus has them; empty: all that are new enough. FailedPrecondition: there are none, one that
// is too old or not there was named, or they are of several kinds (results depend on the kind). InvalidArgument: an
// index that is no number or comes twice; shares too small to be of use.
absl::StatusOr<GpuSlots> AssignGpus(const std::vector<Gpu>& all, const std::vector<std::string>& wanted, int per_gpu);

}  // namespace ablate
