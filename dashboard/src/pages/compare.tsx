// Arms of several sweeps side by side: their numbers by length in one chart and a table each. Says what keeps them from being compared,
// and that differences across sweeps are not paired.
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { ApiError, apiUrl, get } from "../api/client";
import type { ConfidenceRow, GetGridResponse, GetTableResponse, Job, ListJobsResponse, ListSweepsResponse } from "../api/types";
import { feed, useLive } from "../app/live";
import { sweepPath } from "../app/router";
import type { PageProps } from "../app/shell";
import { level, list, oneOf, text, useUrlState } from "../app/url_state";
import { ErrorNotice, Loading } from "../app/widgets";
import { ChartCard, fileName } from "../charts/card";
import type { DrawOptions } from "../charts/figure";
import { drawLengths, prepareLengths } from "../charts/lengths";
import { type View, isIn, viewKey, viewText, viewsOf } from "../charts/rows";
import { type Arm, armName, armsOf, styleAt } from "../charts/style";
import { CopyButtons } from "../tables/copy";
import { shortest } from "../tables/format";
import { AT_ONCE, metricRank } from "../tables/metrics";
import { tableRecords, tableSheets } from "../tables/result_sheets";
import { ResultTable, readOrder, writeOrder } from "../tables/result_table";
import { jobsHref } from "./sweep_results";
import { Swatch, apiPath, chosenArms, trainingLength } from "./sweep_view";

const VIEW = {
  sweeps: text(""),              // names, separated by commas
  metric: text(""),
  split: text(""),
  ntk: oneOf(["both", "off", "on"], "both"),
  arms: list(),                  // "sweep:label"
  level: level(),
  sort: text(""),
};

const MOST_LISTED = 200;

interface OneSweep { name: string; grid: GetGridResponse; table: GetTableResponse; job: Job | undefined }
type Loaded = Record<string, OneSweep | ApiError>;

// All that the page needs of each sweep, asked again when something changed.
function useSweeps(names: readonly string[], asked: string, level: number): Loaded {
  const [loaded, setLoaded] = useState<Loaded>({});
  const metrics = asked === "" || AT_ONCE.includes(asked) ? AT_ONCE : [...AT_ONCE, asked];
  const key = JSON.stringify([names, metrics, level]);
  useEffect(() => {
    const abort = new AbortController();
    let timer: number | undefined, version = -1;
    const load = async (): Promise<void> => {
      version = feed.version;
      for (const name of names) {
        try {
          const ask = <T,>(what: string, query = {}) => get<T>(apiUrl(apiPath(name, what), query), { signal: abort.signal });
          const [grid, table, jobs] = await Promise.all([ask<GetGridResponse>("grid"), ask<GetTableResponse>("table", { metrics, level }),
            ask<ListJobsResponse>("jobs", { page_size: 1 })]);
          if (grid && table) setLoaded((before) => ({ ...before, [name]: { name, grid: grid.value, table: table.value, job: jobs?.value.jobs[0] } }));
        } catch (error) {
          if (abort.signal.aborted) return;
          const known = error instanceof ApiError ? error : new ApiError("PAGE", String(error));
          setLoaded((before) => ({ ...before, [name]: known }));
        }
      }
      timer = undefined;
      if (feed.version !== version) later();
    };
    const later = (): void => {
      timer ??= window.setTimeout(() => void load(), 2000);
    };
    timer = 0;
    void feed.ready().then(() => {
      if (!abort.signal.aborted) void load();
    });
    const leave = feed.subscribe(() => {
      if (feed.version !== version) later();
    });
    return () => {
      abort.abort();
      leave();
      clearTimeout(timer);
    };
  }, [key]);
  return loaded;
}

// What keeps numbers of two sweeps from being compared, in words.
export function differencesBetween(sweeps: readonly OneSweep[], metric: string): string[] {
  const said: string[] = [];
  const apart = (what: string, of: (sweep: OneSweep) => string, why: string): void => {
    const values = new Map<string, string[]>();
    for (const sweep of sweeps) values.set(of(sweep), [...(values.get(of(sweep)) ?? []), sweep.name]);
    if (values.size > 1) said.push(`${what} differ: ${[...values].map(([value, names]) => `${value || "not known"} (${names.join(", ")})`).join("; ")}. ${why}`);
  };
  const data = (sweep: OneSweep) => sweep.job?.task?.stage?.data ?? sweep.job?.task?.evaluation?.data;
  apart("Data", (sweep) => { const d = data(sweep); return d ? `${d.name} ${d.sha256.slice(0, 12)}` : ""; }, "Losses are of other texts.");
  const setting = (sweep: OneSweep, axis: string) => {
    const value = (sweep.job?.task?.stage?.config ?? sweep.job?.task?.evaluation?.config)?.settings.find((one) => one.axis === axis)?.value;
    return value ? String(value.number ?? value.text ?? value.flag) : "the default";
  };
  apart("Training lengths", (sweep) => String(trainingLength(sweep.job) || ""), "1× is not the same number of tokens.");
  apart("Models", (sweep) => setting(sweep, "model.preset"), "Losses are of other models.");
  apart("Training steps", (sweep) => setting(sweep, "train.steps"), "");
  const rows = (sweep: OneSweep) => sweep.table.rows.filter((row) => row.metric === metric);
  apart("Evaluation lengths", (sweep) => [...new Set(rows(sweep).map((row) => Number(row.length)))].sort((a, b) => a - b).join(", "), "Only lengths that both have can be compared.");
  apart("Splits", (sweep) => viewsOf(rows(sweep)).filter((one) => one.phase !== "TUNING").map(viewText).join(", "), "");
  if (metric === "loss_targets") {
    apart("Target spans", (sweep) => `eval.target_spans ${evalSetting(sweep, "eval.target_spans")}`, "The metric is of other tokens.");
  }
  return said;
}
function evalSetting(sweep: OneSweep, axis: string): string {
  const all = [...(sweep.job?.task?.evaluation?.eval_config?.settings ?? []), ...(sweep.job?.task?.stage?.config?.settings ?? [])];
  const value = all.find((one) => one.axis === axis)?.value;
  return value ? String(value.number ?? value.text) : "the preset's";
}

export function ComparePage(_props: PageProps) {
  const [view, setView] = useUrlState(VIEW);
  const names = useMemo(() => [...new Set(view.sweeps.split(",").map((name) => name.trim()).filter(Boolean))], [view.sweeps]);
  const all = useLive<ListSweepsResponse>(apiUrl("/sweeps", { page_size: MOST_LISTED }));
  const loaded = useSweeps(names, view.metric, view.level);
  const ready = useMemo(() => names.flatMap((name) => { const one = loaded[name]; return one && !(one instanceof ApiError) ? [one] : []; }), [names, loaded]);
  const failed = names.flatMap((name) => { const one = loaded[name]; return one instanceof ApiError ? [{ name, error: one }] : []; });

  const metrics = useMemo(() => [...new Set(ready.flatMap((one) => one.table.rows.map((row) => row.metric)).filter(Boolean))].sort((a, b) => metricRank(a) - metricRank(b)), [ready]);
  const metric = view.metric || (metrics[0] ?? "loss_targets");
  const rows = useMemo(() => ready.flatMap((one) => one.table.rows.filter((row) => row.metric === metric)), [ready, metric]);
  // By split alone: a sweep with phases and one without measure the same documents. The one that most sweeps have comes first.
  const views = useMemo(() => {
    const splits = [...new Set(rows.filter((row) => row.phase !== "TUNING").map((row) => row.split))];
    const have = (split: string) => new Set(rows.filter((row) => row.split === split).map((row) => row.sweep)).size;
    return splits.sort((a, b) => have(b) - have(a)).map((split): View => ({ split }));
  }, [rows]);
  const viewed = views.find((one) => viewKey(one) === view.split) ?? views[0];

  // Looks are given over all arms of all sweeps in the address, so that leaving one arm out changes no other.
  const arms = useMemo(() => {
    let place = 0;
    return ready.flatMap((one) => armsOf(one.grid.arms).map((arm): Arm => ({
      ...arm, key: `${one.name} ${arm.json}`, sweep: one.name, label: arm.label,
      style: { ...styleAt(place++), ...(arm.baseline ? { width: 2.4, dash: "7,3.5" } : {}) },
    })));
  }, [ready]);
  const labelOf = (arm: Arm) => `${arm.sweep}:${arm.label}`;
  const shown = useMemo(() => {
    const named = arms.filter((arm) => view.arms.includes(labelOf(arm)));
    if (named.length > 0) return named;
    const each = Math.max(2, Math.floor(10 / Math.max(ready.length, 1)));
    return ready.flatMap((one) => chosenArms(arms.filter((arm) => arm.sweep === one.name), [], each));
  }, [arms, view.arms, ready]);

  const lengths = new Set(ready.map((one) => trainingLength(one.job)));
  const trainLength = lengths.size === 1 ? [...lengths][0] ?? 0 : 0;
  const data = useMemo(() => viewed && prepareLengths(rows, {
    metric, view: viewed, ntk: view.ntk, arms: shown, trainLength, phases: ready.some((one) => one.table.phases), sweep: "", keyOf: (row: ConfidenceRow) => `${row.sweep} ${row.arm_json}`,
  }), [rows, metric, viewed && viewKey(viewed), view.ntk, shown, trainLength]);
  const draw = useCallback((options: DrawOptions) => drawLengths(data!, options), [data]);
  const notes = useMemo(() => (ready.length > 1 ? differencesBetween(ready, metric) : []), [ready, metric]);
  const sheets = useMemo(() => viewed ? ready.map((one) => {
    const keep = new Set(shown.filter((arm) => arm.sweep === one.name).map((arm) => arm.json));
    const own = rows.filter((row) => row.sweep === one.name && keep.has(row.arm_json) && isIn(row, metric, viewed) && (view.ntk === "both" || row.ntk === (view.ntk === "on")));
    return { name: one.name, rows: own, phases: one.table.phases, sheets: tableSheets(own, one.table.phases), baseline: one.grid.arms.find((arm) => arm.baseline)?.arm_json ?? "" };
  }) : [], [ready, rows, shown, viewed && viewKey(viewed), view.ntk]);

  const setSweeps = (next: string[]) => setView({ sweeps: next.join(","), arms: [] });
  const unknown = (all.data?.sweeps ?? []).map((sweep) => sweep.name).filter((name) => !names.includes(name));
  return (
    <>
      <div class="page-head"><div><h1>Compare sweeps</h1><p class="muted" style="margin: 2px 0 0">Arms of several sweeps by evaluation length.</p></div></div>
      <div class="filters" role="group" aria-label="What is shown">
        <label class="field">Add a sweep
          <select value="" onChange={(event) => event.currentTarget.value && setSweeps([...names, event.currentTarget.value])}>
            <option value="">{all.loading ? "Loading …" : unknown.length === 0 ? "no other sweep" : "choose"}</option>
            {unknown.map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
        {names.map((name) => (
          <span key={name} class="row" style="gap: 4px"><a href={sweepPath(name)}>{name}</a>
            <button type="button" class="quiet" aria-label={`Leave ${name} out`} title={`Leave ${name} out`} onClick={() => setSweeps(names.filter((other) => other !== name))}>✕</button></span>
        ))}
        {metrics.length > 0 && (
          <label class="field">Metric
            <select value={metric} onChange={(event) => setView({ metric: event.currentTarget.value })}>{[...new Set([...metrics, metric])].map((one) => <option key={one} value={one}>{one}</option>)}</select>
          </label>
        )}
        {views.length > 0 && (
          <label class="field">Split
            <select value={viewed ? viewKey(viewed) : ""} onChange={(event) => setView({ split: event.currentTarget.value })}>
              {views.map((one) => <option key={viewKey(one)} value={viewKey(one)}>{viewText(one)}</option>)}
            </select>
          </label>
        )}
        {rows.some((row) => row.ntk) && (
          <label class="field">Dynamic NTK
            <select value={view.ntk} onChange={(event) => setView({ ntk: event.currentTarget.value as typeof view.ntk })}>
              <option value="both">off and on</option><option value="off">off</option><option value="on">on</option>
            </select>
          </label>
        )}
        <label class="field">Level of confidence
          <select value={String(view.level)} onChange={(event) => setView({ level: Number(event.currentTarget.value) })}>
            {[...new Set([0.9, 0.95, 0.99, view.level])].map((level) => <option key={level} value={String(level)}>{shortest(Number((level * 100).toPrecision(12)))} %</option>)}
          </select>
        </label>
      </div>
      {all.data && all.data.next_page_token !== "" && (
        <p class="muted" data-more>The first {MOST_LISTED} sweeps are listed, and there are more: tick others in the <a href="/">list of sweeps</a>, or name them in the address
          (<code>/compare?sweeps=NAME,NAME</code>).</p>
      )}
      {failed.map(({ name, error }) => <ErrorNotice key={name} error={error} what={name} />)}
      {all.error && !all.data && <ErrorNotice error={all.error} />}
      {names.length === 0 ? (
        <div class="panel empty" data-empty><p><strong>No sweep is chosen.</strong></p><p>Add two or more above, or tick them in the <a href="/">list of sweeps</a>.</p></div>
      ) : ready.length + failed.length < names.length ? <Loading what="Asking for the sweeps" /> : ready.length === 0 ? null : (
        <>
          {ready.length > 1 && (
            <div class="notice warn" data-notes>
              <p><strong>Differences across sweeps are not paired:</strong> seeds of two sweeps need not share data order and initial weights, so no paired interval or p is given here.
                Within a sweep, see its tab Differences.</p>
              {notes.map((note) => <p key={note}>{note}</p>)}
            </div>
          )}
          <details class="arm-picker">
            <summary>Arms: {shown.length} of {arms.length} are shown{view.arms.length === 0 && shown.length < arms.length ? " (each sweep's baseline and first others); choose others here" : ""}</summary>
            <div class="tools" style="margin-top: 6px">
              <button type="button" onClick={() => setView({ arms: [] }, { replace: true })}>The default</button>
              <button type="button" onClick={() => setView({ arms: arms.map(labelOf) }, { replace: true })}>All {arms.length}</button>
            </div>
            <div class="picks">
              {arms.map((arm) => {
                const on = shown.includes(arm);
                return (
                  <label key={arm.key} title={`${armName(arm)} of ${arm.sweep}`}>
                    <input type="checkbox" checked={on} disabled={on && shown.length === 1}
                      onChange={() => setView({ arms: arms.filter((other) => (other === arm ? !on : shown.includes(other))).map(labelOf) }, { replace: true })} />
                    <Swatch arm={arm} /><span>{armName(arm)} · {arm.sweep}</span>
                  </label>
                );
              })}
            </div>
          </details>
          {data && data.panels.length > 0 ? <ChartCard draw={draw} sweep={names.join("-")} />
            : <div class="panel empty" data-empty><p><strong>Nothing of {metric} is measured</strong> of the arms and settings that are chosen.</p></div>}
          <div class="side-by-side">
            {sheets.map((one) => (
              <section key={one.name} class="panel" data-sweep={one.name}>
                <h2><a href={sweepPath(one.name)}>{one.name}</a></h2>
                {one.sheets.length === 0 ? <p class="muted">Nothing of {viewed ? viewText(viewed) : "this"} is measured in this sweep.</p> : one.sheets.map((sheet) => (
                  <div key={sheet.title}>
                    <CopyButtons sheets={() => [sheet]} records={() => tableRecords(one.rows)} name={fileName([one.name, metric, "table"], "csv")} />
                    <ResultTable sheet={sheet} order={readOrder(view.sort)} onOrder={(order) => setView({ sort: writeOrder(order) }, { replace: true })} jobsHref={jobsHref(one.name)}
                      baseline={one.baseline} markStanding={one.phases} />
                  </div>
                ))}
              </section>
            ))}
          </div>
        </>
      )}
    </>
  );
}
