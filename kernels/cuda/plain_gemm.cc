// Matrix products by a kernel of our own: what cublas_gemm.cc falls back to, and what the emulated backend multiplies
// with. Must not know cuBLAS. Thread rule: as gemm.h.
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ops/gemm_kernel.h"

namespace ablate::cuda {
namespace {

class PlainGemmProducts : public Gemm {
 public:
  explicit PlainGemmProducts(cudaStream_t stream) : stream_(stream) {}

  std::string name() const override { return "plain"; }

  void Forward(const float* x, const float* w, const float* bias, float* out, const Shape& s) override {
    PlainGemm(stream_, x, {s.I, 1}, w, {1, s.I}, bias, out, s.stride, false, s.N, s.O, s.I);
  }
  void Forward(const bf16* x, const bf16* w, const bf16* bias, bf16* out, const Shape& s) override {
    PlainGemm(stream_, x, {s.I, 1}, w, {1, s.I}, bias, out, s.stride, false, s.N, s.O, s.I);
  }
  void BackwardInput(const float* dout, const float* w, float* dx, const Shape& s) override {
    PlainGemm<float, float>(stream_, dout, {s.stride, 1}, w, {s.I, 1}, nullptr, dx, s.I, false, s.N, s.I, s.O);
  }
  void BackwardInput(const bf16* dout, const bf16* w, bf16* dx, const Shape& s) override {
    PlainGemm<bf16, bf16>(stream_, dout, {s.stride, 1}, w, {s.I, 1}, nullptr, dx, s.I, false, s.N, s.I, s.O);
  }
  void BackwardWeight(const float* dout, const float* x, float* dw, const Shape& s) override {
    PlainGemm<float, float>(stream_, dout, {1, s.stride}, x, {s.I, 1}, nullptr, dw, s.I, true, s.O, s.I, s.N);
  }
  void BackwardWeight(const bf16* dout, const bf16* x, float* dw, const Shape& s) override {
    PlainGemm<bf16, float>(stream_, dout, {1, s.stride}, x, {s.I, 1}, nullptr, dw, s.I, true, s.O, s.I, s.N);
  }

 private:
  const cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<Gemm> NewPlainGemm(cudaStream_t stream) { return std::make_unique<PlainGemmProducts>(stream); }

}  // namespace ablate::cuda
