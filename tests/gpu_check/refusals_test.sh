#!/usr/bin/env bash
# What scripts/gpu_check.sh says and how it ends where it can check nothing. The GPUs are worker/trainer/testing/fake_cuda_library.cc.
#   refusals_test.sh GPU_CHECK TRAINER FAKE_LIBRARY
set -uo pipefail
script=$1 trainer=$2 fake=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

# expect CODE WORDS COMMAND...
expect() {
  local code=$1 words=$2 said
  shift 2
  said=$("$@" 2>&1)
  local got=$?
  if [ "$got" != "$code" ] || ! grep -qF "$words" <<< "$said"; then
    echo "expected exit code $code and \"$words\" of: $*"$'\n'"got exit code $got and: $said"
    failures=$((failures + 1))
  fi
}

mkdir -p "$dir/packed/bin"
expect 2 "scripts/gpu_check.sh run" "$script"
expect 2 "holds no programs" "$script" run "$dir/packed"
cp "$trainer" "$dir/packed/bin/"
expect 2 "gpu_check: nothing to check: no CUDA backend at /nowhere" env ABLATE_CUDA_LIBRARY=/nowhere "$script" run "$dir/packed"
export ABLATE_CUDA_LIBRARY=$fake
expect 77 "gpu_check: no GPU here: as told" env FAKE_CUDA="result=2" "$script" run "$dir/packed"
expect 77 "gpu_check: no GPU here: the driver shows none" env FAKE_CUDA="gpus=0" "$script" run "$dir/packed"
[ ! -e "$dir/packed/results" ] || { echo "results were written without a GPU"; failures=$((failures + 1)); }
# With a GPU and nothing to check with, every check fails and is counted.
expect 1 "gpu_check: 0 passed, " env FAKE_CUDA="gpus=1" GPU_CHECK_OUT="$dir/out" "$script" run "$dir/packed"
grep -q "^FAIL  attention_float32" "$dir/out/summary.txt" || { echo "a missing program was not counted"; failures=$((failures + 1)); }
exit $((failures > 0))
