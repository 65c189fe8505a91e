// Fuzz target: a checkpoint file, as it is, and with a true digest at its end, which lets it past the hash. Lastly the
// input as a header, between a true beginning and a true end, so that mutations go on inside of it.
#include <cstdint>
#include <cstring>
#include <string>

#include "base/hash.h"
#include "base/log.h"
#include "tests/fuzz/memory_file.h"
#include "worker/trainer/checkpoint_file.h"

namespace ablate {
namespace {

void Open(const std::string& content) {
  const MemoryFile memory(content);
  const auto file = CheckpointFile::Open(memory.path());
  if (!file.ok()) {
    CHECK(absl::IsInvalidArgument(file.status()) || absl::IsDataLoss(file.status())) << file.status();
    return;
  }
  CHECK_EQ((*file)->digest().sha256, Sha256Hex(content));
  for (const CheckpointFile::Tensor& tensor : (*file)->tensors()) {
    int64_t count = 1;
    for (const int64_t size : tensor.shape) count *= size;
    CHECK_EQ(count, tensor.count);
    CHECK_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 64, 0u);
    CHECK((*file)->Find(tensor.name) != nullptr);
    // Every byte that it claims can be read.
    volatile float sum = 0;
    for (int64_t i = 0; i < tensor.count; ++i) sum = sum + tensor.data[i];
  }
}

std::string WithDigest(std::string content) { return content + Sha256Hex(content); }

}  // namespace
}  // namespace ablate

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ablate;  // NOLINT
  const std::string content(reinterpret_cast<const char*>(data), size);
  Open(content);
  if (size >= 64) Open(WithDigest(content.substr(0, size - 64)));
  std::string made = "ABLATECK";
  const uint32_t numbers[2] = {1, static_cast<uint32_t>(size)};
  made.append(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  made += content;
  made.resize((made.size() + 63) / 64 * 64 + 256);
  Open(WithDigest(made));
  return 0;
}
