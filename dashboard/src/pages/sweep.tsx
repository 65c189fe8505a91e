// One sweep: its state and what can be done to it, and tabs for its curves, numbers, claims, grid and jobs. The address holds the whole
// view (pages/sweep_view.tsx).
import { useEffect } from "preact/hooks";
import { apiUrl } from "../api/client";
import { type GetGridResponse, type Sweep, int64 } from "../api/types";
import { SweepActions } from "../app/actions";
import { formatCount, formatRate, formatSeconds, lostText, plural, progressOf, secondsLeft } from "../app/format";
import { useLive, useNow } from "../app/live";
import type { PageProps } from "../app/shell";
import { isOver, isPaused, phaseOf, statesOf } from "../app/sweeps";
import { useUrlState } from "../app/url_state";
import { ErrorNotice, Loading, State, TabPanel, Tabs } from "../app/widgets";
import { ClaimsTab } from "./sweep_claims";
import { CurvesTab } from "./sweep_curves";
import { GridTab, JobsTab } from "./sweep_grid";
import { OverviewTab } from "./sweep_overview";
import { AxisTab, DifferencesTab, LengthsTab, TableTab } from "./sweep_results";
import { SWEEP_VIEW, type TabId, type TabProps, apiPath, useArms } from "./sweep_view";

const PAGES: { id: TabId; name: string; component: (props: TabProps) => preact.JSX.Element }[] = [
  { id: "overview", name: "Overview", component: OverviewTab },
  { id: "curves", name: "Curves", component: CurvesTab },
  { id: "lengths", name: "By length", component: LengthsTab },
  { id: "axis", name: "By axis", component: AxisTab },
  { id: "table", name: "Table", component: TableTab },
  { id: "differences", name: "Differences", component: DifferencesTab },
  { id: "claims", name: "Claims", component: ClaimsTab },
  { id: "grid", name: "Grid", component: GridTab },
  { id: "jobs", name: "Jobs", component: JobsTab },
];

export function SweepPage({ parameters }: PageProps) {
  const name = parameters.sweep ?? "";
  const sweep = useLive<Sweep>(apiUrl(`/sweeps/${encodeURIComponent(name)}`));
  const grid = useLive<GetGridResponse>(apiUrl(apiPath(name, "grid")));
  const [view, setView] = useUrlState(SWEEP_VIEW);
  const arms = useArms(grid.data);
  const here = sweep.data !== undefined;
  // On a phone the row of tabs is wider than the page.
  useEffect(() => document.getElementById(`tab-${view.tab}`)?.scrollIntoView({ inline: "nearest", block: "nearest" }), [view.tab, here]);
  if (!sweep.data) return sweep.error ? <ErrorNotice error={sweep.error} /> : <Loading what={`Asking for ${name}`} />;
  const page = PAGES.find((one) => one.id === view.tab) ?? PAGES[0]!;
  const Tab = page.component;
  return (
    <>
      <SweepHead sweep={sweep.data} />
      {sweep.error && <ErrorNotice error={sweep.error} what="What is shown may be old" />}
      <Tabs tabs={PAGES} selected={page.id} label="Views of the sweep" onSelect={(tab) => setView({ tab, sort: "", state: "", page: "", job: [] })} />
      <TabPanel id={page.id}>
        {grid.data ? <Tab sweep={sweep.data} arms={arms} grid={grid.data} view={view} setView={setView} />
          : grid.error ? <ErrorNotice error={grid.error} what="The arms could not be listed" /> : <Loading what="Asking for the arms" />}
      </TabPanel>
    </>
  );
}

function SweepHead({ sweep }: { sweep: Sweep }) {
  const progress = progressOf(sweep);
  const { succeeded, failed, cancelled, over, all, share } = progress;
  const running = int64(sweep.jobs?.running);
  const percent = (count: number) => ({ width: `${all > 0 ? (100 * count) / all : 0}%` });
  const phase = phaseOf(sweep);
  const left = secondsLeft(sweep, useNow(5));
  return (
    <>
      <div class="page-head">
        <div>
          <div class="crumbs"><a href="/">Sweeps</a></div>
          <h1>{sweep.name}</h1>
          {sweep.description && <p class="muted" style="margin: 2px 0 0">{sweep.description}</p>}
          <div class="row" style="margin-top: 6px; gap: 4px 16px">
            {statesOf(sweep).map((state) => <State key={state} name={state} />)}
            {phase && <span class="tag">{phase}</span>}
            <span class="muted">{formatCount(succeeded)} of {plural(all, "job")} succeeded{!isOver(sweep) && `, ${Math.floor(share * 100)} % of the work`}{left !== undefined && `, ${formatSeconds(left)} left`}</span>
            {running > 0 && <span class="muted">{running} running{Number(sweep.tokens_per_second) > 0 && `, ${formatRate(sweep.tokens_per_second)} tokens/s`}</span>}
            {failed > 0 && <a href="?tab=jobs&state=failed"><State name="FAILED" word={`${failed} failed`} /></a>}
            {cancelled > 0 && <a href="?tab=jobs&state=cancelled"><State name="CANCELLED" word={`${cancelled} cancelled`} /></a>}
            {int64(sweep.diverged) > 0 && <State name="DIVERGED" word={`${plural(int64(sweep.diverged), "job")} diverged`} />}
          </div>
        </div>
        <SweepActions sweep={sweep} />
      </div>
      <div class="progress" role="progressbar" aria-label="Jobs that are over" aria-valuemin={0} aria-valuemax={all} aria-valuenow={over}
        aria-valuetext={`${succeeded} of ${plural(all, "job")} succeeded${lostText(progress)}`} style="margin-bottom: 12px">
        <span class="ok" style={percent(succeeded)} />
        <span class="bad" style={percent(failed)} />
        <span class="off" style={percent(cancelled)} />
        <span class="run" style={percent(running)} />
      </div>
      {sweep.needs_person && <div class="notice warn" role="status"><p><strong>{isPaused(sweep) ? "Paused" : "Waits for somebody"}:</strong> {sweep.waiting_for}</p></div>}
      {!sweep.needs_person && sweep.waiting_for && sweep.state === "SWEEP_RUNNING" && <div class="notice"><p>Waits for: {sweep.waiting_for}</p></div>}
    </>
  );
}
