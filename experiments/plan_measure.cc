// What is measured of an arm: lengths, splits and NTK settings, less what cannot act. See planner.h and plan.h.
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/attention_config.h"
#include "experiments/attention_map.h"
#include "experiments/axes.h"
#include "experiments/metrics.h"
#include "experiments/plan_check.h"
#include "experiments/planner.h"

namespace ablate {
namespace {

// Tokens of the longest text that a measurement at `tokens` may be of: what acts above a length does up to here. Of an
// attention map the length is train.length, whatever its text (worker/trainer/probes/attention.cc); other tasks cut
// theirs to it.
int64_t LongestText(const std::string& task, const ConfigView& trained, int64_t tokens) {
  if (task != "attention_map") return tokens;
  const int64_t length = trained.Integer("train.length");
  const int64_t longest = trained.Text("model.position") == "learned" ? length : kLongestEvaluation * length;
  return std::min<int64_t>(kLongestAttentionMap, longest);
}

}  // namespace

int Planner::InternMeasurement(Measurement measurement) {
  const auto hashes = [](const google::protobuf::RepeatedPtrField<v1::DataFile>& files) {
    std::vector<std::string> list;
    for (const v1::DataFile& file : files) list.push_back(file.sha256());
    return list;
  };
  const v1::ProbeSpec& probe =
      measurement.probe < 0 ? v1::ProbeSpec::default_instance() : spec_.evaluate().probes(measurement.probe);
  measurement.key = MakeEvaluationKeyText(ToJson(measurement.eval_config), hashes(probe.files()), measurement.length,
                                          measurement.split, hashes(probe.tokenizer()));
  const auto [it, fresh] =
      measurement_by_key_.emplace(measurement.key.before + measurement.key.after, static_cast<int>(measurements_.size()));
  if (fresh) measurements_.push_back(std::move(measurement));
  return it->second;
}

v1::Configuration Planner::SettingsOf(int probe, const v1::Configuration& trained,
                                      const v1::Configuration& eval) const {
  v1::Configuration asked = eval;
  if (probe >= 0) AppendSettings(spec_.evaluate().probes(probe).settings(), &asked);
  v1::Configuration acting = ActingFor(probe < 0 ? "loss" : spec_.evaluate().probes(probe).task(), trained, asked);
  const ConfigView training(trained);
  for (const v1::Setting& setting : acting.settings()) {
    if (setting.axis() != "eval.mqar.pairs" || setting.value().number() != training.Number("data.mqar.pairs")) continue;
    DropSetting("eval.mqar.pairs", &acting);
    break;
  }
  return acting;
}

absl::Status Planner::CheckMeasured(int arm, const v1::Configuration& eval, const std::string& metric,
                                    const v1::LengthSpec& length, const std::string& place,
                                    const std::string& who) const {
  if (spec_.executor() == v1::EXECUTOR_NOOP) return absl::OkStatus();  // it may report any
  const TrainConfig& trained = configs_[nodes_[drafts_[arm].node].config];
  const ConfigView view(trained.config, eval);
  const int64_t tokens = LengthTokens(length, trained.length);
  const PositionRange positions = PositionsOf(metric);
  std::string why;
  if ((metric == "loss" || positions.to > 0) && view.Integer("eval.loss_tokens") == 0) {
    why = "eval.loss_tokens is 0";
  } else if (positions.to > 0) {
    const auto one = static_cast<double>(trained.length);
    const double first = std::floor(positions.from * one) + 1;
    if (first > std::min(static_cast<double>(tokens), positions.to * one)) why = "it has no such positions";
  } else if (IsGain(metric) || metric == "loss_targets_windowed") {
    if (tokens <= trained.length) {
      why = "without keys beyond train.length there is no gain";
    } else if (!view.Flag("eval.gain")) {
      why = "write eval.gain: true under settings";
    } else if (view.Integer("eval.attention.window") > 0) {
      why = "eval.attention.window is set";
    }
  }
  if (why.empty()) return absl::OkStatus();
  return places_.At(places_.Named(place),
                    absl::InvalidArgumentError(absl::StrCat(who, "metric ", metric, " is not measured of ",
                                                            plan_.arms[arm].label, " at ", tokens, " tokens: ", why)));
}

std::vector<Planner::Asked> Planner::AskedByEvaluate(const ArmDraft& draft) const {
  std::vector<Asked> asked;
  for (int i = 0; i < spec_.evaluate().lengths_size(); ++i) {
    for (const std::string& split : spec_.evaluate().splits()) {
      for (const bool ntk : {false, true}) {
        if (ntk ? !draft.ntk_dynamic : !draft.ntk_off) continue;
        asked.push_back(
            {spec_.evaluate().lengths(i), split, ntk, places_.Length(i, draft.spec_arm), "evaluate.lengths"});
      }
    }
  }
  for (int p = 0; p < spec_.evaluate().probes_size(); ++p) {
    const v1::ProbeSpec& probe = spec_.evaluate().probes(p);
    const std::string here = absl::StrCat("evaluate.tasks[", p, "].lengths");
    const SweepPlaces::Place place = places_.Named(here);
    if (probe.lengths().empty()) {  // at train.length NTK does not act
      v1::LengthSpec one;
      one.set_multiple(1);
      asked.push_back({one, probe.name(), false, place, "task " + probe.task(), p});
    }
    for (const v1::LengthSpec& length : probe.lengths()) {
      for (const std::string& split : probe.splits().empty()
                                          ? std::vector<std::string>{probe.name()}
                                          : std::vector<std::string>(probe.splits().begin(), probe.splits().end())) {
        for (const bool ntk : {false, true}) {
          if (ntk ? !draft.ntk_dynamic : !draft.ntk_off) continue;
          asked.push_back({length, split, ntk, place, "lengths of task " + probe.task(), p});
        }
      }
    }
  }
  return asked;
}

absl::Status Planner::Measure(int arm, const v1::Configuration& eval, const std::vector<Asked>& asked,
                              std::vector<int>* measurements) {
  const TrainConfig& trained = configs_[nodes_[drafts_[arm].node].config];
  const bool rope = trained.position == "rope";
  const ConfigView training(trained.config);

  v1::Configuration acting = eval;
  if (!rope) DropSetting("eval.rope_theta_scale", &acting);
  const ConfigView measured(trained.config, acting);
  ABLATE_ASSIGN_OR_RETURN(const AttentionSpec spec, AttentionSpecFrom(measured));
  const bool trained_scale = measured.Text("attention.scale") == training.Text("attention.scale");
  for (const v1::Setting& setting : eval.settings()) {
    const std::string& axis = setting.axis();
    if (axis == "eval.attention.p" || axis == "eval.attention.scale") {
      if (SameValue(setting.value(), training.Get(axis.substr(5)))) DropSetting(axis, &acting);
    } else if (axis == "eval.attention.scale_constant") {
      const bool repeats = trained_scale && SameValue(setting.value(), training.Get("attention.scale_constant"));
      if (!spec.has_constant() || repeats) DropSetting(axis, &acting);
    }
  }
  // Without an offset the sharpening is scale free: its N cancels.
  if (!spec.has_growing_scale()) DropSetting("eval.attention.scale_clamp", &acting);
  if (!spec.sharpen_p.has_value() || spec.sharpen_offset == 0) DropSetting("eval.attention.sharpen_clamp", &acting);

  std::map<int, v1::Configuration> settings;  // by task
  for (const Asked& cell : asked) {
    const auto [of_task, fresh] = settings.try_emplace(cell.probe);
    if (fresh) of_task->second = SettingsOf(cell.probe, trained.config, acting);
    const double exact = cell.length.has_multiple() ? cell.length.multiple() * static_cast<double>(trained.length)
                                                    : static_cast<double>(cell.length.tokens());
    const int64_t tokens = LengthTokens(cell.length, trained.length);
    absl::Status fits;
    if (tokens < 1 || exact > kMaxLength) {
      fits = absl::InvalidArgumentError(absl::StrCat(cell.what, ": ", ShortestDouble(exact),
                                                     " tokens is not from 1 to ", ShortestDouble(kMaxLength)));
    } else {
      fits = WithContext(CheckEvaluationLength(training, tokens), "arm " + plan_.arms[arm].label);
    }
    if (fits.ok() && cell.probe >= 0 && spec_.executor() != v1::EXECUTOR_NOOP) {
      fits = WithContext(CheckTaskFits(spec_.data(), spec_.evaluate().probes(cell.probe).task(),
                                       ConfigView(trained.config, of_task->second), tokens),
                         "arm " + plan_.arms[arm].label);
    }
    if (!fits.ok()) return places_.At(cell.place, fits);
    Measurement measurement;
    measurement.probe = cell.probe;
    measurement.length = tokens;
    measurement.split = cell.split;
    measurement.ntk = cell.ntk && rope && tokens > trained.length;
    measurement.eval_config = of_task->second;
    const int64_t longest =
        LongestText(cell.probe < 0 ? "loss" : spec_.evaluate().probes(cell.probe).task(), training, tokens);
    for (const v1::Setting& setting : of_task->second.settings()) {
      if (setting.axis() == "eval.attention.window" && setting.value().number() >= static_cast<double>(longest)) {
        DropSetting(setting.axis(), &measurement.eval_config);
        break;
      }
    }
    const int64_t window = ConfigView({}, measurement.eval_config).Integer("eval.attention.window");
    const bool windowed = window > 0;
    if (longest <= trained.length || (windowed && window <= trained.length)) {
      DropSetting("eval.attention.scale_clamp", &measurement.eval_config);
      DropSetting("eval.attention.sharpen_clamp", &measurement.eval_config);
    }
    if (windowed || tokens <= trained.length) DropSetting("eval.gain", &measurement.eval_config);
    if (measurement.ntk) {
      AppendSetting("eval.ntk", TextValue("dynamic"), &measurement.eval_config);
      std::sort(measurement.eval_config.mutable_settings()->begin(), measurement.eval_config.mutable_settings()->end(),
                [](const v1::Setting& a, const v1::Setting& b) { return a.axis() < b.axis(); });
      // A claim may ask for NTK where the arm itself does not: that was not checked with the arm.
      const absl::Status status =
          drafts_[arm].ntk_dynamic ? absl::OkStatus() : CheckConfiguration(trained.config, measurement.eval_config);
      if (!status.ok()) return places_.At(cell.place, WithContext(status, "arm " + plan_.arms[arm].label));
    } else {
      DropSetting("eval.ntk_factor", &measurement.eval_config);
    }
    const int index = InternMeasurement(std::move(measurement));
    if (std::find(measurements->begin(), measurements->end(), index) == measurements->end()) {
      measurements->push_back(index);
    }
  }
  return absl::OkStatus();
}

}  // namespace ablate
