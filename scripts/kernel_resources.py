#!/usr/bin/env python3
"""Registers, spills and shared memory of each CUDA kernel, as ptxas reported them when it was compiled (no GPU needed).

  scripts/kernel_resources.py build/release                  a markdown table
  scripts/kernel_resources.py build/release --check          fails where a kernel spills more than its budget below
  scripts/kernel_resources.py build/release --update FILE    replaces the table between the two marks in FILE
"""

import argparse
import os
import re
import subprocess
import sys

# Bytes that a kernel may spill, stores and loads together: (pattern of its name, bytes, why). The first that matches
# holds; kernels that none names may spill nothing.
SPILL_BUDGETS = []

BEGIN, END = "<!-- kernel resources: begin -->", "<!-- kernel resources: end -->"


def reports(build):
    """(source file, text of ptxas), one an object, in the order of the build's list."""
    with open(os.path.join(build, "cuda_objects.txt"), encoding="utf-8") as file:
        objects = file.read().split()
    missing = [path for path in objects if not os.path.isfile(path + ".ptxas")]
    if missing or not objects:
        sys.exit(f"no report for {missing or 'any kernel'}: build first (cmake --build {build})")
    for path in objects:
        with open(path + ".ptxas", encoding="utf-8") as file:
            yield os.path.basename(path).removesuffix(".o"), file.read()


def parse(source, text):
    """{(mangled name, architecture): {"source", "registers", "spill", "shared", "stack"}}"""
    kernels, key = {}, None
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line):
            key = found.group(1), found.group(2)
            kernels[key] = {"source": source, "registers": 0, "spill": 0, "shared": 0, "stack": 0}
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if key:  # a function that is called, not inlined, counts for the kernel above it
                kernels[key]["stack"] += int(found.group(1))
                kernels[key]["spill"] += int(found.group(2)) + int(found.group(3))
        elif found := re.search(r"Used (\d+) registers", line):
            kernels[key]["registers"] = int(found.group(1))
            if shared := re.search(r"(\d+) bytes smem", line):
                kernels[key]["shared"] = int(shared.group(1))
    return kernels


def short_names(mangled):
    """rows_fwd_kernel<float, 64> of the mangled name: without namespaces, result and parameters."""
    plain = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout.splitlines()
    names = {}
    for raw, name in zip(mangled, plain):
        name = re.sub(r"\(anonymous namespace\)::|\bablate::(?:\w+::)*", "", re.sub(r"_GLOBAL__N__\w+::", "", name))
        name = re.sub(r"\((?:int|bool|unsigned int|\w+)\)(?=-?\w)", "", name)  # (int)64
        depth = 0
        for i, letter in enumerate(name):
            depth += {"<": 1, ">": -1}.get(letter, 0)
            if letter == "(" and depth == 0:
                name = name[:i]
                break
        names[raw] = name.removeprefix("void ").replace("__nv_bfloat16", "bf16").replace("> >", ">>")
    return names


def budget(name):
    return next((limit for pattern, limit, _ in SPILL_BUDGETS if re.search(pattern, name)), 0)


def table(kernels, names):
    architectures = sorted({architecture for _, architecture in kernels})
    sources = {raw: k["source"] for (raw, _), k in kernels.items()}
    lines = ["| file | kernel | " + " | ".join(f"{a}: registers | spilled bytes | static shared bytes" for a in architectures) + " |",
             "|---|---|" + "---|---|---|" * len(architectures)]
    for raw in sorted(sources, key=lambda raw: (sources[raw], names[raw])):
        cells = []
        for architecture in architectures:
            k = kernels.get((raw, architecture))
            cells.append(f"{k['registers']} | {k['spill']} | {k['shared']}" if k else "- | - | -")
        lines.append(f"| {sources[raw]} | `{names[raw]}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--update", metavar="FILE")
    parser.add_argument("--only", default="", help="kernels whose name matches this pattern")
    arguments = parser.parse_args()

    kernels = {}
    for source, text in reports(arguments.build):
        kernels |= parse(source, text)
    names = short_names(sorted({raw for raw, _ in kernels}))
    kernels = {key: value for key, value in kernels.items() if re.search(arguments.only, names[key[0]])}
    if not kernels:
        sys.exit("no kernel found")
    if arguments.update:
        with open(arguments.update, encoding="utf-8") as file:
            text = file.read()
        if text.count(BEGIN) != 1 or text.count(END) != 1:
            sys.exit(f"{arguments.update} must have {BEGIN} and {END} once")
        before, rest = text.split(BEGIN)
        with open(arguments.update, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + "\n" + table(kernels, names) + END + rest.split(END)[1])
        return 0
    if not arguments.check:
        print(table(kernels, names), end="")
        return 0
    over = [f"{k['source']}: {names[raw]} ({architecture}) spills {k['spill']} bytes, its budget is {budget(names[raw])}"
            for (raw, architecture), k in sorted(kernels.items()) if k["spill"] > budget(names[raw])]
    print("\n".join(over) or f"{len(kernels)} kernels spill no more than they may")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
