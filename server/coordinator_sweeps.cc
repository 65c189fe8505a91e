// Sweeps: planning, submission, watching, cancelling, retrying. See coordinator_impl.h.
#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "base/hash.h"
#include "base/strings.h"
#include "experiments/plan_claims.h"
#include "experiments/sweep_file.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/coordinator_impl.h"
#include "server/sweep_jobs.h"
#include "server/text_diff.h"

namespace ablate {
namespace {

constexpr int64_t kWatchIntervalMicros = 200'000;
constexpr int64_t kAskMicros = 500'000;  // between questions whether a caller is still there

// The data as the file names it, with the hashes that the client found.
absl::Status FillData(const v1::DataRef& found, v1::SweepSpec* spec) {
  v1::DataRef* data = spec->mutable_data();
  if (found.files_size() > 0) {
    if (data->files_size() > 0 && data->files_size() != found.files_size()) {
      return absl::InvalidArgumentError(absl::StrCat("the request has ", found.files_size(),
                                                     " data files, the sweep file names ", data->files_size()));
    }
    for (int i = 0; i < found.files_size(); ++i) {
      const v1::DataFile& file = found.files(i);
      if (!IsSha256Hex(file.sha256()) || file.bytes() < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("data.files[", i, "] needs a SHA-256 (64 lower-case hex digits) and a size"));
      }
      v1::DataFile* stated = i < data->files_size() ? data->mutable_files(i) : data->add_files();
      if (!stated->sha256().empty() && stated->sha256() != file.sha256()) {
        return absl::InvalidArgumentError(absl::StrCat("data file ", stated->path(), " has SHA-256 ", file.sha256(),
                                                       ", but the sweep file says ", stated->sha256()));
      }
      if (stated->path().empty()) stated->set_path(file.path());
      stated->set_sha256(file.sha256());
      stated->set_bytes(file.bytes());
    }
    if (data->name().empty()) data->set_name(found.name());
    if (data->format() == v1::DataRef::FORMAT_UNSPECIFIED) data->set_format(found.format());
  }
  const std::string combined = CombinedDataSha256(*data);
  if (!data->sha256().empty() && !combined.empty() && data->sha256() != combined) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data has SHA-256 ", combined, ", but the sweep file says ", data->sha256()));
  }
  if (!combined.empty()) data->set_sha256(combined);
  return absl::OkStatus();
}

// Each task's files, then its tokenizer.
std::vector<v1::DataFile*> TaskFiles(v1::SweepSpec* spec) {
  std::vector<v1::DataFile*> files;
  for (v1::ProbeSpec& probe : *spec->mutable_evaluate()->mutable_probes()) {
    for (v1::DataFile& file : *probe.mutable_files()) files.push_back(&file);
    for (v1::DataFile& file : *probe.mutable_tokenizer()) files.push_back(&file);
  }
  return files;
}

absl::Status FillTaskFiles(const google::protobuf::RepeatedPtrField<v1::DataFile>& found, v1::SweepSpec* spec) {
  const std::vector<v1::DataFile*> stated = TaskFiles(spec);
  if (found.empty()) return absl::OkStatus();  // planning refuses tasks whose files have no hash
  if (static_cast<size_t>(found.size()) != stated.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the request has ", found.size(), " files of tasks, the sweep file names ", stated.size()));
  }
  for (int i = 0; i < found.size(); ++i) {
    if (!IsSha256Hex(found[i].sha256()) || found[i].bytes() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("task_files[", i, "] needs a SHA-256 (64 lower-case hex digits) and a size"));
    }
    stated[i]->set_sha256(found[i].sha256());
    stated[i]->set_bytes(found[i].bytes());
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PageStart(const std::string& token) {
  int64_t start = 0;
  if (!token.empty() && (!absl::SimpleAtoi(token, &start) || start < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("page_token \"", token, "\" is none that a list gave"));
  }
  return start;
}

}  // namespace

std::string CoordinatorImpl::SpecSha256(const SweepFile& file) {
  std::string text = absl::StrCat(file.yaml, "\n", file.spec.data().sha256());
  v1::SweepSpec spec = file.spec;
  for (const v1::DataFile* of_task : TaskFiles(&spec)) absl::StrAppend(&text, "\n", of_task->sha256());
  return Sha256Hex(text);
}

absl::StatusOr<CoordinatorImpl::Planned> CoordinatorImpl::ReadAndPlan(const std::string& yaml,
                                                                      const std::string& file_name,
                                                                      const v1::DataRef& data,
                                                                      const DataFiles& task_files,
                                                                      const TuningResults& tuned) const {
  Planned planned;
  planned.file.yaml = yaml;
  planned.file.file_name = file_name;
  SweepPlaces places;
  ABLATE_ASSIGN_OR_RETURN(planned.file.spec, ParseSweepFile(yaml, file_name, &places));
  ABLATE_RETURN_IF_ERROR(FillData(data, &planned.file.spec));
  ABLATE_RETURN_IF_ERROR(FillTaskFiles(task_files, &planned.file.spec));
  ABLATE_ASSIGN_OR_RETURN(planned.plan, MakePlan(planned.file.spec, places, tuned));
  return planned;
}

absl::Status CoordinatorImpl::CheckDataIsHere(const v1::SweepSpec& spec) const {
  std::string missing;
  for (const SweepData& file : TravellingFiles(spec)) {
    if (!options_.has_artifact || options_.has_artifact(file.sha256)) continue;
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", file.path, " (", file.sha256, ")");
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the data is not here yet: upload ", missing, ", then submit again"));
}

absl::StatusOr<v1::PlanSweepResponse> CoordinatorImpl::PlanSweep(const v1::PlanSweepRequest& request) {
  ABLATE_ASSIGN_OR_RETURN(const Planned planned,
                          ReadAndPlan(request.yaml(), request.file_name(), request.data(), request.task_files()));
  v1::PlanSweepResponse response;
  v1::PlanSummary* summary = response.mutable_summary();
  *summary = Summarize(planned.file.spec, planned.plan);
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    const auto finished = [&](const std::string& key) {
      const Scheduler::Job* job = scheduler_->LatestOfKey(key);
      return job != nullptr && job->record.state == v1::SUCCEEDED;
    };
    int64_t stages = 0, evaluations = 0;
    for (const PlannedStage& stage : planned.plan.stages) stages += finished(stage.key);
    for (const PlannedEvaluation& evaluation : planned.plan.evaluations) evaluations += finished(evaluation.key);
    summary->set_reused_stages(stages);
    summary->set_reused_evaluations(evaluations);
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  return response;
}

absl::Status CoordinatorImpl::CheckSameFile(SweepRow row, const std::string& spec_sha256, const Planned& planned) {
  SweepFile stored;
  ABLATE_RETURN_IF_ERROR(store_->Read([&](Connection& db) -> absl::Status {
    ABLATE_ASSIGN_OR_RETURN(stored, ReadSweepFile(db, row));
    return absl::OkStatus();
  }));
  // Comments and layout may change: what counts is what the file says. Not by its bytes: maps have no order.
  if (SpecSha256(stored) == spec_sha256 ||
      google::protobuf::util::MessageDifferencer::Equals(stored.spec, planned.file.spec)) {
    return absl::OkStatus();
  }
  std::string difference = UnifiedDiff(stored.yaml, planned.file.yaml);
  if (stored.spec.data().sha256() != planned.file.spec.data().sha256()) {
    absl::StrAppend(&difference, "data: SHA-256 ", stored.spec.data().sha256(), " before, ",
                    planned.file.spec.data().sha256(), " now\n");
  }
  v1::SweepSpec before = stored.spec, now = planned.file.spec;
  const std::vector<v1::DataFile*> old_files = TaskFiles(&before), new_files = TaskFiles(&now);
  for (size_t i = 0; i < std::min(old_files.size(), new_files.size()); ++i) {
    if (old_files[i]->sha256() == new_files[i]->sha256()) continue;
    absl::StrAppend(&difference, new_files[i]->path(), ": SHA-256 ", old_files[i]->sha256(), " before, ",
                    new_files[i]->sha256(), " now\n");
  }
  return absl::AlreadyExistsError(
      absl::StrCat("another sweep is named \"", planned.file.spec.name(), "\":\n", difference,
                   "Give the file another `name:` to submit it as a new sweep; what both need is not run again."));
}

absl::StatusOr<v1::SubmitSweepResponse> CoordinatorImpl::SubmitSweep(const v1::SubmitSweepRequest& request) {
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    ABLATE_ASSIGN_OR_RETURN(auto repeated, Repeated<v1::SubmitSweepResponse>(request.request_id(), "SubmitSweep"));
    if (repeated.has_value()) return *repeated;
  }
  // Outside the lock: a large plan takes a second.
  ABLATE_ASSIGN_OR_RETURN(Planned parsed,
                          ReadAndPlan(request.yaml(), request.file_name(), request.data(), request.task_files()));
  const auto planned = std::make_shared<const Planned>(std::move(parsed));
  const v1::SweepSpec& spec = planned->file.spec;
  const std::string spec_sha256 = SpecSha256(planned->file);
  SubmitPlan plan;
  plan.sweep.sweep_id = options_.ids->NewId("sweep");
  FillRecord(spec, spec_sha256, planned->plan, &plan.sweep);
  plan.sweep.phase = PhaseOf(spec, planned->plan, /*locked=*/false);
  plan.sweep.pending = HasPhases(spec);
  plan.sweep.sealed = NeedsLock(spec);
  if (request.has_max_failures()) plan.sweep.max_failures = request.max_failures();
  plan.requirement = RequirementOf(spec);
  plan.jobs = JobsOf(planned->plan);

  v1::SubmitSweepResponse response;
  Change change;
  while (true) {
    std::optional<Change> last;
    SweepRow existing = 0;
    int64_t plans_version = 0;
    bool is_new = false;
    {
      MutexLock lock(&mutex_);
      ABLATE_RETURN_IF_ERROR(CheckOpen());
      plans_version = plans_version_;
      is_new = scheduler_->FindSweep(spec.name()) == nullptr;
      last = last_change_;
    }
    std::vector<Candidate> candidates;
    if (is_new) {
      ABLATE_RETURN_IF_ERROR(Settle(last));
      ABLATE_RETURN_IF_ERROR(CheckSeals(spec, planned->plan, 0, false));
      ABLATE_ASSIGN_OR_RETURN(candidates, FindCandidates(spec, planned->plan));
    }
    {
      MutexLock lock(&mutex_);
      ABLATE_RETURN_IF_ERROR(CheckOpen());
      ABLATE_ASSIGN_OR_RETURN(auto repeated, Repeated<v1::SubmitSweepResponse>(request.request_id(), "SubmitSweep"));
      if (repeated.has_value()) return *repeated;
      if (const Scheduler::Sweep* sweep = scheduler_->FindSweep(spec.name()); sweep != nullptr) {
        existing = sweep->record.row;
        last = last_change_;
      } else {
        if (plans_version_ != plans_version || !is_new) continue;  // somebody else has come in between
        ABLATE_RETURN_IF_ERROR(CheckDataIsHere(spec));
        std::vector<Seen> already = SeenOf(candidates);  // before its own jobs are made
        Effects effects;
        ABLATE_ASSIGN_OR_RETURN(const SubmitOutcome outcome, scheduler_->OnSubmit(plan, NowTime(), &effects));
        ++plans_version_;
        *response.mutable_sweep() = MakeSweep(outcome.sweep);
        response.set_created(true);
        response.set_new_jobs(outcome.new_jobs);
        response.set_reused_jobs(outcome.reused_jobs);
        const SweepRecord record = scheduler_->sweep(outcome.sweep).record;
        change = Enqueue(
            std::move(effects), request.request_id(),
            [planned, record, seen = RecordSeen(outcome.sweep, std::move(already), candidates)](
                Connection& db, std::vector<std::string>* unreferenced) -> absl::Status {
              ABLATE_RETURN_IF_ERROR(InsertSweep(db, record, planned->file, planned->plan));
              return seen ? seen(db, unreferenced) : absl::OkStatus();
            },
            Remember(request.request_id(), "SubmitSweep", response));
        break;
      }
    }
    // The stored file decides whether this is the same sweep.
    ABLATE_RETURN_IF_ERROR(Settle(last));
    ABLATE_RETURN_IF_ERROR(CheckSameFile(existing, spec_sha256, *planned));
    ABLATE_ASSIGN_OR_RETURN(const Revival revival, PrepareRevival(existing));
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    const Scheduler::Sweep* sweep = scheduler_->FindSweep(spec.name());
    if (sweep == nullptr || sweep->record.row != existing) continue;  // undone meanwhile
    Effects effects;
    int64_t new_jobs = 0;
    Body before = nullptr;
    // Submitting a cancelled sweep again takes it up where it was left.
    if (sweep->record.state == v1::SWEEP_CANCELLED) {
      if (plans_version_ != revival.plans_version) continue;
      before = RecordSeen(existing, SeenOf(revival.candidates), revival.candidates);
      ABLATE_ASSIGN_OR_RETURN(new_jobs, scheduler_->OnRetry(existing, NowTime(), &effects));
      ++plans_version_;
    } else if (scheduler_->OnDataUploaded(existing, NowTime(), &effects)) {
      // No job changes its state, but there is work for those who wait.
      ++work_version_;
      work_changed_.NotifyAll();
    }
    *response.mutable_sweep() = MakeSweep(existing);
    response.set_created(false);
    response.set_new_jobs(new_jobs);
    response.set_reused_jobs(static_cast<int64_t>(sweep->record.jobs.size()) - new_jobs);
    change = Enqueue(std::move(effects), request.request_id(), before,
                     Remember(request.request_id(), "SubmitSweep", response));
    break;
  }
  ABLATE_RETURN_IF_ERROR(Finish(change));
  return response;
}

absl::StatusOr<SweepRow> CoordinatorImpl::FindSweepRow(const std::string& id_or_name) const {
  ABLATE_RETURN_IF_ERROR(CheckOpen());
  if (const Scheduler::Sweep* sweep = scheduler_->FindSweep(id_or_name)) return sweep->record.row;
  std::vector<std::string> names;
  for (size_t row = 1; row <= scheduler_->sweep_count(); ++row) {
    names.push_back(scheduler_->sweep(static_cast<SweepRow>(row)).record.name);
  }
  const std::string near = NearestName(id_or_name, names);
  return absl::NotFoundError(
      absl::StrCat("there is no sweep \"", id_or_name, "\"",
                   near.empty() ? "; ablate sweep list shows all" : absl::StrCat(", did you mean \"", near, "\"?")));
}

v1::Sweep CoordinatorImpl::MakeSweep(SweepRow row) const {
  const Scheduler::Sweep& sweep = scheduler_->sweep(row);
  v1::Sweep message;
  message.set_sweep_id(sweep.record.sweep_id);
  message.set_name(sweep.record.name);
  message.set_description(sweep.record.description);
  message.set_state(sweep.record.state);
  message.set_spec_sha256(sweep.record.spec_sha256);
  message.set_plan_sha256(sweep.record.plan_sha256);
  *message.mutable_jobs() = sweep.counts;
  message.set_arms(sweep.record.arms);
  message.set_seeds(sweep.record.seeds);
  message.set_created_at_us(sweep.record.created_at_us);
  message.set_ended_at_us(sweep.record.ended_at_us);
  message.set_steps_done(sweep.steps_done);
  message.set_steps_total(sweep.steps_total);
  message.set_diverged(sweep.diverged);
  message.set_phase(sweep.record.phase);
  message.set_sealed(sweep.record.sealed && sweep.record.state != v1::SWEEP_CANCELLED);
  if (scheduler_->AwaitsDecision(row) || message.state() == v1::SWEEP_FAILED) {
    message.set_waiting_for(sweep.record.waiting_for);
    // Decided, and to no effect: only another lock, a retry, or the like changes that.
    const auto decided = decided_version_.find(row);
    message.set_needs_person(scheduler_->AwaitsDecision(row) && !sweep.record.waiting_for.empty() &&
                             decided != decided_version_.end() && decided->second == sweep.version);
  }
  if (sweep.record.paused) {
    message.set_needs_person(true);
    message.set_waiting_for(absl::StrCat(sweep.record.pause_reason, "; ", PauseAdvice(sweep.record)));
  }
  // A sum of many small changes: what rounding leaves when nothing runs is not shown.
  message.set_tokens_per_second(sweep.counts.running() == 0 ? 0 : std::max(0.0, sweep.tokens_per_second));
  return message;
}

absl::StatusOr<v1::Sweep> CoordinatorImpl::GetSweep(const v1::GetSweepRequest& request) {
  v1::Sweep sweep;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_ASSIGN_OR_RETURN(const SweepRow row, FindSweepRow(request.sweep()));
    sweep = MakeSweep(row);
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  return sweep;
}

absl::StatusOr<v1::ListSweepsResponse> CoordinatorImpl::ListSweeps(const v1::ListSweepsRequest& request) {
  ABLATE_ASSIGN_OR_RETURN(const int64_t start, PageStart(request.page_token()));
  const int64_t size = request.page_size() <= 0 ? 100 : std::min(request.page_size(), 1000);
  v1::ListSweepsResponse response;
  std::optional<Change> last;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    // Newest first; the token is the row where the next page starts.
    SweepRow row = static_cast<SweepRow>(scheduler_->sweep_count());
    if (start > 0) row = std::min(row, start);
    for (; row >= 1 && response.sweeps_size() < size; --row) *response.add_sweeps() = MakeSweep(row);
    if (row >= 1) response.set_next_page_token(std::to_string(row));
    last = last_change_;
  }
  ABLATE_RETURN_IF_ERROR(Settle(last));
  return response;
}

absl::Status CoordinatorImpl::WatchSweep(const v1::WatchSweepRequest& request,
                                         const std::function<bool(const v1::Sweep&)>& send,
                                         const std::function<bool()>& cancelled) {
  std::string last_sent;
  int64_t seen = -1;
  while (true) {
    v1::Sweep sweep;
    std::optional<Change> last;
    {
      MutexLock lock(&mutex_);
      while (seen == change_version_ && !stopping_) {
        if (!changed_.WaitFor(&mutex_, kAskMicros)) break;
      }
      ABLATE_ASSIGN_OR_RETURN(const SweepRow row, FindSweepRow(request.sweep()));
      seen = change_version_;
      sweep = MakeSweep(row);
      last = last_change_;
    }
    if (cancelled()) return absl::CancelledError("the client is gone");
    // What was undone shows up as another change.
    if (!Settle(last).ok()) continue;
    std::string bytes = sweep.SerializeAsString();
    if (bytes != last_sent) {
      if (!send(sweep)) return absl::CancelledError("the client is gone");
      last_sent = std::move(bytes);
      if (sweep.state() != v1::SWEEP_RUNNING) return absl::OkStatus();
      // Whatever changes meanwhile is told in one message. In real time: this is for the client's sake.
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(kWatchIntervalMicros);
      MutexLock lock(&mutex_);
      while (!stopping_) {
        const auto left =
            std::chrono::duration_cast<std::chrono::microseconds>(until - std::chrono::steady_clock::now()).count();
        if (left <= 0) break;
        changed_.WaitFor(&mutex_, left);
      }
    } else if (sweep.state() != v1::SWEEP_RUNNING) {
      return absl::OkStatus();
    }
  }
}

absl::StatusOr<v1::Sweep> CoordinatorImpl::CancelSweep(const v1::CancelSweepRequest& request) {
  v1::Sweep response;
  Change change;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    ABLATE_ASSIGN_OR_RETURN(auto repeated, Repeated<v1::Sweep>(request.request_id(), "CancelSweep"));
    if (repeated.has_value()) return *repeated;
    ABLATE_ASSIGN_OR_RETURN(const SweepRow row, FindSweepRow(request.sweep()));
    Effects effects;
    ABLATE_RETURN_IF_ERROR(scheduler_->OnCancelSweep(row, NowTime(), &effects));
    ++plans_version_;
    response = MakeSweep(row);
    change = Enqueue(std::move(effects), request.request_id(), nullptr,
                     Remember(request.request_id(), "CancelSweep", response));
  }
  ABLATE_RETURN_IF_ERROR(Finish(change));
  return response;
}

absl::StatusOr<v1::Sweep> CoordinatorImpl::ResumeSweep(const v1::ResumeSweepRequest& request) {
  v1::Sweep response;
  Change change;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    ABLATE_ASSIGN_OR_RETURN(auto repeated, Repeated<v1::Sweep>(request.request_id(), "ResumeSweep"));
    if (repeated.has_value()) return *repeated;
    ABLATE_ASSIGN_OR_RETURN(const SweepRow row, FindSweepRow(request.sweep()));
    Effects effects;
    ABLATE_RETURN_IF_ERROR(scheduler_->OnResume(
        row, request.has_max_failures() ? std::optional(request.max_failures()) : std::nullopt, NowTime(), &effects));
    response = MakeSweep(row);
    change = Enqueue(std::move(effects), request.request_id(), nullptr,
                     Remember(request.request_id(), "ResumeSweep", response));
    // No job changes its state, but there is work for those who wait.
    ++work_version_;
    work_changed_.NotifyAll();
  }
  ABLATE_RETURN_IF_ERROR(Finish(change));
  return response;
}

absl::StatusOr<CoordinatorImpl::Revival> CoordinatorImpl::PrepareRevival(SweepRow row) {
  Revival revival;
  {
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    revival.plans_version = plans_version_;
    // Nobody's seal, and no claims of its own: mostly there is nothing to check.
    bool sealed = false;
    for (SweepRow other = 1; other <= static_cast<SweepRow>(scheduler_->sweep_count()); ++other) {
      const SweepRecord& record = scheduler_->sweep(other).record;
      sealed |= other != row && record.sealed && record.state != v1::SWEEP_CANCELLED;
    }
    if (!sealed && scheduler_->sweep(row).record.phase == v1::PLAIN) return revival;
  }
  ABLATE_ASSIGN_OR_RETURN(const std::shared_ptr<Loaded> loaded, LoadSweep(row));
  revival.plans_version = loaded->plans_version;
  const v1::SweepSpec& spec = loaded->file.spec;
  // What has a job already is no news; a failed or cancelled one would be made again.
  ABLATE_RETURN_IF_ERROR(CheckSeals(spec, loaded->plan, row, /*unless_there=*/true));
  // While it was cancelled nobody kept its seal. After the lock its own confirming jobs are no peeking.
  if (!loaded->stored.lock.has_value()) {
    ABLATE_ASSIGN_OR_RETURN(revival.candidates, FindCandidates(spec, loaded->plan));
  }
  return revival;
}

absl::StatusOr<v1::RetrySweepResponse> CoordinatorImpl::RetrySweep(const v1::RetrySweepRequest& request) {
  v1::RetrySweepResponse response;
  Change change;
  while (true) {
    SweepRow row = 0;
    {
      MutexLock lock(&mutex_);
      ABLATE_RETURN_IF_ERROR(CheckOpen());
      ABLATE_ASSIGN_OR_RETURN(auto repeated, Repeated<v1::RetrySweepResponse>(request.request_id(), "RetrySweep"));
      if (repeated.has_value()) return *repeated;
      ABLATE_ASSIGN_OR_RETURN(row, FindSweepRow(request.sweep()));
    }
    ABLATE_ASSIGN_OR_RETURN(const Revival revival, PrepareRevival(row));
    MutexLock lock(&mutex_);
    ABLATE_RETURN_IF_ERROR(CheckOpen());
    if (plans_version_ != revival.plans_version) continue;
    const bool was_cancelled = scheduler_->sweep(row).record.state == v1::SWEEP_CANCELLED;
    std::vector<Seen> already;
    if (was_cancelled) already = SeenOf(revival.candidates);
    Effects effects;
    const std::vector<JobRow>& jobs = scheduler_->sweep(row).record.jobs;
    const std::set<JobRow> before(jobs.begin(), jobs.end());
    ABLATE_ASSIGN_OR_RETURN(const int64_t new_jobs, scheduler_->OnRetry(row, NowTime(), &effects));
    ++plans_version_;
    *response.mutable_sweep() = MakeSweep(row);
    response.set_new_jobs(new_jobs);
    std::map<std::string, int64_t> again;  // by how they had ended
    for (JobRow job : jobs) {
      const JobRow of = scheduler_->job(job).record.retry_of;
      if (before.contains(job) || of == 0) continue;
      const v1::JobState state = scheduler_->job(of).record.state;
      ++again[state == v1::FAILED ? "failed" : state == v1::CANCELLED ? "cancelled" : "finished"];
    }
    std::string text = "run again:";
    for (const auto& [how, count] : again) {
      absl::StrAppend(&text, again.begin()->first == how ? " " : ", ", count, " ", how, count == 1 ? " job" : " jobs");
    }
    v1::Deviation deviation;
    deviation.set_at_us(options_.clock->WallMicros());
    deviation.set_kind("jobs_retried");
    deviation.set_text(text);
    const bool declared = scheduler_->sweep(row).record.phase != v1::PLAIN && !again.empty();
    change = Enqueue(
        std::move(effects), request.request_id(),
        [row, declared, deviation, seen = RecordSeen(row, std::move(already), revival.candidates)](
            Connection& db, std::vector<std::string>* unreferenced) -> absl::Status {
          if (declared) ABLATE_RETURN_IF_ERROR(AddDeviation(db, row, deviation));
          return seen ? seen(db, unreferenced) : absl::OkStatus();
        },
        Remember(request.request_id(), "RetrySweep", response));
    break;
  }
  ABLATE_RETURN_IF_ERROR(Finish(change));
  return response;
}

}  // namespace ablate
