// Answers that cost time to compute, kept as long as nothing that they rest on has changed. Bounded by bytes; what was not
// asked for longest goes first. Must not know what the answers are.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"

namespace ablate {

class AnswerCache {
 public:
  explicit AnswerCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Two counters that never go back: of plans, and of what was measured.
  using Version = std::pair<int64_t, int64_t>;

  // The answer to `question` at exactly this version, or null. Of each question one version is kept.
  std::shared_ptr<const std::string> Find(const std::string& question, Version version);
  // An answer over half of max_bytes is not kept.
  void Put(const std::string& question, Version version, std::string answer);

 private:
  struct Entry {
    std::string question;
    Version version;
    std::shared_ptr<const std::string> answer;
  };
  static size_t BytesOf(const Entry& entry) { return entry.question.size() + entry.answer->size() + 128; }
  void Remove(std::list<Entry>::iterator entry) ABLATE_REQUIRES(mutex_);

  const size_t max_bytes_;
  Mutex mutex_;
  std::list<Entry> entries_ ABLATE_GUARDED_BY(mutex_);  // the latest used first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_ ABLATE_GUARDED_BY(mutex_);  // by question
  size_t bytes_ ABLATE_GUARDED_BY(mutex_) = 0;
};

}  // namespace ablate
