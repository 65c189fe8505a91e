// The trainer's side of the pipe (proto/trainer.proto): takes requests, does one task at a time, sends events.
// Must not know the server. A reader thread takes requests, so that a stop reaches a running task; a ticker thread
// sends progress, so that a long step does not look dead; the thread that calls Run does the work.
#pragma once

#include <string>

#include "base/clock.h"
#include "worker/trainer/device.h"
#include "worker/trainer/stage.h"

namespace ablate {

inline constexpr int kExitOk = 0;
inline constexpr int kExitProtocol = 1;  // the pipe carried what is no request
inline constexpr int kExitOutOfMemory =
    3;  // the host's memory ran out: what is left of this process is not to be trusted
inline constexpr int kExitCodeError = 4;   // an exception that nobody expected; the same holds
inline constexpr int kExitDeviceLost = 5;  // the device failed: this process can use it no more

struct SessionOptions {
  Recompute recompute = Recompute::kAuto;
};

// Serves until in_fd closes; returns the exit code. A task that fails is answered with its failure and the session goes
// on; without host memory, or after a device fault, it is answered, and the session ends. The caller ignores SIGPIPE
// and keeps both descriptors open. The device's backend is open.
int ServePipe(int in_fd, int out_fd, Device* device, const SessionOptions& options, const Clock& clock);

}  // namespace ablate
