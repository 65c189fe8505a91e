-- Schema version 3: probes, access, reliability. docs/results-database.md explains every table and view; change both
-- together.

-- Storage: a digest of what each row says, where a flipped bit would be a wrong number or a number of something else.
-- ablate_digest is the coordinator's (server/store/digest.h); without it these rows can be read, but not written.
ALTER TABLE sweeps ADD COLUMN digest INTEGER;
UPDATE sweeps SET digest = ablate_digest('sweeps', row, sweep_id, name, file_name, yaml, spec, spec_sha256,
  plan_sha256, data, baseline_arm);
CREATE TRIGGER sweeps_digest_new AFTER INSERT ON sweeps BEGIN
  UPDATE sweeps SET digest = ablate_digest('sweeps', NEW.row, NEW.sweep_id, NEW.name, NEW.file_name, NEW.yaml,
    NEW.spec, NEW.spec_sha256, NEW.plan_sha256, NEW.data, NEW.baseline_arm)
  WHERE row = NEW.row;
END;
CREATE TRIGGER sweeps_digest_changed AFTER UPDATE OF row, sweep_id, name, file_name, yaml, spec, spec_sha256,
  plan_sha256, data, baseline_arm ON sweeps BEGIN
  UPDATE sweeps SET digest = ablate_digest('sweeps', NEW.row, NEW.sweep_id, NEW.name, NEW.file_name, NEW.yaml,
    NEW.spec, NEW.spec_sha256, NEW.plan_sha256, NEW.data, NEW.baseline_arm)
  WHERE row = NEW.row;
END;
ALTER TABLE plan_versions ADD COLUMN digest INTEGER;
UPDATE plan_versions SET digest = ablate_digest('plan_versions', sweep, version, at_us, why, yaml, spec_sha256,
  plan_sha256);
CREATE TRIGGER plan_versions_digest_new AFTER INSERT ON plan_versions BEGIN
  UPDATE plan_versions SET digest = ablate_digest('plan_versions', NEW.sweep, NEW.version, NEW.at_us, NEW.why,
    NEW.yaml, NEW.spec_sha256, NEW.plan_sha256)
  WHERE sweep = NEW.sweep AND version = NEW.version;
END;
CREATE TRIGGER plan_versions_digest_changed AFTER UPDATE OF sweep, version, at_us, why, yaml, spec_sha256,
  plan_sha256 ON plan_versions BEGIN
  UPDATE plan_versions SET digest = ablate_digest('plan_versions', NEW.sweep, NEW.version, NEW.at_us, NEW.why,
    NEW.yaml, NEW.spec_sha256, NEW.plan_sha256)
  WHERE sweep = NEW.sweep AND version = NEW.version;
END;
ALTER TABLE arms ADD COLUMN digest INTEGER;
UPDATE arms SET digest = ablate_digest('arms', sweep, arm, json, label, phase, tunes, learning_rate);
CREATE TRIGGER arms_digest_new AFTER INSERT ON arms BEGIN
  UPDATE arms SET digest = ablate_digest('arms', NEW.sweep, NEW.arm, NEW.json, NEW.label, NEW.phase, NEW.tunes,
    NEW.learning_rate)
  WHERE sweep = NEW.sweep AND arm = NEW.arm;
END;
CREATE TRIGGER arms_digest_changed AFTER UPDATE OF sweep, arm, json, label, phase, tunes, learning_rate ON arms BEGIN
  UPDATE arms SET digest = ablate_digest('arms', NEW.sweep, NEW.arm, NEW.json, NEW.label, NEW.phase, NEW.tunes,
    NEW.learning_rate)
  WHERE sweep = NEW.sweep AND arm = NEW.arm;
END;
ALTER TABLE stages ADD COLUMN digest INTEGER;
UPDATE stages SET digest = ablate_digest('stages', row, key, parent, config, seed, from_step, to_step, train_length,
  data, executor);
CREATE TRIGGER stages_digest_new AFTER INSERT ON stages BEGIN
  UPDATE stages SET digest = ablate_digest('stages', NEW.row, NEW.key, NEW.parent, NEW.config, NEW.seed,
    NEW.from_step, NEW.to_step, NEW.train_length, NEW.data, NEW.executor)
  WHERE row = NEW.row;
END;
CREATE TRIGGER stages_digest_changed AFTER UPDATE OF row, key, parent, config, seed, from_step, to_step, train_length,
  data, executor ON stages BEGIN
  UPDATE stages SET digest = ablate_digest('stages', NEW.row, NEW.key, NEW.parent, NEW.config, NEW.seed,
    NEW.from_step, NEW.to_step, NEW.train_length, NEW.data, NEW.executor)
  WHERE row = NEW.row;
END;
ALTER TABLE evaluations ADD COLUMN digest INTEGER;
UPDATE evaluations SET digest = ablate_digest('evaluations', row, key, stage, eval_config, length, split, ntk);
CREATE TRIGGER evaluations_digest_new AFTER INSERT ON evaluations BEGIN
  UPDATE evaluations SET digest = ablate_digest('evaluations', NEW.row, NEW.key, NEW.stage, NEW.eval_config,
    NEW.length, NEW.split, NEW.ntk)
  WHERE row = NEW.row;
END;
CREATE TRIGGER evaluations_digest_changed AFTER UPDATE OF row, key, stage, eval_config, length, split,
  ntk ON evaluations BEGIN
  UPDATE evaluations SET digest = ablate_digest('evaluations', NEW.row, NEW.key, NEW.stage, NEW.eval_config,
    NEW.length, NEW.split, NEW.ntk)
  WHERE row = NEW.row;
END;
ALTER TABLE points ADD COLUMN digest INTEGER;
UPDATE points SET digest = ablate_digest('points', sweep, arm, seed, phase, stage, seal);
CREATE TRIGGER points_digest_new AFTER INSERT ON points BEGIN
  UPDATE points SET digest = ablate_digest('points', NEW.sweep, NEW.arm, NEW.seed, NEW.phase, NEW.stage, NEW.seal)
  WHERE sweep = NEW.sweep AND arm = NEW.arm AND seed = NEW.seed AND phase = NEW.phase;
END;
CREATE TRIGGER points_digest_changed AFTER UPDATE OF sweep, arm, seed, phase, stage, seal ON points BEGIN
  UPDATE points SET digest = ablate_digest('points', NEW.sweep, NEW.arm, NEW.seed, NEW.phase, NEW.stage, NEW.seal)
  WHERE sweep = NEW.sweep AND arm = NEW.arm AND seed = NEW.seed AND phase = NEW.phase;
END;
ALTER TABLE point_evaluations ADD COLUMN digest INTEGER;
UPDATE point_evaluations SET digest = ablate_digest('point_evaluations', sweep, arm, seed, phase, evaluation,
  standing);
CREATE TRIGGER point_evaluations_digest_new AFTER INSERT ON point_evaluations BEGIN
  UPDATE point_evaluations SET digest = ablate_digest('point_evaluations', NEW.sweep, NEW.arm, NEW.seed, NEW.phase,
    NEW.evaluation, NEW.standing)
  WHERE sweep = NEW.sweep AND arm = NEW.arm AND seed = NEW.seed AND phase = NEW.phase AND evaluation = NEW.evaluation;
END;
CREATE TRIGGER point_evaluations_digest_changed AFTER UPDATE OF sweep, arm, seed, phase, evaluation,
  standing ON point_evaluations BEGIN
  UPDATE point_evaluations SET digest = ablate_digest('point_evaluations', NEW.sweep, NEW.arm, NEW.seed, NEW.phase,
    NEW.evaluation, NEW.standing)
  WHERE sweep = NEW.sweep AND arm = NEW.arm AND seed = NEW.seed AND phase = NEW.phase AND evaluation = NEW.evaluation;
END;
ALTER TABLE locks ADD COLUMN digest INTEGER;
UPDATE locks SET digest = ablate_digest('locks', sweep, arm, rule_arm, by_hand, why, at_us, evidence, short_rule_arm,
  short_rule_regret);
CREATE TRIGGER locks_digest_new AFTER INSERT ON locks BEGIN
  UPDATE locks SET digest = ablate_digest('locks', NEW.sweep, NEW.arm, NEW.rule_arm, NEW.by_hand, NEW.why, NEW.at_us,
    NEW.evidence, NEW.short_rule_arm, NEW.short_rule_regret)
  WHERE sweep = NEW.sweep;
END;
CREATE TRIGGER locks_digest_changed AFTER UPDATE OF sweep, arm, rule_arm, by_hand, why, at_us, evidence,
  short_rule_arm, short_rule_regret ON locks BEGIN
  UPDATE locks SET digest = ablate_digest('locks', NEW.sweep, NEW.arm, NEW.rule_arm, NEW.by_hand, NEW.why, NEW.at_us,
    NEW.evidence, NEW.short_rule_arm, NEW.short_rule_regret)
  WHERE sweep = NEW.sweep;
END;
ALTER TABLE tuned_arms ADD COLUMN digest INTEGER;
UPDATE tuned_arms SET digest = ablate_digest('tuned_arms', sweep, position, arm, learning_rate, note);
CREATE TRIGGER tuned_arms_digest_new AFTER INSERT ON tuned_arms BEGIN
  UPDATE tuned_arms SET digest = ablate_digest('tuned_arms', NEW.sweep, NEW.position, NEW.arm, NEW.learning_rate,
    NEW.note)
  WHERE sweep = NEW.sweep AND position = NEW.position;
END;
CREATE TRIGGER tuned_arms_digest_changed AFTER UPDATE OF sweep, position, arm, learning_rate, note ON tuned_arms BEGIN
  UPDATE tuned_arms SET digest = ablate_digest('tuned_arms', NEW.sweep, NEW.position, NEW.arm, NEW.learning_rate,
    NEW.note)
  WHERE sweep = NEW.sweep AND position = NEW.position;
END;
ALTER TABLE tuning_tries ADD COLUMN digest INTEGER;
UPDATE tuning_tries SET digest = ablate_digest('tuning_tries', sweep, position, try, learning_rate, mean, diverged,
  extension, jobs);
CREATE TRIGGER tuning_tries_digest_new AFTER INSERT ON tuning_tries BEGIN
  UPDATE tuning_tries SET digest = ablate_digest('tuning_tries', NEW.sweep, NEW.position, NEW.try, NEW.learning_rate,
    NEW.mean, NEW.diverged, NEW.extension, NEW.jobs)
  WHERE sweep = NEW.sweep AND position = NEW.position AND try = NEW.try;
END;
CREATE TRIGGER tuning_tries_digest_changed AFTER UPDATE OF sweep, position, try, learning_rate, mean, diverged,
  extension, jobs ON tuning_tries BEGIN
  UPDATE tuning_tries SET digest = ablate_digest('tuning_tries', NEW.sweep, NEW.position, NEW.try, NEW.learning_rate,
    NEW.mean, NEW.diverged, NEW.extension, NEW.jobs)
  WHERE sweep = NEW.sweep AND position = NEW.position AND try = NEW.try;
END;
ALTER TABLE jobs ADD COLUMN digest INTEGER;
UPDATE jobs SET digest = ablate_digest('jobs', row, job_id, kind, key, retry_of, verify_of, from_step, to_step,
  executor);
CREATE TRIGGER jobs_digest_new AFTER INSERT ON jobs BEGIN
  UPDATE jobs SET digest = ablate_digest('jobs', NEW.row, NEW.job_id, NEW.kind, NEW.key, NEW.retry_of, NEW.verify_of,
    NEW.from_step, NEW.to_step, NEW.executor)
  WHERE row = NEW.row;
END;
CREATE TRIGGER jobs_digest_changed AFTER UPDATE OF row, job_id, kind, key, retry_of, verify_of, from_step, to_step,
  executor ON jobs BEGIN
  UPDATE jobs SET digest = ablate_digest('jobs', NEW.row, NEW.job_id, NEW.kind, NEW.key, NEW.retry_of, NEW.verify_of,
    NEW.from_step, NEW.to_step, NEW.executor)
  WHERE row = NEW.row;
END;
ALTER TABLE evaluation_results ADD COLUMN digest INTEGER;
UPDATE evaluation_results SET digest = ablate_digest('evaluation_results', evaluation, metric, value, non_finite,
  status, job, device, at_us);
CREATE TRIGGER evaluation_results_digest_new AFTER INSERT ON evaluation_results BEGIN
  UPDATE evaluation_results SET digest = ablate_digest('evaluation_results', NEW.evaluation, NEW.metric, NEW.value,
    NEW.non_finite, NEW.status, NEW.job, NEW.device, NEW.at_us)
  WHERE evaluation = NEW.evaluation AND metric = NEW.metric;
END;
CREATE TRIGGER evaluation_results_digest_changed AFTER UPDATE OF evaluation, metric, value, non_finite, status, job,
  device, at_us ON evaluation_results BEGIN
  UPDATE evaluation_results SET digest = ablate_digest('evaluation_results', NEW.evaluation, NEW.metric, NEW.value,
    NEW.non_finite, NEW.status, NEW.job, NEW.device, NEW.at_us)
  WHERE evaluation = NEW.evaluation AND metric = NEW.metric;
END;
ALTER TABLE stage_results ADD COLUMN digest INTEGER;
UPDATE stage_results SET digest = ablate_digest('stage_results', stage, metric, value, non_finite, status, job,
  device, at_us);
CREATE TRIGGER stage_results_digest_new AFTER INSERT ON stage_results BEGIN
  UPDATE stage_results SET digest = ablate_digest('stage_results', NEW.stage, NEW.metric, NEW.value, NEW.non_finite,
    NEW.status, NEW.job, NEW.device, NEW.at_us)
  WHERE stage = NEW.stage AND metric = NEW.metric;
END;
CREATE TRIGGER stage_results_digest_changed AFTER UPDATE OF stage, metric, value, non_finite, status, job, device,
  at_us ON stage_results BEGIN
  UPDATE stage_results SET digest = ablate_digest('stage_results', NEW.stage, NEW.metric, NEW.value, NEW.non_finite,
    NEW.status, NEW.job, NEW.device, NEW.at_us)
  WHERE stage = NEW.stage AND metric = NEW.metric;
END;
ALTER TABLE curves ADD COLUMN digest INTEGER;
UPDATE curves SET digest = ablate_digest('curves', stage, metric, step, value, non_finite);
CREATE TRIGGER curves_digest_new AFTER INSERT ON curves BEGIN
  UPDATE curves SET digest = ablate_digest('curves', NEW.stage, NEW.metric, NEW.step, NEW.value, NEW.non_finite)
  WHERE stage = NEW.stage AND metric = NEW.metric AND step = NEW.step;
END;
CREATE TRIGGER curves_digest_changed AFTER UPDATE OF stage, metric, step, value, non_finite ON curves BEGIN
  UPDATE curves SET digest = ablate_digest('curves', NEW.stage, NEW.metric, NEW.step, NEW.value, NEW.non_finite)
  WHERE stage = NEW.stage AND metric = NEW.metric AND step = NEW.step;
END;
ALTER TABLE document_losses ADD COLUMN digest INTEGER;
UPDATE document_losses SET digest = ablate_digest('document_losses', evaluation, job, count, documents);
CREATE TRIGGER document_losses_digest_new AFTER INSERT ON document_losses BEGIN
  UPDATE document_losses SET digest = ablate_digest('document_losses', NEW.evaluation, NEW.job, NEW.count,
    NEW.documents)
  WHERE evaluation = NEW.evaluation;
END;
CREATE TRIGGER document_losses_digest_changed AFTER UPDATE OF evaluation, job, count,
  documents ON document_losses BEGIN
  UPDATE document_losses SET digest = ablate_digest('document_losses', NEW.evaluation, NEW.job, NEW.count,
    NEW.documents)
  WHERE evaluation = NEW.evaluation;
END;

-- Access: who may call. The token itself is stored nowhere.
CREATE TABLE tokens (
  row INTEGER PRIMARY KEY,
  token_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,                -- of one that is in use, unique
  role TEXT NOT NULL CHECK (role IN ('read', 'submit', 'worker', 'admin')),
  sha256 TEXT NOT NULL UNIQUE CHECK (length(sha256) = 64),
  created_at_us INTEGER NOT NULL,
  expires_at_us INTEGER,             -- NULL: it does not expire
  revoked_at_us INTEGER,             -- NULL: it is not
  last_used_at_us INTEGER            -- NULL: never; written once a minute
) STRICT;
CREATE TABLE token_workers (         -- the token that a worker id belongs to
  worker_id TEXT PRIMARY KEY,
  token INTEGER NOT NULL REFERENCES tokens(row)
) STRICT, WITHOUT ROWID;
CREATE INDEX token_workers_by_token ON token_workers(token);

-- Probes: what an evaluation of a task reads beside the data (rows of data, so that their artifacts stay), and the files
-- that evaluations made.
ALTER TABLE evaluations ADD COLUMN files INTEGER REFERENCES data(row);
ALTER TABLE evaluations ADD COLUMN tokenizer INTEGER REFERENCES data(row);

CREATE TABLE result_artifacts (
  evaluation INTEGER NOT NULL REFERENCES evaluations(row),
  position INTEGER NOT NULL,
  name TEXT NOT NULL,                -- of the file, without a path
  media_type TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  job INTEGER NOT NULL REFERENCES jobs(row),
  PRIMARY KEY (evaluation, position)
) STRICT;
CREATE INDEX result_artifacts_by_sha256 ON result_artifacts(sha256);

-- Reliability: a sweep with too many failures of one signature is paused; one job at a time on a slot.
ALTER TABLE sweeps ADD COLUMN max_failures INTEGER;                -- of one signature, that pause it; 0: never; NULL: as the server says
ALTER TABLE sweeps ADD COLUMN pause_reason TEXT NOT NULL DEFAULT '';  -- '': not paused

CREATE TABLE sweep_failures (
  sweep INTEGER NOT NULL REFERENCES sweeps(row),
  signature TEXT NOT NULL,           -- kind and message without numbers: 'code_error: no such layer #'
  failures INTEGER NOT NULL,         -- of attempts, ever
  since_resume INTEGER NOT NULL,     -- what is held against max_failures
  last_job INTEGER NOT NULL REFERENCES jobs(row),
  PRIMARY KEY (sweep, signature)
) STRICT, WITHOUT ROWID;

-- The coordinator grants no slot twice; if it ever would, the commit fails. Evaluations of one state share a slot: they
-- are done one after the other.
CREATE INDEX attempts_running ON attempts(worker_id, slot) WHERE state = 'RUNNING';
CREATE TRIGGER attempts_have_a_slot BEFORE INSERT ON attempts WHEN NEW.state = 'RUNNING'
BEGIN
  SELECT RAISE(ABORT, 'a worker has no such slot')
  WHERE NEW.slot < 0 OR NEW.slot >= (SELECT slots FROM workers WHERE worker_id = NEW.worker_id);
  SELECT RAISE(ABORT, 'two jobs on one slot')
  WHERE EXISTS (SELECT 1 FROM attempts AS other
                JOIN jobs AS theirs ON theirs.row = other.job
                JOIN jobs AS ours ON ours.row = NEW.job
                WHERE other.worker_id = NEW.worker_id AND other.slot = NEW.slot AND other.state = 'RUNNING'
                  AND other.job <> NEW.job AND theirs.state = 'RUNNING' AND theirs.attempt = other.attempt
                  AND NOT (theirs.kind = 'EVALUATION' AND ours.kind = 'EVALUATION' AND theirs.parent IS ours.parent));
END;
CREATE TRIGGER attempts_keep_their_slot BEFORE UPDATE OF state, slot, worker_id ON attempts
WHEN NEW.state = 'RUNNING' AND OLD.state <> 'RUNNING'
BEGIN
  SELECT RAISE(ABORT, 'two jobs on one slot')
  WHERE EXISTS (SELECT 1 FROM attempts AS other
                JOIN jobs AS theirs ON theirs.row = other.job
                JOIN jobs AS ours ON ours.row = NEW.job
                WHERE other.worker_id = NEW.worker_id AND other.slot = NEW.slot AND other.state = 'RUNNING'
                  AND other.job <> NEW.job AND theirs.state = 'RUNNING' AND theirs.attempt = other.attempt
                  AND NOT (theirs.kind = 'EVALUATION' AND ours.kind = 'EVALUATION' AND theirs.parent IS ours.parent));
END;
