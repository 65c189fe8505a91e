// All sweeps: what runs, how far, what failed, what waits for somebody.
import { apiUrl } from "../api/client";
import { int64, type ListSweepsResponse, type Sweep } from "../api/types";
import { formatCount, formatRate, formatSeconds, lostText, plural, progressOf, secondsLeft } from "../app/format";
import { useLive, useNow } from "../app/live";
import { navigate, sweepPath } from "../app/router";
import type { PageProps } from "../app/shell";
import { compareSweeps, isOver, phaseOf, statesOf, type SweepOrder } from "../app/sweeps";
import { list, oneOf, text, useUrlState } from "../app/url_state";
import { ErrorNotice, Loading, Scroll, State, Time } from "../app/widgets";

const VIEW = {
  page: text(""), // the server's page token
  find: text(""),
  state: oneOf(["all", "running", "succeeded", "failed", "cancelled", "waiting"], "all"),
  order: oneOf<SweepOrder>(["created", "name", "state", "progress", "failed", "diverged"], "created"),
  chosen: list(),
};

const PAGE_SIZE = 200;

const STATE_FILTERS: Record<string, (sweep: Sweep) => boolean> = {
  all: () => true,
  running: (sweep) => sweep.state === "SWEEP_RUNNING",
  succeeded: (sweep) => sweep.state === "SWEEP_SUCCEEDED",
  failed: (sweep) => sweep.state === "SWEEP_FAILED" || int64(sweep.jobs?.failed) > 0,
  cancelled: (sweep) => sweep.state === "SWEEP_CANCELLED",
  waiting: (sweep) => sweep.needs_person,
};

export function SweepsPage(_props: PageProps) {
  const [view, setView] = useUrlState(VIEW);
  const { data, error } = useLive<ListSweepsResponse>(apiUrl("/sweeps", { page_size: PAGE_SIZE, page_token: view.page }));
  const now = useNow(5);
  if (!data) return error ? <ErrorNotice error={error} /> : <Loading />;

  const sought = view.find.trim().toLowerCase();
  const shown = data.sweeps
    .filter((sweep) => STATE_FILTERS[view.state]!(sweep))
    .filter((sweep) => !sought || `${sweep.name} ${sweep.description}`.toLowerCase().includes(sought))
    .sort(compareSweeps(view.order, (sweep) => progressOf(sweep).share));
  const running = data.sweeps.filter((sweep) => sweep.state === "SWEEP_RUNNING").length;
  const partial = data.next_page_token !== "" || view.page !== "";
  const choose = (name: string, on: boolean): void =>
    setView({ chosen: on ? [...view.chosen, name] : view.chosen.filter((other) => other !== name) }, { replace: true });

  const heading = (order: SweepOrder, title: string, numeric = false) => {
    const ascending = order === "name" || order === "state" || order === "progress";
    return (
      <th scope="col" class={numeric ? "number" : undefined} aria-sort={view.order === order ? (ascending ? "ascending" : "descending") : undefined}>
        <button type="button" class="sort" title={`Order by ${title.toLowerCase()}`} onClick={() => setView({ order })}>
          {title}{view.order === order ? (ascending ? " ▴" : " ▾") : ""}
        </button>
      </th>
    );
  };

  return (
    <>
      <div class="page-head">
        <div>
          <h1>Sweeps</h1>
          <div class="muted">{plural(data.sweeps.length, "sweep")}{partial && " on this page"}{running > 0 && `, ${running} running`}</div>
        </div>
      </div>
      {error && <ErrorNotice error={error} what="What is shown may be old" />}
      {data.sweeps.length === 0 && !partial ? (
        <div class="panel empty">
          <p><strong>No sweep yet.</strong></p>
          <p>Submit one: <code>ablate sweep submit FILE.yaml</code>. Ready-made files are in <code>experiments/sweeps/</code>.</p>
        </div>
      ) : (
        <div class="panel">
          <div class="controls">
            <label>Find <input type="search" value={view.find} placeholder="name or description"
              onInput={(event) => setView({ find: event.currentTarget.value }, { replace: true })} /></label>
            <label>Show <select value={view.state} onChange={(event) => setView({ state: event.currentTarget.value as typeof view.state })}>
              <option value="all">all</option>
              <option value="running">running</option>
              <option value="succeeded">succeeded</option>
              <option value="failed">with failures</option>
              <option value="cancelled">cancelled</option>
              <option value="waiting">waiting for somebody</option>
            </select></label>
            <button type="button" disabled={view.chosen.length === 0}
              onClick={() => navigate(`/compare?sweeps=${view.chosen.map(encodeURIComponent).join(",")}`)}>
              Compare {view.chosen.length > 0 ? plural(view.chosen.length, "chosen sweep") : "chosen sweeps"}
            </button>
            <span class="muted" role="status">{shown.length < data.sweeps.length && `${shown.length} of ${plural(data.sweeps.length, "sweep")}`}
              {partial && " Find, Show and the order are of this page’s sweeps."}</span>
          </div>
          <Scroll label="Sweeps">
            <table>
              <thead>
                <tr>
                  <th scope="col"><span class="visually-hidden">Choose to compare</span></th>
                  {heading("name", "Sweep")}
                  {heading("state", "State")}
                  {heading("progress", "Progress")}
                  <th scope="col" class="number">Time left</th>
                  {heading("failed", "Failed jobs", true)}
                  {heading("diverged", "Diverged jobs", true)}
                  <th scope="col" class="number">Arms × seeds</th>
                  {heading("created", "Submitted")}
                </tr>
              </thead>
              <tbody>
                {shown.map((sweep) => (
                  <SweepRow key={sweep.sweep_id} sweep={sweep} now={now} chosen={view.chosen.includes(sweep.name)} onChoose={choose} />
                ))}
              </tbody>
            </table>
          </Scroll>
          {shown.length === 0 && <div class="empty">No sweep {partial ? "on this page " : ""}fits. <button onClick={() => setView({ find: "", state: "all" })}>Show all</button></div>}
          {partial && (
            <nav class="row" aria-label="Pages of sweeps" style="margin-top: 12px">
              <button type="button" disabled={view.page === ""} onClick={() => setView({ page: "" })}>First page</button>
              <button type="button" disabled={data.next_page_token === ""} onClick={() => setView({ page: data.next_page_token })}>Next page</button>
            </nav>
          )}
        </div>
      )}
    </>
  );
}

function SweepRow({ sweep, now, chosen, onChoose }: {
  sweep: Sweep; now: number; chosen: boolean; onChoose: (name: string, on: boolean) => void;
}) {
  const running = sweep.state === "SWEEP_RUNNING";
  const left = secondsLeft(sweep, now);
  const failed = int64(sweep.jobs?.failed), diverged = int64(sweep.diverged);
  const phase = phaseOf(sweep);
  return (
    <tr>
      <td><input type="checkbox" checked={chosen} aria-label={`Choose ${sweep.name} to compare`}
        onChange={(event) => onChoose(sweep.name, event.currentTarget.checked)} /></td>
      <td class="sweep-name">
        <a href={sweepPath(sweep.name)}><strong>{sweep.name}</strong></a>
        {sweep.description && <div class="muted clamp" title={sweep.description}>{sweep.description}</div>}
        {sweep.waiting_for && <div class={sweep.needs_person ? "warn-text" : "muted"}>waits for: {sweep.waiting_for}</div>}
      </td>
      <td>
        {statesOf(sweep).map((name) => <div key={name}><State name={name} /></div>)}
        {phase && <div class="muted">{phase}</div>}
      </td>
      <td class="sweep-progress"><ProgressBar sweep={sweep} /></td>
      <td class="number">{running
        ? left === undefined ? <span class="muted" title="Judged by what this page has seen: after 3 seconds and 1 % of progress">not yet known</span> : formatSeconds(left)
        : int64(sweep.ended_at_us) > 0 ? <span class="muted">took {formatSeconds((int64(sweep.ended_at_us) - int64(sweep.created_at_us)) / 1e6)}</span> : "–"}</td>
      <td class="number">{failed > 0 ? <State name="FAILED" word={formatCount(failed)} /> : "0"}</td>
      <td class="number">{diverged > 0 ? <State name="DIVERGED" word={formatCount(diverged)} /> : "0"}</td>
      <td class="number">{formatCount(sweep.arms)} × {formatCount(sweep.seeds)}</td>
      <td><Time us={sweep.created_at_us} /></td>
    </tr>
  );
}

// Succeeded, failed, cancelled and running jobs as parts of a bar, and the same in words.
export function ProgressBar({ sweep }: { sweep: Sweep }) {
  const progress = progressOf(sweep);
  const { succeeded, failed, cancelled, over, all, share } = progress;
  const jobs = sweep.jobs;
  const part = (count: number): string => `${all > 0 ? (100 * count) / all : 0}%`;
  const steps = int64(sweep.steps_total);
  const rate = Number(sweep.tokens_per_second);
  return (
    <>
      <span class="progress" role="progressbar" aria-label={`Jobs of ${sweep.name}`} aria-valuemin={0} aria-valuemax={all} aria-valuenow={over}
        aria-valuetext={`${succeeded} of ${plural(all, "job")} succeeded${lostText(progress)}${isOver(sweep) ? "" : `, ${Math.floor(share * 100)} percent of the work`}`}>
        <span class="ok" style={{ width: part(succeeded) }} />
        <span class="bad" style={{ width: part(failed) }} />
        <span class="off" style={{ width: part(cancelled) }} />
        <span class="run" style={{ width: part(int64(jobs?.running)) }} />
      </span>
      <div class="muted nowrap progress-text">
        {formatCount(succeeded)}/{formatCount(all)} jobs{lostText(progress)}{int64(jobs?.running) > 0 && `, ${formatCount(jobs!.running)} running`}
        {steps > 0 && ` · ${formatCount(sweep.steps_done)}/${formatCount(sweep.steps_total)} steps`}
        {rate > 0 && ` · ${formatRate(rate)} tokens/s`}
      </div>
    </>
  );
}
