// One sweep out of a data folder that holds many, while its coordinator has it open: the export is sound, says of the
// sweep what its source says, names no other, and can be worked with.
#include <sys/resource.h>
#include <signal.h>

#include <cctype>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator_claims_test_util.h"
#include "server/maintenance.h"
#include "server/store/migrations.h"
#include "server/store/sqlite.h"

namespace ablate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Two sweeps that share trainings, evaluations, and a training that both go on from.
constexpr char kTrained[] = R"(name: marigold
description: what marigolds do
data: {name: text, path: a.txt, format: text}
settings: {train.steps: 100}
keep: all
arms:
  - {attention.variant: softmax}
  - attention.variant: softmax
    switch: [{at_step: 50, attention.variant: ssmax}]
seeds: 2
evaluate: {lengths: [1x]}
)";
constexpr char kAlsoTrained[] = R"(name: tamarisk
description: what tamarisks do
data: {name: text, path: a.txt, format: text}
keep: none
arms:
  - attention.variant: softmax
    train.steps: 100
    switch: [{at_step: 50, attention.variant: ssmax}]
  - {attention.variant: cosine_softmax, train.steps: 90}
seeds: 3
evaluate: {lengths: [1x, 2x]}
)";
constexpr char kFailing[] = R"(name: juniper
executor: noop
settings: {train.steps: 70}
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: 7}
seeds: 2
evaluate: {lengths: [1x]}
)";

class ExportTest : public ClaimsFixture {
 protected:
  std::string Source() const { return dir_->path(); }
  std::string NewDir() { return JoinPath(out_.path(), absl::StrCat("export", ++exports_)); }

  // Exported and found sound: the new folder.
  std::string Export(const std::string& sweep, bool curves = false) {
    const std::string to = NewDir();
    const auto text = ExportFromDataDir(Source(), sweep, curves, to);
    EXPECT_TRUE(text.ok()) << sweep << ": " << text.status();
    const auto check = CheckDataDir(to, /*deep=*/true);
    EXPECT_TRUE(check.ok() && check->ok) << (check.ok() ? check->text : check.status().ToString());
    return to;
  }
  absl::Status Refused(const std::string& sweep) {
    const std::string to = NewDir();
    const auto text = ExportFromDataDir(Source(), sweep, false, to);
    EXPECT_FALSE(text.ok()) << *text;
    EXPECT_FALSE(FileExists(to));
    return text.status();
  }

  std::unique_ptr<Coordinator> OpenAt(const std::string& dir) {
    CoordinatorOptions options;
    options.data_dir = dir;
    options.clock = &clock_;
    options.idle_wait_ms = 0;
    auto coordinator = Coordinator::Open(options);
    EXPECT_TRUE(coordinator.ok()) << coordinator.status();
    return coordinator.ok() ? *std::move(coordinator) : nullptr;
  }

  // Everything that commands print of a sweep. Which other sweeps share its jobs, and what they call
  // them, is all that an export does not know.
  static std::string Shown(Coordinator& coordinator, const std::string& name) {
    std::string text;
    const auto add = [&](const auto& answer) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      if (answer.ok()) absl::StrAppend(&text, answer->DebugString(), "\n");
    };
    const auto of = [&](auto request) {
      request.set_sweep(name);
      return request;
    };
    add(coordinator.GetSweep(of(v1::GetSweepRequest())));
    add(coordinator.GetTable(of(v1::GetTableRequest())));
    add(coordinator.CompareArms(of(v1::CompareArmsRequest())));
    add(coordinator.GetClaims(of(v1::GetClaimsRequest())));
    add(coordinator.GetEffects(of(v1::GetEffectsRequest())));
    add(coordinator.GetSpread(of(v1::GetSpreadRequest())));
    add(coordinator.GetGrid(of(v1::GetGridRequest())));
    add(coordinator.ListVerifications(of(v1::ListVerificationsRequest())));
    v1::ListJobsRequest list = of(v1::ListJobsRequest());
    list.set_page_size(1000);
    const auto jobs = coordinator.ListJobs(list);
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    if (!jobs.ok()) return text;
    for (const v1::Job& job : jobs->jobs()) {
      absl::StrAppend(&text, job.job_id(), " ", job.arm_label(), "\n");
      v1::GetJobRequest get;
      get.set_job_id(job.job_id());
      auto shown = coordinator.GetJob(get);
      // States are as if collected.
      if (shown.ok()) {
        v1::Job& one = *shown->mutable_job();
        one.clear_sweep_ids();
        one.clear_arm_label();  // as one of them calls it
        if (one.task().has_stage()) one.mutable_task()->mutable_stage()->clear_start();
        if (one.task().has_evaluation()) one.mutable_task()->mutable_evaluation()->clear_state();
      }
      add(shown);
      auto logs = coordinator.GetJobLogs(get);
      if (logs.ok()) logs->clear_points();
      add(logs);
    }
    return text;
  }

  void ExpectTheSame(const std::string& sweep, const std::string& dir) {
    const std::unique_ptr<Coordinator> exported = OpenAt(dir);
    ASSERT_NE(exported, nullptr);
    const std::string shown = Shown(*coordinator_, sweep);
    EXPECT_GT(shown.size(), 3000u);
    EXPECT_EQ(Shown(*exported, sweep), shown);
  }

  // `word` anywhere in the file; sweep_1 is not in sweep_17.
  static bool Names(const std::string& bytes, const std::string& word) {
    for (size_t at = bytes.find(word); at != std::string::npos; at = bytes.find(word, at + 1)) {
      if (std::isdigit(static_cast<unsigned char>(bytes[at + word.size()])) == 0) return true;
    }
    return false;
  }
  static std::string Bytes(const std::string& dir) { return ReadFile(JoinPath(dir, "ablate.db")).value_or(""); }

  std::set<std::string> ArmsOfJobs(const std::string& sweep) {
    std::set<std::string> arms;
    for (const v1::Job& job : Jobs(sweep)) arms.insert(job.arm_label());
    return arms;
  }

  // Runs what is there, with points of curves.
  void Train() {
    while (true) {
      const auto response = trainer_.Sync(*coordinator_);
      ASSERT_TRUE(response.ok()) << response.status();
      if (response->desired().empty()) return;
      for (const v1::Assignment& assignment : response->desired()) {
        v1::AttemptReport& report = trainer_.Succeed(assignment);
        if (assignment.task().has_evaluation() && maps_) {
          const v1::EvaluationTask& task = assignment.task().evaluation();
          const std::string map = "the map of " + task.evaluation_key(), hash = Sha256Hex(map);
          v1::ResultArtifact* made = report.mutable_result()->add_artifacts();
          made->set_name("map.bin");
          made->set_media_type("application/x-test");
          made->mutable_artifact()->set_sha256(hash);
          made->mutable_artifact()->set_bytes(static_cast<int64_t>(map.size()));
          const std::string path = FileOf(Source(), hash);
          if (task.seed() == 0) {
            ASSERT_TRUE(MakeDirs(Dirname(path)).ok() && WriteFileAtomic(path, map).ok());
          }
        }
        const v1::StageTask& task = assignment.task().stage();
        for (int64_t step = task.from_step() + 10; step <= task.to_step(); step += 10) {
          v1::CurvePoint* point = report.add_points();
          point->set_metric("train_loss");
          point->set_step(step);
          point->set_value(1.0 / static_cast<double>(step));
        }
      }
    }
  }
  static std::string FileOf(const std::string& dir, const std::string& hash) {
    return absl::StrCat(dir, "/artifacts/", hash.substr(0, 2), "/", hash.substr(2));
  }
  void VerifySome(const std::string& sweep) {
    v1::VerifyJobsRequest request;
    request.set_sweep(sweep);
    request.set_sample(3);
    ASSERT_TRUE(coordinator_->VerifyJobs(request).ok());
  }
  // One training of each variant fails for good; then it is retried, or not.
  void RunFailing(const std::string& variant) {
    while (true) {
      ASSERT_TRUE(worker_.Sync(*coordinator_).ok());
      if (worker_.assigned().empty()) return;
      for (const auto& [key, assignment] : worker_.assigned()) {
        worker_.Succeed(assignment);
        if (assignment.task().has_stage() && assignment.task().stage().seed() == 0 &&
            ConfigView(assignment.task().stage().config()).Text("attention.variant") == variant) {
          worker_.Fail(assignment, v1::INVALID_CONFIG);
        }
      }
    }
  }

  TempDir out_;
  int exports_ = 0;
  bool maps_ = false;  // whether trained evaluations make a file, which is there for seed 0 alone
  FakeWorker trainer_{"t", 2, v1::EXECUTOR_TRAINER};
};

TEST_F(ExportTest, SweepsThatShareJobsAreEachExportedAlone) {
  trainer_.documents = 3;
  ASSERT_TRUE(Submit(kTrained).ok());
  Train();
  ASSERT_TRUE(Submit(kAlsoTrained).ok());
  Train();
  for (const char* sweep : {"marigold", "tamarisk"}) {
    VerifySome(sweep);
    Train();
  }
  ASSERT_EQ(Get("tamarisk").state(), v1::SWEEP_SUCCEEDED);
  ASSERT_GT(std::stoi(One("SELECT COUNT(*) FROM (SELECT job FROM sweep_jobs GROUP BY job HAVING COUNT(*) = 2)")), 4);
  ASSERT_NE(One("SELECT COUNT(*) FROM checkpoints"), "0");

  const std::map<std::string, std::string> ids = {{"marigold", Get("marigold").sweep_id()},
                                                  {"tamarisk", Get("tamarisk").sweep_id()}};
  for (const auto& [sweep, id] : ids) {
    const std::string dir = Export(sweep), bytes = Bytes(dir);
    EXPECT_EQ(Bytes(Export(id)), bytes) << "by id, and once more";
    for (const auto& [other, other_id] : ids) {
      EXPECT_EQ(Names(bytes, other), other == sweep) << other << " in " << sweep;
      EXPECT_EQ(Names(bytes, other_id), other == sweep) << other_id << " in " << sweep;
    }
    ExpectTheSame(sweep, dir);
    // A list of its jobs has its own arms' names, also of those that another sweep asked for first.
    const std::set<std::string> arms = ArmsOfJobs(sweep);
    std::set<std::string> own;
    const auto labels = Query("SELECT a.label FROM arms a JOIN sweeps s ON s.row = a.sweep WHERE s.name = '" + sweep + "'");
    ASSERT_TRUE(labels.ok());
    for (const std::string& label : *labels) {
      EXPECT_TRUE(arms.contains(label)) << label << " in " << sweep;
      own.insert(label);
    }
    EXPECT_EQ(own.size(), 2u);
    EXPECT_EQ(arms.size(), 3u) << "and what several arms go on from";
    EXPECT_EQ(Bytes(dir), bytes) << "a coordinator on it changed it";
    const auto db = Connection::Open(JoinPath(dir, "ablate.db"), Connection::Mode::kReadOnly);
    ASSERT_TRUE(db.ok());
    const auto count = [&](const char* sql) { return (*db)->QueryInt(-1, sql).value_or(-1); };
    EXPECT_EQ(count("SELECT COUNT(*) FROM curves"), 0);
    EXPECT_EQ(count("SELECT COUNT(*) FROM attempts WHERE has_points"), 0);
    EXPECT_GE(count("SELECT COUNT(*) FROM verifications"), 3);
    EXPECT_GT(count("SELECT COUNT(*) FROM document_losses"), 0);
    EXPECT_EQ(count("SELECT COUNT(*) FROM workers"), 1);
    for (const char* table : {"checkpoints", "requests", "tokens", "token_workers"})
      EXPECT_EQ(count(absl::StrCat("SELECT COUNT(*) FROM ", table).c_str()), 0) << table;
  }

  // With curves, those of its own trainings and no others.
  const std::string dir = Export("marigold", /*curves=*/true);
  const auto db = Connection::Open(JoinPath(dir, "ablate.db"), Connection::Mode::kReadOnly);
  ASSERT_TRUE(db.ok());
  EXPECT_EQ(absl::StrCat((*db)->QueryInt(-1, "SELECT COUNT(*) FROM curves").value_or(-1)),
            One("SELECT COUNT(*) FROM curves WHERE stage IN (SELECT s.row FROM sweeps w JOIN sweep_jobs x ON x.sweep = w.row JOIN jobs "
                "j ON j.row = x.job JOIN stages s ON s.key = j.key WHERE w.name = 'marigold')"));
  EXPECT_GT((*db)->QueryInt(-1, "SELECT COUNT(*) FROM attempts WHERE has_points").value_or(-1), 0);
}

TEST_F(ExportTest, SealedTunedAndFailedSweeps) {
  // Trained at a confirming seed already: what was seen before goes with the sealed one.
  std::string early = kSealedSweep;
  early = early.substr(0, early.find("baseline:"));
  Replace(&early, "name: sealed", "name: early");
  ASSERT_TRUE(Submit(early + "seeds: [0, 1, 100]\nevaluate: {lengths: [1x, 8x]}\n").ok());
  RunUntilOver("early");
  ASSERT_TRUE(Submit(kSealedSweep).ok());
  RunUntilOver("sealed");
  ASSERT_EQ(Get("sealed").state(), v1::SWEEP_SUCCEEDED);
  ASSERT_NE(One("SELECT COUNT(*) FROM points WHERE seal = 'dropped'"), "0");
  ASSERT_NE(One("SELECT COUNT(*) FROM seen_before"), "0");
  ASSERT_TRUE(Submit(kTunedSweep).ok());
  RunUntilOver("tuned");
  ASSERT_EQ(Get("tuned").state(), v1::SWEEP_SUCCEEDED);

  // What failed and was retried, and what stays failed.
  ASSERT_TRUE(Submit(kFailing).ok());
  RunFailing("softmax");
  ASSERT_EQ(Get("juniper").state(), v1::SWEEP_FAILED);
  ExpectTheSame("juniper", Export("juniper"));
  v1::RetrySweepRequest retry;
  retry.set_sweep("juniper");
  ASSERT_TRUE(coordinator_->RetrySweep(retry).ok());
  RunFailing("none");
  ASSERT_EQ(Get("juniper").state(), v1::SWEEP_SUCCEEDED);
  ASSERT_NE(One("SELECT COUNT(*) FROM jobs WHERE retry_of IS NOT NULL"), "0");

  for (const char* sweep : {"early", "sealed", "tuned", "juniper"}) {
    SCOPED_TRACE(sweep);
    ExpectTheSame(sweep, Export(sweep));
  }
  const std::string retried = Export("juniper");
  const auto db = Connection::Open(JoinPath(retried, "ablate.db"), Connection::Mode::kReadOnly);
  ASSERT_TRUE(db.ok());
  EXPECT_GT((*db)->QueryInt(0, "SELECT COUNT(*) FROM jobs WHERE state = 'FAILED'").value_or(0), 0) << "the first tries are kept";
  EXPECT_EQ((*db)->QueryInt(0, "SELECT MAX(row) - COUNT(*) FROM events").value_or(-1), 0);
}

TEST_F(ExportTest, WhatIsNotOverIsRefusedAndNothingIsWritten) {
  ASSERT_TRUE(Submit(kTrained).ok());
  EXPECT_THAT(Refused("marigold").ToString(),
              AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("not over"), HasSubstr("ablate sweep wait")));
  EXPECT_THAT(Refused("marigolt").ToString(),
              AllOf(HasSubstr("NOT_FOUND"), HasSubstr("marigold"), HasSubstr("sweep list")));

  // Cancelled, while another goes on with what they share.
  ASSERT_TRUE(Submit(kAlsoTrained).ok());
  v1::CancelSweepRequest cancel;
  cancel.set_sweep("marigold");
  ASSERT_TRUE(coordinator_->CancelSweep(cancel).ok());
  EXPECT_THAT(Refused("marigold").ToString(), AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("are not over")));
  Train();
  ExpectTheSame("marigold", Export("marigold"));

  // A second run that is yet to come is not waited for.
  VerifySome("tamarisk");
  const std::string dir = Export("tamarisk");
  EXPECT_TRUE(OpenAt(dir)->ListVerifications({})->verifications().empty());

  EXPECT_EQ(ExportFromDataDir(Source(), "tamarisk", false, dir).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ExportFromDataDir(out_.path() + "/none", "tamarisk", false, NewDir()).status().code(),
            absl::StatusCode::kNotFound);

  // A disk that is full half way, a damaged source, one of an earlier release.
  coordinator_.reset();
  const auto before = ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  for (const rlim_t room : {rlim_t{20'000}, rlim_t{150'000}, rlim_t{250'000}}) {
    const rlimit small{room, limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string to = NewDir();
    const bool made = ExportFromDataDir(Source(), "tamarisk", false, to).ok();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_FALSE(made) << room;
    EXPECT_FALSE(FileExists(to)) << room;
  }
  ::signal(SIGXFSZ, before);
  {
    auto db = Connection::Open(JoinPath(Source(), "ablate.db"), Connection::Mode::kPlain);
    ASSERT_TRUE(db.ok());
    ASSERT_TRUE((*db)->Script("UPDATE stage_results SET digest = NULL").ok());
  }
  EXPECT_THAT(Refused("tamarisk").ToString(), HasSubstr("another program"));
  {
    auto db = Connection::Open(JoinPath(Source(), "ablate.db"), Connection::Mode::kPlain);
    ASSERT_TRUE(db.ok() && (*db)->Script("UPDATE stage_results SET digest = 7").ok());
  }
  EXPECT_THAT(Refused("tamarisk").ToString(), AllOf(HasSubstr("DATA_LOSS"), HasSubstr("stage_results")));
  const std::string old = JoinPath(out_.path(), "old");
  ASSERT_TRUE(MakeDirs(old).ok());
  {
    auto db = Connection::Open(JoinPath(old, "ablate.db"), Connection::Mode::kPlain);
    ASSERT_TRUE(db.ok() && MigrateTo(**db, old, 2).ok());
  }
  EXPECT_THAT(ExportFromDataDir(old, "x", false, NewDir()).status().ToString(), HasSubstr("schema version 2"));
}

TEST_F(ExportTest, FilesOfResultsGoAlong) {
  maps_ = true;
  ASSERT_TRUE(Submit(kTrained).ok());
  Train();
  ASSERT_EQ(One("SELECT COUNT(*) FROM result_artifacts"), "4");
  const std::string to = NewDir();
  const auto text = ExportFromDataDir(Source(), "marigold", false, to);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("2 files of results, without 2"), HasSubstr("30 points of training curves left out")));
  const auto check = CheckDataDir(to, /*deep=*/true);
  ASSERT_TRUE(check.ok() && check->ok) << check->text;
  EXPECT_THAT(check->text, HasSubstr("2 (150 B), all of their contents read"));
  const std::string hash = One("SELECT r.sha256 FROM result_artifacts r JOIN evaluations e ON e.row = r.evaluation JOIN stages s ON "
                               "s.row = e.stage WHERE s.seed = 0 LIMIT 1");
  EXPECT_EQ(*ReadFile(FileOf(to, hash)), *ReadFile(FileOf(Source(), hash)));
  // One that has changed on the disk is not vouched for.
  ASSERT_TRUE(WriteFileAtomic(FileOf(Source(), hash), "another map").ok());
  EXPECT_THAT(Refused("marigold").ToString(), AllOf(HasSubstr("DATA_LOSS"), HasSubstr(hash.substr(2))));
}

// Results are known and nothing is trained again; a new evaluation of a state trains it again, as of one that was collected.
TEST_F(ExportTest, ASweepIsTakenUpAgainFromItsExport) {
  ASSERT_TRUE(Submit(kTrained).ok());
  Train();
  const std::string dir = Export("marigold");
  const std::string results = One("SELECT COUNT(*) FROM results");
  const std::string shown = Shown(*coordinator_, "marigold");
  coordinator_ = OpenAt(dir);
  ASSERT_NE(coordinator_, nullptr);
  auto again = Submit(kTrained);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->created());
  EXPECT_EQ(again->new_jobs(), 0);
  FakeWorker other("u", 2, v1::EXECUTOR_TRAINER);
  EXPECT_EQ(other.RunAll(*coordinator_).value_or(-1), 0);
  EXPECT_EQ(One("SELECT COUNT(*) FROM results"), results);
  EXPECT_EQ(Shown(*coordinator_, "marigold"), shown);

  std::string longer = kTrained;
  Replace(&longer, "name: marigold", "name: longer");
  Replace(&longer, "[1x]", "[1x, 2x]");
  ASSERT_TRUE(Submit(longer).ok());
  // Three stages a seed, and an evaluation of two states.
  EXPECT_EQ(other.RunAll(*coordinator_).value_or(-1), 2 * (3 + 2));
  EXPECT_EQ(Get("longer").state(), v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(Get("marigold").state(), v1::SWEEP_SUCCEEDED);
  EXPECT_EQ(One("SELECT COUNT(*) FROM results WHERE sweep = 'marigold'"), results);
  VerifySome("marigold");
  EXPECT_GT(other.RunAll(*coordinator_).value_or(-1), 0);
  coordinator_.reset();
  const auto check = CheckDataDir(dir, false);
  ASSERT_TRUE(check.ok());
  // The fake worker's states are no files.
  EXPECT_THAT(check->text, Not(HasSubstr("fault: jobs")));
}

}  // namespace
}  // namespace ablate
