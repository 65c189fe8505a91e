// A trainer for tests: speaks proto/trainer.proto and does what the key of its task says, in words with "=" between
// name and value:
//   steps=N pause_ms=M        N steps (of a stage: all), each so long
//   checkpoint_every=K        a checkpoint each K steps
//   at=N                      when the next happens: after step N
//   signal=S | exit=C | garbage | truncate | hang | fail=KIND | say=BYTES (on stderr)
//   exit_after=C              after fail: ends, as after a device fault
//   deaf                      takes no notice of a stop
//   use_mb=M                  memory to touch first
//   rights=PATH               fails with what it may do: sockets, reading PATH, its environment, its descriptors
// With --list-devices it prints what FAKE_GPUS holds, or refuses where that is not set; --device cuda:N is its class.
// A checkpoint's weights are "weights <step>" in a file, and a stage that starts from one says so in resumed_from_step.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/hash.h"
#include "proto/trainer.pb.h"
#include "worker/pipe.h"

namespace ablate {
namespace {

using Script = std::map<std::string, std::string>;

Script Parse(const std::string& key) {
  Script script;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(key, ' ', absl::SkipEmpty()))) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(word, absl::MaxSplits('=', 1));
    script[pair.first] = pair.second;
  }
  return script;
}

int64_t Number(const Script& script, const std::string& name, int64_t otherwise) {
  const auto it = script.find(name);
  return it == script.end() ? otherwise : std::atoll(it->second.c_str());
}

void Send(const v1::TrainerEvent& event) {
  if (!WriteMessage(STDOUT_FILENO, event).ok()) std::exit(0);
}

void Misbehave(const Script& script) {
  if (script.count("say") > 0) {
    std::string text;
    const size_t bytes = static_cast<size_t>(Number(script, "say", 0));
    for (int i = 0; text.size() < bytes; ++i) absl::StrAppend(&text, "line ", i, "\n");
    std::fputs(text.c_str(), stderr);
    std::fputs("last words\n", stderr);
  }
  if (script.count("garbage") > 0) {
    (void)!::write(STDOUT_FILENO, "\xff\xff\xff\xff\xff\xff", 6);
    ::pause();
  }
  if (script.count("truncate") > 0) {
    (void)!::write(STDOUT_FILENO, "\x20half", 5);
    ::_exit(0);
  }
  if (script.count("signal") > 0) {
    const int signal = static_cast<int>(Number(script, "signal", 0));
    ::signal(signal, SIG_DFL);  // a sanitizer's handler would turn it into an exit code
    ::raise(signal);
    ::pause();
  }
  if (script.count("exit") > 0) ::_exit(static_cast<int>(Number(script, "exit", 0)));
  if (script.count("hang") > 0) {
    // As the real one: its ticker goes on while the work hangs.
    for (;;) {
      v1::TrainerEvent event;
      event.mutable_progress()->set_step(Number(script, "at", 0));
      Send(event);
      ::usleep(5'000);
    }
  }
}

// "inet=13 unix=13 read=13 ... token=no files=3 core=0": errors by number, 0 where it could.
std::string Rights(const std::string& path, const std::string& own_dir) {
  const auto opened = [](int fd) {
    const int error = fd < 0 ? errno : 0;
    if (fd >= 0) ::close(fd);
    return error;
  };
  int descriptors = 0;
  for (int fd = 0; fd < 1024; ++fd) descriptors += ::fcntl(fd, F_GETFD) >= 0;
  rlimit core = {};
  ::getrlimit(RLIMIT_CORE, &core);
  const int inet = opened(::socket(AF_INET, SOCK_STREAM, 0)), local = opened(::socket(AF_UNIX, SOCK_STREAM, 0));
  const int read = opened(::open(path.c_str(), O_RDONLY)), elsewhere = opened(::open("/tmp/ablate-rights", O_WRONLY | O_CREAT, 0600));
  const int own = opened(::open(JoinPath(own_dir, "own").c_str(), O_WRONLY | O_CREAT, 0600));
  const int link = ::symlink(path.c_str(), JoinPath(own_dir, "link").c_str()) == 0 ? 0 : errno;
  const int environment = opened(::open(absl::StrCat("/proc/", ::getppid(), "/environ").c_str(), O_RDONLY));
  // EFAULT where it may look; to trace the parent would stop it.
  char byte = 0;
  iovec here = {&byte, 1}, there = {reinterpret_cast<void*>(0x1000), 1};
  const int memory = ::process_vm_readv(::getppid(), &here, 1, &there, 1, 0) == 1 ? 0 : errno;
  return absl::StrCat("inet=", inet, " unix=", local, " read=", read, " elsewhere=", elsewhere, " own=", own, " link=", link, " environ=", environment,
                      " memory=", memory, " token=", std::getenv("ABLATE_TOKEN") != nullptr ? "yes" : "no",
                      " files=", descriptors, " core=", core.rlim_cur);
}

v1::TrainerCheckpoint Save(const v1::RunStage& run, int64_t step, bool end_state) {
  v1::TrainerCheckpoint checkpoint;
  checkpoint.set_end_state(end_state);
  checkpoint.mutable_ref()->set_stage_key(run.task().stage_key());
  checkpoint.mutable_ref()->set_step(step);
  const auto write = [&](const std::string& what, v1::ArtifactRef* ref) {
    const std::string content = absl::StrCat(what, " ", step, "\n");
    const std::string path = JoinPath(run.checkpoint_dir(), absl::StrCat(step, ".", what));
    if (!WriteFileAtomic(path, content).ok()) std::abort();
    ref->set_sha256(Sha256Hex(content));
    ref->set_bytes(static_cast<int64_t>(content.size()));
    return path;
  };
  checkpoint.set_weights_path(write("weights", checkpoint.mutable_ref()->mutable_weights()));
  if (!end_state || run.task().keep_optimizer()) {
    checkpoint.set_optimizer_path(write("optimizer", checkpoint.mutable_ref()->mutable_optimizer()));
  }
  return checkpoint;
}

// Whether a stop came; blocks until the time is over.
bool StopCame(int64_t millis, bool* with_checkpoint) {
  struct pollfd in = {STDIN_FILENO, POLLIN, 0};
  if (::poll(&in, 1, static_cast<int>(millis)) <= 0) return false;
  v1::TrainerRequest request;
  if (!ReadMessage(STDIN_FILENO, &request).ok()) std::exit(0);
  *with_checkpoint = request.stop().checkpoint();
  return request.has_stop();
}

void Run(const v1::TrainerRequest& request) {
  const bool is_stage = request.has_run_stage();
  const v1::RunStage& run = request.run_stage();
  const Script script = Parse(is_stage ? run.task().stage_key() : request.run_evaluation().task().evaluation_key());
  std::vector<char> memory(static_cast<size_t>(Number(script, "use_mb", 0)) << 20, 'x');
  const int64_t from = is_stage ? std::max(run.task().from_step(), run.start_step()) : 0;
  const int64_t to = Number(script, "steps", 10), every = Number(script, "checkpoint_every", 0),
                at = Number(script, "at", 0);
  if (at == 0) Misbehave(script);
  if (script.count("rights") > 0) {
    v1::TrainerEvent event;
    event.mutable_failed()->set_kind(v1::INVALID_CONFIG);
    event.mutable_failed()->set_message(Rights(script.at("rights"), run.checkpoint_dir()));
    Send(event);
    return;
  }
  for (int64_t step = from + 1; step <= to; ++step) {
    bool with_checkpoint = false;
    if (script.count("deaf") > 0) {
      ::usleep(static_cast<useconds_t>(Number(script, "pause_ms", 0) * 1000));
    } else if (StopCame(Number(script, "pause_ms", 0), &with_checkpoint)) {
      v1::TrainerEvent event;
      if (with_checkpoint && is_stage) *event.mutable_checkpoint() = Save(run, step - 1, false);
      if (event.has_checkpoint()) Send(event);
      event.mutable_stopped()->set_step(step - 1);
      Send(event);
      return;
    }
    v1::TrainerEvent event;
    event.mutable_progress()->set_step(step);
    event.mutable_progress()->set_tokens_per_second(100);
    event.mutable_progress()->set_resumed_from_step(from);
    v1::CurvePoint* point = event.mutable_progress()->add_points();
    point->set_metric("train_loss");
    point->set_step(step);
    Send(event);
    if (every > 0 && step % every == 0 && step < to) {
      *event.mutable_checkpoint() = Save(run, step, false);
      Send(event);
    }
    if (step == at) {
      if (script.count("fail") > 0) {
        v1::FailureKind kind = v1::CODE_ERROR;
        v1::FailureKind_Parse(script.at("fail"), &kind);
        event.mutable_failed()->set_kind(kind);
        event.mutable_failed()->set_message("as told");
        Send(event);
        if (script.count("exit_after") > 0) ::_exit(static_cast<int>(Number(script, "exit_after", 0)));
        return;
      }
      Misbehave(script);
    }
  }
  v1::TrainerEvent event;
  v1::TaskResult result;
  if (is_stage) {
    *event.mutable_checkpoint() = Save(run, to, true);
    *result.mutable_end_state() = event.checkpoint().ref();
    Send(event);
    result.set_resumed_from_step(from);
  } else {
    v1::MetricValue* metric = result.add_metrics();
    metric->set_metric("loss");
    metric->set_value(static_cast<double>(FileSize(request.run_evaluation().weights_path()).value_or(0)));
  }
  result.set_outcome(v1::COMPLETED);
  result.set_device_kind(absl::StrCat("fake/", ::getpid()));
  *event.mutable_done() = result;
  Send(event);
}

int Main(const std::vector<std::string>& args) {
  v1::TrainerEvent event;
  event.mutable_ready()->set_device_class("cpu");
  event.mutable_ready()->set_device_kind("fake");
  for (const std::string& arg : args) {
    if (arg.rfind("cuda:", 0) == 0) {
      event.mutable_ready()->set_device_class("cuda");
      event.mutable_ready()->set_device_kind("cuda/fake");
    }
    if (arg != "--list-devices") continue;
    const char* const gpus = std::getenv("FAKE_GPUS");
    if (gpus != nullptr) return std::fputs(gpus, stdout) < 0;
    std::fputs("ablate-trainer: no NVIDIA driver here\n", stderr);
    return 2;
  }
  Send(event);
  for (;;) {
    v1::TrainerRequest request;
    if (!ReadMessage(STDIN_FILENO, &request).ok()) return 0;
    if (!request.has_stop()) Run(request);
  }
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) { return ablate::Main({argv + 1, argv + argc}); }
