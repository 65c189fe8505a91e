"""A worker killed in mid-stage, a coordinator killed in mid-sweep and a state that the disk damaged change nothing in the
results."""

import os
import subprocess
import unittest

from harness import BIN, ClusterTest, sweep_yaml

STEPS = 6000


def undisturbed(test):
    cluster = test.cluster()
    cluster.start_server()
    cluster.start_worker("a")
    cluster.start_worker("b")
    cluster.submit(sweep_yaml("steady", steps=STEPS), "steady")
    cluster.wait("steady")
    cluster.check_alive()
    return cluster.results()


class Faults(ClusterTest):
    def test_worker_killed_in_mid_stage_gives_the_same_bits(self):
        expected = undisturbed(self)
        self.assertGreater(len(expected), 0)

        cluster = self.cluster(lease_seconds=2)
        cluster.start_server()
        victim = cluster.start_worker("victim", "--checkpoint-seconds", "0.2", "--upload-seconds", "0.2")
        cluster.submit(sweep_yaml("steady", steps=STEPS), "steady")
        # A stage in its middle, of which the coordinator holds a checkpoint.
        saved = lambda: cluster.sql("SELECT j.job_id, c.step FROM checkpoints c JOIN jobs j ON j.row = c.job"
                                    " WHERE j.state = 'RUNNING' AND c.end_state = 0")
        job_id, step = cluster.poll("a running stage has a stored checkpoint", saved)[0]
        cluster.kill9(victim)
        del cluster.workers["victim"]
        cluster.start_worker("a")
        cluster.start_worker("b")
        cluster.wait("steady")
        cluster.check_alive()

        self.assertEqual(cluster.results(), expected)
        again = [j for j in cluster.jobs("steady") if j["job_id"] == job_id][0]
        self.assertEqual(again["attempt"], 2)
        # It went on from the stored checkpoint (or a newer one) rather than from step 0.
        resumed = cluster.sql("SELECT a.resumed_from_step FROM attempts a JOIN jobs j ON j.row = a.job"
                              f" WHERE j.job_id = '{job_id}' AND a.attempt = 2")
        self.assertGreaterEqual(resumed[0][0], step)

    def test_coordinator_killed_in_mid_sweep_runs_no_job_twice(self):
        expected = undisturbed(self)
        cluster = self.cluster(lease_seconds=10)
        server = cluster.start_server()
        cluster.start_worker("a")
        cluster.start_worker("b")
        cluster.submit(sweep_yaml("steady", steps=STEPS), "steady")
        cluster.poll("two stages run", lambda: len([j for j in cluster.jobs("steady")
                                                    if j["state"] == "RUNNING" and j["step"] > 100]) >= 2)
        cluster.kill9(server)
        cluster.start_server()
        cluster.wait("steady")
        cluster.check_alive()

        self.assertEqual(cluster.results(), expected)
        for job in cluster.jobs("steady"):
            self.assertEqual((job["state"], job["attempt"], job["failures"]), ("SUCCEEDED", 1, 0), job)

    def test_a_damaged_state_is_set_aside_trained_again_and_counts_one_failure(self):
        arms = "  attention.variant: [lssar]\n"
        short = sweep_yaml("short", arms=arms, seeds=1, lengths="[1x]")
        longer = sweep_yaml("longer", arms=arms, seeds=1, lengths="[1x, 2x]")

        calm = self.cluster()
        calm.start_server()
        calm.start_worker("a")
        calm.submit(longer, "longer")
        calm.wait("longer")
        expected = calm.results()

        cluster = self.cluster()
        cluster.start_server("--retry-seconds", "0.05")
        worker = cluster.start_worker("a")
        cluster.submit(short, "short")
        cluster.wait("short")
        worker.terminate()
        self.assertEqual(worker.wait(timeout=60), 0)
        del cluster.workers["a"]
        (weights,), = cluster.sql("SELECT weights_sha256 FROM checkpoints WHERE end_state = 1")
        path = os.path.join(cluster.data_dir, "artifacts", weights[:2], weights[2:])
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))

        # The same training and one evaluation more, by a worker that has to fetch the state.
        cluster.submit(longer, "longer")
        cluster.start_worker("b")
        cluster.wait("longer")
        cluster.check_alive()
        self.assertEqual({key[1:]: value for key, value in cluster.results().items()}, {key[1:]: value for key, value in expected.items()})
        self.assertTrue(os.path.exists(path + ".corrupt"))
        jobs = cluster.jobs("longer")
        self.assertEqual({job["state"] for job in jobs}, {"SUCCEEDED"})
        failed = cluster.sql("SELECT j.kind, a.state, a.failure_kind, a.failure_message FROM attempts a JOIN jobs j ON j.row = a.job"
                             " WHERE a.state NOT IN ('SUCCEEDED', 'RELEASED')")
        self.assertEqual(len(failed), 1, failed)
        self.assertIn(weights, failed[0][3])
        self.assertEqual(cluster.sql("SELECT sum(failures) FROM jobs"), [(1,)])
        self.assertEqual(cluster.sql("SELECT count(*) FROM events WHERE cause = 'state_lost'"), [(1,)])
        self.assertEqual(cluster.sql("SELECT count(*) FROM jobs WHERE kind = 'STAGE'"), [(2,)])

    def test_lost_or_damaged_data_waits_for_the_file_and_counts_no_failure(self):
        cluster = self.cluster()
        cluster.start_server("--retry-seconds", "0.05")
        text = sweep_yaml("text", arms="  attention.variant: [lssar]\n", seeds=1, lengths="[1x]")
        cluster.submit(text, "text")
        (data,), = cluster.sql("SELECT sha256 FROM data_files")
        path = os.path.join(cluster.data_dir, "artifacts", data[:2], data[2:])
        check = lambda: subprocess.run([os.path.join(BIN, "ablate-server"), "--data-dir", cluster.data_dir, "--check"],
                                       text=True, capture_output=True)
        self.assertEqual(check().returncode, 0, check().stdout)
        paused = lambda: cluster.json("sweep", "show", "text")[0]["needs_person"]
        os.remove(path)
        self.assertIn("of jobs that are not over, and not there", check().stdout)
        for damage in (None, b"?"):
            if damage:
                with open(path, "r+b") as file:
                    file.write(damage)
            cluster.start_worker("w" + str(damage is None))
            cluster.poll("the sweep waits for its data", paused)
            job = [job for job in cluster.jobs("text") if job["state"] == "QUEUED"][0]
            self.assertIn("its data text.txt", cluster.ablate("job", "explain", job["job_id"]).stdout)
            worker = cluster.workers.pop("w" + str(damage is None))
            worker.terminate()
            self.assertEqual(worker.wait(timeout=60), 0)
            self.assertIn("its jobs go on", cluster.submit(text, "text").stderr)
            self.assertFalse(paused())
        cluster.start_worker("last")
        cluster.wait("text")
        self.assertEqual(cluster.sql("SELECT sum(failures), sum(state <> 'SUCCEEDED') FROM jobs"), [(0, 0)])
        self.assertTrue(os.path.exists(path + ".corrupt"))
        self.assertEqual(check().returncode, 0, check().stdout)


if __name__ == "__main__":
    unittest.main()
