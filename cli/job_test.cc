// What `ablate job` says of jobs, their attempts and their files.
#include <signal.h>

#include "cli/attempt_tables.h"
#include "cli/commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using testing::HasSubstr;

AttemptList SomeAttempts() {
  AttemptList attempts;
  v1::Attempt* killed = attempts.Add();
  killed->set_job_id("job-1");
  killed->set_attempt(1);
  killed->set_state("FAILED");
  killed->set_worker_id("node");
  v1::Failure* failure = killed->mutable_failure();
  failure->set_kind(v1::CODE_ERROR);
  failure->set_message("the trainer ended by signal 11");
  failure->set_signal(SIGSEGV);
  failure->set_exit_code(-1);
  failure->set_peak_memory_bytes(3 << 19);
  for (int i = 0; i < 30; ++i) failure->set_stderr_tail(failure->stderr_tail() + "line " + std::to_string(i) + "\n");
  v1::Attempt* exited = attempts.Add();
  exited->set_attempt(2);
  exited->set_state("FAILED");
  exited->mutable_failure()->set_kind(v1::OUT_OF_MEMORY);
  exited->mutable_failure()->set_exit_code(7);
  v1::Attempt* lost = attempts.Add();
  lost->set_attempt(3);
  lost->set_state("LOST");
  lost->mutable_failure()->set_kind(v1::WORKER_LOST);
  lost->mutable_failure()->set_message("worker node was silent for 30 s");
  v1::Attempt* given_back = attempts.Add();
  given_back->set_attempt(4);
  given_back->set_state("RELEASED");
  attempts.Add()->set_state("SUCCEEDED");
  return attempts;
}

TEST(Attempts, EachFailedOneIsShownWithWhatItsTrainerLeft) {
  const std::vector<Sheet> sheets = EvidenceSheets(SomeAttempts(), 3);
  ASSERT_EQ(sheets.size(), 2u);  // of a lost worker only the message is known
  EXPECT_EQ(sheets[0].title, "evidence of attempt 1");
  EXPECT_EQ(sheets[0].rows, (std::vector<std::vector<std::string>>{{"failure", "code_error"},
                                                                   {"message", "the trainer ended by signal 11"},
                                                                   {"signal", "11 (Segmentation fault)"},
                                                                   {"peak memory", "1.5 MiB"},
                                                                   {"stderr", "line 27"},
                                                                   {"", "line 28"},
                                                                   {"", "line 29"}}));
  EXPECT_THAT(sheets[0].footer, testing::ElementsAre("27 lines of stderr before these: ablate job logs job-1"));
  EXPECT_EQ(sheets[1].rows, (std::vector<std::vector<std::string>>{{"failure", "out_of_memory"}, {"exit code", "7"}}));
  EXPECT_TRUE(sheets[1].footer.empty());
  EXPECT_EQ(EvidenceSheets(SomeAttempts(), 100)[0].rows.size(), 4u + 30u);

  const std::string text = Print({.sheets = {AttemptSheet(SomeAttempts())}}, OutputFormat::kTable);
  EXPECT_THAT(text, HasSubstr("code_error: the trainer ended by signal 11"));
  EXPECT_THAT(text, HasSubstr("worker_lost: worker node was silent for 30 s"));
}

v1::Job EvaluationOf(const std::string& task, v1::JobState state) {
  v1::Job job;
  job.set_job_id("job-1");
  job.set_kind(v1::EVALUATION);
  job.set_state(state);
  v1::Configuration* config = job.mutable_task()->mutable_evaluation()->mutable_eval_config();
  if (!task.empty()) {
    config->add_settings()->set_axis("eval.task");
    config->mutable_settings(0)->mutable_value()->set_text(task);
  }
  return job;
}

TEST(AttentionMaps, WhatHasNoneSaysWhy) {
  const auto why = [](const v1::Job& job) {
    const absl::Status status = FetchAttentionMap(nullptr, job, " --data-dir d").status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    return std::string(status.message());
  };
  v1::Job failed = EvaluationOf("attention_map", v1::FAILED);
  failed.mutable_last_failure()->set_kind(v1::CODE_ERROR);
  failed.mutable_last_failure()->set_message("it broke");
  EXPECT_EQ(why(failed), "job job-1 has no attention map, as it failed: code_error: it broke\n"
                         "what it left: ablate job show job-1 --data-dir d");
  for (const v1::JobState state : {v1::BLOCKED, v1::QUEUED, v1::RUNNING}) {
    EXPECT_EQ(why(EvaluationOf("attention_map", state)),
              "job job-1 has no attention map, as it is not done yet; how it stands: ablate job explain job-1 --data-dir d");
  }
  EXPECT_THAT(why(EvaluationOf("attention_map", v1::CANCELLED)), HasSubstr("as it was cancelled"));
  v1::Job diverged = EvaluationOf("attention_map", v1::SUCCEEDED);
  diverged.set_outcome(v1::DIVERGED);
  EXPECT_THAT(why(diverged), HasSubstr("as its run diverged"));
  for (const v1::Job& other : {EvaluationOf("", v1::FAILED), EvaluationOf("passkey", v1::SUCCEEDED), v1::Job()})
    EXPECT_THAT(why(other), HasSubstr(": only evaluations of the task attention_map make one"));
}

TEST(Jobs, TheTaskIsAColumnWhereThereIsMoreThanTheLoss) {
  v1::Job stage;
  stage.set_kind(v1::STAGE);
  stage.mutable_task()->mutable_stage()->set_seed(1);
  const auto titles = [](const Report& report) {
    std::vector<std::string> all;
    for (const Sheet::Column& column : report.sheets[0].columns) all.push_back(column.title);
    for (const auto& row : report.sheets[0].rows) EXPECT_EQ(row.size(), all.size());
    return all;
  };
  const auto tasks = [](const Report& report) {
    const auto column = std::find(report.records.columns.begin(), report.records.columns.end(), "task");
    EXPECT_NE(column, report.records.columns.end());
    std::vector<std::string> all;
    for (const auto& row : report.records.rows) {
      EXPECT_EQ(row.size(), report.records.columns.size());
      const Cell& cell = row[column - report.records.columns.begin()];
      all.push_back(cell.kind == Cell::Kind::kNull ? "NULL" : cell.text);
    }
    return all;
  };
  const Report plain = JobReport({stage, EvaluationOf("", v1::QUEUED)});
  EXPECT_THAT(titles(plain), testing::Not(testing::Contains("task")));
  EXPECT_THAT(tasks(plain), testing::ElementsAre("NULL", "loss"));  // programs always get it
  EXPECT_THAT(tasks(JobReport({})), testing::IsEmpty());

  const Report mixed = JobReport({stage, EvaluationOf("", v1::QUEUED), EvaluationOf("passkey", v1::QUEUED)});
  EXPECT_THAT(tasks(mixed), testing::ElementsAre("NULL", "loss", "passkey"));
  ASSERT_THAT(titles(mixed), testing::Contains("task"));
  const std::vector<std::string> all = titles(mixed);
  const size_t at = std::find(all.begin(), all.end(), "task") - all.begin();
  EXPECT_EQ(mixed.sheets[0].rows[0][at], "");
  EXPECT_EQ(mixed.sheets[0].rows[1][at], "loss");
  EXPECT_EQ(mixed.sheets[0].rows[2][at], "passkey");
}

}  // namespace
}  // namespace ablate
