// The messages of proto/resources.proto and proto/coordinator.proto as protobuf's JSON mapping gives them: field names as in the
// proto, enums by name, int64 as text, doubles as numbers or "NaN", "Infinity", "-Infinity". What each field means is said there.
// Must not know the page or how messages travel.

export type Int64 = string;
export type Double = number | "NaN" | "Infinity" | "-Infinity";

// As a number: exact up to 2^53, beyond which only seeds go (show those as the text they are).
export function int64(value: Int64 | number | undefined): number {
  return value === undefined ? 0 : Number(value);
}

// NaN for what is absent.
export function double(value: Double | undefined): number {
  return value === undefined ? NaN : Number(value);
}

export type SweepState = "SWEEP_STATE_UNSPECIFIED" | "SWEEP_RUNNING" | "SWEEP_SUCCEEDED" | "SWEEP_FAILED" | "SWEEP_CANCELLED";
export type JobState = "JOB_STATE_UNSPECIFIED" | "BLOCKED" | "QUEUED" | "RUNNING" | "SUCCEEDED" | "FAILED" | "CANCELLED";
export type JobKind = "JOB_KIND_UNSPECIFIED" | "STAGE" | "EVALUATION";
export type Phase = "PHASE_UNSPECIFIED" | "PLAIN" | "TUNING" | "SELECTING" | "CONFIRMING";
export type Outcome = "OUTCOME_UNSPECIFIED" | "COMPLETED" | "DIVERGED";
export type FailureKind =
  | "FAILURE_KIND_UNSPECIFIED" | "INVALID_CONFIG" | "CODE_ERROR" | "OUT_OF_MEMORY" | "TIMEOUT" | "WORKER_LOST" | "PREEMPTED"
  | "UPSTREAM_FAILED";
export type Verdict = "VERDICT_KIND_UNSPECIFIED" | "NOT_YET" | "SUPPORTED" | "REFUTED" | "UNDECIDED";

export interface Me {
  role: string;
  token_name: string;
  needs_token: boolean;
  version: string;
  may: string[]; // "Sweeps/CancelSweep"
  read_only: boolean;
}

export interface Value { number?: Double; text?: string; flag?: boolean }
export interface Setting { axis: string; value: Value }
export interface Configuration { settings: Setting[] }
export interface DataFile { path: string; sha256: string; bytes: Int64 }
export interface DataRef { name: string; format: string; files: DataFile[]; sha256: string }
export interface ArtifactRef { sha256: string; bytes: Int64 }
export interface CheckpointRef { stage_key: string; step: Int64; weights?: ArtifactRef; optimizer?: ArtifactRef }
export interface ResultArtifact { name: string; media_type: string; artifact?: ArtifactRef }
export interface MetricValue { metric: string; value: Double }
export interface CurvePoint { metric: string; step: Int64; value: Double }

export interface JobCounts { blocked: Int64; queued: Int64; running: Int64; succeeded: Int64; failed: Int64; cancelled: Int64 }

export interface Sweep {
  sweep_id: string;
  name: string;
  state: SweepState;
  spec_sha256: string;
  plan_sha256: string;
  jobs?: JobCounts;
  arms: number;
  seeds: number;
  created_at_us: Int64;
  ended_at_us: Int64;
  steps_done: Int64;
  steps_total: Int64;
  diverged: Int64;
  tokens_per_second: Double;
  description: string;
  phase: Phase;
  sealed: boolean;
  waiting_for: string;
  needs_person: boolean;
}
export interface ListSweepsResponse { sweeps: Sweep[]; next_page_token: string }

export interface Failure {
  kind: FailureKind;
  message: string;
  exit_code: number;
  signal: number;
  peak_memory_bytes: Int64;
  stderr_tail: string;
}

export interface StageTask {
  stage_key: string;
  config?: Configuration;
  seed: Int64;
  from_step: Int64;
  to_step: Int64;
  data?: DataRef;
  start?: CheckpointRef;
  keep_optimizer: boolean;
  executor: string;
}
export interface EvaluationTask {
  evaluation_key: string;
  stage_key: string;
  config?: Configuration;
  eval_config?: Configuration;
  seed: Int64;
  length_tokens: Int64;
  split: string;
  data?: DataRef;
  state?: CheckpointRef;
  executor: string;
  files: DataFile[];
  tokenizer: DataFile[];
}
export interface Task { stage?: StageTask; evaluation?: EvaluationTask }

export interface Job {
  job_id: string;
  kind: JobKind;
  state: JobState;
  key: string;
  parent_job_id: string;
  attempt: Int64;
  failures: number;
  max_failures: number;
  retry_of: string;
  sweep_ids: string[];
  task?: Task;
  outcome: Outcome;
  last_failure?: Failure;
  worker_id: string;
  step: Int64;
  total_steps: Int64;
  created_at_us: Int64;
  started_at_us: Int64;
  ended_at_us: Int64;
  metrics: MetricValue[];
  arm_label: string;
  tokens_per_second: Double;
  sealed: boolean;
  verify_of: string;
  artifacts: ResultArtifact[];
}
export interface Attempt {
  job_id: string;
  attempt: Int64;
  worker_id: string;
  slot: number;
  state: string; // RUNNING, SUCCEEDED, FAILED, RELEASED, LOST, CANCELLED
  failure?: Failure;
  started_at_us: Int64;
  ended_at_us: Int64;
  resumed_from_step: Int64;
}
export interface ListJobsResponse { jobs: Job[]; next_page_token: string }
export interface GetJobResponse { job: Job; attempts: Attempt[] }
export interface JobEvent { at_us: Int64; text: string }
export interface GetJobLogsResponse { attempts: Attempt[]; points: CurvePoint[]; events: JobEvent[] }
export interface ExplainJobResponse { job: Job; explanation: string; next_step: string }

export interface WorkerInfo {
  worker_id: string;
  incarnation: string;
  hostname: string;
  device_class: string;
  device_kind: string;
  slots: number;
  memory_bytes: Int64;
  labels: string[];
  build: string;
  draining: boolean;
  connected: boolean;
  last_contact_at_us: Int64;
  running_job_ids: string[];
  executor: string;
}
export interface ListWorkersResponse { workers: WorkerInfo[]; next_page_token: string }

export interface Changes { revision: Int64 }
export interface RetrySweepResponse { sweep: Sweep; new_jobs: Int64 }
export interface VerifyJobsResponse { jobs: Job[] }
export interface Verification {
  job_id: string;
  verify_job_id: string;
  result: "RESULT_UNSPECIFIED" | "PENDING" | "SAME" | "DIFFERENT" | "FAILED" | "OTHER_DEVICE";
  difference: string;
  device_kind: string;
  at_us: Int64;
}
export interface ListVerificationsResponse { verifications: Verification[] }

export interface GridArm { label: string; arm_json: string; baseline: boolean; phase: Phase }
export interface GridCell {
  arm: number;
  seed: Int64;
  phase: Phase;
  state: JobState;
  sealed: boolean;
  diverged: boolean;
  jobs_done: number;
  jobs: number;
  step: Int64;
  steps: Int64;
  job_id: string;
  failure: FailureKind;
}
export interface GetGridResponse { arms: GridArm[]; seeds: Int64[]; cells: GridCell[] }

export interface ConfidenceRow {
  sweep: string;
  arm_json: string;
  metric: string;
  length: Int64;
  split: string;
  ntk: boolean;
  n: number;
  mean?: Double;
  sd?: Double;
  low?: Double;
  high?: Double;
  level: Double;
  method: string;
  note: string;
  seeds: Int64[];
  diverged_seeds: Int64[];
  missing_seeds: Int64[];
  job_ids: string[];
  diverged_job_ids: string[];
  phase: Phase;
  standing: string;
  rate_low?: Double;
  rate_high?: Double;
  tries: Int64;
}
export interface GetTableResponse { rows: ConfidenceRow[]; phases: boolean }

export interface ComparisonRow {
  sweep: string;
  arm_json: string;
  baseline_json: string;
  metric: string;
  length: Int64;
  split: string;
  ntk: boolean;
  n: number;
  difference?: Double;
  sd?: Double;
  low?: Double;
  high?: Double;
  p?: Double;
  p_adjusted?: Double;
  family_size: number;
  level: Double;
  method: string;
  note: string;
  seeds: Int64[];
  diverged_seeds: Int64[];
  missing_seeds: Int64[];
  phase: Phase;
  standing: string;
  job_ids: string[];
  diverged_job_ids: string[];
}
export interface CompareArmsResponse { rows: ComparisonRow[]; phases: boolean }

export interface LengthSpec { multiple?: Double; tokens?: Int64 }
export interface ClaimSpec {
  name: string;
  kind: "CLAIM_KIND_UNSPECIFIED" | "DIFFERS" | "EQUIVALENT" | "RISES_LESS";
  selected_arm: boolean;
  arm?: Configuration;
  against?: Configuration;
  metric: string;
  length?: LengthSpec;
  short_length?: LengthSpec;
  ntk: boolean;
  direction: number;
  margin: Double;
  margin_reason: string;
  smallest_effect: Double;
  main: boolean;
  divergence_is_worst: boolean;
}
export interface ClaimRow {
  claim?: ClaimSpec;
  arm_json: string;
  baseline_json: string;
  verdict: Verdict;
  standing: string;
  sentence: string;
  n: number;
  look: number;
  estimate?: Double;
  low?: Double;
  high?: Double;
  family_low?: Double;
  family_high?: Double;
  p?: Double;
  p_adjusted?: Double;
  alpha: Double;
  method: string;
  smallest_detectable?: Double;
  seeds_to_decide?: number;
  notes: string[];
  seeds: Int64[];
  job_ids: string[];
}
export interface Lock {
  arm_json: string;
  rule_arm_json: string;
  by_hand: boolean;
  why: string;
  at_us: Int64;
  evidence_json: string;
  short_rule_arm_json: string;
  short_rule_regret?: Double;
}
export interface TunedTry { learning_rate: Double; mean?: Double; diverged: number; job_ids: string[]; extension: boolean }
export interface TunedArm { arm_json: string; learning_rate: Double; tries: TunedTry[]; note: string }
export interface Deviation { at_us: Int64; kind: string; text: string }
export interface ValidityGate {
  passed: boolean;
  context_fall: Double;
  rise: Double;
  rise_low?: Double;
  rise_high?: Double;
  seeds: Int64[];
  job_ids: string[];
  text: string;
}
export interface GetClaimsResponse {
  phase: Phase;
  plan_sha256: string;
  claims: ClaimRow[];
  lock?: Lock;
  tuning: TunedArm[];
  deviations: Deviation[];
  waiting_for: string;
  gate?: ValidityGate;
}

export interface EffectRow {
  factors: string[];
  levels: string[];
  metric: string;
  length: Int64;
  split: string;
  ntk: boolean;
  n: number;
  effect?: Double;
  sd?: Double;
  low?: Double;
  high?: Double;
  p?: Double;
  p_adjusted?: Double;
  family_size: number;
  level: Double;
  note: string;
  seeds: Int64[];
  job_ids: string[];
  phase: Phase;
  standing: string;
}
export interface GetEffectsResponse { rows: EffectRow[]; phases: boolean }

export interface SpreadRow {
  arm_json: string;
  length: Int64;
  split: string;
  ntk: boolean;
  seeds: number;
  documents: number;
  mean?: Double;
  sd_seeds?: Double;
  sd_documents?: Double;
  low?: Double;
  high?: Double;
  level: Double;
  note: string;
  phase: Phase;
  standing: string;
  job_ids: string[];
}
export interface GetSpreadResponse { rows: SpreadRow[]; phases: boolean }

export interface Curve {
  arm: number;
  seed: Int64;
  phase: Phase;
  metric: string;
  steps: Int64[];
  values: Double[];
  stored_points: Int64;
  diverged_at_step: Int64;
  job_ids: string[];
}
export interface MeanCurve {
  arm: number;
  phase: Phase;
  metric: string;
  steps: Int64[];
  means: Double[];
  lows: Double[];
  highs: Double[];
  n: number[];
  seeds: Int64[];
}
export interface GetCurvesResponse {
  arms_json: string[];
  arm_labels: string[];
  curves: Curve[];
  means: MeanCurve[];
  level: Double;
  method: string;
  note: string;
}
