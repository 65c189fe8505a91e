"""A coordinator, workers and a proxy before each of them, and faults of every kind at seeded moments while sweeps run.

Which fault comes next, to whom and for how long is drawn from the seed; when the processes reach which point is the
machine's, so a seed repeats the plan of faults and not the run to the last interleaving. What has to hold holds for all."""

import collections
import heapq
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))

import checker
from harness import BIN, DIES_OF_SIGNALS, PATIENCE, Cluster, sweep_yaml

PROXY = os.environ.get("ABLATE_RPC_PROXY") or os.path.join(BIN, "ablate-rpc-proxy")

LEASE_SECONDS = 2
PROXY_PERCENT = "drop=4,lose=4,delay=6,duplicate=4,cut=10"

# Per thousand.
ACTIONS = [
    (170, "worker_kill"), (130, "worker_stop"), (80, "worker_term"),
    (110, "trainer_kill"), (90, "trainer_stop"),
    (80, "coordinator_kill"), (90, "coordinator_stop"), (30, "coordinator_term"),
    (110, "wall_step"), (110, "cut"),
]


def noop_sweep(name, seeds, seconds):
    """Trees of stages with evaluations, for the built-in test executor: two arms share a training and part at step 50."""
    return f"""name: {name}
data: {{name: words, format: text, path: text.txt}}
executor: noop
settings: {{train.length: 32, train.steps: 100, noop.seconds: {seconds}}}
arms:
  - {{attention.variant: softmax}}
  - attention.variant: softmax
    switch: [{{at_step: 50, attention.variant: ssmax}}]
axes: {{eval.ntk: [off, dynamic]}}
seeds: {seeds}
evaluate: {{lengths: [1x, 2x]}}
"""


def trained_sweep(name, steps, seeds):
    return sweep_yaml(name, steps=steps, seeds=seeds)


def children_of(pid):
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        pass
    return found


class Chaos(Cluster):
    """noop: workers of the test executor; trainers: workers with real trainers."""

    def __init__(self, seed, noop=3, trainers=1, log=None):
        super().__init__(lease_seconds=LEASE_SECONDS, contact_seconds=0.1)
        self.random = random.Random(seed)
        self.seed = seed
        self.faults = collections.Counter()
        self.proxies = {}
        self.stopped = {}   # pid -> who
        self.undo = []      # (when, number, what)
        self.ended = []     # that should not have
        self.expected = set()
        self.kinds = {f"n{i}": "noop" for i in range(noop)} | {f"t{i}": "trainer" for i in range(trainers)}
        self.wall_file = os.path.join(self.dir, "wall")
        self.log = log or (lambda text: None)

    # --- processes ---

    def start_coordinator(self):
        self.server = self._spawn("server", [
            os.path.join(BIN, "ablate-server"), "--data-dir", self.data_dir, "--listen", self.address,
            "--lease-seconds", str(self.lease_seconds), "--contact-seconds", str(self.contact_seconds),
            "--idle-wait-seconds", "1", "--max-failures", "100000", "--retry-seconds", "0.05", "--sweep-max-failures", "0",
            "--test-wall-offset-file", self.wall_file])

    def proxy_address(self, name):
        return "unix:" + os.path.join(self.dir, name + ".sock")

    def cut_file(self, name):
        return os.path.join(self.dir, name + ".cut")

    def start_proxies(self):
        for i, name in enumerate(self.kinds):
            self.proxies[name] = self._spawn("proxy-" + name, [
                PROXY, "--listen", self.proxy_address(name), "--upstream", self.address, "--seed", str(self.seed * 100 + i),
                "--log", os.path.join(self.dir, "rpc-faults"), "--cut_file", self.cut_file(name),
                "--percent", PROXY_PERCENT])

    def start_one(self, name, address=None):
        flags = ["--executor", "noop"] if self.kinds[name] == "noop" else [
            "--checkpoint-seconds", "0.1", "--upload-seconds", "0.2", "--hang-seconds", "20"]
        self.workers[name] = self._spawn("worker-" + name, [
            os.path.join(BIN, "ablate-worker"), "--server", address or self.proxy_address(name), "--device", "cpu",
            "--slots", "2", "--threads-per-slot", "1", "--grace-seconds", "5",
            "--work-dir", os.path.join(self.dir, "work-" + name), *flags], DIES_OF_SIGNALS)

    def start(self):
        self.start_coordinator()
        self.poll("the server answers", lambda: self.ablate("sweep", "list", "-o", "json", check=False).returncode == 0)
        self.start_proxies()
        for name in self.kinds:
            self.start_one(name)

    # --- faults ---

    def later(self, seconds, what):
        heapq.heappush(self.undo, (time.monotonic() + seconds, len(self.undo) + self.faults.total(), what))

    def do_what_is_due(self, everything=False):
        while self.undo and (everything or self.undo[0][0] <= time.monotonic()):
            heapq.heappop(self.undo)[2]()

    def pause(self, pid, seconds):
        if pid in self.stopped:
            return False
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return False
        self.stopped[pid] = True

        def go_on():
            self.stopped.pop(pid, None)
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.later(seconds, go_on)
        return True

    def end(self, process, how):
        """Ends one that we started; a stopped one is let go first, or SIGTERM would wait for it."""
        self.expected.add(process.pid)
        self.stopped.pop(process.pid, None)
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.ended.append(f"pid {process.pid} does not end on signal {how}")
            process.kill()
            process.wait()

    def trainer_pids(self):
        pids = []
        for name, kind in self.kinds.items():
            if kind == "trainer" and self.workers[name].poll() is None:
                pids += children_of(self.workers[name].pid)
        return sorted(pids)

    def act(self):
        total = sum(weight for weight, _ in ACTIONS)
        at, action = self.random.randrange(total), None
        for weight, name in ACTIONS:
            if at < weight:
                action = name
                break
            at -= weight
        who = self.random.choice(sorted(self.kinds))
        seconds = self.random.choice([0.05, 0.2, 0.5, 1.0, LEASE_SECONDS * 0.9, LEASE_SECONDS * 1.5])
        draw = self.random.random()
        done = True
        worker = self.workers[who]
        if action in ("worker_kill", "worker_term"):
            self.end(worker, signal.SIGKILL if action == "worker_kill" else signal.SIGTERM)
            if self.kinds[who] == "trainer" and draw < 0.1:
                shutil.rmtree(os.path.join(self.dir, "work-" + who, "checkpoints"), ignore_errors=True)
            self.start_one(who)
        elif action == "worker_stop":
            done = self.pause(worker.pid, seconds)
        elif action in ("trainer_kill", "trainer_stop"):
            pids = self.trainer_pids()
            done = bool(pids)
            if done and action == "trainer_kill":
                pid = self.random.choice(pids)
                self.stopped.pop(pid, None)
                try:
                    os.kill(pid, self.random.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT]))
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    done = False
            elif done:
                done = self.pause(self.random.choice(pids), seconds)
        elif action in ("coordinator_kill", "coordinator_term"):
            self.end(self.server, signal.SIGKILL if action == "coordinator_kill" else signal.SIGTERM)
            time.sleep(draw * 0.5 if draw < 0.8 else LEASE_SECONDS)
            self.start_coordinator()
        elif action == "coordinator_stop":
            done = self.pause(self.server.pid, seconds)
        elif action == "wall_step":
            with open(self.wall_file + ".new", "w", encoding="ascii") as file:
                file.write(str(self.random.choice([-1, 1]) * 3600 * self.random.randint(1, 48)))
            os.replace(self.wall_file + ".new", self.wall_file)
        elif action == "cut":
            path = self.cut_file(who)
            with open(path, "w", encoding="ascii"):
                pass
            self.later(seconds, lambda: os.path.exists(path) and os.remove(path))
        if done:
            self.faults[action] += 1
            self.log(f"{action} {who} {seconds}")

    def rpc_faults(self):
        counts = collections.Counter()
        try:
            with open(os.path.join(self.dir, "rpc-faults"), encoding="ascii") as file:
                for line in file:
                    rpc, fault = line.split()
                    counts[f"rpc_{fault} {rpc}"] += 1
        except OSError:
            pass
        return counts

    def all_faults(self):
        return self.faults + self.rpc_faults()

    # --- what is seen meanwhile ---

    def sample(self, submitted):
        """One committed state, as any reader sees it: the jobs add up, and each is where its last event left it."""
        try:
            connection = self.open_database()
        except sqlite3.OperationalError:
            return False
        try:
            connection.execute("BEGIN")
            counts = dict(connection.execute("SELECT upper(state), count(*) FROM jobs GROUP BY 1").fetchall())
            apart = connection.execute(
                "SELECT job_id, state FROM jobs j WHERE upper(state) <> coalesce((SELECT upper(to_state) FROM events "
                "WHERE job = j.row ORDER BY row DESC LIMIT 1), 'BLOCKED')").fetchall()
        except sqlite3.OperationalError as error:
            # Between the death of one coordinator and the start of the next nobody may recover the log.
            if "locked" in str(error):
                raise
            return False
        finally:
            connection.close()
        known = {"BLOCKED", "QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"}
        if sum(counts.values()) != submitted or set(counts) - known:
            raise AssertionError(f"{submitted} jobs were submitted, the database has {counts}")
        if apart:
            raise AssertionError(f"in one commit, jobs and their last events differ: {apart[:5]}")
        return counts

    def watch_processes(self):
        everyone = {"coordinator": self.server, **self.workers, **{"proxy " + n: p for n, p in self.proxies.items()}}
        for name, process in everyone.items():
            if process.poll() is not None and process.pid not in self.expected:
                self.expected.add(process.pid)
                self.ended.append(f"{name} ended by itself with {process.returncode}")
                if name in self.workers:
                    self.start_one(name)

    def close(self):
        self.do_what_is_due(everything=True)
        super().close()
        for process in self.proxies.values():
            process.kill()
            process.wait()


def undisturbed(sweeps, noop=3, trainers=1):
    """The results of the same sweeps where nothing happens."""
    cluster = Chaos(0, noop=noop, trainers=trainers)
    try:
        cluster.lease_seconds = 30
        cluster.start_coordinator()
        cluster.poll("the server answers",
                     lambda: cluster.ablate("sweep", "list", "-o", "json", check=False).returncode == 0)
        for name in cluster.kinds:
            cluster.start_one(name, address=cluster.address)
        for name, text in sweeps.items():
            cluster.submit(text, name)
        for name in sweeps:
            cluster.wait(name, timeout=600)
        problems = checker.check(cluster.open_database()) + cluster.sanitizer_reports()
        return cluster.results(), problems
    finally:
        cluster.close()


def disturbed(seed, sweeps, expected, seconds, pause, noop=3, trainers=1, log=None, min_actions=0):
    """Runs the sweeps under faults: for `seconds` or until they are done (but `min_actions` at least), then lets them end.
    Returns (violations, faults, summary)."""
    cluster = Chaos(seed, noop=noop, trainers=trainers, log=log)
    problems = []
    try:
        cluster.start()
        for name, text in sweeps.items():
            cluster.submit(text, name)
        submitted, = cluster.sql("SELECT count(*) FROM jobs")[0]
        end = time.monotonic() + seconds
        samples = 0
        next_action = time.monotonic()
        while True:
            now = time.monotonic()
            cluster.do_what_is_due()
            cluster.watch_processes()
            counts = cluster.sample(submitted)
            samples += bool(counts)
            over = bool(counts) and counts.get("SUCCEEDED", 0) == submitted
            if (now > end or over) and cluster.faults.total() >= min_actions:
                break
            if now >= next_action:
                cluster.act()
                next_action = now + cluster.random.uniform(0.2, 1.8) * pause
            time.sleep(0.02)
        cluster.do_what_is_due(everything=True)
        deadline = time.monotonic() + 300 * PATIENCE
        while True:
            cluster.watch_processes()
            counts = cluster.sample(submitted)
            samples += bool(counts)
            if counts and counts.get("SUCCEEDED", 0) + counts.get("FAILED", 0) + counts.get("CANCELLED", 0) == submitted:
                break
            if time.monotonic() > deadline:
                problems.append(f"not over {300 * PATIENCE:.0f} s after the last fault: {counts}")
                break
            time.sleep(0.05)
        connection = cluster.open_database()
        problems += checker.check(connection)
        problems += cluster.ended
        problems += cluster.sanitizer_reports()
        results = cluster.results()
        if results != expected:
            differing = [key for key in set(results) | set(expected) if results.get(key) != expected.get(key)]
            problems.append(f"{len(differing)} of {len(expected)} results differ from those of an undisturbed run, such as"
                            f" {differing[0]}: {results.get(differing[0])} and {expected.get(differing[0])}")
        summary = checker.summary(connection) | {"samples": samples}
        if problems:
            print(cluster.logs())
        return problems, cluster.all_faults(), summary
    finally:
        cluster.close()
