#include "worker/trainer/batch_reader.h"

#include <algorithm>
#include <utility>

namespace ablate {

BatchReader::BatchReader(Fill fill, int rows, int T, int64_t first_sample, int64_t last_sample)
    : fill_(std::move(fill)), rows_(rows), T_(T), last_sample_(last_sample), next_sample_(first_sample) {
  for (Batch* batch : {&ahead_, &current_}) {
    batch->tokens.resize(static_cast<size_t>(rows) * T);
    batch->targets.resize(batch->tokens.size());
  }
  thread_ = std::thread([this] { Loop(); });
}

BatchReader::~BatchReader() {
  {
    MutexLock lock(&mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void BatchReader::Loop() {
  for (;;) {
    int64_t sample = 0;
    {
      MutexLock lock(&mutex_);
      while (ready_ && !closing_) changed_.Wait(&mutex_);
      if (closing_) return;
      sample = next_sample_;
    }
    absl::Status status =
        sample + rows_ <= last_sample_ ? absl::OkStatus() : absl::OutOfRangeError("all batches have been read");
    for (int row = 0; row < rows_ && status.ok(); ++row) {
      const size_t at = static_cast<size_t>(row) * T_;
      status = fill_(static_cast<uint64_t>(sample + row), &ahead_.tokens[at], &ahead_.targets[at]);
    }
    MutexLock lock(&mutex_);
    ready_ = true;
    next_sample_ = sample + rows_;
    failure_ = std::move(status);
    changed_.NotifyAll();
    if (!failure_.ok()) return;
  }
}

absl::StatusOr<const Batch*> BatchReader::Next() {
  MutexLock lock(&mutex_);
  while (!ready_) changed_.Wait(&mutex_);
  if (!failure_.ok()) return failure_;
  std::swap(current_, ahead_);
  ready_ = false;
  changed_.NotifyAll();
  return &current_;
}

}  // namespace ablate
