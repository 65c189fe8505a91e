// Rows of the database: what the coordinator writes and reads, one function a question. All SQL but the users' own is
// in server/store; the schema is in migrations/ and docs/results-database.md. Must not know gRPC, leases or locks.
// Functions that write run inside Store::Write, those that read inside Store::Read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/curves.h"
#include "experiments/plan.h"
#include "proto/link.pb.h"
#include "proto/resources.pb.h"
#include "server/scheduler/records.h"
#include "server/store/sqlite.h"

namespace ablate {

// ---- writing ----

// The data and the tasks' files that jobs of the sweep get from the coordinator, each content once.
std::vector<SweepData> TravellingFiles(const v1::SweepSpec& spec);

// A sweep with its arms, points, stages and evaluations; its jobs come with the effects of its submission.
struct SweepFile {
  std::string yaml;
  std::string file_name;
  v1::SweepSpec spec;
};
// CONFIRMING points are stored as sealed, their evaluations as confirmatory. The plan becomes version 1.
absl::Status InsertSweep(Connection& db, const SweepRecord& sweep, const SweepFile& file, const Plan& plan);
// Adds what `plan` has beyond the stored arms (matched by JSON and phase), points and evaluations, and a version of the
// plan. With `file`, it replaces the stored one.
struct PlanVersion {
  std::string why;  // "tuned", "extended: seeds 5 to 8"
  std::string spec_sha256, plan_sha256;
  int64_t at_us = 0;
};
absl::Status ExtendPlan(Connection& db, SweepRow sweep, const v1::SweepSpec& spec, const Plan& plan,
                        const SweepFile* file, const PlanVersion& version);

// All but effects.collections, which come after results and checkpoints.
absl::Status ApplyEffects(Connection& db, const Effects& effects, int64_t wall_us);
// Appends to `unreferenced` the artifacts that no row names any more.
absl::Status CollectStates(Connection& db, const std::vector<StateCollection>& collections,
                           std::vector<std::string>* unreferenced);

// The job whose attempt a report is of.
struct JobRef {
  JobRow row = 0;
  v1::JobKind kind = v1::STAGE;
  std::string key;
};
// Replaces all results of the job's key, and stores the end state.
absl::Status WriteResult(Connection& db, const JobRef& job, const v1::AttemptReport& report, int64_t wall_us);
// Compares a verification's result with what is stored for its key, bit for bit, and stores the outcome alone. Appends
// to `unreferenced` the files that it brought and that no row names.
absl::Status WriteVerification(Connection& db, const JobRef& job, const v1::AttemptReport& report, int64_t wall_us,
                               std::vector<std::string>* unreferenced);
// What else a verification reports: nothing is stored, and checkpoints that were uploaded go.
absl::Status ForgetVerificationProgress(Connection& db, const v1::AttemptReport& report,
                                        std::vector<std::string>* unreferenced);
absl::Status InsertVerification(Connection& db, JobRow job, JobRow of_job, int64_t wall_us);
// Appends the hash unless it is empty or some row names it.
absl::Status AppendIfUnreferenced(Connection& db, const std::string& sha256, std::vector<std::string>* unreferenced);
// Curve points and a periodic checkpoint. The first points of an attempt remove those after its resume step; a new
// checkpoint removes the older periodic ones.
absl::Status WriteProgress(Connection& db, const JobRef& job, const v1::AttemptReport& report, int64_t wall_us,
                           std::vector<std::string>* unreferenced);

absl::Status SaveRequest(Connection& db, const std::string& request_id, const std::string& method,
                         const std::string& response, int64_t wall_us);
absl::Status ForgetRequestsBefore(Connection& db, int64_t wall_us);

// ---- reading ----

absl::StatusOr<SchedulerSnapshot> LoadSnapshot(Connection& db);
// Without their jobs: names and rows, for tables of a damaged database.
absl::StatusOr<std::vector<SweepRecord>> LoadSweepsAlone(Connection& db);
// Every artifact that some row names: states and data.
absl::StatusOr<std::set<std::string>> ReadNamedArtifacts(Connection& db);
// method and serialized response; nullopt: never seen.
struct StoredRequest {
  std::string method;
  std::string response;
};
absl::StatusOr<std::optional<StoredRequest>> FindRequest(Connection& db, const std::string& request_id);

// The task as it goes to a worker. A stage starts from the newest state whose files `has_artifact` (unset: all): its
// own checkpoints (not with `from_parent_only`), else its parent's end state, else none. `lost`, if given, gets a line
// for each state that was passed over. NotFound: no such key.
absl::StatusOr<v1::Task> ReadTask(Connection& db, v1::JobKind kind, const std::string& key,
                                  const std::function<bool(const std::string& sha256)>& has_artifact = nullptr,
                                  std::vector<std::string>* lost = nullptr, bool from_parent_only = false);
// The parts of a job that the scheduler does not keep: result numbers, full last failure, device, arm: of `sweep`, or where
// that has none of it, of the first sweep that has.
absl::Status ReadJobDetails(Connection& db, JobRow row, v1::Job* job, SweepRow sweep = 0);
absl::StatusOr<std::vector<v1::Attempt>> ReadAttempts(Connection& db, JobRow row, const std::string& job_id);
absl::StatusOr<std::vector<v1::CurvePoint>> ReadCurve(Connection& db, const std::string& stage_key);
struct StoredEvent {
  int64_t at_us = 0;
  std::string text;
};
absl::StatusOr<std::vector<StoredEvent>> ReadEvents(Connection& db, JobRow row);

absl::StatusOr<SweepFile> ReadSweepFile(Connection& db, SweepRow row);

// One evaluation (or the final stage's training metrics, split 'train') of one point, with what is known of it.
struct StoredMeasurement {
  int arm = 0;
  int64_t seed = 0;
  std::string metric;  // empty: nothing is stored yet, or it diverged without a value
  int64_t length = 0;
  std::string split;
  bool ntk = false;
  std::optional<double> value;
  bool diverged = false;
  bool missing = false;
  std::string job_id;
  v1::Phase phase = v1::PLAIN;
  std::string standing;  // "": exploratory
};
struct StoredTable {
  std::string sweep;
  v1::Configuration settings;         // of every arm
  std::vector<std::string> arms;      // JSON, in the order of the plan; tuning arms too
  std::vector<v1::Phase> arm_phases;  // TUNING: one learning rate of another arm
  int baseline_arm = 0;               // the sweep's own
  std::vector<StoredMeasurement> measurements;
};
// Of points that are sealed or were dropped there is nothing.
absl::StatusOr<StoredTable> ReadTable(Connection& db, SweepRow row);

// A point of a sweep that was not dropped, with the work behind it. Indices into StoredPoints.
struct StoredPoint {
  int arm = 0;
  int64_t seed = 0;
  v1::Phase phase = v1::PLAIN;
  bool sealed = false;
  std::vector<int> stages;       // its chain, from scratch on
  std::vector<int> evaluations;
};
struct StoredPoints {
  struct Arm {
    std::string json;
    std::string label;
    v1::Phase phase = v1::PLAIN;  // TUNING: one learning rate of another arm
  };
  struct Stage {
    int64_t row = 0;
    std::string key;
    int64_t from_step = 0, to_step = 0;
  };
  std::vector<Arm> arms;  // in the order of the plan; tuning arms too
  int baseline_arm = 0;
  std::vector<Stage> stages;             // each once
  std::vector<std::string> evaluations;  // keys, each once
  std::vector<StoredPoint> points;       // by arm, seed, phase
};
absl::StatusOr<StoredPoints> ReadPoints(Connection& db, SweepRow row);

// Appends the curve of one stage (by row) to that of the stages before it.
absl::Status AppendCurve(Connection& db, int64_t stage, std::string_view metric, CurvePoints* curve);
// The job that stands for a key in a sweep.
struct StoredRun {
  std::string job_id;            // "": there is none
  int64_t diverged_at_step = 0;  // 0: it did not diverge
};
absl::StatusOr<StoredRun> ReadRun(Connection& db, SweepRow sweep, std::string_view key);

// A REAL column with its `non_finite` beside it.
double StoredNumber(const Statement& row, int value, int non_finite);

std::string_view PhaseName(v1::Phase phase);
v1::Phase PhaseFromName(std::string_view name);
// Names as stored.
std::string_view ExecutorName(v1::Executor executor);
std::string_view KeepName(v1::Keep keep);
std::string_view SweepStateName(v1::SweepState state);
std::string_view FailureKindName(v1::FailureKind kind);
v1::FailureKind FailureKindFromName(std::string_view name);

}  // namespace ablate
