// Products by cuBLASLt, which is column-major: a row-major [rows, columns] array is a column-major [columns, rows] one,
// so every product here is the transposed one, d = a b with d[m,n]:
//   forward:  out^T[O,N] = w x^T          a = w (stored [I,O], transposed), b = x (stored [I,N])
//   dx:       dx^T[I,N]  = w^T dout^T     a = w (stored [I,O]),             b = dout (stored [O,N])
//   dw:       dw^T[I,O] += x^T dout       a = x (stored [I,N]),             b = dout (stored [O,N], transposed)
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <string>

#include "base/log.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ops/columns.h"

namespace ablate::cuda {
namespace {

// What cuBLAS itself takes on Hopper.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

template <typename T>
constexpr cudaDataType_t kType = CUDA_R_32F;
template <>
constexpr cudaDataType_t kType<bf16> = CUDA_R_16BF;

// Notes a failure of cuBLAS; true if there was none.
bool BlasOk(cublasStatus_t status, const std::string& what, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  const cudaError_t code = status == CUBLAS_STATUS_ALLOC_FAILED ? cudaErrorMemoryAllocation : cudaErrorUnknown;
  return Note(code, (what + ": " + cublasLtGetStatusName(status)).c_str(), file, line);
}
#define BLAS_OK(call) BlasOk((call), #call, __FILE__, __LINE__)

// Bytes that the address is a multiple of, 256 at most: what algorithms ask for.
// No more than Allocate promises: the algorithm must not hang on where memory happened to lie.
uint32_t AlignmentOf(const void* pointer) {
  constexpr uint32_t kMost = 64;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return address == 0 ? kMost : static_cast<uint32_t>(std::min<uintptr_t>(address & ~(address - 1), kMost));
}

// One product: stored shapes, and the algorithm chosen for it.
struct Plan {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  bool found = false;

  ~Plan() {
    if (description != nullptr) cublasLtMatmulDescDestroy(description);
    for (cublasLtMatrixLayout_t layout : {a, b, d}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }
};

class CublasGemm : public Gemm {
 public:
  explicit CublasGemm(cudaStream_t stream) : stream_(stream), plain_(NewPlainGemm(stream)) {}
  ~CublasGemm() override {
    plans_.clear();
    if (handle_ != nullptr) cublasLtDestroy(handle_);
    if (workspace_ != nullptr) cudaFree(workspace_);
  }

  bool Init() { return BLAS_OK(cublasLtCreate(&handle_)) && GPU_OK(cudaMalloc(&workspace_, kWorkspaceBytes)); }

  std::string name() const override {
    const size_t version = cublasLtGetVersion();
    return "cublas-" + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
  }
  int64_t workspace_bytes() const override { return kWorkspaceBytes; }

  void Forward(const float* x, const float* w, const float* bias, float* out, const Shape& shape) override {
    ForwardOf(x, w, bias, out, shape);
  }
  void Forward(const bf16* x, const bf16* w, const bf16* bias, bf16* out, const Shape& shape) override {
    ForwardOf(x, w, bias, out, shape);
  }
  void BackwardInput(const float* dout, const float* w, float* dx, const Shape& shape) override {
    BackwardInputOf(dout, w, dx, shape);
  }
  void BackwardInput(const bf16* dout, const bf16* w, bf16* dx, const Shape& shape) override {
    BackwardInputOf(dout, w, dx, shape);
  }
  void BackwardWeight(const float* dout, const float* x, float* dw, const Shape& shape) override {
    BackwardWeightOf(dout, x, dw, shape);
  }
  void BackwardWeight(const bf16* dout, const bf16* x, float* dw, const Shape& shape) override {
    BackwardWeightOf(dout, x, dw, shape);
  }

 private:
  // A stored column-major operand: columns of `rows` elements, `step` apart.
  struct Stored {
    int rows, columns, step;
    bool transposed;
    auto operator<=>(const Stored&) const = default;
  };

  template <typename T>
  void ForwardOf(const T* x, const T* w, const T* bias, T* out, const Shape& s) {
    const Stored a = {s.I, s.O, s.I, true}, b = {s.I, s.N, s.I, false}, d = {s.O, s.N, s.stride, false};
    if (Multiply(a, w, b, x, bias, d, out, 0)) return;
    if (bias != nullptr && s.stride == s.O && Multiply<T, T>(a, w, b, x, nullptr, d, out, 0)) {
      AddBias(stream_, bias, out, s.N, s.O);
      return;
    }
    plain_->Forward(x, w, bias, out, s);
  }
  template <typename T>
  void BackwardInputOf(const T* dout, const T* w, T* dx, const Shape& s) {
    const Stored a = {s.I, s.O, s.I, false}, b = {s.O, s.N, s.stride, false}, d = {s.I, s.N, s.I, false};
    if (!Multiply<T, T>(a, w, b, dout, nullptr, d, dx, 0)) plain_->BackwardInput(dout, w, dx, s);
  }
  template <typename T>
  void BackwardWeightOf(const T* dout, const T* x, float* dw, const Shape& s) {
    const Stored a = {s.I, s.N, s.I, false}, b = {s.O, s.N, s.stride, true}, d = {s.I, s.O, s.I, false};
    if (!Multiply<T, float>(a, x, b, dout, nullptr, d, dw, 1)) plain_->BackwardWeight(dout, x, dw, s);
  }

  // d = a b (+ bias, one element a row) + beta d. False where cuBLAS has no algorithm for it.
  template <typename In, typename Out>
  bool Multiply(const Stored& a_stored, const In* a, const Stored& b_stored, const In* b, const Out* bias,
                const Stored& d_stored, Out* d, float beta) {
    Key key;
    key.types = {kType<In>, kType<Out>};
    key.stored = {a_stored, b_stored, d_stored};
    key.alignments = {AlignmentOf(a), AlignmentOf(b), AlignmentOf(d), AlignmentOf(bias)};
    key.bias = bias != nullptr;
    const auto [at, is_new] = plans_.try_emplace(key);
    Plan& plan = at->second;
    if (is_new && !MakePlan(key, bias, &plan)) {
      LOG(WARNING) << "cuBLAS has no algorithm for a product of " << d_stored.rows << " x " << d_stored.columns << " x "
                   << (a_stored.transposed ? a_stored.rows : a_stored.columns)
                   << (bias != nullptr ? " with its bias added" : "") << "; it is done in a slower way";
    }
    if (!plan.found) return false;
    if (bias != nullptr) {
      BLAS_OK(cublasLtMatmulDescSetAttribute(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
    }
    const float one = 1;
    BLAS_OK(cublasLtMatmul(handle_, plan.description, &one, a, plan.a, b, plan.b, &beta, d, plan.d, d, plan.d,
                           &plan.algorithm, workspace_, kWorkspaceBytes, stream_));
    return true;
  }

  // All that the choice of an algorithm may hang on.
  struct Key {
    std::array<cudaDataType_t, 2> types;  // of a and b; of d
    std::array<Stored, 3> stored;         // a, b, d
    std::array<uint32_t, 4> alignments;   // a, b, d, bias
    bool bias;
    auto operator<=>(const Key&) const = default;
  };

  bool MakePlan(const Key& key, const void* bias, Plan* plan) {
    const auto& [a, b, d] = key.stored;
    if (!BLAS_OK(cublasLtMatmulDescCreate(&plan->description, CUBLAS_COMPUTE_32F, CUDA_R_32F))) return false;
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      return BLAS_OK(cublasLtMatmulDescSetAttribute(plan->description, attribute, &value, sizeof(value)));
    };
    const auto operation = [](const Stored& stored) { return stored.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    bool ok = set(CUBLASLT_MATMUL_DESC_TRANSA, operation(a)) && set(CUBLASLT_MATMUL_DESC_TRANSB, operation(b));
    if (bias != nullptr) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      ok = ok && set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) && set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    ok = ok && BLAS_OK(cublasLtMatrixLayoutCreate(&plan->a, key.types[0], a.rows, a.columns, a.step)) &&
         BLAS_OK(cublasLtMatrixLayoutCreate(&plan->b, key.types[0], b.rows, b.columns, b.step)) &&
         BLAS_OK(cublasLtMatrixLayoutCreate(&plan->d, key.types[1], d.rows, d.columns, d.step));
    cublasLtMatmulPreference_t preference = nullptr;
    ok = ok && BLAS_OK(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return BLAS_OK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
    };
    // Split sums: added up in a separate step, in float32, or not at all. "In place" leaves the order to chance.
    ok = ok &&
         prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) &&
         prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes)) &&
         prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignments[0]) &&
         prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignments[1]) &&
         prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignments[2]) &&
         prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignments[2]);
    if (ok) {
      cublasLtMatmulHeuristicResult_t result = {};
      int found = 0;
      const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, plan->description, plan->a, plan->b,
                                                                   plan->d, plan->d, preference, 1, &result, &found);
      // Nothing for this product is no failure.
      if (status == CUBLAS_STATUS_SUCCESS && found > 0 && result.state == CUBLAS_STATUS_SUCCESS) {
        plan->algorithm = result.algo;
        plan->found = true;
      } else if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_SUCCESS) {
        BlasOk(status, "cublasLtMatmulAlgoGetHeuristic", __FILE__, __LINE__);
      }
    }
    if (preference != nullptr) cublasLtMatmulPreferenceDestroy(preference);
    return plan->found;
  }

  const cudaStream_t stream_;
  const std::unique_ptr<Gemm> plain_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace

std::unique_ptr<Gemm> NewCublasGemm(cudaStream_t stream) {
  auto gemm = std::make_unique<CublasGemm>(stream);
  if (!gemm->Init()) return nullptr;
  return gemm;
}

}  // namespace ablate::cuda
