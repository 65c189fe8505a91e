#include "bench/profiled_backend.h"

#include <time.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/forwarding_backend.h"

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

class ProfiledBackend : public ForwardingBackend {
 public:
  ProfiledBackend(std::unique_ptr<Backend> inner, std::map<std::string, double>* seconds)
      : ForwardingBackend(std::move(inner)), seconds_(seconds) {}

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    Timer timer(seconds_, "memory");
    return inner()->Allocate(bytes);
  }
  void CopyToDevice(void* to, const void* from, size_t bytes) override {
    Timer timer(seconds_, "memory");
    inner()->CopyToDevice(to, from, bytes);
  }
  void CopyToHost(void* to, const void* from, size_t bytes) override {
    Timer timer(seconds_, "memory");
    inner()->CopyToHost(to, from, bytes);
  }
  void Zero(void* memory, size_t bytes) override {
    Timer timer(seconds_, "memory");
    inner()->Zero(memory, bytes);
  }

  void EmbeddingForward(const int32_t* tokens, const float* table, Element* out, int N, int C) override {
    Timer timer(seconds_, "embedding");
    inner()->EmbeddingForward(tokens, table, out, N, C);
  }
  void EmbeddingBackward(const int32_t* tokens, const Element* dout, float* dtable, int N, int C, int V) override {
    Timer timer(seconds_, "embedding");
    inner()->EmbeddingBackward(tokens, dout, dtable, N, C, V);
  }
  void LayerNormForward(const Element* x, const float* w, const float* b, Element* out, float* mean, float* rstd, int N,
                        int C) override {
    Timer timer(seconds_, "layer norm forward");
    inner()->LayerNormForward(x, w, b, out, mean, rstd, N, C);
  }
  void LayerNormBackward(const Element* dout, const Element* x, const float* w, const float* mean, const float* rstd,
                         Element* dx, float* dw, float* db, int N, int C) override {
    Timer timer(seconds_, "layer norm backward");
    inner()->LayerNormBackward(dout, x, w, mean, rstd, dx, dw, db, N, C);
  }
  void LinearForward(const Element* x, const float* w, const float* b, Element* out, int N, int I, int O) override {
    Timer timer(seconds_, absl::StrCat("linear forward ", I, "->", O));
    inner()->LinearForward(x, w, b, out, N, I, O);
  }
  void LinearBackward(const Element* dout, const Element* x, const float* w, Element* dx, float* dw, float* db, int N,
                      int I, int O) override {
    Timer timer(seconds_, absl::StrCat("linear backward ", I, "->", O));
    inner()->LinearBackward(dout, x, w, dx, dw, db, N, I, O);
  }
  void LogitsForward(const Element* x, const float* w, Element* logits, int N, int I, int V) override {
    Timer timer(seconds_, absl::StrCat("linear forward ", I, "->", V));
    inner()->LogitsForward(x, w, logits, N, I, V);
  }
  void LogitsBackward(const Element* dlogits, const Element* x, const float* w, Element* dx, float* dw, int N, int I,
                      int V) override {
    Timer timer(seconds_, absl::StrCat("linear backward ", I, "->", V));
    inner()->LogitsBackward(dlogits, x, w, dx, dw, N, I, V);
  }
  void GeluForward(const Element* x, Element* out, int64_t n) override {
    Timer timer(seconds_, "gelu forward");
    inner()->GeluForward(x, out, n);
  }
  void GeluBackward(const Element* dout, const Element* x, Element* dx, int64_t n) override {
    Timer timer(seconds_, "gelu backward");
    inner()->GeluBackward(dout, x, dx, n);
  }
  void Add(const Element* a, const Element* b, Element* out, int64_t n) override {
    Timer timer(seconds_, "add");
    inner()->Add(a, b, out, n);
  }
  void QkvForward(const Element* qkv, const float* cos, const float* sin, QkNorm qk_norm, Element* q, Element* k,
                  Element* v, float* q_norm, float* k_norm, const AttentionShape& shape) override {
    Timer timer(seconds_, "qkv forward");
    inner()->QkvForward(qkv, cos, sin, qk_norm, q, k, v, q_norm, k_norm, shape);
  }
  void QkvBackward(const Element* dq, const Element* dk, const Element* dv, const Element* q, const Element* k,
                   const float* cos, const float* sin, QkNorm qk_norm, const float* q_norm, const float* k_norm,
                   Element* dqkv, const AttentionShape& shape) override {
    Timer timer(seconds_, "qkv backward");
    inner()->QkvBackward(dq, dk, dv, q, k, cos, sin, qk_norm, q_norm, k_norm, dqkv, shape);
  }
  void AttentionForward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                        const Element* v, const float* learned_s, const float* learned_b, Element* out,
                        float* row_stats) override {
    Timer timer(seconds_, "attention forward");
    inner()->AttentionForward(spec, shape, q, k, v, learned_s, learned_b, out, row_stats);
  }
  void AttentionBackward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                         const Element* v, const float* learned_s, const float* learned_b, const Element* out,
                         const Element* dout, const float* row_stats, Element* dq, Element* dk, Element* dv,
                         float* dlearned_s, float* dlearned_b) override {
    Timer timer(seconds_, "attention backward");
    inner()->AttentionBackward(spec, shape, q, k, v, learned_s, learned_b, out, dout, row_stats, dq, dk, dv, dlearned_s,
                               dlearned_b);
  }
  void CrossEntropyForward(const Element* logits, const int32_t* targets, float* losses, int N, int V) override {
    Timer timer(seconds_, "cross entropy");
    inner()->CrossEntropyForward(logits, targets, losses, N, V);
  }
  void CrossEntropyForwardBackward(Element* logits, const int32_t* targets, float* losses, float scale, int N,
                                   int V) override {
    Timer timer(seconds_, "cross entropy");
    inner()->CrossEntropyForwardBackward(logits, targets, losses, scale, N, V);
  }
  double SumOfSquares(const float* x, int64_t n) override {
    Timer timer(seconds_, "sum of squares");
    return inner()->SumOfSquares(x, n);
  }
  void AdamW(float* p, const float* gradient, float* m, float* v, int64_t n, const AdamWParams& params) override {
    Timer timer(seconds_, "adamw");
    inner()->AdamW(p, gradient, m, v, n, params);
  }

 private:
  std::map<std::string, double>* const seconds_;
};

}  // namespace

std::unique_ptr<Backend> NewProfiledBackend(std::unique_ptr<Backend> inner, std::map<std::string, double>* seconds) {
  return std::unique_ptr<Backend>(new ProfiledBackend(std::move(inner), seconds));
}

}  // namespace ablate
