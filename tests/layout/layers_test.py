"""The rooms depend on each other in one direction only (docs/design.md, part 2), and so do the dashboard's folders
(docs/dashboard.md). Reads #include and import lines."""

import os
import re
import sys

# Room -> rooms it may include from. `worker/trainer` is a room of its own: the only one that may include kernels,
# beside the plain-data table of attention variants.
ALLOWED = {
    "base": set(),
    "proto": set(),
    "kernels": {"base"},
    "experiments": {"base", "proto", "kernels/attention/variants.h"},
    "server": {"base", "proto", "experiments"},
    "cli": {"base", "proto", "experiments", "kernels/attention/variants.h"},
    "worker": {"base", "proto", "experiments"},
    "worker/trainer": {"base", "proto", "experiments", "kernels", "worker/failure_kind.h", "worker/pipe.h"},
}
# Headers that a room must not see, whatever brings them.
FORBIDDEN = {
    "experiments": [r"grpc", r"sqlite3", r"cuda"],
    "kernels": [r"grpc", r"sqlite3", r"google/protobuf"],
    "server/scheduler": [r"grpc", r"sqlite3", r"absl/synchronization"],
    "server/store": [r"grpc", r"absl/synchronization"],
}
# Of dashboard/src: folder -> folders it may import from.
DASHBOARD = {
    "api": set(),
    "tables": {"api", "app", "charts"},
    "charts": {"api", "app", "tables"},
    "app": {"api", "tables"},
    "pages": {"api", "app", "charts", "tables"},
}
# The table of pages.
DASHBOARD_ROOT = "dashboard/src/app/shell.tsx"


def dashboard_problems(root):
    problems, seen = [], 0
    source = os.path.join(root, "dashboard", "src")
    for folder in DASHBOARD:
        for path, _, files in os.walk(os.path.join(source, folder)):
            for name in files:
                if not name.endswith((".ts", ".tsx")):
                    continue
                seen += 1
                full = os.path.join(path, name)
                with open(full, encoding="utf-8") as file:
                    targets = re.findall(r'^(?:import|\} from|export .* from)[^"\n]*"(\.[^"]*)"', file.read(), re.MULTILINE)
                for target in targets:
                    other = os.path.relpath(os.path.normpath(os.path.join(path, target)), source).split(os.sep)[0]
                    if other in DASHBOARD and other != folder and other not in DASHBOARD[folder]:
                        shown = os.path.relpath(full, root)
                        if shown != DASHBOARD_ROOT:
                            problems.append(f"{shown} imports {target}: {folder} may not use {other}")
    if seen < 10:
        problems.append(f"only {seen} files of the dashboard found: wrong folder?")
    return problems, seen


def room_of(path):
    return "worker/trainer" if path.startswith("worker/trainer/") else path.split("/")[0]


def main(root):
    problems, seen = [], 0
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in ("build", ".git", "runs", "data", "node_modules")]
        for name in files:
            if not name.endswith((".h", ".cc", ".cu", ".cuh")):
                continue
            path = os.path.relpath(os.path.join(folder, name), root)
            room = room_of(path)
            if room not in ALLOWED:
                continue
            seen += 1
            with open(os.path.join(root, path), encoding="utf-8") as file:
                includes = re.findall(r'^#include\s+([<"])([^>"]+)[>"]', file.read(), re.MULTILINE)
            for kind, target in includes:
                if kind == '"':
                    other = room_of(target)
                    if other in ALLOWED and other != room and other not in ALLOWED[room] and target not in ALLOWED[room]:
                        problems.append(f"{path} includes {target}: {room} may not use {other}")
                for where, patterns in FORBIDDEN.items():
                    if path.startswith(where + "/") and any(re.search(p, target) for p in patterns):
                        problems.append(f"{path} includes {target}, which {where} must not see")
    more, scripts = dashboard_problems(root)
    problems += more
    if seen < 20:
        problems.append(f"only {seen} files found under {root}: wrong folder?")
    print("\n".join(problems) or f"{seen} files and {scripts} of the dashboard keep the direction")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
