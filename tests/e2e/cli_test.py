"""What `ablate` says and ends with when something is in the way: signals, full output, folders that nobody serves, failures."""

import glob
import json
import os
import signal
import subprocess
import time
import unittest

from harness import BIN, ClusterTest, noop_yaml, sweep_yaml
from run_test import child_named

ABLATE = os.path.join(BIN, "ablate")


class Box(ClusterTest):
    """A folder with a text; `ablate run` brings its own server and worker."""

    def setUp(self):
        self.box = self.cluster()
        self.dir = self.box.dir

    def file(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def ablate(self, *args):
        return self.box.ablate(*args, check=False)

    def start(self, *args):
        """The command, with stderr in a file."""
        self.log = os.path.join(self.dir, "stderr")
        with open(self.log, "wb") as log:
            process = subprocess.Popen([ABLATE, *args], cwd=self.dir, text=True, stdout=subprocess.PIPE, stderr=log)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def said(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def poll(self, process, what, condition, timeout=60):
        deadline = time.monotonic() + timeout
        while True:
            try:
                value = condition()
            except (AssertionError, OSError):
                value = None
            if value:
                return value
            self.assertIsNone(process.poll(), f"{what}: it has ended\n{self.said()}")
            self.assertLess(time.monotonic(), deadline, f"{what}\n{self.said()}")
            time.sleep(0.01)

    def jobs(self, data_dir):
        listed = self.ablate("job", "list", "-o", "json", "--data-dir", data_dir)
        return json.loads(listed.stdout) if listed.returncode == 0 else []

    def start_long_run(self):
        """A run of minutes, when its first steps are done; (process, folder)."""
        data_dir = os.path.join(self.dir, "long run")
        address = os.path.join(data_dir, "server.address")
        if os.path.exists(address):
            os.remove(address)  # of a killed server: asking before the new one is there would start another
        process = self.start("run", self.file("long.yaml", sweep_yaml("long", steps=1_000_000)), "--slots", "1", "--data-dir", data_dir)
        self.poll(process, "a server", lambda: os.path.exists(address))
        self.poll(process, "steps", lambda: any(j["step"] > 0 for j in self.jobs(data_dir)))
        return process, data_dir


class Signals(Box):
    def test_ctrl_c_ends_hashing_and_uploading_at_once(self):
        with open(os.path.join(self.dir, "big.txt"), "wb") as file:
            file.truncate(2_000_000_000)
        sweep = self.file("big.yaml", sweep_yaml("big", data="big.txt"))
        data_dir = os.path.join(self.dir, "big")
        process = self.start("run", sweep, "--data-dir", data_dir)
        self.poll(process, "hashing", lambda: "hashing" in self.said())
        self.assertFalse(os.path.exists(data_dir))  # nothing is started before
        process.send_signal(signal.SIGINT)
        process.wait(timeout=10)
        self.assertEqual(process.returncode, 130)
        self.assertIn("resumes", self.said())

        process = self.start("run", sweep, "--data-dir", data_dir)
        self.poll(process, "uploading", lambda: any(os.path.isfile(f) and os.path.getsize(f) > 0
                                                    for f in glob.glob(data_dir + "/artifacts/**", recursive=True)))
        process.send_signal(signal.SIGINT)
        process.wait(timeout=10)
        self.assertEqual(process.returncode, 130)

        process = self.start("sweep", "submit", sweep)
        self.poll(process, "hashing", lambda: "hashing" in self.said())
        process.send_signal(signal.SIGINT)
        process.wait(timeout=10)
        self.assertEqual(process.returncode, -signal.SIGINT)

    def test_a_further_ctrl_c_ends_the_wait_for_children_that_hang(self):
        process, data_dir = self.start_long_run()
        for name in ("ablate-worker", "ablate-server"):
            os.kill(child_named(process.pid, name), signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        self.poll(process, "it says so", lambda: "stopping" in self.said())
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
        self.assertEqual(process.returncode, 130)

    def test_a_killed_server_is_said_before_the_worker_is_waited_for(self):
        process, data_dir = self.start_long_run()
        worker = child_named(process.pid, "ablate-worker")
        os.kill(worker, signal.SIGSTOP)  # so the wait for it cannot be over first
        os.kill(child_named(process.pid, "ablate-server"), signal.SIGKILL)
        self.poll(process, "it says so", lambda: "ablate-server ended" in self.said())
        self.assertRegex(self.said(), r"the same command resumes: ablate run \S+ --data-dir '.*long run'")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        self.assertEqual(process.returncode, 4)
        # And so it does.
        process, data_dir = self.start_long_run()
        self.assertIn("resuming", self.said())
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        self.assertEqual(process.returncode, 130)

    def test_a_worker_may_die_often_where_work_goes_on_between(self):
        process, data_dir = self.start_long_run()
        steps = lambda: max([j["step"] for j in self.jobs(data_dir)], default=0)
        worker = lambda: child_named(process.pid, "ablate-worker")
        for _ in range(6):
            at = steps()
            self.poll(process, "more steps", lambda: steps() > at)
            os.kill(worker(), signal.SIGKILL)
            time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        self.assertEqual(process.returncode, 130)

    def test_a_worker_that_dies_without_progress_is_given_up(self):
        # A run of its own: after other kills the failure limit of the jobs could come first.
        process, data_dir = self.start_long_run()
        while process.poll() is None:
            try:
                os.kill(child_named(process.pid, "ablate-worker"), signal.SIGKILL)
            except (AssertionError, ProcessLookupError):
                pass
            time.sleep(0.05)
        self.assertEqual(process.returncode, 5)
        self.assertIn("without any progress", self.said())
        self.assertIn("the same command resumes", self.said())


class Words(Box):
    def test_output_that_cannot_be_written_is_no_success(self):
        full = open("/dev/full", "wb")
        self.addCleanup(full.close)
        for args in (["variants"], ["variants", "-o", "json"], ["version"], ["--help"], ["sweep", "plan", "--help"]):
            result = subprocess.run([ABLATE, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(result.returncode, 6, args)
            self.assertIn("No space left", result.stderr)
            result = subprocess.run(["sh", "-c", '"$@" >&-', "sh", ABLATE, *args], stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(result.returncode, 6, args)
            self.assertIn("stdout", result.stderr)
        self.assertEqual(subprocess.run([ABLATE, "version"], stdout=subprocess.DEVNULL, timeout=60).returncode, 0)

    def test_only_an_unreachable_coordinator_ends_with_four(self):
        sweep = self.file("small.yaml", noop_yaml("small", 1))
        for args, code, text in [
                (("sweep", "list"), 4, "ablate-server"),
                (("sweep", "plan", self.dir), 2, "is a folder"),
                (("run", sweep, "--data-dir", ""), 2, "--data-dir"),
                (("run", sweep, "--data-dir", "/proc/none"), 5, "/proc/none"),
                (("sweep", "list", "--data-dir", self.dir), 5, "ablate.db")]:
            result = self.ablate(*args)
            self.assertEqual(result.returncode, code, (args, result.stderr))
            self.assertIn(text, result.stderr)
        for args in ([b"run", b"\xff.yaml"], [b"query", b"select '\xff'"], [b"sweep", b"show", b"\xff"]):
            result = subprocess.run([ABLATE.encode(), *args], capture_output=True, timeout=60)
            self.assertEqual(result.returncode, 2)
            self.assertIn(b"UTF-8", result.stderr)
            self.assertNotIn(b"libprotobuf", result.stderr)
        with open(os.path.join(self.dir, "bytes.yaml"), "wb") as file:
            file.write(b"name: \xff\n")
        result = self.ablate("run", "bytes.yaml")
        self.assertEqual(result.returncode, 5)
        self.assertIn("bytes.yaml:1:7", result.stderr)

    def test_a_folder_that_nobody_serves_is_not_waited_for(self):
        data_dir = os.path.join(self.dir, "my runs")
        sweep = self.file("slow.yaml", noop_yaml("slow", 2, seconds=30))
        stopped = self.ablate("run", sweep, "--data-dir", data_dir, "--timeout", "0.5")
        self.assertEqual(stopped.returncode, 3)
        self.assertNotIn("goes on", stopped.stderr)
        self.assertRegex(stopped.stderr, r"the same command resumes: ablate run \S+ --data-dir '.*my runs'")
        for args in (("sweep", "wait", "slow"), ("sweep", "watch", "slow"), ("sweep", "submit", sweep)):
            result = self.ablate(*args, "--data-dir", data_dir)
            self.assertEqual(result.returncode, 5, result.stderr)
            self.assertIn("ablate run FILE --data-dir", result.stderr)
        job = self.jobs(data_dir)[0]["job_id"]
        self.assertIn("ablate run FILE --data-dir", self.ablate("job", "explain", job, "--data-dir", data_dir).stdout)
        self.ablate("sweep", "cancel", "slow", "--data-dir", data_dir)
        self.assertEqual(self.ablate("sweep", "wait", "slow", "--data-dir", data_dir).returncode, 1)

    def test_where_everything_failed_the_cause_is_shown(self):
        self.file("empty.txt", "")
        sweep = self.file("doomed.yaml", sweep_yaml("doomed", data="empty.txt"))
        result = self.ablate("run", sweep, "--data-dir", "doomed")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertNotIn("latex", result.stderr)
        jobs = self.jobs("doomed")
        causes = [j for j in jobs if j["failure"] == "invalid_config"]
        self.assertEqual(len(causes), 4)
        self.assertRegex(result.stderr, rf"  4 x invalid_config: .*empty.* \(({'|'.join(j['job_id'] for j in causes)})\)\n")
        self.assertIn(f"  {len(jobs) - 4} because", result.stderr)
        self.assertIn("--retry", result.stderr)
        again = self.ablate("run", sweep, "--data-dir", "doomed", "-o", "json")
        self.assertEqual((again.returncode, json.loads(again.stdout)), (1, []))
        self.assertIn("empty", self.ablate("job", "list", "--data-dir", "doomed").stdout)

    def test_a_finished_sweep_needs_no_data_and_its_jobs_say_what_they_are(self):
        sweep = self.file("tiny.yaml", sweep_yaml("tiny", seeds=1))
        first = self.box.ablate("run", sweep, "--data-dir", "tiny", "-o", "json")
        os.remove(os.path.join(self.dir, "text.txt"))
        second = self.box.ablate("run", sweep, "--data-dir", "tiny", "-o", "json")
        self.assertEqual(second.stdout, first.stdout)
        self.file("tiny.yaml", sweep_yaml("tiny", seeds=2))  # another file: its data is needed
        changed = self.ablate("run", sweep, "--data-dir", "tiny")
        self.assertEqual(changed.returncode, 5)
        self.assertIn("text.txt", changed.stderr)

        told = sorted((j["length"], j["split"], j["ntk"], j["eval_config"].get("eval.ntk")) for j in self.jobs("tiny")
                      if j["kind"] == "EVALUATION" and "softmax" in j["arm"])
        self.assertEqual(told, [(32, "selection", False, None), (64, "selection", False, None), (64, "selection", True, "dynamic")])
        self.assertRegex(self.box.ablate("job", "list", "--data-dir", "tiny").stdout, r"64  selection  on ")

    def test_explain_names_the_coordinator_that_was_asked(self):
        self.box.start_server()
        self.box.submit(noop_yaml("lonely", 1), "lonely")
        job = self.box.jobs("lonely")[0]["job_id"]
        self.assertIn("ablate-worker --server " + self.box.address, self.box.ablate("job", "explain", job).stdout)


if __name__ == "__main__":
    unittest.main()
