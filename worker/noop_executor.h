// The built-in test executor: takes the time and comes to the end that the axes noop.seconds and noop.outcome say.
// Computes nothing, checkpoints nothing, uploads nothing; its metrics are made from the job's key, so that tables of it
// have numbers that never change. Thread rule: as Executor.
#pragma once

#include "worker/executor.h"

namespace ablate {

class NoopExecutor : public Executor {
 public:
  v1::AttemptReport Run(const v1::Assignment& assignment, const TaskEvents& events, const StopSignal& stop) override;
};

}  // namespace ablate
