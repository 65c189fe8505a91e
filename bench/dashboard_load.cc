// The load under which the dashboard is measured: a database of 100,000 jobs and 50 million curve points, and workers that
// write into it. bench/dashboard_load.py runs both.
//
//   dashboard_load make DIR [POINTS_IN_MILLIONS]   nine finished sweeps of 10,000 jobs, and `live`, of as many, not begun
//   dashboard_load write ADDRESS WORKERS SECONDS CONTACT_MS FILE
//       so many workers that report progress and points at this pace, and hand in results; each call's time to FILE
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "grpcpp/grpcpp.h"
#include "proto/link.grpc.pb.h"
#include "server/coordinator_test_util.h"
#include "server/store/sqlite.h"

namespace ablate {
namespace {

constexpr int kSweeps = 9;
constexpr int64_t kSteps = 9260;  // every 10 of them logged: 2,778 points of three metrics a stage

std::string SweepYaml(const std::string& name, int batch) {
  return absl::StrCat("name: ", name, R"(
executor: noop
settings: {train.steps: )",
                      kSteps, ", train.batch: ", batch, R"(}
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: {from: 1, to: 49, step: 1}}
baseline: {attention.variant: softmax}
seeds: 40
evaluate: {lengths: [1x, 2x, 4x, 8x]}
)");
}

// In [0, 1), by what is hashed.
double Noise(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  x ^= x >> 33;
  return static_cast<double>(x >> 11) * 0x1p-53;
}

double TrainLoss(int64_t stage, int64_t step) {
  return 2 + 3 / std::sqrt(1 + static_cast<double>(step) / 50) + 0.02 * Noise(static_cast<uint64_t>(stage)) +
         0.05 * Noise(static_cast<uint64_t>(stage) * 1000003 + static_cast<uint64_t>(step));
}

absl::Status RunSweeps(const std::string& dir) {
  CoordinatorOptions options;
  options.data_dir = dir;
  options.idle_wait_ms = 0;
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Coordinator> coordinator, Coordinator::Open(options));
  const auto submit = [&](const std::string& name, int batch) {
    v1::SubmitSweepRequest request;
    request.set_file_name(absl::StrCat(name, ".yaml"));
    request.set_yaml(SweepYaml(name, batch));
    return coordinator->SubmitSweep(request).status();
  };
  for (int i = 1; i <= kSweeps; ++i) ABLATE_RETURN_IF_ERROR(submit(absl::StrCat("load-", i), i));
  FakeWorker worker("maker", 256);
  worker.loss_targets = [](const v1::EvaluationTask& task) {
    const std::string hash = Sha256Hex(absl::StrCat(task.stage_key(), " ", task.length_tokens()));
    return 2 + 0.1 * std::log2(static_cast<double>(task.length_tokens())) + 0.02 * static_cast<double>(task.seed() % 7) +
           0.05 * static_cast<double>(std::stoul(hash.substr(0, 8), nullptr, 16)) / 4294967296.0;
  };
  ABLATE_ASSIGN_OR_RETURN(const int done, worker.RunAll(*coordinator));
  std::fprintf(stderr, "%d jobs done\n", done);
  return submit("live", 100);
}

// Straight into the file: through the coordinator it would take an hour. The rows are what it writes, digests too.
absl::Status AddPoints(const std::string& dir, double millions) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> db,
                          Connection::Open(JoinPath(dir, "ablate.db"), Connection::Mode::kReadWrite));
  std::vector<int64_t> stages;
  {
    ABLATE_ASSIGN_OR_RETURN(Statement rows,
                            db->Query("SELECT s.row FROM stages s JOIN stage_results r ON r.stage = s.row "
                                      "GROUP BY s.row ORDER BY s.row"));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      stages.push_back(rows.Int(0));
    }
  }
  std::string trigger;
  {
    ABLATE_ASSIGN_OR_RETURN(Statement row, db->Query("SELECT sql FROM sqlite_master WHERE name = 'curves_digest_new'"));
    ABLATE_RETURN_IF_ERROR(row.Step().status());
    trigger = row.Text(0);
  }
  ABLATE_RETURN_IF_ERROR(db->Script("PRAGMA synchronous = OFF; PRAGMA cache_size = -65536; DROP TRIGGER curves_digest_new"));
  const int64_t points = std::llround(millions * 1e6 / static_cast<double>(stages.size()) / 3);
  int64_t written = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (i % 50 == 0) ABLATE_RETURN_IF_ERROR(db->Script(i == 0 ? "BEGIN" : "COMMIT; BEGIN"));
    // In the order of the key, so that each row is the last.
    for (const char* metric : {"gradient_norm", "learning_rate", "train_loss"}) {
      ABLATE_ASSIGN_OR_RETURN(
          Statement insert,
          db->Prepare("INSERT INTO curves (stage, metric, step, value, non_finite, digest) VALUES (?1, ?2, ?3, ?4, NULL, "
                      "ablate_digest('curves', ?1, ?2, ?3, ?4, NULL))"));
      const char kind = metric[0];
      for (int64_t k = 1; k <= points; ++k) {
        const int64_t step = std::min(10 * k, kSteps);
        const double value = kind == 't'   ? TrainLoss(stages[i], step)
                             : kind == 'g' ? 0.5 + Noise(static_cast<uint64_t>(stages[i] * 7919 + step))
                                           : 1e-3 * (1 - static_cast<double>(k) / static_cast<double>(points));
        insert.BindAll(stages[i], metric, step, value);
        ABLATE_RETURN_IF_ERROR(insert.Run());
        ++written;
      }
    }
    if (i % 2000 == 0) std::fprintf(stderr, "%lld points\n", static_cast<long long>(written));
  }
  ABLATE_RETURN_IF_ERROR(db->Script("COMMIT"));
  ABLATE_RETURN_IF_ERROR(db->Script(trigger));
  std::fprintf(stderr, "%lld points\n", static_cast<long long>(written));
  return db->Script("PRAGMA wal_checkpoint(TRUNCATE)");
}

using SteadyClock = std::chrono::steady_clock;

struct Call {
  double at = 0;  // seconds since the epoch, when it was answered
  double ms = 0;
};

// A worker of one slot that trains 100 steps between two contacts.
std::vector<Call> Work(const std::shared_ptr<grpc::Channel>& channel, int index, double seconds, int contact_ms) {
  const auto stub = v1::WorkerLink::NewStub(channel);
  std::map<std::string, int64_t> step_of;  // by job
  std::vector<Call> calls;
  v1::SyncRequest request;
  request.set_protocol_version(kProtocolVersion);
  v1::WorkerInfo* info = request.mutable_worker();
  info->set_worker_id(absl::StrCat("writer-", index));
  info->set_incarnation(absl::StrCat("start-", SteadyClock::now().time_since_epoch().count()));
  info->set_hostname("bench");
  info->set_device_class("cpu");
  info->set_device_kind("cpu/bench");
  info->set_slots(1);
  info->set_executor(v1::EXECUTOR_NOOP);
  const auto start = SteadyClock::now();
  auto next = start + std::chrono::milliseconds(contact_ms * index / 32);
  const auto end = start + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
  std::vector<v1::Assignment> assigned;
  for (int64_t sequence = 1; next < end; ++sequence, next += std::chrono::milliseconds(contact_ms)) {
    std::this_thread::sleep_until(next);
    request.set_sequence(sequence);
    request.clear_attempts();
    for (const v1::Assignment& assignment : assigned) {
      v1::AttemptReport* report = request.add_attempts();
      report->set_job_id(assignment.job_id());
      report->set_attempt(assignment.attempt());
      report->set_slot(assignment.slot());
      const bool stage = assignment.task().has_stage();
      int64_t& step = step_of[assignment.job_id()];
      if (stage) {
        for (int i = 0; i < 10 && step < kSteps; ++i) {
          step = std::min(step + 10, kSteps);
          for (const char* metric : {"gradient_norm", "learning_rate", "train_loss"}) {
            v1::CurvePoint* point = report->add_points();
            point->set_metric(metric);
            point->set_step(step);
            point->set_value(TrainLoss(index, step));
          }
        }
        report->set_points_sequence(sequence);
        report->set_step(step);
        report->set_tokens_per_second(1e5);
      }
      report->set_phase(stage && step < kSteps ? v1::AttemptReport::RUNNING : v1::AttemptReport::SUCCEEDED);
      if (report->phase() == v1::AttemptReport::RUNNING) continue;
      v1::TaskResult* result = report->mutable_result();
      result->set_outcome(v1::COMPLETED);
      result->set_device_kind("cpu/bench");
      FakeWorker::AddMetric(result, stage ? "max_gradient_norm" : "loss_targets", 1 + Noise(static_cast<uint64_t>(sequence)));
    }
    grpc::ClientContext context;
    v1::SyncResponse response;
    const auto begin = SteadyClock::now();
    const grpc::Status status = stub->Sync(&context, request, &response);
    if (!status.ok()) {
      std::fprintf(stderr, "writer %d: %s\n", index, status.error_message().c_str());
      continue;
    }
    const std::chrono::duration<double, std::milli> took = SteadyClock::now() - begin;
    calls.push_back({std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(), took.count()});
    assigned.assign(response.desired().begin(), response.desired().end());
  }
  // Given back, so that nothing waits for the lease to end.
  request.set_draining(true);
  request.set_sequence(INT32_MAX);
  request.clear_attempts();
  for (const v1::Assignment& assignment : assigned) {
    v1::AttemptReport* report = request.add_attempts();
    report->set_job_id(assignment.job_id());
    report->set_attempt(assignment.attempt());
    report->set_slot(assignment.slot());
    report->set_phase(v1::AttemptReport::RELEASED);
  }
  grpc::ClientContext context;
  v1::SyncResponse response;
  (void)stub->Sync(&context, request, &response);
  return calls;
}

absl::Status Write(const std::string& address, int workers, double seconds, int contact_ms, const std::string& file) {
  std::vector<std::vector<Call>> calls(static_cast<size_t>(workers));
  std::vector<std::thread> threads;
  for (int i = 0; i < workers; ++i) {
    threads.emplace_back([&, i] {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection each, as 32 daemons have
      const auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
      calls[static_cast<size_t>(i)] = Work(channel, i, seconds, contact_ms);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string text;
  for (const std::vector<Call>& of_worker : calls) {
    for (const Call& call : of_worker) {
      char line[64];
      std::snprintf(line, sizeof(line), "%.6f %.4f\n", call.at, call.ms);
      text += line;
    }
  }
  return WriteFileAtomic(file, text);
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  absl::Status status = absl::InvalidArgumentError("usage: dashboard_load make DIR [MILLIONS] | write ADDRESS WORKERS SECONDS CONTACT_MS FILE");
  if (mode == "make" && argc >= 3) {
    status = RunSweeps(argv[2]);
    if (status.ok()) status = AddPoints(argv[2], argc > 3 ? std::atof(argv[3]) : 50);
  } else if (mode == "write" && argc == 7) {
    status = Write(argv[2], std::atoi(argv[3]), std::atof(argv[4]), std::atoi(argv[5]), argv[6]);
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "dashboard_load: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) { return ablate::Main(argc, argv); }
