// The CUDA backend's shared library from outside: found, loaded, asked for GPUs and backends, with errors that say
// what to do. Needs neither CUDA nor a GPU itself. Must not know models or tasks.
// Thread rule: one thread at a time. A loaded library stays until the process ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/library.h"

namespace ablate {

// Where the library is looked for: ABLATE_CUDA_LIBRARY, if set, or libablate_cuda.so beside this program.
std::string CudaLibraryPath();

class CudaLibrary {
 public:
  // FailedPrecondition: no such library (and whether this build has one at all), or one that does not load.
  static absl::StatusOr<CudaLibrary> Load(const std::string& path = CudaLibraryPath());

  // The GPUs there are, none included. FailedPrecondition: no driver, another build; Internal: anything else.
  absl::StatusOr<std::vector<CudaDevice>> Devices() const;
  // FailedPrecondition: no driver, no such GPU, one too old, another build; ResourceExhausted: no memory for it;
  // Internal: anything else.
  absl::StatusOr<std::unique_ptr<Backend>> Open(const CudaOptions& options) const;

 private:
  std::string path_;
  AblateCudaOpen* open_ = nullptr;
  AblateCudaDevices* devices_ = nullptr;
};

}  // namespace ablate
