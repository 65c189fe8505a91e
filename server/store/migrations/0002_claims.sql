-- Schema version 2: phases of sweeps, seals, locks, tuning, plan versions, losses by document, verifications.
-- docs/results-database.md explains every table and view; change both together.

-- Views first: they name tables that are made anew.
DROP VIEW confidence_intervals;
DROP VIEW confidence_intervals_by_level;
DROP VIEW results;

ALTER TABLE sweeps ADD COLUMN phase TEXT NOT NULL DEFAULT 'plain'  -- where it stands
  CHECK (phase IN ('plain', 'tuning', 'selecting', 'confirming'));
ALTER TABLE sweeps ADD COLUMN pending INTEGER NOT NULL DEFAULT 0 CHECK (pending IN (0, 1));  -- a decision is to come
ALTER TABLE sweeps ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0 CHECK (sealed IN (0, 1));    -- confirming work waits for the lock
ALTER TABLE sweeps ADD COLUMN waiting_for TEXT NOT NULL DEFAULT '';
ALTER TABLE sweeps ADD COLUMN looks_done INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sweeps ADD COLUMN confirming_seeds INTEGER NOT NULL DEFAULT 0;  -- of S2, let go so far
ALTER TABLE sweeps ADD COLUMN claims_over INTEGER NOT NULL DEFAULT 0 CHECK (claims_over IN (0, 1));

ALTER TABLE arms ADD COLUMN phase TEXT NOT NULL DEFAULT 'plain'    -- 'tuning': one learning rate of the arm `tunes`
  CHECK (phase IN ('plain', 'tuning'));
ALTER TABLE arms ADD COLUMN tunes INTEGER;                         -- arms.arm
ALTER TABLE arms ADD COLUMN learning_rate REAL;                    -- of a tuning arm; of a tuned one the chosen rate

ALTER TABLE jobs ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0 CHECK (sealed IN (0, 1));
ALTER TABLE jobs ADD COLUMN verify_of INTEGER REFERENCES jobs(row);
ALTER TABLE jobs ADD COLUMN end_weights_sha256 TEXT;               -- of a stage's result; stays when the file is collected
UPDATE jobs SET end_weights_sha256 = (SELECT c.weights_sha256 FROM checkpoints c WHERE c.job = jobs.row AND c.end_state = 1)
WHERE kind = 'STAGE';

ALTER TABLE sweep_jobs ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0 CHECK (sealed IN (0, 1));

-- A point has a phase now: with the same seeds for selection and confirmation, an (arm, seed) has two.
CREATE TABLE new_points (
  sweep INTEGER NOT NULL,
  arm INTEGER NOT NULL,
  seed INTEGER NOT NULL,
  phase TEXT NOT NULL CHECK (phase IN ('plain', 'tuning', 'selecting', 'confirming')),
  stage INTEGER NOT NULL REFERENCES stages(row),  -- where its training ends
  seal TEXT NOT NULL CHECK (seal IN ('open', 'sealed', 'dropped')),  -- views show open ones
  PRIMARY KEY (sweep, arm, seed, phase),
  FOREIGN KEY (sweep, arm) REFERENCES arms(sweep, arm)
) STRICT, WITHOUT ROWID;
INSERT INTO new_points SELECT sweep, arm, seed, 'plain', stage, 'open' FROM points;

CREATE TABLE new_point_evaluations (
  sweep INTEGER NOT NULL,
  arm INTEGER NOT NULL,
  seed INTEGER NOT NULL,
  phase TEXT NOT NULL,
  evaluation INTEGER NOT NULL REFERENCES evaluations(row),
  standing TEXT,                     -- NULL: exploratory
  PRIMARY KEY (sweep, arm, seed, phase, evaluation),
  FOREIGN KEY (sweep, arm, seed, phase) REFERENCES new_points(sweep, arm, seed, phase)
) STRICT, WITHOUT ROWID;
INSERT INTO new_point_evaluations SELECT sweep, arm, seed, 'plain', evaluation, NULL FROM point_evaluations;

DROP TABLE point_evaluations;
DROP TABLE points;
ALTER TABLE new_points RENAME TO points;
ALTER TABLE new_point_evaluations RENAME TO point_evaluations;
CREATE INDEX points_by_stage ON points(stage);
CREATE INDEX point_evaluations_by_evaluation ON point_evaluations(evaluation);

-- What the sweep was planned by, and when: its submission, its tuning, its extensions. `sweeps` has the newest.
CREATE TABLE plan_versions (
  sweep INTEGER NOT NULL REFERENCES sweeps(row),
  version INTEGER NOT NULL,          -- from 1
  at_us INTEGER NOT NULL,
  why TEXT NOT NULL,
  yaml TEXT,                         -- verbatim; NULL: that of the version before
  spec_sha256 TEXT NOT NULL,
  plan_sha256 TEXT NOT NULL,
  PRIMARY KEY (sweep, version)
) STRICT, WITHOUT ROWID;
INSERT INTO plan_versions SELECT row, 1, created_at_us, 'submitted', yaml, spec_sha256, plan_sha256 FROM sweeps;

CREATE TABLE locks (
  sweep INTEGER PRIMARY KEY REFERENCES sweeps(row),
  arm TEXT NOT NULL,                 -- JSON
  rule_arm TEXT NOT NULL,            -- what the rule picks, or would have picked
  by_hand INTEGER NOT NULL CHECK (by_hand IN (0, 1)),
  why TEXT NOT NULL,
  at_us INTEGER NOT NULL,
  evidence TEXT NOT NULL,            -- JSON: the candidates' scores that the rule saw
  short_rule_arm TEXT NOT NULL,      -- what the rule at 1x would have picked
  short_rule_regret REAL
) STRICT;

CREATE TABLE tuned_arms (
  sweep INTEGER NOT NULL REFERENCES sweeps(row),
  position INTEGER NOT NULL,
  arm TEXT NOT NULL,                 -- JSON
  learning_rate REAL,                -- NULL: not chosen yet
  note TEXT NOT NULL,
  PRIMARY KEY (sweep, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE tuning_tries (
  sweep INTEGER NOT NULL,
  position INTEGER NOT NULL,
  try INTEGER NOT NULL,
  learning_rate REAL NOT NULL,
  mean REAL,                         -- over the tuning seeds; NULL where one diverged
  diverged INTEGER NOT NULL,
  extension INTEGER NOT NULL CHECK (extension IN (0, 1)),
  jobs TEXT NOT NULL,                -- JSON array
  PRIMARY KEY (sweep, position, try),
  FOREIGN KEY (sweep, position) REFERENCES tuned_arms(sweep, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE deviations (
  row INTEGER PRIMARY KEY,
  sweep INTEGER NOT NULL REFERENCES sweeps(row),
  at_us INTEGER NOT NULL,
  kind TEXT NOT NULL,                -- 'lock_by_hand', 'extended', 'seen_before', 'jobs_retried'
  text TEXT NOT NULL
) STRICT;
CREATE INDEX deviations_by_sweep ON deviations(sweep);

-- Numbers of a confirming arm at a confirming seed that were measured, or asked for, before the sweep was sealed.
CREATE TABLE seen_before (
  sweep INTEGER NOT NULL,
  arm INTEGER NOT NULL,
  seed INTEGER NOT NULL,
  evaluation INTEGER NOT NULL REFERENCES evaluations(row),
  job INTEGER NOT NULL REFERENCES jobs(row),
  PRIMARY KEY (sweep, arm, seed, evaluation),
  FOREIGN KEY (sweep, arm) REFERENCES arms(sweep, arm)
) STRICT, WITHOUT ROWID;

-- loss_targets by document: for each document, ascending, its number within the split (int32), its targets (int32) and
-- the sum of their losses in nats (float64), all little-endian: 16 bytes a document.
CREATE TABLE document_losses (
  evaluation INTEGER PRIMARY KEY REFERENCES evaluations(row),
  job INTEGER NOT NULL REFERENCES jobs(row),
  count INTEGER NOT NULL,
  documents BLOB NOT NULL
) STRICT;

-- A job that repeats another, and what came of it.
CREATE TABLE verifications (
  job INTEGER PRIMARY KEY REFERENCES jobs(row),
  of_job INTEGER NOT NULL REFERENCES jobs(row),
  result TEXT CHECK (result IN ('same', 'different', 'other_device')),  -- NULL: not compared (yet)
  difference TEXT NOT NULL,
  device TEXT,                       -- of the second run
  at_us INTEGER NOT NULL             -- when it was asked for, then when it was compared
) STRICT;
CREATE INDEX verifications_by_of_job ON verifications(of_job);

-- One row a metric value of one (sweep, arm, seed, phase).
CREATE VIEW results AS
SELECT s.name AS sweep, a.json AS arm, p.seed AS seed, r.metric AS metric, e.length AS length, e.split AS split,
       e.ntk AS ntk, r.value AS value, r.status AS status, j.job_id AS job, r.device AS device,
       r.non_finite AS non_finite, a.label AS arm_label, a.arm AS arm_position, s.sweep_id AS sweep_id,
       e.key AS key, r.at_us AS recorded_at_us, p.phase AS phase, COALESCE(pe.standing, 'exploratory') AS standing
FROM sweeps s
JOIN arms a ON a.sweep = s.row
JOIN points p ON p.sweep = a.sweep AND p.arm = a.arm AND p.seal = 'open'
JOIN point_evaluations pe ON pe.sweep = p.sweep AND pe.arm = p.arm AND pe.seed = p.seed AND pe.phase = p.phase
JOIN evaluations e ON e.row = pe.evaluation
JOIN evaluation_results r ON r.evaluation = e.row
JOIN jobs j ON j.row = r.job
UNION ALL
SELECT s.name, a.json, p.seed, r.metric, t.train_length, 'train', 0, r.value, r.status, j.job_id, r.device,
       r.non_finite, a.label, a.arm, s.sweep_id, t.key, r.at_us, p.phase, 'exploratory'
FROM sweeps s
JOIN arms a ON a.sweep = s.row
JOIN points p ON p.sweep = a.sweep AND p.arm = a.arm AND p.seal = 'open'
JOIN stages t ON t.row = p.stage
JOIN stage_results r ON r.stage = t.row
JOIN jobs j ON j.row = r.job;

-- Mean over seeds with a Student t interval, one row a cell and level. Variance in two passes: the mean first.
CREATE VIEW confidence_intervals_by_level AS
WITH
valued AS (
  SELECT sweep, sweep_id, arm, arm_label, arm_position, phase, standing, metric, length, split, ntk, seed, job, status,
         CASE WHEN status = 'ok' THEN value END AS ok_value
  FROM results
),
centred AS (
  SELECT *, AVG(ok_value) OVER (PARTITION BY sweep_id, arm_position, phase, metric, length, split, ntk) AS cell_mean
  FROM valued
),
cells AS (
  SELECT sweep, sweep_id, arm, arm_label, arm_position, phase, metric, length, split, ntk,
         COUNT(ok_value) AS n,
         MAX(cell_mean) AS mean,
         CASE WHEN COUNT(ok_value) > 1
              THEN SQRT(SUM((ok_value - cell_mean) * (ok_value - cell_mean)) / (COUNT(ok_value) - 1)) END AS sd,
         MAX(ABS(ok_value)) AS largest,
         SUM(status = 'diverged') AS diverged,
         json_group_array(seed) FILTER (WHERE status = 'ok') AS seeds,
         json_group_array(seed) FILTER (WHERE status = 'diverged') AS diverged_seeds,
         json_group_array(job) AS jobs,
         -- One reason against a value is a reason against the mean.
         COALESCE(MAX(CASE WHEN standing <> 'confirmatory' THEN standing END), 'confirmatory') AS standing
  FROM centred
  GROUP BY sweep_id, arm_position, phase, metric, length, split, ntk
),
judged AS (
  -- 4 * 2^-52: equal values whose mean was rounded have no variance.
  SELECT *, n > 1 AND sd > 8.8817841970012523e-16 * largest AS has_interval,
         (SELECT COUNT(*) FROM sweeps s JOIN points p ON p.sweep = s.row
          WHERE s.sweep_id = cells.sweep_id AND p.arm = cells.arm_position AND p.phase = cells.phase
                AND p.seal = 'open') AS planned
  FROM cells
)
SELECT g.sweep AS sweep, g.arm AS arm, g.metric AS metric, g.length AS length, g.split AS split, g.ntk AS ntk,
       g.n AS n, g.mean AS mean, g.sd AS sd,
       CASE WHEN g.has_interval THEN g.mean - t.value * g.sd / SQRT(g.n) END AS low,
       CASE WHEN g.has_interval THEN g.mean + t.value * g.sd / SQRT(g.n) END AS high,
       t.level AS level, 'student_t' AS method, g.seeds AS seeds, g.diverged AS diverged,
       g.diverged_seeds AS diverged_seeds, g.planned - g.n - g.diverged AS missing,
       CASE WHEN g.has_interval THEN '' WHEN g.n = 0 THEN 'no value: every seed diverged'
            WHEN g.n = 1 THEN 'one seed: no interval' ELSE 'no variance: no interval' END AS reason,
       g.jobs AS jobs, g.arm_label AS arm_label, g.arm_position AS arm_position, g.sweep_id AS sweep_id,
       g.phase AS phase, g.standing AS standing
FROM judged g
JOIN t_critical t ON t.df = MIN(MAX(g.n - 1, 1), 1000);

CREATE VIEW confidence_intervals AS
SELECT * FROM confidence_intervals_by_level WHERE level = 0.95;
