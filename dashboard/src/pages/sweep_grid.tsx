// The tabs of a sweep's grid and of its jobs.
import { useCallback, useMemo } from "preact/hooks";
import { useEffect, useState } from "preact/hooks";
import { ApiError, apiUrl, get } from "../api/client";
import type { GetJobResponse, Job, JobState, ListJobsResponse, Sweep } from "../api/types";
import { formatSeconds } from "../app/format";
import { useLive } from "../app/live";
import { jobPath } from "../app/router";
import { ErrorNotice, Loading, Scroll, State, Time } from "../app/widgets";
import { download, fileName } from "../charts/card";
import { svgText } from "../charts/figure";
import { type CellKind, KINDS, drawGrid, gridCaption, gridRecords, kindOf, prepareGrid } from "../charts/grid";
import { GridLegend, GridView } from "../charts/grid_view";
import { PRINT } from "../charts/style";
import { counted } from "../tables/format";
import { toCsv } from "../tables/sheet";
import { type TabProps, apiPath } from "./sweep_view";

export function GridTab({ sweep, grid, view, setView }: TabProps) {
  const data = useMemo(() => prepareGrid(grid), [grid]);
  const kind = view.state in KINDS ? (view.state as CellKind) : undefined;
  const shown = useMemo(() => (kind ? { ...data, rows: data.rows.filter((row) => row.cells.some((cell) => cell && kindOf(cell) === kind)) } : data), [data, kind]);
  const title = `${sweep.name}: arms by seeds`;
  const save = useCallback(() => {
    const figure = drawGrid(shown, title, { width: 400, theme: PRINT, standalone: true });
    download(fileName([sweep.name, "grid"], "svg"), "image/svg+xml", svgText(figure.svg));
  }, [shown, title, sweep.name]);
  if (data.columns.length === 0) return <div class="panel empty" data-empty><p><strong>The sweep has no seeds.</strong></p></div>;
  return (
    <section class="panel" data-chart="grid">
      <div class="chart-card">
        <div class="chart-head">
          <h2>{title}</h2>
          <div class="tools">
            <button type="button" onClick={save}>Download SVG</button>
            <button type="button" onClick={() => download(fileName([sweep.name, "grid"], "csv"), "text/csv", toCsv(gridRecords(shown)))}>Download CSV</button>
          </div>
        </div>
      </div>
      <div class="filters">
        <label class="field">Arms
          <select value={kind ?? ""} onChange={(event) => setView({ state: event.currentTarget.value })}>
            <option value="">all {data.rows.length}</option>
            {(Object.keys(KINDS) as CellKind[]).filter((one) => data.counts[one]).map((one) => (
              <option key={one} value={one}>with a cell that {one === "succeeded" || one === "failed" || one === "diverged" ? KINDS[one].word : `is ${KINDS[one].word}`} ({data.counts[one]})</option>
            ))}
          </select>
        </label>
      </div>
      <GridLegend data={data} />
      <GridView key={kind ?? ""} data={shown} label={title} />
      <p class="muted" style="margin-top: 6px">{gridCaption(data)[0]}. {counted(data.rows.length, "arm")}, {counted(data.columns.length, "column")}. Arrow keys move, Enter opens the job.</p>
    </section>
  );
}

const STATES: JobState[] = ["BLOCKED", "QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"];

export function JobsTab({ sweep, view, setView }: TabProps) {
  return view.job.length > 0 ? <NamedJobs sweep={sweep} ids={view.job} onAll={() => setView({ job: [] })} /> : <AllJobs sweep={sweep} view={view} setView={setView} />;
}

function AllJobs({ sweep, view, setView }: Pick<TabProps, "sweep" | "view" | "setView">) {
  const state = STATES.find((one) => one.toLowerCase() === view.state);
  const { data, error } = useLive<ListJobsResponse>(apiUrl(apiPath(sweep.name, "jobs"), { page_size: 100, page_token: view.page, states: state ? [state] : [] }));
  return (
    <section class="panel">
      <div class="filters">
        <label class="field">State
          <select value={state ?? ""} onChange={(event) => setView({ state: event.currentTarget.value.toLowerCase(), page: "" })}>
            <option value="">all</option>
            {STATES.map((one) => <option key={one} value={one}>{one.toLowerCase()}</option>)}
          </select>
        </label>
      </div>
      {error && !data ? <ErrorNotice error={error} /> : !data ? <Loading what="Asking for the jobs" />
        : data.jobs.length === 0 ? <div class="empty" data-empty>No job of this sweep is {state ? state.toLowerCase() : "there"}.</div>
        : <JobTable jobs={data.jobs} />}
      {data && (
        <div class="row" style="margin-top: 8px">
          {view.page && <button type="button" onClick={() => setView({ page: "" })}>First page</button>}
          {data.next_page_token && <button type="button" onClick={() => setView({ page: data.next_page_token })}>Next page</button>}
        </div>
      )}
    </section>
  );
}

// The jobs that a number is made of.
function NamedJobs({ ids, onAll }: { sweep: Sweep; ids: string[]; onAll: () => void }) {
  const [jobs, setJobs] = useState<Job[]>();
  const [error, setError] = useState<ApiError>();
  const key = ids.join(" ");
  useEffect(() => {
    const abort = new AbortController();
    const wanted = key.split(" ");
    setJobs(undefined);
    setError(undefined);
    const load = async (): Promise<void> => {
      const found: Job[] = [];
      // A few at a time: a browser has six connections for a server.
      for (let i = 0; i < wanted.length; i += 4) {
        const part = await Promise.all(wanted.slice(i, i + 4).map((id) => get<GetJobResponse>(apiUrl(`/jobs/${encodeURIComponent(id)}`), { signal: abort.signal })));
        part.forEach((one) => one && found.push(one.value.job));
      }
      setJobs(found);
    };
    load().catch((caught: unknown) => {
      if (!abort.signal.aborted) setError(caught instanceof ApiError ? caught : new ApiError("PAGE", String(caught)));
    });
    return () => abort.abort();
  }, [key]);
  return (
    <section class="panel">
      <div class="row" style="justify-content: space-between; margin-bottom: 8px">
        <h2 style="margin: 0">{counted(ids.length, "job")} behind a number</h2>
        <button type="button" onClick={onAll}>All jobs of the sweep</button>
      </div>
      {error ? <ErrorNotice error={error} /> : !jobs ? <Loading what="Asking for the jobs" /> : <JobTable jobs={jobs} />}
    </section>
  );
}

function whatOf(job: Job): string {
  const stage = job.task?.stage, evaluation = job.task?.evaluation;
  if (stage) return `train, steps ${stage.from_step} to ${stage.to_step}`;
  return evaluation ? `${evaluation.split}, length ${evaluation.length_tokens}${settingText(job)}` : job.kind.toLowerCase();
}
function settingText(job: Job): string {
  const ntk = job.task?.evaluation?.eval_config?.settings.find((setting) => setting.axis === "eval.ntk");
  return ntk?.value.text && ntk.value.text !== "off" ? ", NTK on" : "";
}

export function JobTable({ jobs }: { jobs: readonly Job[] }) {
  return (
    <Scroll label="Jobs">
      <table>
        <thead>
          <tr><th scope="col">Job</th><th scope="col">State</th><th scope="col">Arm</th><th scope="col" class="number">Seed</th><th scope="col">What</th>
            <th scope="col" class="number">Attempt</th><th scope="col" class="number">Took</th><th scope="col">Worker</th><th scope="col">Ended</th></tr>
        </thead>
        <tbody>
          {jobs.map((job) => {
            const seconds = (Number(job.ended_at_us) - Number(job.started_at_us)) / 1e6;
            return (
              <tr key={job.job_id} data-job={job.job_id}>
                <td class="nowrap"><a href={jobPath(job.job_id)}><code>{job.job_id}</code></a></td>
                <td><State name={job.outcome === "DIVERGED" ? "DIVERGED" : job.sealed && job.state === "BLOCKED" ? "SEALED" : job.state} />
                  {job.state === "RUNNING" && Number(job.total_steps) > 0 && <div class="muted nowrap">step {job.step} of {job.total_steps}</div>}
                  {job.last_failure && job.state === "FAILED" && <div class="muted">{job.last_failure.message.slice(0, 120)}</div>}</td>
                <td>{job.arm_label}</td>
                <td class="number">{job.task?.stage?.seed ?? job.task?.evaluation?.seed ?? ""}</td>
                <td class="nowrap">{whatOf(job)}</td>
                <td class="number">{job.attempt}</td>
                <td class="number">{Number(job.ended_at_us) > 0 && Number(job.started_at_us) > 0 ? formatSeconds(seconds) : "–"}</td>
                <td class="nowrap">{job.worker_id || "–"}</td>
                <td><Time us={job.ended_at_us} /></td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}
