#include "server/answer_cache.h"

namespace ablate {

void AnswerCache::Remove(std::list<Entry>::iterator entry) {
  bytes_ -= BytesOf(*entry);
  places_.erase(entry->question);
  entries_.erase(entry);
}

std::shared_ptr<const std::string> AnswerCache::Find(const std::string& question, Version version) {
  MutexLock lock(&mutex_);
  const auto place = places_.find(question);
  if (place == places_.end() || place->second->version != version) return nullptr;
  entries_.splice(entries_.begin(), entries_, place->second);
  return place->second->answer;
}

void AnswerCache::Put(const std::string& question, Version version, std::string answer) {
  Entry entry{question, version, std::make_shared<const std::string>(std::move(answer))};
  if (BytesOf(entry) > max_bytes_ / 2) return;
  MutexLock lock(&mutex_);
  if (const auto place = places_.find(question); place != places_.end()) {
    // Who computed longer must not put an old answer in the place of a new one.
    if (place->second->version > version) return;
    Remove(place->second);
  }
  bytes_ += BytesOf(entry);
  entries_.push_front(std::move(entry));
  places_[question] = entries_.begin();
  while (bytes_ > max_bytes_) Remove(std::prev(entries_.end()));
}

}  // namespace ablate
