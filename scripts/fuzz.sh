#!/usr/bin/env bash
# Runs the fuzz targets of tests/fuzz, by hand: needs clang with its run-time library (Debian: clang libclang-rt-14-dev).
#   scripts/fuzz.sh [SECONDS A TARGET] [TARGET...]     600 seconds and all targets unless told otherwise
# Starts from the kept inputs (tests/fuzz/corpus) and from what earlier runs found (build/fuzz/grown). Prints executions,
# covered edges and findings of each target; a finding is an input under build/fuzz/findings/TARGET. Exit 1 if there is one.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
[[ "$seconds" =~ ^[0-9]+$ ]] || { echo "usage: scripts/fuzz.sh [SECONDS A TARGET] [TARGET...]" >&2; exit 2; }
shift || true

[ -f build/fuzz/build.ninja ] || cmake --preset fuzz
cmake --build --preset fuzz

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cc; do
    name=$(basename "$source")
    targets+=("${name%_fuzz.cc}")
  done
fi

# Where targets keep a database: memory, if there is some.
[ -w /dev/shm ] && export TMPDIR=${TMPDIR:-/dev/shm}
# Leaks are looked for at the end of a run; what a target allocates at once may not pass the limit of its memory.
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=0:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}

failed=0
for name in "${targets[@]}"; do
  folder=build/fuzz/grown/$name findings=build/fuzz/findings/$name log=build/fuzz/$name.log
  mkdir -p "$folder" "$findings"
  before=$(find "$findings" -type f | wc -l)
  dictionary=()
  [ -f "tests/fuzz/$name.dict" ] && dictionary=("-dict=tests/fuzz/$name.dict")
  code=0
  "build/fuzz/fuzz/fuzz_$name" "$folder" "tests/fuzz/corpus/$name" "${dictionary[@]}" -max_total_time="$seconds" \
    -max_len=65536 -timeout=25 -rss_limit_mb=3072 -print_final_stats=1 -artifact_prefix="$findings/" >"$log" 2>&1 || code=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
  edges=$(grep -o ' cov: [0-9]*' "$log" | tail -1 | tr -dc 0-9)
  found=$(($(find "$findings" -type f | wc -l) - before))
  line=$(printf '%-12s %12s executions %8s edges %4s findings' "$name" "${executions:-?}" "${edges:-?}" "$found")
  if [ "$code" -ne 0 ] || [ "$found" -ne 0 ]; then
    failed=1
    line+="   exit $code: $log"
  fi
  echo "$line"
done
exit $failed
