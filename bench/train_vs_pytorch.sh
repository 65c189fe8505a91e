#!/usr/bin/env bash
# Training and evaluation speed against PyTorch: one thread, CPU time, ours and theirs in turns, medians over rounds.
#   bench/train_vs_pytorch.sh [ROUNDS]         (default 5; needs python3-torch and libopenblas-openmp, Debian packages)
# Exits 1 when a ratio is below what is required of us, or evaluation takes more than 300 MB.
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

blas=/usr/lib/$(uname -m)-linux-gnu/openblas-openmp
if [ ! -d "$blas" ]; then
  echo "train_vs_pytorch: $blas is missing; apt-get install libopenblas0-openmp" >&2
  exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ours() { "$build/bin/train_bench" "$@"; }
# Debian's default BLAS fights OpenMP (2.6 times slower), and without these malloc settings each large temporary is page-faulted anew.
theirs() {
  LD_LIBRARY_PATH=$blas OMP_NUM_THREADS=1 \
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=8000000000:glibc.malloc.trim_threshold=16000000000 \
    "$python" bench/pytorch_peer.py "$@"
}

# mode size variant length batch steps required-ratio
# mode size variant length batch steps required-ratio flags-of-the-peer. A requirement of 0: for information. The last two are what
# somebody gets who tunes the peer for this one variant, and who tiles it as well.
cases="train tiny softmax 256 8 12 1.3
train tiny lssar 256 8 12 2.0
train small softmax 256 8 3 1.15
train small lssar 256 8 3 1.3
eval tiny softmax 4096 1 3 0
eval tiny lssar 4096 1 3 8.0
eval tiny lssar 4096 1 3 0 --by-hand
eval tiny lssar 4096 1 3 0 --by-hand --rows 128"

for round in $(seq "$rounds"); do
  number=0
  while read -r mode size variant length batch steps _ flags; do
    number=$((number + 1))
    ours "$mode" "$size" "$variant" "$length" "$batch" "$steps" | sed "s/^/$number ours /" >>"$work/lines"
    # shellcheck disable=SC2086  # flags are words
    theirs "$mode" "$size" "$variant" "$length" "$batch" "$steps" $flags | sed "s/^/$number pytorch /" >>"$work/lines"
  done <<<"$cases"
  echo "round $round of $rounds done, load $(cut -d' ' -f1 /proc/loadavg)" >&2
done

"$python" - "$work/lines" "$cases" <<'PYTHON'
import statistics
import sys

rates, peaks = {}, {}
for line in open(sys.argv[1]):
    number, who, *_, median, _, _, _, peak, _, _ = line.split(" blas ")[0].split()
    if who == "pytorch" and not line.rstrip().endswith(" blas openblas-openmp"):
        sys.exit(f"train_vs_pytorch: PyTorch did not take the OpenMP build of OpenBLAS, so it is no fair peer: {line}")
    rates.setdefault((int(number), who), []).append(float(median))
    peaks.setdefault((int(number), who), []).append(float(peak))
failed = False
print("tokens a second of CPU time, one thread; medians over the rounds, lowest and highest ratio of a round")
print(f"{'case':42} {'ours':>8} {'PyTorch':>8} {'ratio':>6} {'low-high':>13} {'required':>9} {'MB':>6} {'PyTorch':>8}")
for number, case in enumerate(sys.argv[2].splitlines(), 1):
    mode, size, variant, length, batch, _, required, *flags = case.split()
    ours, theirs, required = rates[number, "ours"], rates[number, "pytorch"], float(required)
    pairs = [a / b for a, b in zip(ours, theirs)]
    ratio, peak = statistics.median(pairs), max(peaks[number, "ours"])
    bad = ratio < required or (mode == "eval" and peak > 300)
    failed |= bad
    name = f"{mode} {size} {variant} T={length} {' '.join(flags)}"
    print(f"{name:42} {statistics.median(ours):8.0f} {statistics.median(theirs):8.0f} {ratio:6.2f} "
          f"{min(pairs):6.2f}-{max(pairs):<6.2f} {required if required else '-':>9} {peak:6.0f} {max(peaks[number, 'pytorch']):8.0f}"
          f"{'  BELOW' if bad else ''}")
sys.exit(1 if failed else 0)
PYTHON
