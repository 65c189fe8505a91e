"""Every barrier of the real kernels is one that the tests would miss: with any single __syncthreads or __syncwarp made to
do nothing (CUDA_EMU_SKIP_BARRIER), the ThreadSanitizer build of the kernels' test must fail. So a barrier that somebody
forgets is noticed, and so is one that nobody needs.

Usage: barriers_test.py ROOT [--spare=FILE:PATTERN ...] COMMAND...
COMMAND: a test program and its filter. --spare: a barrier that may be left out, named by its file and a pattern found in
its line or the one before or after; whoever adds one says why beside it."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def run(command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                          env=os.environ | {"TSAN_OPTIONS": "halt_on_error=1 exitcode=66"} | environment)
    return done.returncode, done.stdout + done.stderr


def surroundings(root, place):
    name, line = place.split(":")
    for folder, _, files in os.walk(os.path.join(root, "kernels", "cuda")):
        if name in files:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                return "".join(file.readlines()[max(int(line) - 2, 0):int(line) + 1])
    return ""


def main(root, arguments):
    spares = [a.removeprefix("--spare=").split(":", 1) for a in arguments if a.startswith("--spare=")]
    command = [a for a in arguments if not a.startswith("--spare=")]
    code, output = run(command, CUDA_EMU_LIST_BARRIERS="1")
    if code != 0:
        print(f"{command} fails with all barriers in place ({code}):\n{output[-3000:]}")
        return 1
    places = re.findall(r"^barrier (\S+)$", output, flags=re.MULTILINE)
    problems = [] if len(places) > 1 else [f"only {len(places)} barriers met: is the filter right?"]
    spare_places = set()
    for name, pattern in spares:
        matching = [p for p in places if p.startswith(name + ":") and re.search(pattern, surroundings(root, p))]
        spare_places |= set(matching)
        if not matching:
            problems.append(f"--spare={name}:{pattern} names no barrier that the tests meet")
    tried = [place for place in places if place not in spare_places]
    with ThreadPoolExecutor(2) as pool:
        for place, (code, _) in zip(tried, pool.map(lambda p: run(command, CUDA_EMU_SKIP_BARRIER=p), tried)):
            if code == 0:
                problems.append(f"{place}: nothing is noticed without this barrier: is it needed, or is a test missing?")
    print("\n".join(problems) or f"each of {len(tried)} barriers is missed when left out; {len(spare_places)} are spare")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
