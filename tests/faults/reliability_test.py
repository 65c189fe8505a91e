#!/usr/bin/env python3
"""What docs/reliability.md promises, one scenario each, with the real programs: kinds of failures with their evidence, poison,
breakers, outages, stops, cuts. The random runs are in chaos.py."""

import json
import multiprocessing
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault("ABLATE_BIN", os.path.join(HERE, "..", "..", "build", "release", "bin"))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))

import checker
from harness import BIN, DIES_OF_SIGNALS, PATIENCE, SANITIZED, ClusterTest, noop_yaml, sweep_yaml

ONE_ARM = "  attention.variant: [softmax]\n"


def one_stage(name, steps=200, extra="", **kwargs):
    return sweep_yaml(name, steps=steps, arms=ONE_ARM, seeds=1, lengths="[1x]", extra=extra, **kwargs)


def permitted(*command):
    return subprocess.run(command, capture_output=True).returncode == 0


class ReliabilityTest(ClusterTest):
    def script(self, cluster, name, text):
        path = os.path.join(cluster.dir, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def stage(self, cluster, sweep):
        return [job for job in cluster.jobs(sweep) if job["kind"] == "STAGE"][0]

    def trainer_of(self, worker):
        def find():
            for thread in os.listdir(f"/proc/{worker.pid}/task"):
                with open(f"/proc/{worker.pid}/task/{thread}/children", encoding="ascii") as file:
                    for pid in file.read().split():
                        return int(pid)
            return None
        return find

    def show(self, cluster, job):
        text = cluster.ablate("job", "show", job["job_id"]).stdout
        return text, json.loads(cluster.ablate("job", "show", job["job_id"], "-o", "json").stdout)

    def finish(self, cluster, *sweeps):
        for sweep in sweeps:
            cluster.wait(sweep, timeout=1800)
        cluster.check_alive()
        connection = cluster.open_database()
        self.assertEqual(checker.check(connection), [])


class Kinds(ReliabilityTest):
    """Each kind of failure, made for real, and what `job show` has of it."""

    def attempts(self, cluster, sweep):
        job = self.stage(cluster, sweep)
        text, shown = self.show(cluster, job)
        record = shown[0] if isinstance(shown, list) else shown
        return text, record

    def failed(self, cluster, sweep, attempts=1):
        return lambda: len(cluster.sql(
            "SELECT 1 FROM attempts a JOIN jobs j ON j.row = a.job JOIN sweep_jobs s ON s.job = j.row JOIN sweeps w ON w.row = s.sweep"
            f" WHERE w.name = '{sweep}' AND a.state IN ('FAILED', 'LOST')")) >= attempts

    def evidence(self, cluster, sweep):
        return cluster.sql(
            "SELECT a.failure_kind, a.failure_message, a.signal, a.peak_memory_bytes, a.stderr_tail, a.exit_code, a.worker_id"
            " FROM attempts a JOIN jobs j ON j.row = a.job JOIN sweep_jobs s ON s.job = j.row JOIN sweeps w ON w.row = s.sweep"
            f" WHERE w.name = '{sweep}' AND a.state IN ('FAILED', 'LOST') ORDER BY a.job, a.attempt")

    def test_all_six(self):
        # Of what is made to happen, only "lost" waits for a lease: a worker that a busy machine lets wait loses none.
        cluster = self.cluster(lease_seconds=6)
        cluster.worker_environment = DIES_OF_SIGNALS
        cluster.start_server("--max-failures", "2", "--retry-seconds", "0.05")
        shown = {}

        def see(sweep, kind, *words):
            cluster.poll(f"{sweep} has failed", self.failed(cluster, sweep))
            job = self.stage(cluster, sweep)
            text, _ = self.show(cluster, job)
            for word in (kind, *words):
                self.assertIn(word, text, sweep)
            stored, _, number, peak, stderr, exit_code, _ = self.evidence(cluster, sweep)[0]
            self.assertEqual(stored, kind)
            # Whatever is stored is shown.
            for title, value in (("signal", number), ("exit code", exit_code)):
                if value > 0:
                    self.assertRegex(text, rf"{title} +{value}\b", sweep)
            if peak:
                self.assertRegex(text, r"peak memory +[\d.]+ \wiB", sweep)
            for line in (stderr or "").splitlines()[-3:]:
                self.assertIn(line.strip().replace("\t", " "), text, sweep)
            shown[kind] = text

        # invalid_config: only the trainer reads the text, and it is none. Never tried again.
        with open(os.path.join(cluster.dir, "bad.txt"), "wb") as file:
            file.write(b"abc " * 100_000 + b"\xff" + b"abc " * 100_000)
        worker = cluster.start_worker("a", "--checkpoint-seconds", "0.1")
        cluster.submit(one_stage("invalid", data="bad.txt"), "invalid")
        see("invalid", "invalid_config", "UTF-8")
        self.assertEqual(self.stage(cluster, "invalid")["attempt"], 1)

        # A crash: the signal, the memory, the step.
        cluster.submit(one_stage("crash", steps=100_000), "crash")
        cluster.poll("it trains", lambda: self.stage(cluster, "crash")["step"] > 0)
        os.kill(cluster.poll("it has a trainer", self.trainer_of(worker)), signal.SIGSEGV)
        see("crash", "code_error", "signal 11", "most memory in use", "after step", "11 (Segmentation fault)", "peak memory")
        self.assertEqual(self.evidence(cluster, "crash")[0][2], signal.SIGSEGV)
        self.assertGreater(self.evidence(cluster, "crash")[0][3], 1 << 20)
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(), 0)
        del cluster.workers["a"]
        # The next attempt hangs, on a worker that looks for that: it takes no step any more, but it lives. On a machine that
        # is busy enough it may be thought to hang before that, which is as good.
        before = self.stage(cluster, "crash")["step"]
        worker = cluster.start_worker("h", "--checkpoint-seconds", "0.1", "--hang-seconds", "1.5")
        given_up = lambda: self.stage(cluster, "crash")["state"] == "FAILED"
        cluster.poll("it trains again", lambda: self.stage(cluster, "crash")["step"] > before or given_up())
        trainer = cluster.poll("it has a trainer", lambda: given_up() or self.trainer_of(worker)())
        if trainer is not True:
            os.kill(trainer, signal.SIGSTOP)
        cluster.poll("it is given up", given_up)
        text, _ = self.show(cluster, self.stage(cluster, "crash"))
        self.assertIn("timeout: the trainer made no progress for 1.5s", text)
        self.assertEqual([row[0] for row in self.evidence(cluster, "crash")], ["code_error", "timeout"])
        explained = cluster.ablate("job", "explain", self.stage(cluster, "crash")["job_id"]).stdout
        self.assertIn("It is quarantined: it failed 2 times, on workers ", explained.replace("\n", " "))
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(), 0)
        del cluster.workers["h"]

        # A lost worker, by its name.
        worker = cluster.start_worker("a", "--checkpoint-seconds", "0.1")
        cluster.submit(one_stage("lost", steps=100_000), "lost")
        cluster.poll("it trains", lambda: self.stage(cluster, "lost")["step"] > 0)
        name = self.stage(cluster, "lost")["worker_id"]
        cluster.kill9(worker)
        del cluster.workers["a"]
        see("lost", "worker_lost", name, "was silent for 6 s")
        cluster.ablate("sweep", "cancel", "lost")

        self.out_of_memory(cluster, see)

        # Preempted: the node's trouble, a full disk. It counts nothing and is tried again.
        if not permitted("unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"):
            print("SKIPPED: preempted by a full disk (no mount namespace here)")
            return
        folder = os.path.join(cluster.dir, "work-full", "checkpoints")
        os.makedirs(folder)
        cluster.workers["full"] = cluster._spawn("worker-full", [
            "unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size=16k none {folder} && exec {BIN}/ablate-worker \"$@\"", "sh",
            "--server", cluster.address, "--device", "cpu", "--threads-per-slot", "1", "--checkpoint-seconds", "0.05",
            "--work-dir", os.path.dirname(folder)], cluster.worker_environment)
        cluster.submit(one_stage("full", steps=100_000), "full")
        see("full", "preempted", "No space left on device")
        self.assertEqual(self.stage(cluster, "full")["failures"], 0)

    def out_of_memory(self, cluster, see):
        """A job over the limit that its trainers run under."""
        if "address" in SANITIZED:
            print("SKIPPED: out of memory (AddressSanitizer's shadow alone is over any limit)")
            return
        limited = self.script(cluster, "limited", f"ulimit -d 500000\nexec {BIN}/ablate-trainer \"$@\"\n")
        worker = cluster.start_worker("a", "--trainer", limited, "--sandbox", "off")
        large = one_stage("large").replace("model.layers: 1", "model.layers: 8").replace(
            "model.width: 32", "model.width: 1024").replace("model.heads: 2", "model.heads: 8")
        cluster.submit(large, "large")
        see("large", "out_of_memory", "memory")
        cluster.poll("it is given up", lambda: self.stage(cluster, "large")["state"] == "FAILED")
        self.assertEqual([row[0] for row in self.evidence(cluster, "large")], ["out_of_memory"] * 2)
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(), 0)
        del cluster.workers["a"]


class Poison(ReliabilityTest):
    def test_a_job_that_kills_its_workers_is_quarantined_and_the_others_are_done(self):
        # No lease has to run out: a worker that is started again says what it has not.
        cluster = self.cluster(lease_seconds=60)
        cluster.start_server("--retry-seconds", "0.05", "--idle-wait-seconds", "0.5")
        names = ["a", "b", "c"]
        deaths = 0
        for name in names:
            cluster.start_worker(name, "--executor", "noop", slots=2)
        cluster.submit("""name: poison
data: {name: words, format: text, path: text.txt}
executor: noop
settings: {train.length: 32, noop.seconds: 0.02}
arms:
  - {attention.variant: softmax}
  - {attention.variant: ssmax}
  - {attention.variant: lssar, noop.outcome: kill_worker}
seeds: 6
""", "poison")

        deadline = time.monotonic() + 120 * PATIENCE
        while cluster.sql("SELECT state FROM sweeps")[0][0] == "RUNNING":
            for name in names:
                if cluster.workers[name].poll() is not None:
                    self.assertEqual(cluster.workers[name].returncode, -signal.SIGKILL)
                    deaths += 1
                    cluster.start_worker(name, "--executor", "noop", slots=2)
            self.assertLess(time.monotonic(), deadline, cluster.logs())
            time.sleep(0.02)
        for name in names:  # one may just have died
            if cluster.workers[name].poll() is not None:
                cluster.start_worker(name, "--executor", "noop", slots=2)
        jobs = cluster.jobs("poison")
        bad = [job for job in jobs if "lssar" in job["arm"] and job["kind"] == "STAGE"]
        self.assertEqual(len(bad), 6)
        for job in bad:
            self.assertEqual((job["state"], job["failures"], job["failure"]), ("FAILED", 3, "worker_lost"), job)
        for job in jobs:
            if "lssar" not in job["arm"]:
                self.assertEqual(job["state"], "SUCCEEDED", job)
        # A death takes at most what ran on the worker's two slots with it.
        self.assertGreaterEqual(deaths, 9)
        text, _ = self.show(cluster, bad[0])
        lost_on = {worker for worker, in cluster.sql("SELECT a.worker_id FROM attempts a JOIN jobs j ON j.row = a.job"
                                                     f" WHERE j.job_id = '{bad[0]['job_id']}'")}
        for worker in lost_on:
            self.assertIn(worker, text)
        explained = cluster.ablate("job", "explain", bad[0]["job_id"]).stdout.replace("\n", " ")
        self.assertIn("It is quarantined: it failed 3 times, on worker", explained)

    def test_too_many_failures_of_one_kind_pause_the_sweep(self):
        cluster = self.cluster()
        cluster.start_server("--retry-seconds", "0.02", "--idle-wait-seconds", "0.5")
        cluster.start_worker("a", "--executor", "noop", slots=2)
        path = os.path.join(cluster.dir, "broken.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(noop_yaml("broken", 30).replace("settings:", "settings:\n  noop.outcome: code_error"))
        cluster.ablate("sweep", "submit", path, "--max-failures", "5")
        waited = cluster.ablate("sweep", "wait", "broken", check=False)
        self.assertEqual(waited.returncode, 1)
        self.assertIn("paused after 5 failures of one kind (code_error: noop.outcome is code_error)", waited.stderr)
        self.assertIn("ablate sweep resume broken", waited.stderr)
        listed = cluster.json("sweep", "list")[0]
        self.assertEqual((listed["state"], listed["needs_person"]), ("RUNNING", True))
        self.assertIn("paused", cluster.ablate("sweep", "list").stdout)
        self.assertIn("paused after 5 failures", cluster.ablate("sweep", "show", "broken").stderr)
        watched = cluster.ablate("sweep", "watch", "broken", check=False)
        self.assertEqual(watched.returncode, 1)
        queued = [job for job in cluster.jobs("broken") if job["state"] == "QUEUED"]
        self.assertIn("paused after 5 failures",
                      cluster.ablate("job", "explain", queued[0]["job_id"]).stdout.replace("\n", " "))
        # Nothing more is leased meanwhile, also by a coordinator that was started again.
        attempts = cluster.sql("SELECT count(*) FROM attempts")
        cluster.kill9(cluster.server)
        cluster.start_server("--retry-seconds", "0.02", "--idle-wait-seconds", "0.5")
        cluster.poll("the worker is back", lambda: cluster.json("worker", "list")[0]["state"] == "idle")
        self.assertEqual(cluster.sql("SELECT count(*) FROM attempts"), attempts)
        self.assertEqual(cluster.ablate("sweep", "resume", "broken").returncode, 0)
        self.assertEqual(cluster.ablate("sweep", "wait", "broken", check=False).returncode, 1)
        self.assertTrue(cluster.json("sweep", "list")[0]["needs_person"])
        cluster.ablate("sweep", "resume", "broken", "--max-failures", "0")
        self.assertEqual(cluster.ablate("sweep", "wait", "broken", check=False).returncode, 1)
        self.assertEqual(cluster.json("sweep", "list")[0]["state"], "FAILED")
        refused = cluster.ablate("sweep", "resume", "broken", check=False)
        self.assertEqual(refused.returncode, 5, refused.stderr)
        self.assertIn("ablate sweep retry", refused.stderr)


class Outages(ReliabilityTest):
    STEPS = 3000
    SECONDS = float(os.environ.get("ABLATE_OUTAGE_SECONDS", "4"))
    known = {}    # of steps: results, curves, seconds

    def undisturbed(self, steps=STEPS):
        """Results and curves of the sweep where nothing happens: run once, for all scenarios."""
        if steps not in self.known:
            began = time.monotonic()
            cluster = self.cluster()
            cluster.start_server()
            cluster.start_worker("a", slots=2)
            cluster.submit(sweep_yaml("steady", steps=steps, seeds=1), "steady")
            self.finish(cluster, "steady")
            curves = cluster.sql("SELECT stage, metric, step, value FROM curves")
            self.known[steps] = cluster.results(), curves, time.monotonic() - began
        return self.known[steps][:2]

    def train(self, cluster):
        cluster.submit(sweep_yaml("steady", steps=self.STEPS, seeds=1), "steady")
        cluster.poll("both stages train", lambda: len([j for j in cluster.jobs("steady") if j["step"] > 50]) == 2)

    def test_an_absent_coordinator_costs_no_step(self):
        """Stopped and then killed in mid-sweep, for several leases each; workers go on and hand in later."""
        scale = self.SECONDS
        # Enough for this machine to train through the first outage and into the second, about.
        self.undisturbed()
        steps = max(self.STEPS, int(self.STEPS / self.known[self.STEPS][2] * scale * 1.6))
        expected, curves = self.undisturbed(steps)
        cluster = self.cluster(lease_seconds=min(30, scale / 4))
        cluster.start_server()
        cluster.start_worker("a", "--checkpoint-seconds", "0.2", slots=2)
        cluster.start_worker("b", "--executor", "noop")  # somebody who would be given work
        cluster.submit(sweep_yaml("steady", steps=steps, seeds=1), "steady")
        cluster.poll("both stages train", lambda: len([j for j in cluster.jobs("steady") if j["step"] > 50]) == 2)
        stages = lambda: {j["job_id"]: j["step"] for j in cluster.jobs("steady") if j["kind"] == "STAGE"}
        for fault in ("stop", "kill"):
            before = stages()
            if fault == "stop":
                cluster.server.send_signal(signal.SIGSTOP)
                time.sleep(scale)
                cluster.server.send_signal(signal.SIGCONT)
            else:
                cluster.kill9(cluster.server)
                time.sleep(scale)
                cluster.start_server()
            further = lambda: all(step > before[job] or step == steps for job, step in stages().items())
            cluster.poll("both are further than before", further)
            after = stages()
            print(f"{fault}, {scale:.0f} s: " + ", ".join(f"step {before[job]} -> {step} of {steps}" for job, step in after.items()),
                  flush=True)
        self.finish(cluster, "steady")
        for job in cluster.jobs("steady"):
            self.assertEqual((job["state"], job["attempt"], job["failures"]), ("SUCCEEDED", 1, 0), job)
        self.assertEqual(cluster.results(), expected)
        # No step was trained twice, none is missing from the curves.
        self.assertEqual(cluster.sql("SELECT stage, metric, step, value FROM curves"), curves)

    def test_preempted_by_slurm_the_job_goes_on_elsewhere_with_the_same_bits(self):
        expected, _ = self.undisturbed()
        cluster = self.cluster(lease_seconds=30)
        cluster.start_server()
        worker = cluster.start_worker("a", "--grace-seconds", "60", slots=2)
        self.train(cluster)
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(timeout=60), 0)
        del cluster.workers["a"]
        self.assertEqual(cluster.sql("SELECT DISTINCT state FROM attempts"), [("RELEASED",)])
        text, shown = self.show(cluster, self.stage(cluster, "steady"))
        self.assertIn("preempted: handed back, its worker was asked to stop, after step ", text)
        self.assertEqual((shown[0]["failures"], shown[0]["failure"], shown[0]["attempts"][0]["failure"]), (0, None, "preempted"))
        cluster.start_worker("elsewhere", slots=2)
        self.finish(cluster, "steady")
        resumed = cluster.sql("SELECT a.resumed_from_step FROM attempts a JOIN jobs j ON j.row = a.job"
                              " WHERE a.attempt = 2 AND j.kind = 'STAGE'")
        self.assertEqual(len(resumed), 2)
        self.assertTrue(all(step > 0 for step, in resumed), resumed)
        self.assertEqual({job["failures"] for job in cluster.jobs("steady")}, {0})
        self.assertEqual(cluster.results(), expected)

    def test_worker_and_coordinator_stopped_together_end_at_once_and_count_nothing(self):
        expected, _ = self.undisturbed()
        cluster = self.cluster(lease_seconds=30)
        cluster.start_server()
        # It would take the grace if it waited for a coordinator that is gone.
        worker = cluster.start_worker("a", "--grace-seconds", "600", slots=2)
        self.train(cluster)
        cluster.server.send_signal(signal.SIGTERM)
        cluster.server.wait(timeout=60)
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(timeout=120), 0, cluster.logs())
        del cluster.workers["a"]
        cluster.start_server()
        cluster.start_worker("a", slots=2)
        self.finish(cluster, "steady")
        self.assertEqual({job["failures"] for job in cluster.jobs("steady")}, {0})
        self.assertEqual(cluster.sql("SELECT state FROM attempts WHERE attempt = 1 AND state NOT IN ('SUCCEEDED', 'RELEASED')"), [])
        self.assertEqual(cluster.results(), expected)

    def test_a_corrupt_newest_checkpoint_falls_back_to_the_one_before(self):
        expected, _ = self.undisturbed()
        cluster = self.cluster(lease_seconds=2)
        cluster.start_server("--retry-seconds", "0.05")
        worker = cluster.start_worker("a", "--checkpoint-seconds", "0.1", "--upload-seconds", "1000", slots=2)
        cluster.submit(sweep_yaml("steady", steps=self.STEPS, seeds=1), "steady")
        folder = os.path.join(cluster.dir, "work-a", "checkpoints")
        two = lambda: os.path.isdir(folder) and [
            stage for stage in os.listdir(folder)
            if len([name for name in os.listdir(os.path.join(folder, stage)) if "weights" in name and "tmp" not in name]) >= 2]
        cluster.poll("a stage has two checkpoints", two)
        cluster.kill9(worker)
        damaged = {}
        for stage in two():
            names = [name for name in os.listdir(os.path.join(folder, stage)) if "weights" in name and "tmp" not in name]
            newest = max(names, key=lambda name: os.path.getmtime(os.path.join(folder, stage, name)))
            with open(os.path.join(folder, stage, newest), "r+b") as file:
                file.seek(os.path.getsize(file.name) // 2)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 1]))
            damaged[stage] = newest
        self.assertTrue(damaged)
        cluster.start_worker("a", "--checkpoint-seconds", "0.1", slots=2)
        self.finish(cluster, "steady")
        resumed = [step for step, in cluster.sql("SELECT a.resumed_from_step FROM attempts a JOIN jobs j ON j.row = a.job"
                                                 " WHERE a.attempt = 2 AND j.kind = 'STAGE'")]
        self.assertTrue(resumed and all(step is not None for step in resumed), resumed)
        self.assertEqual(cluster.results(), expected)


class Processes(ReliabilityTest):
    def test_what_a_trainer_has_started_ends_with_the_daemon(self):
        cluster = self.cluster()
        cluster.start_server()
        pids = os.path.join(cluster.dir, "pids")
        wrapper = self.script(cluster, "wrapper", f"sleep 100000 & echo $! >> {pids}\nexec {BIN}/ablate-trainer \"$@\"\n")
        worker = cluster.start_worker("a", "--trainer", wrapper, "--sandbox", "off")
        cluster.submit(one_stage("long", steps=1_000_000), "long")
        cluster.poll("it trains", lambda: self.stage(cluster, "long")["step"] > 0)
        with open(pids, encoding="ascii") as file:
            started = [int(pid) for pid in file.read().split()]
        self.assertGreaterEqual(len(started), 2)  # one of the probe at the start, one of the task

        def alive(pid):
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                    return ") Z " not in file.read()
            except OSError:
                return False
        self.assertFalse(alive(started[0]), "the probe's helper outlived it")
        self.assertTrue(alive(started[-1]))
        cluster.kill9(worker)
        del cluster.workers["a"]
        cluster.poll("everything is gone", lambda: not any(alive(pid) for pid in started))

    def test_no_lease_runs_out_while_every_core_burns(self):
        lease = 5
        cluster = self.cluster(lease_seconds=lease)
        cluster.start_server()
        cluster.start_worker("a", "--executor", "noop", slots=4)
        cluster.submit(noop_yaml("jobs", 4, seconds=1.6 * lease), "jobs")
        cluster.poll("they run", lambda: len([j for j in cluster.jobs("jobs") if j["state"] == "RUNNING"]) == 4)
        # What computes beside it: one process a core at a better priority than the daemon's, and 64 more at its own.
        burners = [multiprocessing.Process(target=burn, args=(nice,), daemon=True)
                   for nice in [-10] * os.cpu_count() + [0] * 64]
        for burner in burners:
            burner.start()
        try:
            # Not through a call of its own, which might be too late for the connection.
            cluster.poll("the sweep is over", lambda: cluster.sql("SELECT state FROM sweeps") == [("SUCCEEDED",)], timeout=300)
        finally:
            for burner in burners:
                burner.kill()
        self.assertEqual(cluster.sql("SELECT count(*) FROM events WHERE cause = 'lease_expired'"), [(0,)])
        self.assertEqual({job["attempt"] for job in cluster.jobs("jobs")}, {1})

    def test_a_cut_network_costs_no_attempt_of_the_only_worker(self):
        if not permitted("unshare", "-n", "ip", "link", "set", "lo", "up"):
            print("SKIPPED: a cut network (no network namespace here)")
            self.skipTest("no network namespace here")
        lease = 1.5
        cluster = self.cluster(lease_seconds=lease)
        # Everyone in a network of their own, over TCP; a cut drops packets and tells nobody.
        keeper = subprocess.Popen(["unshare", "-n", "sleep", "100000"])
        self.addCleanup(keeper.wait)
        self.addCleanup(keeper.kill)
        inside = lambda *command: ["nsenter", "-t", str(keeper.pid), "-n", *command]
        cluster.poll("the network is there", lambda: os.readlink(f"/proc/{keeper.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
        set_link = lambda state: subprocess.run(inside("ip", "link", "set", "lo", state), check=True)
        set_link("up")
        cluster.server = cluster._spawn("server", inside(
            os.path.join(BIN, "ablate-server"), "--data-dir", cluster.data_dir, "--listen", "127.0.0.1:7433",
            "--lease-seconds", str(lease), "--contact-seconds", "0.1"))
        ablate = lambda *words: subprocess.run(inside(os.path.join(BIN, "ablate"), *words, "--server", "127.0.0.1:7433"),
                                               capture_output=True, text=True, cwd=cluster.dir)
        cluster.poll("the server answers", lambda: ablate("sweep", "list").returncode == 0)
        cluster.workers["a"] = cluster._spawn("worker-a", inside(
            os.path.join(BIN, "ablate-worker"), "--server", "127.0.0.1:7433", "--device", "cpu", "--slots", "2",
            "--threads-per-slot", "1", "--work-dir", os.path.join(cluster.dir, "work-a")))
        with open(os.path.join(cluster.dir, "cut.yaml"), "w", encoding="utf-8") as file:
            file.write(sweep_yaml("cut", steps=4000, seeds=1))
        self.assertEqual(ablate("sweep", "submit", "cut.yaml").returncode, 0)
        running = lambda: cluster.sql("SELECT count(*) FROM curves WHERE step > 50")[0][0] > 0
        cluster.poll("it trains", running)
        set_link("down")
        expired = lambda: cluster.sql("SELECT count(*) FROM events WHERE cause = 'lease_expired'")[0][0] > 0
        cluster.poll("the lease runs out", expired)
        set_link("up")
        cluster.poll("it is over", lambda: cluster.sql("SELECT state FROM sweeps")[0][0] == "SUCCEEDED", timeout=120)
        # Lost as far as the coordinator knew, and taken back when the worker could speak again.
        self.assertEqual(cluster.sql("SELECT DISTINCT attempt, failures FROM jobs WHERE kind = 'STAGE'"), [(1, 0)])
        self.assertEqual(checker.check(cluster.open_database()), [])


def burn(nice):
    try:
        os.nice(nice)
    except OSError:
        pass  # then at the daemon's own
    while True:
        pass


if __name__ == "__main__":
    unittest.main()
