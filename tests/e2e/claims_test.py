"""Sweeps with claims, from the file to the verdicts: two workers, a coordinator that is killed in each phase; what the
command line says before and after the lock; second runs; and databases of earlier schema versions."""

import json
import os
import shutil
import sqlite3
import unittest

from harness import ClusterTest, sweep_yaml

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data")
SCHEMA1 = os.path.join(DATA, "schema1")
SCHEMA2 = os.path.join(DATA, "schema2")

SEALED = """name: sealed
data: {name: words, format: text, path: text.txt}
keep: weights
settings:
  model.layers: 1
  model.width: 32
  model.heads: 2
  train.length: 32
  train.batch: 4
  train.steps: 30
  train.warmup_steps: 5
  eval.target_spans: 8
  eval.loss_tokens: 1024
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: [1, 3, 15]}
baseline: {attention.variant: softmax}
seeds: 3
tune: {learning_rates: [1e-3, 3e-3], seeds: [50, 51], max_extensions: 1}
evaluate: {lengths: [1x, 2x, 4x]}
select:
confirm:
  seeds: 5
  fixed: [{attention.variant: lssar, attention.p: 15}]
claims:
  - {name: selected, kind: differs, arm: selected, length: 8x}
  - {name: p15, kind: differs, arm: {attention.p: 15}, length: 8x}
"""


def outcome(cluster):
    """Everything that must not depend on who died when."""
    claims = cluster.sql("SELECT arm, rule_arm, by_hand, evidence FROM locks")
    rates = cluster.sql("SELECT arm, learning_rate FROM tuned_arms ORDER BY position")
    plan = cluster.sql("SELECT version, why, plan_sha256 FROM plan_versions ORDER BY version")
    points = cluster.sql("SELECT a.json, p.seed, p.phase, p.seal FROM points p JOIN arms a ON a.sweep = p.sweep AND "
                         "a.arm = p.arm ORDER BY 1, 2, 3")
    return rates, [row[:3] for row in claims], plan, points, cluster.results()


class Claims(ClusterTest):
    def run_sealed(self, kill):
        cluster = self.cluster(lease_seconds=3)
        cluster.start_server()
        for name in ("a", "b"):
            cluster.start_worker(name)
        cluster.submit(SEALED, "sealed")
        seen = []
        for phase in ("tuning", "selecting", "confirming"):
            def running():
                sweep = cluster.json("sweep", "show", "sealed")[0]
                return sweep["phase"] == phase and sweep["running"] > 0 and sweep
            sweep = cluster.poll(f"the {phase} phase runs", running, timeout=120)
            seen.append(phase)
            self.assertEqual(sweep["sealed"], phase != "confirming")
            if phase != "confirming":
                self.assertEqual(cluster.sql("SELECT COUNT(*) FROM evaluation_results r JOIN evaluations e ON e.row = "
                                             "r.evaluation WHERE e.split = 'confirmation'"), [(0,)])
                for table in ("checkpoints", "curves", "stage_results"):
                    self.assertEqual(cluster.sql(f"SELECT COUNT(*) FROM {table} t JOIN stages s ON s.row = t.stage "
                                                 "WHERE s.seed >= 100"), [(0,)])
                verdicts = {row["verdict"] for row in cluster.json("claims", "sealed")}
                self.assertEqual(verdicts, {"not yet"})
            if kill:
                cluster.kill9(cluster.server)
                cluster.start_server()
        cluster.wait("sealed", timeout=240)
        self.assertEqual(seen, ["tuning", "selecting", "confirming"])
        return cluster

    def test_a_sealed_sweep_to_its_verdicts_whoever_dies(self):
        calm = self.run_sealed(kill=False)
        expected = outcome(calm)
        # The promises that a table of this sweep rests on.
        self.assertEqual(calm.sql("SELECT COUNT(*) FROM points WHERE seal = 'sealed'"), [(0,)])
        rows = calm.json("table", "sealed")
        confirming = [row for row in rows if row["phase"] == "confirming" and row["split"] != "train"]
        longest = max(row["length"] for row in confirming)  # the claims' 8x
        for row in confirming:
            claimed = row["metric"] == "loss_targets" and row["length"] == longest
            self.assertEqual(row["standing"], "confirmatory" if claimed else "exploratory: no claim is about it", row)
        self.assertTrue(any(row["standing"] == "confirmatory" for row in confirming))
        self.assertEqual({row["standing"] for row in rows if row["phase"] != "confirming"}, {"exploratory"})
        claims = calm.json("claims", "sealed")
        self.assertEqual(len(claims), 2)
        for row in claims:
            self.assertIn(row["verdict"], ("supported", "refuted", "undecided"))
            self.assertEqual(row["standing"], "confirmatory")
            self.assertEqual(row["n"], 5)
        for form in ("table", "csv", "markdown", "latex"):
            self.assertIn("p15", calm.ablate("claims", "sealed", "-o", form).stdout)
        self.assertGreater(len(calm.json("spread", "sealed")), 0)

        # A second run of three jobs agrees bit for bit; with a stored number changed, it does not.
        verified = calm.json("job", "verify", "sealed", "--sample", "3", "--timeout", "120")
        self.assertEqual([row["result"] for row in verified], ["same"] * 3)
        job, = calm.sql("SELECT j.job_id FROM jobs j JOIN evaluations e ON e.key = j.key WHERE j.state = 'SUCCEEDED' "
                        "LIMIT 1")[0]
        calm.kill9(calm.server)
        with sqlite3.connect(f"{calm.data_dir}/ablate.db") as db:
            db.create_function("ablate_digest", -1, lambda *_: None)  # else this program may not write there
            db.execute("UPDATE evaluation_results SET value = value + 1e-12 WHERE metric = 'loss_targets' AND job = "
                       "(SELECT row FROM jobs WHERE job_id = ?)", (job,))
        db.close()
        calm.start_server()
        result = calm.ablate("job", "verify", job, "--timeout", "120", "-o", "json", check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        row, = json.loads(result.stdout)
        self.assertEqual(row["result"], "different")
        self.assertRegex(row["difference"], r"^loss_targets \S+ and \S+$")
        self.assertEqual(calm.json("job", "verifications", "sealed")[0]["result"], "different")
        # Everything on one machine, with one command, ends with the claims.
        run = calm.ablate("run", "sealed.yaml", "--data-dir", "run", "--slots", "2", timeout=300)
        self.assertIn("p15", run.stdout)
        self.assertRegex(run.stdout, r"(?i)(supported|refuted|undecided)")
        calm.close()

        killed = self.run_sealed(kill=True)
        self.assertEqual(outcome(killed), expected)

    def test_the_seal_on_the_command_line(self):
        cluster = self.cluster()
        cluster.start_server()  # and no worker: nothing is locked
        plain = SEALED.replace("tune: {learning_rates: [1e-3, 3e-3], seeds: [50, 51], max_extensions: 1}\n", "")
        cluster.submit(plain, "sealed")
        with open(os.path.join(cluster.dir, "peek.yaml"), "w", encoding="utf-8") as file:
            text = plain[:plain.index("select:")].replace("name: sealed", "name: peek")
            text = text.replace("seeds: 3", "seeds: [100]").replace("[1x, 2x, 4x]", "[8x]")
            file.write(text)
        refused = cluster.ablate("sweep", "submit", "peek.yaml", check=False)
        self.assertEqual(refused.returncode, 5)
        self.assertIn('sweep "peek" asks for what sweep "sealed" has sealed', refused.stderr)
        sealed = [job for job in cluster.jobs("sealed") if job["sealed"]]
        self.assertGreater(len(sealed), 0)
        explained = cluster.ablate("job", "explain", sealed[0]["job_id"]).stdout
        self.assertIn("It is sealed", explained)
        self.assertEqual(cluster.ablate("job", "verify", sealed[0]["job_id"], check=False).returncode, 5)
        self.assertEqual(cluster.ablate("sweep", "lock", "sealed", "--arm", "attention.p=3", check=False).returncode, 2)
        locked = cluster.ablate("sweep", "lock", "sealed", "--arm", "attention.p=3", "--why", "a test")
        self.assertIn("recorded as a deviation", locked.stderr)
        self.assertFalse(cluster.json("sweep", "show", "sealed")[0]["sealed"])
        self.assertEqual(cluster.ablate("sweep", "lock", "sealed", "--arm", "attention.p=3", "--why", "again",
                                        check=False).returncode, 5)
        self.assertEqual(cluster.sql("SELECT kind FROM deviations"), [("lock_by_hand",)])
        # What the lock let go is no secret any more.
        self.assertEqual(cluster.ablate("sweep", "submit", "peek.yaml", check=False).returncode, 0)

    def test_extend(self):
        cluster = self.cluster()
        cluster.start_server()
        cluster.start_worker("a", slots=2)
        cluster.submit(sweep_yaml("grows", seeds=2, steps=20), "grows")
        cluster.wait("grows")
        before = cluster.results()
        path = os.path.join(cluster.dir, "grows.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(sweep_yaml("grows", seeds=3, steps=20, lengths="[1x, 2x, 4x]"))
        self.assertIn("recorded as an amendment", cluster.ablate("sweep", "extend", path).stderr)
        cluster.wait("grows")
        after = cluster.results()
        self.assertEqual({key: after[key] for key in before}, before)
        self.assertEqual({row["n"] for row in cluster.json("table", "grows")}, {3})
        with open(path, "w", encoding="utf-8") as file:
            file.write(sweep_yaml("grows", seeds=1, steps=20))
        self.assertEqual(cluster.ablate("sweep", "extend", path, check=False).returncode, 5)


class EarlierDatabases(ClusterTest):
    def test_the_first_releases_database_gives_the_same_tables_and_goes_on(self):
        cluster = self.cluster()
        os.makedirs(cluster.data_dir)
        shutil.copy(os.path.join(SCHEMA1, "ablate.db"), cluster.data_dir)
        cluster.start_server()
        for name in ("small", "endings", "unfinished"):
            for kind, args in (("table", ["--metric", "loss,loss_targets"]), ("compare", [])):
                with open(os.path.join(SCHEMA1, f"{name}.{kind}.json"), encoding="utf-8") as file:
                    expected = json.load(file)
                found = cluster.json(kind, f"released-{name}", *args)
                # Rows may have more fields now.
                self.assertEqual([{key: row.get(key) for key in old} for row, old in zip(found, expected)], expected)
                self.assertEqual(len(found), len(expected))
        # The same file is the same sweep, and what was left is done.
        shutil.copy(os.path.join(SCHEMA1, "unfinished.yaml"), cluster.dir)
        again = cluster.ablate("sweep", "submit", "unfinished.yaml")
        self.assertIn("is here already: nothing new, its open jobs go on", again.stderr)
        cluster.start_worker("a", "--executor", "noop", "--labels", "nowhere")
        # Some of its jobs are made to fail.
        self.assertEqual(cluster.ablate("sweep", "wait", "released-unfinished", check=False).returncode, 1)
        sweep = cluster.json("sweep", "show", "released-unfinished")[0]
        self.assertEqual((sweep["state"], sweep["succeeded"], sweep["failed"]), ("FAILED", 45, 15))

    def test_the_one_with_claims_gives_the_same_tables_and_verdicts_and_goes_on(self):
        cluster = self.cluster()
        os.makedirs(cluster.data_dir)
        shutil.copy(os.path.join(SCHEMA2, "ablate.db"), cluster.data_dir)
        cluster.start_server()
        args = {"table": ["--metric", "loss,loss_targets"], "compare": ["--metric", "loss_targets"], "claims": []}
        compared = 0
        for file in sorted(os.listdir(SCHEMA2)):
            name, kind, suffix = (file.split(".") + [""])[:3]
            if suffix != "json":
                continue
            with open(os.path.join(SCHEMA2, file), encoding="utf-8") as text:
                expected = json.load(text)
            found = cluster.json(kind, f"kept-{name}", *args[kind])
            self.assertEqual([{key: row.get(key) for key in old} for row, old in zip(found, expected)], expected, file)
            self.assertEqual(len(found), len(expected))
            compared += len(expected)
        self.assertEqual(compared, 193)
        for name, results in (("kept-small", ["same"] * 3), ("kept-sealed", ["different"])):
            self.assertEqual([row["result"] for row in cluster.json("job", "verifications", name)], results)
        shutil.copy(os.path.join(SCHEMA2, "unfinished.yaml"), cluster.dir)
        self.assertIn("is here already", cluster.ablate("sweep", "submit", "unfinished.yaml").stderr)
        self.assertTrue(cluster.json("sweep", "show", "kept-waiting")[0]["sealed"])
        cluster.start_worker("a", "--executor", "noop", "--labels", "nowhere")
        self.assertEqual(cluster.ablate("sweep", "wait", "kept-unfinished", check=False).returncode, 1)
        sweep = cluster.json("sweep", "show", "kept-unfinished")[0]
        self.assertEqual((sweep["state"], sweep["succeeded"], sweep["failed"]), ("FAILED", 20, 10))


if __name__ == "__main__":
    unittest.main()
