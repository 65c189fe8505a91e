#include "server/answer_cache.h"

#include "gtest/gtest.h"

namespace ablate {
namespace {

std::string Get(AnswerCache& cache, const std::string& question, AnswerCache::Version version) {
  const auto answer = cache.Find(question, version);
  return answer == nullptr ? "none" : *answer;
}

TEST(AnswerCacheTest, AnswersHoldForTheirVersionAlone) {
  AnswerCache cache(10'000);
  EXPECT_EQ(Get(cache, "q", {1, 1}), "none");
  cache.Put("q", {1, 1}, "a");
  EXPECT_EQ(Get(cache, "q", {1, 1}), "a");
  EXPECT_EQ(Get(cache, "q", {1, 2}), "none");
  EXPECT_EQ(Get(cache, "q", {2, 1}), "none");
  EXPECT_EQ(Get(cache, "other", {1, 1}), "none");
  cache.Put("q", {1, 2}, "b");
  EXPECT_EQ(Get(cache, "q", {1, 2}), "b");
  EXPECT_EQ(Get(cache, "q", {1, 1}), "none");
  // One that was computed longer comes too late.
  cache.Put("q", {1, 1}, "a");
  EXPECT_EQ(Get(cache, "q", {1, 2}), "b");
}

TEST(AnswerCacheTest, WhatWasNotAskedForLongestGoes) {
  AnswerCache cache(4'000);
  const std::string large(800, 'x');
  for (const char* question : {"a", "b", "c", "d"}) cache.Put(question, {1, 1}, large);
  EXPECT_EQ(Get(cache, "a", {1, 1}), large);
  cache.Put("e", {1, 1}, large);
  EXPECT_EQ(Get(cache, "a", {1, 1}), large);
  EXPECT_EQ(Get(cache, "b", {1, 1}), "none");
  EXPECT_EQ(Get(cache, "e", {1, 1}), large);
  cache.Put("huge", {1, 1}, std::string(3'000, 'x'));
  EXPECT_EQ(Get(cache, "huge", {1, 1}), "none");
  EXPECT_EQ(Get(cache, "e", {1, 1}), large);
}

}  // namespace
}  // namespace ablate
