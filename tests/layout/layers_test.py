"""The rooms depend on each other in one direction only (docs/design.md, part 2). Reads #include lines."""

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


def room_of(path):
    return "worker/trainer" if path.startswith("worker/trainer/") else path.split("/")[0]


def main(root):
    problems, seen = [], 0
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in ("build", ".git", "runs", "data")]
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
    if seen < 20:
        problems.append(f"only {seen} files found under {root}: wrong folder?")
    print("\n".join(problems) or f"{seen} files keep the direction")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
