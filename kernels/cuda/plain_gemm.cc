#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ops/gemm_kernel.h"

namespace ablate::cuda {
namespace {

class PlainGemmProducts : public Gemm {
 public:
  explicit PlainGemmProducts(cudaStream_t stream) : stream_(stream) {}

  std::string name() const override { return "plain"; }

  void Forward(const float* x, const float* w, const float* bias, float* out, int N, int I, int O) override {
    PlainGemm(stream_, x, {I, 1}, w, {1, I}, bias, out, false, N, O, I);
  }
  void Forward(const bf16* x, const bf16* w, const bf16* bias, bf16* out, int N, int I, int O) override {
    PlainGemm(stream_, x, {I, 1}, w, {1, I}, bias, out, false, N, O, I);
  }
  void BackwardInput(const float* dout, const float* w, float* dx, int N, int I, int O) override {
    PlainGemm<float, float>(stream_, dout, {O, 1}, w, {I, 1}, nullptr, dx, false, N, I, O);
  }
  void BackwardInput(const bf16* dout, const bf16* w, bf16* dx, int N, int I, int O) override {
    PlainGemm<bf16, bf16>(stream_, dout, {O, 1}, w, {I, 1}, nullptr, dx, false, N, I, O);
  }
  void BackwardWeight(const float* dout, const float* x, float* dw, int N, int I, int O) override {
    PlainGemm<float, float>(stream_, dout, {1, O}, x, {I, 1}, nullptr, dw, true, O, I, N);
  }
  void BackwardWeight(const bf16* dout, const bf16* x, float* dw, int N, int I, int O) override {
    PlainGemm<bf16, float>(stream_, dout, {1, O}, x, {I, 1}, nullptr, dw, true, O, I, N);
  }

 private:
  const cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<Gemm> NewPlainGemm(cudaStream_t stream) { return std::make_unique<PlainGemmProducts>(stream); }

}  // namespace ablate::cuda
