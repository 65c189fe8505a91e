// Thousands of random events against the scheduler: workers come, die and are born again, messages are lost, doubled,
// delayed and overtaken, sweeps are submitted, cancelled and retried, the coordinator restarts. After each event all
// invariants hold; in the end everything finishes. The store is fed by effects alone, so a restart shows what they
// forgot.
#include <algorithm>
#include <cstdlib>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/scheduler_test_util.h"

namespace ablate {
namespace {

constexpr int64_t kLeaseMicros = 30'000'000;

class World {
 public:
  // With `files_vanish`, an end state's file is not found now and then.
  World(unsigned seed, bool files_vanish) : random_(seed), rig_(Options(files_vanish)) {
    for (int i = 0; i < 3; ++i) workers_.push_back(std::make_unique<Worker>(&rig_, absl::StrCat("w", i), 1 + i));
  }

  void Run(int events) {
    Submit();
    for (int i = 0; i < events && !::testing::Test::HasFatalFailure(); ++i) Event();
  }

  // Everyone is well from now on: what is left must be done.
  void Finish() {
    calm_ = true;
    network_.clear();
    for (auto& worker : workers_) {
      worker->hand.draining = false;
      Reborn(*worker);  // whatever it had forgotten is lost, not stuck
    }
    for (SweepRow row = 1; row <= sweeps_; ++row) {
      if (Chance(50)) rig_.Retry(row);
    }
    for (int round = 0; round < 3000 && !AllOver(); ++round) {
      for (auto& worker : workers_) {
        for (auto& [key, assignment] : worker->running) {
          if (!worker->outbox.contains(key)) End(*worker, key, v1::AttemptReport::SUCCEEDED, /*calm=*/true);
        }
        Deliver(*worker, MakeRequest(*worker), true);
      }
      rig_.Advance(1'000'000);
      rig_.Tick();
      for (SweepRow row = 1; row <= sweeps_; ++row) {
        if (rig_.sweep(row).paused) {
          ++paused_;
          ASSERT_TRUE(rig_.Resume(row, 0).ok());
        }
        if (rig_.scheduler->AwaitsDecision(row)) Decide(row, /*last=*/true);
      }
    }
    ASSERT_TRUE(AllOver()) << "something never finished";
    ASSERT_EQ(rig_.scheduler->CheckInvariants(), "");
    ASSERT_EQ(rig_.WhatTheStoreMissed(), "");
    int64_t recorded = 0, succeeded = 0;
    for (JobRow row = 1; row <= static_cast<JobRow>(rig_.scheduler->job_count()); ++row) {
      const JobRecord& job = rig_.job(row);
      const bool success = job.state == v1::SUCCEEDED;
      succeeded += success;
      recorded += rig_.store.results(row);
      ASSERT_EQ(rig_.store.results(row), success ? 1 : 0) << job.job_id;
      if (job.verify_of != 0) ++verified_;
      if (success && job.parent != 0) {
        ASSERT_EQ(rig_.state(job.parent), v1::SUCCEEDED) << job.job_id;
      }
    }
    ASSERT_EQ(recorded, succeeded);
    ASSERT_GT(succeeded, 0);
  }

  const SchedulerRig& rig() const { return rig_; }
  int verified() const { return verified_; }
  int paused() const { return paused_; }

 private:
  SchedulerOptions Options(bool files_vanish) {
    SchedulerOptions options;
    options.sweep_max_failures = 4;
    if (files_vanish) options.has_artifact = [this](const std::string&) { return calm_ || !Chance(5); };
    return options;
  }

  using Key = std::pair<std::string, int64_t>;
  struct Worker {
    Worker(SchedulerRig* rig, const std::string& id, int slots) : hand(rig, id, slots) {}
    WorkerHand hand;
    int births = 1;
    std::map<Key, SyncDecision::Desired> running;
    std::map<Key, v1::AttemptReport> outbox;
    int64_t newest_answer = 0;  // of which request
  };
  struct Message {
    size_t worker;
    int births;
    v1::SyncRequest request;
  };

  int Pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool Chance(int percent) { return Pick(100) < percent; }
  Worker& AnyWorker() { return *workers_[static_cast<size_t>(Pick(static_cast<int>(workers_.size())))]; }

  void Submit() {
    if (sweeps_ >= 6) return;
    // Prefixes repeat, so that sweeps share; sizes differ, so that they extend each other.
    SubmitPlan plan = MakeTestPlan(absl::StrCat("sweep ", sweeps_), 1 + Pick(3), Pick(4), Chance(50),
                                   absl::StrCat("prefix ", Pick(2)));
    plan.sweep.priority = Pick(3);
    if (Chance(30)) plan.sweep.max_failures = Pick(3);  // 0: never pauses
    plan.sweep.keep = std::vector<v1::Keep>{v1::KEEP_NONE, v1::KEEP_NONE, v1::KEEP_WEIGHTS,
                                            v1::KEEP_ALL}[static_cast<size_t>(Pick(4))];
    if (Chance(50)) Seal(&plan);
    // The same key must be the same thing: a child only ever hangs on the stage of its own index.
    rig_.Submit(plan);
    ++sweeps_;
  }

  // Some trainings with all that hangs on them, and some evaluations of others.
  void Seal(SubmitPlan* plan) {
    for (SubmitPlan::PlannedJob& job : plan->jobs) {
      job.sealed = (job.parent >= 0 && plan->jobs[static_cast<size_t>(job.parent)].sealed) || Chance(30);
    }
    plan->sweep.pending = true;
  }

  // A decision: some sealed jobs are let go, others dropped with what hangs on them. The last one lets none wait.
  void Decide(SweepRow row, bool last) {
    const Scheduler::Sweep& sweep = rig_.scheduler->sweep(row);
    if (sweep.record.state == v1::SWEEP_CANCELLED) return;
    PlanChange change = rig_.ChangeOf(row);
    std::set<std::string> dropped, waiting;  // by key: a stage may have been trained again
    std::vector<JobRow> jobs(sweep.record.jobs);
    std::sort(jobs.begin(), jobs.end(), [&](JobRow a, JobRow b) {
      const JobRecord &left = rig_.job(a), &right = rig_.job(b);
      return std::tuple(left.kind, left.from_step, a) < std::tuple(right.kind, right.from_step, b);
    });
    for (JobRow job : jobs) {
      if (!sweep.sealed.contains(job)) continue;
      const JobRow parent_row = rig_.job(job).parent;
      const std::string parent = parent_row == 0 ? "" : rig_.job(parent_row).key;
      if (dropped.contains(parent) || Chance(30)) {
        dropped.insert(rig_.job(job).key);
        change.drop.push_back(rig_.job(job).key);
      } else if (!waiting.contains(parent) && (last || Chance(50))) {
        change.unseal.push_back(rig_.job(job).key);
      } else {
        waiting.insert(rig_.job(job).key);
      }
    }
    change.sweep.pending = !last;
    rig_.Change(change);
  }

  v1::SyncRequest MakeRequest(Worker& worker) {
    std::vector<v1::AttemptReport> reports;
    for (const auto& [key, desired] : worker.running) {
      const auto ended = worker.outbox.find(key);
      if (ended != worker.outbox.end()) continue;
      v1::AttemptReport report;
      report.set_job_id(key.first);
      report.set_attempt(key.second);
      report.set_slot(desired.slot);
      report.set_phase(v1::AttemptReport::RUNNING);
      report.set_step(Pick(150));
      report.set_tokens_per_second(1000);
      reports.push_back(report);
    }
    for (const auto& [key, report] : worker.outbox) reports.push_back(report);
    return worker.hand.Request(reports);
  }

  void End(Worker& worker, const Key& key, v1::AttemptReport::Phase phase, bool calm = false) {
    const Scheduler::Job* job = rig_.scheduler->FindJob(key.first);
    v1::AttemptReport report;
    report.set_job_id(key.first);
    report.set_attempt(key.second);
    report.set_slot(worker.running[key].slot);
    report.set_phase(phase);
    if (phase == v1::AttemptReport::SUCCEEDED) {
      const bool diverged = !calm && Chance(10);
      report.mutable_result()->set_outcome(diverged ? v1::DIVERGED : v1::COMPLETED);
      if (!diverged && job->record.kind == v1::STAGE) {
        v1::CheckpointRef* state = report.mutable_result()->mutable_end_state();
        state->mutable_weights()->set_sha256("weights of " + job->record.key);
        // As it was told when it started.
        if (worker.running[key].keep_optimizer)
          state->mutable_optimizer()->set_sha256("optimizer of " + job->record.key);
      }
    } else if (phase == v1::AttemptReport::FAILED) {
      const v1::FailureKind kinds[] = {v1::CODE_ERROR, v1::OUT_OF_MEMORY, v1::PREEMPTED, v1::TIMEOUT,
                                       v1::INVALID_CONFIG};
      report.mutable_failure()->set_kind(kinds[Pick(Chance(80) ? 4 : 5)]);
    }
    worker.outbox[key] = report;
  }

  // The coordinator handles a request; the answer reaches the worker unless it is lost.
  void Deliver(Worker& worker, const v1::SyncRequest& request, bool answer_arrives) {
    auto decision = rig_.Sync(request);
    if (!decision.ok()) {
      ASSERT_EQ(decision.status().code(), absl::StatusCode::kFailedPrecondition) << decision.status();
      return;
    }
    const bool same_birth = worker.hand.info.incarnation() == request.worker().incarnation();
    if (!answer_arrives || !same_birth || request.sequence() < worker.newest_answer) return;
    worker.newest_answer = request.sequence();
    for (const v1::AttemptAck& ack : decision->acks) {
      worker.outbox.erase({ack.job_id(), ack.attempt()});
      worker.running.erase({ack.job_id(), ack.attempt()});
    }
    std::map<Key, SyncDecision::Desired> desired;
    for (const auto& item : decision->desired) {
      const Key key{item.job_id, item.attempt};
      // What it runs already goes on as it was started.
      desired[key] = worker.running.contains(key) ? worker.running[key] : item;
    }
    // What is not wanted is stopped; what ended after the request was made is still to be told.
    std::erase_if(worker.running, [&](const auto& item) {
      return !desired.contains(item.first) && !worker.outbox.contains(item.first);
    });
    for (auto& [key, item] : desired) worker.running.emplace(key, item);
  }

  void Reborn(Worker& worker) {
    worker.hand.info.set_incarnation(absl::StrCat("birth ", ++worker.births));
    worker.hand.sequence = 0;
    worker.newest_answer = 0;
    worker.running.clear();
    // Sometimes what had ended lay on its disk.
    if (Chance(50)) worker.outbox.clear();
  }

  bool AllOver() const {
    for (JobRow row = 1; row <= static_cast<JobRow>(rig_.scheduler->job_count()); ++row) {
      if (!IsTerminal(rig_.state(row))) return false;
    }
    return true;
  }

  void Event() {
    const int kind = Pick(100);
    Worker& worker = AnyWorker();
    if (kind < 30) {  // a worker calls
      const size_t index = static_cast<size_t>(
          std::find_if(workers_.begin(), workers_.end(), [&](const auto& w) { return w.get() == &worker; }) -
          workers_.begin());
      network_.push_back({index, worker.births, MakeRequest(worker)});
    } else if (kind < 62) {  // some message arrives, perhaps not the oldest, perhaps not for the last time
      if (network_.empty()) return;
      const size_t at = static_cast<size_t>(Pick(Chance(70) ? 1 : static_cast<int>(network_.size())));
      const Message message = network_[at];
      if (!Chance(15)) network_.erase(network_.begin() + static_cast<int64_t>(at));
      if (Chance(10)) return;  // lost
      Deliver(*workers_[message.worker], message.request, !Chance(15));
    } else if (kind < 82) {  // something ends
      if (worker.running.empty()) return;
      auto place = worker.running.begin();
      std::advance(place, Pick(static_cast<int>(worker.running.size())));
      if (worker.outbox.contains(place->first)) return;
      const int phase = Pick(100);
      End(worker, place->first,
          phase < 75   ? v1::AttemptReport::SUCCEEDED
          : phase < 93 ? v1::AttemptReport::FAILED
                       : v1::AttemptReport::RELEASED);
    } else if (kind < 89) {
      rig_.Advance(Chance(30) ? kLeaseMicros + 1 : Pick(5'000'000));
      rig_.Tick();
    } else if (kind < 91) {
      Reborn(worker);
    } else if (kind < 92) {
      worker.hand.draining = !worker.hand.draining;
    } else if (kind < 94) {
      rig_.Restart();
    } else if (kind < 96) {
      Submit();
    } else if (kind < 97) {
      const SweepRow row = 1 + Pick(sweeps_);
      if (rig_.sweep(row).paused) ++paused_;
      if (Chance(50)) {
        (void)rig_.CancelSweep(row);
      } else {
        (void)rig_.Resume(row);
      }
    } else if (kind < 98) {
      rig_.Retry(1 + Pick(sweeps_));
    } else if (kind < 98 + 1 && Chance(60)) {
      if (Chance(50)) {
        Decide(1 + Pick(sweeps_), Chance(20));
      } else {
        (void)rig_.Verify(1 + Pick(static_cast<int>(rig_.scheduler->job_count())));
      }
    } else if (kind < 99) {
      (void)rig_.CancelJob(1 + Pick(static_cast<int>(rig_.scheduler->job_count())));
    } else if (rig_.scheduler->FindWorker(worker.hand.info.worker_id()) != nullptr) {
      rig_.Drain(worker.hand.info.worker_id());
    }
  }

  std::mt19937 random_;
  bool calm_ = false;
  SchedulerRig rig_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Message> network_;
  int sweeps_ = 0, verified_ = 0, paused_ = 0;
};

TEST(SchedulerRandom, InvariantsHoldAndEverythingEnds) {
  std::set<SnapshotStore::Edge> walked;
  int verified = 0, paused = 0;
  // More of them by hand: ABLATE_SEEDS=20000.
  const char* asked = std::getenv("ABLATE_SEEDS");
  const unsigned seeds = asked == nullptr ? 400 : static_cast<unsigned>(std::atoi(asked));
  for (unsigned seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    World world(seed, /*files_vanish=*/seed % 4 == 3);
    world.Run(1000);
    if (HasFatalFailure()) return;
    world.Finish();
    if (HasFatalFailure()) return;
    verified += world.verified();
    paused += world.paused();
    walked.insert(world.rig().store.edges().begin(), world.rig().store.edges().end());
  }
  // The chaos is real: it takes every edge there is.
  EXPECT_EQ(walked.size(), JobEdges().size());
  EXPECT_GT(verified, 100);
  EXPECT_GT(paused, 50);
}

}  // namespace
}  // namespace ablate
