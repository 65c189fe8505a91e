#include "worker/trainer/cuda_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status_macros.h"

namespace ablate {
namespace {

#ifdef ABLATE_WITH_CUDA
constexpr bool kBuiltWithCuda = true;
#else
constexpr bool kBuiltWithCuda = false;
#endif

constexpr char kEnvironment[] = "ABLATE_CUDA_LIBRARY";
constexpr size_t kErrorBytes = 1024;
constexpr int kMostDevices = 64;

absl::Status Failure(int result, const char* error) {
  switch (result) {
    case kCudaWrongBuild:
    case kCudaNoDriver:
    case kCudaNoDevice:
    case kCudaTooOld:
      return absl::FailedPreconditionError(error);
    case kCudaOutOfMemory:
      return absl::ResourceExhaustedError(error);
    default:
      return absl::InternalError(error);
  }
}

}  // namespace

std::string CudaLibraryPath() {
  const char* const set = std::getenv(kEnvironment);
  return set != nullptr && *set != '\0' ? set : JoinPath(ProgramDir(), "libablate_cuda.so");
}

absl::StatusOr<CudaLibrary> CudaLibrary::Load(const std::string& path) {
  if (const absl::StatusOr<uint64_t> size = FileSize(path); !size.ok()) {
    if (const char* const set = std::getenv(kEnvironment); set != nullptr && path == set) {
      return absl::FailedPreconditionError(absl::StrCat(
          "no CUDA backend at ", path, ", which ", kEnvironment, " names: ", size.status().message(),
          "; let it name the libablate_cuda.so of this very build, or unset it where that lies beside this program"));
    }
    return absl::FailedPreconditionError(
        kBuiltWithCuda
            ? absl::StrCat("no CUDA backend at ", path, ": put libablate_cuda.so beside this program, or name it with ",
                           kEnvironment)
            : absl::StrCat("this program was configured without CUDA (no nvcc, or ABLATE_CUDA=OFF; docs/gpu.md says "
                           "what is needed) and has no libablate_cuda.so beside it: name one of this very build with ",
                           kEnvironment));
  }
  CudaLibrary library;
  library.path_ = path;
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const why = handle == nullptr ? ::dlerror() : nullptr;
  if (handle == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot load the CUDA backend ", path, ": ", why != nullptr ? why : "unknown",
                     "; if that is libcublas or libcublasLt, add the folder of the CUDA toolkit's to LD_LIBRARY_PATH"));
  }
  library.open_ = reinterpret_cast<AblateCudaOpen*>(::dlsym(handle, kCudaOpenSymbol));
  library.devices_ = reinterpret_cast<AblateCudaDevices*>(::dlsym(handle, kCudaDevicesSymbol));
  if (library.open_ == nullptr || library.devices_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is no CUDA backend of Ablate: it has no ",
                                                      kCudaOpenSymbol, " or no ", kCudaDevicesSymbol));
  }
  return library;
}

absl::StatusOr<std::vector<CudaDevice>> CudaLibrary::Devices() const {
  std::vector<CudaDevice> devices(kMostDevices);
  int count = 0;
  char error[kErrorBytes] = {};
  const int result = devices_(CudaInterface(), devices.data(), kMostDevices, &count, error, sizeof(error));
  if (result == kCudaNoDevice) return std::vector<CudaDevice>();
  if (result != kCudaOk) return Failure(result, error);
  devices.resize(static_cast<size_t>(std::clamp(count, 0, kMostDevices)));
  return devices;
}

absl::StatusOr<std::unique_ptr<Backend>> CudaLibrary::Open(const CudaOptions& options) const {
  Backend* backend = nullptr;
  char error[kErrorBytes] = {};
  const int result = open_(CudaInterface(), &options, &backend, error, sizeof(error));
  if (result != kCudaOk) return Failure(result, error);
  if (backend == nullptr) return absl::InternalError(absl::StrCat(path_, " gave no backend"));
  return std::unique_ptr<Backend>(backend);
}

}  // namespace ablate
