#include "kernels/cuda/weight_copies.h"

#include <iterator>

#include "base/log.h"
#include "kernels/cuda/ops/elementwise.h"

namespace ablate::cuda {

void WeightCopies::AddBlock(void* block, size_t bytes) {
  blocks_[static_cast<const char*>(block)].floats = static_cast<int64_t>(bytes / sizeof(float));
}

void WeightCopies::RemoveBlock(void* block) {
  const auto at = blocks_.find(static_cast<const char*>(block));
  if (at == blocks_.end()) return;
  if (at->second.twin != nullptr) memory_->Free(at->second.twin);
  blocks_.erase(at);
}

void WeightCopies::Clear() {
  for (auto& [address, block] : blocks_) {
    if (block.twin != nullptr) memory_->Free(block.twin);
  }
  blocks_.clear();
}

std::map<const char*, WeightCopies::Block>::iterator WeightCopies::Find(const void* address) {
  const auto* bytes = static_cast<const char*>(address);
  auto at = blocks_.upper_bound(bytes);
  if (at == blocks_.begin()) return blocks_.end();
  --at;
  return bytes < at->first + at->second.floats * static_cast<int64_t>(sizeof(float)) ? at : blocks_.end();
}

void WeightCopies::Round(const char* block, Block* of) {
  ConvertToBf16(stream_, reinterpret_cast<const float*>(block), of->twin, of->floats);
  of->old = false;
}

const bf16* WeightCopies::Rounded(const float* w) {
  const auto at = Find(w);
  CHECK(at != blocks_.end()) << "weights outside the backend's memory";
  Block& block = at->second;
  if (block.twin == nullptr) {
    const absl::StatusOr<void*> twin = memory_->Allocate(static_cast<size_t>(block.floats) * sizeof(bf16));
    if (!twin.ok()) {
      Note(cudaErrorMemoryAllocation, std::string(twin.status().message()).c_str(), __FILE__, __LINE__);
      return nullptr;
    }
    block.twin = static_cast<bf16*>(*twin);
    block.old = true;
  }
  if (block.old) Round(at->first, &block);
  return block.twin + (w - reinterpret_cast<const float*>(at->first));
}

void WeightCopies::Refresh() {
  for (auto& [address, block] : blocks_) {
    if (block.twin != nullptr && block.old) Round(address, &block);
  }
}

bool WeightCopies::Written(const void* memory) {
  const auto at = Find(memory);
  if (at == blocks_.end() || at->second.twin == nullptr) return false;
  at->second.old = true;
  return true;
}

bf16* WeightCopies::TwinOf(const float* p) {
  const auto at = Find(p);
  if (at == blocks_.end() || at->second.twin == nullptr) return nullptr;
  return at->second.twin + (p - reinterpret_cast<const float*>(at->first));
}

}  // namespace ablate::cuda
