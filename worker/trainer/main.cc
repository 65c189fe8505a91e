// ablate-trainer: the child process that trains and evaluates, one task at a time, for a slot of ablate-worker.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/version.h"
#include "kernels/backend.h"
#include "worker/trainer/session.h"

namespace {

constexpr int kExitUsage = 2;

constexpr char kHelp[] = R"(ablate-trainer: trains and evaluates models, one task at a time.

ablate-worker starts one for each slot; you need to start it yourself only to look for faults.
It takes requests on stdin and sends events on stdout: protobuf messages of proto/trainer.proto, each after
its length as a varint. Logs go to stderr. It ends when stdin closes.

  --device cpu|cuda   where to compute (cpu)
  --threads N         threads of the CPU backend (all cores); results do not depend on it
  --version           print the version
  --help              print this

Exit codes: 0 stdin closed, 1 the pipe carried what is no request, 2 usage or no such device,
3 out of memory, 4 internal error.
)";

int Usage(const std::string& message) {
  std::fprintf(stderr, "ablate-trainer: %s\ntry ablate-trainer --help\n", message.c_str());
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  std::string device = "cpu";
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i], value;
    if (name == "--help" || name == "-h") return std::fputs(kHelp, stdout) < 0;
    if (name == "--version") return std::printf("ablate-trainer %s\n", ablate::BuildVersion()) < 0;
    const size_t equals = name.find('=');
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    if (name != "--device" && name != "--threads") {
      return Usage("unknown argument \"" + name + "\"" +
                   ablate::DidYouMean(name, {"--device", "--threads", "--version", "--help"}));
    }
    if (equals == std::string::npos) {
      if (i + 1 >= argc) return Usage(name + " needs a value");
      value = argv[++i];
    }
    if (name == "--device") {
      device = value;
    } else if (!absl::SimpleAtoi(value, &threads) || threads < 1 || threads > 4096) {
      return Usage("--threads \"" + value + "\": expected a whole number from 1 to 4096");
    }
  }
  if (device == "cuda") return Usage("--device cuda: this build has no CUDA backend; use --device cpu");
  if (device != "cpu") return Usage("--device \"" + device + "\": expected cpu or cuda");
  if (::isatty(STDIN_FILENO)) return Usage("stdin is a terminal; requests are protobuf messages from ablate-worker");

  ablate::InitLogging(argv[0]);
  std::signal(SIGPIPE, SIG_IGN);
  // Whatever prints to stdout by mistake, in any library, must not corrupt the pipe.
  const int out_fd = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (out_fd < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    return Usage(std::string("cannot move stdout away: ") + std::strerror(errno));
  }
  auto backend = ablate::NewCpuBackend(threads);
  if (!backend.ok()) return Usage(std::string(backend.status().message()));
  const int code = ablate::ServePipe(STDIN_FILENO, out_fd, backend->get(), ablate::Clock::Real());
  // Threads of a session that ended badly may still run: no destructors under them.
  std::fflush(nullptr);
  ::_exit(code);
}
