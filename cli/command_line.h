// The command line as data: flags, commands, parsing, help. Must not know gRPC or what a command does.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/output/report.h"

namespace ablate {

// What `ablate` ends with. Documented in docs/command-line.md; scripts rely on them.
enum ExitCode : int {
  kExitDone = 0,
  kExitJobsFailed = 1,
  kExitUsage = 2,
  kExitTimeout = 3,
  kExitUnreachable = 4,
  kExitRefused = 5,
  kExitOutput = 6,         // what was asked for could not be written to stdout
  kExitInterrupted = 130,  // Ctrl-C, as of any program
};

class Invocation;

struct FlagSpec {
  std::string_view name;   // "--slots"
  std::string_view value;  // "N"; empty: a switch
  std::string_view help;
};

struct Command {
  std::string_view name;       // "sweep submit"
  std::string_view arguments;  // "FILE"; "[SWEEP]"
  size_t min_arguments, max_arguments;
  std::string_view summary;  // one line
  std::string_view details;  // more lines, or empty
  std::string_view example;
  std::vector<std::string_view> flags;  // beside --help
  // What to end with, or an error that ExitCodeFor turns into one.
  absl::StatusOr<int> (*run)(const Invocation&);
};

// A parsed command line.
class Invocation {
 public:
  const Command* command = nullptr;
  bool help = false;
  std::vector<std::string> arguments;
  std::map<std::string, std::string, std::less<>> flags;  // by name with dashes

  bool Has(std::string_view flag) const { return flags.count(flag) > 0; }
  std::string Get(std::string_view flag, std::string_view otherwise = "") const;
  OutputFormat output() const;  // checked while parsing
  bool for_programs() const { return output() == OutputFormat::kJson || output() == OutputFormat::kCsv; }
  std::optional<double> timeout() const;  // seconds, checked while parsing
  // InvalidArgument: not a whole number within the bounds.
  absl::StatusOr<int64_t> GetInteger(std::string_view flag, int64_t otherwise, int64_t minimum, int64_t maximum) const;
};

// All flags, and all commands (commands.cc).
const std::vector<FlagSpec>& Flags();
const std::vector<Command>& Commands();

// InvalidArgument: text that is not UTF-8, unknown command or flag (with the nearest known name), missing or surplus
// argument, bad value of a common flag. Words and flags may be mixed; "--flag=value" and "--flag value"; "-o" is
// "--output", "-h" "--help"; after "--" all are arguments.
absl::StatusOr<Invocation> ParseCommandLine(const std::vector<std::string>& arguments,
                                            const std::vector<Command>& commands);

// "90", "90s", "15m", "2h", "30d" in seconds. InvalidArgument: anything else, or not above 0.
absl::StatusOr<double> ParseDuration(std::string_view text);

std::string GeneralHelp(const std::vector<Command>& commands);
std::string CommandHelp(const Command& command);

// kExitUsage for errors marked by UsageError, kExitUnreachable for those marked by UnreachableError, else by the status
// code.
int ExitCodeFor(const absl::Status& status);
// InvalidArgument that is the command line's fault, not the coordinator's answer.
absl::Status UsageError(std::string_view message);
// Unavailable, of a coordinator: it does not answer, or cannot serve now. (Files and folders may be unavailable, too.)
absl::Status UnreachableError(std::string_view message);

}  // namespace ablate
