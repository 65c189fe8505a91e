// Golden files that were damaged, by design and at random: a check must say so (a status, a failed case or "not
// covered"), never crash, and never pass in silence what it has not compared.
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden_check/checks.h"
#include "tests/golden_check/statistics_check.h"

namespace ablate {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

Json Golden(const std::string& kind) {
  const char* folder = std::getenv("ABLATE_GOLDEN_DIR");
  EXPECT_NE(folder, nullptr) << "set ABLATE_GOLDEN_DIR to tests/golden of the source tree";
  const auto text = ReadFile(JoinPath(folder == nullptr ? "tests/golden" : folder, kind + ".json"));
  EXPECT_TRUE(text.ok()) << text.status();
  return Json::parse(*text);
}

// A file of the first case of that name.
Json OneCase(const std::string& kind, const std::string& name) {
  const Json file = Golden(kind);
  for (const Json& item : file["cases"]) {
    if (item["name"] == name) return Json{{"cases", Json::array({item})}};
  }
  ADD_FAILURE() << kind << " has no case " << name;
  return {};
}

class Checker {
 public:
  Checker() : backend_(std::move(NewCpuBackend(1).value())) {}

  absl::StatusOr<CheckOutcome> Check(const std::string& kind, const std::string& text) {
    const std::string path = JoinPath(dir_.path(), "golden.json");
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    if (kind == "attention") return CheckAttention(path, backend_.get());
    if (kind == "model") return CheckModel(path, backend_.get());
    const auto results = CheckStatisticsFile(path);
    if (!results.ok()) return results.status();
    CheckOutcome outcome;
    for (const CaseResult& result : *results) {
      outcome.cases += result.covered ? 1 : 0;
      outcome.not_covered += result.covered ? 0 : 1;
      outcome.failed += result.max_relative_error <= 1e-9 ? 0 : 1;
    }
    return outcome;
  }
  // Everything was compared and is right.
  bool Passes(const std::string& kind, const Json& json) {
    const auto outcome = Check(kind, json.dump());
    return outcome.ok() && outcome->cases > 0 && outcome->failed == 0 && outcome->not_covered == 0;
  }
  // Ok only where the file was taken.
  absl::Status Status(const std::string& kind, const Json& json) { return Check(kind, json.dump()).status(); }

 private:
  TempDir dir_;
  std::unique_ptr<Backend> backend_;
};

TEST(MalformedFiles, ADroppedExpectationIsNeverASilentPass) {
  Checker checker;
  for (const auto& [kind, name] :
       {std::pair{"attention", "ssmax_bias"}, {"attention", "lssar_p3"}, {"model", "ssmax"}}) {
    const Json whole = OneCase(kind, name);
    ASSERT_TRUE(checker.Passes(kind, whole)) << kind << " " << name;
    std::vector<Json::json_pointer> fields;
    const Json& item = whole["cases"][0];
    for (const auto& [key, value] : item.items()) {
      // Inputs that have a default: without them it is another case, rightly judged.
      if (key == "spec" || key == "rope_base") continue;
      const Json::json_pointer at = Json::json_pointer("/cases/0") / key;
      fields.push_back(at);
      if (!value.is_object()) continue;
      for (const auto& [inner, unused] : value.items()) fields.push_back(at / inner);
    }
    ASSERT_GT(fields.size(), 10u);
    for (const Json::json_pointer& field : fields) {
      if (field.parent_pointer().back() == "adamw" && field.back() != "losses" && field.back() != "grad_norms")
        continue;
      Json dropped = whole;
      dropped[field.parent_pointer()].erase(field.back());
      EXPECT_FALSE(checker.Passes(kind, dropped)) << kind << " " << name << " without " << field.to_string();
      for (const Json& other : {Json("x"), Json(true), Json(), Json::array(), Json::object()}) {
        if (field.back() == "name" || (field.back() == "zero_rows" && other == whole[field])) continue;
        Json changed = whole;
        changed[field] = other;
        EXPECT_FALSE(checker.Passes(kind, changed)) << kind << " " << field.to_string() << " = " << other;
      }
      if (whole[field].is_array() && !whole[field].empty()) {
        Json shorter = whole;
        shorter[field].erase(shorter[field].size() - 1);
        EXPECT_FALSE(checker.Passes(kind, shorter)) << kind << " " << field.to_string() << " one shorter";
      }
    }
  }
}

TEST(MalformedFiles, ADroppedStatisticIsNeverASilentPass) {
  Checker checker;
  const Json whole = Golden("statistics");
  ASSERT_TRUE(checker.Passes("statistics", whole));
  for (const char* field : {"/cases/0/ci95/sem", "/cases/0/ci95/low", "/cases/0/paired/tost", "/cases/0/paired/tost/p",
                            "/cases/0/paired", "/difference_in_differences/0/result/high", "/holm/0/adjusted",
                            "/wilson/0/high", "/stein/0/n", "/sign_test/0/p"}) {
    const Json::json_pointer at(field);
    ASSERT_TRUE(whole.contains(at)) << field;
    Json dropped = whole;
    dropped[at.parent_pointer()].erase(at.back());
    EXPECT_FALSE(checker.Passes("statistics", dropped)) << field;
  }
}

TEST(MalformedFiles, AWrongNumberFails) {
  Checker checker;
  const Json model = OneCase("model", "ssmax"), attention = OneCase("attention", "ssmax_bias");
  for (const char* field : {"loss", "loss_with_ntk", "adamw/losses/7", "adamw/grad_norms/0", "adamw/grad_norms/7",
                            "grads/wte/3/4", "grads/h1.ssmax.s/0", "ntk/base"}) {
    Json wrong = model;
    Json& value = wrong[Json::json_pointer(std::string("/cases/0/") + field)];
    value = value.get<double>() + 1e-3;
    const auto outcome = checker.Check("model", wrong.dump());
    ASSERT_TRUE(outcome.ok()) << field << " " << outcome.status();
    EXPECT_EQ(outcome->failed, 1) << field;
  }
  for (const char* field :
       {"out/2/1", "dq/6/0", "dk/0/3", "dv/1/1", "d_learned_s", "d_learned_b", "row_weight_sum/3"}) {
    Json wrong = attention;
    Json& value = wrong[Json::json_pointer(std::string("/cases/0/") + field)];
    value = value.get<double>() + 1e-6;
    const auto outcome = checker.Check("attention", wrong.dump());
    ASSERT_TRUE(outcome.ok()) << field << " " << outcome.status();
    EXPECT_EQ(outcome->failed, 1) << field;
  }
  Json zero_row = attention;
  zero_row["cases"][0]["zero_rows"] = {2};
  EXPECT_FALSE(checker.Passes("attention", zero_row));
}

TEST(MalformedFiles, TheMessageNamesTheFault) {
  Checker checker;
  const Json attention = OneCase("attention", "ssmax"), model = OneCase("model", "softmax");
  Json empty = attention;
  empty["cases"][0]["T"] = 0;
  for (const char* key : {"q", "k", "v", "dout", "out", "dq", "dk", "dv", "row_weight_sum"}) {
    empty["cases"][0][key] = Json::array();
  }
  EXPECT_THAT(std::string(checker.Status("attention", empty).message()),
              HasSubstr("cases[0]: T must be an integer from 1"));
  Json ragged = attention;
  ragged["cases"][0]["q"][1].push_back(0.5);
  ragged["cases"][0]["q"][2].erase(0);
  EXPECT_THAT(std::string(checker.Status("attention", ragged).message()), HasSubstr("q has rows of different lengths"));
  Json no_gradients = model;
  no_gradients["cases"][0]["grads"] = Json::object();
  EXPECT_THAT(std::string(checker.Status("model", no_gradients).message()), HasSubstr("grads.h0.fc.b is missing"));
  Json transposed = model;
  transposed["cases"][0]["grads"]["wte"] = Json::array();
  EXPECT_THAT(std::string(checker.Status("model", transposed).message()), HasSubstr("grads.wte has another shape"));
  Json learned = attention;
  learned["cases"][0].erase("d_learned_s");
  EXPECT_THAT(std::string(checker.Status("attention", learned).message()), HasSubstr("d_learned_s"));
  EXPECT_THAT(std::string(checker.Status("model", {{"cases", Json::array()}}).message()),
              HasSubstr("at least one case"));
}

TEST(MalformedFiles, TheMessageIsWordsNotTheLibrarysOwn) {
  Checker checker;
  Json missing = OneCase("attention", "ssmax"), number = missing, config = OneCase("model", "softmax");
  missing["cases"][0].erase("q");
  number["cases"][0]["name"] = 3;
  config["cases"][0]["config"] = 3;
  for (const auto& [kind, text, words] :
       std::vector<std::array<std::string, 3>>{{"attention", "{\"cases\": [", "not JSON, from byte 12 on"},
                                               {"attention", "", "not JSON"},
                                               {"model", "[1]", "\"cases\" must be a list of at least one case"},
                                               {"model", "{\"cases\": [1]}", "cases[0]: a case must be an object"},
                                               {"attention", missing.dump(), "cases[0]: key 'q' not found"},
                                               {"attention", number.dump(), "cases[0]: name must be a text"},
                                               {"model", config.dump(), "cases[0]: config must be an object"}}) {
    const std::string message(checker.Check(kind, text).status().message());
    EXPECT_THAT(message, HasSubstr(words));
    EXPECT_THAT(message, Not(HasSubstr("json.exception")));
  }
}

TEST(MalformedFiles, AConstantScaleHasTwoSpellings) {
  Checker checker;
  for (const Json& scale : {Json("constant(2)"), Json(2)}) {
    Json file = OneCase("attention", "softmax");  // d = 4: 1 / sqrt(d) is 0.5
    for (Json& row : file["cases"][0]["q"]) {
      for (Json& x : row) x = x.get<double>() / 4;
    }
    for (Json& row : file["cases"][0]["dq"]) {
      for (Json& x : row) x = x.get<double>() * 4;
    }
    file["cases"][0]["spec"]["scale"] = scale;
    EXPECT_TRUE(checker.Passes("attention", file)) << scale;
  }
  for (const char* wrong : {"constant()", "constant(x)", "constant(2", ""}) {
    Json file = OneCase("attention", "softmax");
    file["cases"][0]["spec"]["scale"] = wrong;
    EXPECT_FALSE(checker.Status("attention", file).ok()) << wrong;
  }
}

TEST(MalformedFiles, RandomDamageNeverCrashes) {
  Checker checker;
  std::mt19937 random(20240607);
  const auto below = [&random](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const std::vector<Json> values = {Json(),           Json(true),          Json(0),       Json(-1),
                                    Json(7.5),        Json(1e300),         Json(-1e-300), Json("exp"),
                                    Json::array(),    Json::object(),      Json(1 << 20), Json(4294967303),
                                    Json(UINT64_MAX), Json({{1, 2}, {3}}), Json(3),       Json("constant(1e400)")};
  const std::vector<std::pair<std::string, Json>> files = {{"attention", OneCase("attention", "ssmax_bias")},
                                                           {"attention", OneCase("attention", "lssar_p15")},
                                                           {"model", OneCase("model", "ssmax")},
                                                           {"statistics", Golden("statistics")}};
  int taken = 0;
  for (int round = 0; round < 600; ++round) {
    const auto& [kind, whole] = files[round % files.size()];
    ASSERT_TRUE(whole.is_object());
    Json damaged = whole;
    // Stop early often: fields near the root are few, and numbers in matrices are many.
    Json* at = &damaged;
    Json::iterator child;
    do {
      child = at->begin();
      std::advance(child, below(at->size()));
      if (!child->is_structured() || child->empty() || (at != &damaged && below(3) == 0)) break;
      at = &*child;
    } while (true);
    if (below(3) == 0) {
      at->erase(child);
    } else {
      *child = values[below(values.size())];
    }
    std::string text = damaged.dump();
    if (below(8) == 0) text.resize(below(text.size()));
    if (below(8) == 0 && !text.empty()) text[below(text.size())] = static_cast<char>(below(256));
    SCOPED_TRACE(kind);
    taken += checker.Check(kind, text).ok() ? 1 : 0;
  }
  EXPECT_GT(taken, 40);
}

}  // namespace
}  // namespace ablate
