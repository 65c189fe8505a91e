// A backend that hands everything to another one, for tests and measurements. Override what should be otherwise.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace ablate {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string device_class() const override { return inner_->device_class(); }
  std::string device_kind() const override { return inner_->device_kind(); }
  int64_t preferred_rows() const override { return inner_->preferred_rows(); }
  Precision precision() const override { return inner_->precision(); }
  absl::StatusOr<void*> Allocate(size_t bytes) override { return inner_->Allocate(bytes); }
  void Free(void* memory) override { return inner_->Free(memory); }
  void CopyToDevice(void* to, const void* from_host, size_t bytes) override {
    return inner_->CopyToDevice(to, from_host, bytes);
  }
  void CopyToHost(void* to_host, const void* from, size_t bytes) override {
    return inner_->CopyToHost(to_host, from, bytes);
  }
  void Zero(void* memory, size_t bytes) override { return inner_->Zero(memory, bytes); }
  absl::Status Synchronize() override { return inner_->Synchronize(); }
  int64_t FreeBytes() override { return inner_->FreeBytes(); }
  int64_t WorkspaceBytes(const AttentionShape& shape, int V, bool backward) const override {
    return inner_->WorkspaceBytes(shape, V, backward);
  }
  absl::Status CheckHeadDim(int D) const override { return inner_->CheckHeadDim(D); }
  void Repeat(int64_t key, const std::function<void()>& work) override { return inner_->Repeat(key, work); }
  void EmbeddingForward(const int32_t* tokens, const float* table, Element* out, int N, int C) override {
    return inner_->EmbeddingForward(tokens, table, out, N, C);
  }
  void EmbeddingBackward(const int32_t* tokens, const Element* dout, float* dtable, int N, int C, int V) override {
    return inner_->EmbeddingBackward(tokens, dout, dtable, N, C, V);
  }
  void LayerNormForward(const Element* x, const float* w, const float* b, Element* out, float* mean, float* rstd, int N,
                        int C) override {
    return inner_->LayerNormForward(x, w, b, out, mean, rstd, N, C);
  }
  void LayerNormBackward(const Element* dout, const Element* x, const float* w, const float* mean, const float* rstd,
                         Element* dx, float* dw, float* db, int N, int C) override {
    return inner_->LayerNormBackward(dout, x, w, mean, rstd, dx, dw, db, N, C);
  }
  void LinearForward(const Element* x, const float* w, const float* b, Element* out, int N, int I, int O) override {
    return inner_->LinearForward(x, w, b, out, N, I, O);
  }
  void LinearBackward(const Element* dout, const Element* x, const float* w, Element* dx, float* dw, float* db, int N,
                      int I, int O) override {
    return inner_->LinearBackward(dout, x, w, dx, dw, db, N, I, O);
  }
  int64_t LogitStride(int V) const override { return inner_->LogitStride(V); }
  void LogitsForward(const Element* x, const float* w, Element* logits, int N, int I, int V) override {
    return inner_->LogitsForward(x, w, logits, N, I, V);
  }
  void LogitsBackward(const Element* dlogits, const Element* x, const float* w, Element* dx, float* dw, int N, int I,
                      int V) override {
    return inner_->LogitsBackward(dlogits, x, w, dx, dw, N, I, V);
  }
  void GeluForward(const Element* x, Element* out, int64_t n) override { return inner_->GeluForward(x, out, n); }
  void GeluBackward(const Element* dout, const Element* x, Element* dx, int64_t n) override {
    return inner_->GeluBackward(dout, x, dx, n);
  }
  void Add(const Element* a, const Element* b, Element* out, int64_t n) override { return inner_->Add(a, b, out, n); }
  void QkvForward(const Element* qkv, const float* cos, const float* sin, QkNorm qk_norm, Element* q, Element* k,
                  Element* v, float* q_norm, float* k_norm, const AttentionShape& shape) override {
    return inner_->QkvForward(qkv, cos, sin, qk_norm, q, k, v, q_norm, k_norm, shape);
  }
  void QkvBackward(const Element* dq, const Element* dk, const Element* dv, const Element* q, const Element* k,
                   const float* cos, const float* sin, QkNorm qk_norm, const float* q_norm, const float* k_norm,
                   Element* dqkv, const AttentionShape& shape) override {
    return inner_->QkvBackward(dq, dk, dv, q, k, cos, sin, qk_norm, q_norm, k_norm, dqkv, shape);
  }
  void AttentionForward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                        const Element* v, const float* learned_s, const float* learned_b, Element* out,
                        float* row_stats) override {
    return inner_->AttentionForward(spec, shape, q, k, v, learned_s, learned_b, out, row_stats);
  }
  AttentionCounts TakeAttentionCounts() override { return inner_->TakeAttentionCounts(); }
  void AttentionBackward(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                         const Element* v, const float* learned_s, const float* learned_b, const Element* out,
                         const Element* dout, const float* row_stats, Element* dq, Element* dk, Element* dv,
                         float* dlearned_s, float* dlearned_b) override {
    return inner_->AttentionBackward(spec, shape, q, k, v, learned_s, learned_b, out, dout, row_stats, dq, dk, dv,
                                     dlearned_s, dlearned_b);
  }
  void AttentionStatistics(const AttentionSpec& spec, const AttentionShape& shape, const Element* q, const Element* k,
                           const float* learned_s, const float* learned_b, float* statistics) override {
    return inner_->AttentionStatistics(spec, shape, q, k, learned_s, learned_b, statistics);
  }
  void CacheKeyValue(const Element* qkv, Element* keys, Element* values, const AttentionShape& shape,
                     int capacity) override {
    return inner_->CacheKeyValue(qkv, keys, values, shape, capacity);
  }
  void AttentionDecode(const AttentionSpec& spec, const AttentionShape& shape, int capacity, const int32_t* lengths,
                       const Element* qkv, const float* cos, const float* sin, const float* learned_s,
                       const float* learned_b, Element* keys, Element* values, Element* out) override {
    return inner_->AttentionDecode(spec, shape, capacity, lengths, qkv, cos, sin, learned_s, learned_b, keys, values,
                                   out);
  }
  void ArgMax(const Element* logits, int32_t* out, int N, int V) override {
    return inner_->ArgMax(logits, out, N, V);
  }
  void CrossEntropyForward(const Element* logits, const int32_t* targets, float* losses, int N, int V) override {
    return inner_->CrossEntropyForward(logits, targets, losses, N, V);
  }
  void CrossEntropyForwardBackward(Element* logits, const int32_t* targets, float* losses, float scale, int N,
                                   int V) override {
    return inner_->CrossEntropyForwardBackward(logits, targets, losses, scale, N, V);
  }
  double SumOfSquares(const float* x, int64_t n) override { return inner_->SumOfSquares(x, n); }
  void AdamW(float* p, const float* gradient, float* m, float* v, int64_t n, const AdamWParams& params) override {
    return inner_->AdamW(p, gradient, m, v, n, params);
  }

 protected:
  Backend* inner() { return inner_.get(); }

 private:
  const std::unique_ptr<Backend> inner_;
};

}  // namespace ablate
