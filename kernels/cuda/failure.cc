// The first failure since it was last taken, with the place in the source that it belongs to. Must not know the
// backend. Thread rule: one thread at a time drives the device, as gpu.h says.
#include <cstring>
#include <string>
#include <string_view>

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {
namespace {

Failure first_failure;
LaunchSite last_launch = {nullptr, nullptr, 0};

std::string Place(const char* file, int line) {
  const char* slash = strrchr(file, '/');
  return std::string(slash != nullptr ? slash + 1 : file) + ":" + std::to_string(line);
}

// "CrossEntropyKernel<512, true, T>" of "(CrossEntropyKernel<512, true, T>), grid, ..." or without parentheses.
std::string KernelName(std::string_view text) {
  int depth = 0;
  if (text.starts_with('(')) text = text.substr(1, text.find(')') - 1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<' || text[i] == '(' || text[i] == '{') ++depth;
    if (text[i] == '>' || text[i] == ')' || text[i] == '}') --depth;
    if (text[i] == ',' && depth == 0) return std::string(text.substr(0, i));
  }
  return std::string(text);
}

std::string Describe(const LaunchSite& site) {
  return Place(site.file, site.line) + ": kernel " + KernelName(site.text);
}

}  // namespace

bool Note(cudaError_t code, const char* what, const char* file, int line) {
  if (code == cudaSuccess) return true;
  cudaGetLastError();  // ours now; a sticky one comes again
  if (!first_failure.ok()) return false;
  first_failure.code = code;
  first_failure.message = Place(file, line) + ": " + what + ": " + cudaGetErrorString(code);
  if (last_launch.text != nullptr && code != cudaErrorMemoryAllocation) {
    first_failure.message += "; the last kernel launched was " + Describe(last_launch);
  }
#if !defined(ABLATE_CUDA_TOOLKIT)
  if (!cuda_emu::LastError().empty()) first_failure.message += "\n" + cuda_emu::LastError();
#endif
  return false;
}

void NoteLaunch(cudaError_t code, const LaunchSite& site) {
  last_launch = site;
  if (code == cudaSuccess) return;
  cudaGetLastError();
  if (!first_failure.ok()) return;
  first_failure.code = code;
  first_failure.message = Describe(site) + ": " + cudaGetErrorString(code);
#if !defined(ABLATE_CUDA_TOOLKIT)
  first_failure.message += "\n" + cuda_emu::LastError();
#endif
}

Failure TakeFailure() {
  Failure failure = first_failure;
  first_failure = Failure();
#if !defined(ABLATE_CUDA_TOOLKIT)
  cuda_emu::ClearError();
#endif
  return failure;
}

}  // namespace ablate::cuda
