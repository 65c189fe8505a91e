#!/usr/bin/env python3
"""Memory of evaluation by length: is it linear?

bench/eval_memory.py [--build build/release] [--size tiny] [VARIANT ...]      default variants: softmax ssmax lssa lssar

Runs train_bench eval (the trainer's model, one window, one thread) in a process of its own for 1, 4 and 16 times the training
length of 256 and prints the peak resident size. "Of linear" compares the growth from 4x to 16x with the straight line through
1x and 4x: 1 is linear, 4 quadratic. Each size is the least of three runs (pages of shared libraries come and go).
Exits 1 where it is above 1.25, or lssar at 16x takes 300 MB or more. Python's standard library only.
"""

import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LENGTHS = (256, 1024, 4096)
LINEAR = 1.25
RUNS = 3
LIMIT_MB = 300


def peak_mb(program, size, variant, length):
    peaks = []
    for _ in range(RUNS):
        command = [program, "eval", size, variant, str(length), "1", "1"]
        words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        peaks.append(float(words[words.index("peak_mb") + 1]))
    return min(peaks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", default=[])
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build", "release"))
    parser.add_argument("--size", default="tiny", choices=("tiny", "small"))
    args = parser.parse_args()
    program = os.path.join(args.build, "bin", "train_bench")
    if not os.path.exists(program):
        sys.exit(f"eval_memory: {program} is missing; cmake --build {args.build} --target train_bench")
    failed = False
    print(f"{'peak MB, ' + args.size:16}" + "".join(f"{f'T={length}':>9}" for length in LENGTHS) + f"{'of linear':>11}")
    for variant in args.variants or ("softmax", "ssmax", "lssa", "lssar"):
        one, four, sixteen = (peak_mb(program, args.size, variant, length) for length in LENGTHS)
        line = (four - one) / (LENGTHS[1] - LENGTHS[0]) * (LENGTHS[2] - LENGTHS[1])
        of_linear = (sixteen - four) / line
        bad = of_linear > LINEAR or (variant == "lssar" and args.size == "tiny" and sixteen >= LIMIT_MB)
        failed |= bad
        print(f"{variant:16}{one:9.1f}{four:9.1f}{sixteen:9.1f}{of_linear:11.2f}{'  ABOVE' if bad else ''}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
