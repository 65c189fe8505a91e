// For tests: a libablate_cuda.so without CUDA. Its GPUs compute on the CPU. FAKE_CUDA says how it behaves, in words:
//   gpus=N            so many (2)
//   result=R          both functions return R of library.h, with the message "as told"
//   free=BYTES        what FreeBytes says of a backend without a limit
//   fault_at=N        the N-th Synchronize of a backend, counted from 1, is a device fault, and so is every later one
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/cuda/library.h"
#include "kernels/forwarding_backend.h"

namespace ablate {
namespace {

int64_t Word(const std::string& name, int64_t otherwise) {
  const char* const words = std::getenv("FAKE_CUDA");
  if (words == nullptr) return otherwise;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(words, ' ', absl::SkipEmpty()))) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (pair.first == name) return std::atoll(pair.second.c_str());
  }
  return otherwise;
}

class FakeCudaBackend : public ForwardingBackend {
 public:
  FakeCudaBackend(std::unique_ptr<Backend> cpu, const CudaOptions& options)
      : ForwardingBackend(std::move(cpu)),
        options_(options),
        free_(options.memory_limit_bytes > 0 ? options.memory_limit_bytes : Word("free", int64_t{1} << 40)) {}

  std::string device_class() const override { return "cuda"; }
  std::string device_kind() const override { return absl::StrCat("cuda/Fake GPU ", options_.device); }
  int64_t FreeBytes() override { return free_; }
  absl::Status Synchronize() override {
    const int64_t fault_at = Word("fault_at", 0);
    if (fault_at == 0 || ++synchronized_ < fault_at) return ForwardingBackend::Synchronize();
    return absl::InternalError("fake.cu:12: kernel Fake: an illegal memory access was encountered");
  }

 private:
  const CudaOptions options_;
  const int64_t free_;
  int64_t synchronized_ = 0;
};

// True: the caller returns it.
bool Told(const char* interface, char* error, size_t error_bytes, int* result) {
  *result = static_cast<int>(Word("result", kCudaOk));
  if (std::strcmp(interface, CudaInterface()) != 0) *result = kCudaWrongBuild;
  if (*result != kCudaOk) std::snprintf(error, error_bytes, "as told");
  return *result != kCudaOk;
}

}  // namespace
}  // namespace ablate

int ablate_cuda_open(const char* interface, const ablate::CudaOptions* options, ablate::Backend** out, char* error,
                     size_t error_bytes) {
  int result = 0;
  if (ablate::Told(interface, error, error_bytes, &result)) return result;
  if (options->device >= ablate::Word("gpus", 2)) {
    std::snprintf(error, error_bytes, "there is no GPU %d", options->device);
    return ablate::kCudaNoDevice;
  }
  if (options->precision != ablate::Precision::kFloat32) {
    std::snprintf(error, error_bytes, "the fake has no bf16");
    return ablate::kCudaOtherFailure;
  }
  auto cpu = ablate::NewCpuBackend(1);
  *out = new ablate::FakeCudaBackend(*std::move(cpu), *options);
  return ablate::kCudaOk;
}

int ablate_cuda_devices(const char* interface, ablate::CudaDevice* devices, int capacity, int* count, char* error,
                        size_t error_bytes) {
  int result = 0;
  if (ablate::Told(interface, error, error_bytes, &result)) return result;
  *count = static_cast<int>(ablate::Word("gpus", 2));
  for (int i = 0; i < *count && i < capacity; ++i) {
    devices[i].index = i;
    std::snprintf(devices[i].name, sizeof(devices[i].name), "Fake GPU");
    devices[i].total_bytes = int64_t{80} << 30;
    devices[i].free_bytes = int64_t{79} << 30;
    devices[i].compute_major = 9;
    std::snprintf(devices[i].driver, sizeof(devices[i].driver), "13.0");
  }
  return *count == 0 ? ablate::kCudaNoDevice : ablate::kCudaOk;
}
