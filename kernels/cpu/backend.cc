// The CPU backend: memory and the dispatch of ops to kernels/cpu/ops and kernels/cpu/attention. Must not know models.
// Threads are ours (kernels/cpu/parallel.h); OpenBLAS runs serially inside an item.
#include "kernels/backend.h"

#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_decode.h"
#include "kernels/cpu/ops/elementwise.h"
#include "kernels/cpu/ops/layer_norm.h"
#include "kernels/cpu/ops/linear.h"
#include "kernels/cpu/ops/qkv.h"
#include "kernels/cpu/parallel.h"

namespace ablate {
namespace {

// From this size on blocks are aligned to huge pages and ask for them: the kernel's default is madvise.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugeFrom = 2 * kHugePage;
constexpr size_t kAddressSpace = size_t{1} << 47;

// Activations of this backend are float32.
float* Floats(Element* array) { return reinterpret_cast<float*>(array); }
const float* Floats(const Element* array) { return reinterpret_cast<const float*>(array); }

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(int threads) : threads_(threads) {
    // OpenBLAS sets its buffers up in its first product, without a lock: not from two threads at once.
    const float one = 1;
    float product = 0;
    CpuLinearForward(1, &one, &one, nullptr, &product, 1, 1, 1);
  }

  std::string device_class() const override { return "cpu"; }
  std::string device_kind() const override { return absl::StrCat("cpu/", openblas_get_corename()); }

  // Measured on a model of width 128: 4 % faster than 2,048 rows, whose activations leave the L3 cache; 1,024 still
  // give every product two tiles of rows.
  int64_t preferred_rows() const override { return 1024; }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    const size_t alignment = bytes >= kHugeFrom ? kHugePage : 64;
    const std::string error = absl::StrCat("no memory for ", bytes, " bytes; use a smaller batch or model");
    if (bytes > kAddressSpace) return absl::ResourceExhaustedError(error);
    const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) return absl::ResourceExhaustedError(error);
    if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
    std::memset(memory, 0, rounded);
    return memory;
  }
  void Free(void* memory) override { std::free(memory); }
  void CopyToDevice(void* to, const void* from_host, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from_host, bytes);
  }
  void CopyToHost(void* to_host, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to_host, from, bytes);
  }
  void Zero(void* memory, size_t bytes) override {
    if (bytes > 0) std::memset(memory, 0, bytes);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }

  void EmbeddingForward(const int32_t* tokens, const float* table, Element* out, int N, int C) override {
    CpuEmbeddingForward(threads_, tokens, table, Floats(out), N, C);
  }
  void EmbeddingBackward(const int32_t* tokens, const Element* dout, float* dtable, int N, int C, int) override {
    CpuEmbeddingBackward(threads_, tokens, Floats(dout), dtable, N, C);
  }

  void LayerNormForward(const Element* x, const float* w, const float* b, Element* out, float* mean, float* rstd, int N,
                        int C) override {
    CpuLayerNormForward(threads_, Floats(x), w, b, Floats(out), mean, rstd, N, C);
  }
  void LayerNormBackward(const Element* dout, const Element* x, const float* w, const float* mean, const float* rstd,
                         Element* dx, float* dw, float* db, int N, int C) override {
    const size_t need = static_cast<size_t>(LayerNormPartialFloats(N, C));
    if (scratch_.size() < need) scratch_.resize(need);
    CpuLayerNormBackward(threads_, Floats(dout), Floats(x), w, mean, rstd, Floats(dx), dw, db, scratch_.data(), N, C);
  }

  void LinearForward(const Element* x, const float* w, const float* b, Element* out, int N, int I, int O) override {
    CpuLinearForward(threads_, Floats(x), w, b, Floats(out), N, I, O);
  }
  void LinearBackward(const Element* dout, const Element* x, const float* w, Element* dx, float* dw, float* db, int N,
                      int I, int O) override {
    CpuLinearBackward(threads_, Floats(dout), Floats(x), w, Floats(dx), dw, db, N, I, O);
  }

  void GeluForward(const Element* x, Element* out, int64_t n) override {
    CpuGeluForward(threads_, Floats(x), Floats(out), n);
  }
  void GeluBackward(const Element* dout, const Element* x, Element* dx, int64_t n) override {
    CpuGeluBackward(threads_, Floats(dout), Floats(x), Floats(dx), n);
  }
  void Add(const Element* a, const Element* b, Element* out, int64_t n) override {
    CpuAdd(threads_, Floats(a), Floats(b), Floats(out), n);
  }

  void QkvForward(const Element* qkv, const float* cos, const float* sin, QkNorm qk_norm, Element* q, Element* k,
                  Element* v, float* q_norm, float* k_norm, const AttentionShape& shape) override {
    CHECK(cos == nullptr || shape.D % 2 == 0);
    CpuQkvForward(threads_, Floats(qkv), cos, sin, qk_norm, Floats(q), Floats(k), Floats(v), q_norm, k_norm, shape);
  }
  void QkvBackward(const Element* dq, const Element* dk, const Element* dv, const Element* q, const Element* k,
                   const float* cos, const float* sin, QkNorm qk_norm, const float* q_norm, const float* k_norm,
                   Element* dqkv, const AttentionShape& shape) override {
    CHECK(cos == nullptr || shape.D % 2 == 0);
    CpuQkvBackward(threads_, Floats(dq), Floats(dk), Floats(dv), Floats(q), Floats(k), cos, sin, qk_norm, q_norm,
                   k_norm, Floats(dqkv), shape);
  }

  void AttentionForward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                        const Element* v, const float* learned_s, const float* learned_b, Element* out,
                        float* row_stats) override {
    CpuAttentionForward(threads_, spec, shape, Floats(q), Floats(k), Floats(v), learned_s, learned_b, Floats(out),
                        row_stats, &counts_);
  }
  void AttentionBackward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                         const Element* v, const float* learned_s, const float* learned_b, const Element* out,
                         const Element* dout, const float* row_stats, Element* dq, Element* dk, Element* dv,
                         float* dlearned_s, float* dlearned_b) override {
    CpuAttentionBackward(threads_, spec, shape, Floats(q), Floats(k), Floats(v), learned_s, learned_b, Floats(out),
                         Floats(dout), row_stats, Floats(dq), Floats(dk), Floats(dv), dlearned_s, dlearned_b);
  }

  AttentionCounts TakeAttentionCounts() override { return std::exchange(counts_, {}); }

  void AttentionStatistics(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                           const float* learned_s, const float* learned_b, float* statistics) override {
    CpuAttentionStatistics(threads_, spec, shape, Floats(q), Floats(k), learned_s, learned_b, statistics);
  }

  void CacheKeyValue(const Element* qkv, Element* keys, Element* values, const AttentionShape& shape,
                     int capacity) override {
    CpuCacheKeyValue(threads_, Floats(qkv), Floats(keys), Floats(values), shape, capacity);
  }
  void AttentionDecode(const AttentionSpec& spec, const AttentionShape& shape, int capacity, const int32_t* lengths,
                       const Element* qkv, const float* cos, const float* sin, const float* learned_s,
                       const float* learned_b, Element* keys, Element* values, Element* out) override {
    CpuAttentionDecode(threads_, spec, shape, capacity, lengths, Floats(qkv), cos, sin, learned_s, learned_b,
                       Floats(keys), Floats(values), Floats(out));
  }
  void ArgMax(const Element* logits, int32_t* out, int N, int V) override {
    CpuArgMax(threads_, Floats(logits), out, N, V);
  }

  void CrossEntropyForward(const Element* logits, const int32_t* targets, float* losses, int N, int V) override {
    CpuCrossEntropy(threads_, Floats(logits), targets, losses, nullptr, 0, N, V);
  }
  void CrossEntropyForwardBackward(Element* logits, const int32_t* targets, float* losses, float scale, int N,
                                   int V) override {
    CpuCrossEntropy(threads_, Floats(logits), targets, losses, Floats(logits), scale, N, V);
  }

  double SumOfSquares(const float* x, int64_t n) override { return CpuSumOfSquares(threads_, x, n); }
  void AdamW(float* p, const float* gradient, float* m, float* v, int64_t n, const AdamWParams& params) override {
    CpuAdamW(threads_, p, gradient, m, v, n, params);
  }

 private:
  const int threads_;
  AttentionCounts counts_;      // since the last TakeAttentionCounts
  std::vector<float> scratch_;  // layer norm's partial sums
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(int threads) {
  CHECK_GE(threads, 1);
  if (!EnsureThreads(threads)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", threads, " threads for the cpu backend; use fewer"));
  }
  return std::unique_ptr<Backend>(new CpuBackend(threads));
}

}  // namespace ablate
