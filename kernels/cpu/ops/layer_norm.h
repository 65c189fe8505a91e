// Layer norm on the CPU. Contracts as in kernels/backend.h.
#pragma once

#include <cstdint>

namespace ablate {

void CpuLayerNormForward(int threads, const float* x, const float* w, const float* b, float* out, float* mean,
                         float* rstd, int N, int C);
// partials: scratch of LayerNormPartialFloats(N, C).
void CpuLayerNormBackward(int threads, const float* dout, const float* x, const float* w, const float* mean,
                          const float* rstd, float* dx, float* dw, float* db, float* partials, int N, int C);
int64_t LayerNormPartialFloats(int N, int C);

}  // namespace ablate
