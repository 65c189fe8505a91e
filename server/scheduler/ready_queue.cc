// See ready_queue.h.
#include "server/scheduler/ready_queue.h"

#include "base/log.h"

namespace ablate {

int ReadyQueue::ClassOf(const Requirement& requirement) {
  const auto [place, added] = ids_.emplace(requirement, static_cast<int>(requirements_.size()));
  if (added) {
    requirements_.push_back(requirement);
    classes_.emplace_back();
  }
  return place->second;
}

void ReadyQueue::Insert(int class_id, const LeaseRank& rank, JobRow job) {
  CHECK(classes_[class_id].queue[rank].insert(job).second) << "job row " << job << " queued twice";
  if (!rank.is_stage) ++classes_[class_id].evaluations;
  ++size_;
}

void ReadyQueue::Remove(int class_id, const LeaseRank& rank, JobRow job) {
  Class& queue = classes_[class_id].queue;
  const auto place = queue.find(rank);
  CHECK(place != queue.end() && place->second.erase(job) == 1) << "job row " << job << " is not queued";
  if (place->second.empty()) queue.erase(place);
  if (!rank.is_stage) --classes_[class_id].evaluations;
  --size_;
}

const std::set<JobRow>* ReadyQueue::At(int class_id, const LeaseRank& rank) const {
  const auto place = classes_[class_id].queue.find(rank);
  return place == classes_[class_id].queue.end() ? nullptr : &place->second;
}

size_t ReadyQueue::CountBefore(int class_id, const LeaseRank& rank) const {
  size_t count = 0;
  for (const auto& [other, jobs] : classes_[class_id].queue) {
    if (!(other < rank)) break;
    count += jobs.size();
  }
  return count;
}

}  // namespace ablate
