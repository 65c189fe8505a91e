#!/usr/bin/env bash
# Training and evaluation speed against PyTorch: one thread, CPU time, ours and theirs in turns, medians over rounds.
#   bench/train_vs_pytorch.sh [ROUNDS]         (default 5; needs python3-torch and libopenblas-openmp, Debian packages)
# Exits 1 when a ratio is below what is required of us, or evaluation's memory is above its bound.
# Environment: BUILD (default build/release), PYTHON (default /usr/bin/python3).
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-5}
build=${BUILD:-build/release}
python=${PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torch' 2>/dev/null; then
  echo "train_vs_pytorch: $python has no torch; apt-get install python3-torch libopenblas0-openmp" >&2
  exit 2
fi
if [ ! -x "$build/bin/train_bench" ]; then
  echo "train_vs_pytorch: $build/bin/train_bench is missing; cmake --build $build --target train_bench" >&2
  exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ours() { "$build/bin/train_bench" "$@"; }
# Its default BLAS on Debian fights OpenMP and is 2.6 times slower, and without these malloc settings each large temporary is
# page-faulted anew: this is the fair peer.
theirs() {
  LD_LIBRARY_PATH=/usr/lib/$(uname -m)-linux-gnu/openblas-openmp OMP_NUM_THREADS=1 \
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=8000000000:glibc.malloc.trim_threshold=16000000000 \
    "$python" bench/pytorch_peer.py "$@"
}

# mode size variant length batch steps required-ratio
cases="train tiny softmax 256 8 12 1.3
train tiny lssar 256 8 12 2.0
train small softmax 256 8 3 1.15
train small lssar 256 8 3 1.3
eval tiny lssar 4096 1 3 8.0"

for round in $(seq "$rounds"); do
  while read -r mode size variant length batch steps _; do
    ours "$mode" "$size" "$variant" "$length" "$batch" "$steps" | sed 's/^/ours /' >>"$work/lines"
    theirs "$mode" "$size" "$variant" "$length" "$batch" "$steps" | sed 's/^/pytorch /' >>"$work/lines"
  done <<<"$cases"
  echo "round $round of $rounds done" >&2
done
for length in 256 1024 4096; do  # 1, 4 and 16 times the training length
  ours eval tiny lssar "$length" 1 3 | sed 's/^/memory /' >>"$work/lines"
done

"$python" - "$work/lines" "$cases" <<'PYTHON'
import statistics
import sys

runs, peaks, ratios, memory = {}, {}, {}, []
for line in open(sys.argv[1]):
    who, mode, size, variant, length, batch, _, _, rate, _, _, _, peak, *_ = line.split()
    if who == "memory":
        memory.append((length, float(peak)))
        continue
    key = (mode, size, variant)
    runs.setdefault(key, {}).setdefault(who, []).append(float(rate))
    peaks.setdefault(key, {}).setdefault(who, []).append(float(peak))
failed = False
print(f"{'case':28} {'ours tok/s':>11} {'PyTorch':>9} {'ratio':>6} {'(low-high)':>13} {'required':>9} {'MB':>6} {'PyTorch':>8}")
for case in sys.argv[2].splitlines():
    mode, size, variant, *_, required = case.split()
    key, required = (mode, size, variant), float(required)
    pairs = [a / b for a, b in zip(runs[key]["ours"], runs[key]["pytorch"])]
    ratio = statistics.median(pairs)
    peak = max(peaks[key]["ours"])
    bad = ratio < required or (mode == "eval" and peak > 300)
    failed |= bad
    print(f"{' '.join(key):28} {statistics.median(runs[key]['ours']):11.0f} {statistics.median(runs[key]['pytorch']):9.0f} "
          f"{ratio:6.2f} {min(pairs):6.2f}-{max(pairs):.2f} {required:10.2f} {peak:6.0f} {max(peaks[key]['pytorch']):8.0f}"
          f"{'  BELOW' if bad else ''}")
print("evaluation, peak MB of the process: " + ", ".join(f"{length} {peak:.0f}" for length, peak in memory))
sys.exit(1 if failed else 0)
PYTHON
