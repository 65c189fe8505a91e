// The device that a trainer works on: what --device says, and a backend on it for the precision that a task asks for.
// Must not know tasks or the pipe. Thread rule: one thread, the backend's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace ablate {

struct DeviceOptions {
  int threads = 1;                 // of the CPU backend
  int64_t memory_limit_bytes = 0;  // of a GPU: this trainer's share; 0: all that is free
};

class Device {
 public:
  using Opener = std::function<absl::StatusOr<std::unique_ptr<Backend>>(Precision)>;
  explicit Device(Opener open) : open_(std::move(open)) {}

  // The backend of this precision. One lives at a time: another precision than before destroys the last one, with all
  // memory on it, so whoever holds a model calls Holds() first. InvalidArgument: this device cannot do that precision;
  // other errors: as CudaLibrary::Open.
  absl::StatusOr<Backend*> Open(Precision precision);
  // Whether Open(precision) would give the backend that is there already.
  bool Holds(Precision precision) const { return backend_ != nullptr && backend_->precision() == precision; }
  // The one opened last. There must be one.
  Backend* backend() const { return backend_.get(); }

 private:
  const Opener open_;
  std::unique_ptr<Backend> backend_;
};

// `name` is what --device takes: "cpu", "cuda", "cuda:N". The float32 backend is open on return.
// InvalidArgument: no such name. FailedPrecondition: there is no such device here, or no CUDA in this build.
absl::StatusOr<std::unique_ptr<Device>> NewDevice(const std::string& name, const DeviceOptions& options);

// A line a GPU for programs: index, bytes in all, bytes free, compute capability, CUDA version of the driver, name;
// separated by tabs. FailedPrecondition: as CudaLibrary.
absl::StatusOr<std::string> ListCudaDevices();

}  // namespace ablate
