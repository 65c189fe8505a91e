#include "worker/trainer/training_data.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/trainer/data_sampler.h"
#include "worker/trainer/mqar.h"
#include "worker/trainer/passkey_text.h"
#include "worker/trainer/tokenizer.h"

namespace ablate {
namespace {

class TextWindows : public TrainingData {
 public:
  TextWindows(TrainSampler sampler, int train_length) : sampler_(std::move(sampler)), train_length_(train_length) {}

  int64_t scored_targets() const override { return train_length_; }
  absl::Status Fill(uint64_t sample, int32_t* tokens, int32_t* targets) const override {
    return sampler_.Fill(sample, tokens, targets);
  }

 private:
  const TrainSampler sampler_;
  const int train_length_;
};

// Windows of text, some of them replaced by passkey documents.
class Mixture : public TrainingData {
 public:
  Mixture(std::unique_ptr<TrainingData> windows, double share, PasskeyPrompt prompt, int train_length, uint64_t seed)
      : windows_(std::move(windows)),
        share_(share),
        text_(prompt, tokenizer_),
        train_length_(train_length),
        choice_(seed, "mixture"),
        lengths_(seed, "mixture/length"),
        passkeys_(seed, "mixture/passkey") {}

  int least_document_tokens() const { return text_.least_document_tokens(); }
  int64_t scored_targets() const override { return train_length_; }
  absl::Status Fill(uint64_t sample, int32_t* tokens, int32_t* targets) const override {
    if (choice_.Uniform(sample) >= share_) return windows_->Fill(sample, tokens, targets);
    const int least = text_.least_document_tokens();
    int at = 0;  // of T + 1 tokens
    for (uint64_t index = sample << 16; at <= train_length_; ++index) {
      const int left = train_length_ + 1 - at;
      int length = least + static_cast<int>(lengths_.Below(index, static_cast<uint64_t>(left - least + 1)));
      if (left - length < least) length = left;
      ABLATE_ASSIGN_OR_RETURN(const std::vector<int32_t> document,
                              text_.Document(DrawPasskey(passkeys_, index), length));
      for (const int32_t token : document) {
        if (at < train_length_) tokens[at] = token;
        if (at > 0) targets[at - 1] = token;
        ++at;
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<TrainingData> windows_;
  const double share_;
  const ByteTokenizer tokenizer_;
  const PasskeyText text_;
  const int train_length_;
  const PhiloxStream choice_, lengths_, passkeys_;
};

class Recall : public TrainingData {
 public:
  explicit Recall(MqarMaker maker) : maker_(std::move(maker)) {}

  int64_t scored_targets() const override { return maker_.pairs(); }
  absl::Status Fill(uint64_t sample, int32_t* tokens, int32_t* targets) const override {
    maker_.Fill(sample, tokens, targets);
    return absl::OkStatus();
  }

 private:
  const MqarMaker maker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingData>> MakeTrainingData(DataSet* data, const TrainConfig& config,
                                                               uint64_t seed) {
  const int T = config.model.train_length;
  if (data->made()) {
    if (config.mixture > 0) {
      return absl::InvalidArgumentError(
          "data.mixture puts documents among windows of text, and data of format mqar has none");
    }
    ABLATE_ASSIGN_OR_RETURN(MqarMaker maker,
                            MqarMaker::Make(config.model.vocab, config.mqar_pairs, T, seed, kMqarTraining));
    return std::make_unique<Recall>(std::move(maker));
  }
  ABLATE_ASSIGN_OR_RETURN(const DataSplits splits, data->Splits(T));
  ABLATE_ASSIGN_OR_RETURN(TrainSampler sampler, TrainSampler::Make(&data->tokens(), splits.train, T, seed));
  auto windows = std::make_unique<TextWindows>(std::move(sampler), T);
  if (config.mixture == 0) return windows;
  if (data->tokens().format() != DataFormat::kText) {
    return absl::InvalidArgumentError(
        "data.mixture makes documents of bytes, and this data has GPT-2's tokens; train on data of format text");
  }
  auto mixture = std::make_unique<Mixture>(std::move(windows), config.mixture, config.mixture_prompt, T, seed);
  if (T + 1 < mixture->least_document_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.mixture: a passkey document of the ", std::string(Name(config.mixture_prompt)),
                     " prompt has at least ", mixture->least_document_tokens(), " tokens, so train.length must be ",
                     mixture->least_document_tokens() - 1, " or more, and it is ", T,
                     config.mixture_prompt == PasskeyPrompt::kFull ? "; or set data.mixture_prompt: short" : ""));
  }
  return mixture;
}

}  // namespace ablate
