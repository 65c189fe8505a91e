// The tabs of a sweep's numbers: by length, by a numeric axis, the table, the paired differences.
import { useCallback, useMemo } from "preact/hooks";
import { apiUrl } from "../api/client";
import type { CompareArmsResponse, GetClaimsResponse, GetEffectsResponse, LengthSpec } from "../api/types";
import { useLive } from "../app/live";
import { sweepPath } from "../app/router";
import { ErrorNotice, Loading } from "../app/widgets";
import { axesOf, drawAxis, prepareAxis } from "../charts/axis";
import { ChartCard, fileName } from "../charts/card";
import type { DrawOptions } from "../charts/figure";
import { type ForestSort, drawForest, prepareDifferences, prepareEffects } from "../charts/forest";
import { drawLengths, prepareLengths } from "../charts/lengths";
import { viewKey, viewsOf } from "../charts/rows";
import { CopyButtons } from "../tables/copy";
import { configurationJson } from "../tables/format";
import { type LinkedSheet, comparisonRecords, comparisonSheets, tableRecords, tableSheets } from "../tables/result_sheets";
import { ResultTable, orderedRows, readOrder, rearranged, writeOrder } from "../tables/result_table";
import { ArmPicker, Filters, NothingYet, type SweepView, type TabProps, apiPath, chosenArms, useResults, useTrainLength } from "./sweep_view";

export const jobsHref = (sweep: string) => (jobs: readonly string[]): string =>
  jobs.length === 1 ? `/jobs/${encodeURIComponent(jobs[0] ?? "")}`
    : `${sweepPath(sweep)}?tab=jobs&${jobs.map((job) => `job=${encodeURIComponent(job)}`).join("&")}`;

export function LengthsTab({ sweep, arms, view, setView }: TabProps) {
  const results = useResults(sweep, view, arms.length);
  const trainLength = useTrainLength(sweep, arms);
  const shown = useMemo(() => chosenArms(arms, view.arms), [arms, view.arms]);
  const data = useMemo(() => results.viewed && prepareLengths(results.rows, {
    metric: results.metric, view: results.viewed, ntk: view.ntk, arms: shown, trainLength, phases: results.phases, sweep: sweep.name,
  }), [results.rows, results.viewed && viewKey(results.viewed), view.ntk, shown, trainLength, sweep.name]);
  const draw = useCallback((options: DrawOptions) => drawLengths(data!, options), [data]);
  return (
    <>
      <Filters view={view} setView={setView} results={results} />
      <ArmPicker arms={arms} view={view} setView={setView} />
      {results.state ?? (data && data.panels.length > 0 ? <ChartCard draw={draw} sweep={sweep.name} />
        : <NothingYet sweep={sweep} what="Of the arms and settings that are chosen nothing is measured" />)}
    </>
  );
}

export function AxisTab({ sweep, arms, view, setView }: TabProps) {
  const results = useResults(sweep, view, arms.length);
  const trainLength = useTrainLength(sweep, arms);
  const axes = useMemo(() => axesOf(arms), [arms]);
  const axis = axes.includes(view.axis) ? view.axis : axes[0];
  const phases = sweep.phase !== "PLAIN" && sweep.phase !== "PHASE_UNSPECIFIED";
  const claims = useLive<GetClaimsResponse>(phases ? apiUrl(apiPath(sweep.name, "claims")) : undefined);
  const lock = claims.data?.lock;
  const data = useMemo(() => axis && results.viewed && prepareAxis(results.rows, {
    metric: results.metric, view: results.viewed, axis, ntk: view.ntk, arms, trainLength, phases: results.phases, split: view.by === "panels", lock, sweep: sweep.name,
  }), [results.rows, results.viewed && viewKey(results.viewed), axis, view.ntk, view.by, arms, trainLength, lock, sweep.name]);
  const draw = useCallback((options: DrawOptions) => drawAxis(data as Exclude<typeof data, "" | undefined>, options), [data]);
  if (!axis) {
    return (
      <div class="panel empty" data-empty>
        <p><strong>No axis of this sweep takes two numbers in arms that are else alike.</strong></p>
        <p>A sweep over <code>attention.p: [1, 3, 7, 15]</code>, say, is shown here with p from left to right.</p>
      </div>
    );
  }
  return (
    <>
      <Filters view={view} setView={setView} results={results}>
        <label class="field">Axis
          <select value={axis} onChange={(event) => setView({ axis: event.currentTarget.value })}>
            {axes.map((one) => <option key={one} value={one}>{one}</option>)}
          </select>
        </label>
        <label class="field">Lengths
          <select value={view.by} onChange={(event) => setView({ by: event.currentTarget.value as SweepView["by"] })}>
            <option value="one">in one chart</option>
            <option value="panels">each with its own scale</option>
          </select>
        </label>
      </Filters>
      {results.state ?? (data && data.panels.length > 0 ? <ChartCard draw={draw} sweep={sweep.name} />
        : <NothingYet sweep={sweep} what={`Of the arms with ${axis} nothing is measured`} />)}
    </>
  );
}

// The rows that filters leave.
function inView<R extends { split: string; phase: string; ntk: boolean; length: string; arm_json: string }>(
  rows: readonly R[], view: SweepView, split: string, keep: ReadonlySet<string>): R[] {
  const ntkLengths = new Set(rows.filter((row) => row.ntk).map((row) => row.length));
  return rows.filter((row) => keep.has(row.arm_json) && viewKey(row as never) === split &&
    (view.ntk === "both" || row.ntk === (view.ntk === "on") || (view.ntk === "on" && !ntkLengths.has(row.length))));
}

const MOST_ROWS = 100;

export function TableTab({ sweep, arms, view, setView }: TabProps) {
  const results = useResults(sweep, view, arms.length);
  const named = view.arms.length > 0;
  const shown = useMemo(() => (named ? chosenArms(arms, view.arms) : arms.slice(0, MOST_ROWS)), [arms, view.arms]);
  const rows = useMemo(() => results.viewed ? inView(results.rows, view, viewKey(results.viewed), new Set(shown.map((arm) => arm.json))) : [],
    [results.rows, results.viewed && viewKey(results.viewed), view.ntk, shown]);
  const sheets = useMemo(() => tableSheets(rows, results.phases), [rows, results.phases]);
  return (
    <>
      <Filters view={view} setView={setView} results={results} />
      {named || arms.length > MOST_ROWS ? <TableArms all={arms.length} shown={shown.length} onAll={() => setView({ arms: ["*"] })} onDefault={() => setView({ arms: [] })} named={named} /> : null}
      <ArmPicker arms={arms} view={view.arms.length > 0 || arms.length > MOST_ROWS ? view : { ...view, arms: ["*"] }} setView={setView} />
      {results.state ?? (sheets.length === 0 ? <NothingYet sweep={sweep} what="Of the arms and settings that are chosen nothing is measured" />
        : sheets.map((sheet) => (
          <section key={sheet.title} class="panel">
            <SheetHead sheet={sheet} sheets={() => [rearranged(sheet, orderedRows(sheet, readOrder(view.sort)))]} records={() => tableRecords(rows)} name={fileName([sweep.name, sheet.metric, "table"], "csv")} />
            <ResultTable sheet={sheet} order={readOrder(view.sort)} onOrder={(order) => setView({ sort: writeOrder(order) }, { replace: true })} jobsHref={jobsHref(sweep.name)}
              baseline={arms.find((arm) => arm.baseline)?.json ?? ""} markStanding={results.phases} />
          </section>
        )))}
    </>
  );
}

function TableArms({ all, shown, onAll, onDefault, named }: { all: number; shown: number; onAll: () => void; onDefault: () => void; named: boolean }) {
  if (shown === all) return null;
  return (
    <p class="muted">{shown} of {all} arms are in the table{named ? "" : " (the first ones)"}. <button type="button" onClick={onAll}>Show all {all}</button>{" "}
      {named && <button type="button" onClick={onDefault}>Back to the default</button>}</p>
  );
}

function SheetHead({ sheet, sheets, records, name }: { sheet: LinkedSheet<never> | { title: string }; sheets: Parameters<typeof CopyButtons>[0]["sheets"];
  records: Parameters<typeof CopyButtons>[0]["records"]; name: string }) {
  return (
    <div class="chart-head" style="display: flex; flex-wrap: wrap; gap: 6px 12px; justify-content: space-between; margin-bottom: 8px">
      <h2 style="margin: 0; font-size: 15px">{sheet.title}</h2>
      <CopyButtons sheets={sheets} records={records} name={name} />
    </div>
  );
}

// -1, which no row has, where it cannot be told.
function tokensOf(length: LengthSpec | undefined, trainLength: number): number {
  if (length?.tokens !== undefined) return Number(length.tokens);
  return length?.multiple !== undefined && trainLength > 0 ? Number(length.multiple) * trainLength : -1;
}

const SORTS: Record<ForestSort, string> = { table: "as in the sweep", difference: "by difference", p: "by p", arm: "by name" };

export function DifferencesTab({ sweep, arms, view, setView }: TabProps) {
  const results = useResults(sweep, view, arms.length);
  const comparison = useLive<CompareArmsResponse>(apiUrl(apiPath(sweep.name, "comparison"), { metrics: [results.metric], level: view.level }));
  const effects = useLive<GetEffectsResponse>(apiUrl(apiPath(sweep.name, "effects"), { metrics: [results.metric], level: view.level }), { follow: false });
  const phases = sweep.phase !== "PLAIN" && sweep.phase !== "PHASE_UNSPECIFIED";
  const claims = useLive<GetClaimsResponse>(phases ? apiUrl(apiPath(sweep.name, "claims")) : undefined);
  const named = view.arms.length > 0;
  const shown = useMemo(() => chosenArms(arms, view.arms, 30), [arms, view.arms]);
  const rows = comparison.data?.rows ?? [];
  const views = useMemo(() => viewsOf(rows, results.metric), [rows, results.metric]);
  const viewed = views.find((one) => viewKey(one) === view.split) ?? views.find((one) => results.viewed && viewKey(one) === viewKey(results.viewed)) ?? views[0];
  const trainLength = useTrainLength(sweep, arms);
  const margins = useMemo(() => (claims.data?.claims ?? []).flatMap((row) => row.claim && Number(row.claim.margin) > 0 && row.claim.kind !== "RISES_LESS" && row.claim.metric === results.metric
    ? [{ arm: row.arm_json || configurationJson(row.claim.arm), baseline: row.baseline_json, ntk: row.claim.ntk, margin: Number(row.claim.margin), claim: row.claim.name,
        length: tokensOf(row.claim.length, trainLength) }] : []), [claims.data, results.metric, trainLength]);
  const sort: ForestSort = view.sort in SORTS ? (view.sort as ForestSort) : "table";
  const settings = view.ntk === "both" ? [false, true] : [view.ntk === "on"];
  const forests = useMemo(() => viewed ? settings.map((ntk) => prepareDifferences(rows, {
    metric: results.metric, view: viewed, ntk, arms: shown, sort, phases: comparison.data?.phases ?? false, margins, sweep: sweep.name,
  })).filter((forest, i) => forest.rows.length > 0 && (i === 0 || rows.some((row) => row.ntk && row.metric === results.metric))) : [],
  [rows, viewed && viewKey(viewed), view.ntk, results.metric, shown, sort, margins, sweep.name]);
  const effectForests = useMemo(() => {
    const all = effects.data?.rows ?? [];
    const keys = [...new Map(all.map((row) => [JSON.stringify([row.split, row.phase, row.ntk]), row])).values()];
    return keys.map((row) => prepareEffects(all, results.metric, row, row.ntk, sweep.name)).filter((forest) => forest.rows.length > 0);
  }, [effects.data, results.metric, sweep.name]);
  const table = useMemo(() => viewed ? comparisonSheets(inView(rows, view, viewKey(viewed), new Set(shown.map((arm) => arm.json))), comparison.data?.phases ?? false) : [],
    [rows, viewed && viewKey(viewed), view.ntk, shown, comparison.data]);
  const order = readOrder(view.sort);
  return (
    <>
      <Filters view={view} setView={setView} results={{ ...results, views, viewed }}>
        <label class="field">Order
          <select value={sort} onChange={(event) => setView({ sort: event.currentTarget.value === "table" ? "" : event.currentTarget.value })}>
            {Object.entries(SORTS).map(([id, name]) => <option key={id} value={id}>{name}</option>)}
          </select>
        </label>
      </Filters>
      {!named && arms.length > shown.length && <p class="muted">The baseline and the first {shown.length - 1} of {arms.length - 1} other arms; choose others below.</p>}
      <ArmPicker arms={arms} view={named || arms.length > shown.length ? view : { ...view, arms: ["*"] }} setView={setView} />
      {comparison.error && !comparison.data ? <ErrorNotice error={comparison.error} />
        : !comparison.data ? <Loading what="Asking for the differences" />
        : forests.length === 0 ? <NothingYet sweep={sweep} ever={arms.length < 2} what={arms.length < 2 ? "There is one arm only: nothing to compare" : "No pair of an arm and the baseline is measured"} />
        : forests.map((forest) => <ForestCard key={forest.title} forest={forest} sweep={sweep.name} />)}
      {effectForests.map((forest) => <ForestCard key={forest.title} forest={forest} sweep={sweep.name} />)}
      {table.map((sheet) => (
        <section key={sheet.title} class="panel">
          <SheetHead sheet={sheet} sheets={() => [rearranged(sheet, orderedRows(sheet, order))]}
            records={() => comparisonRecords(sheet.cells.flat().flatMap((cell) => (cell.row ? [cell.row] : [])))} name={fileName([sweep.name, sheet.metric, "differences"], "csv")} />
          <ResultTable sheet={sheet} order={order} onOrder={(next) => setView({ sort: writeOrder(next) }, { replace: true })} jobsHref={jobsHref(sweep.name)} baseline=""
            markStanding={comparison.data?.phases ?? false} />
        </section>
      ))}
    </>
  );
}

export function ForestCard({ forest, sweep }: { forest: ReturnType<typeof prepareDifferences>; sweep: string }) {
  const draw = useCallback((options: DrawOptions) => drawForest(forest, options), [forest]);
  return <ChartCard draw={draw} sweep={sweep} />;
}
