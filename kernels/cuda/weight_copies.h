// The rounded twins of weights: for each block of float32 memory in which a bf16 product finds weights, one bf16 block
// of the same elements. Kept up to date lazily: whoever writes float32 memory says so. Thread rule: as gpu.h.
#pragma once

#include <cstddef>
#include <map>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/memory.h"

namespace ablate::cuda {

class WeightCopies {
 public:
  WeightCopies(cudaStream_t stream, DeviceMemory* memory) : stream_(stream), memory_(memory) {}

  void AddBlock(void* block, size_t bytes);
  void RemoveBlock(void* block);  // with its twin
  void Clear();

  // The twin of w, which lies in a block; made or brought up to date where needed. nullptr: no memory for it; the
  // failure is noted.
  const bf16* Rounded(const float* w);
  // Brings all twins up to date.
  void Refresh();
  // memory was written, its twin was not. Whether it has one.
  bool Written(const void* memory);
  // Where the twin of p lies, for who writes both; nullptr: it has none.
  bf16* TwinOf(const float* p);

 private:
  struct Block {
    int64_t floats = 0;
    bf16* twin = nullptr;
    bool old = false;
  };
  // The block that an address lies in, or end().
  std::map<const char*, Block>::iterator Find(const void* address);
  void Round(const char* block, Block* of);

  const cudaStream_t stream_;
  DeviceMemory* const memory_;
  std::map<const char*, Block> blocks_;
};

}  // namespace ablate::cuda
