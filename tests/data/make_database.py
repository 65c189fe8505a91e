"""Makes the database that is kept as test data of a schema version: tests/data/schemaN.

  ABLATE_BIN=build/release/bin python3 tests/data/make_database.py tests/data/schemaN

Run it with the programs of the release whose schema is N, before the next migration. Small sweeps with the real trainer
and the test executor end in every way: a sealed one to its verdicts, one locked by hand, one whose numbers were seen
before, one that grew, ends of every kind, cancelled, unfinished; second runs that agree and one that does not. Beside
the database go the sweep files and what the command line said of each.
"""

import json
import os
import shutil
import sqlite3
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))

from harness import Cluster  # noqa: E402

TRAINED = """data: {name: words, path: text.txt, format: text}
settings:
  model.preset: tiny
  model.layers: 1
  model.width: 16
  model.heads: 2
  train.length: 16
  train.batch: 2
  train.steps: 20
  eval.target_spans: 4
  eval.loss_tokens: 256
"""
SEALED = """arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: [1, 3]}
baseline: {attention.variant: softmax}
seeds: 2
%sevaluate: {lengths: [1x, 2x]}
select:
confirm:
  seeds: 5
claims:
  - {name: selected, kind: differs, arm: selected, length: 8x}
  - {name: three, kind: equivalent, arm: {attention.p: 3}, margin: 0.5, why: test data, length: 8x}
"""
ENDINGS = """executor: noop
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, noop.outcome: diverge}
  - {attention.variant: ssmax, noop.outcome: code_error}
seeds: 2
evaluate: {lengths: [1x, 8x], splits: [selection, confirmation]}
"""
SMALL = TRAINED + """axes:
  eval.ntk: [off, dynamic]
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: 3}
  - {attention.variant: softmax, switch: [{at_step: 15, attention.variant: ssmax}]}
  - {attention.variant: softmax, train.learning_rate: 10, train.clip: 0, train.epsilon: 1e-30}
baseline: {attention.variant: softmax, train.learning_rate: 1e-3}
seeds: %d
evaluate: {lengths: [1x, 4x], splits: [selection]}
"""
TUNE = "tune: {learning_rates: [1e-3, 3e-3], seeds: [50, 51], max_extensions: 1}\n"
FILES = {
    "sealed": TRAINED + SEALED % TUNE,
    "by-hand": TRAINED.replace("train.steps: 20", "train.steps: 10") + SEALED % "",
    "waiting": TRAINED.replace("train.steps: 20", "train.steps: 12") + SEALED % "" + "requires: {labels: [nowhere]}\n",
    "seen": TRAINED.replace("train.steps: 20", "train.steps: 10") + SEALED % "",
    "small": SMALL % 2,
    "endings": ENDINGS,
    "cancelled": ENDINGS.replace("evaluate", "settings: {train.steps: 7}\nevaluate") + "requires: {labels: [nowhere]}\n",
    "unfinished": ENDINGS.replace("evaluate", "settings: {train.steps: 9}\nevaluate") + "requires: {labels: [nowhere]}\n",
}


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    cluster = Cluster()
    cluster.start_server()
    cluster.start_worker("a", "--name", "node", slots=2)

    def submit(name):
        path = os.path.join(out, name + ".yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"name: kept-{name}\n" + FILES[name])
        shutil.copy(path, cluster.dir)
        cluster.ablate("sweep", "submit", name + ".yaml")

    submit("sealed")
    cluster.wait("kept-sealed")
    submit("by-hand")
    cluster.ablate("sweep", "lock", "kept-by-hand", "--arm", "attention.variant=lssar,attention.p=1", "--why", "test data")
    cluster.wait("kept-by-hand")
    submit("seen")
    cluster.wait("kept-seen")
    submit("small")
    cluster.wait("kept-small")
    FILES["small"] = SMALL % 3
    path = os.path.join(out, "small.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("name: kept-small\n" + FILES["small"])
    shutil.copy(path, cluster.dir)
    cluster.ablate("sweep", "extend", "small.yaml")
    cluster.wait("kept-small")

    # Second runs: some agree; one does not, as its number was changed.
    cluster.json("job", "verify", "kept-small", "--sample", "3", "--timeout", "120")
    job, = cluster.sql("SELECT j.job_id FROM jobs j JOIN evaluations e ON e.key = j.key JOIN evaluation_results r ON "
                       "r.evaluation = e.row WHERE r.metric = 'loss' AND r.status = 'ok' ORDER BY j.row LIMIT 1")[0]
    cluster.kill9(cluster.server)
    database = os.path.join(cluster.data_dir, "ablate.db")
    with sqlite3.connect(database) as db:
        db.create_function("ablate_digest", -1, lambda *_: None)  # else this program may not write there
        db.execute("UPDATE evaluation_results SET value = value + 1e-12 WHERE metric = 'loss' AND job = "
                   "(SELECT row FROM jobs WHERE job_id = ?)", (job,))
    db.close()
    cluster.start_server()
    cluster.ablate("job", "verify", job, "--timeout", "120", check=False)

    cluster.workers.pop("a").terminate()
    cluster.start_worker("b", "--name", "node", "--executor", "noop")
    submit("endings")
    cluster.ablate("sweep", "wait", "kept-endings", check=False)
    cluster.ablate("sweep", "retry", "kept-endings")
    cluster.ablate("sweep", "wait", "kept-endings", check=False)
    submit("cancelled")
    cluster.ablate("sweep", "cancel", "kept-cancelled", check=False)
    submit("unfinished")
    submit("waiting")

    for name in FILES:
        said = {"table": cluster.json("table", f"kept-{name}", "--metric", "loss,loss_targets"),
                "compare": cluster.json("compare", f"kept-{name}", "--metric", "loss_targets")}
        if "claims" in FILES[name]:
            said["claims"] = cluster.json("claims", f"kept-{name}")
        for kind, rows in said.items():
            if not rows:
                continue
            with open(os.path.join(out, f"{name}.{kind}.json"), "w", encoding="utf-8") as file:
                json.dump(rows, file, separators=(",", ":"))
                file.write("\n")
    cluster.server.terminate()
    cluster.server.wait()
    db = sqlite3.connect(database, isolation_level=None)
    db.execute("DELETE FROM requests")  # whole answers, of no interest here
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute("VACUUM")
    db.close()
    shutil.copy(database, out)
    cluster.close()


if __name__ == "__main__":
    main()
