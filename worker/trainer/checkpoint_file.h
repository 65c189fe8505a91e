// The checkpoint file format, version 1: named float32 tensors with a JSON header, proved by a SHA-256 at the end.
// docs/checkpoint-format.md describes it byte by byte. Must not know models, stages or the optimiser: names and numbers
// only. Deterministic: equal content gives equal bytes (no times, paths or host names), so equal states have equal
// hashes. Thread rule: one thread an object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ablate {

// Numbers that training carries along; part of an optimiser file.
struct TrainTotals {
  int64_t tokens = 0;  // trained on, from step 0
  int64_t zero_rows = 0, uncontrasted_rows = 0;
  double max_gradient_norm = 0;
  std::vector<double> recent_losses;  // of the last steps, oldest first, at most kRecentLosses

  static constexpr size_t kRecentLosses = 20;
  bool operator==(const TrainTotals&) const = default;
};

struct CheckpointHeader {
  std::string kind;    // "weights" or "optimizer"
  std::string model;   // shape of the model, as text: "layers=4 width=128 ..."
  std::string config;  // canonical JSON of the configuration that the last step was trained with
  std::string data_sha256;
  int64_t seed = 0;
  int64_t step = 0;            // training steps behind this state
  int64_t samples = 0;         // training windows drawn: the global index of the next
  int64_t optimizer_step = 0;  // t of the bias correction
  int numerics_version = 0;
  TrainTotals totals;  // "optimizer" only

  bool operator==(const CheckpointHeader&) const = default;
};

struct TensorToWrite {
  std::string name;
  std::vector<int64_t> shape;
  std::function<absl::Status(float* to)> read;  // fills the product of shape floats
};

struct FileDigest {
  std::string sha256;  // of the whole file
  int64_t bytes = 0;
};

// Writes beside `path`, fsyncs, renames over it, fsyncs the folder. Unavailable: the system refuses (disk full: the
// message says so); otherwise what a tensor's `read` returned. Nothing is left behind on failure.
absl::StatusOr<FileDigest> WriteCheckpointFile(const std::string& path, const CheckpointHeader& header,
                                               const std::vector<TensorToWrite>& tensors);

// An opened, wholly verified file, memory-mapped.
class CheckpointFile {
 public:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    int64_t count = 0;
    const float* data = nullptr;  // 64-byte aligned, valid as long as the file object
  };

  // NotFound: no such file. InvalidArgument: another kind of file, or a newer version of the format. DataLoss: cut
  // short or damaged, anywhere. Unavailable: cannot be read.
  static absl::StatusOr<std::unique_ptr<CheckpointFile>> Open(const std::string& path);
  ~CheckpointFile();
  CheckpointFile(const CheckpointFile&) = delete;
  CheckpointFile& operator=(const CheckpointFile&) = delete;

  const std::string& path() const { return path_; }
  const CheckpointHeader& header() const { return header_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* Find(std::string_view name) const;  // nullptr: none
  const FileDigest& digest() const { return digest_; }

 private:
  CheckpointFile() = default;
  absl::Status Parse();

  std::string path_;
  void* mapping_ = nullptr;
  size_t bytes_ = 0;
  CheckpointHeader header_;
  std::vector<Tensor> tensors_;
  FileDigest digest_;
};

}  // namespace ablate
