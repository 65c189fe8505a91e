#include "worker/trainer/mqar.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "experiments/mqar_rules.h"

namespace ablate {
namespace {

std::string StreamName(std::string_view name, std::string_view part) {
  return absl::StrCat(std::string(name), "/", std::string(part));
}

// The first `count` of a shuffle of first, first + 1, ..., first + candidates - 1.
std::vector<int32_t> Draw(const PhiloxStream& stream, uint64_t sample, int count, int32_t first, int candidates) {
  std::vector<int32_t> drawn(static_cast<size_t>(candidates));
  std::iota(drawn.begin(), drawn.end(), first);
  for (int j = 0; j < count; ++j) {
    const uint64_t index = sample * static_cast<uint64_t>(count) + static_cast<uint64_t>(j);
    const auto other = j + static_cast<int64_t>(stream.Below(index, static_cast<uint64_t>(candidates - j)));
    std::swap(drawn[static_cast<size_t>(j)], drawn[static_cast<size_t>(other)]);
  }
  drawn.resize(static_cast<size_t>(count));
  return drawn;
}

}  // namespace

MqarMaker::MqarMaker(int vocabulary, int pairs, int length, uint64_t seed, std::string_view name)
    : vocabulary_(vocabulary),
      pairs_(pairs),
      length_(length),
      keys_(seed, StreamName(name, "keys")),
      values_(seed, StreamName(name, "values")),
      places_(seed, StreamName(name, "places")) {}

absl::StatusOr<MqarMaker> MqarMaker::Make(int64_t vocabulary, int64_t pairs, int64_t length, uint64_t seed,
                                          std::string_view name) {
  if (pairs < 1) return absl::InvalidArgumentError(absl::StrCat("associative recall of ", pairs, " pairs is none"));
  if (MqarKeys(vocabulary) < pairs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "associative recall of ", pairs, " pairs needs ", pairs, " keys, but data.mqar.vocabulary ", vocabulary,
        " has ", MqarKeys(vocabulary), "; raise it to ", 2 * (pairs + 1), " or more, or lower the pairs"));
  }
  if (length < MqarLeastTokens(pairs)) {
    return absl::InvalidArgumentError(absl::StrCat("associative recall of ", pairs,
                                                   " pairs takes sequences of at least ", MqarLeastTokens(pairs),
                                                   " tokens (4 a pair), and this has ", length, "; lower the pairs to ",
                                                   length / 4, " or less, or raise the length"));
  }
  return MqarMaker(static_cast<int>(vocabulary), static_cast<int>(pairs), static_cast<int>(length), seed, name);
}

void MqarMaker::Fill(uint64_t sample, int32_t* tokens, int32_t* targets) const {
  const int half = vocabulary_ / 2, head = 2 * pairs_;
  const std::vector<int32_t> keys = Draw(keys_, sample, pairs_, 1, half - 1);
  const std::vector<int32_t> values = Draw(values_, sample, pairs_, half, vocabulary_ - half);
  const std::vector<int32_t> places = Draw(places_, sample, pairs_, 0, (length_ - head) / 2);
  std::fill(tokens, tokens + length_, 0);
  std::fill(targets, targets + length_, -1);
  for (int j = 0; j < pairs_; ++j) {
    const auto i = static_cast<size_t>(j);
    tokens[2 * j] = keys[i];
    tokens[2 * j + 1] = values[i];
    const int at = head + 2 * places[i];
    tokens[at] = keys[i];
    targets[at] = values[i];
  }
}

}  // namespace ablate
