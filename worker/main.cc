// ablate-worker: the daemon on a node that does jobs for a coordinator. Wiring only: flags, signals, what is composed
// of what.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/client_access.h"
#include "base/files.h"
#include "base/flag_words.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sandbox.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/version.h"
#include "worker/artifact_cache.h"
#include "worker/child_guard.h"
#include "worker/daemon.h"
#include "worker/gpus.h"
#include "worker/grpc_client.h"
#include "worker/machine.h"
#include "worker/noop_executor.h"
#include "worker/trainer_executor.h"
#include "worker/work_dir.h"

ABSL_FLAG(std::string, server, "", "the coordinator: host:port or unix:PATH; default: ABLATE_SERVER of the environment");
ABSL_FLAG(std::string, token_file, "", "file with the token, mode 0600; default: ABLATE_TOKEN of the environment");
ABSL_FLAG(std::string, tls_pin, "", "sha256:... of the coordinator's certificate");
ABSL_FLAG(std::string, tls_ca, "", "PEM file with the certificate that signed it");
ABSL_FLAG(std::string, tls_cert, "", "PEM file with this worker's own certificate");
ABSL_FLAG(std::string, tls_key, "", "PEM file with its private key");
ABSL_FLAG(std::string, device, "cpu", "where to compute: cpu or cuda");
ABSL_FLAG(int, slots, 0, "jobs at a time; 0: 1, with cuda one for each share of a GPU");
ABSL_FLAG(std::vector<std::string>, gpus, {}, "with cuda: numbers of the GPUs to use; default: all");
ABSL_FLAG(int, slots_per_gpu, 1, "with cuda: jobs that share a GPU and its memory");
ABSL_FLAG(std::string, recompute, "auto", "activations in the backward pass: auto, none or blocks");
ABSL_FLAG(int, threads_per_slot, 0, "threads of one job; 0: the cores of this machine, divided by the slots");
ABSL_FLAG(std::string, work_dir, "",
          "folder for data, checkpoints and unfinished business; default: ablate-worker in the user's cache folder");
ABSL_FLAG(std::string, data_root, "", "folder with large data files, used in place");
ABSL_FLAG(std::vector<std::string>, labels, {}, "labels of this worker, separated by commas; a sweep may require some");
ABSL_FLAG(std::string, name, "", "what this worker is called in lists; default: the host's name");
ABSL_FLAG(std::string, sandbox, "auto", "rights of the trainers: auto, require or off");
ABSL_FLAG(std::string, executor, "trainer", "who does the work: trainer, or noop (the built-in test executor)");
ABSL_FLAG(std::string, trainer, "", "path of ablate-trainer; default: beside this program");
ABSL_FLAG(double, checkpoint_seconds, 30, "between checkpoints on this machine; 0: none");
ABSL_FLAG(double, upload_seconds, 120,
          "between checkpoints that are sent to the coordinator, so that another worker can go on");
ABSL_FLAG(double, hang_seconds, 3600,
          "a trainer without a step, a checkpoint or a line of log for so long is killed; 0: never");
ABSL_FLAG(double, grace_seconds, 20, "from SIGTERM to the end, at most");
ABSL_FLAG(int64_t, min_free_bytes, int64_t{32} << 20, "free disk below which no new job is taken");
ABSL_FLAG(int64_t, cache_bytes, int64_t{20} << 30, "disk for data and checkpoints that no job needs at the moment");

namespace ablate {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitRefused = 5;
constexpr double kMaxSeconds = 1e8;                // three years

constexpr char kHelp[] = R"(ablate-worker: does jobs for a coordinator, until it is told to stop.

  ablate-worker --server HOST:PORT --device cpu --slots 2

  --server ADDRESS          the coordinator: host:port or unix:PATH (default: ABLATE_SERVER)
  --token-file FILE         its token, in a file of mode 0600 (default: ABLATE_TOKEN or ABLATE_TOKEN_FILE of the environment)
  --tls-pin sha256:HASH     its certificate, as ablate-server prints it (default: ABLATE_TLS_PIN)
  --tls-ca FILE             or: PEM file with the certificate that signed it (default: ABLATE_TLS_CA)
  --tls-cert, --tls-key     PEM files with a certificate of this worker's, where the coordinator demands one
  --device cpu|cuda         where to compute (cpu)
  --slots N                 jobs at a time (1; with cuda: GPUs times --slots-per-gpu)
  --gpus 0,1                with cuda: which GPUs, as CUDA counts them (all); each job has one, or a share of one
  --slots-per-gpu N         with cuda: jobs that share a GPU, each with its part of the memory (1)
  --recompute auto|none|blocks
                            keep the activations for the backward pass, or compute those of each block again; auto: keep
                            them where they fit (auto); results do not depend on it
  --threads-per-slot N      threads of one job (the cores of this machine, divided by the slots); results do not depend on it
  --work-dir DIR            data, checkpoints and unfinished business ($XDG_CACHE_HOME/ablate-worker or ~/.cache/ablate-worker);
                            one worker a folder
  --data-root DIR           large data files, used in place where their path, size and SHA-256 are those of the sweep
  --labels A,B              a sweep may require some
  --name NAME               what this worker is called in lists (the host's name)
  --cache-bytes N           disk for files that no job needs at the moment (20 GiB)
  --min-free-bytes N        free disk of --work-dir below which no new job is taken; what runs goes on (32 MiB)
  --checkpoint-seconds S    between checkpoints on this machine (30; 0: none)
  --upload-seconds S        between checkpoints sent to the coordinator, so that another worker can go on (120)
  --hang-seconds S          a trainer without a step, a checkpoint or a line of log for so long is killed (3600; 0: never)
  --grace-seconds S         from SIGTERM to the end, at most (20)
  --sandbox auto|require|off
                            trainers run without network, without power over other processes, and (--device cpu) with no
                            files but the worker's; auto: as far as this kernel can (auto); require: or not at all
  --executor trainer|noop   who does the work (trainer); noop is the built-in test executor
  --trainer PATH            ablate-trainer (beside this program)
  --version, --help

SIGTERM or SIGINT: saves what runs, hands it back, ends with code 0. A second one ends at once; the trainers end with the worker.
Exit codes: 0 drained, 1 cannot work (the message says why), 2 usage, 5 the coordinator refuses its token.
)";

constexpr const char* kFlagNames[] = {"--token-file",
                                      "--tls-pin",
                                      "--tls-ca",
                                      "--tls-cert",
                                      "--tls-key",
                                      "--gpus",
                                      "--slots-per-gpu",
                                      "--recompute",
                                      "--server",
                                      "--device",
                                      "--slots",
                                      "--threads-per-slot",
                                      "--work-dir",
                                      "--data-root",
                                      "--labels",
                                      "--name",
                                      "--cache-bytes",
                                      "--min-free-bytes",
                                      "--checkpoint-seconds",
                                      "--upload-seconds",
                                      "--hang-seconds",
                                      "--grace-seconds",
                                      "--executor",
                                      "--sandbox",
                                      "--trainer"};

int Fail(int code, const std::string& message) {
  std::fprintf(stderr, "ablate-worker: %s\n", message.c_str());
  return code;
}

int CheckFlags() {
  const std::string device = absl::GetFlag(FLAGS_device), executor = absl::GetFlag(FLAGS_executor);
  if (device != "cpu" && device != "cuda")
    return Fail(kExitUsage, absl::StrCat("--device \"", device, "\": expected cpu or cuda"));
  if (executor != "trainer" && executor != "noop")
    return Fail(kExitUsage, absl::StrCat("--executor \"", executor, "\": expected trainer or noop"));
  if (absl::GetFlag(FLAGS_slots) < 0 || absl::GetFlag(FLAGS_slots) > 1024)
    return Fail(kExitUsage, "--slots: expected a number from 1 to 1024");
  if (device == "cuda" && absl::GetFlag(FLAGS_slots) != 0)
    return Fail(kExitUsage, "--slots: with --device cuda say --slots-per-gpu (and --gpus)");
  if (device == "cuda" && executor == "noop")
    return Fail(kExitUsage, "--executor noop computes nothing: no --device cuda");
  if (device == "cpu" && (!absl::GetFlag(FLAGS_gpus).empty() || absl::GetFlag(FLAGS_slots_per_gpu) != 1))
    return Fail(kExitUsage, "--gpus and --slots-per-gpu need --device cuda");
  if (absl::GetFlag(FLAGS_slots_per_gpu) < 1 || absl::GetFlag(FLAGS_slots_per_gpu) > 64)
    return Fail(kExitUsage, "--slots-per-gpu: expected a number from 1 to 64");
  const std::string recompute = absl::GetFlag(FLAGS_recompute);
  if (recompute != "auto" && recompute != "none" && recompute != "blocks")
    return Fail(kExitUsage, absl::StrCat("--recompute \"", recompute, "\": expected auto, none or blocks"));
  const std::string sandbox = absl::GetFlag(FLAGS_sandbox);
  if (sandbox != "auto" && sandbox != "require" && sandbox != "off")
    return Fail(kExitUsage, absl::StrCat("--sandbox \"", sandbox, "\": expected auto, require or off"));
  const int threads = absl::GetFlag(FLAGS_threads_per_slot);
  if (threads < 0 || threads > 4096) return Fail(kExitUsage, "--threads-per-slot: expected a number from 0 to 4096");
  const std::pair<const char*, double> seconds[] = {{"--checkpoint-seconds", absl::GetFlag(FLAGS_checkpoint_seconds)},
                                                    {"--upload-seconds", absl::GetFlag(FLAGS_upload_seconds)},
                                                    {"--hang-seconds", absl::GetFlag(FLAGS_hang_seconds)},
                                                    {"--grace-seconds", absl::GetFlag(FLAGS_grace_seconds)}};
  for (const auto& [name, value] : seconds) {
    // Not (value < 0): that lets NaN through.
    if (!(value >= 0 && value <= kMaxSeconds)) {
      return Fail(kExitUsage, absl::StrCat(name, ": expected a number from 0 to ", static_cast<int64_t>(kMaxSeconds)));
    }
  }
  if (absl::GetFlag(FLAGS_min_free_bytes) < 0) return Fail(kExitUsage, "--min-free-bytes: expected a number from 0 on");
  if (absl::GetFlag(FLAGS_cache_bytes) < 0) return Fail(kExitUsage, "--cache-bytes: expected a number from 0 on");
  return 0;
}

// What trainers may use. docs/security.md says what each part is for.
absl::StatusOr<std::shared_ptr<const Sandbox>> TrainerSandbox(const std::string& program, const WorkDir& work_dir,
                                                              bool cuda) {
  const std::string wanted = absl::GetFlag(FLAGS_sandbox);
  if (wanted == "off") {
    LOG(WARNING) << "--sandbox off: trainers run with all rights of this user";
    return std::shared_ptr<const Sandbox>();
  }
  if (const std::vector<std::string> missing = Sandbox::Missing(); !missing.empty()) {
    const std::string what = absl::StrCat("this kernel refuses ", absl::StrJoin(missing, " and "));
    if (wanted == "require") return absl::FailedPreconditionError(absl::StrCat("--sandbox require: ", what));
    LOG(WARNING) << what << ": trainers run without that bound (--sandbox require would end here)";
  }
  SandboxOptions options;
  // Drivers of GPUs open devices, caches and sockets of their own, which differ from release to release.
  options.restrict_files = !cuda;
  options.local_sockets = cuda;
  options.readable = {Dirname(program), "/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime",
                      "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys", "/sys", "/dev/zero", "/dev/random", "/dev/urandom", work_dir.artifacts(),
                      absl::GetFlag(FLAGS_data_root)};
  for (const char* name : {"LD_LIBRARY_PATH", "ABLATE_CUDA_LIBRARY"}) {
    const char* const paths = std::getenv(name);
    for (const absl::string_view path : absl::StrSplit(paths == nullptr ? "" : paths, ':', absl::SkipEmpty()))
      options.readable.emplace_back(path);
  }
  ABLATE_RETURN_IF_ERROR(MakeDirs(work_dir.artifacts()));
  ABLATE_RETURN_IF_ERROR(MakeDirs(work_dir.checkpoints()));
  options.writable = {work_dir.checkpoints(), "/dev/null"};
  return Sandbox::Prepare(options);
}

// Where signals go: the daemon, as long as it is there.
struct SignalTarget {
  Mutex mutex;
  Daemon* daemon ABLATE_GUARDED_BY(mutex) = nullptr;
};

// Receives what main blocked in every thread: the first one drains, the second one ends the program on the spot.
void HandleSignals(const sigset_t signals, std::shared_ptr<SignalTarget> target) {
  int signal = 0;
  sigwait(&signals, &signal);
  LOG(INFO) << "signal " << signal << ": saving and handing back what runs (" << absl::GetFlag(FLAGS_grace_seconds)
            << " s at most; a second signal ends at once)";
  {
    MutexLock lock(&target->mutex);
    if (target->daemon != nullptr) target->daemon->Drain();
  }
  sigwait(&signals, &signal);
  ::_exit(128 + signal);
}

int Main() {
  // Before anything starts a thread: gRPC's own threads must not receive these.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // gRPC's own complaints repeat ours, unreadably.
  ::setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);

  absl::StatusOr<ClientAccess> access = ReadClientAccess({.server = absl::GetFlag(FLAGS_server),
                                                          .token_file = absl::GetFlag(FLAGS_token_file),
                                                          .tls_pin = absl::GetFlag(FLAGS_tls_pin),
                                                          .tls_ca = absl::GetFlag(FLAGS_tls_ca),
                                                          .tls_cert = absl::GetFlag(FLAGS_tls_cert),
                                                          .tls_key = absl::GetFlag(FLAGS_tls_key)},
                                                         "");
  ForgetTokenInEnvironment();
  // Other processes of this user, trainers among them, are not to read the token out of this one's memory.
  if (access.ok() && !access->token.empty()) ::prctl(PR_SET_DUMPABLE, 0);
  if (!access.ok())
    return Fail(absl::IsInvalidArgument(access.status()) ? kExitUsage : 1, std::string(access.status().message()));
  const std::string address = access->address;
  // Before there are threads: it forks. After the token has left the environment.
  const absl::StatusOr<std::unique_ptr<ChildGuard>> guard_or = ChildGuard::Start();
  if (!guard_or.ok()) return Fail(1, std::string(guard_or.status().message()));
  const std::unique_ptr<ChildGuard>& guard = *guard_or;

  const bool noop = absl::GetFlag(FLAGS_executor) == "noop";
  const std::string program =
      absl::GetFlag(FLAGS_trainer).empty() ? JoinPath(ProgramDir(), "ablate-trainer") : absl::GetFlag(FLAGS_trainer);
  const bool cuda = absl::GetFlag(FLAGS_device) == "cuda";
  GpuSlots gpus;
  if (cuda) {
    const absl::StatusOr<std::vector<Gpu>> all = ListGpus(program);
    if (!all.ok()) return Fail(kExitUsage, absl::StrCat("--device cuda: ", all.status().message()));
    absl::StatusOr<GpuSlots> assigned = AssignGpus(*all, absl::GetFlag(FLAGS_gpus), absl::GetFlag(FLAGS_slots_per_gpu));
    if (!assigned.ok()) return Fail(kExitUsage, absl::StrCat("--device cuda: ", assigned.status().message()));
    gpus = *std::move(assigned);
    for (const Gpu& gpu : gpus.gpus) LOG(INFO) << gpu.Describe();
  }
  const int slots = cuda ? gpus.slots() : std::max(1, absl::GetFlag(FLAGS_slots));
  const int threads = absl::GetFlag(FLAGS_threads_per_slot) > 0 ? absl::GetFlag(FLAGS_threads_per_slot)
                                                                : std::max(1, UsableCores() / slots);

  std::string path = absl::GetFlag(FLAGS_work_dir);
  if (path.empty()) path = DefaultWorkDir();
  if (path.empty()) return Fail(kExitUsage, "neither HOME nor XDG_CACHE_HOME is set; name a folder with --work-dir");
  const auto work_dir = WorkDir::Open(path, &IdGenerator::Random());
  if (!work_dir.ok()) return Fail(1, std::string(work_dir.status().message()));

  DaemonOptions options;
  v1::WorkerInfo& info = options.link.worker;
  info.set_worker_id((*work_dir)->worker_id());
  info.set_incarnation(IdGenerator::Random().NewId("incarnation"));
  info.set_hostname(absl::GetFlag(FLAGS_name).empty() ? HostName() : absl::GetFlag(FLAGS_name));
  info.set_device_class(absl::GetFlag(FLAGS_device));
  info.set_slots(slots);
  info.set_memory_bytes(cuda ? gpus.share_bytes : MemoryLimitBytes());
  info.set_build(BuildVersion());
  info.set_executor(noop ? v1::EXECUTOR_NOOP : v1::EXECUTOR_TRAINER);
  for (const std::string& label : absl::GetFlag(FLAGS_labels)) info.add_labels(label);
  options.link.jitter_seed = std::hash<std::string>()(info.incarnation());

  std::shared_ptr<const Sandbox> sandbox;
  if (!noop) {
    auto prepared = TrainerSandbox(program, **work_dir, cuda);
    if (!prepared.ok()) return Fail(1, std::string(prepared.status().message()));
    sandbox = *std::move(prepared);
  }
  TrainerExecutorOptions trainer;
  const auto command_of = [=, guard = guard.get()](int slot) {
    TrainerCommand command;
    command.guard = guard;
    command.argv = {program, "--threads", absl::StrCat(threads), "--recompute", absl::GetFlag(FLAGS_recompute)};
    const std::vector<std::string> device =
        cuda ? gpus.TrainerFlags(slot) : std::vector<std::string>{"--device", absl::GetFlag(FLAGS_device)};
    command.argv.insert(command.argv.end(), device.begin(), device.end());
    command.sandbox = sandbox;
    return command;
  };
  if (noop) {
    info.set_device_kind("noop");
  } else {
    const auto ready = ProbeTrainer(command_of(0));
    if (!ready.ok()) return Fail(1, std::string(ready.status().message()));
    info.set_device_kind(ready->device_kind());
  }

  GrpcClient client(*std::move(access));
  ArtifactCacheOptions cache_options;
  cache_options.dir = (*work_dir)->artifacts();
  cache_options.max_bytes = absl::GetFlag(FLAGS_cache_bytes);
  cache_options.data_root = absl::GetFlag(FLAGS_data_root);
  cache_options.transport = &client;
  const auto cache = ArtifactCache::Open(cache_options);
  if (!cache.ok()) return Fail(1, std::string(cache.status().message()));
  StageLocks locks;
  const int64_t grace_ms = static_cast<int64_t>(absl::GetFlag(FLAGS_grace_seconds) * 1000);
  trainer.cache = cache->get();
  trainer.locks = &locks;
  trainer.checkpoints_dir = (*work_dir)->checkpoints();
  trainer.checkpoint_seconds = absl::GetFlag(FLAGS_checkpoint_seconds);
  trainer.upload_seconds = absl::GetFlag(FLAGS_upload_seconds);
  trainer.hang_seconds = absl::GetFlag(FLAGS_hang_seconds);
  trainer.stop_ms = std::max<int64_t>(grace_ms / 2, 1);
  trainer.memory_limit_bytes = MemoryLimitBytes();
  RemoveOldCheckpoints(trainer.checkpoints_dir);

  options.executor = [noop, trainer, command_of](int slot) -> std::unique_ptr<Executor> {
    if (noop) return std::make_unique<NoopExecutor>();
    TrainerExecutorOptions of_slot = trainer;
    of_slot.command = command_of(slot);
    return std::make_unique<TrainerExecutor>(of_slot);
  };
  options.transport = &client;
  options.address = address;
  options.results_dir = (*work_dir)->results();
  options.held_stage_keys = [&cache] { return (*cache)->HeldStageKeys(); };
  options.grace_ms = grace_ms;
  options.node_trouble = [path, floor = static_cast<uint64_t>(absl::GetFlag(FLAGS_min_free_bytes))]() -> std::string {
    const absl::StatusOr<uint64_t> free = FreeBytes(path);
    if (!free.ok()) return std::string(free.status().message());
    if (*free >= floor) return "";
    return absl::StrCat("only ", HumanBytes(*free), " are free on the disk of ", path, "; ",
                        HumanBytes(floor), " are needed (--min-free-bytes)");
  };

  LOG(INFO) << "ablate-worker " << BuildVersion() << ": " << info.worker_id() << " on " << info.hostname() << ", "
            << info.device_kind() << ", " << slots << (slots == 1 ? " slot" : " slots")
            << (noop   ? ""
                : cuda ? absl::StrCat(" of ", HumanBytes(static_cast<uint64_t>(gpus.share_bytes)), " on ",
                                      gpus.gpus.size(), gpus.gpus.size() == 1 ? " GPU" : " GPUs")
                       : absl::StrCat(" of ", threads, threads == 1 ? " thread" : " threads"))
            << (info.labels().empty() ? "" : absl::StrCat(", labels ", absl::StrJoin(info.labels(), ",")))
            << ", work in " << path;
  Daemon daemon(std::move(options));
  const auto target = std::make_shared<SignalTarget>();
  {
    MutexLock lock(&target->mutex);
    target->daemon = &daemon;
  }
  // Never joined: it waits for a second signal until the process ends.
  std::thread(HandleSignals, signals, target).detach();
  const absl::Status status = daemon.Run();
  {
    MutexLock lock(&target->mutex);
    target->daemon = nullptr;
  }
  if (!status.ok()) {
    const bool refused = absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
    return Fail(refused ? kExitRefused : 1, std::string(status.message()));
  }
  LOG(INFO) << "drained";
  return 0;
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) {
  const auto asked =
      ablate::SetFlags({std::begin(ablate::kFlagNames), std::end(ablate::kFlagNames)}, {}, {argv, argv + argc});
  if (!asked.ok())
    return ablate::Fail(ablate::kExitUsage, absl::StrCat(asked.status().message(), " (see ablate-worker --help)"));
  if (*asked == ablate::FlagWords::kHelp) return std::fputs(ablate::kHelp, stdout) < 0;
  if (*asked == ablate::FlagWords::kVersion) return std::printf("ablate-worker %s\n", ablate::BuildVersion()) < 0;
  if (const int code = ablate::CheckFlags(); code != 0) return code;
  ablate::InitLogging(argv[0]);
  return ablate::Main();
}
