#!/usr/bin/env bash
# Flags of golden_check that mean nothing are refused, never passed over.   flags_test.sh GOLDEN_CHECK GOLDEN_FOLDER
set -uo pipefail
check=$1 golden=$2
failures=0

# expect CODE WORDS ARGUMENT...
expect() {
  local code=$1 words=$2 said got
  shift 2
  said=$("$check" "$@" 2>&1)
  got=$?
  if [ "$got" != "$code" ] || ! grep -qF "$words" <<< "$said"; then
    echo "expected exit code $code and \"$words\" of: $*"$'\n'"got exit code $got and: $said"
    failures=$((failures + 1))
  fi
}

expect 0 " 0 failed" attention "$golden/attention.json" --precision fp32
expect 0 " 0 failed" attention "$golden/attention.json" --precision float32
expect 0 " 0 failed" statistics "$golden/statistics.json" --backend cpu
expect 2 "expected fp32 or bf16" attention "$golden/attention.json" --precision fp16
expect 2 "there is no backend \"nonsense\"" attention "$golden/attention.json" --backend nonsense
expect 2 "leave --backend and --precision out" statistics "$golden/statistics.json" --backend nonsense
expect 2 "leave --backend and --precision out" statistics "$golden/statistics.json" --backend cuda
expect 2 "leave --backend and --precision out" statistics "$golden/statistics.json" --precision bf16
expect 2 "expected all, or the name of a variant" device nonsense --backend cpu
exit $((failures > 0))
