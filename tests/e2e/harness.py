"""Black-box harness: real programs, real sockets, a folder of its own for each test.

Starts ablate-server and ablate-worker processes, keeps their logs in files, polls with a deadline instead of sleeping,
and fails a test when a process that should be alive has died. Only the Python standard library.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.environ.get("ABLATE_BIN")
if not BIN:
    sys.exit("set ABLATE_BIN to the folder of the programs, e.g. build/release/bin")

# Builds with sanitizers: which, and how many times as long everything may take there (tests/CMakeLists.txt sets both).
SANITIZED = os.environ.get("ABLATE_SANITIZE", "")
PATIENCE = float(os.environ.get("ABLATE_TEST_PATIENCE", "1"))


def asan_options(*options):
    return ":".join([text for text in [os.environ.get("ASAN_OPTIONS")] if text] + list(options))


# Leaks are looked for by the unit tests. LeakSanitizer traces its process, which the sandbox of trainers refuses: each would fail.
os.environ["ASAN_OPTIONS"] = asan_options("detect_leaks=0")
# A trainer that is sent a signal dies of it in every build; AddressSanitizer would make it an exit code of its own.
DIES_OF_SIGNALS = {"ASAN_OPTIONS": asan_options(*(f"handle_{name}=0" for name in ("segv", "abort", "sigbus", "sigfpe", "sigill")))}


def synthetic_text(size, seed=1):
    """Word salad with some structure, the same for the same seed: enough to see a loss fall."""
    rng = random.Random(seed)
    words = ["".join(rng.choice("etaoinshrdlu") for _ in range(rng.randint(2, 7))) for _ in range(300)]
    followers = {word: rng.sample(words, 6) for word in words}
    out, length, word = [], 0, words[0]
    while length < size:
        out.append(word)
        length += len(word) + 1
        word = rng.choice(followers[word])
    return " ".join(out)[:size]


def sweep_yaml(name, data="text.txt", steps=60, arms=None, seeds=2, lengths="[1x, 2x]", extra=""):
    """A sweep small enough for a test: one layer of width 32, T = 32."""
    axes = arms or "  attention.variant: [softmax, lssar]\n  eval.ntk: [off, dynamic]\n"
    return f"""name: {name}
data: {{name: words, format: text, path: {data}}}
settings:
  model.layers: 1
  model.width: 32
  model.heads: 2
  train.length: 32
  train.batch: 4
  train.steps: {steps}
  train.warmup_steps: 5
  train.learning_rate: 3e-3
  eval.target_spans: 8
  eval.loss_tokens: 2048
axes:
{axes}seeds: {seeds}
evaluate: {{lengths: {lengths}}}
{extra}"""


def noop_yaml(name, jobs, seconds=0):
    """`jobs` no-op stages for the built-in test executor."""
    return f"""name: {name}
data: {{name: words, format: text, path: text.txt}}
executor: noop
settings:
  train.length: 32
  noop.seconds: {seconds}
seeds: {jobs}
"""


class Cluster:
    def __init__(self, lease_seconds=5, contact_seconds=0.1):
        self.folder = tempfile.TemporaryDirectory(prefix="ablate-e2e-")
        self.dir = self.folder.name
        self.data_dir = os.path.join(self.dir, "data")
        self.address = "unix:" + os.path.join(self.dir, "s.sock")
        self.lease_seconds = lease_seconds
        self.contact_seconds = contact_seconds
        self.server = None
        self.workers = {}
        self.starts = 0
        self.environment = {}  # of `ablate`, beside ours
        self.worker_environment = {}  # of workers and their trainers
        with open(os.path.join(self.dir, "text.txt"), "w", encoding="utf-8") as file:
            file.write(synthetic_text(300_000))

    # --- processes ---

    def _spawn(self, log_name, argv, environment=None):
        self.starts += 1
        with open(os.path.join(self.dir, f"{log_name}.{self.starts}.log"), "wb") as log:
            return subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                    env={**os.environ, **(environment or {})})

    def start_server(self, *flags):
        self.server = self._spawn("server", [
            os.path.join(BIN, "ablate-server"), "--data-dir", self.data_dir, "--listen", self.address,
            "--lease-seconds", str(self.lease_seconds), "--contact-seconds", str(self.contact_seconds), *flags])
        self.poll("the server answers", lambda: self.ablate("sweep", "list", "-o", "json", check=False).returncode == 0)
        return self.server

    def start_worker(self, name, *flags, slots=1):
        self.workers[name] = self._spawn(f"worker-{name}", [
            os.path.join(BIN, "ablate-worker"), "--server", self.address, "--device", "cpu", "--slots", str(slots),
            "--threads-per-slot", "1", "--work-dir", os.path.join(self.dir, "work-" + name), *flags],
            self.worker_environment)
        return self.workers[name]

    def kill9(self, process):
        process.send_signal(signal.SIGKILL)
        process.wait()

    def check_alive(self):
        for name, process in [("server", self.server), *self.workers.items()]:
            if process is not None and process.poll() is not None:
                raise AssertionError(f"{name} ended with {process.returncode}\n{self.logs()}")

    def close(self):
        for process in [*self.workers.values(), self.server]:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in [*self.workers.values(), self.server]:
            if process is None:
                continue
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.folder.cleanup()

    def sanitizer_reports(self):
        """What sanitizers said, of any process: a job that failed by a report is tried again, and would hide it."""
        said = lambda text: [line for line in text.splitlines() if "Sanitizer: " in line or ": runtime error: " in line]
        found = []
        for name in sorted(os.listdir(self.dir)):
            if name.endswith(".log"):
                with open(os.path.join(self.dir, name), errors="replace") as file:
                    found += [f"{name}: {line}" for line in said(file.read())]
        if os.path.exists(os.path.join(self.data_dir, "ablate.db")):
            for job, attempt, tail in self.sql("SELECT job, attempt, stderr_tail FROM attempts WHERE stderr_tail IS NOT NULL"):
                found += [f"job {job}, attempt {attempt}: {line}" for line in said(tail)]
        return found

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.dir)):
            if name.endswith(".log"):
                with open(os.path.join(self.dir, name), errors="replace") as file:
                    text += f"--- {name}\n" + file.read()[-4000:]
        return text

    # --- commands ---

    def ablate(self, *args, check=True, timeout=120):
        result = subprocess.run([os.path.join(BIN, "ablate"), *args], cwd=self.dir, text=True, capture_output=True,
                                timeout=timeout * PATIENCE, env={**os.environ, "ABLATE_SERVER": self.address, **self.environment})
        if check and result.returncode != 0:
            raise AssertionError(f"ablate {' '.join(args)} ended with {result.returncode}\n{result.stdout}{result.stderr}"
                                 + self.logs())
        return result

    def json(self, *args, **kwargs):
        return json.loads(self.ablate(*args, "-o", "json", **kwargs).stdout)

    def submit(self, text, name):
        path = os.path.join(self.dir, name + ".yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return self.ablate("sweep", "submit", path)

    def jobs(self, sweep):
        return self.json("job", "list", sweep)

    def wait(self, sweep, timeout=120):
        return self.ablate("sweep", "wait", sweep, "--timeout", str(timeout * PATIENCE), timeout=timeout + 20)

    def open_database(self):
        return sqlite3.connect(f"file:{self.data_dir}/ablate.db?mode=ro", uri=True, timeout=10)

    def sql(self, statement):
        """What any reader of the file sees, through Python's own SQLite."""
        connection = self.open_database()
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def results(self):
        """Every measured value, exactly: {(arm, seed, metric, length, split, ntk): hex of the double}."""
        rows = self.sql("SELECT arm, seed, metric, length, split, ntk, value, status FROM results")
        return {row[:6]: (row[6].hex() if isinstance(row[6], float) else row[6], row[7]) for row in rows}

    # --- waiting ---

    def poll(self, what, condition, timeout=60):
        deadline = time.monotonic() + timeout * PATIENCE
        while True:
            value = condition()
            if value:
                return value
            self.check_alive()
            if time.monotonic() > deadline:
                raise AssertionError(f"timed out waiting until {what}\n{self.logs()}")
            time.sleep(0.05)


class ClusterTest(unittest.TestCase):
    def cluster(self, **kwargs):
        cluster = Cluster(**kwargs)
        self.addCleanup(cluster.close)
        if SANITIZED:
            self.addCleanup(lambda: self.assertEqual(cluster.sanitizer_reports(), []))
        return cluster


if __name__ == "__main__":
    sys.exit("this is a library: run one of the *_test.py files")
