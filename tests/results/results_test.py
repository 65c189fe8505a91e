"""What experiments/README.md states of the kept results, followed to where it comes from. Usage: results_test.py ROOT.

Every report is made again from its database (scripts/results.sh); every number with an interval in the table of claims
stands in a report that its row names; every sweep file that was run is the one that is checked in."""

import filecmp
import os
import re
import subprocess
import sys

INTERVAL = re.compile(r"-?\d+\.\d+ \[-?\d+\.\d+, -?\d+\.\d+\]|-?\d+\.\d+ ± \d+\.\d+")
RESULT = re.compile(r"results/([\w.-]+)/report\.md")
LARGEST = 8 << 20  # bytes of one result: rows and figures, no curves, no checkpoints


def untraced(readme, report):
    """The intervals of `readme` that no report of their line has; report: name -> text."""
    faults, traced = [], 0
    for number, line in enumerate(readme.splitlines(), 1):
        intervals = INTERVAL.findall(line)
        if not intervals:
            continue
        text = "\n".join(report(name) for name in RESULT.findall(line))
        for interval in intervals:
            if interval in text:
                traced += 1
            else:
                faults.append(f"experiments/README.md:{number}: {interval} is in no report that the line names")
    return faults, traced


def main(root):
    results = os.path.join(root, "experiments/results")
    faults = []

    def report(name):
        with open(os.path.join(results, name, "report.md"), encoding="utf-8") as file:
            return file.read()

    # The rule is tried on a line that breaks it.
    assert untraced("-0.5 [-0.6, -0.4] results/x/report.md", lambda _: "-0.5 [-0.6, -0.3]")[0]
    with open(os.path.join(root, "experiments/README.md"), encoding="utf-8") as file:
        more, traced = untraced(file.read(), report)
    faults += more
    if traced == 0:
        faults.append("experiments/README.md: no number with an interval was found")
    for name in sorted(os.listdir(results)):
        folder = os.path.join(results, name)
        sweep = os.path.join(root, "experiments/sweeps", name + ".yaml")
        if not filecmp.cmp(os.path.join(folder, "sweep.yaml"), sweep, shallow=False):
            faults.append(f"{folder}/sweep.yaml is not {sweep}")
        size = sum(os.path.getsize(os.path.join(at, one)) for at, _, files in os.walk(folder) for one in files)
        if size > LARGEST:
            faults.append(f"{folder}: {size} bytes, over {LARGEST}")
    again = subprocess.run([os.path.join(root, "scripts/results.sh")], capture_output=True, text=True)
    print(again.stdout)
    if again.returncode != 0:
        faults.append(again.stdout[-4000:] + again.stderr)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{traced} numbers with intervals traced; {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
