#!/usr/bin/env bash
# What scripts/gpu_check.sh says and how it ends: where it can check nothing, and of programs that say what they are told. The GPUs are worker/trainer/testing/fake_cuda_library.cc.
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
expect 77 "gpu_check: no GPU here: the driver shows none" env FAKE_CUDA="gpus=0" "$script" run "$dir/packed"
expect 2 "gpu_check: nothing to check: as told" env FAKE_CUDA="result=2" "$script" run "$dir/packed"
# A trainer that does not start says nothing of GPUs.
trainer() { printf '#!/bin/bash\n%s\n' "$1" > "$dir/told/bin/ablate-trainer" && chmod +x "$dir/told/bin/ablate-trainer"; }
mkdir -p "$dir/told/bin"
trainer 'echo "ablate-trainer: /lib/libc.so.6: version \`GLIBC_2.99'"'"' not found" >&2; exit 1'
expect 2 "GLIBC_2.99' not found (ablate-trainer --list-devices: exit code 1)" "$script" run "$dir/told"
trainer 'kill -SEGV $$'
expect 2 "exit code 139" "$script" run "$dir/told"
trainer 'echo "ablate-trainer: the NVIDIA driver here knows CUDA 11.0, and this build needs 13.0: update it" >&2; exit 2'
expect 2 "nothing to check: the NVIDIA driver here knows CUDA 11.0" "$script" run "$dir/told"
backend=$(dirname "$script")/../kernels/cuda
for words in "there is no NVIDIA driver here" "no GPU is visible here"; do
  grep -qF "$words" "$backend/library.cc" || { echo "library.cc no longer says: $words"; failures=$((failures + 1)); }
  trainer "echo 'ablate-trainer: $words: do this' >&2; exit 2"
  expect 77 "gpu_check: no GPU here: $words: do this" "$script" run "$dir/told"
  trainer "echo 'ablate-trainer: $words: do this' >&2; exit 1"
  expect 2 "$words" "$script" run "$dir/told"
done
[ ! -e "$dir/packed/results" ] || { echo "results were written without a GPU"; failures=$((failures + 1)); }
# With a GPU and nothing to check with, every check fails and is counted.
expect 1 "gpu_check: 0 passed, " env FAKE_CUDA="gpus=1" GPU_CHECK_OUT="$dir/out" "$script" run "$dir/packed"
grep -q "^FAIL  attention_float32" "$dir/out/summary.txt" || { echo "a missing program was not counted"; failures=$((failures + 1)); }
# Programs that say what they are told, from a folder that is named relatively, by a script that may not be executable.
mkdir -p "$dir/all/bin" "$dir/all/golden"
for program in golden_check device_bench test_worker_trainer_session ablate ablate-server ablate-worker; do
  printf '#!/bin/bash\necho "${0##*/} ran"; echo "$SAID" >&2; exit "${CODE:-0}"\n' > "$dir/all/bin/$program"
done
printf '#!/bin/bash\nprintf "0\\t1\\t1\\t9.0\\t13.0\\tFake\\n"\n' > "$dir/all/bin/ablate-trainer"
chmod +x "$dir/all/bin/"*
cp "$script" "$dir/all/gpu_check.sh"
chmod -x "$dir/all/gpu_check.sh"
cd "$dir/all" || exit 1
export GPU_CHECK_OUT="$dir/out"
expect 0 " 0 failed, " bash gpu_check.sh run
grep -q "^PASS  resume_bits" "$dir/out/summary.txt" && grep -q "^PASS  sweep" "$dir/out/summary.txt" ||
  { echo "a check of the script's own did not run"; cat "$dir/out/summary.txt"; failures=$((failures + 1)); }
grep -q "^device_bench ran" "$dir/out/bench.txt" || { echo "no benchmark ran"; failures=$((failures + 1)); }
expect 1 "FAIL  attention_float32  (no time left)" env GPU_CHECK_SECONDS=1 bash gpu_check.sh run
expect 1 "gpu_check: 0 passed, " env GPU_CHECK_SECONDS=1 bash gpu_check.sh run
expect 1 "train_softmax: no result (exit code 7;" env CODE=7 bash gpu_check.sh run
# Slower ways that the backend takes: words of its sources.
for words in "cuBLAS has no algorithm" "could not be recorded as a CUDA graph"; do
  grep -rqF "$words" "$backend" || { echo "kernels/cuda no longer says: $words"; failures=$((failures + 1)); }
  expect 1 "FAIL  train_softmax  ($words for it" env SAID="W1 $words for it" bash gpu_check.sh run
  grep -q "^FAIL  model_bf16  ($words for it" "$dir/out/summary.txt" || { echo "a check passed though $words"; failures=$((failures + 1)); }
done
exit $((failures > 0))
