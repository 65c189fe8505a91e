#include "tests/fuzz/replay.h"

#include <cstdio>
#include <string>
#include <vector>

#include "base/files.h"

namespace ablate {
namespace {

// Of its exact size, so that AddressSanitizer sees a read beyond it.
void Run(const FuzzTarget& target, const std::string& input) {
  const std::vector<uint8_t> copy(input.begin(), input.end());
  target.run(copy.data(), copy.size());
}

}  // namespace

int Replay(const char* corpus, std::span<const FuzzTarget> targets) {
  const auto folders = ListDir(corpus);
  if (!folders.ok()) {
    std::fprintf(stderr, "%s\n", folders.status().ToString().c_str());
    return 2;
  }
  for (const std::string& folder : *folders) {
    bool known = false;
    for (const FuzzTarget& target : targets) known = known || folder == target.name;
    if (!known) {
      std::fprintf(stderr, "%s/%s: no target of this name replays it\n", corpus, folder.c_str());
      return 2;
    }
  }
  for (const FuzzTarget& target : targets) {
    const std::string folder = JoinPath(corpus, target.name);
    const auto names = ListDir(folder);
    if (!names.ok() || names->empty()) {
      std::fprintf(stderr, "%s: no kept inputs\n", folder.c_str());
      return 2;
    }
    Run(target, "");
    for (const std::string& name : *names) {
      const std::string path = JoinPath(folder, name);
      std::printf("%s\n", path.c_str());
      std::fflush(stdout);
      const auto input = ReadFile(path);
      if (!input.ok()) {
        std::fprintf(stderr, "%s\n", input.status().ToString().c_str());
        return 2;
      }
      Run(target, *input);
    }
    std::printf("%s: %zu inputs\n", target.name, names->size() + 1);
  }
  return 0;
}

}  // namespace ablate
