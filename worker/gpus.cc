#include "worker/gpus.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/subprocess.h"

namespace ablate {
namespace {

// What a process takes of a GPU before it allocates anything: its context and the kernels.
constexpr int64_t kContextBytes = int64_t{512} << 20;
constexpr int64_t kLeastShareBytes = int64_t{1} << 30;

std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<uint64_t>(std::max<int64_t>(bytes, 0))); }

std::string ReadAll(int fd) {
  std::string text;
  char bytes[4096];
  for (;;) {
    const ssize_t count = ::read(fd, bytes, sizeof(bytes));
    if (count > 0) text.append(bytes, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) return text;
  }
}

}  // namespace

std::string Gpu::Describe() const {
  return absl::StrCat("GPU ", index, ": ", name, ", ", Bytes(total_bytes), " of memory (", Bytes(free_bytes),
                      " free), compute capability ", absl::StrFormat("%.1f", compute), ", driver for CUDA ", driver);
}

absl::StatusOr<std::vector<Gpu>> ParseGpus(std::string_view lines) {
  std::vector<Gpu> gpus;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(ToAbsl(lines), '\n', absl::SkipEmpty()))) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits('\t', 5));
    Gpu gpu;
    if (fields.size() != 6 || !absl::SimpleAtoi(fields[0], &gpu.index) ||
        !absl::SimpleAtoi(fields[1], &gpu.total_bytes) || !absl::SimpleAtoi(fields[2], &gpu.free_bytes) ||
        !absl::SimpleAtod(fields[3], &gpu.compute)) {
      return absl::InternalError(absl::StrCat("the trainer lists a GPU as \"", line, "\", which is no such line"));
    }
    gpu.driver = fields[4];
    gpu.name = fields[5];
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

absl::StatusOr<std::vector<Gpu>> ListGpus(const std::string& trainer) {
  const TempDir dir;
  SubprocessOptions options;
  options.argv = {trainer, "--list-devices"};
  options.pipe_stdin = false;
  options.stderr_path = JoinPath(dir.path(), "stderr");
  ABLATE_ASSIGN_OR_RETURN(Subprocess child, Subprocess::Start(options));
  const std::string lines = ReadAll(child.stdout_fd());
  const ExitStatus exit = child.Wait();
  if (exit.code != 0) {
    const std::string words = ReadFile(options.stderr_path).value_or("");
    return absl::FailedPreconditionError(
        absl::StrCat(absl::StripTrailingAsciiWhitespace(absl::StripPrefix(ToAbsl(words), "ablate-trainer: ")),
                     words.empty() ? absl::StrCat(trainer, " ended with ", exit.Describe()) : ""));
  }
  return ParseGpus(lines);
}

std::vector<std::string> GpuSlots::TrainerFlags(int slot) const {
  std::vector<std::string> flags = {"--device", absl::StrCat("cuda:", OfSlot(slot).index)};
  if (per_gpu > 1) {
    flags.push_back("--memory-limit");
    flags.push_back(absl::StrCat(share_bytes));
  }
  return flags;
}

absl::StatusOr<GpuSlots> AssignGpus(const std::vector<Gpu>& all, const std::vector<std::string>& wanted, int per_gpu) {
  if (all.empty()) return absl::FailedPreconditionError("the driver shows no GPU (is CUDA_VISIBLE_DEVICES set?)");
  const auto too_old = [](const Gpu& gpu) { return gpu.compute < kLeastCompute; };
  GpuSlots slots;
  slots.per_gpu = per_gpu;
  if (wanted.empty()) {
    for (const Gpu& gpu : all) {
      if (too_old(gpu)) {
        LOG(WARNING) << gpu.Describe() << ": not used, compute capability 8.0 is needed";
      } else {
        slots.gpus.push_back(gpu);
      }
    }
    if (slots.gpus.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("no GPU here is new enough: compute capability 8.0 is needed (", all[0].Describe(), ")"));
    }
  }
  std::set<int> taken;
  for (const std::string& word : wanted) {
    int index = -1;
    if (!absl::SimpleAtoi(word, &index) || index < 0) {
      return absl::InvalidArgumentError(absl::StrCat("--gpus \"", word, "\": expected numbers of GPUs, such as 0,1"));
    }
    if (!taken.insert(index).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--gpus names GPU ", index, " twice; --slots-per-gpu lets jobs share one"));
    }
    const auto it = std::find_if(all.begin(), all.end(), [&](const Gpu& gpu) { return gpu.index == index; });
    if (it == all.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("there is no GPU ", index, " here; the driver shows ", all.size(), ", counted from 0"));
    }
    if (too_old(*it)) {
      return absl::FailedPreconditionError(
          absl::StrCat(it->Describe(), " is too old: compute capability 8.0 is needed"));
    }
    slots.gpus.push_back(*it);
  }
  int64_t smallest = slots.gpus[0].total_bytes;
  for (const Gpu& gpu : slots.gpus) {
    if (gpu.name != slots.gpus[0].name) {
      return absl::FailedPreconditionError(
          absl::StrCat("GPUs of two kinds (", slots.gpus[0].name, ", ", gpu.name,
                       "): results depend on the kind, so start a worker for each, with --gpus and a --work-dir of its "
                       "own"));
    }
    smallest = std::min(smallest, gpu.total_bytes);
  }
  slots.share_bytes = smallest / per_gpu - kContextBytes;
  if (slots.share_bytes < kLeastShareBytes) {
    return absl::InvalidArgumentError(absl::StrCat("--slots-per-gpu ", per_gpu, ": a share of ", Bytes(smallest),
                                                   " would be under ", Bytes(kLeastShareBytes + kContextBytes)));
  }
  return slots;
}

}  // namespace ablate
