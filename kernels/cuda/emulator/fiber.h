// Stacks and the switch between them, with what AddressSanitizer and ThreadSanitizer must be told. Knows nothing of
// CUDA. Thread rule: all fibers of the process run on one OS thread.
//
// x86-64 has a switch of its own (20 ns); elsewhere, or with CUDA_EMU_UCONTEXT, ucontext's (600 ns).
// CUDA_EMU_TSAN: the program is run under ThreadSanitizer. The emulator itself is compiled without -fsanitize=thread,
// so that its own memory is not judged, and speaks to the runtime by its interface for fibers.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define CUDA_EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUDA_EMU_ASAN 1
#endif
#endif
#if !defined(__x86_64__) && !defined(CUDA_EMU_UCONTEXT)
#define CUDA_EMU_UCONTEXT 1
#endif

#if defined(CUDA_EMU_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (static_cast<void>(address), static_cast<void>(bytes))
#endif

#if defined(CUDA_EMU_UCONTEXT)
#include <ucontext.h>
#endif

#if defined(CUDA_EMU_TSAN)
extern "C" {
void __tsan_acquire(void* token);
void __tsan_release(void* token);
void __tsan_read_range(void* address, unsigned long bytes);
void __tsan_write_range(void* address, unsigned long bytes);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}
#endif

namespace ablate::cuda_emu {

struct Fiber {
  void* stack_pointer = nullptr;
  void* mapping = nullptr;  // guard page, then the stack; null: the host's own stack
  void* stack_bottom = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
  void* tsan = nullptr;
#if defined(CUDA_EMU_UCONTEXT)
  ucontext_t context;
#endif
};

// A fiber that will run `main`, which never returns. `index` staggers the stacks, or all would share cache sets.
Fiber* NewFiber(int index, void (*main)());
// May be called on a fiber that is suspended anywhere: what it had on its stack is dropped.
void DeleteFiber(Fiber* fiber);
// The fiber of the caller's own stack.
Fiber* HostFiber();

// Suspends `from`, the running one, and goes on with `to`. Orders no memory for ThreadSanitizer.
void SwitchFiber(Fiber* from, Fiber* to);
// First thing in `main`.
void FiberStarted();

// For ThreadSanitizer; nothing otherwise. What one thread did before Release, another sees after Acquire.
#if defined(CUDA_EMU_TSAN)
inline void Release(void* token) { __tsan_release(token); }
inline void Acquire(void* token) { __tsan_acquire(token); }
inline void NoteRead(const void* address, size_t bytes) { __tsan_read_range(const_cast<void*>(address), bytes); }
inline void NoteWrite(void* address, size_t bytes) { __tsan_write_range(address, bytes); }
// The emulator's own accesses through library functions, which the runtime would otherwise see.
struct Unjudged {
  Unjudged() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~Unjudged() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};
#else
inline void Release(void*) {}
inline void Acquire(void*) {}
inline void NoteRead(const void*, size_t) {}
inline void NoteWrite(void*, size_t) {}
struct Unjudged {
  Unjudged() {}
};
#endif

}  // namespace ablate::cuda_emu
