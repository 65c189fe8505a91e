"""A worker killed in mid-stage and a coordinator killed in mid-sweep change nothing in the results."""

import unittest

from harness import ClusterTest, sweep_yaml

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


if __name__ == "__main__":
    unittest.main()
