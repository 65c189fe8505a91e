// Replays the kept inputs of all targets. CMake gives each target's function its name here.
#include "tests/fuzz/replay.h"

#define ABLATE_TARGET(name) extern "C" int ablate_fuzz_##name(const uint8_t* data, size_t size)
ABLATE_TARGET(checkpoint);
ABLATE_TARGET(data);
ABLATE_TARGET(http);
ABLATE_TARGET(items);
ABLATE_TARGET(pipe);
ABLATE_TARGET(rpc);
ABLATE_TARGET(sweep);
ABLATE_TARGET(tokenizer);

int main(int argc, char** argv) {
  static constexpr ablate::FuzzTarget kTargets[] = {
      {"checkpoint", ablate_fuzz_checkpoint},
      {"data", ablate_fuzz_data},
      {"http", ablate_fuzz_http},
      {"items", ablate_fuzz_items},
      {"pipe", ablate_fuzz_pipe},
      {"rpc", ablate_fuzz_rpc},
      {"sweep", ablate_fuzz_sweep},
      {"tokenizer", ablate_fuzz_tokenizer},
  };
  return argc == 2 ? ablate::Replay(argv[1], kTargets) : 2;
}
