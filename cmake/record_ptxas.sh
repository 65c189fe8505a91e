#!/usr/bin/env bash
# A compiler launcher for nvcc: runs the command, keeps what ptxas reports (registers, spills, shared memory) in
# OBJECT.ptxas, and lets everything else through.
set -uo pipefail
object=
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
report=$(mktemp)
trap 'rm -f "$report"' EXIT
"$@" 2>"$report"
code=$?
is_ptxas='^ptxas info|^ +[0-9]+ bytes stack frame|^ptxas \. '
case "$object" in
  *.o) grep -E "$is_ptxas" "$report" >"$object.ptxas" ;;
esac
grep -Ev "$is_ptxas" "$report" >&2
exit $code
