// How attempts ended that could not be told yet, on disk: a coordinator that is away and a daemon that ends must not cost
// finished work, count a release as a failure, or lose what is known of one. A new incarnation of the daemon hands them
// in again; the coordinator takes one if no later attempt of its job was granted. Must not know the link. Thread rule: one thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/link.pb.h"
#include "worker/link_state.h"

namespace ablate {

class ResultSpool {
 public:
  explicit ResultSpool(std::string dir) : dir_(std::move(dir)) {}

  // What earlier processes left; unreadable files are removed. Unavailable: the folder cannot be made or read.
  absl::StatusOr<std::vector<v1::AttemptReport>> Load();
  // Durable on return. One that is here already is not written again.
  absl::Status Save(const v1::AttemptReport& report);
  void Remove(const AttemptKey& key);

 private:
  std::string PathOf(const AttemptKey& key) const;

  const std::string dir_;
  std::set<AttemptKey> saved_;
};

}  // namespace ablate
