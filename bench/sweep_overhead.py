#!/usr/bin/env python3
"""What a sweep costs over its jobs' own time, and how many jobs that do nothing go through in a second.

bench/sweep_overhead.py [overhead|trainer|rate ...] [--rounds 5] [--build build/release]

overhead  no-op jobs of one second, 2 workers x 2 slots x 15 jobs a slot. overhead = (wall * slots - own) / own, where own is
          the sum of what the jobs themselves took (jobs.seconds), and wall runs from the first lease to the last recorded
          result. Required: below 2 % (the median of the rounds). Exits 1 above.
trainer   the same with the real trainer, stages of about a second and their evaluations, 2 slots of one thread. Beside the jobs'
          own time are the start of the trainers, the upload of each end state, the hand-over, and slots that wait at the end.
rate      no-op jobs of no length, 4 workers x 4 slots: 2,000 and 20,000 jobs, recorded jobs a second with every commit on the disk.

Each round starts a coordinator and workers with their default intervals in a new folder and reads the database afterwards.
"Hand-over" is what lies between a job's own time and the next job of its slot: the report, the commit, the answer, the start.
Wall-clock figures: a busy machine makes them worse, so the load is printed. Python's standard library only.
"""

import argparse
import collections
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REQUIRED = 0.02
SLOTS_OF_OVERHEAD = 4
JOBS_A_SLOT = 15

# Half of `tiny`: a stage's end state has 1.6 MB.
TRAINER_SWEEP = """name: trainer
data: {{name: words, format: text, path: text.txt}}
settings:
  model.layers: 2
  model.width: 128
  model.heads: 4
  train.length: 64
  train.batch: 8
  train.steps: {steps}
  train.warmup_steps: 5
  eval.target_spans: 64
  eval.loss_tokens: 8192
axes:
  attention.variant: [softmax, lssar]
seeds: {seeds}
evaluate: {{lengths: [1x, 2x]}}
"""

Job = collections.namedtuple("Job", "slot kind start end seconds")


def read_jobs(cluster):
    """Every job by slot and time, in seconds."""
    bad = cluster.sql("SELECT count(*) FROM jobs WHERE state <> 'succeeded' OR attempt <> 1")[0][0]
    if bad:
        sys.exit(f"sweep_overhead: {bad} jobs did not succeed at once\n{cluster.logs()}")
    rows = cluster.sql("SELECT a.worker_id, a.slot, j.kind, a.started_at_us, a.ended_at_us, j.seconds FROM attempts a"
                       " JOIN jobs j ON j.row = a.job ORDER BY a.worker_id, a.slot, a.started_at_us, a.ended_at_us")
    return [Job((worker, slot), kind, start * 1e-6, end * 1e-6, own) for worker, slot, kind, start, end, own in rows]


def overhead(jobs, slots):
    wall = max(job.end for job in jobs) - min(job.start for job in jobs)
    own = sum(job.seconds for job in jobs)
    return (wall * slots - own) / own


def hand_overs(jobs):
    """By kind of job: how long its slot was with it beyond its own time, from the lease or the result before it to its result."""
    beyond = collections.defaultdict(list)
    before = {}
    for job in jobs:
        since = max(job.start, before.get(job.slot, 0))
        beyond[job.kind].append(job.end - since - job.seconds)
        before[job.slot] = job.end
    return beyond


def without_lease(jobs, slots):
    """Seconds in which slots had no lease: between leases, and at the end, when the last job of another slot still ran."""
    begin, end = min(job.start for job in jobs), max(job.end for job in jobs)
    between, busy = 0.0, {}
    for job in jobs:
        between += max(0.0, job.start - busy.get(job.slot, begin))
        busy[job.slot] = max(job.end, busy.get(job.slot, begin))
    return between, sum(end - last for last in busy.values()) + (slots - len(busy)) * (end - begin)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def milliseconds(values):
    return f"p50 {1e3 * percentile(values, 0.5):.1f} ms, p99 {1e3 * percentile(values, 0.99):.1f} ms"


def load():
    with open("/proc/loadavg", encoding="ascii") as file:
        return file.read().split()[0]


def run_noop(harness, jobs, seconds, workers, slots):
    cluster = harness.Cluster(lease_seconds=30, contact_seconds=2)
    try:
        cluster.start_server()
        for number in range(workers):
            cluster.start_worker(str(number), "--executor", "noop", slots=slots)
        cluster.poll("all workers are there", lambda: len(cluster.json("worker", "list")) == workers)
        cluster.submit(harness.noop_yaml("noop", jobs, seconds), "noop")
        cluster.wait("noop", timeout=600)
        cluster.check_alive()
        return read_jobs(cluster)
    finally:
        cluster.close()


def measure_overhead(harness, rounds):
    shares = []
    for number in range(rounds):
        before = load()
        jobs = run_noop(harness, SLOTS_OF_OVERHEAD * JOBS_A_SLOT, 1, 2, SLOTS_OF_OVERHEAD // 2)
        shares.append(overhead(jobs, SLOTS_OF_OVERHEAD))
        print(f"  round {number + 1}: {len(jobs)} jobs of 1 s, overhead {shares[-1]:.2%}, hand-over"
              f" {milliseconds(hand_overs(jobs)['stage'])}, load {before}", flush=True)
    median = statistics.median(shares)
    print(f"overhead  no-op jobs of 1 s: median {median:.2%} ({min(shares):.2%} to {max(shares):.2%}), required below"
          f" {REQUIRED:.0%}{'' if median < REQUIRED else '  ABOVE'}", flush=True)
    return median < REQUIRED


def run_trainer(harness, steps, seeds, slots):
    cluster = harness.Cluster(lease_seconds=30, contact_seconds=2)
    try:
        cluster.start_server()
        cluster.start_worker("trainer", slots=slots)
        cluster.submit(TRAINER_SWEEP.format(steps=steps, seeds=seeds), "trainer")
        cluster.wait("trainer", timeout=600)
        cluster.check_alive()
        return read_jobs(cluster)
    finally:
        cluster.close()


def measure_trainer(harness, rounds):
    slots, tried_steps = 2, 50
    tried = run_trainer(harness, tried_steps, 2, slots)
    steps = round(tried_steps / statistics.median(job.seconds for job in tried if job.kind == "stage"))
    shares = []
    for number in range(rounds):
        before = load()
        jobs = run_trainer(harness, steps, 10, slots)
        shares.append(overhead(jobs, slots))
        own = sum(job.seconds for job in jobs)
        between, at_end = without_lease(jobs, slots)
        parts = [f"slots without a lease {between / own:.2%}, and {at_end / own:.2%} at the end"]
        for kind, beyond in sorted(hand_overs(jobs).items()):
            took = statistics.median(job.seconds for job in jobs if job.kind == kind)
            parts.append(f"{len(beyond)} {kind}s of {took:.2f} s: {sum(beyond) / own:.2%}, {milliseconds(beyond)} each")
        print(f"  round {number + 1}: overhead {shares[-1]:.2%}; of it " + "; ".join(parts) + f"; load {before}", flush=True)
    print(f"trainer   stages of about a second and their evaluations: median {statistics.median(shares):.2%}"
          f" ({min(shares):.2%} to {max(shares):.2%})", flush=True)
    return True


def measure_rate(harness, rounds):
    for count, times in ((2_000, rounds), (20_000, max(1, rounds // 2))):
        rates = []
        for _ in range(times):
            before = load()
            jobs = run_noop(harness, count, 0, 4, 4)
            rates.append(count / (max(job.end for job in jobs) - min(job.start for job in jobs)))
            print(f"  {count} jobs: {rates[-1]:.0f} jobs/s, hand-over {milliseconds(hand_overs(jobs)['stage'])}, load {before}", flush=True)
        print(f"rate      {count} no-op jobs, 4 workers x 4 slots: median {statistics.median(rates):.0f} jobs/s"
              f" ({min(rates):.0f} to {max(rates):.0f})", flush=True)
    return True


PARTS = {"overhead": measure_overhead, "trainer": measure_trainer, "rate": measure_rate}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="overhead, trainer, rate; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build", "release"))
    args = parser.parse_args()
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown or args.rounds < 1:
        parser.error(f"unknown part {unknown[0]}" if unknown else "--rounds must be at least 1")
    programs = os.path.abspath(os.path.join(args.build, "bin"))
    if not os.path.exists(os.path.join(programs, "ablate-server")):
        sys.exit(f"sweep_overhead: {programs} has no ablate-server; cmake --build {args.build}")
    os.environ["ABLATE_BIN"] = programs
    sys.path.insert(0, os.path.join(HERE, "..", "tests", "e2e"))
    import harness

    done = [PARTS[part](harness, args.rounds) for part in args.parts or PARTS]
    sys.exit(0 if all(done) else 1)


if __name__ == "__main__":
    main()
