"""Tasks beside the loss and switches after training, through real programs: job counts, resume, inputs and made files."""

import json
import os
import signal
import subprocess
import time
import unittest

from harness import BIN, ClusterTest, sweep_yaml


# never, at step s, after training with and without a continuation; two variants to switch to
ARMS = """arms:
  - {attention.variant: softmax}
  - {attention.variant: softmax, switch: [{at_step: 40, attention.variant: ssmax}]}
  - {attention.variant: softmax, switch: [{at_step: 40, attention.variant: lssar}]}
  - {attention.variant: softmax, switch: [{at: end, attention.variant: ssmax}]}
  - {attention.variant: softmax, switch: [{at: end, attention.variant: lssar}]}
  - {attention.variant: softmax, switch: [{at: end, steps: 20, attention.variant: ssmax}]}
  - {attention.variant: softmax, switch: [{at: end, steps: 20, attention.variant: lssar}]}
"""


def without_axes(text):
    head, rest = text.split("axes:\n")
    return head + ARMS + rest[rest.index("seeds:"):]


class Tasks(ClusterTest):
    def setUp(self):
        self.box = self.cluster()

    def write(self, name, text):
        path = os.path.join(self.box.dir, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def run_file(self, path, data_dir, *flags):
        return subprocess.Popen([os.path.join(BIN, "ablate"), "run", path, "--slots", "2", "--data-dir", data_dir, *flags],
                                cwd=self.box.dir, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def query(self, data_dir, sql):
        return self.box.json("query", sql, "--data-dir", data_dir)

    def test_a_switch_sweep_trains_the_shared_prefix_once_and_resumes(self):
        path = self.write("switch.yaml", without_axes(sweep_yaml("switch", steps=80, seeds=1, lengths="[1x]")))
        calm, rough = os.path.join(self.box.dir, "calm"), os.path.join(self.box.dir, "rough")
        out, err = self.run_file(path, calm, "-o", "json").communicate(timeout=120)
        self.assertGreater(len(json.loads(out)), 0, err)
        stages = self.query(calm, "SELECT s.from_step, s.to_step, count(*) AS n FROM jobs j JOIN stages s ON s.key = j.key "
                                  "WHERE j.kind = 'STAGE' AND j.state = 'SUCCEEDED' GROUP BY 1, 2 ORDER BY 1, 2")
        # 40 steps once for all seven; the rest of softmax once for five of them; each switch only what comes after it.
        self.assertEqual([(s["from_step"], s["to_step"], s["n"]) for s in stages],
                         [(0, 40, 1), (40, 80, 3), (80, 80, 2), (80, 100, 2)])
        losses = {row["arm"]: row["value"] for row in self.query(
            calm, "SELECT arm, value FROM results WHERE metric = 'loss' AND status = 'ok'")}
        self.assertEqual(len(losses), 7)
        self.assertEqual(len(set(losses.values())), 7)
        softmax = losses['{"attention.variant":"softmax"}']
        # s = 1 / mean log n: the scores are about as large as before.
        swapped = losses['{"attention.variant":"softmax","attention.variant@end":"ssmax"}']
        self.assertLess(abs(swapped - softmax), 0.5)
        self.assertLess(losses['{"attention.variant":"softmax","attention.variant@end+20":"ssmax"}'], swapped)

        process = self.run_file(path, rough)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            listed = self.box.ablate("job", "list", "-o", "json", "--data-dir", rough, check=False)
            if listed.returncode == 0 and any(j["state"] == "SUCCEEDED" for j in json.loads(listed.stdout)):
                break
            if process.poll() is not None:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        process = self.run_file(path, rough, "-o", "json")
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        again = {row["arm"]: row["value"] for row in self.query(
            rough, "SELECT arm, value FROM results WHERE metric = 'loss' AND status = 'ok'")}
        self.assertEqual(again, losses)

    def test_tasks_share_the_stage_and_made_files_are_fetched(self):
        self.write("psalm.txt", "the lord is my shepherd i shall not want")
        text = sweep_yaml("tasks", steps=20, seeds=1, arms="  attention.variant: [softmax, lssar]\n", lengths="[1x]")
        text = text.replace("evaluate: {lengths: [1x]}", """evaluate:
  lengths: [1x]
  tasks:
    - {task: passkey, lengths: [4x], eval.passkey.prompt: short, eval.passkey.trials: 20, eval.passkey.depths: 4}
    - {task: attention, lengths: [1x, 4x], eval.attention.tokens: 512}
    - {task: attention_map, name: psalm, path: psalm.txt}
""")
        path = self.write("tasks.yaml", text)
        data_dir = os.path.join(self.box.dir, "run")
        process = self.run_file(path, data_dir)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        jobs = self.box.json("job", "list", "tasks", "--data-dir", data_dir)
        self.assertEqual(len([j for j in jobs if j["kind"] == "STAGE"]), 2)
        self.assertEqual(len([j for j in jobs if j["kind"] == "EVALUATION"]), 2 * 5)

        rows = self.box.json("table", "tasks", "--data-dir", data_dir)
        metrics = {row["metric"] for row in rows}
        self.assertLessEqual({"loss", "passkey_accuracy", "attention_entropy", "attention_entropy_slope"}, metrics)
        self.assertFalse([m for m in metrics if ".l0." in m or "depth_" in m])  # families only when they are asked for
        accuracy = [row for row in rows if row["metric"] == "passkey_accuracy"][0]
        self.assertEqual((accuracy["split"], accuracy["length"], accuracy["tries"]), ("passkey", 128, 20))
        self.assertLessEqual(accuracy["rate_low"], accuracy["mean"])
        self.assertGreater(accuracy["rate_high"], accuracy["mean"])
        heads = self.box.json("table", "tasks", "--metric", "attention_entropy.*", "--data-dir", data_dir)
        self.assertEqual({row["metric"] for row in heads}, {"attention_entropy.l0.h0", "attention_entropy.l0.h1"})

        job = [j for j in jobs if j["split"] == "psalm"][0]
        self.assertEqual(job["artifacts"][0]["name"], "attention-map.bin")
        folder = os.path.join(self.box.dir, "fetched")
        listed = self.box.json("job", "artifacts", job["job_id"], "--fetch", folder, "--data-dir", data_dir)
        with open(os.path.join(folder, "attention-map.bin"), "rb") as file:
            content = file.read()
        self.assertEqual(len(content), listed[0]["bytes"])
        self.assertEqual(content[:8], b"ABLATEAM")
        for name, start in (("map.svg", b"<svg"), ("map.png", b"\x89PNG")):
            picture = os.path.join(self.box.dir, name)
            self.box.ablate("job", "map", job["job_id"], "-o", picture, "--data-dir", data_dir)
            with open(picture, "rb") as file:
                self.assertTrue(file.read().startswith(start))
        # The check knows what the files of tasks and results are, and misses one that is gone.
        check = lambda: subprocess.run([os.path.join(BIN, "ablate-server"), "--data-dir", data_dir, "--check", "--deep"],
                                       capture_output=True, text=True, timeout=60)
        self.assertEqual(check().returncode, 0, check().stdout)
        sha256 = listed[0]["sha256"]
        made = os.path.join(data_dir, "artifacts", sha256[:2], sha256[2:])
        os.rename(made, made + ".gone")
        checked = check()
        self.assertEqual(checked.returncode, 1, checked.stdout)
        self.assertIn(f"{sha256} is named by the result attention-map.bin, and not there", checked.stdout)
        os.rename(made + ".gone", made)
        # A changed input is another sweep under the same name.
        self.write("psalm.txt", "the lord is my light")
        changed = self.run_file(path, data_dir)
        out, err = changed.communicate(timeout=60)
        self.assertEqual(changed.returncode, 5, err)
        self.assertIn("psalm.txt: SHA-256", err)


if __name__ == "__main__":
    unittest.main()
