// Runs a grid: blocks one after another, the threads of a block as fibers, in the order the schedule asks for.
#include <algorithm>
#include <cstring>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/emulator/block.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace ablate::cuda_emu {

Block block;
Thread* current = nullptr;
Schedule schedule;

namespace {

constexpr int kMaxThreads = 1024;
#if defined(CUDA_EMU_TSAN)
// A fiber remembers whom it is ordered after. Neighbouring blocks take other fibers, so that they are not ordered.
constexpr int kFiberSets = 2;
#else
constexpr int kFiberSets = 1;
#endif

std::string error;
std::vector<Thread*> ready;
std::vector<uint32_t> warp_rank;  // odd seeds: who runs first
uint64_t random_state = 1;
Fiber* host = nullptr;
struct FiberPool {
  std::vector<Fiber*> sets[kFiberSets];
  void Clear() {
    for (std::vector<Fiber*>& set : sets) {
      for (Fiber* fiber : set) DeleteFiber(fiber);
      set.clear();
    }
  }
  ~FiberPool() { Clear(); }
} fibers;
void (*body)(void*) = nullptr;
void* body_self = nullptr;
char start_token, end_token;

std::string Name(uint3 v) {
  return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

std::string Where(Place place) {
  const char* slash = strrchr(place.file, '/');
  return std::string(slash != nullptr ? slash + 1 : place.file) + ":" + std::to_string(place.line);
}

std::string WaitsAt(const Thread& thread) {
  std::string text = std::string(thread.what) + " at " + Where(thread.place);
  if (thread.wait == Wait::kWarp) {
    char mask[16];
    snprintf(mask, sizeof(mask), "0x%08x", thread.mask);
    text += " for lanes " + std::string(mask) + " of its warp";
  }
  return text;
}

// "threads 0-30: __syncthreads at a.cu:3; thread 31: returned"
std::string WhoWaitsWhere() {
  std::map<std::string, std::vector<int>> groups;
  for (const Thread& thread : block.threads) {
    groups[thread.wait == Wait::kDone ? "returned" : WaitsAt(thread)].push_back(thread.linear);
  }
  std::string text;
  for (const auto& [what, members] : groups) {
    std::string ranges;
    for (size_t i = 0; i < members.size();) {
      size_t last = i;
      while (last + 1 < members.size() && members[last + 1] == members[last] + 1) ++last;
      ranges += (ranges.empty() ? "" : ",") + std::to_string(members[i]);
      if (last > i) ranges += "-" + std::to_string(members[last]);
      i = last + 1;
    }
    text += (text.empty() ? "" : "; ") + std::string("thread ") + ranges + ": " + what;
  }
  return text;
}

void MakeReady(Thread* thread) {
  thread->wait = Wait::kNothing;
  ready.push_back(thread);
}

// Members come first to last; the stack's top runs next.
template <class Members>
void MakeAllReady(const Members& members) {
  if (schedule.order == Order::kReverse) {
    for (Thread* thread : members) MakeReady(thread);
  } else {
    for (auto it = members.rbegin(); it != members.rend(); ++it) MakeReady(*it);
  }
}

Thread* TakeReady() {
  if (ready.empty()) return nullptr;
  size_t chosen = ready.size() - 1;
  if (schedule.order == Order::kSeeded) {
    if (schedule.seed % 2 == 0) {
      chosen = Random() % ready.size();
    } else {
      for (size_t i = 0; i < ready.size(); ++i) {
        if (warp_rank[ready[i]->linear / 32] > warp_rank[ready[chosen]->linear / 32]) chosen = i;
      }
    }
  }
  std::swap(ready[chosen], ready.back());
  Thread* thread = ready.back();
  ready.pop_back();
  return thread;
}

// Goes on with whoever can run; with the host when nobody can.
void SwitchAway(Thread* self) {
  Thread* next = TakeReady();
  if (next == self) return;
  current = next;
  if (next != nullptr) threadIdx = next->index;
  SwitchFiber(self->fiber, next != nullptr ? next->fiber : host);
}

void ThreadMain() {
  FiberStarted();
  for (;;) {  // once a block
    Acquire(&start_token);
    body(body_self);
    Release(&end_token);
    Thread* self = current;
    DropCopies(self);
    self->wait = Wait::kDone;
    block.warps[self->linear / 32].done |= 1u << self->linear % 32;
    ++block.done;
    if (block.arrived > 0) {
      Fail(block.first_arrived->place, [&] {
        return std::string() + "__syncthreads is not reached by thread " + std::to_string(self->linear) +
               ", which returned: " + WhoWaitsWhere();
      });
    }
    SwitchAway(self);
  }
}

void RunBlock(uint3 index, size_t dynamic_shared_bytes) {
  blockIdx = index;
  const int count = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
  std::vector<Fiber*>& set = fibers.sets[(index.x + index.y + index.z) % kFiberSets];
  while (static_cast<int>(set.size()) < count) set.push_back(NewFiber(static_cast<int>(set.size()), ThreadMain));
  BeginSharedMemory(dynamic_shared_bytes);
  block.threads.resize(count);
  block.warps.assign((count + 31) / 32, {});
  block.arrived = block.done = 0;
  std::vector<Thread*> all;
  for (int i = 0; i < count; ++i) {
    Thread& thread = block.threads[i];
    thread.fiber = set[i];
    thread.linear = i;
    thread.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    thread.copies.clear();
    thread.open_group = 0;
    block.warps[i / 32].present |= 1u << i % 32;
    all.push_back(&thread);
  }
  warp_rank.resize(block.warps.size());
  for (uint32_t& rank : warp_rank) rank = static_cast<uint32_t>(Random() >> 32);
  ready.clear();
  MakeAllReady(all);
  current = TakeReady();
  threadIdx = current->index;
  Release(&start_token);
  SwitchFiber(host, current->fiber);
  if (error.empty() && block.done < count) error = "block " + Name(index) + ": deadlock: " + WhoWaitsWhere();
  const std::string outside = EndSharedMemory();
  if (error.empty() && !outside.empty()) error = "block " + Name(index) + ": " + outside;
}

std::string CheckShape(dim3 grid, dim3 shape) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || shape.x == 0 || shape.y == 0 || shape.z == 0)
    return "empty grid or block";
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) return "the grid is too large";
  if (shape.x > 1024 || shape.y > 1024 || shape.z > 64 || uint64_t{shape.x} * shape.y * shape.z > kMaxThreads) {
    return "a block may have 1024 threads";
  }
  return "";
}

// CUDA_EMU_SKIP_BARRIER and CUDA_EMU_LIST_BARRIERS (emulator.h).
struct BarrierTrial {
  std::string skipped;
  bool listing = false;
  std::set<std::string> met;
  BarrierTrial() {
    if (const char* place = getenv("CUDA_EMU_SKIP_BARRIER")) skipped = place;
    listing = getenv("CUDA_EMU_LIST_BARRIERS") != nullptr;
  }
  ~BarrierTrial() {
    for (const std::string& place : met) printf("barrier %s\n", place.c_str());
  }
} trial;

}  // namespace

bool SkipBarrier(Place place) {
  if (trial.skipped.empty() && !trial.listing) return false;
  Unjudged unjudged;
  const std::string where = Where(place);
  if (trial.listing) trial.met.insert(where);
  return where == trial.skipped;
}

uint64_t Random() {  // xorshift64*
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545f4914f6cdd1dull;
}

void SetSchedule(Schedule wanted) {
  schedule = wanted;
  random_state = wanted.seed * 0x9e3779b97f4a7c15ull + 1;
}

const std::string& LastError() { return error; }
void ClearError() { error.clear(); }
void AddToError(const std::string& text) { error += text; }

void SetError(Place place, const std::string& what) {
  Unjudged unjudged;
  error = "block " + Name(blockIdx) + ", thread " + Name(threadIdx) + ", " + Where(place) + ": " + what;
}
void Abandon() {
  for (;;) SwitchFiber(current->fiber, host);  // never resumed
}

cudaError_t Run(dim3 grid, dim3 shape, size_t dynamic_shared_bytes, void (*run_body)(void*), void* self) {
  if (!error.empty()) return cudaErrorLaunchFailure;
  error = CheckShape(grid, shape);
  if (error.empty()) error = CheckSharedSize(dynamic_shared_bytes);
  if (!error.empty()) return cudaErrorInvalidConfiguration;
  blockDim = shape;
  gridDim = grid;
  body = run_body;
  body_self = self;
  host = HostFiber();
  BeginKernelMemory();
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  std::vector<uint64_t> order(schedule.order == Order::kSeeded ? blocks : 0);
  for (uint64_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    std::swap(order[i], order[Random() % (i + 1)]);
  }
  for (uint64_t i = 0; i < blocks && error.empty(); ++i) {
    uint64_t linear = schedule.order == Order::kForward ? i : blocks - 1 - i;
    if (!order.empty()) linear = order[i];
    RunBlock({static_cast<unsigned>(linear % grid.x), static_cast<unsigned>(linear / grid.x % grid.y),
              static_cast<unsigned>(linear / grid.x / grid.y)},
             dynamic_shared_bytes);
  }
  Acquire(&end_token);
  const std::string outside = EndKernelMemory();
  if (error.empty()) error = outside;
  if (error.empty()) return cudaSuccess;
  fibers.Clear();  // suspended in the middle
  return cudaErrorLaunchFailure;
}

int Lane() { return current->linear % 32; }

void BlockBarrier(Place place) {
  if (SkipBarrier(place)) return;
  Thread* self = current;
  self->what = "__syncthreads";
  self->place = place;
  if (block.done > 0) {
    self->wait = Wait::kBlock;
    Fail(place, [&] { return std::string() + "__syncthreads after other threads returned: " + WhoWaitsWhere(); });
  }
  if (block.arrived == 0) block.first_arrived = self;
  const Place first = block.first_arrived->place;
  if (first.line != place.line || strcmp(first.file, place.file) != 0) {
    Fail(place, [&] {
      return std::string() + "__syncthreads here, while thread " + std::to_string(block.first_arrived->linear) +
             " waits at the __syncthreads of " + Where(first);
    });
  }
  void* token = &block.barrier_token[block.barrier_phase % 2];
  Release(token);
  self->wait = Wait::kBlock;
  if (++block.arrived == static_cast<int>(block.threads.size())) {
    block.arrived = 0;
    ++block.barrier_phase;
    static std::vector<Thread*> all;
    all.clear();
    for (Thread& thread : block.threads) all.push_back(&thread);
    MakeAllReady(all);
  }
  SwitchAway(self);
  Acquire(token);
}

void CheckOwnLane(unsigned mask, const char* what, Place place) {
  if ((mask >> Lane() & 1) != 0) return;
  Fail(place, [&] { return std::string(what) + ": the calling lane is not in its own mask"; });
}

// Fails for a lane of `mask` that this call cannot meet, or of whose mask this lane is, elsewhere.
void CheckMates(unsigned mask, const char* what, Place place) {
  const int lane = Lane(), first = current->linear - lane;
  const Warp& warp = block.warps[current->linear / 32];
  const auto refuse = [&](unsigned lanes, const char* why) {
    if (lanes == 0) return;
    Fail(place, [&] {
      return std::string(what) + ": the mask names lane " + std::to_string(__builtin_ctz(lanes)) + ", which " + why;
    });
  };
  refuse(mask & ~warp.present, "the block lacks");
  for (unsigned others = warp.waiting; others != 0; others &= others - 1) {
    const int i = __builtin_ctz(others);
    const Thread& other = block.threads[first + i];
    const bool shared = (mask >> i & 1) != 0 || (other.mask >> lane & 1) != 0;
    if (shared && (other.mask != mask || strcmp(other.what, what) != 0)) {
      Fail(place, [&] {
        return std::string(what) + ": lane " + std::to_string(i) + ", of one mask with this lane, waits in " +
               WaitsAt(other);
      });
    }
    if ((warp.waiting & ~mask) == 0) break;  // all of one group, which one speaks for
  }
  refuse(mask & warp.done, "returned");
}

void Rendezvous(unsigned mask, const char* what, Place place, void (*together)(Thread* const* lanes),
                bool orders_memory) {
  Thread* self = current;
  const int lane = self->linear % 32, first = self->linear - lane;
  Warp& warp = block.warps[self->linear / 32];
  CheckOwnLane(mask, what, place);
  CheckMates(mask, what, place);
  self->what = what;
  self->mask = mask;
  self->place = place;
  self->wait = Wait::kWarp;
  warp.waiting |= 1u << lane;
  Thread* leader = &block.threads[first + __builtin_ctz(mask)];
  void* token = &leader->warp_token[leader->warp_phase % 2];
  if (orders_memory) Release(token);
  if ((warp.waiting & mask) == mask) {
    Thread* lanes[32] = {};
    static std::vector<Thread*> members;
    members.clear();
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
      const int i = __builtin_ctz(rest);
      lanes[i] = &block.threads[first + i];
      members.push_back(lanes[i]);
    }
    together(lanes);
    warp.waiting &= ~mask;
    ++leader->warp_phase;
    MakeAllReady(members);
  }
  SwitchAway(self);
  if (orders_memory) Acquire(token);
}

void AtomicHappened() {
  if (schedule.order != Order::kSeeded || Random() % 4 != 0) return;
  ready.push_back(current);
  SwitchAway(current);
}

}  // namespace ablate::cuda_emu
