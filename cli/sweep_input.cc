#include "cli/sweep_input.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "cli/command_line.h"
#include "experiments/sweep_file.h"

namespace ablate {
namespace {

absl::StatusOr<std::string> HashFile(const std::string& path, int64_t bytes,
                                     const std::function<void(const std::string&, int64_t, int64_t)>& progress) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  Sha256 hash;
  std::string buffer(1 << 20, '\0');
  int64_t done = 0;
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0) {
    hash.Update(buffer.data(), static_cast<size_t>(file.gcount()));
    done += file.gcount();
    if (progress) progress(path, done, bytes);
  }
  return hash.HexDigest();
}

}  // namespace

absl::StatusOr<SweepInput> ReadSweepInput(const std::string& path, const std::string& data_override,
                                          const std::function<void(const std::string&, int64_t, int64_t)>& progress) {
  SweepInput input;
  input.file_name = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return UsageError(absl::StrCat(path, " is a folder; a sweep file is meant here"));
  ABLATE_ASSIGN_OR_RETURN(input.yaml, ReadFile(path));
  ABLATE_ASSIGN_OR_RETURN(input.spec, ParseSweepFile(input.yaml, path, &input.places));
  input.data = input.spec.data();
  if (!data_override.empty() && input.data.files_size() != 1) {
    return UsageError(
        absl::StrCat("--data names one file, but ", path, " has ", input.data.files_size(), " data files"));
  }
  input.data_found = true;
  std::string list;
  const auto find = [&](const std::string& local, v1::DataFile* file) -> absl::Status {
    const absl::StatusOr<uint64_t> size = FileSize(local);
    if (!size.ok()) {
      if (input.missing.empty()) input.missing = local;
      input.data_found = false;
      return absl::OkStatus();
    }
    file->set_bytes(static_cast<int64_t>(*size));
    ABLATE_ASSIGN_OR_RETURN(const std::string found, HashFile(local, file->bytes(), progress));
    if (!file->sha256().empty() && file->sha256() != found) {
      return absl::InvalidArgumentError(absl::StrCat(local, " is not the file that ", path, " names: its SHA-256 is ",
                                                     found, ", not ", file->sha256()));
    }
    file->set_sha256(found);
    return absl::OkStatus();
  };
  const auto beside = [&](const v1::DataFile& file) {  // or file.path(), if that is absolute
    return (std::filesystem::path(Dirname(path)) / file.path()).lexically_normal().string();
  };
  for (v1::DataFile& file : *input.data.mutable_files()) {
    input.data_paths.push_back(data_override.empty() ? beside(file) : data_override);
    ABLATE_RETURN_IF_ERROR(find(input.data_paths.back(), &file));
    absl::StrAppend(&list, file.sha256(), " ", file.bytes(), "\n");
  }
  const bool all_data = input.data_found;
  for (v1::ProbeSpec& probe : *input.spec.mutable_evaluate()->mutable_probes()) {
    for (auto* files : {probe.mutable_files(), probe.mutable_tokenizer()}) {
      for (v1::DataFile& file : *files) {
        input.task_paths.push_back(beside(file));
        ABLATE_RETURN_IF_ERROR(find(input.task_paths.back(), &file));
        input.task_files.push_back(file);
      }
    }
  }
  if (all_data && input.data.files_size() > 0) {
    input.data.set_sha256(input.data.files_size() == 1 ? input.data.files(0).sha256() : Sha256Hex(list));
    *input.spec.mutable_data() = input.data;
  }
  return input;
}

}  // namespace ablate
