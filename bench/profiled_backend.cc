#include "bench/profiled_backend.h"

#include <time.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace ablate {
namespace {

class Timer {
 public:
  Timer(std::map<std::string, double>* seconds, std::string op)
      : seconds_(seconds), op_(std::move(op)), start_(Now()) {}
  ~Timer() { (*seconds_)[op_] += Now() - start_; }

 private:
  static double Now() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  std::map<std::string, double>* const seconds_;
  const std::string op_;
  const double start_;
};

class ProfiledBackend : public Backend {
 public:
  ProfiledBackend(std::unique_ptr<Backend> inner, std::map<std::string, double>* seconds)
      : inner_(std::move(inner)), seconds_(seconds) {}

  std::string device_class() const override { return inner_->device_class(); }
  std::string device_kind() const override { return inner_->device_kind(); }
  int64_t preferred_rows() const override { return inner_->preferred_rows(); }
  absl::StatusOr<void*> Allocate(size_t bytes) override {
    Timer timer(seconds_, "memory");
    return inner_->Allocate(bytes);
  }
  void Free(void* memory) override { inner_->Free(memory); }
  void CopyToDevice(void* to, const void* from, size_t bytes) override {
    Timer timer(seconds_, "memory");
    inner_->CopyToDevice(to, from, bytes);
  }
  void CopyToHost(void* to, const void* from, size_t bytes) override {
    Timer timer(seconds_, "memory");
    inner_->CopyToHost(to, from, bytes);
  }
  void Zero(void* memory, size_t bytes) override {
    Timer timer(seconds_, "memory");
    inner_->Zero(memory, bytes);
  }
  absl::Status Synchronize() override { return inner_->Synchronize(); }
  Precision precision() const override { return inner_->precision(); }
  int64_t FreeBytes() override { return inner_->FreeBytes(); }
  AttentionCounts TakeAttentionCounts() override { return inner_->TakeAttentionCounts(); }

  void EmbeddingForward(const int32_t* tokens, const float* table, Element* out, int N, int C) override {
    Timer timer(seconds_, "embedding");
    inner_->EmbeddingForward(tokens, table, out, N, C);
  }
  void EmbeddingBackward(const int32_t* tokens, const Element* dout, float* dtable, int N, int C, int V) override {
    Timer timer(seconds_, "embedding");
    inner_->EmbeddingBackward(tokens, dout, dtable, N, C, V);
  }
  void LayerNormForward(const Element* x, const float* w, const float* b, Element* out, float* mean, float* rstd, int N,
                        int C) override {
    Timer timer(seconds_, "layer norm forward");
    inner_->LayerNormForward(x, w, b, out, mean, rstd, N, C);
  }
  void LayerNormBackward(const Element* dout, const Element* x, const float* w, const float* mean, const float* rstd,
                         Element* dx, float* dw, float* db, int N, int C) override {
    Timer timer(seconds_, "layer norm backward");
    inner_->LayerNormBackward(dout, x, w, mean, rstd, dx, dw, db, N, C);
  }
  void LinearForward(const Element* x, const float* w, const float* b, Element* out, int N, int I, int O) override {
    Timer timer(seconds_, absl::StrCat("linear forward ", I, "->", O));
    inner_->LinearForward(x, w, b, out, N, I, O);
  }
  void LinearBackward(const Element* dout, const Element* x, const float* w, Element* dx, float* dw, float* db, int N,
                      int I, int O) override {
    Timer timer(seconds_, absl::StrCat("linear backward ", I, "->", O));
    inner_->LinearBackward(dout, x, w, dx, dw, db, N, I, O);
  }
  int64_t LogitStride(int V) const override { return inner_->LogitStride(V); }
  void LogitsForward(const Element* x, const float* w, Element* logits, int N, int I, int V) override {
    Timer timer(seconds_, absl::StrCat("linear forward ", I, "->", V));
    inner_->LogitsForward(x, w, logits, N, I, V);
  }
  void LogitsBackward(const Element* dlogits, const Element* x, const float* w, Element* dx, float* dw, int N, int I,
                      int V) override {
    Timer timer(seconds_, absl::StrCat("linear backward ", I, "->", V));
    inner_->LogitsBackward(dlogits, x, w, dx, dw, N, I, V);
  }
  void GeluForward(const Element* x, Element* out, int64_t n) override {
    Timer timer(seconds_, "gelu forward");
    inner_->GeluForward(x, out, n);
  }
  void GeluBackward(const Element* dout, const Element* x, Element* dx, int64_t n) override {
    Timer timer(seconds_, "gelu backward");
    inner_->GeluBackward(dout, x, dx, n);
  }
  void Add(const Element* a, const Element* b, Element* out, int64_t n) override {
    Timer timer(seconds_, "add");
    inner_->Add(a, b, out, n);
  }
  void QkvForward(const Element* qkv, const float* cos, const float* sin, QkNorm qk_norm, Element* q, Element* k,
                  Element* v, float* q_norm, float* k_norm, const AttentionShape& shape) override {
    Timer timer(seconds_, "qkv forward");
    inner_->QkvForward(qkv, cos, sin, qk_norm, q, k, v, q_norm, k_norm, shape);
  }
  void QkvBackward(const Element* dq, const Element* dk, const Element* dv, const Element* q, const Element* k,
                   const float* cos, const float* sin, QkNorm qk_norm, const float* q_norm, const float* k_norm,
                   Element* dqkv, const AttentionShape& shape) override {
    Timer timer(seconds_, "qkv backward");
    inner_->QkvBackward(dq, dk, dv, q, k, cos, sin, qk_norm, q_norm, k_norm, dqkv, shape);
  }
  void AttentionForward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                        const Element* v, const float* learned_s, const float* learned_b, Element* out,
                        float* row_stats) override {
    Timer timer(seconds_, "attention forward");
    inner_->AttentionForward(spec, shape, q, k, v, learned_s, learned_b, out, row_stats);
  }
  void AttentionBackward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                         const Element* v, const float* learned_s, const float* learned_b, const Element* out,
                         const Element* dout, const float* row_stats, Element* dq, Element* dk, Element* dv,
                         float* dlearned_s, float* dlearned_b) override {
    Timer timer(seconds_, "attention backward");
    inner_->AttentionBackward(spec, shape, q, k, v, learned_s, learned_b, out, dout, row_stats, dq, dk, dv, dlearned_s,
                              dlearned_b);
  }
  void CrossEntropyForward(const Element* logits, const int32_t* targets, float* losses, int N, int V) override {
    Timer timer(seconds_, "cross entropy");
    inner_->CrossEntropyForward(logits, targets, losses, N, V);
  }
  void CrossEntropyForwardBackward(Element* logits, const int32_t* targets, float* losses, float scale, int N,
                                   int V) override {
    Timer timer(seconds_, "cross entropy");
    inner_->CrossEntropyForwardBackward(logits, targets, losses, scale, N, V);
  }
  double SumOfSquares(const float* x, int64_t n) override {
    Timer timer(seconds_, "sum of squares");
    return inner_->SumOfSquares(x, n);
  }
  void AdamW(float* p, const float* gradient, float* m, float* v, int64_t n, const AdamWParams& params) override {
    Timer timer(seconds_, "adamw");
    inner_->AdamW(p, gradient, m, v, n, params);
  }

 private:
  const std::unique_ptr<Backend> inner_;
  std::map<std::string, double>* const seconds_;
};

}  // namespace

std::unique_ptr<Backend> NewProfiledBackend(std::unique_ptr<Backend> inner, std::map<std::string, double>* seconds) {
  return std::unique_ptr<Backend>(new ProfiledBackend(std::move(inner), seconds));
}

}  // namespace ablate
