#!/usr/bin/env bash
# Makes the reports of experiments/results again, each from the database beside it (experiments/results/NAME/ablate.db),
# and compares them with what is there, byte for byte. Ends with 0, or with 1 and the differences.
#   scripts/results.sh [--write] [NAME]...     (all of them; --write replaces what is there, to be looked at as a change)
#   scripts/results.sh --into DIR              makes them in DIR, and compares nothing
#   scripts/results.sh --add NAME DATA_DIR     keeps the sweep NAME of a data folder: its rows without curves, its report
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
bin=${ABLATE_BIN:-build/release/bin}
results=experiments/results
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A copy is read, since a database that is opened gets files beside it. TensorBoard's files repeat numbers of data/.
report() {  # NAME: makes $work/NAME
  mkdir "$work/$1.db"
  cp "$results/$1/ablate.db" "$work/$1.db/"
  "$bin/ablate" report "$1" --data-dir "$work/$1.db" -o "$work/$1" > "$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
  rm -rf "$work/$1/tensorboard"
}

write() {  # NAME
  report "$1"
  find "$results/$1" -mindepth 1 ! -name ablate.db -delete
  cp -r "$work/$1/." "$results/$1/"
  echo "results.sh: wrote $results/$1"
}

mode=compare
case "${1:-}" in
  --write) mode=write; shift ;;
  --add)
    [ $# -eq 3 ] || { echo "usage: scripts/results.sh --add NAME DATA_DIR" >&2; exit 2; }
    "$bin/ablate-server" --data-dir "$(cd "$here" && realpath -m "$3")" --export "$2" "$work/export"
    mkdir -p "$results/$2"
    mv "$work/export/ablate.db" "$results/$2/ablate.db"
    chmod 644 "$results/$2/ablate.db"
    write "$2"
    exit ;;
  --into) [ $# -eq 2 ] || { echo "usage: scripts/results.sh --into DIR" >&2; exit 2; }; mode=into; into=$(cd "$here" && realpath -m "$2"); mkdir -p "$into"; shift 2 ;;
  -*) echo "usage: scripts/results.sh [--write] [NAME]... | --into DIR | --add NAME DATA_DIR" >&2; exit 2 ;;
esac

[ $# -gt 0 ] || set -- $(cd "$results" && ls -d */ | tr -d /)
status=0
for name in "$@"; do
  [ -n "$name" ] && [ "${name%/}" = "$name" ] && [ -f "$results/$name/ablate.db" ] ||
    { echo "results.sh: there is no $results/$name/ablate.db; there are: $(ls "$results" | tr '\n' ' ')" >&2; exit 2; }
  if [ $mode = write ]; then write "$name"; continue; fi
  report "$name"
  if [ $mode = into ]; then cp -r "$work/$name" "$into/"; continue; fi
  if diff -r --exclude=ablate.db "$results/$name" "$work/$name"; then
    echo "results.sh: $name: made again, the same bytes"
  else
    echo "results.sh: $name: differs from what its database gives (--write replaces it)" >&2
    status=1
  fi
done
exit $status
