// Reads training batches one ahead of whoever computes on them: a thread of its own fills the next batch while the
// device works on this one. Which samples a batch holds and in what order depends on where it starts alone, so reading
// ahead changes no bit. Must not know steps, models or configurations.
// Thread rule: one thread calls Next. The sampler, and the data under it, are read from the reader's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace ablate {

struct Batch {
  std::vector<int32_t> tokens, targets;  // [rows, T]
};

class BatchReader {
 public:
  // Fills tokens[T], targets[T] of one sample (TrainSampler::Fill).
  using Fill = std::function<absl::Status(uint64_t sample, int32_t* tokens, int32_t* targets)>;

  // Batches of `rows` samples of T tokens: first_sample, first_sample + 1, ... up to last_sample, which is not part of
  // any; their number is a multiple of rows.
  BatchReader(Fill fill, int rows, int T, int64_t first_sample, int64_t last_sample);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // The next batch; it stays as it is until the next call. OutOfRange: there was none left. Else the error of Fill, of
  // the first sample that has one; from then on every call gives it.
  absl::StatusOr<const Batch*> Next();

 private:
  void Loop();

  const Fill fill_;
  const int rows_, T_;
  const int64_t last_sample_;

  Mutex mutex_;
  CondVar changed_;
  int64_t next_sample_ ABLATE_GUARDED_BY(mutex_);
  bool ready_ ABLATE_GUARDED_BY(mutex_) = false;  // ahead_ (or failure_) is whole and nobody has taken it
  bool closing_ ABLATE_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABLATE_GUARDED_BY(mutex_);
  Batch ahead_;    // of the reader's thread while ready_ is false, of Next while it is true
  Batch current_;  // of the caller
  std::thread thread_;
};

}  // namespace ablate
