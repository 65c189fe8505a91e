// One job: what it is to compute, how far it is and why, what each attempt came to, and what it measured.
import type { ComponentChildren } from "preact";
import { apiUrl } from "../api/client";
import {
  int64, type Attempt, type Configuration, type ExplainJobResponse, type Failure, type GetJobLogsResponse, type GetJobResponse, type Job,
  type ListVerificationsResponse, type Sweep,
} from "../api/types";
import { JobActions, RetrySweep } from "../app/actions";
import { formatBytes, formatCount, formatNumber, formatRate, formatSeconds, plural, settingsOf, words } from "../app/format";
import { useLive, useNow } from "../app/live";
import { jobPath, sweepPath } from "../app/router";
import type { PageProps } from "../app/shell";
import { ErrorNotice, Loading, Scroll, State, Time } from "../app/widgets";
import { JobCurve } from "./job_curve";

export function JobPage({ parameters }: PageProps) {
  const path = `/jobs/${encodeURIComponent(parameters.job!)}`;
  const shown = useLive<GetJobResponse>(apiUrl(path));
  const logs = useLive<GetJobLogsResponse>(apiUrl(`${path}/logs`));
  const explained = useLive<ExplainJobResponse>(apiUrl(`${path}/explanation`));
  if (!shown.data) return shown.error ? <ErrorNotice error={shown.error} /> : <Loading />;
  const { job, attempts } = shown.data;
  const failure = job.state === "SUCCEEDED" ? undefined : job.last_failure;
  return (
    <>
      <div class="page-head">
        <div>
          <div class="crumbs"><a href="/">Sweeps</a>{job.sweep_ids.map((sweep) => <span key={sweep}> / <SweepLink id={sweep} /></span>)} / job</div>
          <h1>{titleOf(job)}</h1>
          <div class="row" style="margin-top: 4px">
            <State name={job.state} />
            {job.outcome === "DIVERGED" && <State name="DIVERGED" />}
            {job.sealed && <State name="SEALED" />}
            <span class="muted mono">{job.job_id}</span>
          </div>
        </div>
        <div class="row page-actions">
          {job.state === "FAILED" && job.sweep_ids[0] && <RetryAction sweep={job.sweep_ids[0]} />}
          <JobActions job={job} />
        </div>
      </div>
      {shown.error && <ErrorNotice error={shown.error} what="What is shown may be old" />}
      {explained.data && (job.state !== "SUCCEEDED" || explained.data.next_step) && (
        <div class={job.state === "FAILED" ? "notice bad" : "notice"}>
          <p><strong>{WHY[job.state] ?? "How it stands"}:</strong> {explained.data.explanation}</p>
          {explained.data.next_step && <p><strong>What can be done:</strong> {explained.data.next_step}</p>}
        </div>
      )}
      {failure && <FailurePanel failure={failure} title="Last failure"
        count={`${job.failures} of at most ${plural(job.max_failures, "failure")}`} />}
      <div class="columns">
        <Facts job={job} attempts={attempts} />
        <ConfigurationPanel job={job} />
      </div>
      {job.kind === "STAGE" && (
        <section class="panel" aria-labelledby="curve-title">
          <h2 id="curve-title">Training curve</h2>
          {logs.error && !logs.data ? <ErrorNotice error={logs.error} /> : logs.data ? <JobCurve job={job} points={logs.data.points} /> : <Loading />}
        </section>
      )}
      {(job.metrics.length > 0 || job.artifacts.length > 0) && (
        <div class="columns">
          {job.metrics.length > 0 && <MetricsPanel job={job} />}
          {job.artifacts.length > 0 && <ArtifactsPanel job={job} />}
        </div>
      )}
      <AttemptsPanel attempts={logs.data?.attempts ?? attempts} stage={job.kind === "STAGE"} />
      <section class="panel" aria-labelledby="events-title">
        <h2 id="events-title">Events</h2>
        {logs.error && !logs.data ? <ErrorNotice error={logs.error} /> : !logs.data ? <Loading /> : logs.data.events.length === 0 ? <p class="muted">None.</p> : (
          <Scroll label="Table of events">
            <table class="fit">
              <thead><tr><th scope="col">When</th><th scope="col">What</th></tr></thead>
              <tbody>{logs.data.events.map((event, i) => <tr key={i}><td><Time us={event.at_us} /></td><td>{event.text}</td></tr>)}</tbody>
            </table>
          </Scroll>
        )}
      </section>
    </>
  );
}

const WHY: Partial<Record<Job["state"], string>> = {
  BLOCKED: "Why it is blocked", QUEUED: "Why it is queued", FAILED: "Why it failed", CANCELLED: "Why it was cancelled",
};

function titleOf(job: Job): string {
  const { stage, evaluation } = job.task ?? {};
  if (stage) return `Training, steps ${formatCount(stage.from_step)} to ${formatCount(stage.to_step)}, seed ${stage.seed}`;
  if (evaluation) {
    return `Evaluation on ${evaluation.split || "its task"}${int64(evaluation.length_tokens) > 0 ? `, ${formatCount(evaluation.length_tokens)} tokens` : ""}, seed ${evaluation.seed}`;
  }
  return `Job ${job.job_id}`;
}

// A sweep by the name that people know; its id until the server has said it.
function SweepLink({ id }: { id: string }) {
  const sweep = useLive<Sweep>(apiUrl(`/sweeps/${encodeURIComponent(id)}`), { follow: false });
  const name = sweep.data?.name ?? id;
  return <a href={sweepPath(name)}>{name}</a>;
}

// A failed job is retried with its sweep's others: new jobs take their places.
function RetryAction({ sweep }: { sweep: string }) {
  const { data } = useLive<Sweep>(apiUrl(`/sweeps/${encodeURIComponent(sweep)}`));
  return data ? <RetrySweep sweep={data} label={`Retry failed jobs of ${data.name}`} /> : null;
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return <><dt>{name}</dt><dd>{children}</dd></>;
}

function JobLink({ id }: { id: string }) {
  return <a class="mono" href={jobPath(id)}>{id}</a>;
}

function Facts({ job, attempts }: { job: Job; attempts: Attempt[] }) {
  const now = useNow(5);
  const started = int64(job.started_at_us) / 1e6, ended = int64(job.ended_at_us) / 1e6;
  const resumed = attempts.length > 0 ? int64(attempts[attempts.length - 1]!.resumed_from_step) : 0;
  const rate = Number(job.tokens_per_second);
  const task = job.task?.stage ?? job.task?.evaluation;
  return (
    <section class="panel" aria-labelledby="facts-title">
      <h2 id="facts-title">Job</h2>
      <dl class="facts">
        <Fact name="Kind">{job.kind === "STAGE" ? "training stage" : "evaluation"}</Fact>
        {job.arm_label && <Fact name="Arm">{job.arm_label}</Fact>}
        <Fact name={job.sweep_ids.length === 1 ? "Sweep" : "Sweeps"}>
          {job.sweep_ids.map((sweep, i) => <span key={sweep}>{i > 0 && ", "}<SweepLink id={sweep} /></span>)}
        </Fact>
        {task?.data && <Fact name="Data">{task.data.name}</Fact>}
        {job.kind === "STAGE" && <Fact name="Step">
          {formatCount(job.step)} of {formatCount(job.total_steps)}{resumed > 0 && `, resumed from step ${formatCount(resumed)}`}
        </Fact>}
        {rate > 0 && <Fact name="Speed">{formatRate(rate)} tokens/s</Fact>}
        <Fact name="Attempts">{formatCount(job.attempt)}; {job.failures} of at most {plural(job.max_failures, "failure")} counted</Fact>
        {job.worker_id && <Fact name="Worker"><a href={`/workers#${encodeURIComponent(job.worker_id)}`}>{job.worker_id}</a></Fact>}
        {job.parent_job_id && <Fact name="Needs"><JobLink id={job.parent_job_id} />: its end state</Fact>}
        {job.retry_of && <Fact name="In place of"><JobLink id={job.retry_of} /></Fact>}
        {job.verify_of && <Fact name="Verifies"><JobLink id={job.verify_of} /></Fact>}
        <Fact name="Made"><Time us={job.created_at_us} /></Fact>
        <Fact name="Started"><Time us={job.started_at_us} /></Fact>
        <Fact name="Ended"><Time us={job.ended_at_us} /></Fact>
        {started > 0 && (ended > 0 || job.state === "RUNNING") && <Fact name={ended > 0 ? "Took" : "Runs for"}>{formatSeconds((ended > 0 ? ended : now) - started)} (latest attempt)</Fact>}
        <Fact name="Content key"><span class="mono">{job.key}</span></Fact>
      </dl>
      {job.sweep_ids.length > 0 && job.state === "SUCCEEDED" && <Verifications job={job} />}
    </section>
  );
}

function Verifications({ job }: { job: Job }) {
  const { data } = useLive<ListVerificationsResponse>(apiUrl(`/sweeps/${encodeURIComponent(job.sweep_ids[0]!)}/verifications`));
  const own = data?.verifications.filter((one) => one.job_id === job.job_id) ?? [];
  if (own.length === 0) return null;
  return (
    <>
      <h3 style="margin-top: 12px">Second runs</h3>
      <ul>{own.map((one) => (
        <li key={one.verify_job_id}><JobLink id={one.verify_job_id} />: {words(one.result)}{one.difference && `, ${one.difference}`}
          {one.device_kind && ` (${one.device_kind})`}</li>
      ))}</ul>
    </>
  );
}

// What its arm sets comes first: those are the axes by which the sweep's arms differ.
export function orderSettings(configuration: Configuration | undefined, armLabel: string): { axis: string; value: string; arm: boolean }[] {
  // A label has the last parts of names where those tell axes apart: "p=3" for attention.p.
  const ofArm = armLabel.split(/\s+/).filter((part) => part.includes("=")).map((part) => part.split("=")[0]!);
  const settings = settingsOf(configuration).map((setting) => ({
    ...setting, arm: ofArm.some((name) => setting.axis === name || setting.axis.endsWith(`.${name}`)),
  }));
  return [...settings.filter((setting) => setting.arm), ...settings.filter((setting) => !setting.arm)];
}

function ConfigurationPanel({ job }: { job: Job }) {
  const { stage, evaluation } = job.task ?? {};
  const training = orderSettings(stage?.config ?? evaluation?.config, job.arm_label);
  const measuring = orderSettings(evaluation?.eval_config, job.arm_label);
  const rows = (settings: typeof training) => settings.map(({ axis, value, arm }) => (
    <tr key={axis}><td class="mono">{axis}</td><td class="mono value">{arm ? <strong>{value}</strong> : value}</td><td class="muted">{arm ? "of the arm" : ""}</td></tr>
  ));
  return (
    <section class="panel" aria-labelledby="configuration-title">
      <h2 id="configuration-title">Configuration</h2>
      <Scroll label="Table of configuration">
        <table class="fit">
          <thead><tr><th scope="col">Axis</th><th scope="col">Value</th><th scope="col"><span class="visually-hidden">Whence</span></th></tr></thead>
          <tbody>
            {rows(measuring)}
            {rows(training)}
            {training.length + measuring.length === 0 && <tr><td colSpan={3} class="muted">Every axis is at its default.</td></tr>}
          </tbody>
        </table>
      </Scroll>
      <p class="muted" style="margin-top: 8px">Axes that are not listed are at their defaults. {evaluation && "eval.* axes act at the evaluation, the others at the training before it."}</p>
    </section>
  );
}

function FailurePanel({ failure, title, count }: { failure: Failure; title: string; count: string }) {
  return (
    <section class="panel" aria-labelledby="failure-title">
      <h2 id="failure-title">{title}</h2>
      <FailureFacts failure={failure} open />
      <p class="muted" style="margin-top: 6px">{count}</p>
    </section>
  );
}

const SIGNALS: Record<number, string> = { 1: "SIGHUP", 2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM", 24: "SIGXCPU", 31: "SIGSYS" };

function FailureFacts({ failure, open = false }: { failure: Failure; open?: boolean }) {
  return (
    <>
      <dl class="facts">
        <Fact name="Kind"><strong>{words(failure.kind)}</strong></Fact>
        <Fact name="Message">{failure.message || "none"}</Fact>
        {failure.signal !== 0 && <Fact name="Signal">{failure.signal}{SIGNALS[failure.signal] && ` (${SIGNALS[failure.signal]})`}</Fact>}
        {failure.exit_code !== 0 && <Fact name="Exit code">{failure.exit_code}</Fact>}
        {int64(failure.peak_memory_bytes) > 0 && <Fact name="Peak memory">{formatBytes(failure.peak_memory_bytes)}</Fact>}
      </dl>
      {failure.stderr_tail && (
        <details open={open}>
          <summary>Last lines of stderr</summary>
          <pre tabIndex={0} aria-label="Last lines of stderr">{failure.stderr_tail}</pre>
        </details>
      )}
    </>
  );
}

function AttemptsPanel({ attempts, stage }: { attempts: Attempt[]; stage: boolean }) {
  const now = useNow(5);
  return (
    <section class="panel" aria-labelledby="attempts-title">
      <h2 id="attempts-title">Attempts</h2>
      {attempts.length === 0 ? <p class="muted">None yet: no worker has taken it.</p> : (
        <Scroll label="Table of attempts">
          <table class="fit">
            <thead>
              <tr>
                <th scope="col" class="number">No.</th><th scope="col">State</th><th scope="col">Worker</th><th scope="col" class="number">Slot</th>
                <th scope="col">Started</th><th scope="col" class="number">Took</th>{stage && <th scope="col" class="number">From step</th>}<th scope="col">Failure</th>
              </tr>
            </thead>
            <tbody>
              {attempts.map((attempt) => {
                const end = int64(attempt.ended_at_us) / 1e6;
                return (
                  <tr key={attempt.attempt}>
                    <td class="number">{formatCount(attempt.attempt)}</td>
                    <td><State name={attempt.state} /></td>
                    <td><a href={`/workers#${encodeURIComponent(attempt.worker_id)}`}>{attempt.worker_id}</a></td>
                    <td class="number">{attempt.slot}</td>
                    <td><Time us={attempt.started_at_us} /></td>
                    <td class="number">{formatSeconds((end > 0 ? end : now) - int64(attempt.started_at_us) / 1e6)}</td>
                    {stage && <td class="number">{formatCount(attempt.resumed_from_step)}</td>}
                    <td class="wide">{attempt.failure ? <FailureFacts failure={attempt.failure} /> : ""}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

function MetricsPanel({ job }: { job: Job }) {
  return (
    <section class="panel" aria-labelledby="metrics-title">
      <h2 id="metrics-title">Result</h2>
      <Scroll label="Metrics">
        <table class="fit">
          <thead><tr><th scope="col">Metric</th><th scope="col" class="number">Value</th></tr></thead>
          <tbody>{job.metrics.map(({ metric, value }) => (
            <tr key={metric}><td class="mono">{metric}</td><td class="number" title={String(value)}>{formatNumber(value)}</td></tr>
          ))}</tbody>
        </table>
      </Scroll>
    </section>
  );
}

function ArtifactsPanel({ job }: { job: Job }) {
  return (
    <section class="panel" aria-labelledby="artifacts-title">
      <h2 id="artifacts-title">Files</h2>
      <Scroll label="Files">
        <table class="fit">
          <thead><tr><th scope="col">Name</th><th scope="col">Type</th><th scope="col" class="number">Size</th><th scope="col">SHA-256</th></tr></thead>
          <tbody>{job.artifacts.map(({ name, media_type, artifact }) => (
            <tr key={name}><td class="mono">{name}</td><td>{media_type}</td><td class="number">{formatBytes(artifact?.bytes ?? 0)}</td><td class="mono">{artifact?.sha256.slice(0, 16)}…</td></tr>
          ))}</tbody>
        </table>
      </Scroll>
      <p class="muted" style="margin-top: 8px">To have them: <code>ablate job artifacts {job.job_id} --fetch DIR</code></p>
    </section>
  );
}
