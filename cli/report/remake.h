// The commands that make a sweep and its report again: what happened to it, in its order. Must not run anything.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/report/report_files.h"

namespace ablate {

// Files that the sweep was submitted and extended by, oldest first: name within the report -> YAML. The newest is
// sweep.yaml, those before it sweep-1.yaml and so on.
std::vector<std::pair<std::string, std::string>> SweepFiles(const ReportInput& input);

// Lines of a POSIX shell script, to be run in the report's folder with the data beside the sweep file; what has to be
// there, with its SHA-256, as comments. A sweep that was locked by hand needs a coordinator that waits for the lock, so
// a server and a worker are started for it; any other is one `ablate run`, and one more after each extension.
std::vector<std::string> RemakeCommands(const ReportInput& input);

}  // namespace ablate
