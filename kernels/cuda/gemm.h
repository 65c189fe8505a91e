// The matrix products of a linear layer, row-major, as the CUDA backend needs them: by cuBLASLt on a GPU
// (cublas_gemm.cc), by a plain kernel on the emulator. Must not know where weights or workspaces live in the backend.
//
// float32: full float32 products; TF32, which keeps 10 bits of the operands, is never used. bf16: operands and outputs
// in bf16, sums in float32, the gradient of the weights in float32.
// The same shapes and alignments give the same bits on the same kind of device and version of cuBLAS: the algorithm
// is what cuBLAS's heuristics put first, not what is fastest today; split sums are added in a separate step, in order;
// the workspace is the product's own, so CUBLAS_WORKSPACE_CONFIG says nothing here.
// Failures are noted (gpu.h). Thread rule: as gpu.h; work is queued on the stream that the product was made for.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/gpu.h"

namespace ablate::cuda {

class Gemm {
 public:
  virtual ~Gemm() = default;

  // "cublas-13.1.0"
  virtual std::string name() const = 0;
  // Device memory that it has taken.
  virtual int64_t workspace_bytes() const { return 0; }

  struct Shape {
    int N, I, O;
    int stride;  // elements from one row of out or dout to the next, >= O
  };

  // out[N,O] = x[N,I] w[O,I]^T + bias[O] (null: none); the bias is added before out is rounded.
  virtual void Forward(const float* x, const float* w, const float* bias, float* out, const Shape& shape) = 0;
  virtual void Forward(const bf16* x, const bf16* w, const bf16* bias, bf16* out, const Shape& shape) = 0;
  // dx[N,I] = dout[N,O] w[O,I]
  virtual void BackwardInput(const float* dout, const float* w, float* dx, const Shape& shape) = 0;
  virtual void BackwardInput(const bf16* dout, const bf16* w, bf16* dx, const Shape& shape) = 0;
  // dw[O,I] += dout[N,O]^T x[N,I]
  virtual void BackwardWeight(const float* dout, const float* x, float* dw, const Shape& shape) = 0;
  virtual void BackwardWeight(const bf16* dout, const bf16* x, float* dw, const Shape& shape) = 0;
};

// kernels/cuda/ops/gemm_kernel.h: any shape, at no speed.
std::unique_ptr<Gemm> NewPlainGemm(cudaStream_t stream);

// nullptr where cuBLAS cannot be set up or its workspace does not fit; the failure is noted.
std::unique_ptr<Gemm> NewCublasGemm(cudaStream_t stream);

}  // namespace ablate::cuda
