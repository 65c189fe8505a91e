// ablate-server: the coordinator as a program. Wires flags, artifact store, coordinator and gRPC together; nothing
// else.
#include <malloc.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/flag_words.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/version.h"
#include "server/access/listener.h"
#include "server/access/roles.h"
#include "server/access/tokens.h"
#include "server/artifacts/artifact_store.h"
#include "server/coordinator.h"
#include "server/http/http_server.h"
#include "server/maintenance.h"
#include "server/services/grpc_server.h"
#include "server/store/data_dir_lock.h"
#include "server/store/salvage.h"
#include "server/store/store.h"

ABSL_FLAG(std::string, data_dir, "", "where everything is kept");
ABSL_FLAG(std::string, listen, "127.0.0.1:7433", "HOST:PORT or unix:PATH");
ABSL_FLAG(std::string, http, "", "HOST:PORT of the dashboard");
ABSL_FLAG(std::vector<std::string>, http_host, {}, "names by which browsers may call the dashboard");
ABSL_FLAG(bool, tls, false, "TLS also where only this machine reaches the listener");
ABSL_FLAG(std::string, tls_cert, "", "PEM file with the server's certificate and its chain");
ABSL_FLAG(std::string, tls_key, "", "PEM file with its private key");
ABSL_FLAG(std::string, tls_client_ca, "", "PEM file: clients must show a certificate that one of these signed");
ABSL_FLAG(bool, require_tokens, false, "tokens also where only this machine reaches the listener");
ABSL_FLAG(std::string, create_token, "", "make a token of this role, print it and end");
ABSL_FLAG(std::string, token_name, "", "the name of that token");
ABSL_FLAG(bool, insecure, false, "a flag of earlier releases");
ABSL_FLAG(std::string, ready_file, "", "written with the address once the server answers");
ABSL_FLAG(double, lease_seconds, 30, "silence after which a worker's attempts are taken away");
ABSL_FLAG(double, contact_seconds, 2, "how often a busy worker calls");
ABSL_FLAG(double, idle_wait_seconds, 30, "how long an idle worker is kept in its call");
ABSL_FLAG(int32_t, max_failures, 3, "failures after which a job is given up");
ABSL_FLAG(double, retry_seconds, 1, "before a job that failed is tried again; five times as long after each further failure");
ABSL_FLAG(int32_t, sweep_max_failures, 50, "failures of one kind and message that pause a sweep; 0: never");
ABSL_FLAG(std::string, test_wall_offset_file, "", "for tests: a file with seconds that the wall clock is off by");
ABSL_FLAG(int32_t, max_threads, 1024, "bound on calls that are served or wait at once");
ABSL_FLAG(int64_t, min_free_bytes, int64_t{256} << 20, "free disk below which no job starts and uploads are refused");
ABSL_FLAG(bool, check, false, "say whether the folder is sound, and end");
ABSL_FLAG(bool, deep, false, "with --check: read every artifact");
ABSL_FLAG(std::string, backup, "", "copy the folder to this new one, and end");
ABSL_FLAG(std::string, restore, "", "make --data-dir from this backup, and end");
ABSL_FLAG(std::string, export, "", "write this sweep's rows to a new folder, and end");
ABSL_FLAG(std::string, export_to, "", "that folder: the second word of --export");
ABSL_FLAG(bool, curves, false, "with --export: training curves too");
ABSL_FLAG(bool, read_only, false, "serve what can be read, change nothing");

namespace ablate {
namespace {

constexpr int kLocalThreads = 64;
constexpr int64_t kUnnamedArtifactLifeSeconds = 24 * 3600;

constexpr char kUsage[] =
    R"(ablate-server: the coordinator. Queues the jobs of sweeps, hands them to workers, records results.

usage: ablate-server --data-dir DIR [flags]
       ablate-server --data-dir DIR --check [--deep] | --backup NEW_DIR | --restore BACKUP | --read-only |
                                    --export SWEEP NEW_DIR [--curves]

  --data-dir DIR            where everything is kept: DIR/ablate.db, DIR/artifacts/ (required; made if absent)
  --listen ADDR             HOST:PORT or unix:PATH (default 127.0.0.1:7433); port 0 takes a free one
                            A listener that other machines can reach speaks TLS and demands tokens (docs/security.md)
  --http ADDR               also serve the dashboard and its JSON interface there: HOST:PORT, port 0 takes a free one
                            (docs/http-api.md); TLS and tokens by the same rules and with the same certificate
  --http-host NAMES         names, with commas, by which browsers may call it beside its own: behind a proxy
  --tls-cert, --tls-key     PEM files with certificate and private key (default: DIR/tls/, made at the first time)
  --tls-client-ca FILE      clients must show a certificate signed by one of these, beside their token
  --tls, --require-tokens   the same where only this machine reaches the listener (--tls: both)
  --create-token ROLE       make a token (read, submit, worker or admin), print it and end; for a server that runs:
                            ablate token create --data-dir DIR
  --token-name NAME         of that token (default: its role)
  --ready-file PATH         written with the address once the server answers
  --lease-seconds S         silence after which a worker's attempts are taken away (default 30)
  --contact-seconds S       how often a busy worker calls (default 2, at most a third of the lease)
  --idle-wait-seconds S     how long an idle worker is kept in its call (default 30)
  --max-failures N          failures after which a job is given up (default 3)
  --retry-seconds S         pause before a job that failed is tried again (default 1); five times as long after each further failure,
                            a minute at most
  --sweep-max-failures N    failures of one kind and message that pause a sweep which states no number of its own (default 50; 0:
                            never)
  --max-threads N           calls that are served or wait at once; each idle worker holds one (default 1024)
  --min-free-bytes N        free disk below which no new job starts and uploads are refused (default 268435456: 256 MiB)
  --check                   say whether the folder is sound: database, digests, rules of jobs and results, artifacts by
                            name and size; ends with 0, or 1 with what is wrong. Also while a server has it open
  --deep                    with --check: reads every artifact's content too
  --backup NEW_DIR          copies the folder, also while a server has it open, and checks the copy. Artifacts become hard
                            links where they can: for safety from a broken disk name a folder on another one
  --restore BACKUP          makes --data-dir, which must be empty or absent, from a backup, after checking all of it
  --export SWEEP NEW_DIR    writes what concerns one sweep that is over, and nothing else, to a new data folder, small enough to
                            keep and hand on: tables, claims and report can be made from it (ablate report SWEEP
                            --data-dir NEW_DIR -o ...). Without checkpoints and data. Also while a server has DIR open
  --curves                  with --export: training curves too, which are most of the size
  --read-only               serves tables and queries from a private copy; changes nothing. Of a damaged database what is
                            readable and is what was written
  --version, --help

Prints "listening on ADDR" when it is ready (with TLS, then its certificate's fingerprint, which clients pin) and writes
DIR/server.address. SIGTERM or SIGINT end it cleanly; running jobs go on on their workers, which re-attach when it is back.

example: ablate-server --data-dir ./ablate-data --listen unix:./ablate-data/server.sock
)";

// A socket path that holds in other folders too.
std::string FromAnywhere(const std::string& address) {
  if (!absl::StartsWith(address, "unix:") || absl::StartsWith(address, "unix:/")) return address;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(address.substr(5), error);
  return error ? address : absl::StrCat("unix:", path.lexically_normal().string());
}

ListenerFlags ListenerFlagsGiven(const std::string& address) {
  return {.listen = address,
          .tls = absl::GetFlag(FLAGS_tls),
          .require_tokens = absl::GetFlag(FLAGS_require_tokens),
          .tls_cert = absl::GetFlag(FLAGS_tls_cert),
          .tls_key = absl::GetFlag(FLAGS_tls_key),
          .tls_client_ca = absl::GetFlag(FLAGS_tls_client_ca)};
}

absl::StatusOr<CoordinatorOptions> OptionsFromFlags() {
  CoordinatorOptions options;
  options.data_dir = absl::GetFlag(FLAGS_data_dir);
  if (options.data_dir.empty())
    return absl::InvalidArgumentError("--data-dir is missing: name a folder, e.g. --data-dir ./ablate-data");
  const double lease = absl::GetFlag(FLAGS_lease_seconds);
  const double contact = absl::GetFlag(FLAGS_contact_seconds);
  const double idle = absl::GetFlag(FLAGS_idle_wait_seconds);
  if (!(lease >= 0.1 && lease <= 86'400))
    return absl::InvalidArgumentError("--lease-seconds must be from 0.1 to 86400");
  if (!(contact > 0 && contact <= 3600))
    return absl::InvalidArgumentError("--contact-seconds must be above 0 and at most 3600");
  if (!(idle >= 0 && idle <= 3600)) return absl::InvalidArgumentError("--idle-wait-seconds must be from 0 to 3600");
  if (absl::GetFlag(FLAGS_max_failures) < 1) return absl::InvalidArgumentError("--max-failures must be at least 1");
  const double retry = absl::GetFlag(FLAGS_retry_seconds);
  if (!(retry >= 0 && retry <= 60)) return absl::InvalidArgumentError("--retry-seconds must be from 0 to 60");
  options.retry_delay_ms = static_cast<int64_t>(retry * 1000);
  if (absl::GetFlag(FLAGS_sweep_max_failures) < 0)
    return absl::InvalidArgumentError("--sweep-max-failures must be at least 1, or 0 for never");
  if (absl::GetFlag(FLAGS_max_threads) < 8) return absl::InvalidArgumentError("--max-threads must be at least 8");
  if (absl::GetFlag(FLAGS_min_free_bytes) < 0) return absl::InvalidArgumentError("--min-free-bytes must not be negative");
  options.lease_ms = static_cast<int64_t>(lease * 1000);
  // Two lost calls must not cost a lease.
  options.busy_contact_ms = static_cast<int64_t>(std::min(contact, lease / 3) * 1000);
  options.idle_wait_ms = static_cast<int64_t>(idle * 1000);
  options.max_failures = absl::GetFlag(FLAGS_max_failures);
  options.sweep_max_failures = absl::GetFlag(FLAGS_sweep_max_failures);

  const std::string listen = absl::GetFlag(FLAGS_listen);
  ABLATE_RETURN_IF_ERROR(CheckAddress(listen));
  if (const std::string http = absl::GetFlag(FLAGS_http); !http.empty())
    ABLATE_RETURN_IF_ERROR(WithContext(ParseHostPort(http).status(), "--http"));
  ABLATE_RETURN_IF_ERROR(CheckListenerFlags(ListenerFlagsGiven(listen)));
  if (absl::GetFlag(FLAGS_insecure)) {
    return absl::InvalidArgumentError(
        "--insecure is gone: a listener that other machines can reach speaks TLS (a certificate is made at the first "
        "start) and demands tokens; leave the flag out, and see docs/security.md for what clients need");
  }
  return options;
}

// A coordinator of what can be read, on a copy in `scratch`.
absl::StatusOr<std::unique_ptr<Coordinator>> OpenReadOnly(CoordinatorOptions options, const std::string& scratch) {
  const std::string path = JoinPath(options.data_dir, "ablate.db");
  if (!FileExists(path)) return absl::NotFoundError(absl::StrCat("there is no database ", path));
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<DataDirLock> lock, DataDirLock::Acquire(options.data_dir));
  ABLATE_ASSIGN_OR_RETURN(const Salvaged salvaged, Salvage(path, scratch));
  ReadOnlyOptions read_only;
  if (salvaged.damaged) {
    const std::vector<std::string> losses = salvaged.Losses();
    read_only.damage = losses.empty() ? "every row was read" : absl::StrJoin(losses, "; ");
    read_only.damage = absl::StrCat(path, " is damaged; of what is left: ", read_only.damage);
    read_only.definitions_whole = salvaged.complete_definitions();
    std::fprintf(stderr, "ablate-server: %s\n", read_only.damage.c_str());
  }
  options.data_dir = scratch;
  return Coordinator::OpenReadOnly(options, read_only);
}

// For a server that does not run: no address, no worker, only the database.
absl::Status CreateToken() {
  ABLATE_ASSIGN_OR_RETURN(const CoordinatorOptions options, OptionsFromFlags());
  const std::string role_name = absl::GetFlag(FLAGS_create_token), name = absl::GetFlag(FLAGS_token_name);
  const std::optional<Role> role = ParseRole(role_name);
  if (!role.has_value())
    return absl::InvalidArgumentError(absl::StrCat("--create-token \"", role_name, "\"", DidYouMean(role_name, RoleNames())));
  ABLATE_RETURN_IF_ERROR(MakeDirs(options.data_dir));
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Open({.data_dir = options.data_dir});
  if (!store.ok()) {
    return absl::Status(store.status().code(),
                        absl::StrCat(store.status().message(), " (of a server that runs: `ablate token create --role ",
                                     role_name, " --name NAME --data-dir ", options.data_dir, "`)"));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<TokenRegistry> tokens, TokenRegistry::Open(store->get()));
  ABLATE_ASSIGN_OR_RETURN(const TokenRegistry::Created created, tokens->Create(*role, name.empty() ? role_name : name, 0));
  std::printf("%s\n", created.secret.c_str());
  return absl::OkStatus();
}

// Where admins of this machine find a server that demands tokens elsewhere: a socket in the data folder that only its
// owner opens, or in a private folder where that path is too long for one.
std::string LocalSocket(const std::string& data_dir, std::optional<TempDir>* private_dir) {
  const std::string path = FromAnywhere(absl::StrCat("unix:", JoinPath(data_dir, "local.sock")));
  if (path.size() - 5 < sizeof(sockaddr_un::sun_path)) return path;
  private_dir->emplace();
  return absl::StrCat("unix:", JoinPath((*private_dir)->path(), "local.sock"));
}

// Where clients look for the server. Where the disk has no room for it, it serves all the same: what is there can be read.
absl::Status WriteAddress(const std::string& path, const std::string& address) {
  const absl::Status status = WriteFileAtomic(path, address + "\n");
  if (!absl::IsResourceExhausted(status)) return status;
  LOG(WARNING) << status.message() << ": make room; until then clients find this server by its address alone (--server)";
  RemoveFile(path).IgnoreError();  // of an earlier one
  return absl::OkStatus();
}

absl::Status Serve(const sigset_t& signals) {
  ABLATE_ASSIGN_OR_RETURN(CoordinatorOptions options, OptionsFromFlags());
  const SteppedClock stepped(&Clock::Real(), absl::GetFlag(FLAGS_test_wall_offset_file));
  if (!absl::GetFlag(FLAGS_test_wall_offset_file).empty()) options.clock = &stepped;
  const bool read_only = absl::GetFlag(FLAGS_read_only);
  if (!read_only) ABLATE_RETURN_IF_ERROR(MakeDirs(options.data_dir));
  std::optional<TempDir> scratch;
  if (read_only) scratch.emplace();
  ServerAccess access;
  // A reader of a copy leaves no certificate behind, but shows the one that clients know if there is one.
  const bool has_certificate = FileExists(JoinPath(options.data_dir, "tls/certificate.pem"));
  const std::string certificate_dir = read_only && !has_certificate ? scratch->path() : options.data_dir;
  ABLATE_ASSIGN_OR_RETURN(access.security, SecureListener(ListenerFlagsGiven(absl::GetFlag(FLAGS_listen)), certificate_dir));
  HttpServerOptions http_options;
  http_options.address = absl::GetFlag(FLAGS_http);
  http_options.host_names = absl::GetFlag(FLAGS_http_host);
  http_options.read_only = read_only;
  if (!http_options.address.empty()) {
    ABLATE_ASSIGN_OR_RETURN(http_options.access.security,
                            SecureListener(ListenerFlagsGiven(http_options.address), certificate_dir));
  }
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<ArtifactStore> artifacts,
                          ArtifactStore::Open(JoinPath(read_only ? scratch->path() : options.data_dir, "artifacts"),
                                              absl::GetFlag(FLAGS_min_free_bytes)));
  options.has_artifact = [store = artifacts.get()](const std::string& sha256) { return store->Has(sha256); };
  options.delete_artifact = [store = artifacts.get()](const std::string& sha256) {
    const absl::Status status = store->Remove(sha256);
    if (!status.ok()) LOG(WARNING) << "cannot remove an artifact: " << status.message();
  };
  options.sweep_artifacts = [store = artifacts.get()](const auto& is_named) {
    store->RemoveUnnamed(is_named, kUnnamedArtifactLifeSeconds);
  };
  options.no_new_jobs = [dir = options.data_dir, floor = absl::GetFlag(FLAGS_min_free_bytes)]() -> std::string {
    const absl::StatusOr<uint64_t> free = FreeBytes(dir);
    if (!free.ok()) return std::string(free.status().message());
    if (*free >= static_cast<uint64_t>(floor)) return "";
    return absl::StrCat("only ", HumanBytes(*free), " are free on the disk of the coordinator's ", dir, ", less than its "
                        "--min-free-bytes of ", HumanBytes(static_cast<uint64_t>(floor)));
  };
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<Coordinator> coordinator,
                          read_only ? OpenReadOnly(options, scratch->path()) : Coordinator::Open(options));
  std::unique_ptr<TokenRegistry> tokens;
  // Of a damaged database they may be lost; then only a listener that demands none can be had.
  const bool demands_tokens = access.security.tokens || http_options.access.security.tokens;
  if (!read_only || demands_tokens) {
    ABLATE_ASSIGN_OR_RETURN(tokens, TokenRegistry::Open(coordinator->store()));
    access.tokens = http_options.access.tokens = tokens.get();
  }
  ABLATE_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcServer> server,
                          GrpcServer::Start(absl::GetFlag(FLAGS_listen), coordinator.get(), artifacts.get(),
                                            absl::GetFlag(FLAGS_max_threads), access));
  std::optional<TempDir> private_dir;
  std::unique_ptr<GrpcServer> local;
  if (access.security.tokens) {
    ABLATE_ASSIGN_OR_RETURN(local, GrpcServer::Start(LocalSocket(read_only ? scratch->path() : options.data_dir, &private_dir), coordinator.get(),
                                                     artifacts.get(), kLocalThreads, {.tokens = tokens.get()}));
  }

  std::unique_ptr<HttpServer> http;
  if (!http_options.address.empty()) {
    ABLATE_ASSIGN_OR_RETURN(http, HttpServer::Start(http_options, coordinator.get()));
  }

  // Where `ablate --data-dir DIR` finds the server that has DIR open.
  const std::string address_file = JoinPath(options.data_dir, "server.address");
  const std::string dashboard_file = JoinPath(options.data_dir, "dashboard.address");
  const std::string ready_file = absl::GetFlag(FLAGS_ready_file);
  const std::string reachable = FromAnywhere(server->address());
  if (!read_only) {
    ABLATE_RETURN_IF_ERROR(WriteAddress(address_file, local == nullptr ? reachable : local->address()));
  }
  if (http != nullptr && !read_only) {
    ABLATE_RETURN_IF_ERROR(WriteAddress(dashboard_file, http->url()));
  } else if (!read_only) {
    (void)RemoveFile(dashboard_file);  // of one that was killed
  }
  std::printf("listening on %s\n", server->address().c_str());
  if (http != nullptr) std::printf("dashboard %s\n", http->url().c_str());
  const ListenerSecurity& with_tls = access.security.tls ? access.security : http_options.access.security;
  if (with_tls.tls) std::printf("certificate %s\n", with_tls.fingerprint.c_str());
  if (demands_tokens && !tokens->HasLive()) {
    std::printf("no token yet: ablate token create --role ROLE --name NAME --data-dir %s\n", options.data_dir.c_str());
  }
  std::fflush(stdout);
  // Last: who waits for it may read what was printed.
  if (!ready_file.empty()) ABLATE_RETURN_IF_ERROR(WriteFileAtomic(ready_file, reachable + "\n"));

  int signal = 0;
  ::sigwait(&signals, &signal);
  LOG(INFO) << "stopping on " << ::strsignal(signal);
  // A second signal ends it at once: whatever was answered is on the disk.
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  if (!read_only) (void)RemoveFile(address_file);
  if (http != nullptr && !read_only) (void)RemoveFile(dashboard_file);
  coordinator->Shutdown();
  if (http != nullptr) http->Shutdown();
  server->Shutdown();
  if (local != nullptr) local->Shutdown();
  return absl::OkStatus();
}

constexpr const char* kFlagNames[] = {"--http",              "--http-host",     "--tls",               "--tls-cert",      "--tls-key",
                                      "--tls-client-ca",     "--require-tokens", "--create-token",
                                      "--token-name",
                                      "--data-dir",          "--listen",        "--insecure",
                                      "--ready-file",        "--lease-seconds", "--contact-seconds",
                                      "--idle-wait-seconds", "--max-failures",  "--max-threads",
                                      "--sweep-max-failures", "--retry-seconds", "--test-wall-offset-file",
                                      "--min-free-bytes",    "--check",         "--deep",
                                      "--backup",            "--restore",       "--read-only",
                                      "--export",            "--curves"};

int UsageFailure(const std::string& message) {
  std::fprintf(stderr, "ablate-server: %s (see ablate-server --help)\n", message.c_str());
  return 2;
}

// Check, backup, restore, export: done, and not served afterwards. nullopt: none was asked for.
absl::StatusOr<std::optional<int>> Maintain() {
  const bool check = absl::GetFlag(FLAGS_check), deep = absl::GetFlag(FLAGS_deep);
  const std::string backup = absl::GetFlag(FLAGS_backup), restore = absl::GetFlag(FLAGS_restore);
  const std::string data_dir = absl::GetFlag(FLAGS_data_dir);
  const std::string sweep = absl::GetFlag(FLAGS_export), export_to = absl::GetFlag(FLAGS_export_to);
  const bool curves = absl::GetFlag(FLAGS_curves), exports = !sweep.empty() || !export_to.empty();
  const int asked = check + !backup.empty() + !restore.empty() + exports + absl::GetFlag(FLAGS_read_only);
  if (asked > 1) return absl::InvalidArgumentError("--check, --backup, --restore, --export, --read-only: one of them at a time");
  if (deep && !check) return absl::InvalidArgumentError("--deep goes with --check");
  if (curves && !exports) return absl::InvalidArgumentError("--curves goes with --export");
  if (exports && (sweep.empty() || export_to.empty())) return absl::InvalidArgumentError("--export needs a sweep and a new folder");
  if (!check && backup.empty() && restore.empty() && !exports) return std::optional<int>();
  if (data_dir.empty()) return absl::InvalidArgumentError("--data-dir is missing: name the folder");
  if (check) {
    ABLATE_ASSIGN_OR_RETURN(const CheckOutcome outcome, CheckDataDir(data_dir, deep));
    std::fputs(outcome.text.c_str(), stdout);
    return std::optional<int>(outcome.ok ? 0 : 1);
  }
  ABLATE_ASSIGN_OR_RETURN(const std::string done, exports          ? ExportFromDataDir(data_dir, sweep, curves, export_to)
                                                  : backup.empty() ? RestoreDataDir(restore, data_dir)
                                                                   : BackupDataDir(data_dir, backup));
  std::fputs(done.c_str(), stdout);
  return std::optional<int>(0);
}

int Main(int argc, char** argv) {
  const auto asked = SetFlags({std::begin(kFlagNames), std::end(kFlagNames)},
                              {"--insecure", "--tls", "--require-tokens", "--check", "--deep", "--read-only", "--curves"},
                              {argv, argv + argc}, {{"--export", "export_to"}});
  if (!asked.ok()) return UsageFailure(std::string(asked.status().message()));
  if (*asked == FlagWords::kHelp) return std::fputs(kUsage, stdout) < 0;
  if (*asked == FlagWords::kVersion) return std::printf("ablate-server %s\n", BuildVersion()) < 0;

  // What tokens guard must not lie open beside them: data folders, backups and all files are this user's alone.
  ::umask(077);
  // Before the first thread of gRPC's exists: later ones inherit the mask.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // gRPC's own complaints repeat ours, unreadably.
  ::setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);

  InitLogging(argv[0]);
  const absl::StatusOr<std::optional<int>> maintained = Maintain();
  if (maintained.ok() && maintained->has_value()) return **maintained;
  const absl::Status status = !maintained.ok()                          ? maintained.status()
                              : absl::GetFlag(FLAGS_create_token).empty() ? Serve(signals)
                                                                          : CreateToken();
  if (status.ok()) return 0;
  if (absl::IsInvalidArgument(status)) return UsageFailure(std::string(status.message()));
  std::fprintf(stderr, "ablate-server: %s\n", std::string(status.message()).c_str());
  return absl::IsFailedPrecondition(status) || absl::IsAlreadyExists(status) ? 5 : 1;
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) {
#ifdef __GLIBC__
  // Answers of megabytes are made on as many threads as there are connections: each would keep a heap of its own for the largest.
  mallopt(M_ARENA_MAX, 4);
#endif
  const int code = ablate::Main(argc, argv);
  // Everything is closed and durable. gRPC's threads are left alone: to end them it may wait 10 s for one that polls.
  std::fflush(nullptr);
  std::_Exit(code);
}
