// Logging: glog to stderr. LOG(INFO), VLOG(1), LOG_EVERY_N, CHECK and DCHECK come from here.
// CHECK is for broken invariants of our own, never for input.
#pragma once

#include <glog/logging.h>

namespace ablate {

// Call once, first thing in main. All log lines go to stderr, never to files.
void InitLogging(const char* program);

}  // namespace ablate
