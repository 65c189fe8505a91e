// A sweep file as the user has it: text, typed form, and the files of its data and tasks found and hashed.
// Must not know gRPC; the upload is the client's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "experiments/sweep_places.h"
#include "proto/resources.pb.h"

namespace ablate {

struct SweepInput {
  std::string yaml;
  std::string file_name;  // as the user wrote it, for messages
  v1::SweepSpec spec;
  SweepPlaces places;                   // of the file's parts, for MakePlan
  v1::DataRef data;                     // with sizes and hashes when `data_found`
  std::vector<std::string> data_paths;  // on this machine, in the order of data.files
  std::vector<v1::DataFile> task_files;  // each task's files, then its tokenizer, in the order of evaluate.tasks
  std::vector<std::string> task_paths;   // on this machine, in the same order
  bool data_found = false;               // all of it
  std::string missing;                   // the first file that is not there
};

// The files of data and tasks lie relative to it, or the data at `data_override` (one file). Files are hashed; `progress` gets (path, bytes
// done, bytes). NotFound: no sweep file. InvalidArgument: file:line:column of a fault; an override for several files; a
// file that does not have the hash that the sweep file states. Data that is not there is no error here.
absl::StatusOr<SweepInput> ReadSweepInput(const std::string& path, const std::string& data_override,
                                          const std::function<void(const std::string&, int64_t, int64_t)>& progress);

}  // namespace ablate
