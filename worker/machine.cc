#include "worker/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"

namespace ablate {
namespace {

// Files of version 2 of the kernel's control groups, as a container sees them.
constexpr char kGroupCpu[] = "/sys/fs/cgroup/cpu.max";
constexpr char kGroupMemory[] = "/sys/fs/cgroup/memory.max";

std::vector<std::string> WordsOf(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return {};
  return absl::StrSplit(*text, absl::ByAnyChar(" \n\t"), absl::SkipEmpty());
}

}  // namespace

std::string HostName() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "unknown";
  return name;
}

int UsableCores() {
  int cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof(mask), &mask) == 0) cores = CPU_COUNT(&mask);
  const std::vector<std::string> quota = WordsOf(kGroupCpu);
  double allowed = 0, period = 0;
  if (quota.size() == 2 && absl::SimpleAtod(quota[0], &allowed) && absl::SimpleAtod(quota[1], &period) && period > 0) {
    cores = std::min(cores, static_cast<int>(std::ceil(allowed / period)));
  }
  return std::max(cores, 1);
}

int64_t MemoryLimitBytes() {
  int64_t bytes = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  const std::vector<std::string> limit = WordsOf(kGroupMemory);
  int64_t allowed = 0;
  if (limit.size() == 1 && absl::SimpleAtoi(limit[0], &allowed)) bytes = std::min(bytes, allowed);
  return bytes;
}

int64_t OutOfMemoryKills() {
  const std::vector<std::string> words = WordsOf("/proc/vmstat");
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    int64_t count = 0;
    if (words[i] == "oom_kill" && absl::SimpleAtoi(words[i + 1], &count)) return count;
  }
  return -1;
}

}  // namespace ablate
