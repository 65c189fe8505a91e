// What is trained on and what is measured: splits, documents, target spans, evaluation windows.
// Pure functions of (data, T_train); must not know models, seeds or jobs. docs/data.md explains the rules to users.
// Source of the rules: arXiv 2501.13428's measurement (`loss`) and, for the rest, docs/data.md.
//
// T is the training length in tokens. A window of L tokens has inputs tokens [begin, begin + L) and, for input i, the
// target token begin + i + 1.
// Errors, all: InvalidArgument, with what there is and what would be needed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/trainer/data_tokens.h"

namespace ablate {

inline constexpr int64_t kDocumentMultiple = 32;  // a document of text has at least 32 T tokens
inline constexpr int64_t kGapMultiple = 16;  // tokens between splits, in T: no context of one split reaches another
inline constexpr int64_t kMaxLengthMultiple = 16;  // the longest evaluation, in T

enum class Split { kTrain, kSelection, kConfirmation };
std::string_view Name(Split split);
std::optional<Split> ParseSplit(std::string_view name);  // "train", "selection", "confirmation"

struct TokenRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const TokenRange&) const = default;
};

struct DataSplits {
  TokenRange train, selection, confirmation;
  const TokenRange& of(Split split) const;
};

// Train, selection, confirmation in file order, about 90/5/5 % of the tokens, gaps of 16 T between them that nobody
// uses. Each of the last two has at least 32 T tokens and starts at the start of a work when there is one within 2 % of
// the data (at most 40 % of the split) of the place; so no work lies in two splits. Without one, the gap is what
// separates them. Too little data: fewer than 128 T tokens.
absl::StatusOr<DataSplits> MakeSplits(const TokenData& data, int train_length);

// The documents of a range, in order, without overlap: the works in it (cut off at the range's ends); a work of k * 32
// T tokens or more, k >= 2, is cut into k equal documents. A work shorter than 32 T tokens is one document.
std::vector<TokenRange> Documents(const TokenData& data, const TokenRange& range, int train_length);

// Where `loss_targets` is measured, fixed by (data, T, split) alone.
struct TargetSpans {
  int train_length = 0;
  // Every length up to max_multiple * T has its whole context of L - T tokens before a span within the span's document.
  int max_multiple = 0;
  // A span's targets are tokens [start, start + T); at 1x its first target has one token of context.
  std::vector<int64_t> starts;
  std::vector<int32_t> documents;  // of each span, numbered from 0 within the split
};

// Spans lie end to end in each document, from its token (m - 1) T + 1 on; m = max_multiple is the largest of 16, 8, 4,
// 2, 1 with which the split has at least 16 spans (text: 16; shards: as long as their documents are). None at all:
// error.
absl::StatusOr<TargetSpans> MakeTargetSpans(const TokenData& data, const TokenRange& range, int train_length);

struct Window {
  int64_t begin = 0;
  int first_scored = 0, end_scored = 0;  // inputs [first_scored, end_scored) have a target that counts
  int32_t document = 0;                  // of a target window: its span's
};

// Windows of `length` tokens that score `count` of the spans (all, if there are fewer), evenly spread; the same targets
// at every length. From T on a span is one window. Below T it takes several, the last of which scores what is left.
// Error: length < 1 or above max_multiple * T.
absl::StatusOr<std::vector<Window>> TargetWindows(const TargetSpans& spans, int length, int64_t count);

// Consecutive windows of `length` tokens, all positions scored. The range is seen as blocks of 16 T targets; about
// `loss_tokens` targets are taken (at least one block), as whole blocks evenly spread; a block is cut into windows, a
// rest shorter than `length` is left out. So all lengths that divide 16 T score exactly the same targets. Error: length
// < 1 or above 16 T.
absl::StatusOr<std::vector<Window>> LossWindows(const TokenRange& range, int train_length, int length,
                                                int64_t loss_tokens);

}  // namespace ablate
