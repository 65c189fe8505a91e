// Rows of what a sweep with claims has declared and decided, of losses by document, and of verifications. The SQL of
// claims is here and in their .cc files; the schema is migrations/0002_claims.sql. Must not know how anything is
// decided. Functions that write run inside Store::Write, those that read inside Store::Read.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/coordinator.pb.h"
#include "server/store/records.h"

namespace ablate {

// ---- decisions ----

struct StoredClaims {
  std::vector<v1::TunedArm> tuning;
  std::optional<v1::Lock> lock;
  int looks_done = 0;
  int confirming_seeds = 0;
  bool over = false;
  std::vector<v1::Deviation> deviations;  // oldest first
  std::string sealed_plan_sha256;         // of version 1
};
absl::StatusOr<StoredClaims> ReadClaims(Connection& db, SweepRow sweep);
// Replaces tuning, lock and counters; deviations are appended apart.
absl::Status WriteClaims(Connection& db, SweepRow sweep, const StoredClaims& claims);
absl::Status AddDeviation(Connection& db, SweepRow sweep, const v1::Deviation& deviation);

// The confirming points of these arms (JSON) at these seeds are open from now on.
absl::Status OpenPoints(Connection& db, SweepRow sweep, const std::vector<std::string>& arms,
                        const std::vector<int64_t>& seeds);
// Drops the sealed points of all arms but these.
absl::Status DropPoints(Connection& db, SweepRow sweep, const std::vector<std::string>& except_arms);

// ---- numbers that were seen before they were sealed ----

// An evaluation that some sweep planned, and what its state was trained by.
struct StoredEvaluation {
  std::string key;
  std::string split;
  int64_t length = 0;
  int64_t seed = 0;
  int64_t train_length = 0;
  std::vector<std::string> configs;  // JSON, of the stages that lead to it, the first first
};
// All of this data and executor at these seeds.
absl::StatusOr<std::vector<StoredEvaluation>> FindEvaluations(Connection& db, const std::string& data_sha256,
                                                              v1::Executor executor, const std::set<int64_t>& seeds);

struct Seen {
  std::string arm_json;
  int64_t seed = 0;
  std::string evaluation_key;
  JobRow job = 0;
};
// Stores them, and marks what the sweep confirms of that arm as exploratory.
absl::Status WriteSeen(Connection& db, SweepRow sweep, const std::vector<Seen>& seen);
struct StoredSeen {
  std::string arm_json;
  std::string split;
  int64_t length = 0;
  std::string job_id;
};
absl::StatusOr<std::vector<StoredSeen>> ReadSeen(Connection& db, SweepRow sweep);

// ---- losses by document ----

std::string PackDocuments(const google::protobuf::RepeatedPtrField<v1::DocumentLoss>& documents);
// DataLoss: not a whole number of documents.
absl::StatusOr<std::vector<v1::DocumentLoss>> UnpackDocuments(const std::string& bytes);

// loss_targets of one point at one length.
struct StoredDocuments {
  int arm = 0;  // position of the arm
  int64_t seed = 0;
  v1::Phase phase = v1::PLAIN;
  int64_t length = 0;
  std::string split;
  bool ntk = false;
  std::vector<v1::DocumentLoss> documents;
};
// Of open points; ordered by arm, phase, length, split, NTK, seed.
absl::StatusOr<std::vector<StoredDocuments>> ReadDocuments(Connection& db, SweepRow sweep);

// ---- verifications ----

// Of one sweep (0: of all), newest first, at most `limit`.
absl::StatusOr<std::vector<v1::Verification>> ReadVerifications(Connection& db, SweepRow sweep, int64_t limit);

}  // namespace ablate
