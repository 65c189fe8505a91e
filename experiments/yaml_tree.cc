#include "experiments/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace ablate {
namespace {

// The position of the first byte that is not part of a well-formed UTF-8 text, or npos.
size_t FindBadUtf8(const std::string& text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      if (lead == 0) return i;
      ++i;
      continue;
    }
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || i + more >= text.size()) return i;
    unsigned code = lead & (0x3F >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return i;
      code = code << 6 | (next & 0x3F);
    }
    const unsigned smallest[] = {0, 0x80, 0x800, 0x10000};
    if (code < smallest[more] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return i;
    i += more + 1;
  }
  return std::string::npos;
}

struct Refusal {
  int line, column;
  std::string message;
};

// yaml-cpp's own node tree shares aliased nodes and merges duplicate keys silently; its events show both.
class TreeBuilder : public YAML::EventHandler {
 public:
  YamlNode root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { Add(mark, "", anchor, YamlNode::Kind::kNull); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refusal{mark.line + 1, mark.column + 1, "aliases (*name) are not supported; write the value out"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode& node = Add(mark, tag, anchor, YamlNode::Kind::kScalar);
    // Escapes can make what the file's own bytes did not hold.
    if (FindBadUtf8(value) != std::string::npos) Fail(mark, "expected UTF-8 text without NUL");
    node.text = value;
    node.quoted = tag == "!";
    CheckKey(mark, value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Push(mark, &Add(mark, tag, anchor, YamlNode::Kind::kList));
  }
  void OnSequenceEnd() override { Pop(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Push(mark, &Add(mark, tag, anchor, YamlNode::Kind::kMap));
  }
  void OnMapEnd() override { Pop(); }

 private:
  struct Open {
    // Stays valid: only the innermost open node's list of items grows.
    YamlNode* node;
    std::set<std::string> keys;
  };

  [[noreturn]] static void Fail(const YAML::Mark& mark, std::string message) {
    throw Refusal{mark.line + 1, mark.column + 1, std::move(message)};
  }

  bool AtKey() const {
    return !open_.empty() && open_.back().node->is_map() && open_.back().node->items.size() % 2 == 0;
  }

  YamlNode& Add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    if (anchor != 0) Fail(mark, "anchors (&name) are not supported; write the value out where it is used");
    if (!tag.empty() && tag != "?" && tag != "!") Fail(mark, "tags (" + tag.substr(0, 100) + ") are not supported");
    if (AtKey() && kind != YamlNode::Kind::kScalar) Fail(mark, "expected a name before the colon");
    YamlNode* node = &root;
    if (!open_.empty()) node = &open_.back().node->items.emplace_back();
    node->kind = kind;
    node->line = mark.line + 1;
    node->column = mark.column + 1;
    return *node;
  }

  void CheckKey(const YAML::Mark& mark, const std::string& key) {
    // The node is in its list already, so a key leaves an odd number of items.
    if (open_.empty() || !open_.back().node->is_map() || open_.back().node->items.size() % 2 == 0) return;
    if (!open_.back().keys.insert(key).second) Fail(mark, "\"" + key.substr(0, 100) + "\" is there twice");
  }

  void Push(const YAML::Mark& mark, YamlNode* node) {
    if (static_cast<int>(open_.size()) >= kMaxYamlDepth) Fail(mark, absl::StrCat("nested deeper than ", kMaxYamlDepth));
    open_.push_back({node, {}});
  }
  void Pop() { open_.pop_back(); }

  std::vector<Open> open_;
};

}  // namespace

absl::Status YamlError(const std::string& file_name, int line, int column, const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(file_name, ":", line, ":", column, ": ", message));
}

absl::StatusOr<YamlNode> ParseYaml(const std::string& yaml, const std::string& file_name) {
  if (yaml.size() > kMaxYamlBytes) {
    return YamlError(file_name, 1, 1, absl::StrCat("expected at most ", kMaxYamlBytes, " bytes, found ", yaml.size()));
  }
  if (const size_t bad = FindBadUtf8(yaml); bad != std::string::npos) {
    int line = 1, column = 1;
    for (size_t i = 0; i < bad; ++i) {
      ++column;
      if (yaml[i] == '\n') ++line, column = 1;
    }
    return YamlError(file_name, line, column, "expected UTF-8 text, found a byte that is none");
  }
  try {
    std::istringstream stream(yaml);
    YAML::Parser parser(stream);
    TreeBuilder builder;
    parser.HandleNextDocument(builder);
    TreeBuilder rest;
    if (parser.HandleNextDocument(rest)) {
      return YamlError(file_name, rest.root.line, rest.root.column, "expected one YAML document, found a second one");
    }
    return std::move(builder.root);
  } catch (const Refusal& refusal) {
    return YamlError(file_name, refusal.line, refusal.column, refusal.message);
  } catch (const YAML::Exception& error) {
    const YAML::Mark mark = error.mark.is_null() ? YAML::Mark() : error.mark;
    return YamlError(file_name, mark.line + 1, mark.column + 1, "malformed YAML: " + error.msg);
  } catch (const std::exception& error) {
    return YamlError(file_name, 1, 1, absl::StrCat("malformed YAML: ", error.what()));
  }
}

}  // namespace ablate
