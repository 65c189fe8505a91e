#include "kernels/cuda/backend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/decode.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/ops/arg_max.h"
#include "kernels/cuda/ops/columns.h"
#include "kernels/cuda/ops/cross_entropy.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/embedding.h"
#include "kernels/cuda/ops/layer_norm.h"
#include "kernels/cuda/ops/optimizer.h"
#include "kernels/cuda/ops/qkv.h"
#include "kernels/cuda/weight_copies.h"

namespace ablate::cuda {
namespace {

// Rows of logits begin at multiples of this: what the fastest products ask of their operands, and a cache line.
constexpr int64_t kLogitRowBytes = 128;
// Rows of a training pass: enough to fill every multiprocessor with every product of a width of 768; more would only
// take memory.
constexpr int64_t kPreferredRows = 16384;
constexpr int64_t kScratchStep = int64_t{1} << 20;
// Recordings kept; a caller with more keys in turn runs plainly.
constexpr size_t kMostRecordings = 64;

HeadShape Heads(const AttentionShape& shape) { return {shape.B, shape.T, shape.H, shape.D}; }

// Device memory that is not the caller's.
struct Results {
  unsigned long long counts[2];
  double squares;
  double partials[kSquarePartials];
};

class CudaBackend : public Backend {
 public:
  // The stream is the backend's from here on.
  CudaBackend(const BackendOptions& options, cudaStream_t stream)
      : options_(options),
        owned_stream_{stream},
        stream_(stream),
        memory_(stream, options.memory_limit_bytes, options.reuse_memory),
        weights_(stream, &memory_),
        staging_(stream) {}

  ~CudaBackend() override {
    cudaStreamSynchronize(stream_);
    ForgetRecordings();
    gemm_.reset();
    weights_.Clear();
  }

  absl::Status Init(GemmMaker* make_gemm) {
    const auto failed = [] {
      const absl::Status status = StatusOf(TakeFailure());
      return status.ok() ? absl::InternalError("the CUDA backend cannot be set up") : status;
    };
    if (!staging_.Init()) return failed();
    gemm_ = make_gemm(stream_);
    if (gemm_ == nullptr) return failed();
    memory_.Count(gemm_->workspace_bytes());
    ABLATE_ASSIGN_OR_RETURN(void* results, memory_.Allocate(sizeof(Results)));
    results_ = static_cast<Results*>(results);
    return Synchronize();
  }

  std::string device_class() const override { return "cuda"; }
  std::string device_kind() const override { return absl::StrCat("cuda/", options_.device_name, "/", gemm_->name()); }
  int64_t preferred_rows() const override { return kPreferredRows; }
  Precision precision() const override { return options_.precision; }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    Outside("Allocate");
    absl::StatusOr<void*> memory = memory_.Allocate(bytes);
    if (memory.ok()) weights_.AddBlock(*memory, bytes);
    return memory;
  }
  void Free(void* memory) override {
    if (memory == nullptr) return;
    Outside("Free");
    ForgetRecordings();
    weights_.RemoveBlock(memory);
    memory_.Free(memory);
  }
  void CopyToDevice(void* to, const void* from_host, size_t bytes) override {
    Outside("CopyToDevice");
    if (bytes == 0) return;
    staging_.ToDevice(to, from_host, bytes);
    Written(to);
  }
  void CopyToHost(void* to_host, const void* from, size_t bytes) override {
    Outside("CopyToHost");
    if (bytes > 0) staging_.ToHost(to_host, from, bytes);
  }
  void Zero(void* memory, size_t bytes) override {
    Trace("Zero", memory, bytes);
    if (bytes == 0) return;
    GPU_OK(cudaMemsetAsync(memory, 0, bytes, stream_));
    Written(memory);
  }
  absl::Status Synchronize() override {
    Outside("Synchronize");
    GPU_OK(cudaStreamSynchronize(stream_));
    const absl::Status later = StatusOf(TakeFailure());
    const absl::Status first = std::exchange(first_, absl::OkStatus());
    return first.ok() ? later : first;
  }
  int64_t FreeBytes() override { return memory_.FreeBytes(); }
  int64_t WorkspaceBytes(const AttentionShape& shape, int V, bool backward) const override;
  absl::Status CheckHeadDim(int D) const override;
  void Repeat(int64_t key, const std::function<void()>& work) override;

  void EmbeddingForward(const int32_t* tokens, const float* table, Element* out, int N, int C) override {
    Trace("EmbeddingForward", tokens, table, out, N, C);
    Typed([&](auto t) { cuda::EmbeddingForward(stream_, tokens, table, t.As(out), N, C); });
  }
  void EmbeddingBackward(const int32_t* tokens, const Element* dout, float* dtable, int N, int C, int) override {
    Trace("EmbeddingBackward", tokens, dout, dtable, N, C);
    void* scratch = Scratch(EmbeddingScratchBytes(N, C));
    if (scratch == nullptr) return;
    Typed([&](auto t) { cuda::EmbeddingBackward(stream_, tokens, t.As(dout), dtable, scratch, N, C); });
    Written(dtable);
  }

  void LayerNormForward(const Element* x, const float* w, const float* b, Element* out, float* mean, float* rstd, int N,
                        int C) override {
    Trace("LayerNormForward", x, w, b, out, mean, rstd, N, C);
    Typed([&](auto t) { cuda::LayerNormForward(stream_, t.As(x), w, b, t.As(out), mean, rstd, N, C); });
  }
  void LayerNormBackward(const Element* dout, const Element* x, const float* w, const float* mean, const float* rstd,
                         Element* dx, float* dw, float* db, int N, int C) override {
    Trace("LayerNormBackward", dout, x, w, mean, rstd, dx, dw, db, N, C);
    void* scratch = Scratch(FloatBytes(LayerNormPartialFloats(N, C)));
    if (scratch == nullptr) return;
    Typed([&](auto t) {
      cuda::LayerNormBackward(stream_, t.As(dout), t.As(x), w, mean, rstd, t.As(dx), dw, db,
                              static_cast<float*>(scratch), N, C);
    });
    Written(dw);
    Written(db);
  }

  void LinearForward(const Element* x, const float* w, const float* b, Element* out, int N, int I, int O) override {
    Trace("LinearForward", x, w, b, out, N, I, O);
    Product(x, w, b, out, {N, I, O, O});
  }
  void LinearBackward(const Element* dout, const Element* x, const float* w, Element* dx, float* dw, float* db, int N,
                      int I, int O) override {
    Trace("LinearBackward", dout, x, w, dx, dw, db, N, I, O);
    ProductBackward(dout, x, w, dx, dw, {N, I, O, O});
    if (db == nullptr) return;
    void* scratch = Scratch(FloatBytes(BiasPartialFloats(N, O)));
    if (scratch == nullptr) return;
    Typed([&](auto t) { BiasBackward(stream_, t.As(dout), db, static_cast<float*>(scratch), N, O); });
    Written(db);
  }

  int64_t LogitStride(int V) const override {
    const int64_t elements = kLogitRowBytes / activation_bytes();
    return CeilDiv(V, elements) * elements;
  }
  void LogitsForward(const Element* x, const float* w, Element* logits, int N, int I, int V) override {
    Trace("LogitsForward", x, w, logits, N, I, V);
    Product(x, w, nullptr, logits, {N, I, V, static_cast<int>(LogitStride(V))});
  }
  void LogitsBackward(const Element* dlogits, const Element* x, const float* w, Element* dx, float* dw, int N, int I,
                      int V) override {
    Trace("LogitsBackward", dlogits, x, w, dx, dw, N, I, V);
    ProductBackward(dlogits, x, w, dx, dw, {N, I, V, static_cast<int>(LogitStride(V))});
  }

  void GeluForward(const Element* x, Element* out, int64_t n) override {
    Trace("GeluForward", x, out, n);
    Typed([&](auto t) { cuda::GeluForward(stream_, t.As(x), t.As(out), n); });
  }
  void GeluBackward(const Element* dout, const Element* x, Element* dx, int64_t n) override {
    Trace("GeluBackward", dout, x, dx, n);
    Typed([&](auto t) { cuda::GeluBackward(stream_, t.As(dout), t.As(x), t.As(dx), n); });
  }
  void Add(const Element* a, const Element* b, Element* out, int64_t n) override {
    Trace("Add", a, b, out, n);
    Typed([&](auto t) { cuda::Add(stream_, t.As(a), t.As(b), t.As(out), n); });
  }

  void QkvForward(const Element* qkv, const float* cos, const float* sin, QkNorm qk_norm, Element* q, Element* k,
                  Element* v, float* q_norm, float* k_norm, const AttentionShape& shape) override {
    CHECK(cos == nullptr || shape.D % 2 == 0);
    Trace("QkvForward", qkv, cos, sin, qk_norm, q, k, v, q_norm, k_norm, shape);
    Typed([&](auto t) {
      cuda::QkvForward(stream_, t.As(qkv), cos, sin, qk_norm == QkNorm::kL2, t.As(q), t.As(k), t.As(v), q_norm, k_norm,
                       Heads(shape));
    });
  }
  void QkvBackward(const Element* dq, const Element* dk, const Element* dv, const Element* q, const Element* k,
                   const float* cos, const float* sin, QkNorm qk_norm, const float* q_norm, const float* k_norm,
                   Element* dqkv, const AttentionShape& shape) override {
    CHECK(cos == nullptr || shape.D % 2 == 0);
    Trace("QkvBackward", dq, dk, dv, q, k, cos, sin, qk_norm, q_norm, k_norm, dqkv, shape);
    Typed([&](auto t) {
      cuda::QkvBackward(stream_, t.As(dq), t.As(dk), t.As(dv), t.As(q), t.As(k), cos, sin, qk_norm == QkNorm::kL2,
                        q_norm, k_norm, t.As(dqkv), Heads(shape));
    });
  }

  void AttentionForward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                        const Element* v, const float* learned_s, const float* learned_b, Element* out,
                        float* row_stats) override {
    Trace("AttentionForward", spec, shape, q, k, v, learned_s, learned_b, out, row_stats);
    const int64_t scratch_bytes = AttentionForwardWorkspaceBytes(spec, shape);
    void* scratch = scratch_bytes > 0 ? Scratch(scratch_bytes) : nullptr;
    if (scratch_bytes > 0 && scratch == nullptr) return;
    Typed([&](auto t) {
      cuda::AttentionForward(stream_, spec, shape, t.As(q), t.As(k), t.As(v), learned_s, learned_b, t.As(out),
                             row_stats, results_->counts, scratch);
    });
  }
  AttentionCounts TakeAttentionCounts() override;
  void AttentionBackward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                         const Element* v, const float* learned_s, const float* learned_b, const Element* out,
                         const Element* dout, const float* row_stats, Element* dq, Element* dk, Element* dv,
                         float* dlearned_s, float* dlearned_b) override {
    Trace("AttentionBackward", spec, shape, q, k, v, learned_s, learned_b, out, dout, row_stats, dq, dk, dv, dlearned_s,
          dlearned_b);
    void* scratch = Scratch(AttentionBackwardWorkspaceBytes(spec, shape));
    if (scratch == nullptr) return;
    Typed([&](auto t) {
      cuda::AttentionBackward(stream_, spec, shape, t.As(q), t.As(k), t.As(v), learned_s, learned_b, t.As(out),
                              t.As(dout), row_stats, t.As(dq), t.As(dk), t.As(dv), dlearned_s, dlearned_b, scratch);
    });
    if (dlearned_s != nullptr) Written(dlearned_s);
    if (dlearned_b != nullptr) Written(dlearned_b);
  }

  void AttentionStatistics(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                           const float* learned_s, const float* learned_b, float* statistics) override {
    Trace("AttentionStatistics", spec, shape, q, k, learned_s, learned_b, statistics);
    const int64_t scratch_bytes = AttentionForwardWorkspaceBytes(spec, shape);
    void* scratch = scratch_bytes > 0 ? Scratch(scratch_bytes) : nullptr;
    if (scratch_bytes > 0 && scratch == nullptr) return;
    Typed([&](auto t) {
      cuda::AttentionStatistics(stream_, spec, shape, t.As(q), t.As(k), learned_s, learned_b, statistics, scratch);
    });
  }

  void CacheKeyValue(const Element* qkv, Element* keys, Element* values, const AttentionShape& shape,
                     int capacity) override {
    Trace("CacheKeyValue", qkv, keys, values, shape, capacity);
    Typed([&](auto t) { cuda::CacheKeyValue(stream_, t.As(qkv), t.As(keys), t.As(values), shape, capacity); });
  }
  void AttentionDecode(const AttentionSpec& spec, const AttentionShape& shape, int capacity, const int32_t* lengths,
                       const Element* qkv, const float* cos, const float* sin, const float* learned_s,
                       const float* learned_b, Element* keys, Element* values, Element* out) override {
    Trace("AttentionDecode", spec, shape, capacity, lengths, qkv, cos, sin, learned_s, learned_b, keys, values, out);
    // For all positions that the cache has room for, so that it does not grow token by token.
    AttentionShape largest = shape;
    largest.T = capacity;
    void* scratch = Scratch(AttentionDecodeWorkspaceBytes(largest));
    if (scratch == nullptr) return;
    Typed([&](auto t) {
      cuda::AttentionDecode(stream_, spec, shape, capacity, lengths, t.As(qkv), cos, sin, learned_s, learned_b,
                            t.As(keys), t.As(values), t.As(out), scratch);
    });
  }
  void ArgMax(const Element* logits, int32_t* out, int N, int V) override {
    Trace("ArgMax", logits, out, N, V);
    Typed([&](auto t) { cuda::ArgMax(stream_, t.As(logits), out, N, V, static_cast<int>(LogitStride(V))); });
  }

  void CrossEntropyForward(const Element* logits, const int32_t* targets, float* losses, int N, int V) override {
    Trace("CrossEntropyForward", logits, targets, losses, N, V);
    Typed([&](auto t) {
      cuda::CrossEntropyForward(stream_, t.As(logits), targets, losses, N, V, static_cast<int>(LogitStride(V)));
    });
  }
  void CrossEntropyForwardBackward(Element* logits, const int32_t* targets, float* losses, float scale, int N,
                                   int V) override {
    Trace("CrossEntropyForwardBackward", logits, targets, losses, scale, N, V);
    Typed([&](auto t) {
      cuda::CrossEntropyForwardBackward(stream_, t.As(logits), targets, losses, scale, N, V,
                                        static_cast<int>(LogitStride(V)));
    });
  }

  double SumOfSquares(const float* x, int64_t n) override;
  void AdamW(float* p, const float* gradient, float* m, float* v, int64_t n, const AdamWParams& params) override;

 private:
  struct Recording {
    int runs = 0;
    uint64_t trace = 0;  // of the calls
    cudaGraphExec_t graph = nullptr;
    std::vector<const void*> written;  // whose rounded twins the recorded work leaves old
  };

  // The activations' type as a value.
  template <typename Type>
  struct Of {
    using T = Type;
    T* As(Element* x) const { return reinterpret_cast<T*>(x); }
    const T* As(const Element* x) const { return reinterpret_cast<const T*>(x); }
  };
  template <typename F>
  void Typed(const F& f) {
    if (options_.precision == Precision::kBf16) {
      f(Of<bf16>());
    } else {
      f(Of<float>());
    }
  }

  const float* Weights(Of<float>, const float* w) { return w; }
  // nullptr: no memory; the failure is noted.
  const bf16* Weights(Of<bf16>, const float* w) { return weights_.Rounded(w); }

  void Product(const Element* x, const float* w, const float* b, Element* out, const Gemm::Shape& shape) {
    Typed([&](auto t) {
      const auto* weights = Weights(t, w);
      const auto* bias = b == nullptr ? nullptr : Weights(t, b);
      if (weights == nullptr || (b != nullptr && bias == nullptr)) return;
      gemm_->Forward(t.As(x), weights, bias, t.As(out), shape);
    });
  }
  void ProductBackward(const Element* dout, const Element* x, const float* w, Element* dx, float* dw,
                       const Gemm::Shape& shape) {
    Typed([&](auto t) {
      if (dx != nullptr) {
        const auto* weights = Weights(t, w);
        if (weights == nullptr) return;
        gemm_->BackwardInput(t.As(dout), weights, t.As(dx), shape);
      }
      gemm_->BackwardWeight(t.As(dout), t.As(x), dw, shape);
    });
    Written(dw);
  }

  static int64_t FloatBytes(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }
  void* Scratch(int64_t bytes);
  void Written(const void* memory) {
    if (weights_.Written(memory) && capturing_) capturing_->written.push_back(memory);
  }

  // What Repeat's work must not do.
  void Outside(const char* what) const { CHECK(!repeating_) << what << " inside the work of Repeat"; }
  // What it must do the same each time.
  template <typename... Args>
  void Trace(const char* op, const Args&... args) {
    if (!repeating_) return;
    for (const char* c = op; *c != 0; ++c) Mix(static_cast<uint64_t>(*c));
    (MixValue(args), ...);
  }
  void Mix(uint64_t value) { trace_ = (trace_ ^ value) * 0x100000001b3u; }
  template <typename T>
  void MixValue(const T& value) {
    if constexpr (std::is_same_v<T, AttentionShape>) {
      for (const int part : {value.B, value.T, value.H, value.D, value.window}) Mix(static_cast<uint64_t>(part));
    } else if constexpr (std::is_same_v<T, AttentionSpec>) {
      MixValue(value.qk_norm), MixValue(value.scale), MixValue(value.scale_constant), MixValue(value.activation);
      MixValue(value.normalisation), MixValue(value.logit_bias), MixValue(value.train_length);
      MixValue(value.sharpen_p.value_or(0)), MixValue(value.sharpen_offset), MixValue(value.offset_free_rows);
      MixValue(value.alibi), MixValue(value.scale_clamp), MixValue(value.sharpen_clamp), MixValue(value.transform);
    } else if constexpr (std::is_pointer_v<T>) {
      Mix(reinterpret_cast<uintptr_t>(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      Mix(std::hash<T>()(value));
    } else {
      Mix(static_cast<uint64_t>(value));
    }
  }
  void RunPlainly(Recording* recording, const std::function<void()>& work);
  bool Record(Recording* recording, const std::function<void()>& work);
  void DropGraphs();
  void ForgetRecordings() {
    DropGraphs();
    recordings_.clear();
  }

  struct OwnedStream {
    ~OwnedStream() { cudaStreamDestroy(stream); }
    const cudaStream_t stream;
  };

  const BackendOptions options_;
  const OwnedStream owned_stream_;  // destroyed last
  const cudaStream_t stream_;
  DeviceMemory memory_;
  WeightCopies weights_;
  Staging staging_;
  std::unique_ptr<Gemm> gemm_;
  Results* results_ = nullptr;
  void* scratch_ = nullptr;  // of the op that runs
  int64_t scratch_bytes_ = 0;

  std::map<int64_t, Recording> recordings_;
  size_t graphs_ = 0;
  bool can_record_ = true;
  bool repeating_ = false;
  uint64_t trace_ = 0;
  Recording* capturing_ = nullptr;
  absl::Status first_;  // a failure that Repeat had to take out of gpu.h's hands
};

// Beside the rounded twins of bf16, which hang on the number of weights and are planned with them; and without what
// re-centred scores add, a float32 array of the size of q.
int64_t CudaBackend::WorkspaceBytes(const AttentionShape& shape, int /*V*/, bool backward) const {
  if (!backward) return 0;
  const int N = shape.B * shape.T, C = shape.H * shape.D;
  const int64_t most = std::max({AttentionBackwardWorkspaceBytes({}, shape), EmbeddingScratchBytes(N, C),
                                 FloatBytes(LayerNormPartialFloats(N, C)), FloatBytes(BiasPartialFloats(N, 4 * C))});
  return std::max<int64_t>(0, most + kScratchStep - scratch_bytes_);
}

absl::Status CudaBackend::CheckHeadDim(int D) const {
  const bool is_bf16 = options_.precision == Precision::kBf16;
  if (is_bf16 ? SupportsHeadDim<bf16>(D) : SupportsHeadDim<float>(D)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("attention on CUDA in ", is_bf16 ? "bf16" : "fp32",
                                                 " has no kernel for heads of dimension ", D,
                                                 "; it takes multiples of ", is_bf16 ? 8 : 4, " up to 128"));
}

// Grown in the plain run that comes before a recording, so never inside one.
void* CudaBackend::Scratch(int64_t bytes) {
  if (bytes <= scratch_bytes_) return scratch_;
  CHECK(capturing_ == nullptr) << "the workspace grew in a recording";
  DropGraphs();  // they hold the old one's address
  if (scratch_ != nullptr) memory_.Free(std::exchange(scratch_, nullptr));
  scratch_bytes_ = 0;
  const auto rounded = CeilDiv(bytes, kScratchStep) * kScratchStep;
  const absl::StatusOr<void*> memory = memory_.Allocate(static_cast<size_t>(rounded));
  if (!memory.ok()) {
    Note(cudaErrorMemoryAllocation, std::string(memory.status().message()).c_str(), __FILE__, __LINE__);
    return nullptr;
  }
  scratch_ = *memory;
  scratch_bytes_ = rounded;
  return scratch_;
}

void CudaBackend::Repeat(int64_t key, const std::function<void()>& work) {
  Outside("Repeat");
  // Here, so that recorded work never finds an old one that a replay would have to make anew.
  weights_.Refresh();
  Recording& recording = recordings_[key];
  if (recording.graph != nullptr) {
    NoteLaunch(cudaGraphLaunch(recording.graph, stream_), {"(of a recorded pass)", __FILE__, __LINE__});
    for (const void* memory : recording.written) weights_.Written(memory);
    return;
  }
  if (recording.runs > 0 && can_record_ && graphs_ < kMostRecordings && Record(&recording, work)) return;
  RunPlainly(&recording, work);
}

void CudaBackend::RunPlainly(Recording* recording, const std::function<void()>& work) {
  trace_ = 0;
  repeating_ = true;
  work();
  repeating_ = false;
  CHECK(recording->runs == 0 || recording->trace == trace_) << "Repeat was given other work for the same key";
  recording->trace = trace_;
  ++recording->runs;
}

// False: nothing has run, and the caller runs it plainly.
bool CudaBackend::Record(Recording* recording, const std::function<void()>& work) {
  // What fails in the recording is told from what failed before.
  if (first_.ok()) first_ = StatusOf(TakeFailure());
  if (!first_.ok()) return false;
  if (cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
    can_record_ = false;
    LOG(WARNING) << "a training pass cannot be recorded as a CUDA graph and runs without, more slowly: "
                 << cudaGetErrorString(cudaGetLastError());
    return false;
  }
  recording->written.clear();
  capturing_ = recording;
  RunPlainly(recording, work);
  capturing_ = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  const bool recorded =
      GPU_OK(cudaStreamEndCapture(stream_, &graph)) && GPU_OK(cudaGraphInstantiate(&executable, graph, 0));
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (const Failure failure = TakeFailure(); !recorded || !failure.ok()) {
    if (executable != nullptr) cudaGraphExecDestroy(executable);
    can_record_ = false;
    LOG(WARNING) << "a training pass could not be recorded as a CUDA graph and runs without, more slowly: "
                 << failure.message;
    return false;
  }
  recording->graph = executable;
  ++graphs_;
  NoteLaunch(cudaGraphLaunch(recording->graph, stream_), {"(of a recorded pass)", __FILE__, __LINE__});
  return true;
}

void CudaBackend::DropGraphs() {
  for (auto& [key, recording] : recordings_) {
    if (recording.graph != nullptr) cudaGraphExecDestroy(std::exchange(recording.graph, nullptr));
  }
  graphs_ = 0;
}

AttentionCounts CudaBackend::TakeAttentionCounts() {
  Outside("TakeAttentionCounts");
  unsigned long long counts[2] = {};
  staging_.ToHost(counts, results_->counts, sizeof(counts));
  GPU_OK(cudaMemsetAsync(results_->counts, 0, sizeof(counts), stream_));
  return {static_cast<int64_t>(counts[0]), static_cast<int64_t>(counts[1])};
}

double CudaBackend::SumOfSquares(const float* x, int64_t n) {
  Outside("SumOfSquares");
  cuda::SumOfSquares(stream_, x, n, results_->partials, &results_->squares);
  double squares = 0;
  staging_.ToHost(&squares, &results_->squares, sizeof(squares));
  return squares;
}

void CudaBackend::AdamW(float* p, const float* gradient, float* m, float* v, int64_t n, const AdamWParams& params) {
  Trace("AdamW", p, gradient, m, v, n, params.learning_rate, params.beta1, params.beta2, params.eps,
        params.weight_decay, params.step, params.gradient_scale);
  const auto step = static_cast<double>(params.step);
  AdamWConstants constants;
  constants.scale = params.gradient_scale;
  constants.beta1 = params.beta1;
  constants.rest1 = 1.0f - params.beta1;
  constants.beta2 = params.beta2;
  constants.rest2 = 1.0f - params.beta2;
  constants.step_size =
      static_cast<float>(params.learning_rate / (1.0 - std::pow(static_cast<double>(params.beta1), step)));
  constants.inv_sqrt_correction2 =
      static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(static_cast<double>(params.beta2), step)));
  constants.eps = params.eps;
  constants.keep = static_cast<float>(1.0 - static_cast<double>(params.learning_rate) * params.weight_decay);
  cuda::AdamW(stream_, p, gradient, m, v, weights_.TwinOf(p), n, constants);
  Written(m);
  Written(v);
}

}  // namespace

absl::Status StatusOf(const Failure& failure) {
  if (failure.ok()) return absl::OkStatus();
  if (failure.code == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(failure.message);
  return absl::InternalError(failure.message);
}

absl::StatusOr<std::unique_ptr<Backend>> NewBackend(const BackendOptions& options, GemmMaker* make_gemm) {
  cudaStream_t stream = nullptr;
  if (!GPU_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))) return StatusOf(TakeFailure());
  auto backend = std::make_unique<CudaBackend>(options, stream);
  ABLATE_RETURN_IF_ERROR(backend->Init(make_gemm));
  return backend;
}

}  // namespace ablate::cuda
