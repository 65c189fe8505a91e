#include "worker/link_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/version.h"

namespace ablate {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

LinkOptions Options(int slots = 2) {
  LinkOptions options;
  options.worker.set_worker_id("worker_1");
  options.worker.set_incarnation("incarnation_1");
  options.worker.set_slots(slots);
  return options;
}

v1::Assignment Stage(const std::string& job_id, int64_t attempt, int slot = 0) {
  v1::Assignment assignment;
  assignment.set_job_id(job_id);
  assignment.set_attempt(attempt);
  assignment.set_slot(slot);
  assignment.mutable_task()->mutable_stage()->set_to_step(100);
  return assignment;
}

v1::SyncResponse Desired(std::vector<v1::Assignment> assignments) {
  v1::SyncResponse response;
  for (const v1::Assignment& assignment : assignments) *response.add_desired() = assignment;
  response.set_next_contact_ms(1000);
  response.set_lease_ms(30'000);
  return response;
}

v1::AttemptReport Done(double loss = 1) {
  v1::AttemptReport report;
  report.set_phase(v1::AttemptReport::SUCCEEDED);
  report.mutable_result()->set_outcome(v1::COMPLETED);
  report.mutable_result()->set_seconds(loss);
  return report;
}

std::vector<v1::CurvePoint> Points(int64_t from, int count) {
  std::vector<v1::CurvePoint> points(count);
  for (int i = 0; i < count; ++i) {
    points[i].set_metric("train_loss");
    points[i].set_step(from + i);
  }
  return points;
}

TaskProgress Progress(int64_t step, std::vector<v1::CurvePoint> points) {
  TaskProgress progress;
  progress.step = step;
  progress.tokens_per_second = 5;
  progress.points = std::move(points);
  return progress;
}

void Ack(const std::string& job_id, int64_t attempt, v1::SyncResponse* response) {
  v1::AttemptAck* ack = response->add_acks();
  ack->set_job_id(job_id);
  ack->set_attempt(attempt);
  ack->set_accepted(true);
}

TEST(LinkStateTest, TheFirstRequestSaysWhoIsThere) {
  LinkState link(Options());
  EXPECT_TRUE(link.idle());
  EXPECT_EQ(link.next_contact_us(), 0);
  link.SetHeldStageKeys({"stage_a"});
  const v1::SyncRequest request = link.BuildRequest();
  EXPECT_EQ(request.protocol_version(), kProtocolVersion);
  EXPECT_EQ(request.worker().worker_id(), "worker_1");
  EXPECT_EQ(request.sequence(), 1);
  EXPECT_THAT(request.attempts(), IsEmpty());
  EXPECT_EQ(request.held_stage_keys(0), "stage_a");
  EXPECT_GT(link.BuildRequest().sequence(), 1);
}

TEST(LinkStateTest, AnAssignmentIsStartedOnceAndReportedUntilItsEndIsAcknowledged) {
  LinkState link(Options());
  link.BuildRequest();
  LinkState::Actions actions = link.OnResponse(1, Desired({Stage("j", 1)}), 0);
  ASSERT_THAT(actions.start, SizeIs(1));
  EXPECT_FALSE(link.idle());

  link.BuildRequest();
  EXPECT_THAT(link.OnResponse(2, Desired({Stage("j", 1)}), 0).start, IsEmpty());

  link.OnEnded({"j", 1}, Done());
  EXPECT_EQ(link.next_contact_us(), 0) << "an end is told at once";
  for (int i = 0; i < 3; ++i) {
    const v1::SyncRequest request = link.BuildRequest();
    ASSERT_EQ(request.attempts_size(), 1);
    EXPECT_EQ(request.attempts(0).phase(), v1::AttemptReport::SUCCEEDED);
    EXPECT_TRUE(request.attempts(0).has_result());
  }
  v1::SyncResponse answer = Desired({});
  Ack("j", 1, &answer);
  actions = link.OnResponse(5, answer, 0);
  EXPECT_THAT(actions.forgotten, SizeIs(1));
  EXPECT_THAT(actions.stop, IsEmpty());
  EXPECT_TRUE(link.idle());
}

TEST(LinkStateTest, WhateverATrainerPrintedTheCoordinatorCanReadIt) {
  LinkState link(Options());
  link.BuildRequest();
  link.OnResponse(1, Desired({Stage("j", 1)}), 0);
  v1::AttemptReport report;
  report.set_phase(v1::AttemptReport::FAILED);
  report.mutable_failure()->set_message("no such file: caf\xe9.txt" + std::string(100'000, 'x'));
  // Cut where the tail happened to begin, in the middle of a character.
  report.mutable_failure()->set_stderr_tail("\x82\xac last words");
  link.OnEnded({"j", 1}, report);
  const v1::SyncRequest request = link.BuildRequest();
  v1::SyncRequest read;
  ASSERT_TRUE(read.ParseFromString(request.SerializeAsString()));
  ASSERT_EQ(read.attempts_size(), 1);
  EXPECT_EQ(read.attempts(0).failure().stderr_tail(), "\ufffd\ufffd last words");
  EXPECT_EQ(read.attempts(0).failure().message().substr(0, 28), "no such file: caf\ufffd.txtxxxx");
  EXPECT_LE(read.attempts(0).failure().message().size(), 48u << 10);
}

TEST(LinkStateTest, AnAnswerFromBeforeTheEndNeitherStopsNorForgets) {
  LinkState link(Options());
  link.BuildRequest();
  link.OnResponse(1, Desired({Stage("j", 1)}), 0);
  link.BuildRequest();  // says RUNNING
  link.OnEnded({"j", 1}, Done());
  v1::SyncResponse answer = Desired({Stage("j", 1)});
  Ack("j", 1, &answer);  // cannot be about an end that was never told
  const LinkState::Actions actions = link.OnResponse(2, answer, 0);
  EXPECT_THAT(actions.forgotten, IsEmpty());
  EXPECT_EQ(link.attempts(), 1);
  EXPECT_EQ(link.next_contact_us(), 0) << "the end has not been told yet";
}

TEST(LinkStateTest, WhatIsNotWantedIsStoppedOnce) {
  LinkState link(Options());
  link.BuildRequest();
  link.OnResponse(1, Desired({Stage("a", 1), Stage("b", 1, 1)}), 0);
  link.BuildRequest();
  EXPECT_THAT(link.OnResponse(2, Desired({Stage("b", 1, 1)}), 0).stop, testing::ElementsAre(AttemptKey{"a", 1}));
  link.BuildRequest();
  EXPECT_THAT(link.OnResponse(3, Desired({Stage("b", 1, 1)}), 0).stop, IsEmpty());
}

TEST(LinkStateTest, ANewerAttemptOfARunningJobReplacesIt) {
  LinkState link(Options());
  link.BuildRequest();
  link.OnResponse(1, Desired({Stage("a", 1)}), 0);
  link.BuildRequest();
  const LinkState::Actions actions = link.OnResponse(2, Desired({Stage("a", 2)}), 0);
  EXPECT_THAT(actions.stop, testing::ElementsAre(AttemptKey{"a", 1}));
  ASSERT_THAT(actions.start, SizeIs(1));
  EXPECT_EQ(actions.start[0].attempt(), 2);
}

TEST(LinkStateTest, LateAndDoubledAnswersChangeNothing) {
  LinkState link(Options());
  link.BuildRequest();
  link.BuildRequest();
  ASSERT_THAT(link.OnResponse(2, Desired({Stage("a", 1)}), 0).start, SizeIs(1));
  EXPECT_THAT(link.OnResponse(2, Desired({Stage("b", 1)}), 0).start, IsEmpty());
  const LinkState::Actions late = link.OnResponse(1, Desired({}), 0);
  EXPECT_THAT(late.stop, IsEmpty());
  EXPECT_EQ(link.attempts(), 1);
}

TEST(LinkStateTest, PointsAreRepeatedUntilTheyAreStored) {
  LinkState link(Options());
  link.BuildRequest();
  link.OnResponse(1, Desired({Stage("a", 1)}), 0);
  link.OnProgress({"a", 1}, Progress(10, Points(10, 1)));
  v1::SyncRequest first = link.BuildRequest();
  EXPECT_EQ(first.attempts(0).points_size(), 1);
  EXPECT_EQ(first.attempts(0).step(), 10);
  const int64_t number = first.attempts(0).points_sequence();
  link.OnProgress({"a", 1}, Progress(20, Points(20, 1)));
  EXPECT_EQ(link.BuildRequest().attempts(0).points_size(), 2);
  v1::SyncResponse answer = Desired({Stage("a", 1)});
  v1::PointsAck* ack = answer.add_points_acks();
  ack->set_job_id("a");
  ack->set_attempt(1);
  ack->set_points_sequence(number);
  link.OnResponse(3, answer, 0);
  const v1::SyncRequest rest = link.BuildRequest();
  ASSERT_EQ(rest.attempts(0).points_size(), 1);
  EXPECT_EQ(rest.attempts(0).points(0).step(), 20);
}

// A coordinator that is away for days must not take this machine's memory; what is left still shows every spike.
TEST(LinkStateTest, PointsThatWaitAreThinnedAndNoSpikeIsLost) {
  LinkOptions options = Options();
  options.max_points_waiting = 100;
  LinkState link(options);
  link.OnResponse(link.BuildRequest().sequence(), Desired({Stage("job", 1)}), 0);
  const auto report = [&](int64_t step, double loss) {
    TaskProgress progress;
    progress.step = step;
    for (const char* metric : {"train_loss", "gradient_norm"}) {
      v1::CurvePoint& point = progress.points.emplace_back();
      point.set_metric(metric);
      point.set_step(step);
      point.set_value(loss);
    }
    link.OnProgress({"job", 1}, progress);
  };
  const int64_t last = 5000;
  for (int64_t step = 1; step <= last; ++step) {
    report(step, step == 3456 ? std::numeric_limits<double>::quiet_NaN() : step == 777 ? 50.0 : 2.0 + (step % 7) * 0.01);
  }
  v1::SyncRequest request = link.BuildRequest();
  const auto& points = request.attempts(0).points();
  EXPECT_LE(points.size(), 100);
  EXPECT_GE(points.size(), 50);
  EXPECT_EQ(link.thinned(), 2 * last - points.size());
  bool spike = false, nan = false;
  std::map<std::string, int64_t> steps;
  for (const v1::CurvePoint& point : points) {
    EXPECT_GT(point.step(), steps[point.metric()]) << "in order";
    steps[point.metric()] = point.step();
    spike |= point.step() == 777 && point.value() == 50.0;
    nan |= point.step() == 3456 && std::isnan(point.value());
  }
  EXPECT_TRUE(spike);
  EXPECT_TRUE(nan);
  EXPECT_EQ(steps["train_loss"], last);
  EXPECT_EQ(steps["gradient_norm"], last);
  // Thinned evenly: no stretch of the curve is left without points.
  std::vector<int64_t> of_loss;
  for (const v1::CurvePoint& point : points) {
    if (point.metric() == "train_loss") of_loss.push_back(point.step());
  }
  EXPECT_LE(of_loss.front(), 600);
  for (size_t i = 1; i < of_loss.size(); ++i) EXPECT_LE(of_loss[i] - of_loss[i - 1], 600);
  // The newest ones are whole.
  for (int i = 0; i < 20; ++i) EXPECT_EQ(points[points.size() - 1 - i].step(), last - i / 2);

  // They leave, and are acknowledged, as ever.
  v1::SyncResponse response = Desired({Stage("job", 1)});
  v1::PointsAck* ack = response.add_points_acks();
  ack->set_job_id("job");
  ack->set_attempt(1);
  ack->set_points_sequence(request.attempts(0).points_sequence());
  link.OnResponse(request.sequence(), response, 0);
  EXPECT_EQ(link.BuildRequest().attempts(0).points_size(), 0);
  report(last + 1, 1);
  EXPECT_EQ(link.BuildRequest().attempts(0).points_size(), 2);
}

TEST(LinkStateTest, WhileDrainingACoordinatorThatIsAwayIsAskedSoonAgain) {
  LinkState link(Options());
  link.OnResponse(link.BuildRequest().sequence(), Desired({Stage("job", 1)}), 0);
  for (int i = 0; i < 10; ++i) link.OnFailure(link.BuildRequest().sequence(), 0);
  EXPECT_GT(link.next_contact_us(), 1'000'000);
  link.BeginDrain();
  EXPECT_EQ(link.running(), 1);
  link.OnFailure(link.BuildRequest().sequence(), 0);
  EXPECT_LE(link.next_contact_us(), 400'000);
  link.OnEnded({"job", 1}, Done());
  EXPECT_EQ(link.running(), 0);
  EXPECT_EQ(link.attempts(), 1);
}

TEST(LinkStateTest, WhereAStageBeganIsInEveryReportOnceItIsKnown) {
  LinkState link(Options());
  link.BuildRequest();
  link.OnResponse(1, Desired({Stage("a", 1)}), 0);
  link.OnProgress({"a", 1}, Progress(0, {}));
  EXPECT_FALSE(link.BuildRequest().attempts(0).has_resumed_from_step());
  TaskProgress progress = Progress(30, Points(30, 1));
  progress.resumed_from_step = 25;
  link.OnProgress({"a", 1}, progress);
  link.OnEnded({"a", 1}, Done());
  EXPECT_EQ(link.BuildRequest().attempts(0).resumed_from_step(), 25);
}

TEST(LinkStateTest, TheEndGoesOutWithTheLastPointsHoweverManyThereAre) {
  LinkOptions options = Options();
  options.max_points_per_request = 100;
  LinkState link(options);
  link.BuildRequest();
  link.OnResponse(1, Desired({Stage("a", 1)}), 0);
  for (int i = 0; i < 25; ++i) link.OnProgress({"a", 1}, Progress(i * 10, Points(i * 10, 10)));
  link.OnEnded({"a", 1}, Done());
  std::set<int64_t> stored;
  int requests = 0;
  for (; link.attempts() > 0; ++requests) {
    ASSERT_LT(requests, 10);
    ASSERT_EQ(link.next_contact_us(), 0);
    const v1::SyncRequest request = link.BuildRequest();
    const v1::AttemptReport& report = request.attempts(0);
    EXPECT_LE(report.points_size(), 100);
    for (const v1::CurvePoint& point : report.points()) stored.insert(point.step());
    v1::SyncResponse answer = Desired({Stage("a", 1)});
    if (report.phase() == v1::AttemptReport::SUCCEEDED) {
      EXPECT_THAT(stored, SizeIs(250)) << "the coordinator takes no points after the end";
      Ack("a", 1, &answer);
    } else {
      EXPECT_FALSE(report.has_result());
      v1::PointsAck* ack = answer.add_points_acks();
      ack->set_job_id("a");
      ack->set_attempt(1);
      ack->set_points_sequence(report.points_sequence());
    }
    link.OnResponse(request.sequence(), answer, 0);
  }
  EXPECT_EQ(requests, 3);
}

TEST(LinkStateTest, ACheckpointIsReportedUntilAnAnswerComes) {
  LinkState link(Options());
  link.BuildRequest();
  link.OnResponse(1, Desired({Stage("a", 1)}), 0);
  v1::CheckpointRef checkpoint;
  checkpoint.set_stage_key("s");
  checkpoint.set_step(50);
  link.OnCheckpoint({"a", 1}, checkpoint);
  EXPECT_EQ(link.BuildRequest().attempts(0).checkpoint().step(), 50);
  EXPECT_EQ(link.BuildRequest().attempts(0).checkpoint().step(), 50);
  link.OnResponse(3, Desired({Stage("a", 1)}), 0);
  EXPECT_FALSE(link.BuildRequest().attempts(0).has_checkpoint());
}

TEST(LinkStateTest, BackOffGrowsToItsLimitWithJitterAndEndsWithAnAnswer) {
  LinkOptions options = Options();
  options.first_backoff_ms = 100;
  options.max_backoff_ms = 1000;
  LinkState link(options);
  std::set<int64_t> waits;
  for (int i = 0; i < 20; ++i) {
    const int64_t sequence = link.BuildRequest().sequence();
    link.OnFailure(sequence, 5'000'000);
    const int64_t wait_us = link.next_contact_us() - 5'000'000;
    const int64_t full_us = std::min<int64_t>(100'000ll << std::min(i, 10), 1'000'000);
    EXPECT_GE(wait_us, full_us / 2);
    EXPECT_LE(wait_us, full_us);
    if (full_us == 1'000'000) waits.insert(wait_us);
  }
  EXPECT_GT(waits.size(), 3u) << "no jitter";
  const int64_t sequence = link.BuildRequest().sequence();
  link.OnResponse(sequence, Desired({}), 5'000'000);
  EXPECT_EQ(link.next_contact_us(), 6'000'000);
}

TEST(LinkStateTest, AnEndDuringAnOutageWaitsForTheBackOff) {
  LinkState link(Options());
  link.BuildRequest();
  link.OnResponse(1, Desired({Stage("a", 1)}), 0);
  link.OnFailure(link.BuildRequest().sequence(), 1'000'000);
  link.OnEnded({"a", 1}, Done());
  EXPECT_GT(link.next_contact_us(), 1'000'000);
  EXPECT_THAT(link.Unacknowledged(), SizeIs(1));
}

TEST(LinkStateTest, AContactIsDueWellWithinTheLease) {
  LinkState link(Options());
  link.BuildRequest();
  v1::SyncResponse answer = Desired({});
  answer.set_next_contact_ms(60'000);
  answer.set_lease_ms(9'000);
  link.OnResponse(1, answer, 0);
  EXPECT_LE(link.next_contact_us(), 3'000'000);
  answer.set_next_contact_ms(-5);
  link.BuildRequest();
  link.OnResponse(2, answer, 0);
  EXPECT_GT(link.next_contact_us(), 0) << "never a busy loop";
}

TEST(LinkStateTest, DrainingGivesBackWhatStillComesAndFinishesWhenAllIsTold) {
  LinkState link(Options());
  link.BuildRequest();
  link.OnResponse(1, Desired({Stage("a", 1)}), 0);
  link.BuildRequest();  // on its way while the drain begins
  link.BeginDrain();
  EXPECT_FALSE(link.finished());
  LinkState::Actions actions = link.OnResponse(2, Desired({Stage("a", 1), Stage("b", 1, 1)}), 0);
  EXPECT_THAT(actions.start, IsEmpty());
  EXPECT_EQ(link.next_contact_us(), 0);
  v1::AttemptReport released;
  released.set_phase(v1::AttemptReport::RELEASED);
  link.OnEnded({"a", 1}, released);
  const v1::SyncRequest request = link.BuildRequest();
  EXPECT_TRUE(request.draining());
  ASSERT_EQ(request.attempts_size(), 2);
  for (const v1::AttemptReport& report : request.attempts()) EXPECT_EQ(report.phase(), v1::AttemptReport::RELEASED);
  EXPECT_EQ(request.attempts(1).failure().message(), "its worker was asked to stop");
  v1::SyncResponse answer = Desired({});
  Ack("a", 1, &answer);
  Ack("b", 1, &answer);
  link.OnResponse(3, answer, 0);
  EXPECT_TRUE(link.finished());
}

TEST(LinkStateTest, APausedWorkerTakesNothingNewAndGoesOnWithWhatRuns) {
  LinkState link(Options());
  ASSERT_THAT(link.OnResponse(link.BuildRequest().sequence(), Desired({Stage("a", 1)}), 0).start, SizeIs(1));
  const int64_t before = link.BuildRequest().sequence();
  link.SetPaused(true);
  // Granted before the coordinator heard of it.
  EXPECT_THAT(link.OnResponse(before, Desired({Stage("a", 1), Stage("b", 1, 1)}), 0).start, IsEmpty());
  const v1::SyncRequest request = link.BuildRequest();
  EXPECT_TRUE(request.draining());
  ASSERT_EQ(request.attempts_size(), 2);
  EXPECT_EQ(request.attempts(0).phase(), v1::AttemptReport::RUNNING);
  EXPECT_EQ(request.attempts(1).phase(), v1::AttemptReport::RELEASED);
  EXPECT_EQ(request.attempts(1).failure().message(), "its worker takes no new work now");
  EXPECT_FALSE(link.finished());
  link.SetPaused(false);
  EXPECT_FALSE(link.BuildRequest().draining());
}

TEST(LinkStateTest, AnIdleWorkerTellsThatItDrainsBeforeItGoes) {
  LinkState link(Options());
  link.BuildRequest();
  link.BeginDrain();
  EXPECT_FALSE(link.finished());
  link.OnResponse(1, Desired({}), 0);
  EXPECT_FALSE(link.finished());
  EXPECT_EQ(link.next_contact_us(), 0);
  link.BuildRequest();
  link.OnResponse(2, Desired({}), 0);
  EXPECT_TRUE(link.finished());
}

TEST(LinkStateTest, TheCoordinatorsDrainFinishesWhatRuns) {
  LinkState link(Options());
  link.BuildRequest();
  link.OnResponse(1, Desired({Stage("a", 1)}), 0);
  link.BuildRequest();
  v1::SyncResponse answer = Desired({Stage("a", 1)});
  answer.set_drain(true);
  LinkState::Actions actions = link.OnResponse(2, answer, 0);
  EXPECT_TRUE(actions.drain);
  EXPECT_THAT(actions.stop, IsEmpty());
  link.BuildRequest();
  EXPECT_FALSE(link.OnResponse(3, answer, 0).drain) << "said once";
  EXPECT_FALSE(link.finished());
  link.OnEnded({"a", 1}, Done());
  link.BuildRequest();
  v1::SyncResponse last = Desired({});
  Ack("a", 1, &last);
  link.OnResponse(4, last, 0);
  EXPECT_TRUE(link.finished());
}

TEST(LinkStateTest, ARestoredResultIsReportedAndNotRunAgain) {
  LinkState link(Options());
  v1::AttemptReport report = Done();
  report.set_job_id("a");
  report.set_attempt(3);
  link.Restore(report);
  const v1::SyncRequest request = link.BuildRequest();
  ASSERT_EQ(request.attempts_size(), 1);
  EXPECT_EQ(request.attempts(0).phase(), v1::AttemptReport::SUCCEEDED);
  v1::SyncResponse answer = Desired({});
  Ack("a", 3, &answer);
  EXPECT_THAT(link.OnResponse(1, answer, 0).forgotten, SizeIs(1));
}

// A coordinator reduced to the rules of proto/link.proto, behind a network that loses, doubles, delays and reorders in
// both directions.
class LossyWorld {
 public:
  LossyWorld(uint64_t seed, int jobs) : random_(seed), link_(Options(2)) {
    for (int i = 0; i < jobs; ++i) jobs_["job_" + std::to_string(i)];
  }

  void Run() {
    int rounds = 0;
    while (!AllDone()) {
      ASSERT_LT(++rounds, 100'000) << "no end in sight";
      Round(Chance(20), Chance(20), Chance(15), Chance(25));
    }
    // The network heals: what is left is told, and nothing stays behind.
    for (int i = 0; i < 20; ++i) Round(false, false, false, false);
    EXPECT_EQ(link_.attempts(), 0);
    EXPECT_TRUE(slots_[0].empty() && slots_[1].empty());
    for (const auto& [id, job] : jobs_) {
      EXPECT_EQ(job.recorded, 1) << id;
      EXPECT_EQ(job.points, AllPoints()) << id;
      for (const auto& [attempt, starts] : job.starts) EXPECT_EQ(starts, 1) << id << " attempt " << attempt;
    }
  }

 private:
  struct Job {
    int64_t attempt = 0;
    bool running = false, done = false;
    int slot = 0;
    int recorded = 0;
    std::set<int64_t> points;
    std::map<int64_t, int> starts;
  };
  struct Running {
    AttemptKey key;
    int64_t step = 0;
  };

  static std::set<int64_t> AllPoints() { return {1, 2, 3, 4, 5}; }
  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  bool AllDone() const {
    for (const auto& [id, job] : jobs_) {
      if (!job.done) return false;
    }
    return true;
  }

  void Round(bool lose_request, bool lose_response, bool double_request, bool delay_response) {
    now_us_ += 1000;
    Work();
    const v1::SyncRequest request = link_.BuildRequest();
    std::optional<v1::SyncResponse> response;
    if (!lose_request) response = Serve(request);
    if (double_request) Serve(request);
    if (!kept_requests_.empty() && Chance(10)) Serve(kept_requests_[random_() % kept_requests_.size()]);
    kept_requests_.push_back(request);
    if (!response || lose_response) {
      link_.OnFailure(request.sequence(), now_us_);
    } else if (delay_response) {
      link_.OnFailure(request.sequence(), now_us_);
      kept_responses_.emplace_back(request.sequence(), *response);
    } else {
      Digest(request.sequence(), *response);
    }
    if (!kept_responses_.empty() && Chance(30)) {
      const auto& [sequence, kept] = kept_responses_[random_() % kept_responses_.size()];
      Digest(sequence, kept);
    }
    // The coordinator may also lose patience with an attempt.
    if (Chance(2)) {
      for (auto& [id, job] : jobs_) {
        if (job.running && !job.done && Chance(30)) job.running = false;
      }
    }
  }

  void Digest(int64_t sequence, const v1::SyncResponse& response) {
    const LinkState::Actions actions = link_.OnResponse(sequence, response, now_us_);
    for (const AttemptKey& key : actions.stop) {
      for (auto& slot : slots_) {
        for (auto it = slot.begin(); it != slot.end(); ++it) {
          if (it->key != key) continue;
          slot.erase(it);
          v1::AttemptReport report;
          report.set_phase(v1::AttemptReport::CANCELLED);
          link_.OnEnded(key, report);
          break;
        }
      }
    }
    for (const v1::Assignment& assignment : actions.start) {
      ++jobs_[assignment.job_id()].starts[assignment.attempt()];
      slots_[assignment.slot()].push_back({{assignment.job_id(), assignment.attempt()}, 0});
    }
  }

  void Work() {
    for (auto& slot : slots_) {
      if (slot.empty() || !Chance(60)) continue;
      Running& running = slot.front();
      ++running.step;
      link_.OnProgress(running.key, Progress(running.step, Points(running.step, 1)));
      if (running.step < 5) continue;
      link_.OnEnded(running.key, Done());
      slot.erase(slot.begin());
    }
  }

  std::optional<v1::SyncResponse> Serve(const v1::SyncRequest& request) {
    if (request.sequence() <= last_sequence_) return std::nullopt;  // FAILED_PRECONDITION
    last_sequence_ = request.sequence();
    v1::SyncResponse response;
    for (const v1::AttemptReport& report : request.attempts()) {
      Job& job = jobs_[report.job_id()];
      const bool latest = report.attempt() == job.attempt;
      if (latest && !job.done) {
        for (const v1::CurvePoint& point : report.points()) job.points.insert(point.step());
      }
      if (report.phase() == v1::AttemptReport::RUNNING) {
        if (latest && report.points_size() > 0) {
          v1::PointsAck* ack = response.add_points_acks();
          ack->set_job_id(report.job_id());
          ack->set_attempt(report.attempt());
          ack->set_points_sequence(report.points_sequence());
        }
        continue;
      }
      if (latest && !job.done && report.phase() == v1::AttemptReport::SUCCEEDED) {
        job.done = true;
        job.running = false;
        ++job.recorded;
      } else if (latest && !job.done) {
        job.running = false;
      }
      Ack(report.job_id(), report.attempt(), &response);
    }
    std::vector<bool> busy(2, false);
    for (const auto& [id, job] : jobs_) {
      if (job.running) busy[job.slot] = true;
    }
    for (auto& [id, job] : jobs_) {
      for (int slot = 0; slot < 2 && !job.running && !job.done; ++slot) {
        if (busy[slot]) continue;
        busy[slot] = true;
        job.slot = slot;
        job.running = true;
        ++job.attempt;
      }
      if (job.running) *response.add_desired() = Stage(id, job.attempt, job.slot);
    }
    response.set_next_contact_ms(1);
    return response;
  }

  std::mt19937_64 random_;
  LinkState link_;
  int64_t now_us_ = 0;
  int64_t last_sequence_ = 0;
  std::map<std::string, Job> jobs_;
  std::vector<Running> slots_[2];
  std::vector<v1::SyncRequest> kept_requests_;
  std::vector<std::pair<int64_t, v1::SyncResponse>> kept_responses_;
};

TEST(LinkStateTest, EveryJobIsRecordedOnceWhateverTheNetworkDoes) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    LossyWorld(seed, 25).Run();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ablate
