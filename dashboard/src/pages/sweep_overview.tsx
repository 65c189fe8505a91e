// The first tab of a sweep: what it is, how far, what needs somebody's eyes, verdicts, and its main chart.
import { useCallback, useMemo } from "preact/hooks";
import { apiUrl } from "../api/client";
import type { GetClaimsResponse } from "../api/types";
import { useLive } from "../app/live";
import { jobPath } from "../app/router";
import { State, Time } from "../app/widgets";
import { ChartCard } from "../charts/card";
import type { DrawOptions } from "../charts/figure";
import { countsText, kindOf, prepareGrid } from "../charts/grid";
import { levelOfClaims } from "../charts/forest";
import { drawLengths, prepareLengths } from "../charts/lengths";
import { viewKey } from "../charts/rows";
import { counted, phaseText, withInterval, finite } from "../tables/format";
import { NothingYet, type TabProps, apiPath, chosenArms, useResults, useTrainLength } from "./sweep_view";

export function OverviewTab({ sweep, arms, grid, view, setView }: TabProps) {
  const results = useResults(sweep, view, arms.length);
  const trainLength = useTrainLength(sweep, arms);
  const shown = useMemo(() => chosenArms(arms, view.arms), [arms, view.arms]);
  const data = useMemo(() => results.viewed && prepareLengths(results.rows, {
    metric: results.metric, view: results.viewed, ntk: view.ntk, arms: shown, trainLength, phases: results.phases, sweep: "",
  }), [results.rows, results.viewed && viewKey(results.viewed), view.ntk, shown, trainLength]);
  const draw = useCallback((options: DrawOptions) => drawLengths(data!, options), [data]);
  const cells = useMemo(() => prepareGrid(grid), [grid]);
  const phases = sweep.phase !== "PLAIN" && sweep.phase !== "PHASE_UNSPECIFIED";
  const claims = useLive<GetClaimsResponse>(phases ? apiUrl(apiPath(sweep.name, "claims")) : undefined);
  const trouble = useMemo(() => grid.cells.filter((cell) => cell.state === "FAILED" || cell.diverged), [grid]);
  const more = shown.length < arms.length;
  return (
    <>
      <div class="columns">
        <section class="panel">
          <h2>The sweep</h2>
          <dl class="facts">
            <dt>Arms × seeds</dt><dd>{sweep.arms} × {sweep.seeds}</dd>
            <dt>Cells</dt><dd>{countsText(cells.counts) || "none"} <a href="?tab=grid">grid</a></dd>
            {phases && <><dt>Phase</dt><dd>{phaseText(sweep.phase)}</dd></>}
            <dt>Submitted</dt><dd><Time us={sweep.created_at_us} /></dd>
            {Number(sweep.ended_at_us) > 0 && <><dt>Ended</dt><dd><Time us={sweep.ended_at_us} /></dd></>}
            <dt>Sweep file</dt><dd><span class="hash">{sweep.spec_sha256}</span></dd>
            <dt>Plan</dt><dd><span class="hash">{sweep.plan_sha256}</span></dd>
          </dl>
        </section>
        {claims.data && claims.data.claims.length > 0 && (
          <section class="panel">
            <h2>Claims</h2>
            <dl class="facts">
              {claims.data.claims.map((row) => (
                <>
                  <dt key={row.claim?.name}><State name={row.verdict} /></dt>
                  <dd><strong>{row.claim?.name}</strong>{row.estimate !== undefined && `: ${withInterval(finite(row.estimate), finite(row.low), finite(row.high))}, n = ${row.n}`}
                    <span class="muted"> {row.standing}</span></dd>
                </>
              ))}
            </dl>
            <p class="muted" style="margin-top: 8px">Estimates with their plain interval{levelOfClaims(claims.data.claims)}, n pairs by seed. <a href="?tab=claims">Methods, family-wise intervals, seal and evidence</a></p>
          </section>
        )}
        {trouble.length > 0 && (
          <section class="panel">
            <h2>Failed and diverged</h2>
            <ul style="margin: 0; padding-left: 18px">
              {trouble.slice(0, 12).map((cell) => {
                const kind = kindOf(cell);
                return <li key={`${cell.arm} ${cell.seed} ${cell.phase}`}><a href={jobPath(cell.job_id)}>{cells.rows[cell.arm]?.name ?? `arm ${cell.arm}`}, seed {cell.seed}</a>
                  {phaseText(cell.phase) && `, ${phaseText(cell.phase)}`}: {kind}{cell.diverged && kind !== "diverged" ? ", diverged" : ""}
                  {kind === "failed" && cell.failure !== "FAILURE_KIND_UNSPECIFIED" && ` (${cell.failure.toLowerCase().replace(/_/g, " ")})`}</li>;
              })}
            </ul>
            {trouble.length > 12 && <p class="muted">And {counted(trouble.length - 12, "more cell")}: <a href="?tab=grid">grid</a></p>}
          </section>
        )}
      </div>
      {more && !results.state && (
        <p class="muted">{shown.length} of {arms.length} arms are in the chart (the baseline and the first {shown.length - 1}). <button type="button" onClick={() => setView({ tab: "lengths" })}>Choose others</button></p>
      )}
      {results.state ?? (data && data.panels.length > 0 ? <ChartCard draw={draw} sweep={sweep.name} />
        : <NothingYet sweep={sweep} what="Of the first arms nothing is measured" />)}
    </>
  );
}
