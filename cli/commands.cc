// The table of commands: a new one is a row here and a handler.
#include "cli/commands.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/version.h"
#include "cli/watcher.h"
#include "kernels/attention/variants.h"

namespace ablate {
namespace {

// Of the first output that failed, as errno has it. One thread prints.
int output_error = 0;

constexpr int64_t kLargestUpload = int64_t{2} << 30;

}  // namespace

const std::vector<FlagSpec>& Flags() {
  static const auto& flags = *new std::vector<FlagSpec>{
      {"--server", "ADDR", "the coordinator: HOST:PORT or unix:PATH (default $ABLATE_SERVER, else 127.0.0.1:7433)"},
      {"--data-dir", "DIR", "the folder of a run; read through a private ablate-server unless one has it open"},
      {"--token-file", "FILE", "a file of mode 0600 with the token (default $ABLATE_TOKEN, which is the token itself)"},
      {"--tls-pin", "HASH", "sha256:... of the server's certificate, as it prints it (default $ABLATE_TLS_PIN)"},
      {"--tls-ca", "FILE", "or: PEM file with the certificate that signed it (default $ABLATE_TLS_CA)"},
      {"--tls-cert", "FILE", "PEM file with a certificate of this client's, where the server demands one"},
      {"--tls-key", "FILE", "its private key"},
      {"--role", "ROLE", "read, submit, worker or admin"},
      {"--name", "NAME", "what the token is called in lists and messages"},
      {"--expires", "TIME", "how long it is good, e.g. 12h, 30d (default: until it is revoked)"},
      {"--output", "FORMAT", "table, json, csv, markdown or latex"},
      {"--output-dir", "DIR", "the folder to write to; made if it is not there"},
      {"--output-file", "FILE", "the file to write: .svg or .png"},
      {"--fetch", "DIR", "write the files into this folder; made if it is not there"},
      {"--timeout", "TIME", "give up after this long, e.g. 90s, 15m, 2h (ends with 3)"},
      {"--slots", "N", "jobs that run at once (default: the number of cores)"},
      {"--data", "PATH", "where the sweep's one data file lies, instead of where the sweep file says"},
      {"--max-failures", "N", "pause after so many failures of one kind and message; 0: never (default: the server's, 50)"},
      {"--http", "ADDR", "where the dashboard is served: HOST:PORT, port 0 for a free one (run: off for none)"},
      {"--background", "", "leave it running, and end"},
      {"--stop", "", "stop the one that runs in the background"},
      {"--retry", "", "make new jobs for the failed ones first"},
      {"--state", "LIST", "only these states, e.g. failed,running"},
      {"--metric", "LIST", "only these metrics, e.g. loss,loss_targets or 'attention_entropy.*'"},
      {"--level", "LEVEL", "confidence level (default 0.95)"},
      {"--baseline", "ARM", "the arm to compare with, e.g. attention.variant=softmax (default: the sweep's)"},
      {"--max-rows", "N", "stop after so many rows (default 10000)"},
      {"--arm", "ARM", "an arm by its axis values, e.g. attention.p=15; several, where they may be, with ; between them"},
      {"--mean", "", "means over seeds with their intervals, instead of each seed's curve"},
      {"--max-points", "N", "of one curve, 16 to 5000 (default 5000): extremes, first, last and non-finite ones stay"},
      {"--why", "TEXT", "the reason, which is recorded"},
      {"--factor", "LIST", "only these factors, e.g. attention.qk_norm,attention.p (default: the file's)"},
      {"--sample", "K", "so many finished jobs of the sweep (default 1)"},
      {"--seed", "N", "which sample is drawn (default 0)"},
  };
  return flags;
}

const std::vector<Command>& Commands() {
  static const auto& commands = *new std::vector<Command>{
      {"run",
       "FILE",
       1,
       1,
       "run a sweep on this machine and print its table",
       "Starts ablate-server and ablate-worker on a private socket, keeps everything under --data-dir (default\n"
       "./ablate-runs/NAME), shows progress and ends with the table and the differences from the baseline arm. Ctrl-C "
       "stops it;\n"
       "the same command again resumes, or prints the tables at once when the sweep is finished. While it runs it serves the "
       "dashboard on this\n"
       "machine and prints its link.",
       "ablate run experiments/sweeps/quickstart.yaml --slots 2",
       {"--data-dir", "--slots", "--data", "--retry", "--max-failures", "--http", "--output", "--timeout"},
       &RunRun},
      {"sweep submit",
       "FILE",
       1,
       1,
       "hand a sweep to the coordinator",
       "Hashes the sweep's data files and uploads what the coordinator lacks. The same file again is the same sweep: "
       "nothing is run\n"
       "twice. Another file under a known name is refused, with the difference.",
       "ablate sweep submit ntk.yaml --server gpu-box:7433",
       {"--server", "--data-dir", "--data", "--max-failures", "--output", "--timeout"},
       &RunSweepSubmit},
      {"sweep plan",
       "FILE",
       1,
       1,
       "show arms, jobs, what is shared and what it costs; starts nothing",
       "Asks no coordinator, and works without the data being there.",
       "ablate sweep plan ntk.yaml",
       {"--data", "--output"},
       &RunSweepPlan},
      {"sweep list",
       "",
       0,
       0,
       "list sweeps",
       "",
       "ablate sweep list -o csv",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunSweepList},
      {"sweep show",
       "SWEEP",
       1,
       1,
       "show one sweep",
       "",
       "ablate sweep show quickstart",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunSweepShow},
      {"sweep grid",
       "SWEEP",
       1,
       1,
       "arms by seeds: how far each is",
       "A word a cell; from eleven seeds on a letter. As json or csv: one row a cell, with the job to look at.",
       "ablate sweep grid quickstart",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunSweepGrid},
      {"sweep watch",
       "SWEEP",
       1,
       1,
       "show progress until the sweep is over",
       "Ends with 1 when jobs failed.",
       "ablate sweep watch quickstart",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunSweepWatch},
      {"sweep wait",
       "SWEEP",
       1,
       1,
       "wait silently until the sweep is over",
       "Ends with 1 when jobs failed or the sweep is paused, with 3 on --timeout.",
       "ablate sweep wait quickstart --timeout 2h && ablate table quickstart",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunSweepWait},
      {"sweep cancel",
       "SWEEP",
       1,
       1,
       "cancel a sweep",
       "Stops a job only when no other sweep needs it. What is measured stays.",
       "ablate sweep cancel quickstart",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunSweepCancel},
      {"sweep retry",
       "SWEEP",
       1,
       1,
       "make new jobs for the failed ones and those that failed because of them",
       "A paused sweep goes on.",
       "ablate sweep retry quickstart",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunSweepRetry},
      {"sweep resume",
       "SWEEP",
       1,
       1,
       "go on with a sweep that too many failures have paused",
       "Failures are counted from 0 again. Jobs that were given up stay so: `sweep retry` makes them again, and resumes too.",
       "ablate sweep resume quickstart --max-failures 100",
       {"--server", "--data-dir", "--max-failures", "--output", "--timeout"},
       &RunSweepResume},
      {"sweep extend",
       "FILE",
       1,
       1,
       "add to a sweep what its changed file has more: seeds, arms, lengths, tasks",
       "Recorded as an amendment; nothing is taken away, and nothing that was measured is run again. In a sweep with "
       "claims what is\n"
       "added is exploratory, and what is declared (claims, seeds, candidates, rates) cannot change.",
       "ablate sweep extend quickstart.yaml",
       {"--server", "--data-dir", "--data", "--output", "--timeout"},
       &RunSweepExtend},
      {"sweep lock",
       "SWEEP",
       1,
       1,
       "lock the selection of a sealed sweep by hand",
       "The rule of the sweep file does it by itself when its runs are done. A lock by hand is recorded as a "
       "deviation, "
       "with the\n"
       "reason and what the rule picks; it may come before the rule's runs are done.",
       "ablate sweep lock p-sealed --arm attention.p=15 --why 'p = 7 diverges on the other text'",
       {"--arm", "--why", "--server", "--data-dir", "--output", "--timeout"},
       &RunSweepLock},
      {"job list",
       "[SWEEP]",
       0,
       1,
       "list jobs",
       "",
       "ablate job list quickstart --state failed",
       {"--state", "--server", "--data-dir", "--output", "--timeout"},
       &RunJobList},
      {"job show",
       "JOB",
       1,
       1,
       "show one job and its attempts",
       "",
       "ablate job show job_5f0c6d2a9b1e4c77",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunJobShow},
      {"job logs",
       "JOB",
       1,
       1,
       "show what happened to a job, with the last lines of failed trainers and its training curve",
       "",
       "ablate job logs job_5f0c6d2a9b1e4c77",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunJobLogs},
      {"job explain",
       "JOB",
       1,
       1,
       "say why a job is not running",
       "",
       "ablate job explain job_5f0c6d2a9b1e4c77",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunJobExplain},
      {"job artifacts",
       "JOB",
       1,
       1,
       "list the files that an evaluation made, and fetch them",
       "",
       "ablate job artifacts job_5f0c6d2a9b1e4c77 --fetch maps",
       {"--fetch", "--server", "--data-dir", "--output", "--timeout"},
       &RunJobArtifacts},
      {"job map",
       "JOB",
       1,
       1,
       "draw the attention map that a job made: layers from top to bottom, heads from left to right",
       "The job is one of the task attention_map; `ablate job list SWEEP` shows which. As .svg with labels and a scale, as "
       ".png the\n"
       "grid alone. Queries from top to bottom, keys from left to right; the darker, the larger the weight.",
       "ablate job map job_5f0c6d2a9b1e4c77 -o psalm.svg",
       {"--output-file", "--server", "--data-dir", "--timeout"},
       &RunJobMap},
      {"job cancel",
       "JOB",
       1,
       1,
       "cancel one job",
       "",
       "ablate job cancel job_5f0c6d2a9b1e4c77",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunJobCancel},
      {"job verify",
       "JOB|SWEEP",
       1,
       1,
       "run finished jobs a second time and compare the results bit for bit",
       "Of a sweep, --sample K of its finished jobs, drawn by --seed. Nothing that is stored changes. Waits for the "
       "second "
       "runs; ends\n"
       "with 1 when one of them differs or fails, with 3 on --timeout.",
       "ablate job verify quickstart --sample 3",
       {"--sample", "--seed", "--server", "--data-dir", "--output", "--timeout"},
       &RunJobVerify},
      {"job verifications",
       "[SWEEP]",
       0,
       1,
       "list second runs and what came of them, newest first",
       "",
       "ablate job verifications quickstart",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunJobVerifications},
      {"worker list",
       "",
       0,
       0,
       "list workers",
       "",
       "ablate worker list",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunWorkerList},
      {"worker drain",
       "WORKER",
       1,
       1,
       "let a worker finish what it runs and take nothing new",
       "",
       "ablate worker drain worker_5f0c6d2a9b1e4c77",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunWorkerDrain},
      {"token create",
       "",
       0,
       0,
       "make a token and print it, once",
       "Only an admin may: on the coordinator's machine with --data-dir, or with an admin token. Roles: read (look), submit (look,\n"
       "submit, cancel, retry), worker (work, nothing else), admin (all). The token is printed here and stored nowhere; give it to\n"
       "clients as ABLATE_TOKEN, in a file of mode 0600 with --token-file, or as `token = ...` in ~/.config/ablate/config.",
       "ablate token create --role submit --name ada --expires 90d --data-dir /srv/ablate",
       {"--role", "--name", "--expires", "--server", "--data-dir", "--output", "--timeout"},
       &RunTokenCreate},
      {"token list",
       "",
       0,
       0,
       "list tokens: names, roles, when each was used last",
       "",
       "ablate token list --data-dir /srv/ablate",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunTokenList},
      {"token revoke",
       "TOKEN",
       1,
       1,
       "end a token, by its name or id",
       "Its next call is refused, and its open streams end within two seconds.",
       "ablate token revoke ada --data-dir /srv/ablate",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunTokenRevoke},
      {"table",
       "SWEEP",
       1,
       1,
       "means and confidence intervals over seeds",
       "As a table: one block a metric, arms as rows, lengths as columns. As json or csv: one row a mean, with its "
       "seeds and jobs.",
       "ablate table quickstart -o latex --metric loss",
       {"--metric", "--level", "--server", "--data-dir", "--output", "--timeout"},
       &RunTable},
      {"curves",
       "SWEEP",
       1,
       1,
       "training curves of each arm and seed, and their means",
       "As json or csv: one row a point, and with --mean one row a step with its interval and n. As a table: one line a curve.\n"
       "Metrics: train_loss (unless --metric names others), gradient_norm, learning_rate.",
       "ablate curves quickstart --mean -o csv",
       {"--metric", "--arm", "--mean", "--level", "--max-points", "--server", "--data-dir", "--output", "--timeout"},
       &RunTrainingCurves},
      {"compare",
       "SWEEP",
       1,
       1,
       "paired differences from the baseline arm, with p values",
       "Pairs by seed; p two-sided, adjusted by Holm over all comparisons of a metric.",
       "ablate compare quickstart --baseline attention.variant=lssa",
       {"--baseline", "--metric", "--level", "--server", "--data-dir", "--output", "--timeout"},
       &RunCompare},
      {"claims",
       "SWEEP...",
       1,
       32,
       "claims with verdicts, the lock, tuning, deviations, and what the sweep waits for",
       "Before the lock there is no number. Several sweeps that state the same claims on other texts are judged "
       "together: "
       "a claim about\n"
       "text holds on each of them.",
       "ablate claims p-sealed",
       {"--server", "--data-dir", "--output", "--timeout"},
       &RunClaims},
      {"effects",
       "SWEEP",
       1,
       1,
       "main effects and two-way interactions of a factorial design",
       "Paired by seed; p adjusted by Holm over the rows of a metric, length, split and NTK setting.",
       "ablate effects factorial --metric loss_targets",
       {"--factor", "--metric", "--level", "--server", "--data-dir", "--output", "--timeout"},
       &RunEffects},
      {"spread",
       "SWEEP",
       1,
       1,
       "spread over seeds and over documents, with a two-way bootstrap",
       "",
       "ablate spread p-sealed",
       {"--level", "--server", "--data-dir", "--output", "--timeout"},
       &RunSpread},
      {"report",
       "SWEEP",
       1,
       1,
       "write the sweep's report: Markdown, LaTeX, figures, data, TensorBoard events",
       "Everything is made from the database: the same database gives the same bytes. Begin with report.md; figures "
       "are SVG in\n"
       "figures/, tidy CSV in data/, training curves and losses by length for TensorBoard in tensorboard/.",
       "ablate report quickstart --data-dir ablate-runs/quickstart -o report",
       {"--output-dir", "--server", "--data-dir", "--timeout"},
       &RunReport},
      {"query",
       "SQL",
       1,
       1,
       "one SQL statement on the results database, read only",
       "Tables and views are described in docs/results-database.md. SQL may be - to read it from stdin.",
       "ablate query \"SELECT arm, seed, value FROM results WHERE metric = 'loss'\" -o csv",
       {"--max-rows", "--server", "--data-dir", "--output", "--timeout"},
       &RunQuery},
      {"dashboard",
       "",
       0,
       0,
       "serve the page over the folder of a run",
       "Prints the link and serves until Ctrl-C, on 127.0.0.1 and the port of the folder's last page, or 7480, or if that is\n"
       "taken a free one. A coordinator that has the folder open and serves a page already is left alone: then only the\n"
       "link is printed.",
       "ablate dashboard --data-dir ablate-runs/quickstart --background",
       {"--data-dir", "--http", "--background", "--stop"},
       &RunDashboard},
      {"variants",
       "",
       0,
       0,
       "list the named attention variants",
       "",
       "ablate variants -o markdown",
       {"--output"},
       &RunVariants},
      {"version", "", 0, 0, "print the version", "", "ablate version", {}, &RunVersion},
  };
  return commands;
}

void Emit(const Invocation& invocation, const Report& report) {
  const std::string text = Print(report, invocation.output(), TerminalWidth(STDOUT_FILENO, 160));
  if (std::fwrite(text.data(), 1, text.size(), stdout) < text.size() || std::fflush(stdout) != 0) output_error = errno;
}

absl::Status FinishOutput() {
  // Closing shows what the system found out late; a second Emit may have succeeded after a failed one.
  const bool failed = std::ferror(stdout) != 0;
  if ((std::fclose(stdout) != 0 || failed) && output_error == 0) output_error = errno;
  if (output_error == 0) return absl::OkStatus();
  const std::string message = absl::StrCat("cannot write to stdout: ", std::strerror(output_error));
  return output_error == EPIPE ? absl::AbortedError(message) : absl::UnavailableError(message);
}

std::string WhereFlags(const Invocation& invocation) {
  for (const char* flag : {"--data-dir", "--server"}) {
    if (invocation.Has(flag)) return absl::StrCat(" ", flag, " ", ShellQuoted(invocation.Get(flag)));
  }
  return "";
}

void Say(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

std::string NewRequestId() { return IdGenerator::Random().NewId("request"); }

std::string TimeText(int64_t micros) {
  if (micros == 0) return "";
  const time_t seconds = static_cast<time_t>(micros / 1'000'000);
  tm parts = {};
  ::gmtime_r(&seconds, &parts);
  char buffer[32];
  std::strftime(buffer, sizeof(buffer), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return buffer;
}

Cell TimeCell(int64_t micros) { return micros == 0 ? Cell::Null() : Cell::Text(TimeText(micros)); }

std::string StateText(v1::SweepState state) {
  const std::string name = v1::SweepState_Name(state);
  return absl::StartsWith(name, "SWEEP_") ? name.substr(6) : name;
}

Sheet VerticalSheet(const Records& records, size_t row) {
  Sheet sheet;
  sheet.columns = {{.title = "field"}, {.title = "value"}};
  for (size_t i = 0; i < records.columns.size(); ++i) {
    const Cell& cell = records.rows[row][i];
    if (cell.kind == Cell::Kind::kNull || (cell.kind == Cell::Kind::kText && cell.text.empty())) continue;
    std::string text = cell.text;
    if (cell.kind == Cell::Kind::kFlag) text = cell.integer != 0 ? "yes" : "no";
    if (cell.kind == Cell::Kind::kInteger) text = absl::StrCat(cell.integer);
    if (cell.kind == Cell::Kind::kNumber) text = ShortestDouble(cell.number);
    sheet.rows.push_back({records.columns[i], text});
  }
  return sheet;
}

absl::Status MissingData(const SweepInput& input) {
  const bool of_data =
      std::find(input.data_paths.begin(), input.data_paths.end(), input.missing) != input.data_paths.end();
  return absl::NotFoundError(absl::StrCat(
      "the ", of_data ? "data file " : "file ", input.missing, of_data ? "" : " of a task", " is not there (named by ",
      input.file_name, ", relative to it): bring it", of_data ? ", or say where it is with --data PATH" : ""));
}

absl::StatusOr<SweepInput> ReadInput(const Invocation& invocation, Progress* progress, bool need_data) {
  absl::StatusOr<SweepInput> input = ReadSweepInput(
      invocation.arguments[0], invocation.Get("--data"), [&](const std::string& path, int64_t done, int64_t bytes) {
        // Small files are hashed before anyone could read the line.
        if (bytes > (256 << 20))
          progress->Show(absl::StrCat("hashing ", path, ": ", HumanBytes(done), " of ", HumanBytes(bytes)));
      });
  progress->Clear();
  if (input.ok() && need_data && !input->data_found) {
    return MissingData(*input);
  }
  return input;
}

absl::Status UploadData(Client* client, const SweepInput& input, Progress* progress) {
  const auto upload = [&](const v1::DataFile& file, const std::string& path) -> absl::Status {
    if (file.bytes() > kLargestUpload) {
      Say(absl::StrCat(file.path(), " is over 2 GiB and is not uploaded: it must lie under each worker's --data-root"));
      return absl::OkStatus();
    }
    const auto start = std::chrono::steady_clock::now();
    const absl::Status status = client->Upload(path, file.sha256(), file.bytes(), [&](int64_t done) {
      // What is over before it can be read is not shown.
      if (std::chrono::steady_clock::now() - start > std::chrono::seconds(1))
        progress->Show(
            absl::StrCat("uploading ", file.path(), ": ", HumanBytes(done), " of ", HumanBytes(file.bytes())));
    });
    progress->Clear();
    return status;
  };
  for (int i = 0; i < input.data.files_size(); ++i) {
    ABLATE_RETURN_IF_ERROR(upload(input.data.files(i), input.data_paths[i]));
  }
  for (size_t i = 0; i < input.task_files.size(); ++i) {
    ABLATE_RETURN_IF_ERROR(upload(input.task_files[i], input.task_paths[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int32_t>> MaxFailures(const Invocation& invocation) {
  if (!invocation.Has("--max-failures")) return std::nullopt;
  ABLATE_ASSIGN_OR_RETURN(const int64_t value, invocation.GetInteger("--max-failures", 0, 0, 1'000'000));
  return static_cast<int32_t>(value);
}

absl::StatusOr<v1::SubmitSweepResponse> SubmitFile(Client* client, const SweepInput& input, Progress* progress,
                                                   std::optional<int32_t> max_failures) {
  ABLATE_RETURN_IF_ERROR(UploadData(client, input, progress));
  v1::SubmitSweepRequest request;
  request.set_request_id(NewRequestId());
  request.set_yaml(input.yaml);
  request.set_file_name(input.file_name);
  *request.mutable_data() = input.data;
  request.mutable_task_files()->Assign(input.task_files.begin(), input.task_files.end());
  if (max_failures.has_value()) request.set_max_failures(*max_failures);
  v1::GetSweepRequest before;
  before.set_sweep(input.spec.name());
  const absl::StatusOr<v1::Sweep> was = client->Call(&v1::Sweeps::Stub::GetSweep, before);
  ABLATE_ASSIGN_OR_RETURN(v1::SubmitSweepResponse response, client->Call(&v1::Sweeps::Stub::SubmitSweep, request));
  if (was.ok() && IsPaused(*was) && !IsPaused(response.sweep()) && response.sweep().state() == v1::SWEEP_RUNNING) {
    Say(absl::StrCat("the data of ", input.spec.name(), " is there again: its jobs go on"));
  }
  return response;
}

absl::StatusOr<int> RunVariants(const Invocation& invocation) {
  Report report;
  report.records.columns = {"variant",    "qk_norm", "scale",  "activation", "normalisation",
                            "logit_bias", "p",       "offset", "summary"};
  for (const AttentionVariant& variant : AttentionVariants()) {
    const AttentionSpec& spec = variant.spec;
    const auto text = [](std::string_view name) { return Cell::Text(std::string(name)); };
    report.records.rows.push_back(
        {text(variant.name), text(Name(spec.qk_norm)), text(Name(spec.scale)), text(Name(spec.activation)),
         text(Name(spec.normalisation)), text(Name(spec.logit_bias)),
         spec.sharpen_p ? Cell::Number(*spec.sharpen_p) : Cell::Null(),
         spec.sharpen_p ? Cell::Number(spec.sharpen_offset) : Cell::Null(), text(variant.summary)});
  }
  Emit(invocation, report);
  return kExitDone;
}

absl::StatusOr<int> RunVersion(const Invocation&) {
  std::printf("ablate %s\n", BuildVersion());
  return kExitDone;
}

}  // namespace ablate
