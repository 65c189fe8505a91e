#include "kernels/cuda/emulated_backend.h"

#include "kernels/cuda/backend.h"

namespace ablate {

absl::StatusOr<std::unique_ptr<Backend>> NewEmulatedCudaBackend(Precision precision) {
  cuda::BackendOptions options;
  options.precision = precision;
  options.device_name = "emulated";
  options.reuse_memory = false;  // so that what uses freed memory is found
  return cuda::NewBackend(options, cuda::NewPlainGemm);
}

}  // namespace ablate
