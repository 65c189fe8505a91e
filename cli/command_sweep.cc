// ablate sweep ...
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cli/claim_tables.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/failures.h"
#include "cli/watcher.h"
#include "experiments/plan.h"

namespace ablate {
namespace {

int64_t AllJobs(const v1::JobCounts& jobs) {
  return jobs.blocked() + jobs.queued() + jobs.running() + jobs.succeeded() + jobs.failed() + jobs.cancelled();
}

absl::StatusOr<int> FollowAndReport(const Invocation& invocation, bool show) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_RETURN_IF_ERROR(connection->CheckServed(invocation, invocation.arguments[0]));
  Progress progress(stderr);
  const absl::StatusOr<v1::Sweep> sweep =
      FollowSweep(&connection->client(), invocation.arguments[0], invocation.timeout(), show ? &progress : nullptr);
  if (absl::IsDeadlineExceeded(sweep.status()))
    return absl::DeadlineExceededError(absl::StrCat(sweep.status().message(), "; it goes on"));
  ABLATE_RETURN_IF_ERROR(sweep.status());
  Emit(invocation, SweepReport({*sweep}));
  if (!sweep->waiting_for().empty()) Say(absl::StrCat("it waits for: ", sweep->waiting_for()));
  if (sweep->jobs().failed() > 0) {
    SayFailures(&connection->client(), *sweep, WhereFlags(invocation));
    Say(absl::StrCat("new jobs for them: ablate sweep retry ", sweep->name(), WhereFlags(invocation)));
  }
  return ExitCodeOfSweep(*sweep);
}

}  // namespace

Report SweepReport(const std::vector<v1::Sweep>& sweeps) {
  Report report;
  report.records.columns = {"sweep",      "sweep_id",  "state",       "arms",        "seeds",
                            "jobs",       "succeeded", "failed",      "running",     "queued",
                            "blocked",    "cancelled", "diverged",    "steps_done",  "steps_total",
                            "created_at", "ended_at",  "description", "spec_sha256", "plan_sha256",
                            "phase",      "sealed",    "waiting_for", "needs_person"};
  Sheet sheet;
  sheet.columns = {{.title = "sweep"},
                   {.title = "state"},
                   {.title = "jobs done", .right = true},
                   {.title = "failed", .right = true},
                   {.title = "diverged", .right = true},
                   {.title = "steps", .right = true},
                   {.title = "arms", .right = true},
                   {.title = "seeds", .right = true},
                   {.title = "created"}};
  for (const v1::Sweep& sweep : sweeps) {
    const v1::JobCounts& jobs = sweep.jobs();
    report.records.rows.push_back(
        {Cell::Text(sweep.name()),        Cell::Text(sweep.sweep_id()),      Cell::Text(StateText(sweep.state())),
         Cell::Integer(sweep.arms()),     Cell::Integer(sweep.seeds()),      Cell::Integer(AllJobs(jobs)),
         Cell::Integer(jobs.succeeded()), Cell::Integer(jobs.failed()),      Cell::Integer(jobs.running()),
         Cell::Integer(jobs.queued()),    Cell::Integer(jobs.blocked()),     Cell::Integer(jobs.cancelled()),
         Cell::Integer(sweep.diverged()), Cell::Integer(sweep.steps_done()), Cell::Integer(sweep.steps_total()),
         TimeCell(sweep.created_at_us()), TimeCell(sweep.ended_at_us()),     Cell::Text(sweep.description()),
         Cell::Text(sweep.spec_sha256()), Cell::Text(sweep.plan_sha256()),    Cell::Text(PhaseText(sweep.phase())),
         Cell::Flag(sweep.sealed()),      Cell::Text(sweep.waiting_for()),   Cell::Flag(sweep.needs_person())});
    const std::string phase = PhaseText(sweep.phase());
    const bool running = sweep.state() == v1::SWEEP_RUNNING || sweep.sealed();
    const std::string state = absl::StrCat(StateText(sweep.state()), running && !phase.empty() ? ", " : "",
                                           running ? phase : "", sweep.sealed() ? ", sealed" : "",
                                           IsPaused(sweep) ? ", paused" : "");
    sheet.rows.push_back({sweep.name(), state, absl::StrCat(jobs.succeeded(), "/", AllJobs(jobs)),
                          absl::StrCat(jobs.failed()), absl::StrCat(sweep.diverged()),
                          absl::StrCat(sweep.steps_done(), "/", sweep.steps_total()), absl::StrCat(sweep.arms()),
                          absl::StrCat(sweep.seeds()), TimeText(sweep.created_at_us())});
  }
  report.sheets = {std::move(sheet)};
  return report;
}

absl::StatusOr<int> RunSweepSubmit(const Invocation& invocation) {
  Progress progress(stderr);
  ABLATE_ASSIGN_OR_RETURN(const SweepInput input, ReadInput(invocation, &progress, /*need_data=*/true));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  ABLATE_RETURN_IF_ERROR(connection->CheckServed(invocation, input.spec.name()));
  ABLATE_ASSIGN_OR_RETURN(const std::optional<int32_t> max_failures, MaxFailures(invocation));
  ABLATE_ASSIGN_OR_RETURN(const v1::SubmitSweepResponse response,
                          SubmitFile(&connection->client(), input, &progress, max_failures));
  const v1::Sweep& sweep = response.sweep();
  Emit(invocation, SweepReport({sweep}));
  Say(response.created() ? absl::StrCat("submitted ", sweep.name(), ": ", Counted(response.new_jobs(), "new job"), ", ",
                                        response.reused_jobs(), " shared with earlier sweeps")
                         : absl::StrCat(sweep.name(), " is here already: nothing new",
                                        // also one that was cancelled: submitting takes it up again
                                        sweep.state() == v1::SWEEP_RUNNING ? ", its open jobs go on" : ""));
  if (IsPaused(sweep)) Say(absl::StrCat("it waits for: ", sweep.waiting_for()));
  return kExitDone;
}

absl::StatusOr<int> RunSweepPlan(const Invocation& invocation) {
  Progress progress(stderr);
  ABLATE_ASSIGN_OR_RETURN(SweepInput input, ReadInput(invocation, &progress, /*need_data=*/false));
  if (!input.data_found) {
    Say(absl::StrCat("note: the file ", input.missing, " is not there; counts hold without it, plan_sha256 does not"));
    const std::string none = Sha256Hex("data that is not there");
    if (input.spec.data().sha256().empty()) input.spec.mutable_data()->set_sha256(none);
    for (v1::ProbeSpec& probe : *input.spec.mutable_evaluate()->mutable_probes()) {
      for (auto* files : {probe.mutable_files(), probe.mutable_tokenizer()}) {
        for (v1::DataFile& file : *files) {
          if (file.sha256().empty()) file.set_sha256(none);
        }
      }
    }
  }
  ABLATE_ASSIGN_OR_RETURN(const Plan plan, MakePlan(input.spec, input.places));
  const v1::PlanSummary summary = Summarize(input.spec, plan);

  const double saved =
      summary.steps_without_sharing() > 0
          ? 1 - static_cast<double>(summary.steps()) / static_cast<double>(summary.steps_without_sharing())
          : 0;
  Report report;
  report.records.columns = {"sweep",
                            "arms",
                            "seeds",
                            "points",
                            "stages",
                            "evaluations",
                            "steps",
                            "steps_without_sharing",
                            "steps_saved",
                            "train_tokens",
                            "evaluation_tokens",
                            "peak_disk_bytes",
                            "plan_sha256",
                            "data_found",
                            "arm_list",
                            "phases"};
  std::string arms, phases;
  Sheet sheet;
  sheet.title = absl::StrCat(summary.name(), ": ", Counted(summary.arms_size(), "arm"), " x ",
                             Counted(summary.seeds(), "seed"), " = ", Counted(summary.points(), "point"));
  if (summary.phases_size() > 0) {
    sheet.title = absl::StrCat(summary.name(), ": ", Counted(summary.arms_size(), "arm"), ", ",
                               Counted(summary.points(), "point"), " in ", Counted(summary.phases_size(), "phase"));
  }
  sheet.columns = {{.title = "arm"},
                   {.title = "stages", .right = true},
                   {.title = "shared", .right = true},
                   {.title = "evaluations", .right = true}};
  for (const v1::PlanSummary::Arm& arm : summary.arms()) {
    absl::StrAppend(&arms, arms.empty() ? "" : ",", "{\"label\":", JsonString(arm.label()),
                    ",\"arm\":", arm.arm_json().empty() ? "{}" : arm.arm_json(), ",\"stages\":", arm.stages(),
                    ",\"shared_stages\":", arm.shared_stages(), ",\"evaluations\":", arm.evaluations(), "}");
    sheet.rows.push_back(
        {arm.label(), absl::StrCat(arm.stages()), absl::StrCat(arm.shared_stages()), absl::StrCat(arm.evaluations())});
  }
  sheet.footer = {
      "", absl::StrCat(Counted(summary.stages(), "training stage"), ", ", Counted(summary.evaluations(), "evaluation")),
      absl::StrCat(summary.steps(), " training steps; ", summary.steps_without_sharing(),
                   " without sharing: ", absl::StrFormat("%.1f", saved * 100), " % saved"),
      absl::StrFormat("%.4g training tokens, %.4g evaluation tokens; at most %s of checkpoints",
                      static_cast<double>(summary.train_tokens()), static_cast<double>(summary.evaluation_tokens()),
                      HumanBytes(summary.peak_disk_bytes()))};
  for (const v1::PlanSummary::PhaseWork& work : summary.phases()) {
    const std::string name = absl::AsciiStrToLower(v1::Phase_Name(work.phase()));
    const int64_t unused = work.unused_stages() + work.unused_evaluations();
    sheet.footer.push_back(absl::StrCat(name, ": ", Counted(work.stages(), "training stage"), ", ",
                                        Counted(work.evaluations(), "evaluation"), ", ",
                                        Counted(work.seeds_size(), "seed"), work.sealed() ? ", sealed" : "",
                                        unused > 0 ? absl::StrCat("; ", unused, " of them never run") : ""));
    absl::StrAppend(&phases, phases.empty() ? "" : ",", "{\"phase\":", JsonString(name), ",\"seeds\":[",
                    absl::StrJoin(work.seeds(), ","), "],\"arms\":", work.arms(), ",\"points\":", work.points(),
                    ",\"stages\":", work.stages(), ",\"evaluations\":", work.evaluations(), ",\"steps\":", work.steps(),
                    ",\"sealed\":", work.sealed() ? "true" : "false", ",\"unused_stages\":", work.unused_stages(),
                    ",\"unused_evaluations\":", work.unused_evaluations(), "}");
  }
  for (const std::string& note : summary.notes()) sheet.footer.push_back(note);
  if (input.data_found) sheet.footer.push_back(absl::StrCat("plan ", summary.plan_sha256()));
  report.records.rows.push_back(
      {Cell::Text(summary.name()), Cell::Integer(summary.arms_size()), Cell::Integer(summary.seeds()),
       Cell::Integer(summary.points()), Cell::Integer(summary.stages()), Cell::Integer(summary.evaluations()),
       Cell::Integer(summary.steps()), Cell::Integer(summary.steps_without_sharing()), Cell::Number(saved),
       Cell::Integer(summary.train_tokens()), Cell::Integer(summary.evaluation_tokens()),
       Cell::Integer(summary.peak_disk_bytes()), Cell::Text(summary.plan_sha256()), Cell::Flag(input.data_found),
       Cell::Json(absl::StrCat("[", arms, "]")), Cell::Json(absl::StrCat("[", phases, "]"))});
  report.sheets = {std::move(sheet)};
  Emit(invocation, report);
  return kExitDone;
}

absl::StatusOr<int> RunSweepList(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  std::vector<v1::Sweep> sweeps;
  v1::ListSweepsRequest request;
  request.set_page_size(1000);
  do {
    ABLATE_ASSIGN_OR_RETURN(const v1::ListSweepsResponse page,
                            connection->client().Call(&v1::Sweeps::Stub::ListSweeps, request));
    sweeps.insert(sweeps.end(), page.sweeps().begin(), page.sweeps().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  Emit(invocation, SweepReport(sweeps));
  return kExitDone;
}

absl::StatusOr<int> RunSweepShow(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  v1::GetSweepRequest request;
  request.set_sweep(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const v1::Sweep sweep, connection->client().Call(&v1::Sweeps::Stub::GetSweep, request));
  Report report = SweepReport({sweep});
  report.sheets = {VerticalSheet(report.records, 0)};
  Emit(invocation, report);
  if (!sweep.waiting_for().empty()) Say(absl::StrCat("it waits for: ", sweep.waiting_for()));
  return kExitDone;
}

absl::StatusOr<int> RunSweepWatch(const Invocation& invocation) { return FollowAndReport(invocation, /*show=*/true); }

absl::StatusOr<int> RunSweepWait(const Invocation& invocation) { return FollowAndReport(invocation, /*show=*/false); }

absl::StatusOr<int> RunSweepCancel(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  v1::CancelSweepRequest request;
  request.set_request_id(NewRequestId());
  request.set_sweep(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const v1::Sweep sweep, connection->client().Call(&v1::Sweeps::Stub::CancelSweep, request));
  Emit(invocation, SweepReport({sweep}));
  return kExitDone;
}

absl::StatusOr<int> RunSweepRetry(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  v1::RetrySweepRequest request;
  request.set_request_id(NewRequestId());
  request.set_sweep(invocation.arguments[0]);
  ABLATE_ASSIGN_OR_RETURN(const v1::RetrySweepResponse response,
                          connection->client().Call(&v1::Sweeps::Stub::RetrySweep, request));
  Emit(invocation, SweepReport({response.sweep()}));
  Say(response.new_jobs() == 0 ? "nothing to retry: no job of it has failed" : Counted(response.new_jobs(), "new job"));
  return kExitDone;
}

absl::StatusOr<int> RunSweepResume(const Invocation& invocation) {
  ABLATE_ASSIGN_OR_RETURN(const std::optional<int32_t> max_failures, MaxFailures(invocation));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(invocation));
  v1::ResumeSweepRequest request;
  request.set_request_id(NewRequestId());
  request.set_sweep(invocation.arguments[0]);
  if (max_failures.has_value()) request.set_max_failures(*max_failures);
  ABLATE_ASSIGN_OR_RETURN(const v1::Sweep sweep, connection->client().Call(&v1::Sweeps::Stub::ResumeSweep, request));
  Emit(invocation, SweepReport({sweep}));
  return kExitDone;
}

}  // namespace ablate
