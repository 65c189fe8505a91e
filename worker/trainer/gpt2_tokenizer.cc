#include "worker/trainer/gpt2_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/gpt2_token_bytes.h"

namespace ablate {
namespace {

// GPT-2's pattern. White space is written out, as \s differs between regular expression libraries: Unicode's property
// White_Space. UCP makes \p{L} and \p{N} those of Unicode.
#define ABLATE_WHITE_SPACE \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
constexpr char kPattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" ABLATE_WHITE_SPACE "\\p{L}\\p{N}]+|[" ABLATE_WHITE_SPACE
    "]+(?![^" ABLATE_WHITE_SPACE "])|[" ABLATE_WHITE_SPACE "]+";
#undef ABLATE_WHITE_SPACE

// encoder.json and vocab.bpe write a byte as a printable character: itself where it is one, else the next of those from
// U+0100 on.
std::array<char32_t, 256> PrintableBytes() {
  std::array<char32_t, 256> characters{};
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    characters[static_cast<size_t>(byte)] = printable ? static_cast<char32_t>(byte) : next++;
  }
  return characters;
}

// The bytes that a token is written as. Nothing: a character that stands for none.
std::optional<std::string> BytesOf(std::string_view printed) {
  static const auto& byte_of = *[] {
    auto* map = new std::unordered_map<char32_t, char>();
    const std::array<char32_t, 256> characters = PrintableBytes();
    for (size_t byte = 0; byte < 256; ++byte) map->emplace(characters[byte], static_cast<char>(byte));
    return map;
  }();
  std::string bytes;
  for (size_t i = 0; i < printed.size();) {
    // All such characters have one or two bytes of UTF-8.
    const auto lead = static_cast<unsigned char>(printed[i++]);
    char32_t character = lead;
    if (lead >= 0x80) {
      if ((lead & 0xe0) != 0xc0 || i == printed.size()) return std::nullopt;
      character = static_cast<char32_t>((lead & 0x1f) << 6 | (static_cast<unsigned char>(printed[i++]) & 0x3f));
    }
    const auto found = byte_of.find(character);
    if (found == byte_of.end()) return std::nullopt;
    bytes.push_back(found->second);
  }
  return bytes;
}

std::string_view NextLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

absl::Status Refuse(const std::string& path, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", ToAbsl(what), "; expected GPT-2's encoder.json and vocab.bpe, or its .tiktoken file"));
}

absl::StatusOr<std::vector<std::string>> ReadEncoder(const std::string& path, const std::string& content) {
  const auto json = nlohmann::json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Refuse(path, "not a JSON object of tokens");
  std::vector<std::string> tokens(kGpt2Vocabulary);
  if (json.size() != tokens.size()) return Refuse(path, absl::StrCat("has ", json.size(), " tokens"));
  for (const auto& [printed, token] : json.items()) {
    if (!token.is_number_unsigned() || token >= tokens.size()) {
      return Refuse(path, absl::StrCat("\"", printed, "\" has no number of a token"));
    }
    if (token == static_cast<unsigned>(kGpt2EndOfText)) continue;
    auto bytes = BytesOf(printed);
    if (!bytes) return Refuse(path, absl::StrCat("\"", printed, "\" does not stand for bytes"));
    tokens[token.get<size_t>()] = *std::move(bytes);
  }
  return tokens;
}

// Only that the merges are those by which the encoder's tokens are ranked.
absl::Status CheckMerges(const std::string& path, std::string_view content, const std::vector<std::string>& tokens) {
  size_t token = 256;
  for (int64_t line_number = 1; !content.empty(); ++line_number) {
    const std::string_view line = NextLine(&content);
    if (line.empty() || (line_number == 1 && line.substr(0, 8) == "#version")) continue;
    const size_t space = line.find(' ');
    const auto left = BytesOf(line.substr(0, std::min(space, line.size())));
    const auto right = space < line.size() ? BytesOf(line.substr(space + 1)) : std::nullopt;
    if (!left || !right || token >= tokens.size() || *left + *right != tokens[token]) {
      return Refuse(path, absl::StrCat("line ", line_number, " is not the merge that makes token ", token));
    }
    ++token;
  }
  if (token != static_cast<size_t>(kGpt2EndOfText)) return Refuse(path, absl::StrCat("has ", token - 256, " merges"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ReadTiktoken(const std::string& path, std::string_view content) {
  std::vector<std::string> tokens(kGpt2Vocabulary);
  size_t seen = 0;
  for (int64_t line_number = 1; !content.empty(); ++line_number) {
    const std::string_view line = NextLine(&content);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    std::string bytes;
    size_t token = tokens.size();
    const std::string_view number = space < line.size() ? line.substr(space + 1) : std::string_view();
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), token);
    if (!absl::Base64Unescape(ToAbsl(line.substr(0, std::min(space, line.size()))), &bytes) || bytes.empty() ||
        parsed.ec != std::errc() || parsed.ptr != number.data() + number.size() || token >= tokens.size() ||
        !tokens[token].empty()) {
      return Refuse(path, absl::StrCat("line ", line_number, " is not base64, a space and a new token's number"));
    }
    tokens[token] = std::move(bytes);
    ++seen;
  }
  if (seen < static_cast<size_t>(kGpt2EndOfText)) return Refuse(path, absl::StrCat("has ", seen, " tokens"));
  tokens[kGpt2EndOfText].clear();
  return tokens;
}

}  // namespace

class Gpt2Tokenizer::Splitter {
 public:
  Splitter() {
    int error = 0;
    PCRE2_SIZE at = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &at, nullptr);
    CHECK(code_ != nullptr) << "GPT-2's pattern, at " << at << ": error " << error;
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);  // without it the same, slower
  }
  ~Splitter() { pcre2_code_free(code_); }
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;

  // Calls `piece` with the text's pieces in order; together they are the text.
  template <typename Piece>
  void Split(std::string_view text, const Piece& piece) const {
    pcre2_match_data* const match = pcre2_match_data_create_from_pattern(code_, nullptr);
    size_t done = 0;
    while (done < text.size()) {
      const int found =
          pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), done, 0, match, nullptr);
      const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match);
      const size_t begin = found > 0 ? ends[0] : text.size(), end = found > 0 ? ends[1] : text.size();
      // What the pattern passes over is no UTF-8.
      for (; done < begin; ++done) piece(text.substr(done, 1));
      if (end > begin) piece(text.substr(begin, end - begin));
      done = end;
    }
    pcre2_match_data_free(match);
  }

 private:
  pcre2_code* code_;
};

Gpt2Tokenizer::Gpt2Tokenizer() : splitter_(std::make_unique<Splitter>()) {}
Gpt2Tokenizer::~Gpt2Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Gpt2Tokenizer>> Gpt2Tokenizer::Open(const std::vector<std::string>& paths) {
  std::vector<std::string> contents;
  for (const std::string& path : paths) {
    ABLATE_ASSIGN_OR_RETURN(contents.emplace_back(), ReadFile(path));
  }
  std::unique_ptr<Gpt2Tokenizer> tokenizer(new Gpt2Tokenizer);
  if (paths.size() == 1) {
    ABLATE_ASSIGN_OR_RETURN(tokenizer->bytes_, ReadTiktoken(paths[0], contents[0]));
  } else if (paths.size() == 2) {
    const size_t encoder = contents[0].substr(0, 1) == "{" ? 0 : 1;
    ABLATE_ASSIGN_OR_RETURN(tokenizer->bytes_, ReadEncoder(paths[encoder], contents[encoder]));
    ABLATE_RETURN_IF_ERROR(CheckMerges(paths[1 - encoder], contents[1 - encoder], tokenizer->bytes_));
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "a tokenizer of ", paths.size(), " files; expected GPT-2's encoder.json and vocab.bpe, or its .tiktoken file"));
  }
  for (int32_t token = 0; token < kGpt2EndOfText; ++token) {
    const std::string& bytes = tokenizer->bytes_[static_cast<size_t>(token)];
    if (bytes.size() != static_cast<size_t>(Gpt2TokenBytes(token))) {
      return Refuse(paths[0], absl::StrCat("token ", token, " has ", bytes.size(), " bytes where GPT-2's has ",
                                           Gpt2TokenBytes(token)));
    }
    tokenizer->token_of_.emplace(bytes, token);
  }
  if (tokenizer->token_of_.size() != static_cast<size_t>(kGpt2EndOfText))
    return Refuse(paths[0], "two tokens are equal");
  return tokenizer;
}

std::vector<int32_t> Gpt2Tokenizer::Encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  splitter_->Split(text, [&](std::string_view piece) { EncodePiece(piece, &tokens); });
  return tokens;
}

void Gpt2Tokenizer::EncodePiece(std::string_view piece, std::vector<int32_t>* tokens) const {
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  const auto find = [&](size_t begin, size_t end) {
    const auto found = token_of_.find(std::string(piece.substr(begin, end - begin)));
    return found == token_of_.end() ? kNone : found->second;
  };
  // Tokens so far as a list, by where they begin: where the token before and the one after do. A heap of merges that
  // may be, (token, begin), of equal ones the leftmost first; without it a megabyte of dashes would take hours.
  const size_t size = piece.size();
  std::vector<size_t> before(size + 1), after(size + 1);
  for (size_t i = 0; i <= size; ++i) before[i] = i - 1, after[i] = i + 1;
  std::priority_queue<std::pair<int32_t, size_t>, std::vector<std::pair<int32_t, size_t>>, std::greater<>> merges;
  const auto join = [&](size_t begin) {
    const size_t middle = after[begin];
    if (middle >= size) return kNone;
    return find(begin, after[middle]);
  };
  const auto offer = [&](size_t begin) {
    if (const int32_t token = join(begin); token != kNone) merges.emplace(token, begin);
  };
  std::vector<bool> begins(size, true);
  for (size_t i = 0; i < size; ++i) offer(i);
  while (!merges.empty()) {
    const auto [token, begin] = merges.top();
    merges.pop();
    if (!begins[begin] || join(begin) != token) continue;  // what it would join has been joined otherwise
    const size_t middle = after[begin];
    begins[middle] = false;
    after[begin] = after[middle];
    before[after[begin]] = begin;
    offer(begin);
    if (begin > 0) offer(before[begin]);
  }
  for (size_t i = 0; i < size; i = after[i]) tokens->push_back(find(i, after[i]));
}

std::string Gpt2Tokenizer::Decode(const std::vector<int32_t>& tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    if (token >= 0 && token < kGpt2EndOfText) text += bytes_[static_cast<size_t>(token)];
  }
  return text;
}

}  // namespace ablate
