// Linear layers on the CPU: serial OpenBLAS products over output tiles cut by shape. Contracts as in kernels/backend.h.
#pragma once

namespace ablate {

void CpuLinearForward(int threads, const float* x, const float* w, const float* b, float* out, int N, int I, int O);
void CpuLinearBackward(int threads, const float* dout, const float* x, const float* w, float* dx, float* dw, float* db,
                       int N, int I, int O);

}  // namespace ablate
