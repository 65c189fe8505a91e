// What the commands share, and their handlers. The table itself is in commands.cc.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/client.h"
#include "cli/command_line.h"
#include "cli/output/report.h"
#include "cli/progress.h"
#include "cli/sweep_input.h"
#include "experiments/attention_map.h"

namespace ablate {

absl::StatusOr<int> RunRun(const Invocation& invocation);
absl::StatusOr<int> RunSweepSubmit(const Invocation& invocation);
absl::StatusOr<int> RunSweepPlan(const Invocation& invocation);
absl::StatusOr<int> RunSweepList(const Invocation& invocation);
absl::StatusOr<int> RunSweepShow(const Invocation& invocation);
absl::StatusOr<int> RunSweepGrid(const Invocation& invocation);
absl::StatusOr<int> RunSweepWatch(const Invocation& invocation);
absl::StatusOr<int> RunSweepWait(const Invocation& invocation);
absl::StatusOr<int> RunSweepCancel(const Invocation& invocation);
absl::StatusOr<int> RunSweepResume(const Invocation& invocation);
absl::StatusOr<int> RunSweepRetry(const Invocation& invocation);
absl::StatusOr<int> RunSweepLock(const Invocation& invocation);
absl::StatusOr<int> RunSweepExtend(const Invocation& invocation);
absl::StatusOr<int> RunJobList(const Invocation& invocation);
absl::StatusOr<int> RunJobShow(const Invocation& invocation);
absl::StatusOr<int> RunJobLogs(const Invocation& invocation);
absl::StatusOr<int> RunJobExplain(const Invocation& invocation);
absl::StatusOr<int> RunJobArtifacts(const Invocation& invocation);
absl::StatusOr<int> RunJobMap(const Invocation& invocation);
absl::StatusOr<int> RunJobCancel(const Invocation& invocation);
absl::StatusOr<int> RunJobVerify(const Invocation& invocation);
absl::StatusOr<int> RunJobVerifications(const Invocation& invocation);
absl::StatusOr<int> RunWorkerList(const Invocation& invocation);
absl::StatusOr<int> RunWorkerDrain(const Invocation& invocation);
absl::StatusOr<int> RunTokenCreate(const Invocation& invocation);
absl::StatusOr<int> RunTokenList(const Invocation& invocation);
absl::StatusOr<int> RunTokenRevoke(const Invocation& invocation);
absl::StatusOr<int> RunTable(const Invocation& invocation);
absl::StatusOr<int> RunCompare(const Invocation& invocation);
absl::StatusOr<int> RunTrainingCurves(const Invocation& invocation);
absl::StatusOr<int> RunClaims(const Invocation& invocation);
absl::StatusOr<int> RunEffects(const Invocation& invocation);
absl::StatusOr<int> RunSpread(const Invocation& invocation);
absl::StatusOr<int> RunReport(const Invocation& invocation);
absl::StatusOr<int> RunQuery(const Invocation& invocation);
absl::StatusOr<int> RunDashboard(const Invocation& invocation);
absl::StatusOr<int> RunVariants(const Invocation& invocation);
absl::StatusOr<int> RunVersion(const Invocation& invocation);

// Prints to stdout in the format asked for. What cannot be written is found by FinishOutput.
void Emit(const Invocation& invocation, const Report& report);
// After the last output: whether all of stdout was taken. Aborted: its reader went away (a pipe into `head`);
// Unavailable: anything else.
absl::Status FinishOutput();
// " --data-dir D" or " --server A" as the command was given it, for the commands that a message proposes; "".
std::string WhereFlags(const Invocation& invocation);
// A line to stderr.
void Say(const std::string& line);

// A fresh id for a request that changes something.
std::string NewRequestId();

// "2026-11-30T12:04:05Z"; "" for 0.
std::string TimeText(int64_t micros);
Cell TimeCell(int64_t micros);

// "SWEEP_RUNNING" -> "RUNNING".
std::string StateText(v1::SweepState state);

// NotFound: the data is not there, with what to do.
absl::Status MissingData(const SweepInput& input);
// Reads and hashes the file's data (which must be here), uploads what the coordinator lacks, submits; shows progress.
// Safe to repeat.
absl::StatusOr<v1::SubmitSweepResponse> SubmitFile(Client* client, const SweepInput& input, Progress* progress,
                                                   std::optional<int32_t> max_failures);
// --max-failures, where it is given. Usage error: not a number from 0 to a million.
absl::StatusOr<std::optional<int32_t>> MaxFailures(const Invocation& invocation);
// ReadSweepInput with the hashing shown. NotFound, with what to do, when data is missing and `need_data`.
absl::StatusOr<SweepInput> ReadInput(const Invocation& invocation, Progress* progress, bool need_data);

// --level; 0 where it is not given.
absl::StatusOr<double> LevelFlag(const Invocation& invocation);
// "attention.variant=softmax,attention.p=3" or the JSON form, as JSON; "" for "". `flag` is for messages.
absl::StatusOr<std::string> ArmJson(const std::string& flag, const std::string& text);
Report SweepReport(const std::vector<v1::Sweep>& sweeps);
// Uploads what the coordinator lacks of the file's data.
absl::Status UploadData(Client* client, const SweepInput& input, Progress* progress);

// One row a job. For people with its task where one measures more than the loss.
Report JobReport(const std::vector<v1::Job>& jobs);

// What an evaluation measures, a value of eval.task: "loss", "passkey", ...; "" of a stage.
std::string TaskName(const v1::Job& job);

// The attention map that the job made. NotFound: it made none (says why, and with `where`, the flags that WhereFlags gives,
// what shows more). DataLoss, InvalidArgument: what came is none.
absl::StatusOr<AttentionMap> FetchAttentionMap(Client* client, const v1::Job& job, const std::string& where);

// One column of names and one of values, for `show` commands; NULL and empty values are left out.
Sheet VerticalSheet(const Records& records, size_t row);

}  // namespace ablate
