#!/usr/bin/env bash
# What the tests on the emulator cannot show, checked on a real GPU in under five minutes: numbers, bits, a sweep, speed.
#   scripts/gpu_check.sh pack [DIR]   builds the programs, linked statically, and the CUDA library, and gathers in DIR
#                                     (build/gpu_check) all that a machine without packages needs beside cuBLAS; and DIR.tar.gz
#   scripts/gpu_check.sh run [DIR]    runs the checks of a packed DIR, or of a build folder (default: where this script was packed
#                                     to, else build/release); results go to GPU_CHECK_OUT (DIR/results)
# Prints a line a check, PASS, FAIL or SKIP, and a summary. Exit codes: 0 all passed, 1 a check failed or had no time
# (GPU_CHECK_SECONDS, 270), 2 usage or programs that do not run, 77 no GPU here. Speeds are printed and kept, and fail nothing:
# bench/README.md says what is aimed at.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
self=$here/$(basename "$0")
budget=${GPU_CHECK_SECONDS:-270}

programs="ablate ablate-server ablate-worker ablate-trainer golden_check device_bench"

pack() {
  cd "$here/.." || exit 2
  local dir=${1:-build/gpu_check}
  cmake --preset static || exit 2
  # shellcheck disable=SC2086
  cmake --build --preset static --target $programs test_worker_trainer_session || exit 2
  cmake --preset release -DABLATE_CUDA=ON && cmake --build --preset release --target ablate_cuda || exit 2
  rm -rf "$dir"
  mkdir -p "$dir/bin" "$dir/lib" "$dir/golden" || exit 2
  local program
  for program in $programs; do cp "build/static/bin/$program" "$dir/bin/"; done
  cp build/release/bin/libablate_cuda.so build/static/tests/test_worker_trainer_session "$dir/bin/"
  # What is not linked in (cmake/ablate_static.cmake); of the C library and CUDA the other machine has its own.
  ldd build/static/bin/ablate-trainer build/release/bin/libablate_cuda.so | awk '$2 == "=>" {print $3}' | sort -u |
    grep -Ev '/(libc|libm|libdl|libpthread|librt|libcu[a-zA-Z]*|libnv[a-zA-Z]*)\.so' | xargs -I{} cp -L {} "$dir/lib/"
  strip "$dir"/bin/* "$dir"/lib/*
  cp tests/golden/attention.json tests/golden/model.json "$dir/golden/"
  cp scripts/gpu_check.sh bench/pytorch_gpu_peer.py "$dir/"
  cat docs/*.md README.md > "$dir/text.txt"
  tar -C "$(dirname "$dir")" -czf "$dir.tar.gz" "$(basename "$dir")" || exit 2
  echo "packed $dir ($(du -sh "$dir" | cut -f1)) and $dir.tar.gz ($(du -h "$dir.tar.gz" | cut -f1))"
}

passed=0 failed=0 skipped=0
left() { echo $((budget - SECONDS)); }
say() { echo "$1  $2${3:+  ($3)}" | tee -a "$out/summary.txt"; }

# What the backend logs (kernels/cuda/) where it goes on by a slower way, which no number and no exit code shows.
slow_ways='cuBLAS has no algorithm|could not be recorded as a CUDA graph'

# check NAME LIMIT_SECONDS COMMAND...: its output goes to NAME.log. One without time for it has failed.
check() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  [ "$(left)" -gt "$limit" ] || limit=$(left)
  if [ "$limit" -lt 5 ]; then
    say FAIL "$name" "no time left"
    failed=$((failed + 1))
    return 1
  fi
  timeout "$limit" "$@" > "$out/$name.log" 2>&1
  code=$?
  if [ "$code" = 0 ] && grep -qE "$slow_ways" "$out/$name.log"; then
    say FAIL "$name" "$(grep -m 1 -oE "($slow_ways).*" "$out/$name.log" | cut -c1-120); $out/$name.log"
    failed=$((failed + 1))
    code=1
  elif [ "$code" = 0 ]; then
    say PASS "$name" "$((SECONDS - begin)) s; $(tail -n 1 "$out/$name.log" | cut -c1-120)"
    passed=$((passed + 1))
  else
    say FAIL "$name" "exit code $code; $out/$name.log"
    tail -n 5 "$out/$name.log" | sed 's/^/      /'
    failed=$((failed + 1))
  fi
  return "$code"
}

# measure NAME LIMIT_SECONDS COMMAND...: its lines are the result. It fails nothing, unless the backend took a slower way.
measure() {
  local name=$1 limit=$2 log=$out/measured.log code
  shift 2
  [ "$(left)" -gt "$limit" ] || limit=$(left)
  if [ "$limit" -lt 5 ]; then
    say SKIP "$name" "no time left"
    skipped=$((skipped + 1))
    return
  fi
  timeout "$limit" "$@" 2> "$log" | tee -a "$out/bench.txt"
  code=${PIPESTATUS[0]}
  cat "$log" >> "$out/bench.log"
  [ "$code" = 0 ] || echo "      $name: no result (exit code $code; $out/bench.log)" | tee -a "$out/bench.txt"
  if grep -qE "$slow_ways" "$log"; then
    say FAIL "$name" "$(grep -m 1 -oE "($slow_ways).*" "$log" | cut -c1-120); $out/bench.log"
    failed=$((failed + 1))
  fi
  rm -f "$log"
}

resume_bits() {
  ABLATE_TEST_TRAINER=$bin/ablate-trainer ABLATE_TEST_DEVICE=cuda "$session_test" \
    --gtest_filter='SessionTest.StoppedAndResumedHasTheBitsOfAStraightRun'
}

# Two arms, two seeds, both precisions in turn, two slots on one GPU; then the table.
sweep() {
  local dir server worker code=1
  dir=$(mktemp -d)
  cp "$text" "$dir/text.txt"
  local precision
  for precision in fp32 bf16; do
    cat > "$dir/$precision.yaml" <<EOF
name: gpu-check-$precision
data: {name: docs, path: text.txt, format: text}
requires: {device: cuda}
settings: {model.preset: tiny, model.layers: 2, train.length: 64, train.batch: 8, train.steps: 60, train.precision: $precision,
           eval.target_spans: 8, eval.loss_tokens: 4096}
axes: {attention.variant: [softmax, lssar]}
baseline: {attention.variant: softmax}
seeds: 2
evaluate: {lengths: [1x, 4x], splits: [selection]}
EOF
  done
  "$bin/ablate-server" --data-dir "$dir/data" --listen "unix:$dir/socket" --ready-file "$dir/ready" &
  server=$!
  for _ in $(seq 100); do
    if [ -s "$dir/ready" ] || ! kill -0 "$server" 2> /dev/null; then break; fi
    sleep 0.1
  done
  export ABLATE_SERVER="unix:$dir/socket"
  "$bin/ablate-worker" --server "$ABLATE_SERVER" --device cuda --gpus 0 --slots-per-gpu 2 --work-dir "$dir/work" &
  worker=$!
  if "$bin/ablate" sweep submit "$dir/fp32.yaml" && "$bin/ablate" sweep submit "$dir/bf16.yaml" &&
     "$bin/ablate" sweep wait gpu-check-fp32 --timeout 60s && "$bin/ablate" sweep wait gpu-check-bf16 --timeout 60s; then
    "$bin/ablate" table gpu-check-fp32 && "$bin/ablate" table gpu-check-bf16 && code=0
  fi
  kill -TERM "$worker" "$server"
  wait "$worker" "$server"
  rm -rf "$dir"
  echo "two sweeps through server and worker: exit code $code"
  return "$code"
}

run() {
  local dir=${1:-}
  if [ -z "$dir" ]; then
    dir=$here
    [ -d "$dir/bin" ] || dir=$here/../build/release
  fi
  [ -x "$dir/bin/ablate-trainer" ] || { echo "gpu_check: $dir holds no programs: build them, or run \`gpu_check.sh pack\`" >&2; exit 2; }
  dir=$(cd "$dir" && pwd)
  bin=$dir/bin
  golden=$dir/golden session_test=$bin/test_worker_trainer_session text=$dir/text.txt peer=$dir/pytorch_gpu_peer.py
  if [ ! -d "$golden" ]; then  # a build folder
    local root=$here/..
    golden=$root/tests/golden session_test=$dir/tests/test_worker_trainer_session text=$root/docs/design.md
    peer=$root/bench/pytorch_gpu_peer.py
  fi
  # cuBLAS lies where the toolkit is, or in the folders of Python's wheels.
  local folder
  for folder in /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/local/cuda/targets/*/lib \
    $(python3 -c 'import site; print(" ".join(site.getsitepackages()))' 2> /dev/null | tr ' ' '\n' | sed 's|$|/nvidia/*/lib|'); do
    if compgen -G "$folder/libcublasLt.so.*" > /dev/null; then LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder; fi
  done
  [ ! -d "$dir/lib" ] || LD_LIBRARY_PATH=$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
  local gpus said words code
  said=$(mktemp)
  gpus=$("$bin/ablate-trainer" --list-devices 2> "$said")
  code=$?
  words=$(sed 's/^ablate-trainer: //' "$said")
  rm -f "$said"
  # Only these two say that there is no GPU (kernels/cuda/library.cc); a trainer that does not start says nothing of it.
  case "$code$gpus $words" in
    "0 "*) words="the driver shows none" ;;
    "2 "*"there is no NVIDIA driver here"* | "2 "*"no GPU is visible here"*) ;;
    0*) words="" ;;
    *)
      echo "gpu_check: nothing to check: ${words:-no message} (ablate-trainer --list-devices: exit code $code)" >&2
      exit 2 ;;
  esac
  if [ -n "$words" ]; then
    echo "gpu_check: no GPU here: $words"
    exit 77
  fi
  export bin session_test text
  out=${GPU_CHECK_OUT:-$dir/results}
  mkdir -p "$out" || exit 2
  rm -f "$out"/*.log "$out"/*.txt
  echo "$gpus" | tee "$out/gpus.txt"

  # Whether the numbers are right.
  check attention_float32 30 "$bin/golden_check" attention "$golden/attention.json" --backend cuda
  check attention_bf16 30 "$bin/golden_check" attention "$golden/attention.json" --backend cuda --precision bf16
  check modelled_bf16 60 "$bin/golden_check" bf16 1024 --backend cuda --precision bf16
  check sizes_float32 30 "$bin/golden_check" device all --backend cuda
  check sizes_bf16 30 "$bin/golden_check" device all --backend cuda --precision bf16
  check model_float32 30 "$bin/golden_check" model "$golden/model.json" --backend cuda
  check model_bf16 30 "$bin/golden_check" model "$golden/model.json" --backend cuda --precision bf16
  check probes_float32 30 "$bin/golden_check" probes all --backend cuda
  check resume_bits 60 bash "$self" resume_bits_entry
  check sweep 120 bash "$self" sweep_entry

  # What no comparison of numbers finds.
  local sanitizer
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
  local tool precision
  for tool in memcheck racecheck; do
    if [ -n "$sanitizer" ]; then
      check "$tool" 60 "$sanitizer" --tool "$tool" --error-exitcode 1 \
        "$bin/golden_check" model "$golden/model.json" --backend cuda
      check "${tool}_model_bf16" 40 "$sanitizer" --tool "$tool" --error-exitcode 1 \
        "$bin/golden_check" model "$golden/model.json" --backend cuda --precision bf16
      # Kernels of every width, over several tiles.
      for precision in fp32 bf16; do
        check "${tool}_sizes_$precision" 20 "$sanitizer" --tool "$tool" --error-exitcode 1 \
          "$bin/golden_check" device lssar --backend cuda --precision "$precision"
      done
    else
      say SKIP "$tool" "no compute-sanitizer"
      skipped=$((skipped + 1))
    fi
  done

  # Speed.
  local variant T
  for variant in softmax lssar; do
    measure "train_$variant" 40 "$bin/device_bench" cuda train gpt2-124m "$variant" 1024 16 10 bf16
  done
  for variant in softmax lssar; do
    measure "train_${variant}_16k" 30 "$bin/device_bench" cuda train gpt2-124m "$variant" 16384 1 5 bf16
  done
  for T in 1024 2048 4096 8192 16384; do
    for variant in softmax lssar; do
      measure "attention_$variant" 20 "$bin/device_bench" cuda attention "$variant" "$T" 16384 12 64 bf16
    done
  done
  if python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
    for variant in softmax lssar; do
      measure "pytorch_train_$variant" 60 python3 "$peer" train gpt2-124m "$variant" 1024 16 10
    done
    measure pytorch_train_lssar_16k 45 python3 "$peer" train gpt2-124m lssar 16384 1 5
    for variant in softmax lssar; do
      for T in 1024 16384; do
        measure "pytorch_attention_$variant" 30 python3 "$peer" attention "$variant" "$T" 16384 12 64
      done
    done
  else
    say SKIP pytorch "no PyTorch with CUDA here"
    skipped=$((skipped + 1))
  fi
  for variant in lssa ssmax; do
    measure "attention_$variant" 20 "$bin/device_bench" cuda attention "$variant" 4096 16384 12 64 bf16
  done
  for variant in softmax lssar; do
    measure "attention_$variant" 20 "$bin/device_bench" cuda attention "$variant" 1024 16384 12 64 float32
  done

  echo "gpu_check: $passed passed, $failed failed, $skipped skipped in $SECONDS s; $out" | tee -a "$out/summary.txt"
  [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

case "${1:-}" in
  pack) shift; pack "$@" ;;
  run) shift; run "$@" ;;
  # timeout starts programs, not functions: these two are this script again.
  resume_bits_entry | sweep_entry) "${1%_entry}" ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
