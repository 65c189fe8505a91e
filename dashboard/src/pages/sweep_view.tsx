// What the tabs of a sweep's page share: the view that its address holds, the arms with their looks, the filters, and what is said
// where nothing is measured.
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { apiUrl } from "../api/client";
import type { ConfidenceRow, GetGridResponse, GetTableResponse, Job, ListJobsResponse, Sweep } from "../api/types";
import { lostText, plural, progressOf } from "../app/format";
import { useLive } from "../app/live";
import { sweepPath } from "../app/router";
import { isOver } from "../app/sweeps";
import { flag, level, list, oneOf, text, type SetState, type Values } from "../app/url_state";
import { ErrorNotice, Loading } from "../app/widgets";
import { swatch } from "../charts/figure";
import { type View, viewKey, viewText, viewsOf } from "../charts/rows";
import { type Arm, PAGE, armName, armsOf } from "../charts/style";
import { PRESET_LENGTHS, shortest } from "../tables/format";
import { AT_ONCE, BY_NAME, metricRank } from "../tables/metrics";

export const TABS = ["overview", "curves", "lengths", "axis", "table", "differences", "claims", "grid", "jobs"] as const;
export type TabId = (typeof TABS)[number];

export const SWEEP_VIEW = {
  tab: oneOf<TabId>(TABS, "overview"),
  metric: text(""),                 // "": the first that is measured
  split: text(""),                  // "selection", "confirmation/confirming"; "": the first
  ntk: oneOf(["both", "off", "on"], "both"),
  arms: list(),                     // labels; none: the default
  level: level(),
  log: flag(false),
  axis: text(""),
  by: oneOf(["one", "panels"], "one"),
  sort: text(""),                   // of tables: a column; of differences: their order
  curve: text("train_loss"),
  tuning: flag(false),
  job: list(),
  state: text(""),
  page: text(""),
};
export type SweepView = Values<typeof SWEEP_VIEW>;
export type SetSweepView = SetState<typeof SWEEP_VIEW>;

export interface TabProps { sweep: Sweep; arms: Arm[]; grid: GetGridResponse; view: SweepView; setView: SetSweepView }

export const apiPath = (sweep: string, what: string): string => `/sweeps/${encodeURIComponent(sweep)}/${what}`;

export function useArms(grid: GetGridResponse | undefined): Arm[] {
  // A grid changes with every job; its arms only when the sweep is extended.
  const key = grid ? JSON.stringify(grid.arms) : "[]";
  return useMemo(() => armsOf(JSON.parse(key) as GetGridResponse["arms"]), [key]);
}

// --- arms ---

export const DEFAULT_ARMS = 8;

// The baseline and the first others, unless the address names some.
export function chosenArms(arms: readonly Arm[], labels: readonly string[], most = DEFAULT_ARMS): Arm[] {
  const named = labels.includes("*") ? [...arms] : arms.filter((arm) => labels.includes(arm.label));
  if (named.length > 0) return named;
  const baseline = arms.find((arm) => arm.baseline);
  const others = arms.filter((arm) => arm !== baseline).slice(0, baseline ? most - 1 : most);
  return arms.filter((arm) => arm === baseline || others.includes(arm));
}

export function Swatch({ arm }: { arm: Arm }) {
  return <svg width="30" height="14" aria-hidden="true" ref={(svg) => {
    if (svg) svg.replaceChildren(swatch(document, arm.style, PAGE, 2, 7));
  }} />;
}

const MOST_PICKS = 300;

export function ArmPicker({ arms, view, setView }: { arms: readonly Arm[]; view: SweepView; setView: SetSweepView }) {
  const [open, setOpen] = useState(false);
  const [find, setFind] = useState("");
  const chosen = chosenArms(arms, view.arms);
  const isDefault = view.arms.length === 0;
  const set = (labels: string[]) => setView({ arms: labels }, { replace: true });
  const summary = isDefault && arms.length > chosen.length
    ? `Arms: ${chosen.length} of ${arms.length} are shown (the baseline and the first ${chosen.length - 1}); choose others here`
    : `Arms: ${chosen.length === arms.length ? `all ${arms.length}` : `${chosen.length} of ${arms.length}`} are shown`;
  const sought = find.trim().toLowerCase();
  const found = sought ? arms.filter((arm) => armName(arm).toLowerCase().includes(sought)) : arms;
  return (
    <details class="arm-picker" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{summary}</summary>
      {open && <>
      <div class="tools" style="margin-top: 6px">
        <button type="button" onClick={() => set([])}>The baseline and the first {DEFAULT_ARMS - 1}</button>
        <button type="button" onClick={() => set(["*"])}>All {arms.length}</button>
        <button type="button" onClick={() => set(arms.filter((arm) => arm.baseline).map((arm) => arm.label))}>Only the baseline</button>
        {arms.length > 20 && <label>Find <input type="search" value={find} onInput={(event) => setFind(event.currentTarget.value)} /></label>}
        {sought && found.length > 0 && <button type="button" onClick={() => set([...new Set([...chosen, ...found].map((arm) => arm.label))])}>Add the {found.length} found</button>}
      </div>
      <div class="picks">
        {found.slice(0, MOST_PICKS).map((arm) => {
          const on = chosen.includes(arm);
          return (
            <label key={arm.key} title={armName(arm)}>
              <input type="checkbox" checked={on} disabled={on && chosen.length === 1} onChange={() =>
                set(arms.filter((other) => (other === arm ? !on : chosen.includes(other))).map((other) => other.label))} />
              <Swatch arm={arm} /><span>{armName(arm)}</span>
            </label>
          );
        })}
      </div>
      {found.length > MOST_PICKS && <p class="muted">{found.length - MOST_PICKS} more arms: find them by a part of their names.</p>}
      </>}
    </details>
  );
}

// --- what is measured ---

const MOST_AT_ONCE = 300; // arms: beyond, a table of all metrics is asked for one by one

export interface Results {
  rows: ConfidenceRow[];      // of the chosen metric, all splits
  phases: boolean;
  metric: string;
  metrics: string[];          // measured ones, as far as known
  views: View[];
  viewed: View | undefined;
  state: ComponentChildren;   // shown in place of a chart: waiting, an error, or that nothing is measured
}

// The table of the chosen metric, kept fresh.
export function useResults(sweep: Sweep, view: SweepView, arms: number): Results {
  const small = arms <= MOST_AT_ONCE;
  const all = useLive<GetTableResponse>(small ? apiUrl(apiPath(sweep.name, "table"), { metrics: AT_ONCE, level: view.level }) : undefined);
  const known = useMemo(() => [...new Set((all.data?.rows ?? []).map((row) => row.metric).filter(Boolean))].sort((a, b) => metricRank(a) - metricRank(b)), [all.data]);
  const metric = view.metric || known[0] || "loss_targets";
  const apart = !small || (view.metric !== "" && !AT_ONCE.includes(view.metric));
  const one = useLive<GetTableResponse>(apart ? apiUrl(apiPath(sweep.name, "table"), { metrics: [metric], level: view.level }) : undefined);
  const source = apart ? one : all;
  const rows = useMemo(() => (source.data?.rows ?? []).filter((row) => row.metric === metric), [source.data, metric]);
  const views = useMemo(() => viewsOf(rows).filter((one) => one.phase !== "TUNING"), [rows]);
  const viewed = views.find((one) => viewKey(one) === view.split) ?? (view.tab === "axis" ? widest(rows, views) : views[0]);
  const state = !source.data && source.error ? <ErrorNotice error={source.error} />
    : !source.data ? <Loading what="Asking for the results" />
    : rows.length === 0 ? <NothingYet sweep={sweep} what={known.length > 0 ? `${metric} is not measured` : "Nothing is measured"} known={known} />
    : undefined;
  return { rows, phases: source.data?.phases ?? false, metric, metrics: known, views, viewed, state };
}

// The view with the most arms: the one to choose an axis' value by.
function widest(rows: readonly ConfidenceRow[], views: readonly View[]): View | undefined {
  const arms = (one: View) => new Set(rows.filter((row) => viewKey(row) === viewKey(one)).map((row) => row.arm_json)).size;
  return [...views].sort((a, b) => arms(b) - arms(a))[0];
}

// `what` without "yet", which is true only of a sweep that goes on; `ever`: nor is it of this.
export function NothingYet({ sweep, what = "Nothing is measured", ever = false, known = [] }: { sweep: Sweep; what?: string; ever?: boolean; known?: string[] }) {
  const progress = progressOf(sweep);
  const { succeeded, diverged, all } = progress;
  return (
    <div class="panel empty" data-empty>
      <p><strong>{what}{isOver(sweep) || ever ? "" : " yet"}.</strong></p>
      <p>{succeeded} of {plural(all, "job")} of this sweep succeeded{diverged > 0 && `, ${diverged} of them as diverged (which no mean holds)`}{lostText(progress)}
        {isOver(sweep) ? "; the sweep is over." : ever ? "." : "; this fills in by itself as results come."}
        {sweep.waiting_for && ` It waits for: ${sweep.waiting_for}.`}</p>
      {known.length > 0 && <p>Measured are: {known.join(", ")}.</p>}
      <p><a href={`${sweepPath(sweep.name)}?tab=grid`}>{isOver(sweep) ? "What became of each arm and seed" : "How far each arm and seed is"}</a></p>
    </div>
  );
}

// --- filters ---

export function Filters({ view, setView, results, ntk = true, children }: {
  view: SweepView; setView: SetSweepView; results: Results; ntk?: boolean; children?: ComponentChildren;
}) {
  const metrics = results.metrics.includes(results.metric) ? results.metrics : [results.metric, ...results.metrics];
  const levels = [0.9, 0.95, 0.99];
  return (
    <div class="filters" role="group" aria-label="What is shown">
      <label class="field">Metric
        <select value={results.metric} onChange={(event) => setView({ metric: event.currentTarget.value, split: "" })}>
          {metrics.map((metric) => <option key={metric} value={metric}>{metric}</option>)}
          <optgroup label="Perhaps measured as well">
            {BY_NAME.filter((metric) => !metrics.includes(metric)).map((metric) => <option key={metric} value={metric}>{metric}</option>)}
          </optgroup>
        </select>
      </label>
      {results.views.length > 0 && (
        <label class="field">Split
          <select value={results.viewed ? viewKey(results.viewed) : ""} onChange={(event) => setView({ split: event.currentTarget.value })}>
            {results.views.map((one) => <option key={viewKey(one)} value={viewKey(one)}>{viewText(one)}</option>)}
          </select>
        </label>
      )}
      {ntk && results.rows.some((row) => row.ntk) && (
        <label class="field">Dynamic NTK
          <select value={view.ntk} onChange={(event) => setView({ ntk: event.currentTarget.value as SweepView["ntk"] })}>
            <option value="both">off and on</option>
            <option value="off">off</option>
            <option value="on">on</option>
          </select>
        </label>
      )}
      <label class="field">Level of confidence
        <select value={String(view.level)} onChange={(event) => setView({ level: Number(event.currentTarget.value) })}>
          {[...levels, ...(levels.includes(view.level) ? [] : [view.level])].map((level) => <option key={level} value={String(level)}>{shortest(Number((level * 100).toPrecision(12)))} %</option>)}
        </select>
      </label>
      {children}
    </div>
  );
}

// --- the training length, for "8×" ---

// 0: not known; a test executor trains nothing.
export function trainingLength(job: Job | undefined): number {
  const task = job?.task?.stage ?? job?.task?.evaluation;
  const settings = task?.config?.settings;
  if (!settings || task.executor === "EXECUTOR_NOOP") return 0;
  const value = (axis: string) => settings.find((setting) => setting.axis === axis)?.value;
  return Number(value("train.length")?.number ?? PRESET_LENGTHS[value("model.preset")?.text ?? "tiny"] ?? 0);
}

// Of the sweep's first job; 0 too where arms differ in it.
export function useTrainLength(sweep: Sweep, arms: readonly Arm[]): number {
  const jobs = useLive<ListJobsResponse>(apiUrl(apiPath(sweep.name, "jobs"), { page_size: 1 }), { follow: false });
  return arms.some((arm) => /"(train\.length|model\.preset)"/.test(arm.json)) ? 0 : trainingLength(jobs.data?.jobs[0]);
}
