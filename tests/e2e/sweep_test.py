"""The way of a user: submit, watch, table, compare, query, run; the same file again; many small jobs."""

import json
import os
import shutil
import subprocess
import unittest

from harness import BIN, ClusterTest, noop_yaml, sweep_yaml


class Sweeps(ClusterTest):
    def test_from_file_to_table(self):
        cluster = self.cluster()
        cluster.start_server()
        cluster.start_worker("a", slots=2)
        first = cluster.submit(sweep_yaml("small", seeds=3), "small")
        cluster.wait("small")
        jobs = cluster.jobs("small")
        # 2 variants x 3 seeds are 6 stages; each has 1x (NTK off) and 2x (off, on): NTK adds no training.
        self.assertEqual(len([j for j in jobs if j["kind"] == "STAGE"]), 6)
        self.assertEqual(len([j for j in jobs if j["kind"] == "EVALUATION"]), 18)

        rows = cluster.json("table", "small")
        for row in rows:
            for key in ("sweep", "arm", "metric", "length", "ntk", "n", "mean", "sd", "low", "high", "level", "method",
                        "seeds", "diverged"):
                self.assertIn(key, row)
        loss = [r for r in rows if r["metric"] == "loss" and r["arm"]["attention.variant"] == "softmax"]
        self.assertEqual(sorted((r["length"], int(r["ntk"])) for r in loss), [(32, 0), (64, 0), (64, 1)])
        for row in loss:
            self.assertEqual(row["n"], 3)
            self.assertTrue(row["low"] < row["mean"] < row["high"])
            self.assertLess(row["mean"], 5.5)  # below log 256: it has learned something

        compared = cluster.json("compare", "small")
        for row in compared:
            for key in ("difference", "low", "high", "p", "p_adjusted", "n", "baseline"):
                self.assertIn(key, row)
            if row["p"] is not None:
                self.assertGreaterEqual(row["p_adjusted"], row["p"])
        self.assertGreater(len([r for r in compared if r["p"] is not None]), 0)
        self.assertEqual({r["baseline"]["attention.variant"] for r in compared}, {"softmax"})

        # The same numbers from the stock shell's view as from the tool.
        by_view = {(r[0], r[1], r[2]): r[3:] for r in cluster.sql(
            "SELECT json_extract(arm, '$.\"attention.variant\"'), length, ntk, mean, low, high FROM confidence_intervals"
            " WHERE metric = 'loss'")}
        for row in rows:
            if row["metric"] == "loss":
                view = by_view[(row["arm"]["attention.variant"], row["length"], int(row["ntk"]))]
                for a, b in zip(view, (row["mean"], row["low"], row["high"])):
                    self.assertAlmostEqual(a, b, places=9)
        if shutil.which("sqlite3"):
            shell = subprocess.run(["sqlite3", f"{cluster.data_dir}/ablate.db", "SELECT * FROM confidence_intervals"],
                                   capture_output=True, text=True, check=True)
            self.assertGreater(len(shell.stdout.splitlines()), 6)

        # How far each arm and seed is, and the curves: exactly what is stored.
        grid = cluster.json("sweep", "grid", "small")
        self.assertEqual([(c["seed"], c["state"], c["jobs_done"], c["jobs"]) for c in grid],
                         [(seed, "SUCCEEDED", 4, 4) for _ in range(2) for seed in range(3)])
        self.assertIn("done", cluster.ablate("sweep", "grid", "small").stdout)
        stored = {row[:3]: row[3] for row in cluster.sql(
            "SELECT json_extract(a.json, '$.\"attention.variant\"'), p.seed, c.step, c.value FROM curves c JOIN points p ON p.stage = c.stage"
            " JOIN arms a ON a.arm = p.arm WHERE c.metric = 'train_loss'")}
        curves = cluster.json("curves", "small")
        self.assertEqual({(c["arm"]["attention.variant"], c["seed"], c["step"]): c["value"] for c in curves}, stored)
        means = cluster.json("curves", "small", "--mean", "--arm", "attention.variant=softmax")
        for row in means:
            values = [c["value"] for c in curves if c["arm"] == row["arm"] and c["step"] == row["step"]]
            self.assertEqual((row["n"], row["seeds"], row["arm"]["attention.variant"]), (3, [0, 1, 2], "softmax"))
            self.assertAlmostEqual(row["mean"], sum(values) / 3, places=12)
            self.assertTrue(row["low"] < row["mean"] < row["high"])
        self.assertEqual(len(means), len({c["step"] for c in curves}))
        for output in ("table", "csv", "markdown"):
            self.assertIn("softmax", cluster.ablate("curves", "small", "-o", output).stdout)
        self.assertEqual(cluster.ablate("curves", "small", "--metric", "train_los", check=False).returncode, 5)

        # Submitting again is the same sweep; a changed file under the same name is refused.
        self.assertEqual(first.returncode, 0)
        cluster.submit(sweep_yaml("small", seeds=3), "small")
        self.assertEqual(len(cluster.jobs("small")), len(jobs))
        changed = os.path.join(cluster.dir, "changed.yaml")
        with open(changed, "w", encoding="utf-8") as file:
            file.write(sweep_yaml("small", seeds=4))
        refused = cluster.ablate("sweep", "submit", changed, check=False)
        self.assertEqual(refused.returncode, 5, refused.stderr)
        self.assertIn("seeds", refused.stderr)

        # A query is read only.
        self.assertEqual(cluster.json("query", "SELECT count(*) AS jobs FROM jobs")[0]["jobs"], len(jobs))
        self.assertEqual(cluster.ablate("query", "DELETE FROM jobs", check=False).returncode, 5)

    def test_two_sweeps_share_what_both_need(self):
        cluster = self.cluster()
        cluster.start_server()
        cluster.start_worker("a", slots=2)
        cluster.submit(sweep_yaml("one"), "one")
        cluster.wait("one")
        before = cluster.sql("SELECT count(*) FROM jobs")[0][0]
        cluster.submit(sweep_yaml("two"), "two")
        cluster.wait("two")
        self.assertEqual(cluster.sql("SELECT count(*) FROM jobs")[0][0], before)
        drop_name = lambda rows: [{k: v for k, v in r.items() if k != "sweep"} for r in rows]
        self.assertEqual(drop_name(cluster.json("table", "two")), drop_name(cluster.json("table", "one")))

    def test_two_thousand_jobs_are_each_recorded_once(self):
        cluster = self.cluster()
        cluster.start_server()
        for name in "abcd":
            cluster.start_worker(name, "--executor", "noop", slots=2)
        cluster.submit(noop_yaml("many", 2000), "many")
        cluster.wait("many", timeout=240)
        cluster.check_alive()
        self.assertEqual(cluster.sql("SELECT count(*), sum(state = 'SUCCEEDED'), max(attempt) FROM jobs"), [(2000, 2000, 1)])
        self.assertEqual(cluster.sql("SELECT count(*), count(DISTINCT job) FROM attempts"), [(2000, 2000)])

    def test_run_on_one_machine_and_again(self):
        cluster = self.cluster()
        path = os.path.join(cluster.dir, "local.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(sweep_yaml("local"))
        first = cluster.ablate("run", path, "--data-dir", cluster.data_dir, "-o", "json")
        rows = json.loads(first.stdout)
        self.assertGreater(len(rows), 0)
        self.assertTrue(os.path.exists(os.path.join(cluster.data_dir, "ablate.db")))
        attempts = cluster.sql("SELECT count(*) FROM attempts")
        second = cluster.ablate("run", path, "--data-dir", cluster.data_dir, "-o", "json")
        self.assertEqual(json.loads(second.stdout), rows)
        self.assertEqual(cluster.sql("SELECT count(*) FROM attempts"), attempts)

    def test_run_takes_noop_sweeps_and_refuses_what_this_machine_cannot(self):
        cluster = self.cluster()
        for name, text in [("small", noop_yaml("small", 5)),
                           ("gpu", noop_yaml("gpu", 5) + "requires: {device: cuda}\n")]:
            with open(os.path.join(cluster.dir, name + ".yaml"), "w", encoding="utf-8") as file:
                file.write(text)
        cluster.ablate("run", os.path.join(cluster.dir, "small.yaml"), "--data-dir", cluster.data_dir)
        self.assertEqual(cluster.sql("SELECT count(*) FROM jobs WHERE state = 'SUCCEEDED'"), [(5,)])
        refused = cluster.ablate("run", os.path.join(cluster.dir, "gpu.yaml"), check=False)
        self.assertEqual(refused.returncode, 5)
        self.assertIn("cuda", refused.stderr)

    def test_refusals_say_what_to_do(self):
        cluster = self.cluster()
        nobody = cluster.ablate("sweep", "list", check=False)
        self.assertEqual(nobody.returncode, 4)
        self.assertIn("ablate-server", nobody.stderr)
        cluster.start_server()
        bad = os.path.join(cluster.dir, "bad.yaml")
        with open(bad, "w", encoding="utf-8") as file:
            file.write(sweep_yaml("bad").replace("train.steps", "train.stpes"))
        answer = cluster.ablate("sweep", "submit", bad, check=False)
        self.assertEqual(answer.returncode, 5)
        self.assertRegex(answer.stderr, r"bad\.yaml:\d+:\d+: .*train\.stpes.*train\.steps")
        self.assertEqual(cluster.ablate("sweep", "sbmit", check=False).returncode, 2)
        self.assertEqual(cluster.ablate("sweep", "show", "nothing", check=False).returncode, 5)

        # No worker: the job says so, and wait ends with the time-out's code.
        cluster.submit(sweep_yaml("lonely"), "lonely")
        job = [j for j in cluster.jobs("lonely") if j["state"] == "QUEUED"][0]["job_id"]
        self.assertIn("worker", cluster.ablate("job", "explain", job).stdout)
        self.assertEqual(cluster.ablate("sweep", "wait", "lonely", "--timeout", "1", check=False).returncode, 3)
        cluster.ablate("sweep", "cancel", "lonely")
        self.assertEqual({j["state"] for j in cluster.jobs("lonely")}, {"CANCELLED"})


if __name__ == "__main__":
    unittest.main()
