// The model's promises beside its numbers (golden_check has those): names, initial weights, bits, accumulation, errors,
// memory.
#include "worker/trainer/model.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "kernels/forwarding_backend.h"

namespace ablate {
namespace {

using Floats = std::vector<float>;

std::unique_ptr<Backend> Cpu(int threads = 1) {
  auto backend = NewCpuBackend(threads);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

ModelConfig Small(const char* variant = "softmax") {
  ModelConfig config;
  config.layers = 2;
  config.width = 24;
  config.heads = 3;
  config.vocab = 37;
  config.train_length = 16;
  config.attention = FindAttentionVariant(variant)->spec;
  return config;
}

std::unique_ptr<Model> Make(Backend* backend, const ModelConfig& config, uint64_t seed = 1) {
  auto model = Model::Create(backend, config);
  EXPECT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->InitWeights(seed).ok());
  return *std::move(model);
}

struct Batch {
  std::vector<int32_t> tokens, targets;
};
Batch MakeBatch(int n, int vocab, int salt = 0) {
  Batch batch;
  for (int i = 0; i < n; ++i) batch.tokens.push_back((i * i * 13 + i * 7 + salt * 31) % vocab);
  for (int i = 0; i < n; ++i) batch.targets.push_back((i * 5 + i / 3 + salt) % vocab);
  return batch;
}

Floats Read(Model& model, StateKind kind, int index) {
  Floats out(model.parameters()[index].count);
  EXPECT_TRUE(model.ReadState(kind, index, out.data()).ok());
  return out;
}
Floats ReadAll(Model& model, StateKind kind) {
  Floats all;
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    const Floats part = Read(model, kind, static_cast<int>(i));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}
bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), sizeof(float) * a.size()) == 0;
}

TEST(ModelTest, NamesAndShapesOfTheParameterTable) {
  auto backend = Cpu();
  ModelConfig config = Small("ssmax_bias");
  config.position = PositionKind::kLearned;
  const auto model = Make(backend.get(), config);
  std::string text;
  for (const ParameterInfo& info : model->parameters()) {
    if (info.name.rfind("h1.", 0) == 0) continue;
    text += info.name + " ";
    for (const int64_t extent : info.shape) text += std::to_string(extent) + " ";
    text += info.decay ? "decay\n" : "\n";
    EXPECT_EQ(info.offset % 16, 0);
  }
  EXPECT_EQ(text,
            "wte 37 24 decay\nwpe 16 24 decay\nh0.ln1.w 24 \nh0.ln1.b 24 \nh0.qkv.w 72 24 decay\nh0.qkv.b 72 \n"
            "h0.ssmax.s 3 \nh0.ssmax.b 3 \nh0.proj.w 24 24 decay\nh0.proj.b 24 \nh0.ln2.w 24 \nh0.ln2.b 24 \n"
            "h0.fc.w 96 24 decay\nh0.fc.b 96 \nh0.fcproj.w 24 96 decay\nh0.fcproj.b 24 \nlnf.w 24 \nlnf.b 24 \n");
  EXPECT_GE(model->FindParameter("h1.ssmax.s"), 0);
  EXPECT_EQ(model->FindParameter("h2.ssmax.s"), -1);
}

TEST(ModelTest, InitialWeightsBelongToNamesAndFollowGpt2) {
  auto backend = Cpu();
  ModelConfig config = Small("ssmax");
  config.width = 96;
  config.ssmax_s = 0.5f;
  const auto ssmax = Make(backend.get(), config, 7);
  config.attention = FindAttentionVariant("lssar")->spec;
  config.position = PositionKind::kLearned;
  const auto lssar = Make(backend.get(), config, 7);
  const auto other_seed = Make(backend.get(), config, 8);
  for (size_t i = 0; i < ssmax->parameters().size(); ++i) {
    const ParameterInfo& info = ssmax->parameters()[i];
    const Floats values = Read(*ssmax, StateKind::kWeights, static_cast<int>(i));
    const int j = lssar->FindParameter(info.name);
    if (j >= 0) {
      EXPECT_TRUE(SameBits(values, Read(*lssar, StateKind::kWeights, j))) << info.name;
    }
    double squares = 0;
    for (const float v : values) squares += v * v;
    const double rms = std::sqrt(squares / static_cast<double>(values.size()));
    if (info.shape.size() == 2) {
      EXPECT_FALSE(SameBits(values, Read(*other_seed, StateKind::kWeights, j))) << info.name;
      const bool residual = info.name.find("proj.w") != std::string::npos;
      EXPECT_NEAR(rms, residual ? 0.01 : 0.02, 0.0006) << info.name;
    } else if (info.name.find("ln") != std::string::npos && info.name.back() == 'w') {
      EXPECT_EQ(rms, 1.0) << info.name;
    } else if (info.name.find("ssmax.s") != std::string::npos) {
      EXPECT_EQ(rms, 0.5) << info.name;
    } else {
      EXPECT_EQ(rms, 0.0) << info.name;
    }
  }
}

TEST(ModelTest, SameBitsForEveryNumberOfThreads) {
  for (const char* variant : {"ssmax_bias", "lssar"}) {
    ModelConfig config = Small(variant);
    config.width = 72;
    const Batch batch = MakeBatch(9 * 131, config.vocab);
    Floats weights, losses, gradients;
    for (const int threads : {1, 2, 3}) {
      auto backend = Cpu(threads);
      const auto model = Make(backend.get(), config);
      Floats evaluated(batch.tokens.size());
      for (int step = 0; step < 2; ++step) {
        ASSERT_TRUE(model->ForwardBackward(batch.tokens.data(), batch.targets.data(), 9, 131, 1.0 / 1179).ok());
        ASSERT_TRUE(model->AdamWStep({}).ok());
      }
      ASSERT_TRUE(model->ForwardBackward(batch.tokens.data(), batch.targets.data(), 9, 131, 1.0 / 1179).ok());
      ASSERT_TRUE(model->Evaluate(batch.tokens.data(), batch.targets.data(), 9, 131, {}, evaluated.data()).ok());
      if (threads == 1) {
        weights = ReadAll(*model, StateKind::kWeights);
        gradients = ReadAll(*model, StateKind::kGradients);
        losses = evaluated;
      }
      EXPECT_TRUE(SameBits(weights, ReadAll(*model, StateKind::kWeights))) << variant << ", " << threads << " threads";
      EXPECT_TRUE(SameBits(gradients, ReadAll(*model, StateKind::kGradients)))
          << variant << ", " << threads << " threads";
      EXPECT_TRUE(SameBits(losses, evaluated)) << variant << ", " << threads << " threads";
    }
  }
}

TEST(ModelTest, AccumulationOfHalvesIsTheWhole) {
  auto backend = Cpu();
  const ModelConfig config = Small("lssa");
  const auto whole = Make(backend.get(), config), halves = Make(backend.get(), config);
  const Batch batch = MakeBatch(4 * 16, config.vocab);
  auto loss = whole->ForwardBackward(batch.tokens.data(), batch.targets.data(), 4, 16, 1.0 / 64);
  ASSERT_TRUE(loss.ok());
  EXPECT_EQ(loss->targets, 64);
  double sum = 0;
  for (const int half : {0, 1}) {
    auto part =
        halves->ForwardBackward(batch.tokens.data() + half * 32, batch.targets.data() + half * 32, 2, 16, 1.0 / 64);
    ASSERT_TRUE(part.ok());
    sum += part->loss_sum;
  }
  EXPECT_NEAR(sum, loss->loss_sum, 1e-4);
  const Floats a = ReadAll(*whole, StateKind::kGradients), b = ReadAll(*halves, StateKind::kGradients);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2e-6);
  EXPECT_NEAR(*whole->GradNorm(), *halves->GradNorm(), 1e-5);
  ASSERT_TRUE(halves->ZeroGradients().ok());
  EXPECT_EQ(*halves->GradNorm(), 0.0);
}

// A batch above the backend's preferred rows is cut into passes of whole sequences: what the caller would have got by
// doing so.
TEST(ModelTest, ALargeBatchIsTheAccumulationOfItsPasses) {
  auto backend = Cpu();
  const int T = 16, together = static_cast<int>(backend->preferred_rows()) / T, rest = 5, B = together + rest;
  const ModelConfig config = Small("lssa");
  const auto whole = Make(backend.get(), config), parts = Make(backend.get(), config);
  const Batch batch = MakeBatch(B * T, config.vocab);
  ASSERT_TRUE(whole->ForwardBackward(batch.tokens.data(), batch.targets.data(), B, T, 0.001).ok());
  ASSERT_TRUE(parts->ForwardBackward(batch.tokens.data(), batch.targets.data(), together, T, 0.001).ok());
  ASSERT_TRUE(parts->ForwardBackward(&batch.tokens[together * T], &batch.targets[together * T], rest, T, 0.001).ok());
  EXPECT_TRUE(SameBits(ReadAll(*whole, StateKind::kGradients), ReadAll(*parts, StateKind::kGradients)));
}

TEST(ModelTest, EvaluationAgreesWithTrainingHoweverSequencesAreGrouped) {
  auto backend = Cpu();
  for (const char* variant : {"softmax", "ssmax", "lssar"}) {
    const ModelConfig config = Small(variant);
    const auto model = Make(backend.get(), config);
    // 150 sequences of 16 are more than one group of evaluation.
    const int B = 150, T = 16, n = B * T;
    Batch batch = MakeBatch(n, config.vocab);
    batch.targets[5] = -1;
    Floats losses(n), alone(n);
    auto evaluated = model->Evaluate(batch.tokens.data(), batch.targets.data(), B, T, {}, losses.data());
    auto trained = model->ForwardBackward(batch.tokens.data(), batch.targets.data(), B, T, 1.0 / n);
    ASSERT_TRUE(evaluated.ok() && trained.ok());
    EXPECT_NEAR(evaluated->loss_sum, trained->loss_sum, 2e-6 * n);
    EXPECT_EQ(evaluated->targets, n - 1);
    EXPECT_EQ(losses[5], 0.0f);
    EXPECT_EQ(evaluated->counts.uncontrasted_rows, trained->counts.uncontrasted_rows);
    EXPECT_EQ(evaluated->counts.zero_rows, trained->counts.zero_rows);
    for (int b = 0; b < B; b += 29) {
      ASSERT_TRUE(model->Evaluate(&batch.tokens[b * T], &batch.targets[b * T], 1, T, {}, &alone[b * T]).ok());
      for (int t = 0; t < T; ++t) EXPECT_NEAR(alone[b * T + t], losses[b * T + t], 2e-5);
    }
  }
}

TEST(ModelTest, EvaluationOptionsChangeWhatTheySay) {
  auto backend = Cpu();
  const ModelConfig config = Small();
  const auto model = Make(backend.get(), config);
  // Sharper attention than initial weights give, so that positions matter.
  const int qkv = model->FindParameter("h0.qkv.w");
  Floats weights = Read(*model, StateKind::kWeights, qkv);
  for (float& w : weights) w *= 40;
  ASSERT_TRUE(model->WriteState(StateKind::kWeights, qkv, weights.data()).ok());
  const Batch batch = MakeBatch(64, config.vocab);
  auto run = [&](const EvalOptions& options) {
    Floats losses(64);
    EXPECT_TRUE(model->Evaluate(batch.tokens.data(), batch.targets.data(), 1, 64, options, losses.data()).ok());
    return losses;
  };
  const Floats plain = run({});
  EvalOptions options;
  options.rope_base = DynamicNtkBase(10000, 1.0, 64, 16, 8);
  EXPECT_NEAR(*options.rope_base, 10000 * std::pow(4.0, 8.0 / 6.0), 1e-6);
  const Floats ntk = run(options);
  EXPECT_FALSE(SameBits(plain, ntk));
  EvalOptions scaled;
  scaled.rope_theta_scale = *options.rope_base / 10000;
  const Floats theta = run(scaled);
  for (int i = 0; i < 64; ++i) EXPECT_NEAR(theta[i], ntk[i], 1e-4);
  // A window of 8 changes nothing before position 8, and something after.
  EvalOptions windowed;
  windowed.window = 8;
  const Floats window = run(windowed);
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(window[i], plain[i], 1e-5);
  EXPECT_FALSE(SameBits(window, plain));
  EvalOptions member;
  member.attention = FindAttentionVariant("cosine_softmax")->spec;
  EXPECT_FALSE(SameBits(run(member), plain));
  EXPECT_EQ(DynamicNtkBase(10000, 1.0, 16, 16, 8), 10000);
  EXPECT_EQ(DynamicNtkBase(10000, 1.0, 8, 16, 8), 10000);
  EXPECT_NEAR(DynamicNtkBase(10000, 2.0, 32, 16, 8), 10000 * std::pow(3.0, 8.0 / 6.0), 1e-6);
}

// The kind of positions is the model's, whatever the spec that is given says.
TEST(ModelTest, AlibiIsThereForWhateverMemberIsEvaluated) {
  auto backend = Cpu();
  const Batch batch = MakeBatch(64, 37);
  const auto run = [&](PositionKind position, bool in_spec, const EvalOptions& options) {
    ModelConfig config = Small("lssar");
    config.position = position;
    config.attention.alibi = in_spec;
    const auto model = Make(backend.get(), config);
    Floats losses(64);
    EXPECT_TRUE(model->Evaluate(batch.tokens.data(), batch.targets.data(), 1, 64, options, losses.data()).ok());
    return losses;
  };
  const Floats alibi = run(PositionKind::kAlibi, false, {}), none = run(PositionKind::kNone, false, {});
  EXPECT_FALSE(SameBits(alibi, none));
  EXPECT_TRUE(SameBits(none, run(PositionKind::kNone, true, {})));
  EvalOptions same;
  same.attention = Small("lssar").attention;
  EXPECT_TRUE(SameBits(alibi, run(PositionKind::kAlibi, false, same)));
  // No rotation.
  EvalOptions base;
  base.rope_base = 50;
  EXPECT_TRUE(SameBits(alibi, run(PositionKind::kAlibi, false, base)));
}

TEST(ModelTest, StateCopiedToAnotherModelContinuesWithTheSameBits) {
  auto backend = Cpu();
  const ModelConfig config = Small("ssmax");
  const auto one = Make(backend.get(), config);
  auto two = Model::Create(backend.get(), config);
  ASSERT_TRUE(two.ok());
  const Batch batch = MakeBatch(32, config.vocab);
  auto train = [&](Model& model) {
    ASSERT_TRUE(model.ForwardBackward(batch.tokens.data(), batch.targets.data(), 2, 16, 1.0 / 32).ok());
    ASSERT_TRUE(model.AdamWStep({}).ok());
  };
  for (int step = 0; step < 3; ++step) train(*one);
  for (const StateKind kind : {StateKind::kWeights, StateKind::kAdamM, StateKind::kAdamV}) {
    for (size_t i = 0; i < one->parameters().size(); ++i) {
      const int index = static_cast<int>(i);
      ASSERT_TRUE((*two)->WriteState(kind, index, Read(*one, kind, index).data()).ok());
    }
  }
  (*two)->set_step(one->step());
  EXPECT_EQ(one->step(), 3);
  train(*one);
  train(**two);
  EXPECT_TRUE(SameBits(ReadAll(*one, StateKind::kWeights), ReadAll(**two, StateKind::kWeights)));
  EXPECT_EQ((*two)->step(), 4);
  // Starting over forgets all of it.
  ASSERT_TRUE(one->InitWeights(1).ok());
  EXPECT_EQ(one->step(), 0);
  for (const float m : ReadAll(*one, StateKind::kAdamM)) ASSERT_EQ(m, 0.0f);
}

TEST(ModelTest, TrainingLowersTheLossWithEveryKindOfPosition) {
  auto backend = Cpu();
  for (const PositionKind position :
       {PositionKind::kRope, PositionKind::kNone, PositionKind::kLearned, PositionKind::kAlibi}) {
    ModelConfig config = Small("lssar");
    config.position = position;
    const auto model = Make(backend.get(), config);
    const Batch batch = MakeBatch(32, config.vocab);
    double first = 0, last = 0;
    OptimizerParams optimizer;
    optimizer.learning_rate = 1e-2;
    for (int step = 0; step < 30; ++step) {
      auto loss = model->ForwardBackward(batch.tokens.data(), batch.targets.data(), 2, 16, 1.0 / 32);
      ASSERT_TRUE(loss.ok());
      if (step == 0) first = loss->mean();
      last = loss->mean();
      ASSERT_TRUE(model->AdamWStep(optimizer).ok());
    }
    EXPECT_NEAR(first, std::log(37.0), 0.3);
    EXPECT_LT(last, first - 1.0) << std::string(Name(position));
  }
}

TEST(ModelTest, AStepWhoseNormIsNotFiniteChangesNothing) {
  auto backend = Cpu();
  const auto model = Make(backend.get(), Small());
  const Batch batch = MakeBatch(16, 37);
  Floats bias(24, std::numeric_limits<float>::infinity());
  const int lnf = model->FindParameter("lnf.b");
  ASSERT_TRUE(model->WriteState(StateKind::kWeights, lnf, bias.data()).ok());
  auto loss = model->ForwardBackward(batch.tokens.data(), batch.targets.data(), 1, 16, 1.0 / 16);
  ASSERT_TRUE(loss.ok());
  EXPECT_FALSE(std::isfinite(loss->mean()));
  const Floats before = ReadAll(*model, StateKind::kWeights);
  auto norm = model->AdamWStep({});
  ASSERT_TRUE(norm.ok());
  EXPECT_FALSE(std::isfinite(*norm));
  EXPECT_TRUE(SameBits(before, ReadAll(*model, StateKind::kWeights)));
  EXPECT_EQ(model->step(), 0);
  EXPECT_EQ(*model->GradNorm(), 0.0);
}

// Recomputation changes what is kept, nothing else; evaluations in between neither.
TEST(ModelTest, RecomputationGivesTheSameBits) {
  for (const char* variant : {"softmax", "lssar", "ssmax"}) {
    ModelConfig config = Small(variant);
    config.layers = 4;
    std::vector<Floats> states;
    std::vector<double> losses;
    std::vector<int64_t> rows, peaks;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks}) {
      auto backend = Cpu();
      auto model = Model::Create(backend.get(), config, recompute);
      ASSERT_TRUE(model.ok()) << model.status();
      ASSERT_TRUE((*model)->InitWeights(3).ok());
      for (int step = 0; step < 3; ++step) {
        const Batch batch = MakeBatch(4 * 16, 37, step);
        const auto loss = (*model)->ForwardBackward(batch.tokens.data(), batch.targets.data(), 4, 16, 1.0 / 64);
        ASSERT_TRUE(loss.ok()) << loss.status();
        losses.push_back(loss->loss_sum);
        rows.push_back(loss->counts.zero_rows * 1000 + loss->counts.uncontrasted_rows);
        ASSERT_TRUE((*model)->AdamWStep({}).ok());
        ASSERT_TRUE((*model)->Evaluate(batch.tokens.data(), batch.targets.data(), 4, 16, {}, nullptr).ok());
      }
      peaks.push_back((*model)->peak_bytes());
      states.push_back(ReadAll(**model, StateKind::kWeights));
      states.push_back(ReadAll(**model, StateKind::kAdamV));
    }
    EXPECT_TRUE(SameBits(states[0], states[2])) << variant;
    EXPECT_TRUE(SameBits(states[1], states[3])) << variant;
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(losses[step], losses[3 + step]) << variant;
      EXPECT_EQ(rows[step], rows[3 + step]) << variant;
    }
    EXPECT_LT(peaks[1], peaks[0]) << variant;
  }
}

// A backend may replay what it recorded of a pass: two models on it must not meet each other's recordings, and what a
// key stands for must not change.
TEST(ModelTest, WhatIsRecordedMayBeReplayed) {
  class Recorder : public ForwardingBackend {
   public:
    Recorder() : ForwardingBackend(Cpu()) {}
    void Free(void* memory) override {
      recordings.clear();
      ForwardingBackend::Free(memory);
    }
    void Repeat(int64_t key, const std::function<void()>& work) override {
      // The first caller's work, for ever.
      const auto [it, is_new] = recordings.try_emplace(key, work);
      replays += is_new ? 0 : 1;
      it->second();
    }
    std::map<int64_t, std::function<void()>> recordings;
    int replays = 0;
  };
  Recorder recorder;
  auto cpu = Cpu();
  const auto a = Make(&recorder, Small("lssar"), 1), b = Make(&recorder, Small("lssar"), 2);
  const auto want_a = Make(cpu.get(), Small("lssar"), 1), want_b = Make(cpu.get(), Small("lssar"), 2);
  for (int step = 0; step < 4; ++step) {
    const Batch batch = MakeBatch(3 * 16, 37, step);
    for (const auto& [model, want] : {std::pair{a.get(), want_a.get()}, {b.get(), want_b.get()}}) {
      const int B = 3 - step % 2;
      const double scale = step < 2 ? 1.0 / 48 : 1.0 / 7;
      const auto got = model->ForwardBackward(batch.tokens.data(), batch.targets.data(), B, 16, scale);
      const auto expected = want->ForwardBackward(batch.tokens.data(), batch.targets.data(), B, 16, scale);
      ASSERT_TRUE(got.ok() && expected.ok());
      EXPECT_EQ(got->loss_sum, expected->loss_sum);
      ASSERT_TRUE(model->AdamWStep({}).ok() && want->AdamWStep({}).ok());
      EXPECT_TRUE(SameBits(ReadAll(*model, StateKind::kWeights), ReadAll(*want, StateKind::kWeights)));
    }
  }
  const Batch batch = MakeBatch(3 * 16, 37);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(a->ForwardBackward(batch.tokens.data(), batch.targets.data(), 3, 16, 1).ok());
    ASSERT_TRUE(b->ForwardBackward(batch.tokens.data(), batch.targets.data(), 3, 16, 1).ok());
  }
  EXPECT_GE(recorder.replays, 3);
}

TEST(ModelTest, RefusesWhatItCannotTake) {
  auto backend = Cpu();
  auto invalid = [](const absl::Status& status, const char* words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(words), std::string::npos) << status;
  };
  auto create = [&](auto change) {
    ModelConfig config = Small();
    change(config);
    return Model::Create(backend.get(), config).status();
  };
  invalid(create([](ModelConfig& c) { c.layers = 0; }), "model.layers");
  invalid(create([](ModelConfig& c) { c.heads = 5; }), "not divisible");
  invalid(create([](ModelConfig& c) { c.heads = 8; }), "even head dimension");
  invalid(create([](ModelConfig& c) { c.rope_base = -1; }), "rope_base");
  invalid(create([](ModelConfig& c) { c.attention.sharpen_p = 0.5; }), "p");

  ModelConfig config = Small();
  config.position = PositionKind::kLearned;
  const auto model = Make(backend.get(), config);
  Batch batch = MakeBatch(32, 37);
  invalid(model->ForwardBackward(batch.tokens.data(), batch.targets.data(), 1, 32, 1).status(),
          "learned positions end");
  invalid(model->Evaluate(batch.tokens.data(), batch.targets.data(), 1, 32, {}, nullptr).status(),
          "learned positions end");
  invalid(model->ForwardBackward(batch.tokens.data(), batch.targets.data(), 0, 16, 1).status(), "empty");
  EvalOptions options;
  options.attention = FindAttentionVariant("ssmax")->spec;
  invalid(model->Evaluate(batch.tokens.data(), batch.targets.data(), 2, 16, options, nullptr).status(),
          "learned parameters");
  batch.tokens[3] = 37;
  invalid(model->ForwardBackward(batch.tokens.data(), batch.targets.data(), 2, 16, 1).status(),
          "outside the vocabulary");
  EXPECT_EQ(model->ReadState(StateKind::kWeights, 999, nullptr).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ModelTest, EvaluationMemoryIsLinearInTheLength) {
  ModelConfig config = Small();
  config.layers = 3;
  int64_t previous = 0;
  for (const int T : {2048, 4096, 8192}) {
    auto backend = Cpu();
    const auto model = Make(backend.get(), config);
    const int64_t weights = model->peak_bytes();
    const Batch batch = MakeBatch(T, config.vocab);
    EvalOptions options;
    options.window = 4;  // the length is what is tested, not the time
    ASSERT_TRUE(model->Evaluate(batch.tokens.data(), batch.targets.data(), 1, T, options, nullptr).ok());
    const int64_t used = model->peak_bytes() - weights;
    if (previous > 0) {
      EXPECT_LT(used, 2.2 * previous);
    }
    EXPECT_LT(used, int64_t{4} * T * (24 * 13 + 37 + 64));
    previous = used;
  }
}

TEST(ModelTest, ReleasedTrainingStateComesBackZeroed) {
  auto backend = Cpu();
  const auto model = Make(backend.get(), Small());
  const Batch batch = MakeBatch(16, 37);
  ASSERT_TRUE(model->ForwardBackward(batch.tokens.data(), batch.targets.data(), 1, 16, 1).ok());
  EXPECT_GT(*model->GradNorm(), 0.0);
  model->ReleaseTrainingState();
  ASSERT_TRUE(model->Evaluate(batch.tokens.data(), batch.targets.data(), 1, 16, {}, nullptr).ok());
  EXPECT_EQ(*model->GradNorm(), 0.0);
  ASSERT_TRUE(model->ForwardBackward(batch.tokens.data(), batch.targets.data(), 1, 16, 1).ok());
}

}  // namespace
}  // namespace ablate
