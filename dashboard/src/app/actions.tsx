// Buttons that change something: shown only to who may, asking first and saying what will happen, then showing what came of it.
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { ApiError, apiUrl, post } from "../api/client";
import { int64, type GetGridResponse, type Job, type RetrySweepResponse, type Sweep, type VerifyJobsResponse, type WorkerInfo } from "../api/types";
import { armLabel } from "../tables/format";
import { plural, progressOf } from "./format";
import { feed, useLive } from "./live";
import { may, useMe } from "./me";
import { isOver, isPaused } from "./sweeps";
import { Dialog, ErrorNotice, report } from "./widgets";

interface ActionProps {
  method: string;              // "Sweeps/CancelSweep": who may not call it does not see the button
  label: string;               // of the button
  title: string;               // of the question
  confirm: string;             // the word on the button that does it
  danger?: boolean;
  children: ComponentChildren; // what it does, in words
  ready?: boolean;             // false: something must be filled in first
  act: () => Promise<ComponentChildren>; // what came of it
}

export function Action({ method, label, title, confirm, danger, children, ready = true, act }: ActionProps) {
  const me = useMe();
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const asked = useRef(0);
  if (!may(me, method)) return null;
  const close = (): void => {
    setOpen(false);
    ++asked.current;
  };
  const run = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    const mine = ++asked.current;
    try {
      const done = await act();
      report(label, done);
      if (asked.current === mine) setOpen(false);
      feed.changed();
    } catch (caught) {
      const known = caught instanceof ApiError ? caught : new ApiError("PAGE", String(caught));
      if (asked.current === mine) setError(known);
    }
    setBusy(false);
  };
  return (
    <>
      <button type="button" class={danger ? "danger" : undefined} onClick={() => {
        setError(undefined);
        setOpen(true);
      }}>{label}</button>
      {open && (
        <Dialog title={title} onClose={close}>
          {children}
          {error && <ErrorNotice error={error} what="It was not done" />}
          <div class="row">
            <button type="button" onClick={close}>Leave it as it is</button>
            <button type="button" class={danger ? "danger" : "primary"} disabled={busy || !ready} onClick={() => void run()}>
              {busy ? "Asking the server …" : confirm}
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

// All that can be done to a sweep in its state.
export function SweepActions({ sweep }: { sweep: Sweep }) {
  const path = `/sweeps/${encodeURIComponent(sweep.name)}`;
  const paused = isPaused(sweep);
  const progress = progressOf(sweep), left = progress.all - progress.over;
  const over = isOver(sweep);
  return (
    <div class="row page-actions">
      {paused && (
        <Action method="Sweeps/ResumeSweep" label="Resume" title={`Resume ${sweep.name}`} confirm="Resume"
          act={async () => {
            await post<Sweep>(`${path}/resume`);
            return "The sweep goes on.";
          }}>
          <p>The sweep was paused because too many jobs failed alike. Its waiting jobs go out to workers again, and failures are counted
            from 0. Jobs that have failed for good stay failed: Retry makes new ones.</p>
          <p class="muted">{sweep.waiting_for}</p>
        </Action>
      )}
      <RetrySweep sweep={sweep} />
      {sweep.sealed && !over && <LockAction sweep={sweep} />}
      {!over && (
        <Action method="Sweeps/CancelSweep" label="Cancel sweep" title={`Cancel ${sweep.name}?`} confirm="Cancel the sweep" danger
          act={async () => {
            await post<Sweep>(`${path}/cancel`);
            return "The sweep is cancelled. “Take up again” makes jobs for what is missing.";
          }}>
          <ul>
            <li>The sweep is detached from its jobs: {plural(left, "job")} of it {left === 1 ? "waits or runs" : "wait or run"}.</li>
            <li>A job stops only when no other live sweep needs it; what runs for this sweep alone is stopped now.</li>
            <li>Results that are there stay. A cancelled sweep keeps no seal.</li>
            <li>It can be taken up again later: finished jobs are not run twice.</li>
          </ul>
        </Action>
      )}
    </div>
  );
}

// Nothing where there is nothing to retry.
export function RetrySweep({ sweep, label }: { sweep: Sweep; label?: string }) {
  const failed = int64(sweep.jobs?.failed), cancelled = int64(sweep.jobs?.cancelled);
  if (failed + cancelled === 0 && sweep.state !== "SWEEP_CANCELLED") return null;
  const name = sweep.state === "SWEEP_CANCELLED" ? "Take up again" : failed > 0 ? "Retry failed jobs" : "Retry cancelled jobs";
  const which = [failed > 0 ? plural(failed, "failed job") : "", cancelled > 0 ? plural(cancelled, "cancelled job") : ""].filter(Boolean).join(" and ");
  return (
    <Action method="Sweeps/RetrySweep" label={label ?? name} title={`Retry ${sweep.name}`} confirm="Retry"
      act={async () => {
        const answer = await post<RetrySweepResponse>(`/sweeps/${encodeURIComponent(sweep.name)}/retry`);
        return int64(answer.new_jobs) === 0 ? "Nothing was to be retried: no new job was made." : `${plural(int64(answer.new_jobs), "new job")} made.`;
      }}>
      <p>New jobs are made for {which ? `the ${which} of ${sweep.name}` : "what is missing"} and for those that could not run because of
        them. The old ones stay, with what is known of their failures; nothing that succeeded is run again.
        {isPaused(sweep) && " The paused sweep goes on."}</p>
    </Action>
  );
}

function LockAction({ sweep }: { sweep: Sweep }) {
  const [arm, setArm] = useState("");
  const [why, setWhy] = useState("");
  return (
    <Action method="Sweeps/LockSweep" label="Lock by hand" title={`Lock the selection of ${sweep.name} by hand?`} confirm="Lock this arm" danger
      ready={arm !== "" && why.trim() !== ""}
      act={async () => {
        await post<Sweep>(`/sweeps/${encodeURIComponent(sweep.name)}/lock`, { arm_json: arm, why: why.trim() });
        return `Locked: ${armLabel(arm)}. The confirming work is let go.`;
      }}>
      <p>The rule of the sweep file picks the arm by itself once its runs are done. A lock by hand comes before that, cannot be taken back,
        and is recorded as a deviation: it stands, with your reason, beside every claim about the selected arm.</p>
      <ArmField sweep={sweep.name} value={arm} onChange={setArm} />
      <label class="stack">
        <span>Reason (required; readers of the report will see it)</span>
        <textarea value={why} required onInput={(event) => setWhy(event.currentTarget.value)} />
      </label>
    </Action>
  );
}

// The candidates are among the sweep's arms; the server refuses the others and says why.
function ArmField({ sweep, value, onChange }: { sweep: string; value: string; onChange: (arm: string) => void }) {
  const grid = useLive<GetGridResponse>(apiUrl(`/sweeps/${encodeURIComponent(sweep)}/grid`), { follow: false });
  return (
    <>
      <label class="stack">
        <span>Arm</span>
        <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
          <option value="">{grid.loading ? "Loading …" : "Choose an arm"}</option>
          {grid.data?.arms.map((arm) => (
            <option key={arm.arm_json} value={arm.arm_json}>{arm.label || armLabel(arm.arm_json)}{arm.baseline ? " (baseline)" : ""}</option>
          ))}
        </select>
      </label>
      {grid.error && <ErrorNotice error={grid.error} what="The arms could not be listed" />}
    </>
  );
}

export function JobActions({ job }: { job: Job }) {
  const path = `/jobs/${encodeURIComponent(job.job_id)}`;
  const over = job.state === "SUCCEEDED" || job.state === "FAILED" || job.state === "CANCELLED";
  return (
    <div class="row page-actions">
      {job.state === "SUCCEEDED" && (
        <Action method="Jobs/VerifyJobs" label="Verify" title="Run this job a second time?" confirm="Run it again"
          act={async () => {
            const answer = await post<VerifyJobsResponse>(`${path}/verify`);
            const made = answer.jobs[0];
            return made ? <>Job <a href={`/jobs/${encodeURIComponent(made.job_id)}`}>{made.job_id}</a> computes it again.</> : "Nothing had to be made.";
          }}>
          <p>A new job computes the same result again, and both are compared bit for bit. What is stored stays as it is, whatever comes out.</p>
        </Action>
      )}
      {!over && (
        <Action method="Jobs/CancelJob" label="Cancel job" title="Cancel this job?" confirm="Cancel the job" danger
          act={async () => {
            const answer = await post<Job>(`${path}/cancel`);
            return answer.state === "CANCELLED" ? "The job is cancelled." : "The worker is told to stop it.";
          }}>
          <p>{job.state === "RUNNING" ? "The worker is told to stop it; what it has trained since its last checkpoint is lost. " : ""}
            It is cancelled for every sweep that needs it ({plural(job.sweep_ids.length, "sweep")}), and so is what waits for its result. Retrying a
            sweep makes a new job in its place.</p>
        </Action>
      )}
    </div>
  );
}

export function DrainAction({ worker }: { worker: WorkerInfo }) {
  if (worker.draining || !worker.connected) return null;
  const running = worker.running_job_ids.length;
  return (
    <Action method="Workers/DrainWorker" label="Drain" title={`Drain ${worker.worker_id}?`} confirm="Drain the worker"
      act={async () => {
        await post<WorkerInfo>(`/workers/${encodeURIComponent(worker.worker_id)}/drain`);
        return "The worker takes nothing new and ends when it is done.";
      }}>
      <p>It finishes what runs on it ({plural(running, "job")}), takes nothing new, and its daemon then ends. Start ablate-worker there again to
        have it back.</p>
    </Action>
  );
}
