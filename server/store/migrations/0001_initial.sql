-- Schema version 1. docs/results-database.md explains every table and view; change both together.
-- Times are UTC microseconds. Rows are integer keys given by the coordinator; *_id and key are the permanent names.
-- Words of states compare without regard to case: 'SUCCEEDED', as programs print it, is 'succeeded'.
-- SQLite stores NaN as NULL: `non_finite` says 'nan', 'inf' or '-inf' where a value is one of them.

CREATE TABLE data (
  row INTEGER PRIMARY KEY,
  sha256 TEXT NOT NULL,
  name TEXT NOT NULL,
  ref BLOB NOT NULL,                 -- ablate.v1.DataRef
  UNIQUE (sha256, ref)
) STRICT;

CREATE TABLE data_files (
  data INTEGER NOT NULL REFERENCES data(row),
  position INTEGER NOT NULL,
  path TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (data, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX data_files_by_sha256 ON data_files(sha256);

CREATE TABLE sweeps (
  row INTEGER PRIMARY KEY,
  sweep_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL UNIQUE,
  description TEXT NOT NULL,
  state TEXT NOT NULL COLLATE NOCASE CHECK (state IN ('RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
  file_name TEXT NOT NULL,
  yaml TEXT NOT NULL,                -- verbatim
  spec BLOB NOT NULL,                -- ablate.v1.SweepSpec
  spec_sha256 TEXT NOT NULL,
  plan_sha256 TEXT NOT NULL,
  data INTEGER NOT NULL REFERENCES data(row),
  baseline_arm INTEGER NOT NULL,     -- arms.arm
  priority INTEGER NOT NULL,
  keep TEXT NOT NULL CHECK (keep IN ('none', 'weights', 'all')),
  arms INTEGER NOT NULL,
  seeds INTEGER NOT NULL,
  created_at_us INTEGER NOT NULL,
  ended_at_us INTEGER                -- NULL while running
) STRICT;

CREATE TABLE arms (
  sweep INTEGER NOT NULL REFERENCES sweeps(row),
  arm INTEGER NOT NULL,              -- position in the plan, from 0
  json TEXT NOT NULL,                -- {"attention.p":3,"attention.variant":"lssar"}
  label TEXT NOT NULL,
  PRIMARY KEY (sweep, arm)
) STRICT, WITHOUT ROWID;

-- Segments of training, by content. Shared by all sweeps.
CREATE TABLE stages (
  row INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  parent INTEGER REFERENCES stages(row),
  config TEXT NOT NULL,              -- JSON
  seed INTEGER NOT NULL,
  from_step INTEGER NOT NULL,
  to_step INTEGER NOT NULL,
  train_length INTEGER NOT NULL,     -- tokens
  data INTEGER NOT NULL REFERENCES data(row),
  executor TEXT NOT NULL CHECK (executor IN ('trainer', 'noop'))
) STRICT;

CREATE TABLE evaluations (
  row INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  stage INTEGER NOT NULL REFERENCES stages(row),
  eval_config TEXT NOT NULL,         -- JSON
  length INTEGER NOT NULL,           -- tokens
  split TEXT NOT NULL,
  ntk INTEGER NOT NULL CHECK (ntk IN (0, 1))
) STRICT;
CREATE INDEX evaluations_by_stage ON evaluations(stage);

CREATE TABLE points (
  sweep INTEGER NOT NULL,
  arm INTEGER NOT NULL,
  seed INTEGER NOT NULL,
  stage INTEGER NOT NULL REFERENCES stages(row),  -- where its training ends
  PRIMARY KEY (sweep, arm, seed),
  FOREIGN KEY (sweep, arm) REFERENCES arms(sweep, arm)
) STRICT, WITHOUT ROWID;
CREATE INDEX points_by_stage ON points(stage);

CREATE TABLE point_evaluations (
  sweep INTEGER NOT NULL,
  arm INTEGER NOT NULL,
  seed INTEGER NOT NULL,
  evaluation INTEGER NOT NULL REFERENCES evaluations(row),
  PRIMARY KEY (sweep, arm, seed, evaluation),
  FOREIGN KEY (sweep, arm, seed) REFERENCES points(sweep, arm, seed)
) STRICT, WITHOUT ROWID;
CREATE INDEX point_evaluations_by_evaluation ON point_evaluations(evaluation);

CREATE TABLE jobs (
  row INTEGER PRIMARY KEY,           -- 1, 2, 3... without gaps; never deleted
  job_id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL COLLATE NOCASE CHECK (kind IN ('STAGE', 'EVALUATION')),
  key TEXT NOT NULL,                 -- of stages or evaluations; several jobs of one key: retries
  state TEXT NOT NULL COLLATE NOCASE CHECK (state IN ('BLOCKED', 'QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
  parent INTEGER REFERENCES jobs(row),
  retry_of INTEGER REFERENCES jobs(row),
  attempt INTEGER NOT NULL,          -- leases granted
  attempt_state TEXT NOT NULL,       -- how the latest one stands
  failures INTEGER NOT NULL,
  max_failures INTEGER NOT NULL,
  outcome TEXT COLLATE NOCASE CHECK (outcome IN ('COMPLETED', 'DIVERGED')),  -- NULL until it succeeded
  diverged_at_step INTEGER,
  from_step INTEGER NOT NULL,
  to_step INTEGER NOT NULL,
  requires_device TEXT NOT NULL,     -- '': any
  requires_memory_bytes INTEGER NOT NULL,
  requires_labels TEXT NOT NULL,     -- JSON array
  executor TEXT NOT NULL CHECK (executor IN ('trainer', 'noop')),
  worker_id TEXT,                    -- of the latest attempt
  slot INTEGER,
  failure_kind TEXT COLLATE NOCASE,                 -- of the last failure
  failure_message TEXT,
  created_at_us INTEGER NOT NULL,
  started_at_us INTEGER,
  ended_at_us INTEGER,
  device TEXT,                       -- device kind that gave the result, e.g. cpu/Zen
  seconds REAL,
  peak_memory_bytes INTEGER
) STRICT;
CREATE INDEX jobs_by_key ON jobs(key);

-- The jobs that stand for a sweep's keys now.
CREATE TABLE sweep_jobs (
  sweep INTEGER NOT NULL REFERENCES sweeps(row),
  job INTEGER NOT NULL REFERENCES jobs(row),
  PRIMARY KEY (sweep, job)
) STRICT, WITHOUT ROWID;
CREATE INDEX sweep_jobs_by_job ON sweep_jobs(job);

CREATE TABLE attempts (
  job INTEGER NOT NULL REFERENCES jobs(row),
  attempt INTEGER NOT NULL,
  worker_id TEXT NOT NULL,
  incarnation TEXT NOT NULL,
  slot INTEGER NOT NULL,
  state TEXT NOT NULL COLLATE NOCASE CHECK (state IN ('RUNNING', 'SUCCEEDED', 'FAILED', 'RELEASED', 'LOST', 'CANCELLED')),
  started_at_us INTEGER NOT NULL,
  ended_at_us INTEGER,
  resumed_from_step INTEGER,         -- of a stage; NULL until it is known
  has_points INTEGER NOT NULL DEFAULT 0,  -- whether curve points of this attempt are stored
  failure_kind TEXT COLLATE NOCASE,
  failure_message TEXT,
  exit_code INTEGER,
  signal INTEGER,
  peak_memory_bytes INTEGER,
  stderr_tail TEXT,
  PRIMARY KEY (job, attempt)
) STRICT, WITHOUT ROWID;

-- What happened, append only.
CREATE TABLE events (
  row INTEGER PRIMARY KEY,
  at_us INTEGER NOT NULL,
  job INTEGER NOT NULL REFERENCES jobs(row),
  from_state TEXT NOT NULL COLLATE NOCASE,
  to_state TEXT NOT NULL COLLATE NOCASE,
  cause TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  worker_id TEXT NOT NULL,
  text TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_job ON events(job);

CREATE TABLE evaluation_results (
  evaluation INTEGER NOT NULL REFERENCES evaluations(row),
  metric TEXT NOT NULL,
  value REAL,                        -- NULL where not finite or diverged
  non_finite TEXT CHECK (non_finite IN ('nan', 'inf', '-inf')),
  status TEXT NOT NULL CHECK (status IN ('ok', 'diverged')),
  job INTEGER NOT NULL REFERENCES jobs(row),
  device TEXT NOT NULL,
  at_us INTEGER NOT NULL,
  PRIMARY KEY (evaluation, metric)
) STRICT, WITHOUT ROWID;

CREATE TABLE stage_results (
  stage INTEGER NOT NULL REFERENCES stages(row),
  metric TEXT NOT NULL,
  value REAL,
  non_finite TEXT CHECK (non_finite IN ('nan', 'inf', '-inf')),
  status TEXT NOT NULL CHECK (status IN ('ok', 'diverged')),
  job INTEGER NOT NULL REFERENCES jobs(row),
  device TEXT NOT NULL,
  at_us INTEGER NOT NULL,
  PRIMARY KEY (stage, metric)
) STRICT, WITHOUT ROWID;

CREATE TABLE curves (
  stage INTEGER NOT NULL REFERENCES stages(row),
  metric TEXT NOT NULL,
  step INTEGER NOT NULL,
  value REAL,
  non_finite TEXT CHECK (non_finite IN ('nan', 'inf', '-inf')),
  PRIMARY KEY (stage, metric, step)
) STRICT, WITHOUT ROWID;

-- States that are stored as artifacts. A collected part has a NULL hash; a row without any part is deleted.
CREATE TABLE checkpoints (
  stage INTEGER NOT NULL REFERENCES stages(row),
  step INTEGER NOT NULL,
  end_state INTEGER NOT NULL CHECK (end_state IN (0, 1)),
  weights_sha256 TEXT,
  weights_bytes INTEGER,
  optimizer_sha256 TEXT,
  optimizer_bytes INTEGER,
  job INTEGER NOT NULL REFERENCES jobs(row),
  at_us INTEGER NOT NULL,
  PRIMARY KEY (stage, step, end_state)
) STRICT, WITHOUT ROWID;
CREATE INDEX checkpoints_by_weights ON checkpoints(weights_sha256);
CREATE INDEX checkpoints_by_optimizer ON checkpoints(optimizer_sha256);

CREATE TABLE workers (
  worker_id TEXT PRIMARY KEY,
  incarnation TEXT NOT NULL,
  hostname TEXT NOT NULL,
  device_class TEXT NOT NULL,
  device_kind TEXT NOT NULL,
  slots INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL,
  labels TEXT NOT NULL,              -- JSON array
  build TEXT NOT NULL,
  executor TEXT NOT NULL CHECK (executor IN ('trainer', 'noop')),
  drain_asked INTEGER NOT NULL CHECK (drain_asked IN (0, 1)),
  last_contact_at_us INTEGER NOT NULL  -- when this row was written
) STRICT, WITHOUT ROWID;

-- Starts of worker daemons: one that was replaced is refused for good.
CREATE TABLE incarnations (
  worker_id TEXT NOT NULL,
  incarnation TEXT NOT NULL,
  started_at_us INTEGER NOT NULL,
  PRIMARY KEY (worker_id, incarnation)
) STRICT, WITHOUT ROWID;

-- Answers to calls that change something, so that a repeated call gets the same answer and changes nothing.
CREATE TABLE requests (
  request_id TEXT PRIMARY KEY,
  method TEXT NOT NULL,
  response BLOB NOT NULL,
  at_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_by_age ON requests(at_us);

-- Two-sided Student t quantiles: P(|T_df| <= value) = level. Filled when the database is made: df 1 to 1000.
CREATE TABLE t_critical (
  df INTEGER NOT NULL,
  level REAL NOT NULL,
  value REAL NOT NULL,
  PRIMARY KEY (df, level)
) STRICT, WITHOUT ROWID;

-- One row a metric value of one (sweep, arm, seed).
CREATE VIEW results AS
SELECT s.name AS sweep, a.json AS arm, p.seed AS seed, r.metric AS metric, e.length AS length, e.split AS split,
       e.ntk AS ntk, r.value AS value, r.status AS status, j.job_id AS job, r.device AS device,
       r.non_finite AS non_finite, a.label AS arm_label, a.arm AS arm_position, s.sweep_id AS sweep_id,
       e.key AS key, r.at_us AS recorded_at_us
FROM sweeps s
JOIN arms a ON a.sweep = s.row
JOIN points p ON p.sweep = a.sweep AND p.arm = a.arm
JOIN point_evaluations pe ON pe.sweep = p.sweep AND pe.arm = p.arm AND pe.seed = p.seed
JOIN evaluations e ON e.row = pe.evaluation
JOIN evaluation_results r ON r.evaluation = e.row
JOIN jobs j ON j.row = r.job
UNION ALL
SELECT s.name, a.json, p.seed, r.metric, t.train_length, 'train', 0, r.value, r.status, j.job_id, r.device,
       r.non_finite, a.label, a.arm, s.sweep_id, t.key, r.at_us
FROM sweeps s
JOIN arms a ON a.sweep = s.row
JOIN points p ON p.sweep = a.sweep AND p.arm = a.arm
JOIN stages t ON t.row = p.stage
JOIN stage_results r ON r.stage = t.row
JOIN jobs j ON j.row = r.job;

-- Mean over seeds with a Student t interval, one row a cell and level. Variance in two passes: the mean first.
CREATE VIEW confidence_intervals_by_level AS
WITH
valued AS (
  SELECT sweep, sweep_id, arm, arm_label, arm_position, metric, length, split, ntk, seed, job, status,
         CASE WHEN status = 'ok' THEN value END AS ok_value
  FROM results
),
centred AS (
  SELECT *, AVG(ok_value) OVER (PARTITION BY sweep_id, arm_position, metric, length, split, ntk) AS cell_mean
  FROM valued
),
cells AS (
  SELECT sweep, sweep_id, arm, arm_label, arm_position, metric, length, split, ntk,
         COUNT(ok_value) AS n,
         MAX(cell_mean) AS mean,
         CASE WHEN COUNT(ok_value) > 1
              THEN SQRT(SUM((ok_value - cell_mean) * (ok_value - cell_mean)) / (COUNT(ok_value) - 1)) END AS sd,
         MAX(ABS(ok_value)) AS largest,
         SUM(status = 'diverged') AS diverged,
         json_group_array(seed) FILTER (WHERE status = 'ok') AS seeds,
         json_group_array(seed) FILTER (WHERE status = 'diverged') AS diverged_seeds,
         json_group_array(job) AS jobs
  FROM centred
  GROUP BY sweep_id, arm_position, metric, length, split, ntk
),
judged AS (
  -- 4 * 2^-52: equal values whose mean was rounded have no variance.
  SELECT *, n > 1 AND sd > 8.8817841970012523e-16 * largest AS has_interval,
         (SELECT COUNT(*) FROM sweeps s JOIN points p ON p.sweep = s.row
          WHERE s.sweep_id = cells.sweep_id AND p.arm = cells.arm_position) AS planned
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
       g.jobs AS jobs, g.arm_label AS arm_label, g.arm_position AS arm_position, g.sweep_id AS sweep_id
FROM judged g
JOIN t_critical t ON t.df = MIN(MAX(g.n - 1, 1), 1000);

CREATE VIEW confidence_intervals AS
SELECT * FROM confidence_intervals_by_level WHERE level = 0.95;
