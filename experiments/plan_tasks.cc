// What can be said of a sweep's tasks before its arms are known, and whether a task's inputs fit an arm. See
// plan_check.h.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/eval_tasks.h"
#include "experiments/mqar_rules.h"
#include "experiments/plan_check.h"

namespace ablate {
namespace {

absl::Status Refuse(const std::string& message) { return absl::InvalidArgumentError(message); }

constexpr char kNameCharacters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

absl::Status CheckName(const v1::ProbeSpec& probe) {
  const std::string& name = probe.name();
  if (name.empty() || name.size() > 100 || name.find_first_not_of(kNameCharacters) != std::string::npos) {
    return Refuse(
        absl::StrCat("expected a name of at most 100 letters, digits, '.', '_' and '-' for the task, found \"",
                     name.substr(0, 100), "\""));
  }
  // "-x" reads as a flag, and ".x" hides as a file.
  if (std::string_view("._-").find(name.front()) != std::string_view::npos) {
    return Refuse(absl::StrCat("a task's name begins with a letter or digit, found \"", name, "\""));
  }
  if (name != probe.task() && (name == "loss" || FindEvalTask(name) != nullptr)) {
    return Refuse(absl::StrCat("task ", probe.task(), " cannot be named ", name, ", as another task is"));
  }
  for (const char* taken : {"selection", "confirmation", "train"}) {
    if (name == taken) return Refuse(absl::StrCat("a task cannot be named ", taken, ", as splits of the data are"));
  }
  return absl::OkStatus();
}

// A file of which the caller has not found the hash.
absl::Status CheckFiles(const v1::SweepSpec& spec, const v1::ProbeSpec& probe) {
  for (const auto* files : {&probe.files(), &probe.tokenizer()}) {
    for (const v1::DataFile& file : *files) {
      const bool unknown = file.sha256().empty();
      if (unknown && spec.executor() == v1::EXECUTOR_NOOP) continue;
      if (unknown) {
        return Refuse(absl::StrCat("the file ", file.path(), " of task ", probe.task(),
                                   " has no SHA-256: it is missing, or was not hashed before planning"));
      }
      if (!IsSha256Hex(file.sha256()))
        return Refuse("a task's file: expected 64 lower-case hex digits for its SHA-256");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckData(const v1::SweepSpec& spec, const v1::ProbeSpec& probe, const EvalTask& task) {
  const bool made = spec.data().format() == v1::DataRef::MQAR;
  if (made && (task.text || task.splits)) {
    return Refuse(absl::StrCat("task ", probe.task(), " needs a model of text, and data of format mqar is none"));
  }
  if (spec.executor() == v1::EXECUTOR_NOOP) return absl::OkStatus();
  if (!made && task.name == "mqar") {
    return Refuse(
        "task mqar needs a model that was trained on data: {format: mqar}: to one of text its tokens mean nothing");
  }
  if (!task.text) return absl::OkStatus();
  const bool shards = spec.data().format() == v1::DataRef::TOKEN_SHARDS;
  if (shards && probe.tokenizer().empty()) {
    return Refuse(absl::StrCat("task ", probe.task(),
                               " turns text into the data's GPT-2 tokens: write tokenizer: "
                               "[encoder.json, vocab.bpe], or one .tiktoken file"));
  }
  if (!shards && !probe.tokenizer().empty()) {
    return Refuse("data of format text is trained byte by byte: leave the tokenizer out");
  }
  return absl::OkStatus();
}

// Under which names an entry's numbers stand in results: no other entry of its task may use them.
std::set<std::string> SplitsOf(const v1::ProbeSpec& probe) {
  if (probe.splits().empty()) return {probe.name()};
  return {probe.splits().begin(), probe.splits().end()};
}

absl::Status CheckOptions(const v1::SweepSpec& spec, const v1::ProbeSpec& probe) {
  for (const v1::Setting& setting : probe.settings().settings()) {
    const std::string& axis = setting.axis();
    ABLATE_RETURN_IF_ERROR(CheckSetting(axis, setting.value()));
    if (TaskOfOption(axis) != probe.task() && axis != "eval.batch_tokens") {
      return Refuse(absl::StrCat(axis, " is no option of task ", probe.task()));
    }
    bool varies =
        std::any_of(spec.axes().begin(), spec.axes().end(), [&](const v1::AxisSpec& a) { return a.axis() == axis; });
    for (const v1::ArmSpec& arm : spec.arms()) {
      for (const v1::Setting& of_arm : arm.settings().settings()) varies = varies || of_arm.axis() == axis;
    }
    if (varies) return Refuse(axis + " is set for the task and varied by the arms; keep one of them");
  }
  return absl::OkStatus();
}

absl::Status CheckMqar(int64_t vocabulary, int64_t pairs, int64_t length) {
  const int64_t most = MqarKeys(vocabulary);
  if (pairs > most) {
    return Refuse(absl::StrCat(pairs, " pairs need as many keys, and data.mqar.vocabulary ", vocabulary, " has ", most,
                               ": at least ", 2 * (pairs + 1)));
  }
  const int64_t least = MqarLeastTokens(pairs);
  if (length < least) {
    return Refuse(absl::StrCat(pairs, " pairs and their queries take ", least, " tokens, and a sequence has ", length));
  }
  return absl::OkStatus();
}

// No knob: what is measured is asked for under `evaluate`.
absl::Status CheckNoTask(const v1::Configuration& config) {
  for (const v1::Setting& setting : config.settings()) {
    if (setting.axis() != "eval.task") continue;
    return Refuse("eval.task is set by evaluate: write evaluate: {tasks: [" +
                  (setting.value().text() == "loss" ? std::string("passkey") : ValueText(setting.value())) + "]}");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTasks(const v1::SweepSpec& spec, const SweepPlaces& places) {
  ABLATE_RETURN_IF_ERROR(places.At(places.axes, CheckNoTask(spec.settings())));
  for (const v1::AxisSpec& axis : spec.axes()) {
    if (axis.axis() != "eval.task") continue;
    return places.At(places.axes, Refuse("eval.task is no axis: an arm is measured by every task under evaluate"));
  }
  for (int a = 0; a < spec.arms_size(); ++a) {
    ABLATE_RETURN_IF_ERROR(places.At(places.Arm(a), CheckNoTask(spec.arms(a).settings())));
  }
  const bool made = spec.data().format() == v1::DataRef::MQAR;
  if (made && !spec.evaluate().lengths().empty()) {
    return places.At(places.Named("evaluate"), Refuse("data of format mqar has no text whose loss could be measured"));
  }
  for (const auto& [part, there] : {std::pair("tune", spec.has_tune()), std::pair("select", spec.has_select()),
                                    std::pair("confirm", spec.has_confirm() || spec.claims_size() > 0)}) {
    if (!made || !there) continue;
    return places.At(places.Named(part),
                     Refuse(absl::StrCat(part,
                                         " goes by a loss on the data's text, and data of "
                                         "format mqar has none: compare arms with ablate compare")));
  }
  std::map<std::pair<std::string, std::string>, int> taken;
  for (int i = 0; i < spec.evaluate().probes_size(); ++i) {
    const v1::ProbeSpec& probe = spec.evaluate().probes(i);
    const std::string here = absl::StrCat("evaluate.tasks[", i, "]");
    const auto at = [&](const char* key, const absl::Status& status) {
      return places.At(places.Named(here + key), status);
    };
    const EvalTask* task = FindEvalTask(probe.task());
    if (task == nullptr) {
      return at(".task",
                Refuse(absl::StrCat("unknown task \"", probe.task(), "\"", DidYouMean(probe.task(), EvalTaskNames()))));
    }
    if (!task->splits) ABLATE_RETURN_IF_ERROR(at(".name", CheckName(probe)));
    for (const std::string& split : SplitsOf(probe)) {
      const auto [other, fresh] = taken.emplace(std::pair(probe.task(), split), i);
      if (fresh) continue;
      return at(task->splits ? ".splits" : ".name",
                Refuse(absl::StrCat("two entries of task ", probe.task(), " are named ", split,
                                    ": their numbers could not be told apart",
                                    task->splits ? "" : "; give one of them a name of its own")));
    }
    ABLATE_RETURN_IF_ERROR(at(".path", CheckFiles(spec, probe)));
    if (task->file == probe.files().empty()) {
      return at("", Refuse(absl::StrCat("task ", probe.task(), task->file ? " needs its file" : " takes no file")));
    }
    ABLATE_RETURN_IF_ERROR(at(".tokenizer", CheckData(spec, probe, *task)));
    ABLATE_RETURN_IF_ERROR(at("", CheckOptions(spec, probe)));
    if (task->lengths == probe.lengths().empty() || task->splits == probe.splits().empty()) {
      return at("", Refuse(absl::StrCat("task ", probe.task(), " needs ", task->lengths ? "lengths" : "no lengths")));
    }
    for (const v1::LengthSpec& length : probe.lengths()) {
      const double number = length.has_multiple() ? length.multiple() : static_cast<double>(length.tokens());
      if (!(number > 0 && number <= kMaxLength)) {
        return at(".lengths", Refuse(absl::StrCat("expected a length above 0, at most ", ShortestDouble(kMaxLength),
                                                  ", found ", ShortestDouble(number))));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTaskFits(const v1::DataRef& data, const std::string& task, const ConfigView& measured,
                           int64_t tokens) {
  if (task == "mqar") {
    const bool own = measured.Has("eval.mqar.pairs");
    return WithContext(CheckMqar(measured.Integer("data.mqar.vocabulary"),
                                 measured.Integer(own ? "eval.mqar.pairs" : "data.mqar.pairs"), tokens),
                       absl::StrCat("task mqar at ", tokens, " tokens"));
  }
  // How many tokens GPT-2's encoding makes of a prompt, only the trainer knows.
  if (task != "passkey" || data.format() != v1::DataRef::TEXT) return absl::OkStatus();
  const bool full = measured.Text("eval.passkey.prompt") == "full";
  const int64_t depths = measured.Integer("eval.passkey.depths"), least = LeastPasskeyLength(full, depths);
  if (tokens >= least) return absl::OkStatus();
  return Refuse(absl::StrCat("task passkey at ", tokens, " tokens: the ", full ? "full" : "short", " prompt with ",
                             depths, " depths and the answer take at least ", least, " bytes; measure longer lengths, ",
                             full ? "or set eval.passkey.prompt: short" : "or lower eval.passkey.depths"));
}

absl::Status CheckDataAxes(const v1::DataRef& data, const v1::Configuration& canonical) {
  const ConfigView view(canonical);
  const bool made = data.format() == v1::DataRef::MQAR;
  for (const v1::Setting& setting : canonical.settings()) {
    if (setting.axis().compare(0, 10, "data.mqar.") == 0 && !made) {
      return Refuse(setting.axis() + " acts with data: {format: mqar} alone");
    }
  }
  if (view.Number("data.mixture") > 0 && data.format() != v1::DataRef::TEXT) {
    return Refuse("data.mixture makes documents of bytes: it needs data of format text");
  }
  if (!made) return absl::OkStatus();
  return CheckMqar(view.Integer("data.mqar.vocabulary"), view.Integer("data.mqar.pairs"), view.Integer("train.length"));
}

}  // namespace ablate
