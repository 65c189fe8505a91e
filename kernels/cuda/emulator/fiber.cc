#include "kernels/cuda/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(CUDA_EMU_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(CUDA_EMU_TSAN)
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void* __tsan_get_current_fiber();
}
#endif

#if !defined(CUDA_EMU_UCONTEXT)
// Saves what a called function must keep and takes another stack. The jump instead of a return keeps the processor's
// return predictor from guessing the old stack's caller.
extern "C" void cuda_emu_switch(void** save_stack_pointer, void* stack_pointer);
asm(R"(
.text
.globl cuda_emu_switch
.hidden cuda_emu_switch
.type cuda_emu_switch, @function
cuda_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.size cuda_emu_switch, .-cuda_emu_switch
)");
#endif

namespace ablate::cuda_emu {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;  // committed as it is touched

Fiber* previous = nullptr;  // who made the switch under way

}  // namespace

Fiber* NewFiber(int index, void (*main)()) {
  auto* fiber = new Fiber;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* mapping =
      mmap(nullptr, page + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED || mprotect(mapping, page, PROT_NONE) != 0) {
    fprintf(stderr, "CUDA emulator: no memory for the stacks of a block\n");
    abort();
  }
  fiber->mapping = mapping;
  fiber->stack_bottom = static_cast<char*>(mapping) + page;
  fiber->stack_bytes = kStackBytes;
  const size_t stagger = static_cast<size_t>(index) * 5 % 64 * 256;
#if defined(CUDA_EMU_UCONTEXT)
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack_bottom;
  fiber->context.uc_stack.ss_size = kStackBytes - stagger;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, main, 0);
#else
  auto* top = reinterpret_cast<uintptr_t*>(static_cast<char*>(fiber->stack_bottom) + kStackBytes - stagger);
  *--top = 0;  // where a caller would be: ends a debugger's walk, and aligns as a call does
  *--top = reinterpret_cast<uintptr_t>(main);
  for (int i = 0; i < 6; ++i) *--top = 0;
  fiber->stack_pointer = top;
#endif
#if defined(CUDA_EMU_TSAN)
  fiber->tsan = __tsan_create_fiber(0);
#endif
  return fiber;
}

void DeleteFiber(Fiber* fiber) {
#if defined(CUDA_EMU_TSAN)
  void* here = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber->tsan, 0);  // there and back with order: what it did in the past is over now
  __tsan_switch_to_fiber(here, 0);
  __tsan_destroy_fiber(fiber->tsan);
#endif
  ASAN_UNPOISON_MEMORY_REGION(fiber->stack_bottom, fiber->stack_bytes);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  munmap(fiber->mapping, page + kStackBytes);
  delete fiber;
}

Fiber* HostFiber() {
  static Fiber host;
#if defined(CUDA_EMU_TSAN)
  host.tsan = __tsan_get_current_fiber();
#endif
  return &host;
}

void FiberStarted() {
#if defined(CUDA_EMU_ASAN)
  const void* bottom = nullptr;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &previous->stack_bytes);
  previous->stack_bottom = const_cast<void*>(bottom);
#endif
}

void SwitchFiber(Fiber* from, Fiber* to) {
  previous = from;
#if defined(CUDA_EMU_ASAN)
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack_bottom, to->stack_bytes);
#endif
#if defined(CUDA_EMU_TSAN)
  constexpr unsigned kNoSync = 1;
  __tsan_switch_to_fiber(to->tsan, kNoSync);
#endif
#if defined(CUDA_EMU_UCONTEXT)
  swapcontext(&from->context, &to->context);
#else
  cuda_emu_switch(&from->stack_pointer, to->stack_pointer);
#endif
#if defined(CUDA_EMU_ASAN)
  const void* bottom = nullptr;
  __sanitizer_finish_switch_fiber(from->fake_stack, &bottom, &previous->stack_bytes);
  previous->stack_bottom = const_cast<void*>(bottom);
#endif
}

}  // namespace ablate::cuda_emu
