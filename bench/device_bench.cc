// Speed on a device, by the clock on the wall (bench/train_bench and attention_bench count CPU time of the CPU
// backend):
//   device_bench DEVICE train PRESET VARIANT LENGTH BATCH STEPS [fp32|bf16]
//   device_bench DEVICE attention VARIANT LENGTH TOKENS HEADS HEAD_DIM [fp32|bf16]
// DEVICE is cpu, cuda or cuda:N; PRESET tiny, small, gpt2-45m, gpt2-124m or gpt2-355m. VARIANT lssar has p = 15.
// A line each. FLOPs as bench/README.md counts them; utilisation only where the GPU's peak is known.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/log.h"
#include "kernels/backend.h"
#include "worker/trainer/device.h"
#include "worker/trainer/memory_plan.h"
#include "worker/trainer/model.h"
#include "worker/trainer/philox.h"

namespace ablate {
namespace {

struct Preset {
  int layers, width, heads, vocab;
};
const std::map<std::string, Preset> kPresets = {{"tiny", {4, 128, 4, 256}},
                                                {"small", {6, 384, 6, 256}},
                                                {"gpt2-45m", {6, 512, 8, 50257}},
                                                {"gpt2-124m", {12, 768, 12, 50257}},
                                                {"gpt2-355m", {24, 1024, 16, 50257}}};

// Dense bf16 tensor-core peaks of NVIDIA's data sheets, TFLOP/s; 0: not known.
double PeakTflops(const std::string& kind, Precision precision) {
  if (precision != Precision::kBf16) return 0;
  for (const auto& [name, peak] : {std::pair{"H200", 989.4},
                                   {"H100 NVL", 835.0},
                                   {"H100 PCIe", 756.0},
                                   {"H100", 989.4},
                                   {"A100", 312.0},
                                   {"L40S", 362.1}}) {
    if (absl::StrContains(kind, name)) return peak;
  }
  return 0;
}

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int Usage() {
  std::fputs(
      "usage: device_bench DEVICE train PRESET VARIANT LENGTH BATCH STEPS [fp32|bf16]\n"
      "       device_bench DEVICE attention VARIANT LENGTH TOKENS HEADS HEAD_DIM [fp32|bf16]\n",
      stderr);
  return 2;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "device_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Train(Backend* backend, const std::string& preset_name, const AttentionVariant& variant, int T, int B, int steps) {
  const Preset& preset = kPresets.at(preset_name);
  ModelConfig config;
  config.layers = preset.layers;
  config.width = preset.width;
  config.heads = preset.heads;
  config.vocab = preset.vocab;
  config.train_length = T;
  config.attention = variant.spec;
  const auto recompute = PlanTraining(backend, config, B, 1, T, Recompute::kAuto);
  if (!recompute.ok()) return Fail(recompute.status());
  const auto created = Model::Create(backend, config, *recompute);
  if (!created.ok()) return Fail(created.status());
  Model& model = **created;
  if (const absl::Status status = model.InitWeights(1); !status.ok()) return Fail(status);
  const int n = B * T;
  std::vector<int32_t> tokens(n), targets(n);
  const PhiloxStream stream(1, "bench");
  for (int i = 0; i < n; ++i) {
    const double u = stream.Uniform(i);
    tokens[i] = static_cast<int32_t>((preset.vocab - 1) * u * u);
  }
  for (int i = 0; i < n; ++i) targets[i] = tokens[(i + 1) % n];
  std::vector<double> seconds;
  double loss = 0;
  for (int step = -3; step < steps; ++step) {  // the first ones allocate, choose algorithms and record
    const double start = Now();
    const auto result = model.ForwardBackward(tokens.data(), targets.data(), B, T, 1.0 / n);
    if (!result.ok()) return Fail(result.status());
    const auto norm = model.AdamWStep({});
    if (!norm.ok()) return Fail(norm.status());
    loss = result->mean();
    if (step >= 0) seconds.push_back(Now() - start);
  }
  // 6 FLOPs a weight of a matrix and token; attention: two products forward, four backward, over half the square.
  const double L = preset.layers, d = preset.width;
  const double flops = n * (6 * (12 * L * d * d + preset.vocab * d) + 6 * L * d * T);
  const double median = Median(seconds), tflops = 1e-12 * flops / median;
  const double peak = PeakTflops(backend->device_kind(), backend->precision());
  std::printf("train %s %s %s T=%d B=%d tokens_per_second %.0f tflops %.2f", preset_name.c_str(),
              std::string(variant.name).c_str(), backend->precision() == Precision::kBf16 ? "bf16" : "float32", T, B,
              n / median, tflops);
  if (peak > 0) std::printf(" model_flops_utilisation %.3f", tflops / peak);
  std::printf(" recompute %s peak_gb %.2f loss %.4f device %s\n", *recompute == Recompute::kBlocks ? "blocks" : "none",
              1e-9 * static_cast<double>(model.peak_bytes()), loss, backend->device_kind().c_str());
  return 0;
}

int Attention(Backend* backend, const AttentionVariant& variant, int T, int tokens, int H, int D) {
  const AttentionShape shape{std::max(1, tokens / T), T, H, D, 0};
  if (const absl::Status status = backend->CheckHeadDim(D); !status.ok()) return Fail(status);
  const int64_t n = int64_t{shape.B} * T * H * D;
  std::vector<Element*> arrays;
  for (int i = 0; i < 8; ++i) {
    const auto memory = backend->Allocate(static_cast<size_t>(n) * backend->activation_bytes());
    if (!memory.ok()) return Fail(memory.status());
    arrays.push_back(static_cast<Element*>(*memory));
  }
  std::vector<float*> floats;
  for (const int64_t count : {AttentionRowStatFloats(shape), int64_t{H}, int64_t{H}, int64_t{H}, int64_t{H}}) {
    const auto memory = backend->Allocate(static_cast<size_t>(count) * sizeof(float));
    if (!memory.ok()) return Fail(memory.status());
    floats.push_back(static_cast<float*>(*memory));
  }
  // Unit-sized numbers of the backend's type; q and k as l2 normalisation leaves them.
  const PhiloxStream stream(2, "bench");
  const bool bf16 = backend->precision() == Precision::kBf16;
  for (int i = 0; i < 4; ++i) {
    std::vector<float> host(static_cast<size_t>(n));
    for (int64_t e = 0; e < n; ++e) host[e] = static_cast<float>(stream.Normal((e + i * 7919) % 100003));
    if (i < 2 && variant.spec.qk_norm == QkNorm::kL2) {
      for (int64_t row = 0; row < n; row += D) {
        double norm = 0;
        for (int e = 0; e < D; ++e) norm += host[row + e] * host[row + e];
        for (int e = 0; e < D; ++e) host[row + e] = static_cast<float>(host[row + e] / std::sqrt(norm));
      }
    }
    if (bf16) {
      std::vector<uint16_t> rounded(host.size());
      for (size_t e = 0; e < host.size(); ++e) {
        uint32_t bits;
        std::memcpy(&bits, &host[e], sizeof(bits));
        rounded[e] = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
      }
      backend->CopyToDevice(arrays[i], rounded.data(), rounded.size() * sizeof(uint16_t));
    } else {
      backend->CopyToDevice(arrays[i], host.data(), host.size() * sizeof(float));
    }
  }
  const std::vector<float> scale(H, 0.5f);
  backend->CopyToDevice(floats[1], scale.data(), sizeof(float) * H);
  float* const s = variant.spec.has_learned_scale() ? floats[1] : nullptr;
  float* const b = variant.spec.has_learned_bias() ? floats[2] : nullptr;
  float* const ds = s == nullptr ? nullptr : floats[3];
  float* const db = b == nullptr ? nullptr : floats[4];
  Element *q = arrays[0], *k = arrays[1], *v = arrays[2], *dout = arrays[3], *out = arrays[4], *dq = arrays[5],
          *dk = arrays[6], *dv = arrays[7];
  absl::Status status;
  // Seconds a call: the median of five groups that take a twentieth of a second or more.
  const auto time = [&](const std::function<void()>& work) {
    work();
    status.Update(backend->Synchronize());
    int calls = 1;
    for (std::vector<double> groups; status.ok();) {
      const double start = Now();
      for (int i = 0; i < calls; ++i) work();
      status.Update(backend->Synchronize());
      const double took = Now() - start;
      if (took < 0.05 && calls < 100000 && groups.empty()) {
        calls *= 2;
        continue;
      }
      groups.push_back(took / calls);
      if (groups.size() == 5) return Median(groups);
    }
    return 0.0;
  };
  const double forward = time([&] { backend->AttentionForward(variant.spec, shape, q, k, v, s, b, out, floats[0]); });
  const double backward = time([&] {
    backend->AttentionBackward(variant.spec, shape, q, k, v, s, b, out, dout, floats[0], dq, dk, dv, ds, db);
  });
  if (!status.ok()) return Fail(status);
  const double pairs = 0.5 * T * (T + 1.0) * H * shape.B;
  std::printf(
      "attention %s %s B=%d T=%d H=%d D=%d forward_ms %.4f tflops %.2f backward_ms %.4f tflops %.2f device %s\n",
      std::string(variant.name).c_str(), bf16 ? "bf16" : "float32", shape.B, T, H, D, 1e3 * forward,
      4e-12 * D * pairs / forward, 1e3 * backward, 10e-12 * D * pairs / backward, backend->device_kind().c_str());
  return 0;
}

int Main(std::vector<std::string> args) {
  Precision precision = Precision::kFloat32;
  if (!args.empty() && (args.back() == "bf16" || args.back() == "fp32" || args.back() == "float32")) {
    if (args.back() == "bf16") precision = Precision::kBf16;
    args.pop_back();
  }
  if (args.size() != 7) return Usage();
  const bool train = args[1] == "train";
  if (!train && args[1] != "attention") return Usage();
  const AttentionVariant* variant = FindAttentionVariant(args[train ? 3 : 2]);
  if (variant == nullptr || (train && kPresets.count(args[2]) == 0)) return Usage();
  std::vector<int> numbers;
  for (size_t i = train ? 4 : 3; i < 7; ++i) numbers.push_back(std::atoi(args[i].c_str()));
  if (*std::min_element(numbers.begin(), numbers.end()) < 1) return Usage();
  const auto device = NewDevice(args[0], {.threads = 1});
  if (!device.ok()) return Fail(device.status());
  const auto backend = (*device)->Open(precision);
  if (!backend.ok()) return Fail(backend.status());
  return train ? Train(*backend, args[2], *variant, numbers[0], numbers[1], numbers[2])
               : Attention(*backend, *variant, numbers[0], numbers[1], numbers[2], numbers[3]);
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) {
  ablate::InitLogging(argv[0]);
  return ablate::Main(std::vector<std::string>(argv + 1, argv + argc));
}
