// Collectives of a warp, the tensor-core product, and asynchronous copies, as the PTX ISA defines them.
#include <cstring>
#include <string>

#include "kernels/cuda/emulator/block.h"

namespace ablate::cuda_emu {
namespace {

bool Aligned16(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

float FloatOfBf16(uint32_t bits) {
  bits <<= 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// Rows of a[16,16], columns of b[16,8]: register r of lane (g, t) holds two neighbours (device.h).
void MultiplyTogether(Thread* const* lanes) {
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const Payload& p = lanes[lane]->payload;
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) {
      const int row = g + 8 * (r % 2), column = 2 * t + 8 * (r / 2);
      a[row][column] = FloatOfBf16(p.a[r] & 0xffff);
      a[row][column + 1] = FloatOfBf16(p.a[r] >> 16);
    }
    for (int r = 0; r < 2; ++r) {
      b[2 * t + 8 * r][g] = FloatOfBf16(p.b[r] & 0xffff);
      b[2 * t + 8 * r + 1][g] = FloatOfBf16(p.b[r] >> 16);
    }
    for (int i = 0; i < 4; ++i) c[g + 8 * (i / 2)][2 * t + i % 2] = p.c[i];
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < 8; ++n) c[row][n] = __builtin_fmaf(a[row][k], b[k][n], c[row][n]);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) lanes[lane]->payload.d[i] = c[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
  }
}

template <int kMatrices, bool kTransposed>
void LoadMatricesTogether(Thread* const* lanes) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int m = 0; m < kMatrices; ++m) {
      uint32_t halves[2];
      for (int h = 0; h < 2; ++h) {
        const int row = kTransposed ? 2 * (lane % 4) + h : lane / 4,
                  column = kTransposed ? lane / 4 : 2 * (lane % 4) + h;
        halves[h] = lanes[8 * m + row]->payload.row[column];
      }
      lanes[lane]->payload.registers[m] = halves[0] | halves[1] << 16;
    }
  }
}

void Complete(const PendingCopy& copy) {
  NoteWrite(copy.shared, 16);
  char bytes[16] = {};
  if (copy.global != nullptr) __builtin_memcpy(bytes, copy.global, 16);
  __builtin_memcpy(copy.shared, bytes, 16);
}

}  // namespace

void WarpSync(unsigned mask, Place place) {
  if (SkipBarrier(place)) return;
  Rendezvous(
      mask, "__syncwarp", place, [](Thread* const*) {}, /*orders_memory=*/true);
}

uint64_t WarpExchange(unsigned mask, uint64_t bits, int source, const char* what, Place place) {
  Thread* self = current;
  CheckOwnLane(mask, what, place);
  if (source < 0 || source > 31 || (mask >> source & 1) == 0) {
    Fail(place,
         [&] { return std::string(what) + " reads lane " + std::to_string(source) + ", which is not in its mask"; });
  }
  self->payload.bits = bits;
  self->payload.source = source;
  Rendezvous(mask, what, place, [](Thread* const* lanes) {
    uint64_t given[32];
    for (int i = 0; i < 32; ++i) given[i] = lanes[i] != nullptr ? lanes[i]->payload.bits : 0;
    const unsigned members = current->mask;
    for (int i = 0; i < 32; ++i) {
      if (members >> i & 1) lanes[i]->payload.bits = given[lanes[i]->payload.source];
    }
  });
  return self->payload.bits;
}

unsigned WarpBallot(unsigned mask, bool predicate, const char* what, Place place) {
  Thread* self = current;
  self->payload.predicate = predicate;
  Rendezvous(mask, what, place, [](Thread* const* lanes) {
    const unsigned members = current->mask;
    unsigned ballot = 0;
    for (int i = 0; i < 32; ++i) {
      if ((members >> i & 1) && lanes[i]->payload.predicate) ballot |= 1u << i;
    }
    for (int i = 0; i < 32; ++i) {
      if (members >> i & 1) lanes[i]->payload.ballot = ballot;
    }
  });
  return self->payload.ballot;
}

void Mma(float* d, const uint32_t* a, const uint32_t* b, const float* c, Place place) {
  Payload& p = current->payload;
  p.a = a, p.b = b, p.c = c, p.d = d;
  Rendezvous(0xffffffffu, "mma", place, MultiplyTogether);
}

void Ldmatrix(uint32_t* r, int matrices, bool transposed, const void* shared, Place place) {
  Payload& p = current->payload;
  p.registers = r;
  if (Lane() < 8 * matrices) {  // other lanes' addresses are not used
    if (!Aligned16(shared)) Fail(place, "ldmatrix: the address of a row is not 16-byte aligned");
    if (!IsShared(shared, 16)) Fail(place, "ldmatrix: a row is not inside one array of shared memory");
    NoteRead(shared, 16);
    __builtin_memcpy(p.row, shared, 16);
  }
  auto* together = matrices == 4 ? (transposed ? LoadMatricesTogether<4, true> : LoadMatricesTogether<4, false>)
                                 : (transposed ? LoadMatricesTogether<2, true> : LoadMatricesTogether<2, false>);
  Rendezvous(0xffffffffu,
             matrices == 4 ? (transposed ? "ldmatrix_x4_trans" : "ldmatrix_x4")
                           : (transposed ? "ldmatrix_x2_trans" : "ldmatrix_x2"),
             place, together);
}

void CopyAsync(void* shared, const void* global, bool valid, Place place) {
  if (!Aligned16(shared)) Fail(place, "cp.async: the target is not 16-byte aligned");
  if (!IsShared(shared, 16)) Fail(place, "cp.async: the target is not inside one array of shared memory");
  if (valid) {
    if (!Aligned16(global)) Fail(place, "cp.async: the source is not 16-byte aligned");
    if (!IsDevice(global, 16)) Fail(place, "cp.async: the source is not inside one array of device memory");
    NoteRead(global, 16);
  }
  NoteWrite(shared, 16);
  // The hardware may copy at any time between here and the wait: forward at the wait, in reverse at once.
  const PendingCopy copy = {shared, valid ? global : nullptr, current->open_group};
  if (schedule.order == Order::kReverse || (schedule.order == Order::kSeeded && Random() % 2 == 0)) {
    Complete(copy);
  } else {
    current->copies.push_back(copy);
  }
}

void CopyAsyncCommit() { ++current->open_group; }

// The open group is not waited for: its copies were not committed.
void CopyAsyncWait(int pending) {
  std::vector<PendingCopy>& copies = current->copies;
  size_t kept = 0;
  for (const PendingCopy& copy : copies) {
    if (copy.group < current->open_group - pending) {
      Complete(copy);
    } else {
      copies[kept++] = copy;
    }
  }
  copies.resize(kept);
}

void DropCopies(Thread* thread) { thread->copies.clear(); }

}  // namespace ablate::cuda_emu
