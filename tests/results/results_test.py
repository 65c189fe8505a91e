"""What experiments/README.md states of the kept results, followed to where it comes from. Usage: results_test.py ROOT.

Every report is made again from its database (scripts/results.sh) and compared; every number with an interval in the table of claims
stands in a report that its row names; every sweep file that was run is the one that is checked in."""

import filecmp
import os
import re
import subprocess
import sys
import tempfile

INTERVAL = re.compile(r"-?\d+\.\d+ \[-?\d+\.\d+, -?\d+\.\d+\]|-?\d+\.\d+ ± \d+\.\d+")
RESULT = re.compile(r"results/([\w.-]+)/report\.md")
LARGEST = 8 << 20  # bytes of one result: rows and figures, no curves, no checkpoints


def untraced(readme, report):
    """The intervals of `readme` that the report linked before them on their line lacks; report: name -> text."""
    faults, traced = [], 0
    for number, line in enumerate(readme.splitlines(), 1):
        found = set()
        for part in re.finditer(rf"{RESULT.pattern}|{INTERVAL.pattern}", line):
            if part.group(1):
                found = set(INTERVAL.findall(report(part.group(1))))
            elif part.group(0) in found:
                traced += 1
            else:
                faults.append(f"experiments/README.md:{number}: {part.group(0)} is not in the report that is named before it")
    return faults, traced


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def differences(kept, made):
    """Where two texts differ by more than the last digit of a number: another libm may round otherwise."""
    if NUMBER.sub("0", kept) != NUMBER.sub("0", made):
        return "the text differs"
    for one, other in zip(NUMBER.findall(kept), NUMBER.findall(made)):
        if one == other:
            continue
        digit = 10.0 ** -len(one.partition("e")[0].partition(".")[2])
        a, b = float(one), float(other)
        if abs(a - b) > max(1.01 * digit if "e" not in one else 0, 1e-6 * max(abs(a), abs(b))):
            return f"{one} is kept, {other} was made"
    return ""


def main(root):
    results = os.path.join(root, "experiments/results")
    faults = []

    def read(*path):
        with open(os.path.join(*path), encoding="utf-8") as file:
            return file.read()

    # The rules are tried on what breaks them.
    text = "results/x/report.md -0.5 [-0.6, -0.4]"
    assert not untraced(text, lambda _: "-0.5 [-0.6, -0.4]")[0]
    for other in ("-0.5 [-0.6, -0.3]", "0.5 [-0.6, -0.4]", "-1-0.5 [-0.6, -0.41]"):
        assert untraced(text, lambda _: other)[0], other
    assert untraced("-0.5 [-0.6, -0.4] results/x/report.md", lambda _: "-0.5 [-0.6, -0.4]")[0], "named after it"
    assert not differences("a 0.123 1.5e-7", "a 0.124 1.5e-7")
    assert differences("a 0.123", "a 0.125") and differences("a 1.5e-7", "a 1.6e-7") and differences("a 1", "b 1")

    more, traced = untraced(read(root, "experiments/README.md"), lambda name: read(results, name, "report.md"))
    faults += more
    if traced == 0:
        faults.append("experiments/README.md: no number with an interval was found")
    with tempfile.TemporaryDirectory() as made:
        again = subprocess.run([os.path.join(root, "scripts/results.sh"), "--into", made], capture_output=True, text=True)
        if again.returncode != 0:
            faults.append(again.stdout + again.stderr)
        for name in sorted(os.listdir(results)):
            folder = os.path.join(results, name)
            sweep = os.path.join(root, "experiments/sweeps", name + ".yaml")
            if not filecmp.cmp(os.path.join(folder, "sweep.yaml"), sweep, shallow=False):
                faults.append(f"{folder}/sweep.yaml is not {sweep}")
            kept = {os.path.relpath(os.path.join(at, one), folder) for at, _, files in os.walk(folder) for one in files}
            size = sum(os.path.getsize(os.path.join(folder, one)) for one in kept)
            if size > LARGEST:
                faults.append(f"{folder}: {size} bytes, over {LARGEST}")
            there = os.path.join(made, name)
            again = {os.path.relpath(os.path.join(at, one), there) for at, _, files in os.walk(there) for one in files}
            for one in sorted((kept - {"ablate.db"}) ^ again):
                faults.append(f"{folder}/{one}: only {'kept' if one in kept else 'made'}")
            for one in sorted(kept & again):
                fault = differences(read(folder, one), read(there, one))
                if fault:
                    faults.append(f"{folder}/{one}: {fault} (scripts/results.sh --write {name} replaces it)")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{traced} numbers with intervals traced; {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
