// The block's shared memory: dynamic part first, then each array as it is first met, with guards between. Filled with
// 0xff (NaN). Arrays start at an odd multiple of their alignment, so that a larger one that is needed is not had by
// luck.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/emulator/block.h"

namespace ablate::cuda_emu {
namespace {

constexpr size_t kStaticLimit = size_t{48} << 10, kLimit = size_t{99} << 10;  // 8.6, 8.9, 12.x
constexpr size_t kGuard = 64, kDynamicAlign = 128, kStaticAlign = 16;

struct Array {
  const void* key;  // null: the dynamic part
  const char* name;
  char* address;
  size_t bytes;
};
std::vector<Array> arrays;
char* arena = nullptr;
size_t arena_bytes = 0, used = 0, static_bytes = 0, dynamic_bytes = 0;

char* NextAddress(size_t alignment) {  // the next address past a guard that is an odd multiple of alignment
  size_t offset = used + 2 * kGuard;
  offset = (offset / (2 * alignment) + 1) * (2 * alignment) + alignment;
  return arena + offset;
}

void* Add(const void* key, const char* name, size_t bytes, size_t alignment) {
  char* address = NextAddress(alignment);
  used = static_cast<size_t>(address - arena) + bytes;
  if (used + kGuard > arena_bytes) return nullptr;
  ASAN_UNPOISON_MEMORY_REGION(address, bytes);
  {
    Unjudged unjudged;
    memset(address, 0xff, bytes);
#if !defined(CUDA_EMU_ASAN)  // which reports at once
    memset(address - kGuard, kGuardByte, kGuard);
    memset(address + bytes, kGuardByte, kGuard);
#endif
  }
  arrays.push_back({key, name, address, bytes});
  return address;
}

}  // namespace

size_t Untouched(const void* guard, size_t bytes) {
  static const std::string untouched(256, static_cast<char>(kGuardByte));
  if (bytes <= untouched.size() && memcmp(guard, untouched.data(), bytes) == 0) return bytes;
  size_t i = 0;
  while (i < bytes && static_cast<const unsigned char*>(guard)[i] == kGuardByte) ++i;
  return i;
}

std::string CheckSharedSize(size_t bytes) {
  if (bytes <= kLimit) return "";
  return std::to_string(bytes) + " bytes of dynamic shared memory, more than the " + std::to_string(kLimit) +
         " there are";
}

void BeginSharedMemory(size_t bytes) {
  Unjudged unjudged;
  arrays.clear();
  used = static_bytes = 0;
  dynamic_bytes = bytes;
  arena_bytes = bytes + kStaticLimit + 64 * (2 * kGuard + 4 * kStaticAlign) + 8 * kDynamicAlign;
  arena_bytes = (arena_bytes + 4095) / 4096 * 4096;
  arena = static_cast<char*>(aligned_alloc(4096, arena_bytes));
  ASAN_POISON_MEMORY_REGION(arena, arena_bytes);
  if (bytes > 0) Add(nullptr, "dynamic shared memory", bytes, kDynamicAlign);
}

// Given back, so that ThreadSanitizer forgets who touched it: the next block's threads are not ordered after these.
std::string EndSharedMemory() {
  Unjudged unjudged;
  std::string outside;
#if !defined(CUDA_EMU_ASAN)
  for (const Array& array : arrays) {
    const size_t after = Untouched(array.address + array.bytes, kGuard);
    if (after < kGuard || Untouched(array.address - kGuard, kGuard) < kGuard) {
      outside = std::string("written outside of shared array ") + array.name + " of " + std::to_string(array.bytes) +
                " bytes, " +
                (after < kGuard ? "at byte " + std::to_string(array.bytes + after) : std::string("before its begin"));
      break;
    }
  }
#endif
  ASAN_UNPOISON_MEMORY_REGION(arena, arena_bytes);
  free(arena);
  arena = nullptr;
  return outside;
}

bool IsShared(const void* address, size_t bytes) {
  const char* begin = static_cast<const char*>(address);
  for (const Array& array : arrays) {
    if (begin >= array.address && begin + bytes <= array.address + array.bytes) return true;
  }
  return false;
}

void* SharedArray(const void* key, const char* name, size_t bytes) {
  for (const Array& array : arrays) {
    if (array.key == key) return array.address;
  }
  static_bytes += (bytes + kStaticAlign - 1) / kStaticAlign * kStaticAlign;
  void* address = static_bytes > kStaticLimit || static_bytes + dynamic_bytes > kLimit
                      ? nullptr
                      : Add(key, name, bytes, kStaticAlign);
  if (address == nullptr)
    Fail({"CUDA_SHARED", 0},
         [&] { return std::string() + "too much static shared memory: " + std::to_string(static_bytes) + " bytes"; });
  return address;
}

void* DynamicShared() {
  if (dynamic_bytes == 0) Fail({"CUDA_DYNAMIC_SHARED", 0}, "launched without dynamic shared memory");
  return arrays.front().address;
}

}  // namespace ablate::cuda_emu
