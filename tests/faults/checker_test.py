"""The checker finds what it is there for: a good history, damaged in one way at a time. Makes its history with the real
programs (a small sweep, one attempt lost and one late result), then copies and damages it."""

import os
import shutil
import sqlite3
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault("ABLATE_BIN", os.path.join(HERE, "..", "..", "build", "release", "bin"))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))

import checker
import chaos
from harness import Cluster


class CheckerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="ablate-checker-")
        cls.good = os.path.join(cls.folder.name, "good.db")
        cluster = Cluster(lease_seconds=1)
        try:
            cluster.start_server("--idle-wait-seconds", "0.5")
            victim = cluster.start_worker("a", "--executor", "noop", slots=2)
            cluster.submit(chaos.noop_sweep("s", seeds=2, seconds=0.3), "s")
            cluster.poll("something runs", lambda: cluster.sql("SELECT count(*) FROM attempts")[0][0] > 1)
            cluster.kill9(victim)
            cluster.start_worker("a", "--executor", "noop", slots=2)
            cluster.wait("s")
            source = cluster.open_database()
            copy = sqlite3.connect(cls.good)
            source.backup(copy)
            copy.close()
            source.close()
        finally:
            cluster.close()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def found(self, *statements):
        path = os.path.join(self.folder.name, "damaged.db")
        shutil.copy(self.good, path)
        connection = sqlite3.connect(path, isolation_level=None)
        for statement in ("DROP TRIGGER IF EXISTS attempts_have_a_slot", "DROP TRIGGER IF EXISTS attempts_keep_their_slot",
                          *statements):
            connection.execute(statement)
        try:
            return checker.check(connection)
        finally:
            connection.close()

    def test_a_good_history_has_no_problem(self):
        self.assertEqual(self.found(), [])

    def test_every_damage_is_found(self):
        lost = "(SELECT job FROM attempts WHERE state = 'LOST' LIMIT 1)"
        some = "(SELECT row FROM jobs WHERE kind = 'EVALUATION' AND state = 'SUCCEEDED' LIMIT 1)"
        for words, *statements in [
            ("succeeded 2 times", f"INSERT INTO events SELECT NULL, at_us, job, from_state, to_state, cause, attempt, worker_id, text"
             f" FROM events WHERE job = {some} AND to_state = 'SUCCEEDED'"),
            ("it had ended", "INSERT INTO events SELECT NULL, at_us, job, 'SUCCEEDED', 'QUEUED', 'released', attempt, worker_id, text"
             f" FROM events WHERE job = {some} AND to_state = 'SUCCEEDED'"),
            ("the latest attempt was 2", f"UPDATE events SET attempt = 1 WHERE job = {lost} AND to_state = 'SUCCEEDED'"),
            ("which was not the latest", f"UPDATE attempts SET state = 'SUCCEEDED' WHERE job = {lost} AND attempt = 1",
             f"UPDATE attempts SET state = 'LOST' WHERE job = {lost} AND attempt = 2"),
            ("has attempts [2]", f"DELETE FROM attempts WHERE job = {lost} AND attempt = 1"),
            ("the attempt before was 0", f"DELETE FROM events WHERE job = {lost} AND attempt = 1"),
            ("its events end with", f"UPDATE jobs SET state = 'FAILED' WHERE row = {some}"),
            ("has numbers of", f"UPDATE jobs SET state = 'CANCELLED' WHERE row = {some}"),
            ("nothing of it is stored", f"DELETE FROM evaluation_results WHERE job = {some}"),
            ("has 0 jobs", f"DELETE FROM sweep_jobs WHERE job = {some}"),
            ("with 0 accepted results", f"UPDATE attempts SET state = 'RELEASED' WHERE job = {some}"),
        ]:
            problems = self.found(*statements)
            self.assertTrue(any(words in problem for problem in problems), f"{words!r} is not among {problems}")

    def test_what_sanitizers_said_is_found_in_logs_and_in_what_trainers_left(self):
        cluster = Cluster()
        self.addCleanup(cluster.close)
        self.assertEqual(cluster.sanitizer_reports(), [])
        os.makedirs(cluster.data_dir)
        shutil.copy(self.good, os.path.join(cluster.data_dir, "ablate.db"))
        self.assertEqual(cluster.sanitizer_reports(), [])
        with open(os.path.join(cluster.dir, "worker-a.1.log"), "w", encoding="utf-8") as file:
            file.write("all is well\nx.cc:4:1: runtime error: signed integer overflow\n")
        with sqlite3.connect(os.path.join(cluster.data_dir, "ablate.db")) as connection:
            connection.execute("UPDATE attempts SET stderr_tail = 'a' || char(10) || '==1==ERROR: AddressSanitizer: SEGV' WHERE attempt = 2")
        connection.close()
        found = cluster.sanitizer_reports()
        self.assertIn("worker-a.1.log: x.cc:4:1: runtime error: signed integer overflow", found)
        self.assertTrue(any(line.endswith(", attempt 2: ==1==ERROR: AddressSanitizer: SEGV") for line in found), found)


if __name__ == "__main__":
    unittest.main()
