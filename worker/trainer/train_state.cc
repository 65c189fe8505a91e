#include "worker/trainer/train_state.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "worker/trainer/philox.h"
#include "worker/trainer/train_config.h"

namespace ablate {
namespace {

constexpr char kFirstMoment[] = "m/";
constexpr char kSecondMoment[] = "v/";

CheckpointHeader HeaderOf(const Model& model, const TrainState& state, const std::string& kind) {
  CheckpointHeader header;
  header.kind = kind;
  header.model = ModelText(model.config());
  header.config = state.config;
  header.data_sha256 = state.data_sha256;
  header.seed = state.seed;
  header.step = state.step;
  header.samples = state.samples;
  header.optimizer_step = model.step();
  header.numerics_version = kNumericsVersion;
  if (kind == "optimizer") header.totals = state.totals;
  return header;
}

TensorToWrite ToWrite(Model* model, StateKind kind, size_t index, const std::string& prefix) {
  const ParameterInfo& info = model->parameters()[index];
  return {prefix + info.name, info.shape,
          [=](float* to) { return model->ReadState(kind, static_cast<int>(index), to); }};
}

// Parameters that come and go with the configuration; all others are the model itself.
bool MayDiffer(std::string_view name) {
  return name == "wpe" || absl::StrContains(absl::string_view(name.data(), name.size()), ".ssmax.");
}

absl::Status Mismatch(const CheckpointFile& file, std::string_view what, const std::string& found,
                      const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat("checkpoint ", file.path(), " is of another ", std::string(what), ": ",
                                                 found, ", expected ", expected));
}

absl::Status CheckHeader(const CheckpointFile& file, const std::string& kind, const StateExpectation& expected) {
  const CheckpointHeader& header = file.header();
  auto number = [](int64_t value) { return absl::StrCat(value); };
  if (header.kind != kind) return Mismatch(file, "kind", header.kind, kind);
  if (header.numerics_version != kNumericsVersion) {
    return Mismatch(file, "numerics version", number(header.numerics_version), number(kNumericsVersion));
  }
  if (!expected.model.empty() && header.model != expected.model)
    return Mismatch(file, "model", header.model, expected.model);
  if (header.data_sha256 != expected.data_sha256)
    return Mismatch(file, "data set", header.data_sha256, expected.data_sha256);
  if (header.seed != expected.seed) return Mismatch(file, "seed", number(header.seed), number(expected.seed));
  if (expected.step >= 0 && header.step != expected.step) {
    return Mismatch(file, "step", number(header.step), number(expected.step));
  }
  if (!expected.config.empty() && header.config != expected.config) {
    return Mismatch(file, "configuration", header.config, expected.config);
  }
  const std::string& sha256 = kind == "weights" ? expected.weights_sha256 : expected.optimizer_sha256;
  if (!sha256.empty() && file.digest().sha256 != sha256) {
    return absl::DataLossError(absl::StrCat("checkpoint ", file.path(), " is not the one asked for: its SHA-256 is ",
                                            file.digest().sha256, ", expected ", sha256));
  }
  return absl::OkStatus();
}

absl::Status Initialise(Model* model, size_t index, uint64_t seed) {
  const ParameterInfo& info = model->parameters()[index];
  std::vector<float> values(static_cast<size_t>(info.count), info.init_value);
  if (info.init_std > 0) {
    const PhiloxStream stream(seed, "init/" + info.name);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(info.init_std * stream.Normal(i));
  }
  return model->WriteState(StateKind::kWeights, static_cast<int>(index), values.data());
}

// The tensor of parameter `index`, nullptr when it may be and is missing.
absl::StatusOr<const CheckpointFile::Tensor*> TensorOf(const CheckpointFile& file, const std::string& prefix,
                                                       const ParameterInfo& info) {
  const CheckpointFile::Tensor* tensor = file.Find(prefix + info.name);
  if (tensor == nullptr) {
    if (MayDiffer(info.name)) return nullptr;
    return absl::InvalidArgumentError(absl::StrCat("checkpoint ", file.path(), " has no tensor ", prefix, info.name));
  }
  if (tensor->shape != info.shape) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint ", file.path(), " has ", prefix, info.name,
                                                   " of shape [", absl::StrJoin(tensor->shape, ","),
                                                   "], the model of [", absl::StrJoin(info.shape, ","), "]"));
  }
  return tensor;
}

}  // namespace

absl::StatusOr<SavedState> SaveState(Model* model, const TrainState& state, const CheckpointPaths& paths,
                                     bool with_optimizer) {
  SavedState saved{.paths = paths};
  std::vector<TensorToWrite> tensors;
  const size_t count = model->parameters().size();
  if (with_optimizer) {
    for (size_t i = 0; i < count; ++i) tensors.push_back(ToWrite(model, StateKind::kAdamM, i, kFirstMoment));
    for (size_t i = 0; i < count; ++i) tensors.push_back(ToWrite(model, StateKind::kAdamV, i, kSecondMoment));
    ABLATE_ASSIGN_OR_RETURN(saved.optimizer,
                            WriteCheckpointFile(paths.optimizer, HeaderOf(*model, state, "optimizer"), tensors));
    tensors.clear();
  } else {
    saved.paths.optimizer.clear();
  }
  for (size_t i = 0; i < count; ++i) tensors.push_back(ToWrite(model, StateKind::kWeights, i, ""));
  ABLATE_ASSIGN_OR_RETURN(saved.weights,
                          WriteCheckpointFile(paths.weights, HeaderOf(*model, state, "weights"), tensors));
  return saved;
}

absl::StatusOr<OpenedState> OpenState(const std::string& weights_path, const std::string& optimizer_path,
                                      const StateExpectation& expected) {
  OpenedState opened;
  ABLATE_ASSIGN_OR_RETURN(opened.weights, CheckpointFile::Open(weights_path));
  ABLATE_RETURN_IF_ERROR(CheckHeader(*opened.weights, "weights", expected));
  if (optimizer_path.empty()) return opened;
  ABLATE_ASSIGN_OR_RETURN(opened.optimizer, CheckpointFile::Open(optimizer_path));
  ABLATE_RETURN_IF_ERROR(CheckHeader(*opened.optimizer, "optimizer", expected));
  CheckpointHeader header = opened.optimizer->header();
  header.kind = "weights";
  header.totals = {};
  if (header != opened.weights->header()) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoints ", weights_path, " and ", optimizer_path, " do not belong to one state"));
  }
  return opened;
}

absl::Status LoadState(const OpenedState& opened, uint64_t seed, Model* model, std::vector<std::string>* changes) {
  auto note = [&](const std::string& change) {
    LOG(INFO) << change;
    if (changes != nullptr) changes->push_back(change);
  };
  const std::vector<ParameterInfo>& parameters = model->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    ABLATE_ASSIGN_OR_RETURN(const CheckpointFile::Tensor* weights, TensorOf(*opened.weights, "", parameters[i]));
    if (weights == nullptr) {
      note(absl::StrCat("parameter ", parameters[i].name, " is new: initial values, fresh optimiser moments"));
      ABLATE_RETURN_IF_ERROR(Initialise(model, i, seed));
      continue;
    }
    ABLATE_RETURN_IF_ERROR(model->WriteState(StateKind::kWeights, static_cast<int>(i), weights->data));
    if (opened.optimizer == nullptr) continue;
    ABLATE_ASSIGN_OR_RETURN(const CheckpointFile::Tensor* m, TensorOf(*opened.optimizer, kFirstMoment, parameters[i]));
    ABLATE_ASSIGN_OR_RETURN(const CheckpointFile::Tensor* v, TensorOf(*opened.optimizer, kSecondMoment, parameters[i]));
    if (m == nullptr || v == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("checkpoint ", opened.optimizer->path(), " lacks moments of ",
                                                     parameters[i].name, ", whose weights are there"));
    }
    ABLATE_RETURN_IF_ERROR(model->WriteState(StateKind::kAdamM, static_cast<int>(i), m->data));
    ABLATE_RETURN_IF_ERROR(model->WriteState(StateKind::kAdamV, static_cast<int>(i), v->data));
  }
  for (const CheckpointFile::Tensor& tensor : opened.weights->tensors()) {
    if (model->FindParameter(tensor.name) >= 0) continue;
    if (!MayDiffer(tensor.name)) {
      return absl::InvalidArgumentError(absl::StrCat("checkpoint ", opened.weights->path(), " has a tensor ",
                                                     tensor.name, " that the model has not"));
    }
    note(absl::StrCat("parameter ", tensor.name, " is dropped: this configuration has none"));
  }
  model->set_step(opened.weights->header().optimizer_step);
  return absl::OkStatus();
}

}  // namespace ablate
