#include "worker/trainer/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/version.h"
#include "worker/trainer/session.h"

namespace ablate {
namespace {

constexpr int kExitUsage = 2;

constexpr char kHelp[] = R"(ablate-trainer: trains and evaluates models, one task at a time.

ablate-worker starts one for each slot; you need to start it yourself only to look for faults.
It takes requests on stdin and sends events on stdout: protobuf messages of proto/trainer.proto, each after
its length as a varint. Logs go to stderr. It ends when stdin closes.

  --device cpu|cuda|cuda:N     where to compute (cpu); N counts GPUs as CUDA does, from 0
  --threads N                  threads of the CPU backend (all cores); results do not depend on it
  --memory-limit BYTES         of the GPU's memory: this trainer's share (all that is free)
  --recompute auto|none|blocks whether a layer's activations are kept for the backward pass or computed again; auto: kept
                               where they fit (auto); results do not depend on it
  --list-devices               print a line for each GPU: number, bytes of memory, bytes free, compute capability, CUDA
                               version of the driver, name, separated by tabs
  --version                    print the version
  --help                       print this

The CUDA backend is libablate_cuda.so beside this program, or what ABLATE_CUDA_LIBRARY names.

Exit codes: 0 stdin closed, 1 the pipe carried what is no request, 2 usage or no such device,
3 out of memory, 4 internal error, 5 the device failed.
)";

int Usage(const std::string& message) {
  std::fprintf(stderr, "ablate-trainer: %s\ntry ablate-trainer --help\n", message.c_str());
  return kExitUsage;
}

// Of a device that cannot be had: --help would not help.
int Refuse(const absl::Status& status) {
  std::fprintf(stderr, "ablate-trainer: %s\n", std::string(status.message()).c_str());
  return kExitUsage;
}

std::optional<Recompute> ParseRecompute(const std::string& name) {
  if (name == "auto") return Recompute::kAuto;
  if (name == "none") return Recompute::kNone;
  if (name == "blocks") return Recompute::kBlocks;
  return std::nullopt;
}

}  // namespace

int TrainerMain(int argc, char** argv, const DeviceFactory& new_device) {
  std::string device_name = "cpu";
  DeviceOptions device_options;
  device_options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  SessionOptions session;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i], value;
    if (name == "--help" || name == "-h") return std::fputs(kHelp, stdout) < 0;
    if (name == "--version") return std::printf("ablate-trainer %s\n", BuildVersion()) < 0;
    if (name == "--list-devices") {
      const absl::StatusOr<std::string> lines = ListCudaDevices();
      if (!lines.ok()) return Refuse(lines.status());
      return std::fputs(lines->c_str(), stdout) < 0;
    }
    const size_t equals = name.find('=');
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    if (name != "--device" && name != "--threads" && name != "--memory-limit" && name != "--recompute") {
      return Usage("unknown argument \"" + name + "\"" +
                   DidYouMean(name, {"--device", "--threads", "--memory-limit", "--recompute", "--list-devices",
                                     "--version", "--help"}));
    }
    if (equals == std::string::npos) {
      if (i + 1 >= argc) return Usage(name + " needs a value");
      value = argv[++i];
    }
    if (name == "--device") {
      device_name = value;
    } else if (name == "--threads") {
      int& threads = device_options.threads;
      if (!absl::SimpleAtoi(value, &threads) || threads < 1 || threads > 4096) {
        return Usage("--threads \"" + value + "\": expected a whole number from 1 to 4096");
      }
    } else if (name == "--memory-limit") {
      if (!absl::SimpleAtoi(value, &device_options.memory_limit_bytes) || device_options.memory_limit_bytes < 0) {
        return Usage("--memory-limit \"" + value + "\": expected a number of bytes, or 0 for all that is free");
      }
    } else {
      const std::optional<Recompute> recompute = ParseRecompute(value);
      if (!recompute) return Usage("--recompute \"" + value + "\": expected auto, none or blocks");
      session.recompute = *recompute;
    }
  }
  if (::isatty(STDIN_FILENO)) return Usage("stdin is a terminal; requests are protobuf messages from ablate-worker");

  InitLogging(argv[0]);
  std::signal(SIGPIPE, SIG_IGN);
  // Whatever prints to stdout by mistake, in any library, must not corrupt the pipe.
  const int out_fd = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (out_fd < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    return Usage(std::string("cannot move stdout away: ") + std::strerror(errno));
  }
  const absl::StatusOr<std::unique_ptr<Device>> device = new_device(device_name, device_options);
  if (!device.ok()) return Refuse(device.status());
  const int code = ServePipe(STDIN_FILENO, out_fd, device->get(), session, Clock::Real());
  // Threads of a session that ended badly may still run: no destructors under them.
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace ablate
