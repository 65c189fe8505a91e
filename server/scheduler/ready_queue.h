// The jobs that may be leased now, in lease order: higher priority, then earlier sweep, then evaluations before stages
// (results early, disk freed early), then plan order. Evaluations of one state lie together, so that a slot takes
// several at once. One queue a requirement class. All operations are O(log n). Must not know workers, time or job
// states. Thread rule: none of its own; the scheduler is single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "server/scheduler/records.h"

namespace ablate {

// Where a job or a group of evaluations stands; smaller is leased earlier.
struct LeaseRank {
  int32_t negative_priority = 0;
  SweepRow order = 0;  // the earliest live sweep of that priority
  bool is_stage = false;
  JobRow sequence = 0;  // the stage job itself; of evaluations, the stage job whose state they measure

  auto operator<=>(const LeaseRank&) const = default;
  bool SameLevel(const LeaseRank& other) const {
    return negative_priority == other.negative_priority && order == other.order && is_stage == other.is_stage;
  }
};

class ReadyQueue {
 public:
  using Class = std::map<LeaseRank, std::set<JobRow>>;

  // The number of this requirement, the same for equal ones; numbers count from 0.
  int ClassOf(const Requirement& requirement);
  const std::vector<Requirement>& requirements() const { return requirements_; }

  void Insert(int class_id, const LeaseRank& rank, JobRow job);
  void Remove(int class_id, const LeaseRank& rank, JobRow job);

  // The jobs at exactly this rank, or nullptr.
  const std::set<JobRow>* At(int class_id, const LeaseRank& rank) const;
  const Class& queue(int class_id) const { return classes_[class_id].queue; }
  size_t evaluations(int class_id) const { return classes_[class_id].evaluations; }
  size_t size() const { return size_; }
  // Jobs that are leased before `rank`. Linear: for explanations only.
  size_t CountBefore(int class_id, const LeaseRank& rank) const;

 private:
  struct ClassState {
    Class queue;
    size_t evaluations = 0;
  };
  std::map<Requirement, int> ids_;
  std::vector<Requirement> requirements_;
  std::vector<ClassState> classes_;
  size_t size_ = 0;
};

}  // namespace ablate
