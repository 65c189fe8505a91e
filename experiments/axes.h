// The axes: every knob that a sweep may vary or fix. One table (axes.cc), one row an axis.
// Must not know YAML, SQL, gRPC or how a knob is used: the trainer asks a ConfigView for values by name.
// Permanent names: axis names and their values are stored in users' databases, and defaults are part of every content
// key: a default that must change becomes a new preset or a new variant, never another number in an old row. Thread
// rule: everything here may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/resources.pb.h"

namespace ablate {

enum class AxisKind { kNumber, kInteger, kText, kFlag };

// Where an axis acts. kTraining shapes training and holds at evaluation; kEvaluation (`eval.*`) acts at evaluation
// only.
enum class AxisScope { kTraining, kEvaluation };

struct Axis {
  std::string_view name;
  AxisKind kind;
  AxisScope scope;
  std::string_view summary;         // one line for help and docs
  double minimum = 0, maximum = 0;  // of numbers, both allowed
  // Of a text: all that it may be. Of a number: words that may stand in its place (`none` of attention.p).
  std::vector<std::string> choices;
  // Where neither the model preset nor the attention variant has a default of its own. Unset (no kind): the axis has no
  // value unless it is given (eval.attention.*: what training used holds).
  v1::Value default_value;
};

const std::vector<Axis>& Axes();
// nullptr when there is none of that name.
const Axis* FindAxis(std::string_view name);
std::vector<std::string> AxisNames();

v1::Value NumberValue(double number);
v1::Value TextValue(std::string_view text);
v1::Value FlagValue(bool flag);
bool SameValue(const v1::Value& a, const v1::Value& b);
// "15", "lssar", "true"; "" for a value without a kind.
std::string ValueText(const v1::Value& value);

// A decimal number, whole text: "1e-4", "+2", ".5". False: anything else, infinities and NaN included.
bool ReadNumber(std::string_view text, double* number);

// InvalidArgument, with what was expected and the nearest name: unknown axis, wrong type, out of range, unknown choice.
absl::Status CheckSetting(std::string_view axis, const v1::Value& value);

// Reads `text` as a value of `axis`, as a sweep file or `--set axis=value` writes it: 1e-4, 1E-4 and 0.0001 are one
// number; on, yes and true are one flag; eval.ntk takes on/off too. `quoted` text is never a number or a flag.
// InvalidArgument as CheckSetting.
absl::StatusOr<v1::Value> ParseSetting(std::string_view axis, std::string_view text, bool quoted = false);

// A configuration with defaults filled in: value = explicit setting, else the variant's or the preset's, else the
// table's. Two preset defaults give way to what was set: train.warmup_steps is at most a tenth of train.steps,
// train.accumulation divides train.batch. Settings that CheckSetting refuses count as not given, so that no input can
// crash a reader; check first. An accessor called with a name that is no axis, or of another kind, is a programming
// error and ends the program.
class ConfigView {
 public:
  // `eval` overrides `training` where an `eval.attention.*` axis names a field (evaluation only).
  explicit ConfigView(const v1::Configuration& training, const v1::Configuration& eval = {});

  double Number(std::string_view axis) const;  // NaN where the value is a word or missing: ask Has first
  int64_t Integer(std::string_view axis) const;
  std::string Text(std::string_view axis) const;
  bool Flag(std::string_view axis) const;
  // Whether an optional axis (attention.p, eval.attention.*) has a value at all; the word `none` in place of a number
  // is none.
  bool Has(std::string_view axis) const;
  // Without a kind where there is no value.
  v1::Value Get(std::string_view axis) const;

 private:
  std::map<std::string, v1::Value, std::less<>> given_;
};

// Sorted, duplicates resolved (the later one wins); left out: values equal to their default, and settings that cannot
// act beside the others (attention.scale_constant without scale constant, attention.ssmax_init without ssmax,
// model.rope_base without RoPE, train.min_learning_rate_ratio without cosine, data.mixture_prompt without
// data.mixture). A name that is no axis is kept.
v1::Configuration Canonical(const v1::Configuration& config);

// The settings of one scope, in the order given.
v1::Configuration OfScope(const v1::Configuration& config, AxisScope scope);

// The canonical settings of an evaluation that measures `task`, a value of eval.task, of what was trained as `training`
// says: `eval` less the options of other tasks (eval.passkey.* act in passkey alone, eval.target_spans, eval.loss_tokens
// and eval.gain in loss alone), with eval.task itself. In other configurations such options stay: an arm may set them for
// tasks that it has.
v1::Configuration ActingFor(std::string_view task, const v1::Configuration& training, const v1::Configuration& eval);

// {"attention.p":3,"attention.variant":"lssar"}: compact JSON, sorted by name; the form that is hashed and stored. In
// names of arms an axis may carry the step it switches at: "attention.variant@100".
std::string ToJson(const v1::Configuration& config);
// InvalidArgument: not a JSON object of numbers, texts and flags. Does not ask whether the names are axes.
absl::StatusOr<v1::Configuration> ConfigurationFromJson(std::string_view json);

// "variant=lssar p=3": for people; the group is left out where no other axis of the list has the same last part.
// "default" when empty.
std::string Label(const v1::Configuration& config);

// The whole configuration checked together: every setting, its scope, attention fields fit each other, width divisible
// by heads, warm-up within steps, batch divisible by accumulation. InvalidArgument, naming the axis.
absl::Status CheckConfiguration(const v1::Configuration& training, const v1::Configuration& eval = {});

// The longest evaluation, in train.length: as far as contexts reach without crossing a gap between splits
// (docs/data.md).
inline constexpr int64_t kLongestEvaluation = 16;

// Whether a model trained as `trained` says may be evaluated at `tokens`, as far as that can be known without the data
// (whose documents may be too short). InvalidArgument: below 1 or above 16 times train.length, above train.length with
// learned positions.
absl::Status CheckEvaluationLength(const ConfigView& trained, int64_t tokens);

// Parameters of the model, for estimates of disk and work. The trainer's own table (worker/trainer/parameters.h) is the
// authority.
int64_t ParameterCount(const ConfigView& config, int64_t vocabulary);

}  // namespace ablate
