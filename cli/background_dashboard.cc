#include "cli/background_dashboard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "cli/command_line.h"
#include "cli/local_server.h"

extern char** environ;

namespace ablate {
namespace {

constexpr int kDefaultPort = 7480;
constexpr char kLoopback[] = "127.0.0.1:";
constexpr auto kPoll = std::chrono::milliseconds(20);
constexpr auto kStart = std::chrono::seconds(120);  // a large database may have to be migrated
constexpr auto kStop = std::chrono::seconds(20);

std::string PidFile(const std::string& data_dir) { return JoinPath(data_dir, "dashboard.pid"); }
std::string PortFile(const std::string& data_dir) { return JoinPath(data_dir, "dashboard.port"); }

// When the process started, in ticks since the machine did: with it, a number that was given again is not mistaken for
// the old process. "" where there is none, or it has ended and nobody has asked how.
std::string StartOf(pid_t pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 > stat.size()) return "";
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(name_end + 2), ' ');
  return fields.size() < 20 || fields[0] == "Z" || fields[0] == "X" ? "" : fields[19];
}

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& words, const std::string& log_path) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 2, log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  // Whoever waits for the end of one of our pipes must not wait for this server.
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  sigset_t signals;
  ::sigfillset(&signals);
  ::posix_spawnattr_setsigdefault(&attributes, &signals);
  ::sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&attributes, &signals);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::NotFoundError(absl::StrCat("cannot run ", words[0], ": ", std::strerror(error)));
  return pid;
}

}  // namespace

std::optional<pid_t> BackgroundDashboard(const std::string& data_dir) {
  const absl::StatusOr<std::string> content = ReadFile(PidFile(data_dir));
  if (!content.ok()) return std::nullopt;
  const std::vector<std::string> words = absl::StrSplit(absl::StripAsciiWhitespace(*content), ' ');
  pid_t pid = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &pid) || pid <= 1 || words[1].empty()) return std::nullopt;
  if (StartOf(pid) != words[1]) return std::nullopt;
  return pid;
}

absl::StatusOr<pid_t> StartBackgroundDashboard(const std::string& data_dir, const std::string& http) {
  ABLATE_ASSIGN_OR_RETURN(const std::string program, SiblingProgram("ablate-server"));
  std::error_code error;
  const std::string dir = std::filesystem::absolute(data_dir, error).lexically_normal();
  const std::string log_path = JoinPath(dir, "server.log");
  // A folder for a socket would have nobody who removes it.
  std::string address = absl::StrCat("unix:", JoinPath(dir, "run.sock"));
  if (!FitsSocketAddress(address)) address = "127.0.0.1:0";
  const TempDir ready_dir;
  const std::string ready_file = JoinPath(ready_dir.path(), "ready");
  const uint64_t log_begin = FileSize(log_path).value_or(0);
  ABLATE_ASSIGN_OR_RETURN(const pid_t pid, Spawn({program, "--data-dir", dir, "--listen", address, "--ready-file", ready_file,
                                                  "--http", http},
                                                 log_path));
  const auto deadline = std::chrono::steady_clock::now() + kStart;
  while (!FileExists(ready_file)) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) {
      const std::string said = ReadFile(log_path).value_or("").substr(log_begin);
      return absl::FailedPreconditionError(
          absl::StrCat("cannot open ", data_dir, ": ablate-server ended\n", said.empty() ? Tail(log_path) : said));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      return absl::DeadlineExceededError(absl::StrCat("ablate-server did not get ready on ", data_dir, "; see ", log_path));
    }
    std::this_thread::sleep_for(kPoll);
  }
  ABLATE_RETURN_IF_ERROR(WriteFileAtomic(PidFile(dir), absl::StrCat(pid, " ", StartOf(pid), "\n")));
  return pid;
}

absl::Status StopBackgroundDashboard(const std::string& data_dir) {
  const std::optional<pid_t> pid = BackgroundDashboard(data_dir);
  if (!pid.has_value()) {
    (void)RemoveFile(PidFile(data_dir));
    return absl::NotFoundError(absl::StrCat("no dashboard runs in the background on ", data_dir));
  }
  const std::string start = StartOf(*pid);
  ::kill(*pid, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + kStop;
  while (StartOf(*pid) == start && !start.empty()) {
    if (std::chrono::steady_clock::now() > deadline)
      return absl::DeadlineExceededError(absl::StrCat("the server of ", data_dir, ", process ", *pid, ", does not end"));
    std::this_thread::sleep_for(kPoll);
  }
  return RemoveFile(PidFile(data_dir));
}

std::optional<std::string> DashboardLink(const std::string& data_dir) {
  const absl::StatusOr<std::string> content = ReadFile(JoinPath(data_dir, "dashboard.address"));
  if (!content.ok()) return std::nullopt;
  const std::string link(absl::StripAsciiWhitespace(*content));
  return link.empty() ? std::nullopt : std::optional<std::string>(link);
}

absl::Status CheckDashboardAddress(const std::string& http) {
  const absl::Status status = ParseHostPort(http).status();
  return status.ok() ? status : UsageError(absl::StrCat("--http: ", status.message()));
}

bool IsFreeHere(const std::string& loopback_address) {
  const absl::StatusOr<HostPort> split = ParseHostPort(loopback_address);
  if (!split.ok()) return false;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(split->port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  // Without listen(): a server that begins meanwhile is not in our way, nor we in its.
  const bool free = fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  if (fd >= 0) ::close(fd);
  return free;
}

std::string UsualDashboardAddress(const std::string& data_dir) {
  const std::string kept = ReadFile(PortFile(data_dir)).value_or("");
  int last = 0;
  if (!absl::SimpleAtoi(kept, &last) || last <= 0 || last > 65535) last = kDefaultPort;
  for (const int port : {last, kDefaultPort}) {
    std::string address = absl::StrCat(kLoopback, port);
    if (IsFreeHere(address)) return address;
  }
  return absl::StrCat(kLoopback, 0);
}

void KeepDashboardPort(const std::string& data_dir) {
  const std::string link = DashboardLink(data_dir).value_or(""), begin = absl::StrCat("http://", kLoopback);
  if (!absl::StartsWith(link, begin)) return;
  // A folder that takes no file has no memory, and a page all the same.
  (void)WriteFileAtomic(PortFile(data_dir), absl::StrCat(std::atoi(link.c_str() + begin.size()), "\n"));
}

DashboardStartLock::DashboardStartLock(const std::string& data_dir)
    : fd_(::open(data_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

DashboardStartLock::~DashboardStartLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace ablate
