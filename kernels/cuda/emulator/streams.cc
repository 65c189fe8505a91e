// Streams, events and graphs of the emulated runtime. Everything is synchronous, so a stream is a name; what is real is
// capture: it keeps arguments as they were, which is what goes wrong with graphs.
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/emulator/block.h"

struct EmulatedStream {};
struct EmulatedEvent {
  std::chrono::steady_clock::time_point at;
};

namespace {
struct Node {
  std::string what;
  std::function<cudaError_t()> work;
};
}  // namespace
struct EmulatedGraph {
  std::vector<Node> nodes;
};
struct EmulatedGraphExec {
  std::vector<Node> nodes;
};

namespace ablate::cuda_emu {
namespace {

EmulatedGraph* captured = nullptr;  // what the capture under way has; null: none
cudaStream_t capturing = nullptr;
bool broken = false;

}  // namespace

bool NotWhileCapturing() {
  if (captured == nullptr) return true;
  broken = true;
  return false;
}

cudaError_t Submit(cudaStream_t stream, const char* what, std::function<cudaError_t()> work) {
  if (captured == nullptr) return work();
  if (stream != capturing) {
    broken = true;
    return cudaErrorStreamCaptureImplicit;
  }
  if (broken) return cudaErrorStreamCaptureInvalidated;
  captured->nodes.push_back({what, std::move(work)});
  return cudaSuccess;
}

}  // namespace ablate::cuda_emu

using namespace ablate::cuda_emu;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new EmulatedStream;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return NotWhileCapturing() ? cudaPeekAtLastError() : cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return NotWhileCapturing() ? cudaPeekAtLastError() : cudaErrorStreamCaptureUnsupported;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  *ms = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  captured = new EmulatedGraph;
  capturing = stream;
  broken = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (captured == nullptr || stream != capturing) return cudaErrorInvalidValue;
  EmulatedGraph* made = std::exchange(captured, nullptr);
  if (broken) {
    delete made;
    return cudaErrorStreamCaptureInvalidated;
  }
  *graph = made;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new EmulatedGraphExec{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (!NotWhileCapturing()) return cudaErrorStreamCaptureUnsupported;
  for (const Node& node : exec->nodes) {
    const cudaError_t code = Submit(stream, node.what.c_str(), node.work);
    if (code != cudaSuccess) {
      AddToError(" (in a graph, at " + node.what + ")");
      return code;
    }
  }
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
