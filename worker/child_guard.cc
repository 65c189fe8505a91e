#include "worker/child_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ablate {
namespace {

constexpr int kMaxGroups = 4096;  // as many as there may be slots

// The guard's whole life. It allocates nothing and logs nothing.
[[noreturn]] void Guard(int fd) {
  ::prctl(PR_SET_NAME, "ablate-guard");
  ::setsid();
  // Whatever ends the daemon's group or session must leave the guard to its work.
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(signal, SIG_IGN);
  // Whoever reads the daemon's output must see its end.
  const int null = ::open("/dev/null", O_RDWR);
  for (int standard : {0, 1, 2}) ::dup2(null, standard);
  static pid_t groups[kMaxGroups];
  int count = 0;
  pid_t number = 0;
  for (;;) {
    const ssize_t got = ::read(fd, &number, sizeof(number));
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof(number)) break;
    if (number > 0 && count < kMaxGroups) groups[count++] = number;
    for (int i = 0; number < 0 && i < count; ++i) {
      if (groups[i] == -number) groups[i--] = groups[--count];
    }
  }
  for (int i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildGuard>> ChildGuard::Start() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  // A grandchild: the daemon's own children are its trainers.
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t guard = ::fork();
    if (guard != 0) ::_exit(guard < 0 ? 1 : 0);
    ::close(fds[1]);
    Guard(fds[0]);
  }
  ::close(fds[0]);
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0 || status != 0) {
    ::close(fds[1]);
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a process: ", std::strerror(errno)));
  }
  return std::unique_ptr<ChildGuard>(new ChildGuard(fds[1]));
}

ChildGuard::~ChildGuard() { ::close(fd_); }

// One write each, far below what a pipe takes in one piece.
void ChildGuard::Tell(pid_t number) { (void)!::write(fd_, &number, sizeof(number)); }
void ChildGuard::Watch(pid_t process_group) { Tell(process_group); }
void ChildGuard::Forget(pid_t process_group) { Tell(-process_group); }

}  // namespace ablate
