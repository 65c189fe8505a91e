#include "worker/trainer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"

namespace ablate {
namespace {

constexpr size_t kTailBytes = 16 << 10;
constexpr int kSendMs = 10'000;
// A child that was told to end, or whose stdout has ended, gets so long to end by itself.
constexpr int64_t kEndMicros = 2'000'000;
constexpr int64_t kPollMicros = 2'000;

// What libraries of the trainer read. No tokens, no passwords of whatever else the user has set.
const std::vector<std::string>& InheritedEnvironment() {
  static const auto& names = *new std::vector<std::string>{
      "PATH",        "HOME",   "TMPDIR", "TZ",        "LANG",     "LC_*",         "LD_LIBRARY_PATH", "CUDA_*",        "NVIDIA_*",
      "OMP_*",       "GOMP_*", "KMP_*",  "OPENBLAS_*", "MALLOC_*", "GLIBC_TUNABLES", "GLOG_*",        "ABLATE_CUDA_LIBRARY", "ASAN_OPTIONS",
      "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"};
  return names;
}

void SetNonBlocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

bool EndsWithin(Subprocess* child, int64_t micros) {
  const Clock& clock = Clock::Real();
  const int64_t until = clock.MonotonicMicros() + micros;
  while (!child->HasExited()) {
    if (clock.MonotonicMicros() >= until) return false;
    ::usleep(kPollMicros);
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainerProcess>> TrainerProcess::Start(const TrainerCommand& command) {
  SubprocessOptions options;
  options.argv = command.argv;
  options.environment = command.environment;
  options.inherited_environment = InheritedEnvironment();
  options.sandbox = command.sandbox;
  options.own_process_group = true;
  ABLATE_ASSIGN_OR_RETURN(Subprocess child, Subprocess::Start(options));
  for (const int fd : {child.stdin_fd(), child.stdout_fd(), child.stderr_fd()}) SetNonBlocking(fd);
  if (command.guard != nullptr) command.guard->Watch(child.pid());
  return std::unique_ptr<TrainerProcess>(new TrainerProcess(std::move(child), command.guard));
}

TrainerProcess::~TrainerProcess() {
  if (ended_) return;
  child_.CloseStdin();
  // The pipe is not read any more: a child that writes must get an error instead of waiting for room.
  EndsWithin(&child_, kEndMicros);
  Reap();
}

absl::Status TrainerProcess::Send(const v1::TrainerRequest& request) {
  return WriteMessage(child_.stdin_fd(), request, kSendMs);
}

// The group's number is the child's, and stays taken while anything of the group lives.
void TrainerProcess::Reap() {
  ::kill(-child_.pid(), SIGKILL);
  exit_ = child_.Wait();
  if (guard_ != nullptr) guard_->Forget(child_.pid());
  ended_ = true;
}

void TrainerProcess::Kill() { Reap(); }

bool TrainerProcess::ReadEvents() {
  char bytes[64 << 10];
  for (;;) {
    const ssize_t count = ::read(child_.stdout_fd(), bytes, sizeof(bytes));
    if (count > 0) {
      buffer_.Append({bytes, static_cast<size_t>(count)});
      return true;
    }
    if (count == 0) return false;
    if (errno != EINTR) return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

bool TrainerProcess::ReadLog(bool* grew) {
  char bytes[4 << 10];
  for (;;) {
    const ssize_t count = ::read(child_.stderr_fd(), bytes, sizeof(bytes));
    if (count > 0) {
      *grew = true;
      tail_.append(bytes, static_cast<size_t>(count));
      if (tail_.size() > kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
      continue;
    }
    if (count == 0) return false;
    if (errno != EINTR) return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

TrainerProcess::Wake TrainerProcess::Ended() {
  if (!ended_) {
    EndsWithin(&child_, kEndMicros);
    Reap();
  }
  bool grew = false;
  if (log_open_) ReadLog(&grew);
  if (!buffer_.AtBoundary()) {
    fault_ = "its last message was cut short";
  }
  return Wake::kEnded;
}

TrainerProcess::Wake TrainerProcess::Wait(v1::TrainerEvent* event, const StopSignal* stop, int64_t timeout_ms) {
  const Clock& clock = Clock::Real();
  const int64_t until = clock.MonotonicMicros() + timeout_ms * 1000;
  bool at_end = false;
  for (;;) {
    const absl::StatusOr<bool> next = buffer_.Next(event);
    if (!next.ok()) {
      fault_ = std::string(next.status().message());
      Kill();
      return Wake::kBroken;
    }
    if (*next) return Wake::kEvent;
    if (ended_ || at_end) return Ended();

    struct pollfd fds[3] = {{child_.stdout_fd(), POLLIN, 0},
                            {log_open_ ? child_.stderr_fd() : -1, POLLIN, 0},
                            {stop != nullptr ? stop->fd() : -1, POLLIN, 0}};
    const int64_t left_us = until - clock.MonotonicMicros();
    if (left_us < 0) return Wake::kTimeout;
    const int ready = ::poll(fds, 3, static_cast<int>(left_us / 1000 + 1));
    if (ready < 0 && errno != EINTR) {
      fault_ = "poll failed";
      Kill();
      return Wake::kBroken;
    }
    if (ready <= 0) continue;
    if (fds[2].revents != 0) {
      stop->Drain();
      return Wake::kStop;
    }
    if (fds[0].revents != 0) at_end = !ReadEvents();
    if (fds[1].revents != 0) {
      bool grew = false;
      log_open_ = ReadLog(&grew);
      if (grew && fds[0].revents == 0) return Wake::kLog;
    }
  }
}

}  // namespace ablate
