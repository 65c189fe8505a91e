// Fuzz target: files that should be GPT-2's tokenizer. First byte: one file or two, and where the second begins.
// (A right one is 50,257 tokens long; texts are compared with an independent implementation in tests/tokenizer.)
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "tests/fuzz/memory_file.h"
#include "worker/trainer/gpt2_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ablate;  // NOLINT
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const unsigned how = TakeByte(&rest);
  const size_t parts = 1 + how % 3;  // three: too many
  const size_t cut = rest.size() * (how / 4) / 64;
  std::vector<std::unique_ptr<MemoryFile>> files;
  std::vector<std::string> paths;
  for (size_t i = 0; i < parts; ++i) {
    files.push_back(std::make_unique<MemoryFile>(parts == 1 ? rest : i == 0 ? rest.substr(0, cut) : rest.substr(cut)));
    paths.push_back(files.back()->path());
  }
  const auto tokenizer = Gpt2Tokenizer::Open(paths);
  CHECK(tokenizer.ok() || absl::IsInvalidArgument(tokenizer.status())) << tokenizer.status();
  return 0;
}
