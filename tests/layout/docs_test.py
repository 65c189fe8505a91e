"""What the pages and the tree promise: links resolve, the commands shown exist, long files have a reason, and nothing
committed names a place on somebody's machine. Usage: docs_test.py ROOT, with ABLATE_BIN as tests/e2e have it."""

import os
import re
import subprocess
import sys

CODE = (".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cmake", ".proto", ".sql", ".ts", ".tsx", ".css", ".mjs", ".js")
LONGEST = 600  # lines of code: without blank lines and those that are a comment alone
# Longer ones: path -> why it is one file.
LONG_FILES = {}
# Pages whose `ablate` commands a reader will type.
COMMAND_PAGES = ["README.md", "docs/command-line.md"]
# A home or a build place, not a name within a path. Written so that this file has none.
PRIVATE_PLACE = re.compile(r"(?<![\w.}])/" + "work/")


def committed(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True)
    if listed.returncode == 0 and listed.stdout:
        paths = listed.stdout.decode().split("\0")
        return [p for p in paths if p and os.path.isfile(os.path.join(root, p))]
    found = []  # an unpacked archive
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in ("build", ".git", "data", "ablate-runs", "node_modules")]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return found


def read(root, path):
    with open(os.path.join(root, path), "rb") as file:
        return file.read().decode("utf-8", "replace")


def slug(heading):
    """As GitHub makes them."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def link_problems(root, pages):
    links = 0
    problems = []
    for page in pages:
        prose = re.sub(r"^```.*?^```", "", read(root, page), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^()\s]+)\)", re.sub(r"`[^`\n]*`", "", prose)):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            path, _, anchor = target.partition("#")
            full = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(os.path.join(root, full)):
                problems.append(f"{page}: the link to {target} leads nowhere")
            elif anchor and full.endswith(".md"):
                headings = re.findall(r"^#+ (.*)$", read(root, full), flags=re.MULTILINE)
                if anchor not in map(slug, headings):
                    problems.append(f"{page}: {full} has no heading #{anchor}")
    if links < 10:
        problems.append(f"only {links} links found in {len(pages)} pages: is the pattern still right?")
    return problems


def shown_commands(text):
    """`ablate WORDS` in code: spans, fences, indented lines. Lower-case words only; flags and arguments end it."""
    fenced = re.findall(r"^```.*?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    code = "\n".join(re.findall(r"`([^`\n]+)`", text) + fenced + re.findall(r"^(?: {4}|\t)(.*)$", text, flags=re.MULTILINE))
    return re.findall(r"(?:^|[\s(/])ablate ([a-z]+)(?: ([a-z]+(?:\|[a-z]+)*)(?![\w.=]))?", code, flags=re.MULTILINE)


def command_problems(root, program):
    asked = subprocess.run([program, "--help"], capture_output=True, text=True)
    known = set(re.findall(r"^  ([a-z]+(?: [a-z]+)?)(?= )", asked.stdout, flags=re.MULTILINE))
    if asked.returncode != 0 or len(known) < 10:
        return [f"{program} --help ends with {asked.returncode} and lists {len(known)} commands"]
    problems = []
    for page in COMMAND_PAGES:
        shown = shown_commands(read(root, page))
        if len(shown) < 5:
            problems.append(f"{page}: only {len(shown)} commands found")
        for first, rest in shown:
            if first in known:
                continue
            for second in rest.split("|"):
                if f"{first} {second}" not in known:
                    problems.append(f"{page}: `ablate {first} {second}` is not a command of {program}")
    return problems


def code_lines(text):
    return sum(1 for line in text.splitlines() if line.strip() and not re.match(r"\s*(//|#(?!include|define|if|endif|pragma)|--)", line))


def named_tests_problems(root, paths):
    """The table of docs/reliability.md: each fault of the field names tests, and each test named is there."""
    tests = [path for path in paths if path.endswith(("_test.cc", "_test.py"))]
    text = "\n".join(read(root, path) for path in tests)
    stems = {os.path.basename(path).rsplit(".", 1)[0] for path in tests}
    rows = re.findall(r"^\| (\d+) \| .*? \| (.*) \|$", read(root, "docs/reliability.md"), flags=re.MULTILINE)
    problems = [] if len(rows) >= 35 else [f"docs/reliability.md: only {len(rows)} faults of the field found"]
    for number, named in rows:
        words = re.findall(r"\w+", re.sub(r"`[^`]*`", "", named))
        names = [word for word in words if "_" in word or re.match(r"[A-Z]+[a-z]+[A-Z]\w*$", word)]
        files = [os.path.basename(name).removesuffix(".py") for name in re.findall(r"`([^`]*_test(?:\.py)?)`", named)]
        missing = [name for name in names if name not in text] + [name for name in files if name not in stems]
        problems += [f"docs/reliability.md, fault {number}: there is no test {name}" for name in missing]
        if not names and not files and "`" not in named:
            problems.append(f"docs/reliability.md, fault {number} names no test")
    return problems


def file_problems(root, paths):
    problems = []
    for path in paths:
        text = read(root, path)
        if PRIVATE_PLACE.search(text):
            problems.append(f"{path} names a folder of one machine: {PRIVATE_PLACE.search(text).group()}...")
        if path.endswith(CODE):
            lines = code_lines(text)
            if lines > LONGEST and path not in LONG_FILES:
                problems.append(f"{path} has {lines} lines of code, over {LONGEST}: split it, or say why in docs_test.py")
            elif lines <= LONGEST and path in LONG_FILES:
                problems.append(f"{path} is short enough now: take it out of LONG_FILES")
    problems += [f"LONG_FILES names {path}, which is not there" for path in LONG_FILES if path not in paths]
    return problems


def main(root):
    paths = committed(root)
    pages = [path for path in paths if path.endswith(".md")]
    problems = link_problems(root, pages) + file_problems(root, paths)
    problems += named_tests_problems(root, paths)
    problems += command_problems(root, os.path.join(os.environ["ABLATE_BIN"], "ablate"))
    print("\n".join(problems) or f"{len(pages)} pages and {len(paths)} files are in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
