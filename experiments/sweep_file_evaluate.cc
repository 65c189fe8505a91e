// `evaluate`: lengths and splits of the loss, and the tasks beside it (docs/sweep-files.md). See sweep_reader.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "experiments/axes.h"
#include "experiments/eval_tasks.h"
#include "experiments/sweep_reader.h"

namespace ablate {
namespace {

constexpr size_t kMaxTasks = 100;
constexpr double kDefaultLengths[] = {1, 2, 4, 8};

class EvaluateReader {
 public:
  EvaluateReader(const SweepReader& reader, v1::SweepSpec* spec, SweepPlaces* places)
      : read_(reader), spec_(*spec), places_(*places), made_(spec->data().format() == v1::DataRef::MQAR) {}

  absl::Status Read(const YamlNode& node);

 private:
  absl::Status ReadLengths(const YamlNode& node, google::protobuf::RepeatedPtrField<v1::LengthSpec>* lengths,
                           std::vector<SweepPlaces::Place>* places) const;
  absl::Status ReadSplits(const YamlNode& node, google::protobuf::RepeatedPtrField<std::string>* splits) const;
  absl::Status ReadTask(const YamlNode& node);
  absl::Status ReadFiles(const YamlNode& entry, const EvalTask& task, v1::ProbeSpec* probe) const;
  absl::Status ReadOption(const YamlNode& key, const YamlNode& value, v1::ProbeSpec* probe) const;
  absl::Status ReadTaskLengths(const YamlNode& entry, const EvalTask& task, v1::ProbeSpec* probe) const;

  const SweepReader& read_;
  v1::SweepSpec& spec_;
  SweepPlaces& places_;
  const bool made_;  // data without a text, so without a loss to measure
  bool lengths_stated_ = false;
};

absl::Status EvaluateReader::ReadLengths(const YamlNode& node,
                                         google::protobuf::RepeatedPtrField<v1::LengthSpec>* lengths,
                                         std::vector<SweepPlaces::Place>* places) const {
  if (!node.is_list()) return read_.Expected(node, "a list of lengths such as [1x, 2x, 4096]");
  for (const YamlNode& item : node.items) {
    ABLATE_ASSIGN_OR_RETURN(*lengths->Add(), read_.ReadLength(item));
    if (places != nullptr) places->push_back(PlaceOf(item));
  }
  return absl::OkStatus();
}

absl::Status EvaluateReader::ReadSplits(const YamlNode& node,
                                        google::protobuf::RepeatedPtrField<std::string>* splits) const {
  if (!node.is_list()) return read_.Expected(node, "a list of splits such as [selection]");
  for (const YamlNode& item : node.items) {
    ABLATE_ASSIGN_OR_RETURN(const int which, read_.ReadChoice(item, "a split", {"selection", "confirmation"}));
    const std::string split = which == 0 ? "selection" : "confirmation";
    for (const std::string& other : *splits) {
      if (other == split) return read_.Error(item, split + " is there twice");
    }
    *splits->Add() = split;
  }
  return absl::OkStatus();
}

absl::Status EvaluateReader::ReadFiles(const YamlNode& entry, const EvalTask& task, v1::ProbeSpec* probe) const {
  const YamlNode* path = read_.Child(entry, "path");
  if (path != nullptr && !task.file) {
    return read_.Error(*path,
                       absl::StrCat("task ", ToAbsl(task.name), " takes no file: its inputs are made or are the data"));
  }
  if (path == nullptr && task.file) {
    return read_.Error(entry,
                       absl::StrCat("task ", ToAbsl(task.name), " has no path: name its file, ", ToAbsl(task.input)));
  }
  if (path != nullptr) {
    ABLATE_ASSIGN_OR_RETURN(const std::string text, read_.ReadText(*path, "a path"));
    if (text.empty()) return read_.Error(*path, "expected a path, found an empty text");
    probe->add_files()->set_path(text);
  }
  if (const YamlNode* labels = read_.Child(entry, "labels"); labels != nullptr) {
    if (!task.labels) return read_.Error(*labels, absl::StrCat("task ", ToAbsl(task.name), " has no file of labels"));
    ABLATE_ASSIGN_OR_RETURN(const std::string text, read_.ReadText(*labels, "a path"));
    if (text.empty()) return read_.Error(*labels, "expected a path, found an empty text");
    probe->add_files()->set_path(text);
  }
  const YamlNode* tokenizer = read_.Child(entry, "tokenizer");
  if (tokenizer == nullptr) return absl::OkStatus();
  const std::string what = "encoder.json and vocab.bpe as a list, or one .tiktoken file, for tokenizer";
  if (!task.text) {
    return read_.Error(*tokenizer, absl::StrCat("task ", ToAbsl(task.name), " has no text to turn into tokens"));
  }
  std::vector<const YamlNode*> files;
  if (tokenizer->is_list()) {
    for (const YamlNode& item : tokenizer->items) files.push_back(&item);
  } else {
    files.push_back(tokenizer);
  }
  if (files.empty() || files.size() > 2) return read_.Expected(*tokenizer, what);
  for (const YamlNode* file : files) {
    ABLATE_ASSIGN_OR_RETURN(const std::string text, read_.ReadText(*file, what));
    if (text.empty()) return read_.Error(*file, "expected a path, found an empty text");
    probe->add_tokenizer()->set_path(text);
  }
  return absl::OkStatus();
}

absl::Status EvaluateReader::ReadOption(const YamlNode& key, const YamlNode& value, v1::ProbeSpec* probe) const {
  if (FindAxis(key.text) == nullptr) return read_.At(key, CheckSetting(key.text.substr(0, 100), v1::Value()));
  const bool batched = key.text == "eval.batch_tokens" && probe->task() != "attention_map";
  if (TaskOfOption(key.text) != probe->task() && !batched) {
    std::vector<std::string> options;
    for (const std::string& name : AxisNames()) {
      if (TaskOfOption(name) == probe->task()) options.push_back(name);
    }
    return read_.Error(key,
                       absl::StrCat(key.text, " is no option of task ", probe->task(),
                                    options.empty() ? "" : absl::StrCat(", which has ", absl::StrJoin(options, ", ")),
                                    "; what arms differ in belongs under settings, axes or arms"));
  }
  v1::Setting* setting = probe->mutable_settings()->add_settings();
  setting->set_axis(key.text);
  ABLATE_ASSIGN_OR_RETURN(*setting->mutable_value(), read_.ReadValue(key.text, value));
  return absl::OkStatus();
}

absl::Status EvaluateReader::ReadTaskLengths(const YamlNode& entry, const EvalTask& task, v1::ProbeSpec* probe) const {
  const YamlNode* lengths = read_.Child(entry, "lengths");
  if (lengths != nullptr) {
    if (!task.lengths) {
      return read_.Error(*lengths,
                         absl::StrCat("task ", ToAbsl(task.name), " has no lengths: its inputs have their own"));
    }
    ABLATE_RETURN_IF_ERROR(ReadLengths(*lengths, probe->mutable_lengths(), nullptr));
    if (probe->lengths().empty()) return read_.Error(*lengths, "expected at least one length for the task");
  } else if (task.lengths) {
    *probe->mutable_lengths() = spec_.evaluate().lengths();
    if (probe->lengths().empty() && lengths_stated_) {
      return read_.Error(entry,
                         absl::StrCat("task ", ToAbsl(task.name),
                                      " has no lengths, and evaluate.lengths is empty: write lengths: [1x, 2x]"));
    }
    if (probe->lengths().empty()) {
      for (const double multiple : kDefaultLengths) probe->add_lengths()->set_multiple(multiple);
    }
  }
  const YamlNode* splits = read_.Child(entry, "splits");
  if (splits != nullptr && !task.splits) {
    return read_.Error(*splits, absl::StrCat("task ", ToAbsl(task.name), " takes nothing of the data's splits"));
  }
  if (splits != nullptr) {
    ABLATE_RETURN_IF_ERROR(ReadSplits(*splits, probe->mutable_splits()));
    if (probe->splits().empty()) return read_.Error(*splits, "expected at least one split for the task");
  } else if (task.splits) {
    *probe->mutable_splits() = spec_.evaluate().splits();
  }
  return absl::OkStatus();
}

absl::Status EvaluateReader::ReadTask(const YamlNode& node) {
  const std::string what = "a task such as passkey or {task: mqar, lengths: [1x, 16x]}";
  YamlNode entry = node;
  if (node.is_scalar()) {  // short for {task: NAME}
    YamlNode key = node;
    key.text = "task";
    entry.kind = YamlNode::Kind::kMap;
    entry.items = {key, node};
  }
  if (!entry.is_map()) return read_.Expected(node, what);
  const YamlNode* named = read_.Child(entry, "task");
  if (named == nullptr) return read_.Error(node, absl::StrCat("the entry has no task: expected ", what));
  const std::vector<std::string> names = EvalTaskNames();
  ABLATE_ASSIGN_OR_RETURN(const int index, read_.ReadChoice(*named, "a task", names));
  const EvalTask& task = *FindEvalTask(names[index]);
  v1::ProbeSpec* probe = spec_.mutable_evaluate()->add_probes();
  probe->set_task(names[index]);
  const std::string place = absl::StrCat("evaluate.tasks[", spec_.evaluate().probes_size() - 1, "]");
  places_.named[place] = PlaceOf(node);
  static const auto& keys = *new std::vector<std::string>{"task", "name", "lengths", "splits", "path", "labels", "tokenizer"};
  YamlNode known = entry;
  known.items.clear();
  for (size_t i = 0; i + 1 < entry.items.size(); i += 2) {
    places_.named[absl::StrCat(place, ".", entry.items[i].text)] = PlaceOf(entry.items[i]);
    if (entry.items[i].text.compare(0, 5, "eval.") == 0) {
      ABLATE_RETURN_IF_ERROR(ReadOption(entry.items[i], entry.items[i + 1], probe));
      continue;
    }
    known.items.push_back(entry.items[i]);
    known.items.push_back(entry.items[i + 1]);
  }
  ABLATE_RETURN_IF_ERROR(read_.CheckKeys(known, what, keys));
  if (const YamlNode* name = read_.Child(entry, "name")) {
    if (task.splits) {
      return read_.Error(*name, absl::StrCat("task ", ToAbsl(task.name), " has the names of its splits in results"));
    }
    ABLATE_ASSIGN_OR_RETURN(*probe->mutable_name(), read_.ReadText(*name, "a name for the task"));
  } else if (!task.splits) {
    probe->set_name(probe->task());
  }
  ABLATE_RETURN_IF_ERROR(ReadFiles(entry, task, probe));
  return ReadTaskLengths(entry, task, probe);
}

absl::Status EvaluateReader::Read(const YamlNode& node) {
  ABLATE_RETURN_IF_ERROR(read_.CheckKeys(node, "a map for evaluate", {"lengths", "splits", "tasks"}));
  v1::EvaluationSpec* evaluate = spec_.mutable_evaluate();
  evaluate->Clear();
  const YamlNode* lengths = read_.Child(node, "lengths");
  lengths_stated_ = lengths != nullptr;
  if (lengths != nullptr) {
    ABLATE_RETURN_IF_ERROR(ReadLengths(*lengths, evaluate->mutable_lengths(), &places_.lengths));
    if (made_ && !evaluate->lengths().empty()) {
      return read_.Error(*lengths,
                         "data of format mqar has no text whose loss could be measured at lengths: write the lengths "
                         "in a task, tasks: [{task: mqar, lengths: [1x, 2x]}]");
    }
  } else if (!made_) {
    for (const double multiple : kDefaultLengths) evaluate->add_lengths()->set_multiple(multiple);
  }
  if (const YamlNode* splits = read_.Child(node, "splits")) {
    ABLATE_RETURN_IF_ERROR(ReadSplits(*splits, evaluate->mutable_splits()));
  } else {
    evaluate->add_splits("selection");
  }
  const YamlNode* tasks = read_.Child(node, "tasks");
  if (tasks != nullptr) {
    if (!tasks->is_list()) return read_.Expected(*tasks, "a list of tasks such as [passkey]");
    if (tasks->items.size() > kMaxTasks) return read_.Error(*tasks, absl::StrCat("more than ", kMaxTasks, " tasks"));
    for (const YamlNode& item : tasks->items) ABLATE_RETURN_IF_ERROR(ReadTask(item));
  } else if (made_ && !lengths_stated_) {
    YamlNode mqar = node;
    mqar.kind = YamlNode::Kind::kScalar;
    mqar.items.clear();
    mqar.text = "mqar";
    ABLATE_RETURN_IF_ERROR(ReadTask(mqar));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadEvaluatePart(const SweepReader& reader, const YamlNode& evaluate, v1::SweepSpec* spec,
                              SweepPlaces* places) {
  return EvaluateReader(reader, spec, places).Read(evaluate);
}

}  // namespace ablate
