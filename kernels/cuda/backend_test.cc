// The CUDA backend on the emulator: memory and its limit, copies, recordings, the rounded twins of weights, failures,
// and that each op reaches its kernel (the kernels have tests of their own).
#include "kernels/cuda/backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/ops/testing.h"
#include "kernels/reference/ops.h"

namespace ablate::cuda {
namespace {

using testing::HasSubstr;

std::unique_ptr<Backend> Make(Precision precision = Precision::kFloat32, int64_t limit = 0, bool reuse = false) {
  BackendOptions options;
  options.precision = precision;
  options.memory_limit_bytes = limit;
  options.device_name = "emulated";
  options.reuse_memory = reuse;
  auto backend = NewBackend(options, NewPlainGemm);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

template <class T>
T* Device(Backend& backend, const std::vector<T>& values) {
  auto memory = backend.Allocate(values.size() * sizeof(T));
  EXPECT_TRUE(memory.ok()) << memory.status();
  backend.CopyToDevice(*memory, values.data(), values.size() * sizeof(T));
  return static_cast<T*>(*memory);
}
template <class T>
std::vector<T> Host(Backend& backend, const T* memory, int64_t count) {
  std::vector<T> values(count);
  backend.CopyToHost(values.data(), memory, sizeof(T) * count);
  EXPECT_TRUE(backend.Synchronize().ok());
  return values;
}

// Activations: given and taken as floats, whatever the backend keeps.
Element* Activations(Backend& backend, const Floats& values) {
  if (backend.precision() == Precision::kFloat32) return reinterpret_cast<Element*>(Device(backend, values));
  std::vector<bf16> rounded;
  for (const float value : values) rounded.push_back(ToBf16(value));
  return reinterpret_cast<Element*>(Device(backend, rounded));
}
Floats FromActivations(Backend& backend, const Element* memory, int64_t count) {
  if (backend.precision() == Precision::kFloat32) return Host(backend, reinterpret_cast<const float*>(memory), count);
  return AsFloats(Host(backend, reinterpret_cast<const bf16*>(memory), count));
}

TEST(CudaBackendTest, NamesItself) {
  const auto backend = Make();
  EXPECT_EQ(backend->device_class(), "cuda");
  EXPECT_EQ(backend->device_kind(), "cuda/emulated/plain");
  EXPECT_EQ(backend->activation_bytes(), 4);
  EXPECT_EQ(Make(Precision::kBf16)->activation_bytes(), 2);
  EXPECT_EQ(backend->LogitStride(256), 256);
  EXPECT_EQ(backend->LogitStride(50257), 50272);
  EXPECT_EQ(Make(Precision::kBf16)->LogitStride(50257), 50304);
  EXPECT_TRUE(backend->CheckHeadDim(64).ok());
  const absl::Status refused = backend->CheckHeadDim(1000);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("multiples of"));
}

TEST(CudaBackendTest, GivesAlignedZeroedMemoryWithinItsLimit) {
  const size_t before = cuda_emu::DeviceMemoryInUse();
  for (const bool reuse : {false, true}) {
    const auto backend = Make(Precision::kFloat32, int64_t{8} << 20, reuse);
    const int64_t free = backend->FreeBytes();
    EXPECT_LT(free, int64_t{8} << 20);
    EXPECT_GT(free, int64_t{7} << 20);
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{5} << 20}) {
      auto memory = backend->Allocate(bytes);
      ASSERT_TRUE(memory.ok());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 64, 0u);
      const auto values = Host(*backend, static_cast<const char*>(*memory), static_cast<int64_t>(bytes));
      EXPECT_EQ(std::count(values.begin(), values.end(), 0), static_cast<int64_t>(bytes));
      // Whoever comes next must not see this.
      const std::vector<char> ones(bytes, 1);
      backend->CopyToDevice(*memory, ones.data(), bytes);
      backend->Free(*memory);
      EXPECT_EQ(backend->FreeBytes(), free);
    }
    const absl::Status refused = backend->Allocate(size_t{9} << 20).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("use a smaller batch"));
    EXPECT_EQ(backend->Allocate(std::numeric_limits<size_t>::max() / 2).status().code(),
              absl::StatusCode::kResourceExhausted);
    // Kept blocks of other sizes make room.
    auto small = backend->Allocate(size_t{3} << 20);
    ASSERT_TRUE(small.ok());
    backend->Free(*small);
    auto large = backend->Allocate(size_t{7} << 20);
    EXPECT_TRUE(large.ok()) << large.status();
    EXPECT_TRUE(backend->Synchronize().ok());
  }
  EXPECT_EQ(cuda_emu::DeviceMemoryInUse(), before);
}

TEST(CudaBackendTest, DeviceMemoryThatRunsOutIsResourceExhausted) {
  cuda_emu::SetDeviceMemory(size_t{4} << 20);
  {
    const auto backend = Make(Precision::kFloat32, 0, true);
    EXPECT_LE(backend->FreeBytes(), int64_t{4} << 20);
    EXPECT_EQ(backend->Allocate(size_t{5} << 20).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(backend->Allocate(size_t{3} << 20).ok());
    // A workspace that does not fit shows in Synchronize, once.
    const int N = 40000, C = 16;
    Element* none = nullptr;
    backend->EmbeddingBackward(nullptr, none, nullptr, N, C, 1);
    const absl::Status failed = backend->Synchronize();
    EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted) << failed;
    EXPECT_TRUE(backend->Synchronize().ok());
  }
  cuda_emu::SetDeviceMemory(size_t{1} << 30);
}

TEST(CudaBackendTest, CopiesOfEverySizeArrive) {
  const auto backend = Make();
  // Up to several blocks of pinned memory.
  for (const int64_t n : {int64_t{1}, int64_t{1000}, int64_t{(4 << 20) / 4}, int64_t{(9 << 20) / 4 + 1}}) {
    std::vector<int32_t> values(n);
    for (int64_t i = 0; i < n; ++i) values[i] = static_cast<int32_t>(i * 2654435761u);
    const std::vector<int32_t> sent = values;
    auto memory = backend->Allocate(n * 4);
    ASSERT_TRUE(memory.ok());
    backend->CopyToDevice(*memory, values.data(), n * 4);
    std::fill(values.begin(), values.end(), 0);  // the source is free at once
    EXPECT_EQ(Host(*backend, static_cast<const int32_t*>(*memory), n), sent);
    backend->Zero(*memory, n * 4);
    EXPECT_EQ(Host(*backend, static_cast<const int32_t*>(*memory), n), values);
    backend->Free(*memory);
  }
}

TEST(CudaBackendTest, AFailedKernelIsReportedOnceWithFileAndLine) {
  const auto backend = Make();
  const Floats x(8);
  Element* on_device = Activations(*backend, x);
  // More blocks than a launch may have.
  backend->Add(on_device, on_device, on_device, int64_t{1} << 45);
  const absl::Status failed = backend->Synchronize();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("elementwise.cu:"));
  EXPECT_THAT(std::string(failed.message()), HasSubstr("BinaryKernel"));
  EXPECT_TRUE(backend->Synchronize().ok());
  backend->Add(on_device, on_device, on_device, 8);
  EXPECT_TRUE(backend->Synchronize().ok());
}

// --- Repeat ---

class RepeatTest : public testing::TestWithParam<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, RepeatTest, testing::Values(Precision::kFloat32, Precision::kBf16),
                         [](const auto& info) { return info.param == Precision::kBf16 ? "bf16" : "float32"; });

// A small step, run plainly, recorded and replayed, with inputs and weights that change between: always what a backend
// that never repeats computes.
TEST_P(RepeatTest, AReplayComputesWithTheInputsAndWeightsOfItsTime) {
  const int N = 9, I = 5, O = 7, V = 11;
  const auto repeating = Make(GetParam()), plain = Make(GetParam());
  struct State {
    int32_t *tokens, *targets;
    float *w, *m, *v, *dw, *table, *losses;
    Element *x, *out, *logits, *dx;
  };
  const auto make = [&](Backend& b) {
    State s;
    s.tokens = Device(b, Tokens(N, V, 1));
    s.targets = Device(b, Tokens(N, V, 2));
    s.w = Device(b, Values<float>(I * O + V * O, 1));  // w [O,I], then the head [V,O]
    s.m = Device(b, Floats(I * O + V * O));
    s.v = Device(b, Floats(I * O + V * O));
    s.dw = Device(b, Floats(I * O + V * O));
    s.table = Device(b, Values<float>(V * I, 2));
    s.losses = Device(b, Floats(N));
    s.x = Activations(b, Floats(N * I));
    s.out = Activations(b, Floats(N * O));
    s.logits = Activations(b, Floats(N * b.LogitStride(V)));
    s.dx = Activations(b, Floats(N * O));
    return s;
  };
  const State a = make(*repeating), p = make(*plain);
  const auto work = [&](Backend& b, const State& s) {
    b.EmbeddingForward(s.tokens, s.table, s.x, N, I);
    b.LinearForward(s.x, s.w, nullptr, s.out, N, I, O);
    b.LogitsForward(s.out, s.w + I * O, s.logits, N, O, V);
    b.CrossEntropyForwardBackward(s.logits, s.targets, s.losses, 1.0f / N, N, V);
    b.Zero(s.dw, sizeof(float) * (I * O + V * O));
    b.LogitsBackward(s.logits, s.out, s.w + I * O, s.dx, s.dw + I * O, N, O, V);
    b.LinearBackward(s.dx, s.x, s.w, nullptr, s.dw, nullptr, N, I, O);
    b.EmbeddingBackward(s.tokens, s.x, s.table, N, I, V);
  };
  AdamWParams adam;
  adam.learning_rate = 0.1f;
  int runs = 0;
  for (int step = 1; step <= 5; ++step) {
    adam.step = step;
    const std::vector<int32_t> tokens = Tokens(N, V, step);
    for (const bool repeats : {true, false}) {
      Backend& b = repeats ? *repeating : *plain;
      const State& s = repeats ? a : p;
      b.CopyToDevice(s.tokens, tokens.data(), sizeof(int32_t) * N);
      if (repeats) {
        b.Repeat(7, [&] {
          work(b, s);
          ++runs;
        });
      } else {
        work(b, s);
      }
      b.AdamW(s.w, s.dw, s.m, s.v, I * O + V * O, adam);
      if (step == 4) {  // weights from elsewhere: a checkpoint
        const Floats w = Values<float>(I * O + V * O, 9);
        b.CopyToDevice(s.w, w.data(), sizeof(float) * w.size());
      }
    }
    EXPECT_EQ(Host(*repeating, a.losses, N), Host(*plain, p.losses, N)) << "step " << step;
    EXPECT_EQ(Host(*repeating, a.w, I * O + V * O), Host(*plain, p.w, I * O + V * O)) << "step " << step;
    EXPECT_EQ(Host(*repeating, a.table, V * I), Host(*plain, p.table, V * I)) << "step " << step;
  }
  EXPECT_EQ(runs, 2);  // plainly, and to be recorded
}

// After Free a key may stand for other work: addresses are given anew.
TEST_P(RepeatTest, FreeForgetsRecordings) {
  const auto backend = Make(GetParam());
  Element* a = Activations(*backend, Floats(16, 1.0f));
  Element* b = Activations(*backend, Floats(16, 0.0f));
  for (int i = 0; i < 3; ++i) backend->Repeat(1, [&] { backend->Add(a, a, b, 16); });
  EXPECT_EQ(FromActivations(*backend, b, 16), Floats(16, 2.0f));
  backend->Free(a);
  Element* c = Activations(*backend, Floats(16, 5.0f));
  for (int i = 0; i < 3; ++i) backend->Repeat(1, [&] { backend->Add(c, c, b, 16); });
  EXPECT_EQ(FromActivations(*backend, b, 16), Floats(16, 10.0f));
}

// A workspace that grows after a recording was made moves; the recording must not write where it was.
TEST_P(RepeatTest, AWorkspaceThatGrowsLeavesNoOldRecording) {
  const auto backend = Make(GetParam());
  const int V = 3, C = 4, small = 40, large = 40000;
  const auto tokens = Tokens(large, V, 1);
  int32_t* dev_tokens = Device(*backend, tokens);
  Element* dout = Activations(*backend, Floats(int64_t{large} * C, 1.0f));
  float* table = Device(*backend, Floats(V * C));
  for (int i = 0; i < 3; ++i) {
    backend->Repeat(1, [&] { backend->EmbeddingBackward(dev_tokens, dout, table, small, C, V); });
  }
  if (GetParam() == Precision::kFloat32) {
    backend->Repeat(2, [&] { backend->EmbeddingBackward(dev_tokens, dout, table, large, C, V); });
  } else {
    backend->EmbeddingBackward(dev_tokens, dout, table, large, C, V);
  }
  for (int i = 0; i < 3; ++i) {
    backend->Repeat(1, [&] { backend->EmbeddingBackward(dev_tokens, dout, table, small, C, V); });
  }
  Doubles want(V * C);
  for (int i = 0; i < large; ++i) want[tokens[i] * C] += i < small ? 7 : 1;
  const Floats got = Host(*backend, table, V * C);
  for (int v = 0; v < V; ++v) EXPECT_EQ(got[v * C], want[v * C]);
}

using RepeatDeathTest = RepeatTest;
INSTANTIATE_TEST_SUITE_P(Precisions, RepeatDeathTest, testing::Values(Precision::kFloat32));

TEST_P(RepeatDeathTest, WhatTheWorkMustNotDoIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto backend = Make(GetParam());
  Element *x = Activations(*backend, Floats(8)), *y = Activations(*backend, Floats(8));
  int32_t host = 0;
  EXPECT_DEATH(backend->Repeat(1, [&] { backend->CopyToHost(&host, x, 4); }), "CopyToHost inside the work of Repeat");
  EXPECT_DEATH(backend->Repeat(1, [&] { backend->CopyToDevice(x, &host, 4); }), "inside the work of Repeat");
  EXPECT_DEATH(backend->Repeat(1, [&] { backend->SumOfSquares(reinterpret_cast<float*>(x), 8); }), "SumOfSquares");
  EXPECT_DEATH(backend->Repeat(1, [&] { backend->TakeAttentionCounts(); }), "TakeAttentionCounts");
  EXPECT_DEATH(backend->Repeat(1, [&] { (void)backend->Synchronize(); }), "Synchronize");
  backend->Repeat(1, [&] { backend->Add(x, x, x, 8); });
  EXPECT_DEATH(backend->Repeat(1, [&] { backend->Add(x, x, x, 7); }), "other work for the same key");
  // The member of the family is part of the work.
  AttentionSpec spec;
  const auto attend = [&] { backend->AttentionForward(spec, {1, 1, 1, 8}, x, x, x, nullptr, nullptr, y, nullptr); };
  backend->Repeat(2, attend);
  spec.activation = Activation::kSoftplus;
  EXPECT_DEATH(backend->Repeat(2, attend), "other work for the same key");
}

// --- products and weights ---

class ProductTest : public RepeatTest {};
INSTANTIATE_TEST_SUITE_P(Precisions, ProductTest, testing::Values(Precision::kFloat32, Precision::kBf16),
                         [](const auto& info) { return info.param == Precision::kBf16 ? "bf16" : "float32"; });

TEST_P(ProductTest, LinearAndLogits) {
  const bool is_bf16 = GetParam() == Precision::kBf16;
  const auto rounded = [&](Floats values) {
    if (is_bf16) {
      for (float& e : values) e = ToFloat(ToBf16(e));
    }
    return values;
  };
  const auto wide = [](const Floats& x) { return Doubles(x.begin(), x.end()); };
  const auto close = [&](const Floats& got, const Doubles& want, const char* what) {
    if (is_bf16) {
      ExpectClose<bf16>(got, want, 1e-5, what);
    } else {
      ExpectClose<float>(got, want, 1e-5, what);
    }
  };
  for (const auto& [N, I, O] : {std::array{1, 1, 1}, {7, 5, 3}, {67, 33, 70}}) {
    const auto backend = Make(GetParam());
    const int64_t no = int64_t{N} * O, ni = int64_t{N} * I, oi = int64_t{O} * I;
    const Floats x = rounded(Values<float>(ni, 1)), w = Values<float>(oi, 2), b = Values<float>(O, 3),
                 dout = rounded(Values<float>(no, 4)), dw0 = Values<float>(oi, 5), db0 = Values<float>(O, 6);
    Element *dev_x = Activations(*backend, x), *dev_dout = Activations(*backend, dout),
            *out = Activations(*backend, Floats(no)), *dx = Activations(*backend, Floats(ni));
    float *dev_w = Device(*backend, w), *dev_b = Device(*backend, b), *dw = Device(*backend, dw0),
          *db = Device(*backend, db0);
    backend->LinearForward(dev_x, dev_w, dev_b, out, N, I, O);
    backend->LinearBackward(dev_dout, dev_x, dev_w, dx, dw, db, N, I, O);
    // Weights are read rounded.
    const Doubles wr = wide(rounded(w)), br = wide(rounded(b));
    Doubles want_out(no), want_dx(ni), want_dw = wide(dw0), want_db = wide(db0);
    reference::LinearForward(wide(x).data(), wr.data(), br.data(), want_out.data(), N, I, O);
    reference::LinearBackward(wide(dout).data(), wide(x).data(), wr.data(), want_dx.data(), want_dw.data(),
                              want_db.data(), N, I, O);
    close(FromActivations(*backend, out, no), want_out, "out");
    close(FromActivations(*backend, dx, ni), want_dx, "dx");
    ExpectClose<float>(Host(*backend, dw, oi), want_dw, 1e-5, "dw");
    ExpectClose<float>(Host(*backend, db, O), want_db, 1e-5, "db");

    // The same as logits: rows LogitStride apart.
    const int stride = static_cast<int>(backend->LogitStride(O));
    Floats spread(int64_t{N} * stride, 55.0f);
    for (int64_t i = 0; i < no; ++i) spread[i / O * stride + i % O] = dout[i];
    Element *logits = Activations(*backend, Floats(int64_t{N} * stride)), *dlogits = Activations(*backend, spread);
    float* dw2 = Device(*backend, dw0);
    backend->LogitsForward(dev_x, dev_w, logits, N, I, O);
    backend->LogitsBackward(dlogits, dev_x, dev_w, dx, dw2, N, I, O);
    reference::LinearForward(wide(x).data(), wr.data(), nullptr, want_out.data(), N, I, O);
    const Floats rows = FromActivations(*backend, logits, int64_t{N} * stride);
    Floats got(no);
    for (int64_t i = 0; i < no; ++i) got[i] = rows[i / O * stride + i % O];
    close(got, want_out, "logits");
    close(FromActivations(*backend, dx, ni), want_dx, "dx of logits");
    ExpectClose<float>(Host(*backend, dw2, oi), want_dw, 1e-5, "dw of logits");
    // Without a dx.
    float* dw3 = Device(*backend, dw0);
    backend->LinearBackward(dev_dout, dev_x, dev_w, nullptr, dw3, nullptr, N, I, O);
    EXPECT_EQ(Host(*backend, dw3, oi), Host(*backend, dw, oi));
  }
}

// A product must see every kind of write to its weights at once.
TEST_P(ProductTest, WeightsAreReadAsTheyAreNow) {
  const auto backend = Make(GetParam());
  const int N = 2, I = 3, O = 4;
  Element *x = Activations(*backend, Floats(N * I, 1.0f)), *out = Activations(*backend, Floats(N * O));
  float *w = Device(*backend, Floats(O * I, 1.0f)), *g = Device(*backend, Floats(O * I, 1.0f)),
        *m = Device(*backend, Floats(O * I)), *v = Device(*backend, Floats(O * I));
  const auto first = [&] {
    backend->LinearForward(x, w, nullptr, out, N, I, O);
    return FromActivations(*backend, out, 1)[0];
  };
  EXPECT_EQ(first(), 3.0f);
  const Floats twos(O * I, 2.0f);
  backend->CopyToDevice(w, twos.data(), sizeof(float) * O * I);
  EXPECT_EQ(first(), 6.0f);
  AdamWParams adam;
  adam.learning_rate = 1.0f;
  backend->AdamW(w, g, m, v, O * I, adam);  // a step of 1
  EXPECT_NEAR(first(), 3.0f, 1e-2);
  backend->LinearBackward(out, x, w, nullptr, w, nullptr, N, I, O);  // weights as somebody's gradient
  const float sum = first();
  const Floats now = Host(*backend, w, O * I);
  EXPECT_NEAR(sum, now[0] + now[1] + now[2], 0.05 * sum);
  EXPECT_GT(sum, 10.0f);
  backend->Zero(w, sizeof(float) * O * I);
  EXPECT_EQ(first(), 0.0f);
  // A part of a block.
  backend->AdamW(w + 1, g, m, v, 2, adam);
  EXPECT_LT(first(), -1.0f);
}

TEST_P(ProductTest, WorkspaceIsWithinWhatWasSaid) {
  const auto backend = Make(GetParam());
  const AttentionShape shape{2, 300, 2, 16, 0};
  const int N = shape.B * shape.T, C = shape.H * shape.D, V = 5;
  int32_t* tokens = Device(*backend, Tokens(N, V, 1));
  Element *x = Activations(*backend, Values<float>(int64_t{N} * 4 * C, 1)),
          *dx = Activations(*backend, Floats(int64_t{N} * 4 * C));
  float *w = Device(*backend, Values<float>(4 * C * C, 2)), *dw = Device(*backend, Floats(4 * C * C)),
        *b = Device(*backend, Floats(4 * C)), *mean = Device(*backend, Floats(N)), *rstd = Device(*backend, Floats(N)),
        *table = Device(*backend, Floats(V * C));
  EXPECT_EQ(backend->WorkspaceBytes(shape, V, false), 0);
  const int64_t said = backend->WorkspaceBytes(shape, V, true), free = backend->FreeBytes();
  EXPECT_GT(said, 0);
  backend->EmbeddingBackward(tokens, x, table, N, C, V);
  backend->LayerNormForward(x, w, w, dx, mean, rstd, N, C);
  backend->LayerNormBackward(x, x, w, mean, rstd, dx, b, b, N, C);
  backend->LinearBackward(x, dx, w, nullptr, dw, b, N, C, 4 * C);
  EXPECT_TRUE(backend->Synchronize().ok());
  EXPECT_GE(backend->FreeBytes(), free - said);
  EXPECT_LE(backend->WorkspaceBytes(shape, V, true), said);
}

// --- the rest of the ops, through the interface ---

TEST_P(ProductTest, OpsReachTheirKernels) {
  const auto backend = Make(GetParam());
  const int N = 6, C = 8, V = 5;
  const Floats ones(N * C, 1.0f);
  Element *x = Activations(*backend, ones), *y = Activations(*backend, Floats(N * C)),
          *logits = Activations(*backend, Floats(N * backend->LogitStride(V)));
  int32_t *tokens = Device(*backend, std::vector<int32_t>{0, 1, 2, 1, 1, 4}),
          *targets = Device(*backend, std::vector<int32_t>{0, 1, -1, 3, 4, 0});
  float *table = Device(*backend, Values<float>(V * C, 1)), *dtable = Device(*backend, Floats(V * C)),
        *losses = Device(*backend, Floats(N)), *mean = Device(*backend, Floats(N)), *rstd = Device(*backend, Floats(N)),
        *w = Device(*backend, Floats(C, 2.0f)), *b = Device(*backend, Floats(C, 0.5f)),
        *dw = Device(*backend, Floats(C)), *db = Device(*backend, Floats(C));
  backend->Add(x, x, y, N * C);
  EXPECT_EQ(FromActivations(*backend, y, N * C), Floats(N * C, 2.0f));
  backend->GeluForward(x, y, N * C);
  EXPECT_NEAR(FromActivations(*backend, y, 1)[0], 0.841192, 4e-3);
  backend->GeluBackward(x, x, y, N * C);
  EXPECT_NEAR(FromActivations(*backend, y, 1)[0], 1.082964, 5e-3);
  backend->LayerNormForward(x, w, b, y, mean, rstd, N, C);
  EXPECT_EQ(FromActivations(*backend, y, N * C), Floats(N * C, 0.5f));  // rows without spread
  EXPECT_EQ(Host(*backend, mean, N), Floats(N, 1.0f));
  backend->LayerNormBackward(x, x, w, mean, rstd, y, dw, db, N, C);
  EXPECT_EQ(Host(*backend, db, C), Floats(C, 6.0f));
  backend->EmbeddingBackward(tokens, x, dtable, N, C, V);
  const Floats rows = Host(*backend, dtable, V * C);
  EXPECT_EQ(rows[0], 1.0f);
  EXPECT_EQ(rows[C], 3.0f);
  EXPECT_EQ(rows[3 * C], 0.0f);
  backend->EmbeddingForward(tokens, table, y, N, C);
  EXPECT_NEAR(FromActivations(*backend, y, N * C)[5 * C], Values<float>(V * C, 1)[4 * C], 4e-3);
  backend->CrossEntropyForward(logits, targets, losses, N, V);
  const Floats flat = Host(*backend, losses, N);
  EXPECT_NEAR(flat[0], std::log(5.0f), 1e-6);
  EXPECT_EQ(flat[2], 0.0f);
  backend->CrossEntropyForwardBackward(logits, targets, losses, 1.0f, N, V);
  EXPECT_NEAR(FromActivations(*backend, logits, 1)[0], 0.2f - 1.0f, 4e-3);
  EXPECT_EQ(backend->SumOfSquares(w, C), 32.0);
  const AttentionCounts counts = backend->TakeAttentionCounts();
  EXPECT_EQ(counts.zero_rows + counts.uncontrasted_rows, 0);
  EXPECT_TRUE(backend->Synchronize().ok());
}

// From the cache, position by position, what the whole sequence gives: a tensor core rounds weights to bf16, decode does
// not.
TEST_P(ProductTest, GenerationAndStatistics) {
  const auto backend = Make(GetParam());
  const AttentionShape shape{2, 37, 2, 16, 0};
  const int C = shape.H * shape.D, capacity = 40, prompt = 33;
  const int64_t n = int64_t{shape.B} * shape.T * C, row_floats = shape.B * 3 * C;
  const Floats packed = Values<float>(3 * n, 4, 2.0);
  Doubles cos(shape.T * shape.D / 2), sin(cos.size());
  reference::RopeTable(10000, shape.T, shape.D, cos.data(), sin.data());
  float *c = Device(*backend, Floats(cos.begin(), cos.end())), *s = Device(*backend, Floats(sin.begin(), sin.end())),
        *q_norm = Device(*backend, Floats(n)), *k_norm = Device(*backend, Floats(n)),
        *statistics = Device(*backend, Floats(n / shape.D * kAttentionStatistics));
  const auto zeros = [&](int64_t count) { return Activations(*backend, Floats(count)); };
  Element *qkv = Activations(*backend, packed), *q = zeros(n), *k = zeros(n), *v = zeros(n), *out = zeros(n),
          *keys = zeros(int64_t{shape.B} * C * capacity), *values = zeros(int64_t{shape.B} * C * capacity);
  const AttentionSpec spec = FindAttentionVariant("lssar")->spec;
  backend->QkvForward(qkv, c, s, spec.qk_norm, q, k, v, q_norm, k_norm, shape);
  backend->AttentionForward(spec, shape, q, k, v, nullptr, nullptr, out, nullptr);
  const Floats whole = FromActivations(*backend, out, n);
  backend->TakeAttentionCounts();
  backend->CacheKeyValue(qkv, keys, values, shape, capacity);
  for (int t = prompt; t < shape.T; ++t) {
    Floats rows;
    for (int b = 0; b < shape.B; ++b) {
      const auto from = packed.begin() + (int64_t{b} * shape.T + t) * 3 * C;
      rows.insert(rows.end(), from, from + 3 * C);
    }
    ASSERT_EQ(static_cast<int64_t>(rows.size()), row_floats);
    AttentionShape now = shape;
    now.T = t + 1;
    const std::vector<int32_t> lengths(shape.B, t + 1);
    Element* const one = Activations(*backend, rows);
    Element* const row = zeros(shape.B * C);
    backend->AttentionDecode(spec, now, capacity, t % 2 == 0 ? nullptr : Device(*backend, lengths), one, c, s, nullptr,
                             nullptr, keys, values, row);
    const Floats got = FromActivations(*backend, row, shape.B * C);
    for (int i = 0; i < shape.B * C; ++i) {
      EXPECT_NEAR(got[i], whole[(int64_t{i} / C * shape.T + t) * C + i % C],
                  GetParam() == Precision::kBf16 ? 0.03 : 1e-4);
    }
  }
  backend->AttentionStatistics(spec, shape, q, k, nullptr, nullptr, statistics);
  const Floats rows = Host(*backend, statistics, n / shape.D * kAttentionStatistics);
  EXPECT_NEAR(rows[kRowFirst], 1, 1e-6);  // of the first row
  EXPECT_NEAR(rows[kRowEntropy], 0, 1e-6);
  for (size_t i = 0; i < rows.size(); i += kAttentionStatistics) {
    EXPECT_LE(rows[i + kRowFirst], rows[i + kRowLargest] + 1e-6f);
    EXPECT_LE(rows[i + kRowEntropy], std::log(shape.T) + 1e-6);
    EXPECT_LT(rows[i + kRowZeros], 1);
  }
  const AttentionCounts counts = backend->TakeAttentionCounts();
  EXPECT_EQ(counts.zero_rows + counts.uncontrasted_rows, 0);

  const int V = 5;
  const int64_t stride = backend->LogitStride(V);
  Floats logits(2 * stride, 9.0f);
  for (int i = 0; i < V; ++i) logits[i] = i == 3 ? 2.0f : 1.0f, logits[stride + i] = -1.0f;
  int32_t* const best = Device(*backend, std::vector<int32_t>{-1, -1});
  backend->ArgMax(Activations(*backend, logits), best, 2, V);
  EXPECT_EQ(Host(*backend, best, 2), (std::vector<int32_t>{3, 0}));
  EXPECT_TRUE(backend->Synchronize().ok());
}

// Rows 0 to 2 of lssar are free of the offset; equal keys leave the others without contrast.
TEST(CudaBackendTest, CountsSpecialRowsUntilTheyAreTaken) {
  const auto backend = Make();
  const AttentionShape shape{1, 6, 2, 8, 0};
  const int64_t n = int64_t{shape.B} * shape.T * shape.H * shape.D;
  Element *q = Activations(*backend, Floats(n, 1.0f)), *out = Activations(*backend, Floats(n));
  const AttentionSpec spec = FindAttentionVariant("lssar")->spec;
  for (int call = 0; call < 2; ++call) backend->AttentionForward(spec, shape, q, q, q, nullptr, nullptr, out, nullptr);
  EXPECT_EQ(backend->TakeAttentionCounts().uncontrasted_rows, 2 * 2 * 3);
  EXPECT_EQ(backend->TakeAttentionCounts().uncontrasted_rows, 0);
  EXPECT_TRUE(backend->Synchronize().ok());
}

}  // namespace
}  // namespace ablate::cuda
