#include "cli/command_line.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace ablate {
namespace {

constexpr char kUsagePayload[] = "ablate/usage";
constexpr char kUnreachablePayload[] = "ablate/unreachable";

const FlagSpec* FindFlag(std::string_view name) {
  const auto found =
      std::find_if(Flags().begin(), Flags().end(), [&](const FlagSpec& flag) { return flag.name == name; });
  return found == Flags().end() ? nullptr : &*found;
}

std::vector<std::string> FirstWords(const std::vector<Command>& commands) {
  std::vector<std::string> words;
  for (const Command& command : commands) {
    const std::string word(command.name.substr(0, command.name.find(' ')));
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  return words;
}

// Takes the one or two words of a command's name off `words`.
absl::StatusOr<const Command*> TakeCommand(const std::vector<Command>& commands, std::vector<std::string>* words) {
  if (words->empty()) return UsageError("no command given; see ablate --help");
  const std::string first = words->front();
  std::vector<std::string> verbs;
  for (const Command& command : commands) {
    if (command.name == first) {
      words->erase(words->begin());
      return &command;
    }
    const std::vector<std::string> parts = absl::StrSplit(ToAbsl(command.name), ' ');
    if (parts.size() != 2 || parts[0] != first) continue;
    if (words->size() > 1 && (*words)[1] == parts[1]) {
      words->erase(words->begin(), words->begin() + 2);
      return &command;
    }
    verbs.push_back(parts[1]);
  }
  if (verbs.empty()) {
    return UsageError(absl::StrCat("unknown command \"", first, "\"", DidYouMean(first, FirstWords(commands)),
                                   " (see ablate --help)"));
  }
  if (words->size() == 1) return UsageError(absl::StrCat("\"", first, "\" needs one of: ", absl::StrJoin(verbs, ", ")));
  return UsageError(absl::StrCat("unknown command \"", first, " ", (*words)[1], "\"", DidYouMean((*words)[1], verbs)));
}

// Whoever may name a server may say how to reach it.
std::vector<std::string_view> AccessFlagsOf(const Command& command) {
  if (std::find(command.flags.begin(), command.flags.end(), "--server") == command.flags.end()) return {};
  return {"--token-file", "--tls-pin", "--tls-ca", "--tls-cert", "--tls-key"};
}

absl::Status CheckFlag(const Command& command, const std::string& name) {
  std::vector<std::string> known = {"--help"};
  for (const std::string_view flag : command.flags) known.emplace_back(flag);
  for (const std::string_view flag : AccessFlagsOf(command)) known.emplace_back(flag);
  if (std::find(known.begin(), known.end(), name) != known.end()) return absl::OkStatus();
  return UsageError(absl::StrCat("ablate ", ToAbsl(command.name), ": ",
                                 FindFlag(name) ? "has no flag " : "unknown flag ", name, DidYouMean(name, known)));
}

}  // namespace

absl::Status UsageError(std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(ToAbsl(message));
  status.SetPayload(kUsagePayload, absl::Cord());
  return status;
}

absl::Status UnreachableError(std::string_view message) {
  absl::Status status = absl::UnavailableError(ToAbsl(message));
  status.SetPayload(kUnreachablePayload, absl::Cord());
  return status;
}

int ExitCodeFor(const absl::Status& status) {
  if (status.ok()) return kExitDone;
  if (status.GetPayload(kUsagePayload).has_value()) return kExitUsage;
  if (status.GetPayload(kUnreachablePayload).has_value()) return kExitUnreachable;
  return absl::IsDeadlineExceeded(status) ? kExitTimeout : kExitRefused;
}

std::string Invocation::Get(std::string_view flag, std::string_view otherwise) const {
  const auto found = flags.find(flag);
  return found == flags.end() ? std::string(otherwise) : found->second;
}

OutputFormat Invocation::output() const {
  return ParseOutputFormat(Get("--output", "table")).value_or(OutputFormat::kTable);
}

std::optional<double> Invocation::timeout() const {
  if (!Has("--timeout")) return std::nullopt;
  return ParseDuration(Get("--timeout")).value_or(0);
}

absl::StatusOr<int64_t> Invocation::GetInteger(std::string_view flag, int64_t otherwise, int64_t minimum,
                                               int64_t maximum) const {
  if (!Has(flag)) return otherwise;
  int64_t value = 0;
  if (!absl::SimpleAtoi(Get(flag), &value) || value < minimum || value > maximum) {
    return UsageError(absl::StrCat(ToAbsl(flag), ": expected a whole number from ", minimum, " to ", maximum,
                                   ", found \"", Get(flag), "\""));
  }
  return value;
}

absl::StatusOr<double> ParseDuration(std::string_view text) {
  absl::string_view number = ToAbsl(text);
  double unit = 1;
  if (absl::ConsumeSuffix(&number, "d"))
    unit = 86'400;
  else if (absl::ConsumeSuffix(&number, "h"))
    unit = 3600;
  else if (absl::ConsumeSuffix(&number, "m"))
    unit = 60;
  else
    absl::ConsumeSuffix(&number, "s");
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !std::isfinite(value) || value <= 0) {
    return UsageError(absl::StrCat("expected a time such as 90, 90s, 15m, 2h or 30d, found \"", ToAbsl(text), "\""));
  }
  return value * unit;
}

absl::StatusOr<Invocation> ParseCommandLine(const std::vector<std::string>& arguments,
                                            const std::vector<Command>& commands) {
  // Flags of any command are split off first, so that they may stand before, between or after the words.
  Invocation invocation;
  std::vector<std::string> words, given;
  for (const std::string& argument : arguments) {
    if (!IsUtf8(argument))
      return UsageError(absl::StrCat("the argument \"", absl::CHexEscape(argument), "\" is not UTF-8 text"));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string argument = arguments[i];
    if (argument == "--") {
      words.insert(words.end(), arguments.begin() + i + 1, arguments.end());
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      words.push_back(argument);
      continue;
    }
    std::optional<std::string> value;
    if (const size_t equals = argument.find('='); equals != std::string::npos) {
      value = argument.substr(equals + 1);
      argument.resize(equals);
    }
    if (argument == "-o") argument = "--output";
    if (argument == "-h" || argument == "--help") {
      invocation.help = true;
      continue;
    }
    const FlagSpec* flag = FindFlag(argument);
    given.push_back(argument);
    if (flag == nullptr) continue;  // named below, when the command is known
    if (flag->value.empty()) {
      if (value) return UsageError(absl::StrCat(argument, " takes no value"));
      value = "";
    } else if (!value) {
      if (i + 1 == arguments.size())
        return UsageError(absl::StrCat(argument, " needs a value: ", argument, " ", ToAbsl(flag->value)));
      value = arguments[++i];
    }
    if (value->empty() && !flag->value.empty())
      return UsageError(absl::StrCat(argument, " is empty: ", argument, " ", ToAbsl(flag->value)));
    if (!invocation.flags.emplace(argument, *value).second)
      return UsageError(absl::StrCat(argument, " is given twice"));
  }
  if (words.empty() && given.empty()) {
    invocation.help = true;  // a bare "ablate"
    return invocation;
  }
  if (words.empty() && given == std::vector<std::string>{"--version"}) {
    words = {"version"};
    given.clear();
  }
  if (invocation.help && words.empty()) return invocation;
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    invocation.help = true;
    if (words.empty()) return invocation;
  }
  ABLATE_ASSIGN_OR_RETURN(invocation.command, TakeCommand(commands, &words));
  if (invocation.help) return invocation;
  // -o is a folder, or a file, where a command writes files.
  const auto& taken = invocation.command->flags;
  for (const char* target : {"--output-dir", "--output-file"}) {
    if (std::find(taken.begin(), taken.end(), target) == taken.end() || !invocation.Has("--output")) continue;
    if (invocation.Has(target)) return UsageError(absl::StrCat(target, " is given twice"));
    auto place = invocation.flags.extract("--output");
    place.key() = target;
    invocation.flags.insert(std::move(place));
    std::replace(given.begin(), given.end(), std::string("--output"), std::string(target));
  }
  for (const std::string& flag : given) ABLATE_RETURN_IF_ERROR(CheckFlag(*invocation.command, flag));
  const auto usage = [&] {
    return absl::StrCat("; usage: ablate ", ToAbsl(invocation.command->name), " ",
                        ToAbsl(invocation.command->arguments));
  };
  if (words.size() < invocation.command->min_arguments) {
    return UsageError(absl::StrCat("ablate ", ToAbsl(invocation.command->name), ": an argument is missing", usage()));
  }
  if (words.size() > invocation.command->max_arguments) {
    return UsageError(absl::StrCat("ablate ", ToAbsl(invocation.command->name), ": unexpected argument \"",
                                   words[invocation.command->max_arguments], "\"", usage()));
  }
  for (const std::string& word : words) {
    if (word.empty())
      return UsageError(absl::StrCat("ablate ", ToAbsl(invocation.command->name), ": an argument is empty", usage()));
  }
  invocation.arguments = std::move(words);
  if (invocation.Has("--output") && !ParseOutputFormat(invocation.Get("--output"))) {
    return UsageError(absl::StrCat("--output: unknown format \"", invocation.Get("--output"), "\"",
                                   DidYouMean(invocation.Get("--output"), OutputFormatNames())));
  }
  if (invocation.Has("--timeout")) {
    const absl::StatusOr<double> timeout = ParseDuration(invocation.Get("--timeout"));
    if (!timeout.ok()) return UsageError(absl::StrCat("--timeout: ", timeout.status().message()));
  }
  if (invocation.Has("--server") && invocation.Has("--data-dir")) {
    return UsageError(
        "--server and --data-dir exclude each other: the one asks a running coordinator, the other a folder");
  }
  return invocation;
}

std::string GeneralHelp(const std::vector<Command>& commands) {
  size_t width = 0;
  const auto usage = [](const Command& command) {
    return command.arguments.empty() ? std::string(command.name)
                                     : absl::StrCat(ToAbsl(command.name), " ", ToAbsl(command.arguments));
  };
  for (const Command& command : commands) width = std::max(width, usage(command).size());
  std::string out =
      "ablate: ablations of attention mechanisms, with confidence intervals\n\n"
      "usage: ablate COMMAND [arguments] [flags]\n\n";
  std::string_view noun;  // of the command before; empty: it was one word
  for (const Command& command : commands) {
    const size_t space = command.name.find(' ');
    const std::string_view this_noun = space == std::string_view::npos ? "" : command.name.substr(0, space);
    if (this_noun != noun) out += "\n";
    noun = this_noun;
    const std::string text = usage(command);
    absl::StrAppend(&out, "  ", text, std::string(width - text.size() + 2, ' '), ToAbsl(command.summary), "\n");
  }
  out +=
      "\nA SWEEP is a name or an id. The coordinator is asked at --server ADDR, else at $ABLATE_SERVER, else at "
      "127.0.0.1:7433;\n"
      "--data-dir D reads D/ablate.db without a running one. ablate COMMAND --help says more, with an example.\n"
      "Ends with 0 done, 1 jobs failed, 2 usage, 3 time-out, 4 coordinator unreachable, 5 refused,\n"
      "6 output not written.\n";
  return out;
}

std::string CommandHelp(const Command& command) {
  std::string out = absl::StrCat("ablate ", ToAbsl(command.name), ": ", ToAbsl(command.summary), "\n\nusage: ablate ",
                                 ToAbsl(command.name), command.arguments.empty() ? "" : " ", ToAbsl(command.arguments),
                                 command.flags.empty() ? "" : " [flags]", "\n");
  if (!command.details.empty()) absl::StrAppend(&out, "\n", ToAbsl(command.details), "\n");
  if (!command.flags.empty()) out += "\n";
  for (const std::string_view name : command.flags) {
    const FlagSpec* flag = FindFlag(name);
    if (flag == nullptr) continue;
    std::string left = absl::StrCat("  ", absl::StartsWith(ToAbsl(name), "--output") ? "-o, " : "", ToAbsl(name),
                                    flag->value.empty() ? "" : " ", ToAbsl(flag->value));
    left.resize(std::max<size_t>(left.size() + 2, 26), ' ');
    absl::StrAppend(&out, left, ToAbsl(flag->help), "\n");
  }
  if (!AccessFlagsOf(command).empty())
    out += "\nHow to reach a server on another machine (--tls-pin, --token-file, ...): ablate token --help\n";
  absl::StrAppend(&out, "\nexample: ", ToAbsl(command.example), "\n");
  return out;
}

}  // namespace ablate
