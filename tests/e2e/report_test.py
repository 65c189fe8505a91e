"""`ablate report` of sweeps of every kind: what it writes can be read, its links lead somewhere, the same database gives
the same bytes, and nothing sealed is in it."""

import csv
import os
import re
import shutil
import sqlite3
import subprocess
import unittest
import xml.etree.ElementTree

from harness import BIN, ClusterTest, noop_yaml, sweep_yaml

SEALED = """name: sealed
description: p < 3 & <b>more</b>
data: {name: words, format: text, path: text.txt}
settings:
  model.layers: 1
  model.width: 32
  model.heads: 2
  train.length: 32
  train.batch: 4
  train.steps: 20
  train.warmup_steps: 5
  eval.target_spans: 8
  eval.loss_tokens: 1024
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: [1, 3, 15]}
baseline: {attention.variant: softmax}
seeds: 2
evaluate: {lengths: [1x, 2x]}
select:
confirm: {seeds: 5}
claims:
  - {name: p-lower, kind: differs, arm: selected, length: 8x}
  - {name: p-equal, kind: equivalent, arm: selected, length: 8x, margin: 0.5, why: half a nat & no more}
"""

FACTORIAL = """name: factorial
data: {name: words, format: text, path: text.txt}
executor: noop
settings: {attention.variant: lssar}
axes: {attention.qk_norm: [none, l2], attention.p: [none, 15]}
seeds: 3
evaluate: {lengths: [1x, 2x]}
factorial: {factors: [attention.qk_norm, attention.p]}
"""

ENDINGS = """name: endings
data: {name: words, format: text, path: text.txt}
executor: noop
axes: {noop.outcome: [succeed, diverge, code_error]}
baseline: {noop.outcome: succeed}
seeds: 2
evaluate: {lengths: [1x, 2x]}
"""


def read_folder(folder):
    """Every file's bytes by its path within."""
    files = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(path, name), "rb") as file:
                files[os.path.relpath(os.path.join(path, name), folder)] = file.read()
    return files


class Report(ClusterTest):
    def report(self, cluster, sweep):
        """Its files, name -> bytes, after a look at each."""
        found = []
        for name in ("report", "again"):
            folder = os.path.join(cluster.dir, f"{name}-{sweep}-{len(os.listdir(cluster.dir))}")
            cluster.ablate("report", sweep, "-o", folder)
            found.append(read_folder(folder))
        files = found[0]
        self.assertEqual(files, found[1])
        text = files["report.md"].decode()
        links = re.findall(r"\]\(([^)]*)\)", text)
        self.assertGreater(len(links), 3)
        for link in links:
            self.assertIn(link, files)
        for name, content in files.items():
            if name.endswith(".svg"):
                xml.etree.ElementTree.fromstring(content)
                self.assertIn(f"]({name})", text)
            if name.endswith(".csv"):
                rows = list(csv.reader(content.decode().splitlines()))
                self.assertEqual({len(row) for row in rows}, {len(rows[0])}, name)
        return files, text

    def drain(self, cluster):
        """Ends the workers, while their coordinator is there to say goodbye to."""
        for worker in cluster.workers.values():
            worker.terminate()
            worker.wait()
        cluster.workers.clear()

    def export(self, cluster, sweep):
        """One sweep's rows, while the server has the folder open: everything is printed from them as from the whole."""
        program = os.path.join(BIN, "ablate-server")
        source, _ = self.report(cluster, sweep)
        for flags in ([], ["--curves"]):
            folder = os.path.join(cluster.dir, "-".join(["export", sweep, *flags]))
            argv = [program, "--data-dir", cluster.data_dir, "--export", sweep, folder, *flags]
            for code in (0, 5):  # the second time it is there
                done = subprocess.run(argv, text=True, capture_output=True, timeout=60)
                self.assertEqual(done.returncode, code, done.stderr)
            check = subprocess.run([program, "--data-dir", folder, "--check"], text=True, capture_output=True, timeout=60)
            self.assertEqual(check.returncode, 0, check.stdout + check.stderr)
            before = read_folder(folder)["ablate.db"]
            cluster.ablate("report", sweep, "--data-dir", folder, "-o", folder + "-report")
            files = read_folder(folder + "-report")
            self.assertEqual(set(files), set(source))
            for name, content in files.items():
                if name.startswith("tensorboard/") and not flags:
                    self.assertIn(b"train/", source[name])
                    self.assertNotIn(b"train/", content)
                    self.assertIn(b"by_length/", content)
                else:
                    self.assertEqual(content, source[name], name)
            self.assertEqual(read_folder(folder)["ablate.db"], before)

        folder = os.path.join(cluster.dir, "export-" + sweep)
        server = cluster._spawn("export", [program, "--data-dir", folder, "--listen", f"unix:{folder}/s.sock"])
        try:
            cluster.poll("the server of the export answers", lambda: os.path.exists(os.path.join(folder, "server.address")))
            alone = [job["job_id"] for job in cluster.jobs(sweep) if len(job["sweep_ids"]) == 1]
            for command in (["table", sweep], ["compare", sweep], ["claims", sweep], ["effects", sweep], ["spread", sweep],
                            ["sweep", "show", sweep], ["sweep", "grid", sweep], ["job", "list", sweep],
                            ["job", "show", alone[-1]], ["job", "verifications", sweep]):
                there, here = (cluster.ablate(*command, "--data-dir", where) for where in (cluster.data_dir, folder))
                self.assertEqual(here.stdout, there.stdout, command)
            self.assertIn("nothing is recorded", cluster.ablate("curves", sweep, "--data-dir", folder).stderr)
            # The file is known; there is nothing to do.
            sweeps = cluster.ablate("sweep", "list", "--data-dir", folder, "-o", "csv").stdout.splitlines()
            self.assertEqual(len(sweeps), 2, sweeps)
            self.assertIn("nothing new", cluster.ablate("sweep", "submit", f"{sweep}.yaml", "--data-dir", folder).stderr)
        finally:
            server.terminate()
            server.wait()

    def remake(self, cluster, sweep, files, text):
        """Runs the commands of the report, which must give the same numbers."""
        folder = os.path.join(cluster.dir, "remake-" + sweep)
        os.makedirs(folder)
        for name, content in files.items():
            if name.endswith(".yaml"):
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(content)
        shutil.copy(os.path.join(cluster.dir, "text.txt"), folder)
        script = re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1]
        env = {**os.environ, "PATH": BIN + ":" + os.environ["PATH"]}
        env.pop("ABLATE_SERVER", None)
        done = subprocess.run(["sh", "-ec", script], cwd=folder, env=env, text=True, capture_output=True, timeout=120)
        self.assertEqual(done.returncode, 0, script + done.stdout + done.stderr)
        with sqlite3.connect(f"file:{folder}/again/ablate.db?mode=ro", uri=True) as db:
            columns = "arm, seed, phase, metric, length, split, ntk, value, standing FROM results WHERE sweep = "
            again = db.execute(f"SELECT {columns}'{sweep}' ORDER BY 1, 2, 3, 4, 5, 6, 7").fetchall()
        db.close()
        self.assertGreater(len(again), 10)
        self.assertEqual([row[:-1] for row in again], [row[:-1] for row in cluster.sql(
            f"SELECT {columns}'{sweep}' ORDER BY 1, 2, 3, 4, 5, 6, 7")])
        return script

    def test_sweeps_of_a_trainer(self):
        cluster = self.cluster()
        cluster.start_server()
        cluster.start_worker("a", slots=2)
        cluster.submit(sweep_yaml("plain", seeds=2, steps=20), "plain")
        # Seeds that the sealed sweep confirms with: trained already, but not its own to show.
        early = SEALED[:SEALED.index("select:")].replace("name: sealed", "name: early")
        cluster.submit(early.replace("seeds: 2", "seeds: [100, 101, 102]"), "early")
        cluster.wait("plain")
        cluster.wait("early")
        files, text = self.report(cluster, "plain")
        self.assertIn("figures/loss-by-length-", text)
        self.assertIn("Every planned run is there and finite.", text)
        self.assertIn("No job was run a second time", text)
        self.assertEqual(len([name for name in files if name.startswith("tensorboard/")]), 4)
        self.assertGreater(cluster.sql("SELECT COUNT(*) FROM curves v JOIN stages t ON t.row = v.stage "
                                       "WHERE t.seed >= 100")[0][0], 0)

        with open(os.path.join(cluster.dir, "plain.yaml"), "w", encoding="utf-8") as file:
            file.write(sweep_yaml("plain", seeds=3, steps=20))
        cluster.ablate("sweep", "extend", "plain.yaml")
        cluster.wait("plain")
        self.assertIn("sweep extend", self.remake(cluster, "plain", *self.report(cluster, "plain")))
        cluster.ablate("job", "verify", "plain", "--sample", "2")
        self.export(cluster, "plain")

        self.drain(cluster)
        cluster.submit(SEALED, "sealed")
        files, text = self.report(cluster, "sealed")
        self.assertIn("unfinished sweep", text)
        self.assertIn("p &lt; 3 &amp; &lt;b>more&lt;/b>", text)
        self.assertIn("half a nat", text)
        self.assertIn("not yet", text)
        for name, content in files.items():
            self.assertNotRegex(name, r"seed10\d|confirming")
            if name.endswith(".csv"):
                self.assertNotIn(b"confirming", content)

        cluster.ablate("sweep", "lock", "sealed", "--arm", "attention.p=3", "--why", "it's a test")
        cluster.start_worker("b", slots=2)
        cluster.wait("sealed")
        files, text = self.report(cluster, "sealed")
        self.assertIn("claims.svg", text)
        self.assertIn("loss-by-p-selection-selecting.svg", text)
        self.assertIn("lock_by_hand", text)
        seeds = {name.split("/")[1] + "/" + name.split("/")[2] for name in files if name.startswith("tensorboard/")}
        self.assertIn("lssar_p_3.confirming/seed100", seeds)
        self.assertIn("lssar_p_1.selecting/seed1", seeds)
        self.assertNotIn("lssar_p_1.confirming/seed100", seeds)  # dropped by the lock
        self.assertRegex(files["tables.tex"].decode(), r"(?m)^[^%]*half a nat \\& no more")
        self.assertIn("sweep lock sealed --arm", self.remake(cluster, "sealed", files, text))
        self.export(cluster, "sealed")
        self.drain(cluster)

    def test_sweeps_of_the_test_executor(self):
        cluster = self.cluster()
        cluster.start_server()
        cluster.start_worker("a", "--executor", "noop", slots=4)
        cluster.submit(FACTORIAL, "factorial")
        cluster.submit(ENDINGS, "endings")
        cluster.wait("factorial")
        files, text = self.report(cluster, "factorial")
        self.assertIn("effects-loss_targets-", text)
        self.assertIn("data/effects.csv", files)

        self.assertEqual(cluster.ablate("sweep", "wait", "endings", check=False).returncode, 1)
        files, text = self.report(cluster, "endings")
        self.assertIn("2 diverged", files["figures/loss-by-length-selection.svg"].decode())
        self.assertRegex(text, r"Diverged \(a result[^\n]*seed 0")
        self.assertRegex(text, r"Missing: [^\n]*code_error, seed 1")
        self.assertIn("noop.outcome is code_error", text)

        cluster.submit(noop_yaml("unfinished", 8, seconds=3600), "unfinished")
        files, text = self.report(cluster, "unfinished")
        self.assertIn("unfinished sweep", text)
        self.assertIn("Nothing is measured yet.", text)
        self.assertIn("no effects", cluster.ablate("effects", "unfinished").stderr)
        cluster.ablate("sweep", "cancel", "unfinished")
        cluster.poll("its jobs end", lambda: {job["state"] for job in cluster.jobs("unfinished")} == {"CANCELLED"})
        files, text = self.report(cluster, "unfinished")
        self.assertIn("CANCELLED", text)
        self.assertNotIn("Every planned run is there", text)

        refused = cluster.ablate("report", "factorial", "-o", os.path.join("text.txt", "report"), check=False)
        self.assertEqual(refused.returncode, 5, refused.stderr)
        self.assertIn("text.txt", refused.stderr)
        self.drain(cluster)


if __name__ == "__main__":
    unittest.main()
