#include "worker/trainer/data_sampler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ablate {

absl::StatusOr<TrainSampler> TrainSampler::Make(const TokenData* data, const TokenRange& train, int train_length,
                                                uint64_t seed) {
  TrainSampler sampler(data, train_length, seed);
  for (int64_t begin = train.begin; begin < train.end;) {
    const int64_t end = data->format() == DataFormat::kText
                            ? data->FirstWorkStart(begin + 1, train.end).value_or(train.end)
                            : train.end;
    const int64_t starts = end - begin - train_length;
    if (starts > 0) {
      sampler.segments_.push_back({begin, sampler.total_});
      sampler.total_ += starts;
    }
    begin = end;
  }
  if (sampler.total_ == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("no file has the ", train_length + 1,
                     " tokens (train.length + 1) of one training window in the training split"));
  }
  return sampler;
}

int64_t TrainSampler::Begin(uint64_t index) const {
  const auto number = static_cast<int64_t>(stream_.Below(index, static_cast<uint64_t>(total_)));
  const auto next = std::upper_bound(segments_.begin(), segments_.end(), number,
                                     [](int64_t n, const Segment& segment) { return n < segment.before; });
  const Segment& segment = *(next - 1);
  return segment.begin + (number - segment.before);
}

absl::Status TrainSampler::Fill(uint64_t index, int32_t* tokens, int32_t* targets) const {
  const int64_t begin = Begin(index);
  ABLATE_RETURN_IF_ERROR(data_->Read(begin, train_length_, tokens));
  return data_->Read(begin + 1, train_length_, targets);
}

}  // namespace ablate
