// GPT-2's tokenizer. Its own files are not in this tree: with $ABLATE_GPT2_FILES (a folder with encoder.json and
// vocab.bpe) and $ABLATE_GPT2_CASES (JSON: [{"text", "tokens"}], made by another implementation) their texts are
// compared token by token (tests/tokenizer/). Without them, what is refused.
#include "worker/trainer/gpt2_tokenizer.h"

#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/passkey_text.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

class Gpt2TokenizerTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, std::string_view content) {
    const std::string path = JoinPath(dir_.path(), name);
    EXPECT_TRUE(WriteFileAtomic(path, content).ok());
    return path;
  }
  std::string Refusal(const std::vector<std::string>& paths) {
    const auto tokenizer = Gpt2Tokenizer::Open(paths);
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(tokenizer.status().message());
  }
  TempDir dir_;
};

TEST_F(Gpt2TokenizerTest, OtherFilesAreRefusedByName) {
  EXPECT_THAT(Refusal({}), HasSubstr("a tokenizer of 0 files"));
  EXPECT_THAT(Refusal({Write("a.tiktoken", "IQ== 0\nIg== zero\n")}), HasSubstr("a.tiktoken: line 2 is not base64"));
  EXPECT_THAT(Refusal({Write("b.tiktoken", "IQ== 0\nIg== 0\n")}), HasSubstr("line 2"));
  EXPECT_THAT(Refusal({Write("c.tiktoken", "IQ== 0\n")}), HasSubstr("has 1 tokens"));
  EXPECT_THAT(Refusal({Write("vocab.bpe", "#version: 0.2\n"), Write("encoder.json", "{\"!\": 0}")}),
              HasSubstr("encoder.json: has 1 tokens"));
  EXPECT_THAT(Refusal({Write("e.json", "[]"), Write("v.bpe", "")}), HasSubstr("not a JSON object"));
  EXPECT_EQ(Gpt2Tokenizer::Open({JoinPath(dir_.path(), "absent")}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Gpt2TokenizerTest, AnotherVocabularyIsNotTakenForGpt2s) {
  // The right number of different tokens, of other texts.
  std::string lines;
  for (int token = 0; token < kGpt2EndOfText; ++token) {
    absl::StrAppend(&lines, absl::Base64Escape(absl::StrCat("t", token)), " ", token, "\n");
  }
  EXPECT_THAT(Refusal({Write("other.tiktoken", lines)}), HasSubstr("token 0 has 2 bytes where GPT-2's has 1"));
}

TEST_F(Gpt2TokenizerTest, EncodesAsAnotherImplementation) {
  const char* const files = std::getenv("ABLATE_GPT2_FILES");
  const char* const cases_path = std::getenv("ABLATE_GPT2_CASES");
  if (files == nullptr || cases_path == nullptr) GTEST_SKIP() << "needs GPT-2's files: tests/tokenizer/peer_test.py";
  const std::string encoder = JoinPath(files, "encoder.json"), merges = JoinPath(files, "vocab.bpe");
  const auto tokenizer = Gpt2Tokenizer::Open({encoder, merges});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto content = ReadFile(cases_path);
  ASSERT_TRUE(content.ok()) << content.status();
  std::string tiktoken;
  for (int32_t token = 0; token < kGpt2EndOfText; ++token) {
    absl::StrAppend(&tiktoken, absl::Base64Escape((*tokenizer)->Decode({token})), " ", token, "\n");
  }
  const auto same = Gpt2Tokenizer::Open({Write("gpt2.tiktoken", tiktoken)});
  ASSERT_TRUE(same.ok()) << same.status();
  int compared = 0;
  for (const auto& known : nlohmann::json::parse(*content)) {
    const auto text = known["text"].get<std::string>();
    const auto tokens = known["tokens"].get<std::vector<int32_t>>();
    EXPECT_EQ((*tokenizer)->Encode(text), tokens) << absl::CEscape(text);
    EXPECT_EQ((*tokenizer)->Decode(tokens), text);
    EXPECT_EQ((*same)->Encode(text), tokens) << absl::CEscape(text);
    ++compared;
  }
  EXPECT_GE(compared, 500);
  std::cout << compared << " texts compared\n";

  // Every byte comes back, UTF-8 or not; and a long piece without a word's end takes no quadratic time.
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += std::string(3, static_cast<char>(byte)) + " ";
  EXPECT_EQ((*tokenizer)->Decode((*tokenizer)->Encode(all)), all);
  const std::string dashes(200'000, '-');
  EXPECT_EQ((*tokenizer)->Decode((*tokenizer)->Encode(dashes)), dashes);
  EXPECT_EQ((*tokenizer)->Decode({kGpt2EndOfText, -1, kGpt2Vocabulary}), "");

  // Files that have been changed.
  auto changed = ReadFile(merges);
  ASSERT_TRUE(changed.ok());
  changed->replace(changed->find("\ni n\n"), 5, "\nn i\n");
  EXPECT_THAT(Refusal({encoder, Write("vocab.bpe", *changed)}), HasSubstr("is not the merge that makes token "));
}

// The passkey's pieces are encoded one by one: their texts, end to end, are the prompt's, and the answer is found again.
TEST_F(Gpt2TokenizerTest, PasskeyPromptsHaveTheTokensAskedFor) {
  const char* const files = std::getenv("ABLATE_GPT2_FILES");
  if (files == nullptr) GTEST_SKIP() << "needs GPT-2's files: tests/tokenizer/peer_test.py";
  const auto tokenizer = Gpt2Tokenizer::Open({JoinPath(files, "encoder.json"), JoinPath(files, "vocab.bpe")});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (const PasskeyPrompt form : {PasskeyPrompt::kFull, PasskeyPrompt::kShort}) {
    const PasskeyText text(form, **tokenizer);
    EXPECT_LT(text.least_prompt_tokens(), form == PasskeyPrompt::kFull ? 80 : 30);
    for (const int key : {1, 500, 12345, 49999}) {
      for (const int tokens : {text.least_document_tokens(), 256, 1024}) {
        const auto document = text.Document({key, 0.4}, tokens);
        ASSERT_TRUE(document.ok()) << document.status();
        EXPECT_EQ(static_cast<int>(document->size()), tokens);
        const std::string said = (*tokenizer)->Decode(*document);
        EXPECT_THAT(said, HasSubstr(absl::StrCat("\nThe pass key is ", key, form == PasskeyPrompt::kFull ? ". Remember" : ".\n")));
        const std::string question = "\nWhat is the pass key? The pass key is";
        const size_t at = said.find(question);
        ASSERT_NE(at, std::string::npos);
        EXPECT_EQ(said.substr(at + question.size()), absl::StrCat(" ", key, ".\n"));
        // Encoded as a whole, the question ends where the pieces' does, so a model meets the tokens that it knows.
        if (tokens >= 256) {
          EXPECT_EQ((*tokenizer)->Encode(said).size(), document->size()) << said;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ablate
