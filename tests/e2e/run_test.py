"""`ablate run`: interrupted, resumed, its worker killed, on a path too long for a socket; read while it runs and afterwards."""

import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from harness import BIN, ClusterTest, noop_yaml, sweep_yaml

STEPS = 3000


def child_named(parent, name):
    """The process id of the child of `parent` that runs the program `name`."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/status") as status, open(f"/proc/{pid}/cmdline") as cmdline:
                if f"PPid:\t{parent}\n" in status.read() and os.path.basename(cmdline.read().split("\0")[0]) == name:
                    return int(pid)
        except OSError:
            pass  # ended meanwhile
    raise AssertionError(f"process {parent} has no child {name}")


class Run(ClusterTest):
    def setUp(self):
        self.box = self.cluster()  # only its folder and text: no server of its own is started
        self.file = os.path.join(self.box.dir, "local.yaml")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(sweep_yaml("local", steps=STEPS))

    def start(self, data_dir, *flags):
        process = subprocess.Popen([os.path.join(BIN, "ablate"), "run", self.file, "--slots", "2", "--data-dir", data_dir, *flags],
                                   cwd=self.box.dir, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def json(self, data_dir, *args):
        return self.box.json(*args, "--data-dir", data_dir)

    def poll_jobs(self, process, data_dir, condition):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            listed = self.box.ablate("job", "list", "-o", "json", "--data-dir", data_dir, check=False)
            if listed.returncode == 0 and condition(json.loads(listed.stdout)):
                return
            time.sleep(0.02)
        self.fail(f"the run did not get there; it is {process.poll()}\n{process.stderr.read() if process.poll() is not None else ''}")

    def wait_for_database(self, process, data_dir):
        """Until the run's own server has the folder: asking earlier would start another one there."""
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(data_dir, "server.address")):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def results(self, data_dir):
        rows = self.json(data_dir, "query", "SELECT arm, seed, metric, length, split, ntk, value, status FROM results")
        return {json.dumps({k: row[k] for k in row if k not in ("value", "status")}): (row["value"], row["status"]) for row in rows}

    def test_interrupted_killed_and_resumed_gives_the_same_numbers(self):
        calm = os.path.join(self.box.dir, "calm")
        out, err = self.start(calm, "-o", "json").communicate(timeout=120)
        expected = json.loads(out)
        self.assertGreater(len(expected), 0, err)

        # A path that no socket address can hold.
        rough = os.path.join(self.box.dir, "x" * 100, "rough")
        process = self.start(rough)
        self.wait_for_database(process, rough)
        self.poll_jobs(process, rough, lambda jobs: any(j["state"] == "RUNNING" for j in jobs))
        again = self.box.ablate("run", self.file, "--data-dir", rough, check=False)
        self.assertEqual(again.returncode, 5)
        self.assertIn("in use", again.stderr)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("resumes", err)
        self.assertFalse(os.path.exists(os.path.join(rough, "server.address")))
        states = {j["state"] for j in self.json(rough, "job", "list")}
        self.assertNotIn("RUNNING", states)  # handed back, not lost
        self.assertTrue(states & {"QUEUED", "BLOCKED"}, states)

        process = self.start(rough, "-o", "json")
        self.wait_for_database(process, rough)
        self.poll_jobs(process, rough, lambda jobs: any(j["state"] == "RUNNING" for j in jobs))
        worker = child_named(process.pid, "ablate-worker")
        os.kill(worker, signal.SIGKILL)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("starting it again", err)
        self.assertEqual(self.results(rough), self.results(calm))
        drop_jobs = lambda rows: [{k: v for k, v in row.items() if k != "jobs"} for row in rows]
        self.assertEqual(drop_jobs(json.loads(out)), drop_jobs(expected))

    def test_faults_of_the_file_are_told_before_anything_starts(self):
        data_dir = os.path.join(self.box.dir, "never")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(sweep_yaml("local").replace("softmax", "softmaxx"))
        answer = self.box.ablate("run", self.file, "--data-dir", data_dir, check=False)
        self.assertEqual(answer.returncode, 5)
        self.assertRegex(answer.stderr, r"local\.yaml:\d+:\d+: .*softmaxx.*softmax")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(sweep_yaml("local", data="absent.txt"))
        answer = self.box.ablate("run", self.file, "--data-dir", data_dir, check=False)
        self.assertEqual(answer.returncode, 5)
        self.assertIn("absent.txt", answer.stderr)
        self.assertFalse(os.path.exists(data_dir))
        self.assertEqual(self.box.ablate("run", check=False).returncode, 2)

    def test_says_which_other_sweeps_of_the_folder_run_too(self):
        data_dir = os.path.join(self.box.dir, "shared")
        for name, seconds, flags, code in (("older", 600, ("--timeout", "0.1"), 3), ("newer", 0, ("--timeout", "0.1"), 3)):
            with open(self.file, "w", encoding="utf-8") as file:
                file.write(noop_yaml(name, 4, seconds=seconds))
            answer = self.box.ablate("run", self.file, "--data-dir", data_dir, "--slots", "1", "--http", "off", *flags, check=False)
            self.assertEqual(answer.returncode, code, answer.stderr)
            self.assertEqual("ablate sweep cancel older --data-dir " + data_dir in answer.stderr, name == "newer", answer.stderr)
        # Cancelled, it is no longer in the way.
        self.box.ablate("sweep", "cancel", "older", "--data-dir", data_dir)
        answer = self.box.ablate("run", self.file, "--data-dir", data_dir, "--http", "off")
        self.assertNotIn("older", answer.stderr)

    def test_a_finished_run_can_be_read_from_a_full_disk(self):
        disk = os.path.join(self.box.dir, "disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", disk], capture_output=True).returncode != 0:
            self.skipTest("no file system can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", disk])
        data_dir = os.path.join(disk, "run")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(noop_yaml("local", 4, seconds=0))
        roomy = os.path.join(self.box.dir, "roomy")
        self.box.ablate("run", self.file, "--data-dir", roomy, "--http", "off")
        expected = self.results(roomy)
        shutil.copytree(roomy, data_dir)
        with open(os.path.join(disk, "filler"), "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 512):
                    pass
            except OSError:
                pass
        self.assertEqual(os.statvfs(disk).f_bavail, 0)
        self.assertEqual(self.results(data_dir), expected)
        answer = self.box.ablate("query", "--timeout", "0.2", "--data-dir", data_dir, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
                                 "SELECT i + 1 FROM n) SELECT sum(i) FROM n", check=False)
        self.assertEqual(answer.returncode, 3, answer.stderr)
        self.assertRegex(answer.stderr, "the query took longer than .*--timeout")
        answer = self.box.ablate("run", self.file, "--data-dir", data_dir, "--http", "off", check=False)
        if answer.returncode != 0:
            self.assertIn("ablate-server --read-only", answer.stderr)

    def test_time_out(self):
        process = self.start(os.path.join(self.box.dir, "short"), "--timeout", "0.1")
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, err)


if __name__ == "__main__":
    unittest.main()
