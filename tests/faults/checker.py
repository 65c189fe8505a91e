"""Reads the database of a finished run and says what must not be. Knows the schema (docs/results-database.md) and the state
machine (docs/job-states.md), nothing else: what the coordinator's memory held does not count, what it wrote does.

check(connection) gives a list of violations in words; empty means that it holds:

  * every planned job of a sweep that is not cancelled succeeded, by exactly one accepted result;
  * a job's attempts are 1, 2, 3..., each granted once, each by its own lease;
  * a report is accepted of the latest attempt only;
  * nothing leaves a final state;
  * each event begins in the state where the one before ended, and every job stands where its last event left it;
  * results are of jobs that succeeded, and there is a value wherever a job succeeded;
  * no slot had two jobs at a time (evaluations of one state aside), no job two workers.
"""

import collections
import sqlite3

FINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}
# Causes by which a report of a worker moves a job.
REPORTED = {"result", "late_result", "released", "preempted", "retryable_failure", "reattached", "invalid_config"}
BEGINS = {"leased", "reattached"}


def rows(connection, statement):
    return connection.execute(statement).fetchall()


def check_events(connection):
    problems = []
    jobs = {row: (job_id, state.upper(), kind, parent) for row, job_id, state, kind, parent in rows(
        connection, "SELECT row, job_id, state, kind, parent FROM jobs")}
    at = {row: "BLOCKED" for row in jobs}  # as each was made
    attempt = collections.Counter()        # the latest that was granted
    successes = collections.Counter()
    running_on = {}                        # job -> (worker, slot)
    slots = collections.defaultdict(set)   # (worker, slot) -> jobs
    slot_of = {(job, number): slot for job, number, slot in rows(connection, "SELECT job, attempt, slot FROM attempts")}
    for event, job, before, after, cause, number, worker in rows(
            connection, "SELECT row, job, from_state, to_state, cause, attempt, worker_id FROM events ORDER BY row"):
        before, after = before.upper(), after.upper()
        name = f"event {event} of {jobs[job][0]} ({before} -> {after} by {cause}, attempt {number})"
        if at[job] != before:
            problems.append(f"{name}: the job was {at[job]}")
        if at[job] in FINAL:
            problems.append(f"{name}: it had ended")
        if cause == "leased":
            if number != attempt[job] + 1:
                problems.append(f"{name}: the attempt before was {attempt[job]}")
            attempt[job] = number
        elif cause in REPORTED and number != attempt[job]:
            problems.append(f"{name}: the latest attempt was {attempt[job]}")
        if after == "SUCCEEDED":
            successes[job] += 1
        if before == "RUNNING" and job in running_on:
            slots[running_on.pop(job)].discard(job)
        if after == "RUNNING":
            if cause not in BEGINS:
                problems.append(f"{name}: it may not begin by that")
            place = (worker, slot_of.get((job, number)))
            for other in slots[place]:
                shared = (jobs[job][2].upper() == jobs[other][2].upper() == "EVALUATION" and jobs[job][3] == jobs[other][3])
                if not shared:
                    problems.append(f"{name}: slot {place[1]} of {worker} has {jobs[other][0]} already")
            slots[place].add(job)
            running_on[job] = place
        at[job] = after
    for job, (job_id, state, _, _) in jobs.items():
        if at[job] != state:
            problems.append(f"{job_id} is {state}, but its events end with {at[job]}")
        if state == "SUCCEEDED" and successes[job] != 1:
            problems.append(f"{job_id} succeeded {successes[job]} times")
    return problems


def check_attempts(connection):
    problems = []
    numbers = collections.defaultdict(list)
    succeeded = collections.Counter()
    for job, number, state in rows(connection, "SELECT job, attempt, state FROM attempts ORDER BY job, attempt"):
        numbers[job].append(number)
        succeeded[job] += state.upper() == "SUCCEEDED"
    for job, job_id, latest, state, attempt_state in rows(
            connection, "SELECT row, job_id, attempt, state, attempt_state FROM jobs"):
        if numbers[job] != list(range(1, latest + 1)):
            problems.append(f"{job_id} has attempts {numbers[job]}, the latest is {latest}")
        expected = 1 if state.upper() == "SUCCEEDED" and latest > 0 else 0
        if succeeded[job] != expected:
            problems.append(f"{job_id} is {state} with {succeeded[job]} accepted results")
        if expected and attempt_state.upper() != "SUCCEEDED":
            problems.append(f"{job_id} succeeded by an attempt that is {attempt_state}")
    for job_id, number in rows(
            connection, "SELECT j.job_id, a.attempt FROM attempts a JOIN jobs j ON j.row = a.job"
            " WHERE a.state = 'SUCCEEDED' AND a.attempt <> j.attempt"):
        problems.append(f"{job_id}: the result of attempt {number} was accepted, which was not the latest")
    return problems


def check_results(connection):
    problems = []
    for table, key in (("evaluation_results", "evaluation"), ("stage_results", "stage")):
        for job_id, state in rows(
                connection, f"SELECT DISTINCT j.job_id, j.state FROM {table} r JOIN jobs j ON j.row = r.job"
                " WHERE j.state <> 'SUCCEEDED'"):
            problems.append(f"{table} has numbers of {job_id}, which is {state}")
        for row, count in rows(connection, f"SELECT {key}, count(DISTINCT job) FROM {table} GROUP BY {key} HAVING count(DISTINCT job) > 1"):
            problems.append(f"{table}: {key} {row} has numbers of {count} jobs")
    for job_id, in rows(
            connection, "SELECT j.job_id FROM jobs j WHERE j.kind = 'EVALUATION' AND j.state = 'SUCCEEDED' AND j.verify_of IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM evaluation_results r JOIN evaluations e ON e.row = r.evaluation WHERE e.key = j.key)"):
        problems.append(f"{job_id} succeeded, and nothing of it is stored")
    return problems


def check_sweeps(connection):
    problems = []
    for row, name, state in rows(connection, "SELECT row, name, state FROM sweeps WHERE state <> 'CANCELLED'"):
        states = collections.Counter(state.upper() for state, in rows(
            connection, f"SELECT j.state FROM sweep_jobs s JOIN jobs j ON j.row = s.job WHERE s.sweep = {row}"))
        if set(states) != {"SUCCEEDED"}:
            problems.append(f"sweep {name} is {state} with jobs {dict(states)}")
        # Each key that the plan asks for has a job in the sweep.
        for kind, key, count in rows(
                connection, "WITH wanted AS (SELECT 'EVALUATION' AS kind, e.key AS key FROM point_evaluations p JOIN evaluations e"
                f" ON e.row = p.evaluation WHERE p.sweep = {row} UNION SELECT 'STAGE', s.key FROM points p JOIN stages s"
                f" ON s.row = p.stage WHERE p.sweep = {row})"
                " SELECT w.kind, w.key, (SELECT count(*) FROM jobs j JOIN sweep_jobs sj ON sj.job = j.row"
                f" WHERE sj.sweep = {row} AND j.key = w.key) AS n FROM wanted w WHERE n <> 1"):
            problems.append(f"sweep {name}: {kind.lower()} {key[:12]} has {count} jobs")
        if state.upper() != "SUCCEEDED":
            problems.append(f"sweep {name} is {state}")
    return problems


def check(connection):
    problems = []
    for part in (check_events, check_attempts, check_results, check_sweeps):
        problems += part(connection)
    problem, = rows(connection, "PRAGMA integrity_check")[0]
    if problem != "ok":
        problems.append(f"SQLite: {problem}")
    for broken in rows(connection, "PRAGMA foreign_key_check"):
        problems.append(f"SQLite: a foreign key leads nowhere: {broken}")
    return problems


def summary(connection):
    """What the run was put through, as far as the database knows."""
    attempts = dict(rows(connection, "SELECT lower(state), count(*) FROM attempts GROUP BY 1"))
    jobs, = rows(connection, "SELECT count(*) FROM jobs")[0]
    events, = rows(connection, "SELECT count(*) FROM events")[0]
    causes = dict(rows(connection, "SELECT cause, count(*) FROM events GROUP BY 1"))
    return {"jobs": jobs, "events": events, "attempts": attempts,
            "causes": {cause: count for cause, count in sorted(causes.items()) if cause not in ("leased", "parent_succeeded")}}


if __name__ == "__main__":
    import sys
    found = check(sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True))
    print("\n".join(found) or "nothing is wrong")
    sys.exit(1 if found else 0)
