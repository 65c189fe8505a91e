// Token files, splits, documents, target spans, evaluation windows and the sampler, on generated texts and shards.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/trainer/data_sampler.h"
#include "worker/trainer/data_splits.h"
#include "worker/trainer/data_tokens.h"

namespace ablate {
namespace {

using ::testing::HasSubstr;

std::string Text(size_t bytes, uint32_t state = 1) {
  std::string text(bytes, 'x');
  for (char& c : text) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<char>('a' + (state >> 24) % 26);
  }
  return text;
}

std::string Shard(const std::vector<uint16_t>& tokens, int32_t magic = 20240520, int32_t version = 1,
                  int64_t stated = -1) {
  std::string bytes(1024 + 2 * tokens.size(), '\0');
  const int32_t header[3] = {magic, version, static_cast<int32_t>(stated < 0 ? tokens.size() : stated)};
  std::memcpy(bytes.data(), header, sizeof(header));
  std::memcpy(bytes.data() + 1024, tokens.data(), 2 * tokens.size());
  return bytes;
}

// Documents of the given lengths, each begun by the end-of-text token.
std::vector<uint16_t> Tokens(const std::vector<int64_t>& lengths) {
  std::vector<uint16_t> tokens;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i)
      tokens.push_back(i == 0 ? 50256 : static_cast<uint16_t>(tokens.size() % 50000));
  }
  return tokens;
}

class DataTest : public ::testing::Test {
 protected:
  std::string Put(const std::string& name, const std::string& content) {
    const std::string path = JoinPath(dir_.path(), name);
    EXPECT_TRUE(WriteFileAtomic(path, content).ok());
    return path;
  }
  std::unique_ptr<TokenData> OpenText(const std::vector<size_t>& sizes) {
    std::vector<std::string> paths;
    for (size_t i = 0; i < sizes.size(); ++i) {
      paths.push_back(Put(absl::StrCat("text", i), Text(sizes[i], static_cast<uint32_t>(i))));
    }
    auto data = TokenData::Open(DataFormat::kText, paths);
    EXPECT_TRUE(data.ok()) << data.status();
    return *std::move(data);
  }
  std::unique_ptr<TokenData> OpenShards(const std::vector<std::vector<uint16_t>>& shards) {
    std::vector<std::string> paths;
    for (size_t i = 0; i < shards.size(); ++i) paths.push_back(Put(absl::StrCat("shard", i), Shard(shards[i])));
    auto data = TokenData::Open(DataFormat::kTokenShards, paths);
    EXPECT_TRUE(data.ok()) << data.status();
    return *std::move(data);
  }
  absl::Status OpenStatus(DataFormat format, const std::string& content) {
    return TokenData::Open(format, {Put("bad", content)}).status();
  }

  TempDir dir_;
};

TEST_F(DataTest, TextIsBytesAcrossFiles) {
  auto data = TokenData::Open(DataFormat::kText, {Put("a", "ab\xc3\xbf"), Put("b", "cd")});
  ASSERT_TRUE(data.ok());
  EXPECT_EQ((*data)->size(), 6);
  EXPECT_EQ((*data)->vocabulary(), 256);
  std::vector<int32_t> tokens(4);
  ASSERT_TRUE((*data)->Read(2, 4, tokens.data()).ok());
  EXPECT_EQ(tokens, (std::vector<int32_t>{0xc3, 0xbf, 'c', 'd'}));
  EXPECT_EQ((*data)->FirstWorkStart(1, 6), 4);
  EXPECT_EQ((*data)->LastWorkStart(0, 4), 0);
  EXPECT_EQ((*data)->FirstWorkStart(5, 6), std::nullopt);
}

TEST_F(DataTest, ShardsAreOneStreamWithWorksAtEndOfText) {
  auto data = OpenShards({{50256, 1, 2}, {3, 50256, 4}});
  EXPECT_EQ(data->size(), 6);
  EXPECT_EQ(data->vocabulary(), 50257);
  std::vector<int32_t> tokens(6);
  ASSERT_TRUE(data->Read(0, 6, tokens.data()).ok());
  EXPECT_EQ(tokens, (std::vector<int32_t>{50256, 1, 2, 3, 50256, 4}));
  EXPECT_EQ(data->FirstWorkStart(1, 6), 4);
  EXPECT_EQ(data->LastWorkStart(0, 4), 0);
  EXPECT_EQ(data->LastWorkStart(0, 6), 4);
  EXPECT_EQ(data->LastWorkStart(1, 4), std::nullopt);
}

TEST_F(DataTest, BadFilesAreRefusedWithAReason) {
  EXPECT_THAT(std::string(TokenData::Open(DataFormat::kText, {}).status().message()), HasSubstr("no file"));
  EXPECT_EQ(TokenData::Open(DataFormat::kText, {dir_.path() + "/none"}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(TokenData::Open(DataFormat::kText, {dir_.path()}).ok());
  EXPECT_THAT(std::string(OpenStatus(DataFormat::kText, "").message()), HasSubstr("empty"));
  EXPECT_THAT(std::string(OpenStatus(DataFormat::kText, "0123456789\xe2\x82\xac\xff").message()),
              HasSubstr("no UTF-8 text: byte 0xff at offset 13"));
  const std::vector<uint16_t> tokens = Tokens({10});
  EXPECT_THAT(std::string(OpenStatus(DataFormat::kTokenShards, "short").message()), HasSubstr("header"));
  EXPECT_THAT(std::string(OpenStatus(DataFormat::kTokenShards, Text(2000)).message()), HasSubstr("expected 20240520"));
  EXPECT_THAT(std::string(OpenStatus(DataFormat::kTokenShards, Shard(tokens, 20240520, 2)).message()),
              HasSubstr("version 2"));
  EXPECT_THAT(std::string(OpenStatus(DataFormat::kTokenShards, Shard(tokens, 20240520, 1, 11)).message()),
              HasSubstr("cut short"));
  EXPECT_THAT(std::string(OpenStatus(DataFormat::kTokenShards, Shard(tokens, 20240520, 1, 9)).message()),
              HasSubstr("too long"));
  EXPECT_THAT(std::string(OpenStatus(DataFormat::kTokenShards, Shard({}, 20240520, 1, 0)).message()),
              HasSubstr("0 tokens"));

  auto data = OpenShards({{1, 2, 50257, 3}});
  int32_t out[4];
  EXPECT_TRUE(data->Read(0, 2, out).ok());
  const absl::Status status = data->Read(0, 4, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("token 2 is 50257"));
}

TEST_F(DataTest, TextMustBeWellFormedUtf8) {
  for (const std::string good : {"\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xef\xbf\xbf",
                                 "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(OpenStatus(DataFormat::kText, "0123456" + good + "89abcdefghi").ok()) << good;
  }
  // Stray, overlong, a surrogate, beyond Unicode, cut short.
  for (const std::string bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                                "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xc3"}) {
    EXPECT_THAT(std::string(OpenStatus(DataFormat::kText, "0123456" + bad).message()), HasSubstr("at offset 7"));
    EXPECT_THAT(std::string(OpenStatus(DataFormat::kText, "0123456" + bad + "x").message()), HasSubstr("at offset 7"));
  }
}

TEST_F(DataTest, TooLittleDataSaysHowMuchIsNeeded) {
  const int T = 8;
  const auto status = MakeSplits(*OpenText({128 * T - 1}), T).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1023 tokens"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1024"));
  const std::string twelve(MakeSplits(*OpenText({12}), T).status().message());
  EXPECT_THAT(twelve, HasSubstr("too little for any length"));
  EXPECT_THAT(twelve, ::testing::Not(HasSubstr("or less")));
  const auto splits = MakeSplits(*OpenText({128 * T}), T);
  ASSERT_TRUE(splits.ok());
  EXPECT_EQ(splits->train.size(), 32 * T);
}

TEST_F(DataTest, SplitsAreDisjointWithGapsAndAboutNinetyFiveFive) {
  const int T = 8;
  // One file; many small files; shards with documents of many sizes; shards without any mark.
  std::vector<std::unique_ptr<TokenData>> sets;
  for (const size_t size : {1024u, 1025u, 5000u, 33333u, 200000u}) sets.push_back(OpenText({size}));
  sets.push_back(OpenText(std::vector<size_t>(40, 1500)));
  std::vector<int64_t> lengths;
  for (int i = 0; i < 300; ++i) lengths.push_back(1 + (i * 37) % 700);
  sets.push_back(OpenShards({Tokens(lengths), Tokens(lengths)}));
  sets.push_back(OpenShards({std::vector<uint16_t>(9999, 7)}));
  for (const auto& data : sets) {
    const auto splits = MakeSplits(*data, T);
    ASSERT_TRUE(splits.ok()) << splits.status();
    const int64_t total = data->size();
    EXPECT_EQ(splits->train.begin, 0);
    EXPECT_EQ(splits->confirmation.end, total);
    EXPECT_EQ(splits->selection.begin - splits->train.end, 16 * T);
    EXPECT_EQ(splits->confirmation.begin - splits->selection.end, 16 * T);
    for (const Split split : {Split::kTrain, Split::kSelection, Split::kConfirmation}) {
      EXPECT_GE(splits->of(split).size(), 32 * T) << Name(split) << " of " << total;
    }
    if (total > 20000) {
      EXPECT_NEAR(splits->train.size() / double(total), 0.9, 0.06);
      EXPECT_NEAR(splits->selection.size() / double(total), 0.05, 0.03);
      EXPECT_NEAR(splits->confirmation.size() / double(total), 0.05, 0.03);
    }
    for (const Split split : {Split::kTrain, Split::kSelection, Split::kConfirmation}) {
      const TokenRange range = splits->of(split);
      int64_t end = range.begin;
      for (const TokenRange& document : Documents(*data, range, T)) {
        EXPECT_EQ(document.begin, end);
        end = document.end;
        EXPECT_LT(document.size(), 64 * T);
        // One work a document.
        EXPECT_EQ(data->FirstWorkStart(document.begin + 1, document.end), std::nullopt);
      }
      EXPECT_EQ(end, range.end);
    }
  }
}

TEST_F(DataTest, SplitsBeginWhereWorksBeginWhenOneIsNear) {
  const int T = 8;
  auto data = OpenText(std::vector<size_t>(100, 1000));
  const auto splits = MakeSplits(*data, T);
  ASSERT_TRUE(splits.ok());
  EXPECT_EQ(splits->confirmation.begin % 1000, 0);
  EXPECT_EQ(splits->selection.begin % 1000, 0);
  // No work lies in two splits.
  std::map<int64_t, std::set<int>> splits_of_work;
  for (const Split split : {Split::kTrain, Split::kSelection, Split::kConfirmation}) {
    for (const TokenRange& d : Documents(*data, splits->of(split), T)) {
      splits_of_work[d.begin / 1000].insert(static_cast<int>(split));
    }
  }
  for (const auto& [work, in] : splits_of_work) EXPECT_EQ(in.size(), 1u) << work;
}

TEST_F(DataTest, ATextDocumentHasAtLeast32Lengths) {
  const int T = 8;
  auto data = OpenText({100000});
  const auto splits = MakeSplits(*data, T);
  ASSERT_TRUE(splits.ok());
  for (const TokenRange& document : Documents(*data, splits->selection, T)) EXPECT_GE(document.size(), 32 * T);
}

// The heart of loss_targets: the same targets at every length, each with its whole context in its document.
TEST_F(DataTest, TargetWindowsScoreTheSameTargetsAtEveryLength) {
  const int T = 8;
  std::vector<int64_t> lengths;
  for (int i = 0; i < 300; ++i) lengths.push_back(1 + (i * 37) % 700);
  std::vector<std::unique_ptr<TokenData>> sets;
  sets.push_back(OpenText({40000}));
  sets.push_back(OpenShards({Tokens(lengths)}));
  for (const auto& data : sets) {
    const auto splits = MakeSplits(*data, T);
    ASSERT_TRUE(splits.ok());
    for (const Split split : {Split::kSelection, Split::kConfirmation}) {
      const TokenRange range = splits->of(split);
      const auto spans = MakeTargetSpans(*data, range, T);
      ASSERT_TRUE(spans.ok()) << spans.status();
      EXPECT_EQ(spans->max_multiple, 16);
      const std::vector<TokenRange> documents = Documents(*data, range, T);
      std::set<int64_t> all;
      for (const int64_t start : spans->starts) {
        for (int i = 0; i < T; ++i) EXPECT_TRUE(all.insert(start + i).second) << "spans overlap";
      }
      EXPECT_GT(std::set(spans->documents.begin(), spans->documents.end()).size(), 1u);
      for (size_t i = 0; i < spans->starts.size(); ++i) {
        const TokenRange& document = documents[static_cast<size_t>(spans->documents[i])];
        EXPECT_TRUE(document.begin < spans->starts[i] && spans->starts[i] + T <= document.end);
      }
      for (const int64_t count : {1, 5, 1000000}) {
        std::set<int64_t> expected;
        for (const int length : {1, 3, T, T + 1, 2 * T, 3 * T, 5 * T + 3, 16 * T}) {
          const auto windows = TargetWindows(*spans, length, count);
          ASSERT_TRUE(windows.ok()) << windows.status();
          std::set<int64_t> targets;
          for (const Window& window : *windows) {
            EXPECT_GE(window.first_scored, 0);
            EXPECT_LE(window.end_scored, length);
            for (int i = window.first_scored; i < window.end_scored; ++i) {
              EXPECT_TRUE(targets.insert(window.begin + i + 1).second) << "scored twice";
            }
            const auto document = std::find_if(documents.begin(), documents.end(), [&](const TokenRange& d) {
              return window.begin >= d.begin && window.begin + length + 1 <= d.end;
            });
            EXPECT_NE(document, documents.end()) << "window leaves its document at length " << length;
          }
          if (expected.empty()) expected = targets;
          EXPECT_EQ(targets, expected) << length;
          EXPECT_EQ(targets.size() % T, 0u);
        }
        if (count == 1000000) {
          EXPECT_EQ(expected, all);
        } else {
          EXPECT_EQ(expected.size(), static_cast<size_t>(count * T));
        }
      }
    }
  }
}

TEST_F(DataTest, ShortDocumentsLimitTheLengthAndSaySo) {
  const int T = 8;
  auto data = OpenShards({Tokens(std::vector<int64_t>(400, 5 * T))});
  const auto splits = MakeSplits(*data, T);
  ASSERT_TRUE(splits.ok());
  const auto spans = MakeTargetSpans(*data, splits->selection, T);
  ASSERT_TRUE(spans.ok());
  EXPECT_EQ(spans->max_multiple, 4);
  EXPECT_TRUE(TargetWindows(*spans, 4 * T, 10).ok());
  const auto status = TargetWindows(*spans, 4 * T + 1, 10).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("up to 32 (4x"));
  EXPECT_FALSE(TargetWindows(*spans, 0, 10).ok());

  auto tiny = OpenShards({Tokens(std::vector<int64_t>(4000, T))});
  EXPECT_FALSE(MakeTargetSpans(*tiny, MakeSplits(*tiny, T)->selection, T).ok());
}

TEST_F(DataTest, LossWindowsScoreTheSameTokensWhereLengthsDivide) {
  const int T = 8;
  const TokenRange range{1000, 1000 + 50 * 16 * T + 17};
  for (const int64_t tokens : {1, 16 * T * 7, 1000000}) {
    std::set<int64_t> expected;
    for (const int length : {T, 2 * T, 4 * T, 8 * T, 16 * T, T / 2}) {
      const auto windows = LossWindows(range, T, length, tokens);
      ASSERT_TRUE(windows.ok());
      std::set<int64_t> targets;
      for (const Window& window : *windows) {
        EXPECT_EQ(window.first_scored, 0);
        EXPECT_EQ(window.end_scored, length);
        EXPECT_GE(window.begin, range.begin);
        EXPECT_LT(window.begin + length, range.end);
        for (int i = 0; i < length; ++i) EXPECT_TRUE(targets.insert(window.begin + i + 1).second);
      }
      if (expected.empty()) expected = targets;
      EXPECT_EQ(targets, expected) << length;
    }
    EXPECT_EQ(expected.size(), static_cast<size_t>(16 * T * (tokens == 1 ? 1 : tokens == 1000000 ? 50 : 7)));
  }
  EXPECT_EQ(LossWindows(range, T, 3 * T, 1)->size(), 5u);
  EXPECT_FALSE(LossWindows(range, T, 16 * T + 1, 1).ok());
  EXPECT_FALSE(LossWindows(range, T, 0, 1).ok());
  EXPECT_FALSE(LossWindows({0, 16 * T}, T, T, 1).ok());
}

TEST_F(DataTest, SamplesDependOnSeedAndIndexAloneAndStayInside) {
  const int T = 8;
  auto data = OpenText({700, 5, 2000, 9, 3000});
  const auto splits = MakeSplits(*data, T);
  ASSERT_TRUE(splits.ok());
  const auto one = TrainSampler::Make(data.get(), splits->train, T, 1);
  const auto again = TrainSampler::Make(data.get(), splits->train, T, 1);
  const auto other = TrainSampler::Make(data.get(), splits->train, T, 2);
  ASSERT_TRUE(one.ok() && again.ok() && other.ok());
  int differing = 0;
  std::set<int64_t> seen;
  // Backwards here, forwards there: order must not matter.
  for (int i = 100000; i-- > 0;) seen.insert(one->Begin(static_cast<uint64_t>(i)));
  for (int i = 0; i < 20000; ++i) {
    const int64_t begin = again->Begin(static_cast<uint64_t>(i));
    EXPECT_TRUE(seen.count(begin));
    EXPECT_EQ(begin, one->Begin(static_cast<uint64_t>(i)));
    EXPECT_GE(begin, 0);
    EXPECT_LE(begin + T + 1, splits->train.end);
    EXPECT_EQ(data->FirstWorkStart(begin + 1, begin + T + 1), std::nullopt) << "window crosses a file's end";
    differing += begin != other->Begin(static_cast<uint64_t>(i));
  }
  EXPECT_GT(differing, 19000);
  // Every start is reached: the draw is uniform over all of them.
  EXPECT_EQ(static_cast<int64_t>(seen.size()), one->starts());

  std::vector<int32_t> tokens(T), targets(T), expected(T + 1);
  ASSERT_TRUE(one->Fill(17, tokens.data(), targets.data()).ok());
  ASSERT_TRUE(data->Read(one->Begin(17), T + 1, expected.data()).ok());
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.begin()));
  EXPECT_TRUE(std::equal(targets.begin(), targets.end(), expected.begin() + 1));
}

}  // namespace
}  // namespace ablate
