// The running block: its threads, who waits for what, its shared memory. Shared by the emulator's own files.
// Thread rule: as emulator.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/emulator/emulator.h"
#include "kernels/cuda/emulator/fiber.h"

namespace ablate::cuda_emu {

struct PendingCopy {  // of cp.async
  void* shared;
  const void* global;  // null: zeros
  int group;
};

// What a lane brings to a collective of its warp, and takes from it.
struct Payload {
  uint64_t bits = 0;
  int source = 0;
  bool predicate = false;
  unsigned ballot = 0;
  const uint32_t *a = nullptr, *b = nullptr;
  const float* c = nullptr;
  float* d = nullptr;
  alignas(16) uint16_t row[8] = {};
  uint32_t* registers = nullptr;
};

enum class Wait { kNothing, kBlock, kWarp, kDone };

struct Thread {
  Fiber* fiber = nullptr;
  uint3 index = {0, 0, 0};
  int linear = 0;
  Wait wait = Wait::kNothing;
  Place place = {"", 0};
  // Of a collective of the warp.
  const char* what = "";
  unsigned mask = 0;
  Payload payload;
  // Tokens of the collectives that order memory, alternating: a fast thread's next arrival must not be taken for order.
  char warp_token[2] = {0, 0};
  unsigned warp_phase = 0;
  // cp.async
  std::vector<PendingCopy> copies;
  int open_group = 0;
};

struct Warp {  // bits: lanes
  unsigned present = 0, waiting = 0, done = 0;
};

struct Block {
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  int arrived = 0, done = 0;  // at the barrier; returned
  Thread* first_arrived = nullptr;
  char barrier_token[2] = {0, 0};
  unsigned barrier_phase = 0;
};

extern Block block;
extern Thread* current;
extern Schedule schedule;

// Ends the kernel with a message, text(), that names the running thread. Text is a function, so that nothing is left on
// the abandoned stack.
void AddToError(const std::string& text);
void SetError(Place place, const std::string& what);
[[noreturn]] void Abandon();
template <class Text>
[[noreturn]] void Fail(Place place, Text text) {
  SetError(place, text());
  Abandon();
}

bool SkipBarrier(Place place);

// A number from the schedule's seed.
uint64_t Random();

[[noreturn]] inline void Fail(Place place, const char* what) {
  SetError(place, what);
  Abandon();
}

// Fails unless the running lane is in its own mask.
void CheckOwnLane(unsigned mask, const char* what, Place place);

// The running lane waits until all of `mask` are here in the same collective, and the last to come runs `together` on
// the warp (32 pointers, null for lanes that are not in the mask).
void Rendezvous(unsigned mask, const char* what, Place place, void (*together)(Thread* const* lanes),
                bool orders_memory = false);

// Whether these bytes lie in one live array of the block's shared memory. shared_memory.cc.
bool IsShared(const void* address, size_t bytes);
void BeginSharedMemory(size_t dynamic_bytes);
// Returns what was written outside of its arrays, or nothing.
std::string EndSharedMemory();
std::string CheckSharedSize(size_t dynamic_bytes);

// Guards around arrays are filled with kGuardByte in every build: a write there is found later, where no sanitizer
// finds it at once. Returns the offset of the first byte that changed, or bytes.
inline constexpr unsigned char kGuardByte = 0xa5;
size_t Untouched(const void* guard, size_t bytes);

// Whether a call that may not be made while a stream captures may go on; if not, the capture is broken. streams.cc.
bool NotWhileCapturing();

// runtime.cc
bool IsDevice(const void* address, size_t bytes);
void BeginKernelMemory();
// Returns what was written outside of device memory, or nothing.
std::string EndKernelMemory();

void DropCopies(Thread* thread);

}  // namespace ablate::cuda_emu
