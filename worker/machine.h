// What this machine offers a worker, read from the kernel. Thread rule: pure reads, any thread.
#pragma once

#include <cstdint>
#include <string>

namespace ablate {

std::string HostName();
// Cores this process may use: its affinity mask, lowered by a control group's quota. At least 1.
int UsableCores();
// Physical memory, lowered by a control group's limit.
int64_t MemoryLimitBytes();
// How many processes the kernel has killed for lack of memory so far; -1: it does not say.
int64_t OutOfMemoryKills();

}  // namespace ablate
