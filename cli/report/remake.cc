#include "cli/report/remake.h"

#include "absl/strings/str_cat.h"

namespace ablate {
namespace {

constexpr char kAddress[] = "unix:again.sock";

// Where a device kind ("cpu/Zen", "cuda/...") runs.
std::string DeviceFlag(const ReportInput& input) {
  for (const std::vector<Cell>& row : input.devices.rows) {
    if (!row.empty() && row[0].text.rfind("cuda", 0) == 0) return " --device cuda";
  }
  return " --device cpu";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> SweepFiles(const ReportInput& input) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const PlanVersion& version : input.versions) {
    if (!version.yaml.empty()) files.emplace_back(absl::StrCat("sweep-", files.size() + 1, ".yaml"), version.yaml);
  }
  if (files.empty()) files.emplace_back("", "");
  files.back() = {"sweep.yaml", input.yaml};
  return files;
}

std::vector<std::string> RemakeCommands(const ReportInput& input) {
  const std::string name = ShellQuoted(input.sweep.name());
  const std::vector<std::pair<std::string, std::string>> files = SweepFiles(input);
  std::vector<std::string> lines = {absl::StrCat("# in this report's folder; sweep.yaml is ",
                                                 input.file_name.substr(input.file_name.rfind('/') + 1), ", SHA-256 ",
                                                 input.sweep.spec_sha256())};
  for (const ReportInput::DataFile& file : input.data_files)
    lines.push_back(
        absl::StrCat("# data ", input.data_name, ": ", file.path, " as sweep.yaml names it, SHA-256 ", file.sha256));
  const v1::Lock& lock = input.claims.lock();
  const bool by_hand = input.claims.has_lock() && lock.by_hand();
  if (!by_hand) {
    const std::string where = " --data-dir again";
    lines.push_back(absl::StrCat("ablate run ", files[0].first, where));
    for (size_t i = 1; i < files.size(); ++i) {
      lines.push_back(absl::StrCat("ablate sweep extend ", files[i].first, where));
      lines.push_back(absl::StrCat("ablate run ", files[i].first, where));
    }
    lines.push_back(absl::StrCat("ablate report ", name, where, " -o again/report"));
    return lines;
  }
  const std::string worker = absl::StrCat("ablate-worker --server ", kAddress, DeviceFlag(input),
                                          input.noop ? " --executor noop" : "", " --work-dir again/work & worker=$!");
  const std::string lock_command = absl::StrCat("ablate sweep lock ", name, " --arm ", ShellQuoted(lock.arm_json()),
                                                " --why ", ShellQuoted(lock.why()));
  // A tuned sweep takes its lock when the tuning is over, any other before anything ran.
  const bool tuned = input.claims.tuning_size() > 0;
  lines.push_back(absl::StrCat("ablate-server --data-dir again --listen ", kAddress, " & server=$!"));
  lines.push_back(absl::StrCat("export ABLATE_SERVER=", kAddress));
  lines.push_back("until ablate sweep list > /dev/null 2>&1; do sleep 0.2; done");
  lines.push_back(absl::StrCat("ablate sweep submit ", files[0].first));
  bool locked = false;
  const auto do_lock = [&] {
    if (tuned) lines.push_back(worker);
    lines.push_back(tuned ? absl::StrCat("until ", lock_command, "; do sleep 0.2; done") : lock_command);
    if (!tuned) lines.push_back(worker);
    locked = true;
  };
  size_t file = 0;
  for (const PlanVersion& version : input.versions) {
    if (version.yaml.empty()) continue;
    if (file++ == 0) continue;  // its submission
    if (!locked && lock.at_us() <= version.at_us) do_lock();
    lines.push_back(absl::StrCat("ablate sweep extend ", files[file - 1].first));
  }
  if (!locked) do_lock();
  lines.push_back(absl::StrCat("ablate sweep wait ", name));
  lines.push_back(absl::StrCat("ablate report ", name, " -o again/report"));
  lines.push_back("kill $worker; wait $worker; kill $server; wait");
  return lines;
}

}  // namespace ablate
