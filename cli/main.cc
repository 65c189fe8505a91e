// ablate: parses the command line and runs one command. Only here is anything turned into an exit code.
#include <signal.h>

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

int Main(int argc, char** argv) {
  // gRPC's own complaints repeat ours, unreadably.
  ::setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  ::signal(SIGPIPE, SIG_IGN);
  InitLogging(argv[0]);
  const absl::StatusOr<Invocation> invocation = ParseCommandLine({argv + 1, argv + argc}, Commands());
  if (!invocation.ok()) return Fail(invocation.status());
  if (invocation->help) {
    const std::string help = invocation->command != nullptr ? CommandHelp(*invocation->command) : GeneralHelp(Commands());
    std::fputs(help.c_str(), stdout);
    return kExitDone;
  }
  const absl::StatusOr<int> code = invocation->command->run(*invocation);
  return code.ok() ? *code : Fail(code.status());
}

}  // namespace
}  // namespace ablate

int main(int argc, char** argv) { return ablate::Main(argc, argv); }
