// The tab of a sweep's training curves.
import { useCallback, useMemo } from "preact/hooks";
import { apiUrl } from "../api/client";
import type { GetCurvesResponse } from "../api/types";
import { useLive } from "../app/live";
import { ErrorNotice, Loading } from "../app/widgets";
import { ChartCard } from "../charts/card";
import { drawCurves, prepareCurves } from "../charts/curves";
import type { DrawOptions } from "../charts/figure";
import { CURVE_METRICS } from "../tables/metrics";
import { ArmPicker, NothingYet, type TabProps, apiPath, chosenArms } from "./sweep_view";

export function CurvesTab({ sweep, arms, view, setView }: TabProps) {
  const shown = useMemo(() => chosenArms(arms, view.arms), [arms, view.arms]);
  const metrics = CURVE_METRICS.includes(view.curve) ? CURVE_METRICS : [...CURVE_METRICS, view.curve];
  const all = shown.length === arms.length;
  const { data, error } = useLive<GetCurvesResponse>(apiUrl(apiPath(sweep.name, "curves"), {
    metrics: [view.curve], arms_json: all ? [] : shown.map((arm) => arm.requested), level: view.level, max_points: shown.length > 12 ? 150 : 400,
  }));
  const curves = useMemo(() => data && prepareCurves(data, {
    arms: shown, log: view.log, sweep: sweep.name, ...(view.tuning ? {} : { phases: ["PLAIN", "SELECTING", "CONFIRMING"] as const }),
  }), [data, shown, view.log, view.tuning, sweep.name]);
  const draw = useCallback((options: DrawOptions) => drawCurves(curves!, options), [curves]);
  const tuned = data?.curves.some((curve) => curve.phase === "TUNING") ?? false;
  return (
    <>
      <div class="filters" role="group" aria-label="What is shown">
        <label class="field">Metric
          <select value={view.curve} onChange={(event) => setView({ curve: event.currentTarget.value })}>
            {metrics.map((metric) => <option key={metric} value={metric}>{metric}</option>)}
          </select>
        </label>
        <label class="field">Level of confidence
          <select value={String(view.level)} onChange={(event) => setView({ level: Number(event.currentTarget.value) })}>
            {[...new Set([0.9, 0.95, 0.99, view.level])].map((level) => <option key={level} value={String(level)}>{Number((level * 100).toPrecision(12))} %</option>)}
          </select>
        </label>
        <label><input type="checkbox" checked={view.log} onChange={() => setView({ log: !view.log })} /> log scale</label>
        {tuned && <label><input type="checkbox" checked={view.tuning} onChange={() => setView({ tuning: !view.tuning })} /> tuning runs too</label>}
      </div>
      <ArmPicker arms={arms} view={view} setView={setView} />
      {error && !data ? <ErrorNotice error={error} /> : !curves ? <Loading what="Asking for the curves" />
        : curves.panels.length === 0 ? <NothingYet sweep={sweep} what={`There is no point of ${view.curve}`} />
        : <ChartCard draw={draw} sweep={sweep.name} />}
    </>
  );
}
