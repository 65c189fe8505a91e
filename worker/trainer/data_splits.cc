#include "worker/trainer/data_splits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/strings.h"

namespace ablate {
namespace {

constexpr int64_t kMinSpans = 16;

// The start of a work nearest to `place`, at most `radius` away; `place` itself when there is none.
int64_t NearestWorkStart(const TokenData& data, int64_t place, int64_t radius) {
  const auto before = data.LastWorkStart(place - radius, place + 1);
  const auto after = data.FirstWorkStart(place + 1, place + radius + 1);
  if (!before) return after.value_or(place);
  if (!after) return *before;
  return place - *before <= *after - place ? *before : *after;
}

int64_t SpansOf(const TokenRange& document, int64_t multiple, int64_t train_length) {
  return std::max<int64_t>(0, (document.size() - ((multiple - 1) * train_length + 1)) / train_length);
}

// Of `total` things, `count` evenly spread: the index of number i. Exact in integers.
int64_t Spread(int64_t i, int64_t total, int64_t count) {
  __extension__ using int128 = __int128;
  return static_cast<int64_t>(static_cast<int128>(i) * total / count);
}

}  // namespace

std::string_view Name(Split split) {
  switch (split) {
    case Split::kTrain:
      return "train";
    case Split::kSelection:
      return "selection";
    case Split::kConfirmation:
      return "confirmation";
  }
  return "";
}

std::optional<Split> ParseSplit(std::string_view name) {
  for (const Split split : {Split::kTrain, Split::kSelection, Split::kConfirmation}) {
    if (Name(split) == name) return split;
  }
  return std::nullopt;
}

const TokenRange& DataSplits::of(Split split) const {
  return split == Split::kTrain ? train : split == Split::kSelection ? selection : confirmation;
}

absl::StatusOr<DataSplits> MakeSplits(const TokenData& data, int train_length) {
  const int64_t T = train_length;
  if (T < 1) return absl::InvalidArgumentError(absl::StrCat("train.length is ", T, ", expected at least 1"));
  const int64_t total = data.size(), minimum = kDocumentMultiple * T, gap = kGapMultiple * T;
  const int64_t needed = 3 * minimum + 2 * gap;
  if (total < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("too little data: ", total, " tokens, but training at length ", T, " needs at least ", needed,
                     " (128 times the length: ", "three splits of 32 and two gaps of 16 lengths); ",
                     total >= 128 ? absl::StrCat("add data, or lower train.length to ", total / 128, " or less")
                                  : "add data: this is too little for any length"));
  }
  const int64_t share = std::max(minimum, total / 20);
  const int64_t radius = std::min(total / 50, share * 2 / 5);
  // A place moved to a work's start must leave every split its least size; otherwise it stays.
  auto place = [&](int64_t wanted, int64_t lowest, int64_t highest) {
    const int64_t start = NearestWorkStart(data, wanted, radius);
    return start >= lowest && start <= highest ? start : wanted;
  };
  DataSplits splits;
  splits.confirmation.end = total;
  splits.confirmation.begin = place(total - share, 2 * (minimum + gap), total - minimum);
  splits.selection.end = splits.confirmation.begin - gap;
  splits.selection.begin =
      place(std::max(splits.selection.end - share, minimum + gap), minimum + gap, splits.selection.end - minimum);
  splits.train.begin = 0;
  splits.train.end = splits.selection.begin - gap;
  return splits;
}

std::vector<TokenRange> Documents(const TokenData& data, const TokenRange& range, int train_length) {
  std::vector<TokenRange> documents;
  for (int64_t begin = range.begin; begin < range.end;) {
    const int64_t end = data.FirstWorkStart(begin + 1, range.end).value_or(range.end);
    const int64_t count = std::max<int64_t>(1, (end - begin) / (kDocumentMultiple * train_length));
    for (int64_t i = 0; i < count; ++i) {
      documents.push_back({begin + Spread(i, end - begin, count), begin + Spread(i + 1, end - begin, count)});
    }
    begin = end;
  }
  return documents;
}

absl::StatusOr<TargetSpans> MakeTargetSpans(const TokenData& data, const TokenRange& range, int train_length) {
  const int64_t T = train_length;
  const std::vector<TokenRange> documents = Documents(data, range, train_length);
  for (int64_t multiple = kMaxLengthMultiple; multiple >= 1; multiple /= 2) {
    int64_t count = 0;
    for (const TokenRange& document : documents) count += SpansOf(document, multiple, T);
    if (count < (multiple == 1 ? 1 : kMinSpans)) continue;
    TargetSpans spans{.train_length = train_length, .max_multiple = static_cast<int>(multiple)};
    spans.starts.reserve(static_cast<size_t>(count));
    spans.documents.reserve(static_cast<size_t>(count));
    for (size_t d = 0; d < documents.size(); ++d) {
      const int64_t first = documents[d].begin + (multiple - 1) * T + 1;
      for (int64_t i = 0; i < SpansOf(documents[d], multiple, T); ++i) {
        spans.starts.push_back(first + i * T);
        spans.documents.push_back(static_cast<int32_t>(d));
      }
    }
    return spans;
  }
  int64_t longest = 0;
  for (const TokenRange& document : documents) longest = std::max(longest, document.size());
  return absl::InvalidArgumentError(
      absl::StrCat("no document is long enough to measure loss_targets: a span takes ", T + 1,
                   " tokens (train.length + 1) of one document, and the longest has ", longest));
}

absl::StatusOr<std::vector<Window>> TargetWindows(const TargetSpans& spans, int length, int64_t count) {
  const int64_t T = spans.train_length, longest = spans.max_multiple * T;
  if (length < 1 || length > longest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot evaluate at a length of ", length, " tokens: the documents of this split give full context up to ",
        longest, " (", spans.max_multiple, "x of train.length ", T, ")",
        spans.max_multiple < kMaxLengthMultiple ? "; longer documents would allow up to 16x" : ""));
  }
  const auto total = static_cast<int64_t>(spans.starts.size());
  count = std::clamp<int64_t>(count, 1, total);
  std::vector<Window> windows;
  for (int64_t i = 0; i < count; ++i) {
    const auto span = static_cast<size_t>(Spread(i, total, count));
    const int64_t start = spans.starts[span];
    // Targets [done, done + part) of the span, at the end of a window whose last target is start + done + part - 1.
    for (int64_t done = 0; done < T;) {
      const int64_t part = std::min<int64_t>(T - done, length);
      windows.push_back({.begin = start + done + part - 1 - length,
                         .first_scored = static_cast<int>(length - part),
                         .end_scored = length,
                         .document = spans.documents[span]});
      done += part;
    }
  }
  return windows;
}

absl::StatusOr<std::vector<Window>> LossWindows(const TokenRange& range, int train_length, int length,
                                                int64_t loss_tokens) {
  const int64_t block = kMaxLengthMultiple * train_length;
  if (length < 1 || length > block) {
    return absl::InvalidArgumentError(absl::StrCat("cannot evaluate at a length of ", length, " tokens: expected 1 to ",
                                                   block, " (16x of train.length ", train_length, ")"));
  }
  const int64_t blocks = (range.size() - 1) / block;
  if (blocks < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the split has ", range.size(),
                                                   " tokens, but evaluation needs at least ", block + 1,
                                                   " (16 times train.length, and one)"));
  }
  const int64_t count = std::clamp<int64_t>(loss_tokens / block, 1, blocks);
  std::vector<Window> windows;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = range.begin + Spread(i, blocks, count) * block;
    for (int64_t offset = 0; offset + length <= block; offset += length) {
      windows.push_back({.begin = begin + offset, .first_scored = 0, .end_scored = length});
    }
  }
  return windows;
}

}  // namespace ablate
