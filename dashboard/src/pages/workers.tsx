// Workers: what each can do, what runs in its slots, when it was heard of last.
import { useEffect } from "preact/hooks";
import { apiUrl } from "../api/client";
import { int64, type GetJobResponse, type ListWorkersResponse, type WorkerInfo } from "../api/types";
import { DrainAction } from "../app/actions";
import { formatBytes, formatCount, formatSeconds, plural } from "../app/format";
import { useLive, useNow } from "../app/live";
import { jobPath, useLocation } from "../app/router";
import type { PageProps } from "../app/shell";
import { flag, text, useUrlState } from "../app/url_state";
import { ErrorNotice, Loading, Scroll, State, Time } from "../app/widgets";

const VIEW = { page: text(""), gone: flag(true) };
const PAGE_SIZE = 200;
// Beyond so many running jobs their ids alone are shown: each one's details are a question of their own.
const MOST_DETAILS = 32;

export function WorkersPage(_props: PageProps) {
  const [view, setView] = useUrlState(VIEW);
  const { data, error } = useLive<ListWorkersResponse>(apiUrl("/workers", { page_size: PAGE_SIZE, page_token: view.page }));
  const now = useNow(2);
  const location = useLocation();
  useEffect(() => {
    const id = decodeURIComponent(window.location.hash.slice(1));
    if (data && id) document.getElementById(`worker-${id}`)?.scrollIntoView({ block: "center" });
  }, [data !== undefined, location]);
  if (!data) return error ? <ErrorNotice error={error} /> : <Loading />;

  const here = data.workers.filter((worker) => worker.connected);
  const shown = (view.gone ? [...data.workers] : here).sort((a, b) => Number(b.connected) - Number(a.connected));
  const running = here.reduce((sum, worker) => sum + worker.running_job_ids.length, 0);
  const slots = here.reduce((sum, worker) => sum + worker.slots, 0);
  const paged = data.next_page_token !== "" || view.page !== "";
  return (
    <>
      <div class="page-head">
        <div>
          <h1>Workers</h1>
          <div class="muted">{plural(here.length, "worker")} connected{paged && " of this page’s"}, {formatCount(running)} of {plural(slots, "slot")} busy</div>
        </div>
      </div>
      {error && <ErrorNotice error={error} what="What is shown may be old" />}
      {data.workers.length === 0 && view.page === "" ? (
        <div class="panel empty">
          <p><strong>No worker has been here.</strong></p>
          <p>Start one: <code>ablate-worker --server ADDRESS</code>. Jobs wait until then.</p>
        </div>
      ) : (
        <div class="panel">
          <div class="controls">
            <label><input type="checkbox" checked={view.gone} onChange={(event) => setView({ gone: event.currentTarget.checked })} /> Show those that went away</label>
          </div>
          <Scroll label="Workers">
            <table>
              <thead>
                <tr>
                  <th scope="col">Worker</th><th scope="col">State</th><th scope="col">Last contact</th><th scope="col">Slots and what runs in them</th>
                  <th scope="col">Device</th><th scope="col">Labels</th><th scope="col">Build</th><th scope="col"><span class="visually-hidden">Actions</span></th>
                </tr>
              </thead>
              <tbody>
                {shown.map((worker) => <WorkerRow key={worker.worker_id} worker={worker} now={now} details={running <= MOST_DETAILS} />)}
              </tbody>
            </table>
          </Scroll>
          {shown.length === 0 && <div class="empty">None is connected. <button onClick={() => setView({ gone: true })}>Show those that went away</button></div>}
          {paged && (
            <nav class="row" aria-label="Pages of workers" style="margin-top: 12px">
              <button type="button" disabled={view.page === ""} onClick={() => setView({ page: "" })}>First page</button>
              <button type="button" disabled={data.next_page_token === ""} onClick={() => setView({ page: data.next_page_token })}>Next page</button>
            </nav>
          )}
        </div>
      )}
    </>
  );
}

function WorkerRow({ worker, now, details }: { worker: WorkerInfo; now: number; details: boolean }) {
  const last = int64(worker.last_contact_at_us) / 1e6;
  const free = Math.max(0, worker.slots - worker.running_job_ids.length);
  return (
    <tr id={`worker-${worker.worker_id}`}>
      <td><strong>{worker.worker_id}</strong>{worker.hostname && worker.hostname !== worker.worker_id && <div class="muted">{worker.hostname}</div>}</td>
      <td>
        <div><State name={worker.connected ? "CONNECTED" : "AWAY"} /></div>
        {worker.draining && <div><State name="DRAINING" /></div>}
      </td>
      <td>{last > 0 ? <><div class="nowrap">{formatSeconds(now - last)} ago</div><div class="muted"><Time us={worker.last_contact_at_us} /></div></> : "never"}</td>
      <td>
        <ul class="slots">
          {worker.running_job_ids.map((id) => <li key={id}><Slot id={id} details={details && worker.connected} /></li>)}
          {free > 0 && <li class="muted">{plural(free, worker.connected ? "free slot" : "slot")}</li>}
        </ul>
      </td>
      <td>{worker.device_kind || worker.device_class}{int64(worker.memory_bytes) > 0 && <div class="muted nowrap">{formatBytes(worker.memory_bytes)}</div>}
        {worker.executor === "EXECUTOR_NOOP" && <div class="muted">test executor (NOOP)</div>}</td>
      <td>{worker.labels.length > 0 ? worker.labels.map((label) => <span key={label} class="tag">{label}</span>) : "–"}</td>
      <td class="muted wide">{worker.build}</td>
      <td><DrainAction worker={worker} /></td>
    </tr>
  );
}

function Slot({ id, details }: { id: string; details: boolean }) {
  const { data } = useLive<GetJobResponse>(details ? apiUrl(`/jobs/${encodeURIComponent(id)}`) : undefined, { pause: 5000 });
  const job = data?.job;
  const stage = job?.task?.stage;
  return (
    <>
      <a class="mono" href={jobPath(id)}>{id}</a>
      {job && <div class="muted">{job.kind === "STAGE" ? "training" : "evaluation"}{job.arm_label && ` of ${job.arm_label}`}
        {stage && `, seed ${stage.seed}, step ${formatCount(job.step)} of ${formatCount(job.total_steps)}`}</div>}
    </>
  );
}
