// Training curves: seeds faint, their mean with its interval band, one colour an arm. A run that diverged ends with a cross at its
// step; points that are not finite leave a gap and are counted. Thinning and means are the server's.
import * as Plot from "@observablehq/plot";
import { double, type Curve, type GetCurvesResponse, type MeanCurve, type Phase } from "../api/types";
import { finite, levelText, methodText, metricWithUnit, phaseText, shortest, significant } from "../tables/format";
import type { Records } from "../tables/sheet";
import { type DrawOptions, type Figure, type LegendEntry, type Panel, type Range, FONT, compose, described, directLabels, extent, padLog, padded, plot, robustRange, textWidth } from "./figure";
import { axisTitles, yTicksWidth } from "./lengths";
import { firstLines } from "./rows";
import { type Arm, DIVERGED, armName, colourOf, withoutNtk } from "./style";

export interface CurvePointData { step: number; value: number }            // NaN: a gap
// `raw`: the values as they came, infinities too.
export interface SeedCurve { arm: Arm; seed: string; points: CurvePointData[]; raw: number[]; gaps: number; diverged: CurvePointData | undefined; divergedAt: number; stored: number; jobs: string[] }
export interface MeanPoint { step: number; mean: number; low: number; high: number; n: number }
export interface MeanCurveData { arm: Arm; points: MeanPoint[]; seeds: string[]; counts: { step: number; n: number }[] }
export interface CurvesPanel { phase: Phase; metric: string; seeds: SeedCurve[]; means: MeanCurveData[]; range: Range }
export interface CurvesData {
  panels: CurvesPanel[];
  log: boolean;
  level: number | undefined;
  method: string;
  note: string;
  hidden: number;       // values that a log axis has no place for
  beyond: number;       // values so far off that they do not stretch the axis
  title: string;
}

export interface CurvesQuery { arms: readonly Arm[]; log: boolean; sweep: string; phases?: readonly Phase[] }

function seedCurve(curve: Curve, arm: Arm): SeedCurve {
  const points = curve.steps.map((step, i) => ({ step: Number(step), value: finite(curve.values[i]) ?? NaN }));
  const known = points.filter((point) => Number.isFinite(point.value));
  const at = Number(curve.diverged_at_step);
  const last = [...known].reverse().find((point) => at === 0 || point.step <= at) ?? known[known.length - 1];
  return {
    arm, seed: curve.seed, points, raw: curve.values.map(double), gaps: points.length - known.length, divergedAt: at, stored: Number(curve.stored_points), jobs: curve.job_ids,
    diverged: at > 0 ? { step: at, value: last?.value ?? NaN } : undefined,
  };
}

function meanCurve(curve: MeanCurve, arm: Arm): MeanCurveData {
  const points = curve.steps.map((step, i) => ({
    step: Number(step), mean: finite(curve.means[i]) ?? NaN, low: finite(curve.lows[i]) ?? NaN, high: finite(curve.highs[i]) ?? NaN, n: curve.n[i] ?? 0,
  }));
  const counts: MeanCurveData["counts"] = [];
  for (const { step, n } of points) if (counts[counts.length - 1]?.n !== n) counts.push({ step, n });
  return { arm, points, seeds: curve.seeds, counts };
}

export function prepareCurves(response: GetCurvesResponse, query: CurvesQuery): CurvesData {
  const byJson = new Map(query.arms.map((arm) => [arm.json, arm]));
  // Arms that differ in NTK alone share their training: the first one's curves stand for both.
  const jsons = response.arms_json.map(withoutNtk);
  const armAt = (index: number) => (jsons.indexOf(jsons[index] ?? "") === index ? byJson.get(jsons[index] ?? "") : undefined);
  const keys: { phase: Phase; metric: string }[] = [];
  for (const { phase, metric } of [...response.curves, ...response.means]) {
    if (query.phases && !query.phases.includes(phase)) continue;
    if (!keys.some((key) => key.phase === phase && key.metric === metric)) keys.push({ phase, metric });
  }
  const order: Phase[] = ["PLAIN", "SELECTING", "CONFIRMING", "TUNING"];
  keys.sort((a, b) => order.indexOf(a.phase) - order.indexOf(b.phase));
  let hidden = 0, beyond = 0;
  const panels = keys.map(({ phase, metric }): CurvesPanel => {
    const seeds = response.curves.flatMap((curve) => {
      const arm = armAt(curve.arm);
      // Where nothing has run there is nothing to draw.
      return arm && curve.phase === phase && curve.metric === metric && (curve.steps.length > 0 || Number(curve.diverged_at_step) > 0) ? [seedCurve(curve, arm)] : [];
    });
    const means = response.means.flatMap((curve) => {
      const arm = armAt(curve.arm);
      return arm && curve.phase === phase && curve.metric === metric ? [meanCurve(curve, arm)] : [];
    });
    const values = [...seeds.flatMap((one) => one.points.map((point) => point.value)), ...means.flatMap((one) => one.points.flatMap((p) => [p.mean, p.low, p.high]))]
      .filter(Number.isFinite);
    const usable = query.log ? values.filter((value) => value > 0) : values;
    hidden += query.log ? seeds.reduce((sum, one) => sum + one.points.filter((point) => point.value <= 0).length, 0) : 0;
    // Bands of two seeds can be far wider than anything that was measured: the seeds and means set the axis.
    const measured = [...seeds.flatMap((one) => one.points.map((p) => p.value)), ...means.flatMap((one) => one.points.map((p) => p.mean))]
      .filter((value) => Number.isFinite(value) && (!query.log || value > 0));
    const set = measured.length > 0 ? measured : usable;
    const bounds = extent(set);
    const robust = query.log ? { range: bounds, beyond: 0 } : robustRange(set);
    beyond += robust.beyond;
    const range = Number.isFinite(bounds.low) ? robust.range : { low: query.log ? 0.1 : 0, high: 1 };
    return { phase, metric, seeds, means, range: query.log ? padLog(range, 0.05) : padded(range, 0.05) };
  }).filter((panel) => panel.seeds.length + panel.means.length > 0);
  const metrics = [...new Set(panels.map((panel) => panel.metric))];
  return {
    panels, log: query.log, level: finite(response.level), method: response.method, note: response.note, hidden, beyond,
    title: `${query.sweep ? `${query.sweep}: ` : ""}${metrics.join(", ") || "training curves"} by training step`,
  };
}

export function curvesCaption(data: CurvesData): string[] {
  const means = data.panels.flatMap((panel) => panel.means);
  const counts = means.flatMap((mean) => mean.points.map((point) => point.n));
  const banded = means.some((mean) => mean.points.some((point) => Number.isFinite(point.low) && Number.isFinite(point.high)));
  const { low, high } = extent(counts);
  const n = counts.length === 0 ? "n = 0" : low === high ? `n = ${low} ${low === 1 ? "seed" : "seeds"}` : `n = ${low} to ${high} seeds`;
  const caption = [`Thick: mean over the seeds that have a finite value at a step, ${n}` + (banded && data.level !== undefined
    ? `, with the pointwise ${levelText(data.level)} ${methodText(data.method)} over seeds (band)` : "; no band, since an interval takes two seeds")];
  if (data.panels.some((panel) => panel.seeds.length > 0)) caption.push("Thin and faint: single seeds");
  if (means.some((mean) => extent(mean.points.map((point) => point.n)).high === 1)) caption.push("An arm of a single seed ends with a dot and has no band");
  const drops = means.filter((mean) => mean.counts.length > 1).map((mean) =>
    `${mean.arm.label}: n = ${mean.counts.slice(0, 4).map(({ step, n: at }, i) => (i === 0 ? `${at}` : `${at} from step ${step} on`)).join(", ")}` +
    (mean.counts.length > 4 ? ", and so on" : ""));
  caption.push(...firstLines(drops, 4, "changing n"));
  const diverged = data.panels.flatMap((panel) => panel.seeds.filter((seed) => seed.divergedAt > 0)
    .map((seed) => `${seed.arm.label}, seed ${seed.seed}: diverged at step ${seed.divergedAt} (cross)`));
  caption.push(...firstLines(diverged, 6, "diverged seeds"));
  const gaps = data.panels.reduce((sum, panel) => sum + panel.seeds.reduce((s, seed) => s + seed.gaps, 0), 0);
  if (gaps > 0) caption.push(`${gaps} ${gaps === 1 ? "point that is not finite leaves a gap" : "points that are not finite leave gaps"}`);
  if (data.beyond > 0) caption.push(`${data.beyond} ${data.beyond === 1 ? "value lies" : "values lie"} so far off that the axis leaves them out; a log scale shows them`);
  if (data.hidden > 0) caption.push(`${data.hidden} values of 0 or below have no place on a log axis`);
  if (data.note) caption.push(data.note);
  return caption;
}

export function curvesRecords(data: CurvesData): Records {
  const rows: Records["rows"] = [];
  for (const panel of data.panels) {
    const phase = panel.phase.toLowerCase();
    for (const { arm, seed, points, raw, divergedAt, jobs } of panel.seeds)
      for (const [i, { step }] of points.entries())
        rows.push([arm.label, arm.json, phase, panel.metric, "seed", seed, step, shortest(raw[i] ?? NaN), "", "", "", divergedAt || "", jobs.join(" ")]);
    for (const { arm, points, seeds } of panel.means)
      for (const { step, mean, low, high, n } of points)
        rows.push([arm.label, arm.json, phase, panel.metric, "mean", seeds.join(" "), step, shortest(mean), Number.isNaN(low) ? "" : shortest(low),
          Number.isNaN(high) ? "" : shortest(high), n, "", ""]);
  }
  return { columns: ["arm", "arm_json", "phase", "metric", "what", "seeds", "step", "value", "low", "high", "n", "diverged_at_step", "jobs"], rows };
}

// 1, 2, 5 of each decade; powers of ten alone where there are many; round numbers where there is not even one decade.
export function logTicks({ low, high }: Range): number[] {
  const decades = Math.log10(high / low);
  const of = (factors: readonly number[]) => {
    const ticks: number[] = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
      for (const factor of factors) {
        const tick = Number(`${factor}e${power}`);
        if (tick >= low && tick <= high) ticks.push(tick);
      }
    return ticks;
  };
  if (decades > 4) return of([1]).filter((_, i, all) => i % Math.ceil(all.length / 8) === 0);
  return decades > 0.9 ? of([1, 2, 5]) : of(decades > 0.3 ? [1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8] : [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.2, 2.4, 2.6, 2.8, 3, 3.2, 3.4, 3.6, 3.8, 4, 4.25, 4.5, 4.75, 5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5]);
}

// About `count`; none between two steps.
function stepTicks(panel: CurvesPanel, count: number): number | number[] {
  const steps = [...panel.seeds, ...panel.means].flatMap((one) => one.points.map((point) => point.step));
  const first = steps.reduce((low, step) => Math.min(low, step), Infinity), last = steps.reduce((high, step) => Math.max(high, step), -Infinity);
  return last - first < count && last >= first ? Array.from({ length: last - first + 1 }, (_, i) => first + i) : count;
}

export function drawCurves(data: CurvesData, options: DrawOptions): Figure {
  const { theme } = options;
  const shown = data.panels.flatMap((panel) => [...panel.means, ...panel.seeds].map(({ arm }) => arm)).filter((arm, i, all) => all.indexOf(arm) === i);
  const labelWidth = Math.max(...shown.map((arm) => textWidth(armName(arm), FONT)), 40) + 60;
  const direct = data.panels.length === 1 && labelWidth <= options.width * 0.36 && options.width - labelWidth >= 420 && shown.length <= 18;
  const severalMetrics = new Set(data.panels.map((panel) => panel.metric)).size > 1;
  const panels: Panel[] = data.panels.map((panel) => ({
    title: [severalMetrics ? panel.metric : "", phaseText(panel.phase) ? `${phaseText(panel.phase)} seeds` : ""].filter(Boolean).join(", "),
    draw: ({ width, document }) => {
      const marginLeft = yTicksWidth(panel.range), marginRight = direct ? labelWidth : 14, marginTop = 12, marginBottom = 40;
      const height = Math.round(Math.min(Math.max((width - marginLeft - marginRight) * 0.6, 230), 400));
      const usable = (value: number) => (data.log && value <= 0 ? NaN : value);
      const x = (d: { step: number }) => d.step;
      const clampedLow = (d: MeanPoint) => (data.log && d.low <= 0 ? panel.range.low : d.low);
      const marks: Plot.Markish[] = [];
      for (const seed of panel.seeds) {
        const single = panel.means.find((mean) => mean.arm === seed.arm)?.seeds.length === 1;
        marks.push(Plot.line(seed.points, { x, y: (d: CurvePointData) => usable(d.value), stroke: colourOf(seed.arm.style, theme), strokeWidth: 0.8,
          strokeOpacity: single ? 0 : 0.38, clip: true,
          render: described([seed], () => ({ "data-arm": seed.arm.json, "data-seed": seed.seed, "data-phase": panel.phase, "data-metric": panel.metric,
            "data-points": seed.points.length, "data-gaps": seed.gaps || undefined, "data-diverged": seed.divergedAt || undefined })) }));
      }
      for (const mean of [...panel.means].sort((a, b) => Number(a.arm.baseline) - Number(b.arm.baseline))) {
        const stroke = colourOf(mean.arm.style, theme), { style } = mean.arm;
        const last = [...mean.points].reverse().find((point) => Number.isFinite(point.mean));
        const attributes = (d: MeanPoint) => ({ "data-arm": mean.arm.json, "data-phase": panel.phase, "data-metric": panel.metric, "data-step": d.step,
          "data-mean": shortest(d.mean), "data-low": Number.isFinite(d.low) ? shortest(d.low) : undefined, "data-high": Number.isFinite(d.high) ? shortest(d.high) : undefined,
          "data-n": d.n });
        marks.push(Plot.areaY(mean.points, { x, y1: (d: MeanPoint) => usable(clampedLow(d)), y2: (d: MeanPoint) => usable(d.high), fill: stroke, fillOpacity: panel.means.length > 5 ? 0.09 : 0.16, clip: true, ariaHidden: "true" }));
        marks.push(Plot.line(mean.points, { x, y: (d: MeanPoint) => usable(d.mean), stroke, strokeWidth: style.width + 0.2, strokeDasharray: style.dash || undefined, clip: true }));
        // Markers along the line: in grey print they tell arms apart.
        const every = Math.max(1, Math.ceil(mean.points.length / 6));
        const place = shown.indexOf(mean.arm);
        const spots = mean.points.filter((_, i) => (i + Math.floor((place * every) / Math.max(shown.length, 1))) % every === Math.floor(every / 2));
        const dots = last && !spots.includes(last) ? [...spots, last] : spots;
        marks.push(Plot.dot(dots.filter((d) => Number.isFinite(usable(d.mean))), { x, y: (d: MeanPoint) => d.mean, r: 3.2, stroke, strokeWidth: 1.3,
          fill: style.hollow ? theme.background : stroke, symbol: style.marker as unknown as Plot.SymbolType,
          title: (d: MeanPoint) => `${armName(mean.arm)}, step ${d.step}: ${significant(d.mean, 6)}` +
            (Number.isFinite(d.low) ? `, ${significant(d.low, 6)} to ${significant(d.high, 6)}` : ", no interval") + `, n = ${d.n}`,
          render: described(dots.filter((d) => Number.isFinite(usable(d.mean))), attributes) }));
      }
      const crosses = panel.seeds.filter((seed) => seed.diverged);
      marks.push(Plot.dot(crosses, { x: (d: SeedCurve) => d.diverged?.step, y: (d: SeedCurve) => {
        const value = usable(d.diverged?.value ?? NaN);
        return Number.isFinite(value) ? Math.min(Math.max(value, panel.range.low), panel.range.high) : panel.range.high;
      }, r: 4.4, symbol: DIVERGED as unknown as Plot.SymbolType, fill: (d: SeedCurve) => colourOf(d.arm.style, theme), stroke: theme.background, strokeWidth: 0.8,
        title: (d: SeedCurve) => `${armName(d.arm)}, seed ${d.seed}: diverged at step ${d.divergedAt}`,
        render: described(crosses, (d) => ({ "data-diverged-seed": d.seed, "data-arm": d.arm.json, "data-step": d.divergedAt })) }));
      const svg = plot({
        document, width, height, marginLeft, marginRight, marginTop, marginBottom,
        style: { background: "none", overflow: "visible", color: theme.ink, fontSize: `${FONT}px` },
        x: { type: "linear" },
        y: { type: data.log ? "log" : "linear", domain: [panel.range.low, panel.range.high] },
        color: { type: "identity" },
        marks: [
          ...(data.log ? [Plot.gridY(logTicks(panel.range), { stroke: theme.grid, strokeOpacity: 1 }), Plot.axisY(logTicks(panel.range), { label: null, color: theme.ink, tickSize: 4,
            text: (value: number) => shortest(Number(value.toPrecision(6))) })]
            : [Plot.gridY({ stroke: theme.grid, strokeOpacity: 1, ticks: 6 }), Plot.axisY({ label: null, color: theme.ink, ticks: 6, tickSize: 4 })]),
          Plot.axisX({ label: null, color: theme.ink, ticks: stepTicks(panel, Math.max(3, Math.floor((width - marginLeft - marginRight) / 90))), tickSize: 4 }),
          Plot.frame({ stroke: theme.muted, strokeWidth: 0.8 }),
          ...marks,
        ],
      });
      axisTitles(svg, document, options, { width, height, marginLeft, marginRight, marginTop, marginBottom }, "training step",
        metricWithUnit(panel.metric) + (data.log ? ", log scale" : ""));
      if (direct) {
        const toX = svg.scale("x"), toY = svg.scale("y");
        const ends = shown.flatMap((arm) => {
          const mean = panel.means.find((one) => one.arm === arm);
          const last = [...(mean?.points ?? [])].reverse().find((point) => Number.isFinite(usable(point.mean)));
          if (!last || !toX || !toY) return [];
          return [{ x: toX.apply(last.step), y: toY.apply(Math.min(Math.max(last.mean, panel.range.low), panel.range.high)), style: arm.style, key: arm.key, text: armName(arm) }];
        });
        directLabels(svg, document, theme, width - marginRight, ends, 16, height - marginBottom);
      }
      return svg;
    },
  }));
  const legend: LegendEntry[] = direct ? [] : shown.map((arm) => ({ text: armName(arm), style: arm.style, key: arm.key }));
  return compose({
    name: `${[...new Set(data.panels.map((panel) => panel.metric))].join("-") || "curves"}-curves`, title: data.title, caption: curvesCaption(data), panels, columns: 2,
    minimum: 400, legend, records: curvesRecords(data),
  }, options);
}
