#include "cli/local_server.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "cli/client.h"
#include "cli/stop_signals.h"

namespace ablate {
namespace {

constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;
constexpr auto kPoll = std::chrono::milliseconds(10);
constexpr uint64_t kNoRoomBytes = 1 << 20;
constexpr double kStartSeconds = 120;  // a large database may have to be migrated

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

absl::StatusOr<std::string> SiblingProgram(const std::string& name) {
  const std::string path = JoinPath(ProgramDir(), name);
  if (FileExists(path)) return path;
  return absl::NotFoundError(
      absl::StrCat(path,
                   " is missing: the programs of Ablate belong in one folder (build them all with "
                   "`cmake --build --preset release`)"));
}

std::string Tail(const std::string& path, size_t max_bytes) {
  const absl::StatusOr<std::string> content = ReadFile(path);
  if (!content.ok()) return "";
  std::string tail = content->size() > max_bytes ? content->substr(content->size() - max_bytes) : *content;
  if (tail.size() < content->size()) tail.erase(0, tail.find('\n') + 1);
  return tail;
}

bool StopProcess(Subprocess* process, double seconds) {
  // Who does not want to wait for the one child will not want to wait for the next.
  static std::atomic<bool> hurry = false;
  const DeferStop defer;
  const int stops = StopCount();
  process->Kill(SIGTERM);
  const auto start = std::chrono::steady_clock::now();
  while (!process->HasExited()) {
    if (StopCount() > stops) hurry = true;
    if (StopCount() > stops || SecondsSince(start) > (hurry ? std::min(seconds, 1.0) : seconds)) {
      process->Kill(SIGKILL);
      process->Wait();
      return false;
    }
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

std::optional<std::string> RunningServer(const std::string& data_dir) {
  const absl::StatusOr<std::string> content = ReadFile(JoinPath(data_dir, "server.address"));
  if (!content.ok()) return std::nullopt;
  const std::string address(absl::StripAsciiWhitespace(*content));
  // The file outlives a server that was killed: ask.
  if (address.empty() || !Client(address).Answers(5)) return std::nullopt;
  return address;
}

bool FitsSocketAddress(const std::string& address) { return address.size() - 5 <= kMaxSocketPath; }

absl::StatusOr<std::string> SocketAddress(const std::string& data_dir, std::string* private_dir) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(data_dir, error).lexically_normal();
  const std::string path = JoinPath(absolute, "run.sock");
  if (!error && FitsSocketAddress(absl::StrCat("unix:", path))) return absl::StrCat("unix:", path);
  char name[] = "/tmp/ablate-XXXXXX";
  if (::mkdtemp(name) == nullptr) return absl::UnavailableError("cannot make a folder for a socket under /tmp");
  *private_dir = name;
  return absl::StrCat("unix:", name, "/run.sock");
}

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Start(const std::string& data_dir,
                                                                const std::string& log_path,
                                                                const std::string& http, bool read_only) {
  ABLATE_ASSIGN_OR_RETURN(const std::string program, SiblingProgram("ablate-server"));
  std::unique_ptr<LocalServer> server(new LocalServer);
  server->read_only_ = read_only;
  if (read_only) {  // leaves nothing in a folder that it only reads
    server->private_dir_ = "/tmp/ablate-XXXXXX";
    if (::mkdtemp(server->private_dir_.data()) == nullptr) {
      server->private_dir_.clear();
      return absl::UnavailableError("cannot make a folder for a socket under /tmp");
    }
    server->address_ = absl::StrCat("unix:", server->private_dir_, "/run.sock");
  } else {
    ABLATE_ASSIGN_OR_RETURN(server->address_, SocketAddress(data_dir, &server->private_dir_));
  }
  const TempDir ready_dir;
  const std::string ready_file = JoinPath(ready_dir.path(), "ready");
  SubprocessOptions options;
  options.argv = {program,    "--data-dir",        data_dir, "--listen", server->address_, "--ready-file",
                  ready_file, "--contact-seconds", "0.5"};  // for the eye: the worker is on this machine
  if (!http.empty()) options.argv.insert(options.argv.end(), {"--http", http});
  if (read_only) options.argv.push_back("--read-only");
  options.pipe_stdin = false;
  options.stderr_path = log_path;
  const uint64_t log_begin = FileSize(log_path).value_or(0);
  ABLATE_ASSIGN_OR_RETURN(Subprocess process, Subprocess::Start(options));
  server->process_ = std::move(process);
  const auto start = std::chrono::steady_clock::now();
  while (!FileExists(ready_file)) {
    if (server->process_->HasExited()) {
      const std::string said = ReadFile(log_path).value_or("").substr(log_begin);
      const ExitStatus status = server->process_->Wait();
      const std::string text = absl::StrCat("cannot open ", data_dir, ": ablate-server ended with ", status.Describe(), "\n",
                                            said.empty() ? Tail(log_path) : said);
      const absl::StatusOr<uint64_t> free = FreeBytes(data_dir);
      const bool no_room = !read_only && (absl::StrContains(said, std::strerror(ENOSPC)) || (free.ok() && *free < kNoRoomBytes));
      if (!no_room) return absl::FailedPreconditionError(text);
      return absl::ResourceExhaustedError(absl::StrCat(
          absl::StripTrailingAsciiWhitespace(text), "\nMake room on its disk; reading needs none: `ablate-server --read-only --data-dir ", data_dir, "`"));
    }
    if (SecondsSince(start) > kStartSeconds) {
      return absl::DeadlineExceededError(
          absl::StrCat("ablate-server did not get ready on ", data_dir, "; see ", log_path));
    }
    std::this_thread::sleep_for(kPoll);
  }
  return server;
}

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::StartToRead(const std::string& data_dir,
                                                                      const std::string& log_path,
                                                                      const std::string& http) {
  absl::StatusOr<std::unique_ptr<LocalServer>> server = Start(data_dir, log_path, http);
  if (!absl::IsResourceExhausted(server.status())) return server;
  absl::StatusOr<std::unique_ptr<LocalServer>> reader = Start(data_dir, log_path, http, /*read_only=*/true);
  if (!reader.ok()) return server;  // what has to be mended first
  return reader;
}

LocalServer::~LocalServer() {
  if (process_) StopProcess(&*process_, 10);
  if (!private_dir_.empty()) (void)RemoveTree(private_dir_);
}

}  // namespace ablate
