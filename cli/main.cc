// ablate: parses the command line and runs one command. Only here is anything turned into an exit code.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/command_line.h"
#include "cli/commands.h"

namespace ablate {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "ablate: %s\n", std::string(status.message()).c_str());
  return ExitCodeFor(status);
}

// A closed one would be taken by the next file or socket, and output would go there.
void KeepStandardFiles() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is `fd`. Opened for reading only, stdout fails when it is written to.
    ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int Finish(int code) {
  const absl::Status status = FinishOutput();
  if (status.ok() || (code != kExitDone && code != kExitJobsFailed)) return code;
  // A reader that has seen enough needs no words, only no claim that all went through.
  if (!absl::IsAborted(status)) Fail(status);
  return kExitOutput;
}

int Main(int argc, char** argv) {
  KeepStandardFiles();
  // gRPC's own complaints repeat ours, unreadably.
  ::setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  ::signal(SIGPIPE, SIG_IGN);
  InitLogging(argv[0]);
  const absl::StatusOr<Invocation> invocation = ParseCommandLine({argv + 1, argv + argc}, Commands());
  if (!invocation.ok()) return Fail(invocation.status());
  if (invocation->help) {
    const std::string help =
        invocation->command != nullptr ? CommandHelp(*invocation->command) : GeneralHelp(Commands());
    std::fputs(help.c_str(), stdout);
    return Finish(kExitDone);
  }
  const absl::StatusOr<int> code = invocation->command->run(*invocation);
  return Finish(code.ok() ? *code : Fail(code.status()));
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) { return ablate::Main(argc, argv); }
