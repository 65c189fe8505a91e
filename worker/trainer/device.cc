#include "worker/trainer/device.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/trainer/cuda_library.h"

namespace ablate {
namespace {

constexpr int kMostGpus = 1024;

// -1: no number of a GPU.
int GpuOf(const std::string& name) {
  if (name == "cuda") return 0;
  int index = -1;
  const std::string prefix = "cuda:";
  if (name.rfind(prefix, 0) != 0 || !absl::SimpleAtoi(name.substr(prefix.size()), &index)) return -1;
  return index >= 0 && index < kMostGpus ? index : -1;
}

}  // namespace

absl::StatusOr<Backend*> Device::Open(Precision precision) {
  if (Holds(precision)) return backend_.get();
  if (backend_ == nullptr) {
    ABLATE_ASSIGN_OR_RETURN(backend_, open_(precision));
    return backend_.get();
  }
  // The old one goes first: its workspaces may be what the new one needs. When the new one cannot be had, it comes
  // back.
  const Precision before = backend_->precision();
  backend_.reset();
  absl::StatusOr<std::unique_ptr<Backend>> opened = open_(precision);
  if (opened.ok()) {
    backend_ = *std::move(opened);
    return backend_.get();
  }
  ABLATE_ASSIGN_OR_RETURN(backend_, open_(before));
  return opened.status();
}

absl::StatusOr<std::unique_ptr<Device>> NewDevice(const std::string& name, const DeviceOptions& options) {
  std::unique_ptr<Device> device;
  if (name == "cpu") {
    device = std::make_unique<Device>([options](Precision precision) -> absl::StatusOr<std::unique_ptr<Backend>> {
      if (precision == Precision::kBf16) {
        return absl::InvalidArgumentError("train.precision bf16 needs a CUDA device; on the CPU use fp32");
      }
      return NewCpuBackend(options.threads);
    });
  } else if (const int gpu = GpuOf(name); gpu >= 0) {
    ABLATE_ASSIGN_OR_RETURN(const CudaLibrary library, CudaLibrary::Load());
    device = std::make_unique<Device>([library, gpu, options](Precision precision) {
      return library.Open({.device = gpu, .precision = precision, .memory_limit_bytes = options.memory_limit_bytes});
    });
  } else {
    return absl::InvalidArgumentError(absl::StrCat("--device \"", name, "\": expected cpu, cuda or cuda:N"));
  }
  ABLATE_RETURN_IF_ERROR(device->Open(Precision::kFloat32).status());
  return device;
}

absl::StatusOr<std::string> ListCudaDevices() {
  ABLATE_ASSIGN_OR_RETURN(const CudaLibrary library, CudaLibrary::Load());
  ABLATE_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, library.Devices());
  std::string lines;
  for (const CudaDevice& device : devices) {
    absl::StrAppend(&lines, device.index, "\t", device.total_bytes, "\t", device.free_bytes, "\t", device.compute_major,
                    ".", device.compute_minor, "\t", device.driver, "\t", device.name, "\n");
  }
  return lines;
}

}  // namespace ablate
