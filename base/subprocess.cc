#include "base/subprocess.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace ablate {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
};

bool OpenPipe(Pipe* out) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return false;
  out->read = fds[0];
  out->write = fds[1];
  return true;
}

bool IsNamed(const std::string& name, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const bool is_prefix = !pattern.empty() && pattern.back() == '*';
    if (is_prefix ? name.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0 : name == pattern) return true;
  }
  return false;
}

void CloseFd(int* fd) {
  if (*fd >= 0) ::close(*fd);
  *fd = -1;
}

}  // namespace

std::string ExitStatus::Describe() const {
  if (signal != 0) return absl::StrCat("signal ", signal, " (", ::strsignal(signal), ")");
  return absl::StrCat("exit code ", code);
}

absl::StatusOr<Subprocess> Subprocess::Start(const SubprocessOptions& options) {
  // Everything that allocates happens before fork: another thread may hold the allocator's lock.
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry, name = text.substr(0, text.find('='));
    if (options.inherited_environment && !IsNamed(name, *options.inherited_environment)) continue;
    if (options.environment.count(name) == 0) environment.push_back(text);
  }
  for (const auto& [name, value] : options.environment) environment.push_back(absl::StrCat(name, "=", value));
  std::vector<char*> argv, envp;
  for (const std::string& arg : options.argv) argv.push_back(const_cast<char*>(arg.c_str()));
  for (const std::string& entry : environment) envp.push_back(const_cast<char*>(entry.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  Pipe in, out, err, report;
  int err_file = -1;
  bool opened = OpenPipe(&report);
  if (opened && options.pipe_stdin) opened = OpenPipe(&in);
  if (opened && options.pipe_stdout) opened = OpenPipe(&out);
  if (opened) {
    if (options.stderr_path.empty()) {
      opened = OpenPipe(&err);
    } else {
      err_file = ::open(options.stderr_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      opened = err_file >= 0;
    }
  }
  const auto close_all = [&] {
    for (int* fd :
         {&in.read, &in.write, &out.read, &out.write, &err.read, &err.write, &report.read, &report.write, &err_file}) {
      CloseFd(fd);
    }
  };
  if (!opened) {
    const std::string message = absl::StrCat("cannot set up pipes for ", options.argv[0], ": ", std::strerror(errno));
    close_all();
    return absl::ResourceExhaustedError(message);
  }

  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    const std::string message = absl::StrCat("cannot start ", options.argv[0], ": ", std::strerror(errno));
    close_all();
    return absl::ResourceExhaustedError(message);
  }
  if (pid == 0) {
    // Only async-signal-safe calls from here to exec.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    if (options.own_process_group) ::setpgid(0, 0);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    const int null_in = options.pipe_stdin ? in.read : ::open("/dev/null", O_RDONLY);
    ::dup2(null_in, 0);
    if (options.pipe_stdout) ::dup2(out.write, 1);
    ::dup2(err_file >= 0 ? err_file : err.write, 2);
    int error = 0;
    if (options.sandbox != nullptr) {
      // Marked, not closed: the report goes through one of them until the program starts.
      (void)::syscall(SYS_close_range, 3u, ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
      error = options.sandbox->Enter();
    }
    if (error == 0) {
      ::execve(argv[0], argv.data(), envp.data());
      error = errno;
    }
    (void)!::write(report.write, &error, sizeof(error));
    ::_exit(127);
  }

  CloseFd(&in.read);
  CloseFd(&out.write);
  CloseFd(&err.write);
  CloseFd(&err_file);
  CloseFd(&report.write);
  // The report pipe closes on a successful exec; otherwise it carries the error.
  int error = 0;
  ssize_t count = 0;
  do {
    count = ::read(report.read, &error, sizeof(error));
  } while (count < 0 && errno == EINTR);
  CloseFd(&report.read);

  Subprocess process;
  process.pid_ = pid;
  process.stdin_fd_ = in.write;
  process.stdout_fd_ = out.read;
  process.stderr_fd_ = err.read;
  if (count == sizeof(error)) {
    process.Wait();
    return absl::NotFoundError(absl::StrCat("cannot run ", options.argv[0], ": ", std::strerror(error)));
  }
  return process;
}

Subprocess::Subprocess(Subprocess&& other) noexcept { *this = std::move(other); }

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  if (this == &other) return *this;
  Release();
  pid_ = std::exchange(other.pid_, -1);
  stdin_fd_ = std::exchange(other.stdin_fd_, -1);
  stdout_fd_ = std::exchange(other.stdout_fd_, -1);
  stderr_fd_ = std::exchange(other.stderr_fd_, -1);
  exited_ = other.exited_;
  exit_ = other.exit_;
  return *this;
}

Subprocess::~Subprocess() { Release(); }

void Subprocess::Release() {
  if (pid_ > 0 && !HasExited()) {
    Kill(SIGKILL);
    Wait();
  }
  CloseFd(&stdin_fd_);
  CloseFd(&stdout_fd_);
  CloseFd(&stderr_fd_);
  pid_ = -1;
}

void Subprocess::CloseStdin() { CloseFd(&stdin_fd_); }

void Subprocess::Kill(int signal) {
  if (pid_ > 0 && !exited_) ::kill(pid_, signal);
}

bool Subprocess::Reap(bool block) {
  if (exited_ || pid_ <= 0) return true;
  int status = 0;
  struct rusage usage = {};
  pid_t result = 0;
  do {
    result = ::wait4(pid_, &status, block ? 0 : WNOHANG, &usage);
  } while (result < 0 && errno == EINTR);
  if (result == 0) return false;
  exited_ = true;
  if (result == pid_) {
    exit_.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    exit_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    exit_.peak_rss_bytes = static_cast<int64_t>(usage.ru_maxrss) * 1024;
    exit_.user_seconds = usage.ru_utime.tv_sec + usage.ru_utime.tv_usec * 1e-6;
    exit_.system_seconds = usage.ru_stime.tv_sec + usage.ru_stime.tv_usec * 1e-6;
  } else {
    exit_.code = -1;
  }
  return true;
}

ExitStatus Subprocess::Wait() {
  Reap(/*block=*/true);
  return exit_;
}

bool Subprocess::HasExited() { return Reap(/*block=*/false); }

}  // namespace ablate
