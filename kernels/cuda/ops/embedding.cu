// The gradient of an embedding adds up rows of one token without atomics: positions are sorted by (token, row), and the
// sorted list is cut into segments of 32 that are summed side by side. A run of one token inside a segment is added to
// the table at once; what crosses a border is kept apart and added in order by a second kernel.
//
// Cost, beside reading dout once: 8 bytes a row sorted (chunks of 1024 in shared memory, then each row finds its place
// among the others by bisection: N^2 / 1024 * 10 steps, 40 million for 64K rows) and 1/4 of dout in float32 written and
// read again at worst. All kernels together are far below one layer norm until N passes a million.
#include "kernels/cuda/ops/embedding.h"

#include "kernels/cuda/ops/vector.h"

namespace ablate::cuda {
namespace {

using Key = unsigned long long;  // token << 32 | row: all different, so any sort gives one order
constexpr Key kNoKey = ~Key{0};

constexpr int kThreads = 256;
constexpr int kChunk = 1024;
constexpr int kSortThreads = kChunk / 2;
constexpr int kSegment = 32;
constexpr int kSumThreads = 64;  // columns (or fours of them) of a block

__device__ __forceinline__ int TokenOf(Key key) { return static_cast<int>(key >> 32); }
__device__ __forceinline__ int RowOf(Key key) { return static_cast<int>(key & 0xffffffffu); }

// --- kernels ---

// out [N,C] = table[tokens[N], C]; one thread a vector of W columns.
template <int W, typename T>
__global__ void EmbeddingForwardKernel(const int32_t* tokens, const float* table, T* out, int64_t n, int C) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W;
  if (i >= n) return;
  float v[W];
  Load<W>(table + int64_t{tokens[i / C]} * C + i % C, v);
  Store<W>(out + i, v);
}

// keys [chunks][1024]: the chunk's keys in order (a bitonic network), kNoKey behind the last.
__global__ void SortChunksKernel(const int32_t* tokens, Key* keys, int N) {
  CUDA_SHARED(Key, sorted, [kChunk]);
  const int64_t first = int64_t{blockIdx.x} * kChunk;
  for (int i = static_cast<int>(threadIdx.x); i < kChunk; i += kSortThreads) {
    const int64_t row = first + i;
    sorted[i] = row < N ? static_cast<Key>(static_cast<uint32_t>(tokens[row])) << 32 | static_cast<Key>(row) : kNoKey;
  }
  __syncthreads();
  for (int size = 2; size <= kChunk; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      const int thread = static_cast<int>(threadIdx.x);
      const int low = (thread / step) * 2 * step + thread % step, high = low + step;
      const bool ascending = (low & size) == 0;
      const Key a = sorted[low], b = sorted[high];
      if ((a > b) == ascending) {
        sorted[low] = b;
        sorted[high] = a;
      }
      __syncthreads();
    }
  }
  for (int i = static_cast<int>(threadIdx.x); i < kChunk; i += kSortThreads) keys[first + i] = sorted[i];
}

// order [N]: all keys in order. A key's place is the number of smaller ones, chunk by chunk.
__global__ void MergeKernel(const Key* keys, Key* order, int chunks) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= int64_t{chunks} * kChunk) return;
  const Key key = keys[i];
  if (key == kNoKey) return;
  const int own = static_cast<int>(i / kChunk);
  int64_t place = i % kChunk;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (chunk == own) continue;
    const Key* const others = keys + int64_t{chunk} * kChunk;
    int low = 0;
    for (int step = kChunk / 2; step > 0; step /= 2) {
      if (others[low + step - 1] < key) low += step;
    }
    place += low + (others[low] < key ? 1 : 0);
  }
  order[place] = key;
}

// order [N], dout [N,C] -> dtable [V,C], and what crosses borders: borders [segments][2][C], first the sum of a run
// that began earlier, then that of one that goes on.
template <int W, typename T>
__global__ void SegmentSumKernel(const Key* order, const T* dout, float* dtable, float* borders, int N, int C) {
  const int column = (static_cast<int>(blockIdx.y) * kSumThreads + static_cast<int>(threadIdx.x)) * W;
  if (column >= C) return;
  const int64_t segment = blockIdx.x;
  const int64_t first = segment * kSegment;
  const int64_t last = first + kSegment < N ? first + kSegment : N;
  int64_t run = first;  // where the current run begins
  while (run < last) {
    const int token = TokenOf(order[run]);
    float sum[W] = {};
    int64_t at = run;
    for (; at < last && TokenOf(order[at]) == token; ++at) {
      float d[W];
      Load<W>(dout + int64_t{RowOf(order[at])} * C + column, d);
#pragma unroll
      for (int j = 0; j < W; ++j) sum[j] += d[j];
    }
    const bool began_earlier = run == first && first > 0 && TokenOf(order[first - 1]) == token;
    const bool goes_on = at == last && last < N && TokenOf(order[last]) == token;
    float* to = dtable + int64_t{token} * C + column;
    if (began_earlier || goes_on) {
      to = borders + (segment * 2 + (began_earlier ? 0 : 1)) * C + column;
    } else {
      float old[W];
      Load<W>(to, old);
#pragma unroll
      for (int j = 0; j < W; ++j) sum[j] += old[j];
    }
    Store<W>(to, sum);
    run = at;
  }
}

// The block of the segment in which a run begins that goes on adds up its pieces.
template <int W>
__global__ void BorderSumKernel(const Key* order, const float* borders, float* dtable, int N, int C) {
  const int column = (static_cast<int>(blockIdx.y) * kSumThreads + static_cast<int>(threadIdx.x)) * W;
  const int64_t segment = blockIdx.x;
  const int64_t first = segment * kSegment, last = first + kSegment;
  if (column >= C || last >= N) return;
  const int token = TokenOf(order[last - 1]);
  if (TokenOf(order[last]) != token) return;                    // none goes on
  if (first > 0 && TokenOf(order[first - 1]) == token) return;  // it began earlier
  float* const to = dtable + int64_t{token} * C + column;
  float sum[W], piece[W];
  Load<W>(to, sum);
  Load<W>(borders + (segment * 2 + 1) * C + column, piece);
#pragma unroll
  for (int j = 0; j < W; ++j) sum[j] += piece[j];
  for (int64_t next = last; next < N && TokenOf(order[next]) == token; next += kSegment) {
    Load<W>(borders + next / kSegment * 2 * C + column, piece);
#pragma unroll
    for (int j = 0; j < W; ++j) sum[j] += piece[j];
  }
  Store<W>(to, sum);
}

// --- launchers ---

struct Scratch {
  explicit Scratch(int N) : chunks(CeilDiv(N, kChunk)), segments(CeilDiv(N, kSegment)) {}
  int64_t keys_bytes() const { return chunks * kChunk * static_cast<int64_t>(sizeof(Key)); }
  int64_t chunks, segments;
};

template <int W, typename T>
void LaunchSums(cudaStream_t stream, const Key* order, const T* dout, float* dtable, float* borders, int64_t segments,
                int N, int C) {
  const dim3 grid(static_cast<unsigned>(segments), Blocks(C, kSumThreads * W));
  Launch(SegmentSumKernel<W, T>, grid, kSumThreads, 0, stream, order, dout, dtable, borders, N, C);
  Launch(BorderSumKernel<W>, grid, kSumThreads, 0, stream, order, borders, dtable, N, C);
}

}  // namespace

template <typename T>
void EmbeddingForward(cudaStream_t stream, const int32_t* tokens, const float* table, T* out, int N, int C) {
  constexpr int W = kVector<T>;
  const int64_t n = int64_t{N} * C;
  if (C % W == 0 && Aligned<W>(table, out)) {
    Launch(EmbeddingForwardKernel<W, T>, Blocks(n, kThreads * W), kThreads, 0, stream, tokens, table, out, n, C);
  } else {
    Launch(EmbeddingForwardKernel<1, T>, Blocks(n, kThreads), kThreads, 0, stream, tokens, table, out, n, C);
  }
}

int64_t EmbeddingScratchBytes(int N, int C) {
  const Scratch scratch(N);
  return 2 * scratch.keys_bytes() + scratch.segments * 2 * C * static_cast<int64_t>(sizeof(float));
}

template <typename T>
void EmbeddingBackward(cudaStream_t stream, const int32_t* tokens, const T* dout, float* dtable, void* scratch, int N,
                       int C) {
  const Scratch sizes(N);
  Key* const keys = static_cast<Key*>(scratch);
  Key* const order = keys + sizes.chunks * kChunk;
  float* const borders = reinterpret_cast<float*>(order + sizes.chunks * kChunk);
  const auto chunks = static_cast<int>(sizes.chunks);
  Launch(SortChunksKernel, static_cast<unsigned>(chunks), kSortThreads, 0, stream, tokens, keys, N);
  const Key* sorted = keys;
  if (chunks > 1) {
    Launch(MergeKernel, Blocks(sizes.chunks * kChunk, kThreads), kThreads, 0, stream, keys, order, chunks);
    sorted = order;
  }
  constexpr int W = 4;
  if (C % W == 0 && Aligned<W>(dout, dtable)) {
    LaunchSums<W>(stream, sorted, dout, dtable, borders, sizes.segments, N, C);
  } else {
    LaunchSums<1>(stream, sorted, dout, dtable, borders, sizes.segments, N, C);
  }
}

template void EmbeddingForward<float>(cudaStream_t, const int32_t*, const float*, float*, int, int);
template void EmbeddingForward<bf16>(cudaStream_t, const int32_t*, const float*, bf16*, int, int);
template void EmbeddingBackward<float>(cudaStream_t, const int32_t*, const float*, float*, void*, int, int);
template void EmbeddingBackward<bf16>(cudaStream_t, const int32_t*, const bf16*, float*, void*, int, int);

}  // namespace ablate::cuda
