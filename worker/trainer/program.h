// ablate-trainer but for its main: flags, the pipe moved out of harm's way, the device, the session. A test's trainer
// gives another way to open devices. Thread rule: the main thread, before any other.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/trainer/device.h"

namespace ablate {

using DeviceFactory =
    std::function<absl::StatusOr<std::unique_ptr<Device>>(const std::string& name, const DeviceOptions& options)>;

// Returns the exit code (kHelp in program.cc lists them), or ends the process with it.
int TrainerMain(int argc, char** argv, const DeviceFactory& new_device);

}  // namespace ablate
