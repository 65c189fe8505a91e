// Tuning, selection, confirmation, claims and factors of a sweep file. What they mean together is checked when the
// sweep is planned (claims_check.cc); here is the grammar, with its defaults. See sweep_reader.h and docs/claims.md.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "experiments/sweep_file.h"
#include "experiments/sweep_reader.h"

namespace ablate {
namespace {

// A count of seeds is a run of numbers that plain sweeps, which count from 0, do not reach.
constexpr int64_t kFirstConfirmingSeed = 100, kFirstTuningSeed = 1000;
constexpr int64_t kDefaultConfirmingSeeds = 8, kDefaultTuningSeeds = 2, kDefaultExtensions = 2;
constexpr size_t kMaxItems = 10000;
constexpr char kDefaultMetric[] = "loss_targets";

class ClaimReader {
 public:
  ClaimReader(const SweepReader& reader, v1::SweepSpec* spec, SweepPlaces* places)
      : read_(reader), spec_(*spec), places_(*places) {}

  absl::Status Read(const YamlNode& root);

 private:
  absl::Status ReadTune(const YamlNode& node);
  absl::Status ReadSelect(const YamlNode& node);
  absl::Status ReadConfirm(const YamlNode& node);
  absl::Status ReadClaims(const YamlNode& node);
  absl::Status ReadClaim(const YamlNode& node, const std::string& place);
  absl::Status ReadFactorial(const YamlNode& node);
  absl::StatusOr<std::string> ReadMetric(const YamlNode& map) const;
  absl::StatusOr<std::string> ReadSplit(const YamlNode& map, const std::string& fallback) const;
  absl::StatusOr<bool> ReadFlagOr(const YamlNode& map, const std::string& key) const;
  // Where the parts of a map stand, by their names.
  void Note(const YamlNode& map, const std::string& path);

  const SweepReader& read_;
  v1::SweepSpec& spec_;
  SweepPlaces& places_;
};

void ClaimReader::Note(const YamlNode& map, const std::string& path) {
  places_.named[path] = PlaceOf(map);
  for (size_t i = 0; map.is_map() && i + 1 < map.items.size(); i += 2) {
    places_.named[path + "." + map.items[i].text] = PlaceOf(map.items[i + 1]);
  }
}

absl::StatusOr<std::string> ClaimReader::ReadMetric(const YamlNode& map) const {
  const YamlNode* metric = read_.Child(map, "metric");
  if (metric == nullptr) return std::string(kDefaultMetric);
  return read_.ReadText(*metric, "the name of a metric");
}

absl::StatusOr<std::string> ClaimReader::ReadSplit(const YamlNode& map, const std::string& fallback) const {
  const YamlNode* split = read_.Child(map, "split");
  if (split == nullptr) return fallback;
  ABLATE_ASSIGN_OR_RETURN(const int which, read_.ReadChoice(*split, "split", {"selection", "confirmation"}));
  return std::string(which == 0 ? "selection" : "confirmation");
}

absl::StatusOr<bool> ClaimReader::ReadFlagOr(const YamlNode& map, const std::string& key) const {
  const YamlNode* flag = read_.Child(map, key);
  if (flag == nullptr) return false;
  return read_.ReadFlag(*flag, key);
}

absl::Status ClaimReader::ReadTune(const YamlNode& node) {
  ABLATE_RETURN_IF_ERROR(
      read_.CheckKeys(node, "a map for tune", {"learning_rates", "seeds", "metric", "max_extensions"}));
  v1::TuningSpec* tune = spec_.mutable_tune();
  const YamlNode* rates = read_.Child(node, "learning_rates");
  if (rates == nullptr) {
    return read_.Error(node, "tune has no learning_rates, such as {from: 5e-4, to: 4e-3, factor: 2}");
  }
  ABLATE_ASSIGN_OR_RETURN(const std::vector<v1::Value> values, read_.ReadValues("train.learning_rate", *rates));
  for (const v1::Value& value : values) tune->add_learning_rates(value.number());
  std::sort(tune->mutable_learning_rates()->begin(), tune->mutable_learning_rates()->end());
  if (const YamlNode* seeds = read_.Child(node, "seeds")) {
    ABLATE_ASSIGN_OR_RETURN(*tune->mutable_seeds(), read_.ReadSeedList(*seeds, "tune.seeds", kFirstTuningSeed));
  } else {
    for (int64_t i = 0; i < kDefaultTuningSeeds; ++i) tune->add_seeds(kFirstTuningSeed + i);
  }
  ABLATE_ASSIGN_OR_RETURN(*tune->mutable_metric(), ReadMetric(node));
  int64_t extensions = kDefaultExtensions;
  if (const YamlNode* most = read_.Child(node, "max_extensions")) {
    ABLATE_ASSIGN_OR_RETURN(extensions, read_.ReadInteger(*most, "max_extensions", 0, 10));
  }
  tune->set_max_extensions(static_cast<int32_t>(extensions));
  return absl::OkStatus();
}

absl::Status ClaimReader::ReadSelect(const YamlNode& node) {
  v1::SelectionSpec* select = spec_.mutable_select();
  YamlNode empty;
  empty.kind = YamlNode::Kind::kMap;
  const YamlNode& map = node.kind == YamlNode::Kind::kNull ? empty : node;  // "select:" alone: all as by default
  ABLATE_RETURN_IF_ERROR(read_.CheckKeys(map, "a map for select", {"among", "metric", "lengths", "ntk", "split"}));
  if (const YamlNode* among = read_.Child(map, "among")) {
    ABLATE_ASSIGN_OR_RETURN(*select->mutable_among(), read_.ReadConfiguration(*among, "a map of settings"));
  }
  ABLATE_ASSIGN_OR_RETURN(*select->mutable_metric(), ReadMetric(map));
  if (const YamlNode* lengths = read_.Child(map, "lengths")) {
    if (!lengths->is_list() || lengths->items.empty()) {
      return read_.Expected(*lengths, "a list of lengths such as [2x, 4x]");
    }
    for (const YamlNode& item : lengths->items) {
      ABLATE_ASSIGN_OR_RETURN(*select->add_lengths(), read_.ReadLength(item));
    }
  } else {
    for (const double multiple : {2.0, 4.0}) select->add_lengths()->set_multiple(multiple);
  }
  ABLATE_ASSIGN_OR_RETURN(const bool ntk, ReadFlagOr(map, "ntk"));
  select->set_ntk(ntk);
  ABLATE_ASSIGN_OR_RETURN(*select->mutable_split(), ReadSplit(map, "selection"));
  return absl::OkStatus();
}

absl::Status ClaimReader::ReadConfirm(const YamlNode& node) {
  ABLATE_RETURN_IF_ERROR(
      read_.CheckKeys(node, "a map for confirm", {"seeds", "fixed", "reuse_seeds", "looks", "stein", "split"}));
  v1::ConfirmationSpec* confirm = spec_.mutable_confirm();
  ABLATE_ASSIGN_OR_RETURN(const bool reuse, ReadFlagOr(node, "reuse_seeds"));
  confirm->set_reuse_seeds(reuse);
  if (const YamlNode* seeds = read_.Child(node, "seeds")) {
    ABLATE_ASSIGN_OR_RETURN(*confirm->mutable_seeds(),
                            read_.ReadSeedList(*seeds, "confirm.seeds", kFirstConfirmingSeed));
  } else if (reuse) {
    *confirm->mutable_seeds() = spec_.seeds();
  } else {
    for (int64_t i = 0; i < kDefaultConfirmingSeeds; ++i) confirm->add_seeds(kFirstConfirmingSeed + i);
  }
  if (const YamlNode* fixed = read_.Child(node, "fixed")) {
    if (!fixed->is_list()) return read_.Expected(*fixed, "a list of arms such as {attention.p: 15}");
    for (const YamlNode& item : fixed->items) {
      for (const char* key : {"switch", "factors"}) {
        if (read_.Child(item, key) != nullptr) {
          return read_.Error(item, absl::StrCat("name an arm by its values, not by ", key));
        }
      }
      ABLATE_ASSIGN_OR_RETURN(const SettingList arms,
                              read_.ReadSettings(item, "an arm: a map of settings", /*expand=*/true));
      if (confirm->fixed_arms_size() + arms.size() > kMaxItems) {
        return read_.Error(item, absl::StrCat("more than ", kMaxItems, " fixed arms"));
      }
      for (const v1::Configuration& arm : arms) {
        places_.named[absl::StrCat("confirm.fixed[", confirm->fixed_arms_size(), "]")] = PlaceOf(item);
        *confirm->add_fixed_arms() = arm;
      }
    }
  }
  ABLATE_ASSIGN_OR_RETURN(*confirm->mutable_split(), ReadSplit(node, "confirmation"));
  if (const YamlNode* looks = read_.Child(node, "looks")) {
    if (!looks->is_list() || looks->items.empty() || looks->items.size() > kMaxItems) {
      return read_.Expected(*looks, "a list of numbers of seeds such as [5, 8]");
    }
    for (const YamlNode& item : looks->items) {
      ABLATE_ASSIGN_OR_RETURN(const int64_t look, read_.ReadInteger(item, "a look", 1, 100000));
      confirm->add_looks(static_cast<int32_t>(look));
    }
  }
  if (const YamlNode* stein = read_.Child(node, "stein")) {
    ABLATE_RETURN_IF_ERROR(read_.CheckKeys(*stein, "a map for stein", {"first", "half_width"}));
    Note(*stein, "confirm.stein");
    const YamlNode* first = read_.Child(*stein, "first");
    const YamlNode* half_width = read_.Child(*stein, "half_width");
    if (first == nullptr || half_width == nullptr) {
      return read_.Error(*stein, "stein needs first (seeds of the first stage) and half_width (of the interval)");
    }
    ABLATE_ASSIGN_OR_RETURN(const int64_t seeds, read_.ReadInteger(*first, "first", 2, 100000));
    confirm->mutable_stein()->set_first(static_cast<int32_t>(seeds));
    ABLATE_ASSIGN_OR_RETURN(const double width, read_.ReadPositive(*half_width, "half_width"));
    confirm->mutable_stein()->set_half_width(width);
  }
  return absl::OkStatus();
}

absl::Status ClaimReader::ReadClaim(const YamlNode& node, const std::string& place) {
  ABLATE_RETURN_IF_ERROR(read_.CheckKeys(node, "a claim: a map with name, kind, arm and length",
                                         {"name", "kind", "arm", "against", "metric", "length", "short_length", "ntk",
                                          "direction", "margin", "why", "smallest_effect", "main", "divergence"}));
  Note(node, place);
  v1::ClaimSpec* claim = spec_.add_claims();
  for (const char* key : {"name", "kind", "arm", "length"}) {
    if (read_.Child(node, key) == nullptr) return read_.Error(node, absl::StrCat("the claim has no ", key));
  }
  ABLATE_ASSIGN_OR_RETURN(*claim->mutable_name(), read_.ReadText(*read_.Child(node, "name"), "a name for the claim"));
  ABLATE_ASSIGN_OR_RETURN(
      const int kind, read_.ReadChoice(*read_.Child(node, "kind"), "kind", {"differs", "equivalent", "rises_less"}));
  claim->set_kind(kind == 0 ? v1::DIFFERS : kind == 1 ? v1::EQUIVALENT : v1::RISES_LESS);
  const YamlNode& arm = *read_.Child(node, "arm");
  if (arm.is_scalar()) {
    ABLATE_RETURN_IF_ERROR(read_.ReadChoice(arm, "arm (or a map of its values)", {"selected"}).status());
    claim->set_selected_arm(true);
  } else {
    ABLATE_ASSIGN_OR_RETURN(*claim->mutable_arm(),
                            read_.ReadConfiguration(arm, "selected, or a map of an arm's values"));
  }
  if (const YamlNode* against = read_.Child(node, "against")) {
    ABLATE_ASSIGN_OR_RETURN(*claim->mutable_against(), read_.ReadConfiguration(*against, "a map of an arm's values"));
    if (against->items.empty()) {
      return read_.Error(*against, "against names no arm: leave it out for the baseline");
    }
  }
  ABLATE_ASSIGN_OR_RETURN(*claim->mutable_metric(), ReadMetric(node));
  ABLATE_ASSIGN_OR_RETURN(*claim->mutable_length(), read_.ReadLength(*read_.Child(node, "length")));
  if (const YamlNode* length = read_.Child(node, "short_length")) {
    ABLATE_ASSIGN_OR_RETURN(*claim->mutable_short_length(), read_.ReadLength(*length));
  } else if (claim->kind() == v1::RISES_LESS) {
    claim->mutable_short_length()->set_multiple(1);
  }
  ABLATE_ASSIGN_OR_RETURN(const bool ntk, ReadFlagOr(node, "ntk"));
  claim->set_ntk(ntk);
  if (const YamlNode* direction = read_.Child(node, "direction")) {
    ABLATE_ASSIGN_OR_RETURN(const int which, read_.ReadChoice(*direction, "direction", {"lower", "higher", "either"}));
    if (claim->kind() != v1::DIFFERS) return read_.Error(*direction, "direction is of differs alone");
    claim->set_direction(which == 0 ? -1 : which == 1 ? 1 : 0);
  }
  if (const YamlNode* margin = read_.Child(node, "margin")) {
    ABLATE_ASSIGN_OR_RETURN(const double number, read_.ReadPositive(*margin, "margin"));
    claim->set_margin(number);
  }
  if (const YamlNode* why = read_.Child(node, "why")) {
    ABLATE_ASSIGN_OR_RETURN(*claim->mutable_margin_reason(), read_.ReadText(*why, "the reason of the margin"));
  }
  if (const YamlNode* effect = read_.Child(node, "smallest_effect")) {
    ABLATE_ASSIGN_OR_RETURN(const double number, read_.ReadPositive(*effect, "smallest_effect"));
    claim->set_smallest_effect(number);
  }
  ABLATE_ASSIGN_OR_RETURN(const bool main, ReadFlagOr(node, "main"));
  claim->set_main(main);
  if (const YamlNode* divergence = read_.Child(node, "divergence")) {
    ABLATE_ASSIGN_OR_RETURN(const int which, read_.ReadChoice(*divergence, "divergence", {"undecided", "worst"}));
    claim->set_divergence_is_worst(which == 1);
  }
  return absl::OkStatus();
}

absl::Status ClaimReader::ReadClaims(const YamlNode& node) {
  if (!node.is_list() || node.items.empty()) return read_.Expected(node, "a list of claims");
  if (node.items.size() > kMaxItems) return read_.Error(node, absl::StrCat("more than ", kMaxItems, " claims"));
  for (size_t i = 0; i < node.items.size(); ++i) {
    ABLATE_RETURN_IF_ERROR(ReadClaim(node.items[i], absl::StrCat("claims[", i, "]")));
  }
  return absl::OkStatus();
}

absl::Status ClaimReader::ReadFactorial(const YamlNode& node) {
  ABLATE_RETURN_IF_ERROR(read_.CheckKeys(node, "a map for factorial", {"factors"}));
  const YamlNode* factors = read_.Child(node, "factors");
  if (factors == nullptr || !factors->is_list() || factors->items.empty()) {
    return read_.Expected(factors == nullptr ? node : *factors, "a list of factors under factorial");
  }
  for (const YamlNode& item : factors->items) {
    ABLATE_ASSIGN_OR_RETURN(*spec_.mutable_factorial()->add_factors(), read_.ReadText(item, "the name of a factor"));
  }
  return absl::OkStatus();
}

absl::Status ClaimReader::Read(const YamlNode& root) {
  for (size_t i = 0; i + 1 < root.items.size(); i += 2) {
    const YamlNode &key = root.items[i], &value = root.items[i + 1];
    for (const char* known : {"tune", "select", "confirm", "claims", "alpha", "factorial", "evaluate"}) {
      if (key.text == known) Note(value, known);
    }
    // Nothing has no place of its own.
    if (value.kind == YamlNode::Kind::kNull) places_.named[key.text] = PlaceOf(key);
  }
  for (const char* key : {"settings", "axes"}) {
    const YamlNode* node = read_.Child(root, key);
    const YamlNode* rate = node == nullptr ? nullptr : read_.Child(*node, "train.learning_rate");
    if (rate != nullptr) places_.named[absl::StrCat(key, ".train.learning_rate")] = PlaceOf(*rate);
  }
  places_.named[""] = places_.root;
  if (const YamlNode* tune = read_.Child(root, "tune")) ABLATE_RETURN_IF_ERROR(ReadTune(*tune));
  if (const YamlNode* select = read_.Child(root, "select")) ABLATE_RETURN_IF_ERROR(ReadSelect(*select));
  // Before confirm, whose seeds may be these.
  const bool confirms_only = read_.Child(root, "confirm") != nullptr && !spec_.has_select();
  if (confirms_only && read_.Child(root, "seeds") == nullptr) spec_.clear_seeds();
  if (const YamlNode* confirm = read_.Child(root, "confirm")) ABLATE_RETURN_IF_ERROR(ReadConfirm(*confirm));
  if (const YamlNode* claims = read_.Child(root, "claims")) ABLATE_RETURN_IF_ERROR(ReadClaims(*claims));
  if (const YamlNode* alpha = read_.Child(root, "alpha")) {
    ABLATE_ASSIGN_OR_RETURN(const double number, read_.ReadPositive(*alpha, "alpha"));
    spec_.set_alpha(number);
  }
  if (const YamlNode* factorial = read_.Child(root, "factorial")) ABLATE_RETURN_IF_ERROR(ReadFactorial(*factorial));
  if (spec_.has_select() && read_.Child(root, "evaluate") == nullptr && spec_.executor() == v1::EXECUTOR_TRAINER) {
    // The usual lengths reach to those of claims; what selecting takes is measured anyway.
    spec_.mutable_evaluate()->Clear();
    spec_.mutable_evaluate()->add_lengths()->set_multiple(1);
    for (const v1::LengthSpec& length : spec_.select().lengths()) {
      if (!length.has_multiple() || length.multiple() != 1) *spec_.mutable_evaluate()->add_lengths() = length;
    }
    spec_.mutable_evaluate()->add_splits(spec_.select().split());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadClaimParts(const SweepReader& reader, const YamlNode& root, v1::SweepSpec* spec, SweepPlaces* places) {
  return ClaimReader(reader, spec, places).Read(root);
}

}  // namespace ablate
