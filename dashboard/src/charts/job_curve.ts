// The stored training curve of one job: one metric by step. Points that are not finite leave a gap and are counted; long curves
// are thinned so that no extreme is lost. Must not know how the points are got.
import * as Plot from "@observablehq/plot";
import { double, int64, type CurvePoint } from "../api/types";
import { metricWithUnit, shortest, significant } from "../tables/format";
import { type DrawOptions, type Figure, FONT, compose, extent, padLog, padded, plot } from "./figure";
import { axisTitles, yTicksWidth } from "./lengths";
import { DIVERGED } from "./style";

export interface Point { step: number; value: number }

export interface JobCurveData {
  name: string;        // of its files
  metric: string;
  points: Point[];     // by step; NaN: a gap
  raw: number[];       // of the same steps, as they were stored
  from: number;        // the first step of the axis
  lost: number[];      // steps of values that are not finite
  stored: number;      // before thinning
  notFinite: number;
  hidden: number;      // that a log axis has no place for
  log: boolean;
  diverged: boolean;
}

export function metricsOf(points: readonly CurvePoint[]): string[] {
  const found = [...new Set(points.map((point) => point.metric))].sort();
  return found.includes("train_loss") ? ["train_loss", ...found.filter((metric) => metric !== "train_loss")] : found;
}

// At most about `most` points: the steps are cut into equal ranges, and of each the lowest, the highest and every one that is not
// finite stay, besides the first and the last of all (as GetCurves does).
export function thin(points: readonly Point[], most: number): Point[] {
  if (points.length <= most) return [...points];
  const first = points[0]!.step, last = points[points.length - 1]!.step;
  const ranges = Math.max(1, Math.floor((most - 2) / 2));
  const kept = new Set<number>([0, points.length - 1]);
  const low = new Map<number, number>(), high = new Map<number, number>();
  points.forEach((point, i) => {
    if (!Number.isFinite(point.value)) {
      kept.add(i);
      return;
    }
    const range = Math.min(ranges - 1, Math.floor(((point.step - first) / (last - first || 1)) * ranges));
    if (!low.has(range) || point.value < points[low.get(range)!]!.value) low.set(range, i);
    if (!high.has(range) || point.value > points[high.get(range)!]!.value) high.set(range, i);
  });
  [...low.values(), ...high.values()].forEach((i) => kept.add(i));
  return points.filter((_, i) => kept.has(i));
}

export function prepareJobCurve(points: readonly CurvePoint[], query: { name: string; metric: string; log: boolean; diverged: boolean; from?: number; most?: number }): JobCurveData {
  const all = points.filter((point) => point.metric === query.metric).map((point) => ({ step: int64(point.step), value: double(point.value) }))
    .sort((a, b) => a.step - b.step);
  const thinned = thin(all, query.most ?? 1200);
  return {
    name: query.name,
    metric: query.metric,
    points: thinned.map(({ step, value }) => ({ step, value: Number.isFinite(value) && !(query.log && value <= 0) ? value : NaN })),
    raw: thinned.map(({ value }) => value),
    from: query.from ?? all[0]?.step ?? 0,
    lost: thinned.filter(({ value }) => !Number.isFinite(value)).map(({ step }) => step),
    stored: all.length,
    notFinite: all.filter((point) => !Number.isFinite(point.value)).length,
    hidden: query.log ? all.filter((point) => point.value <= 0).length : 0,
    log: query.log,
    diverged: query.diverged,
  };
}

export function jobCurveCaption(data: JobCurveData): string[] {
  const caption = ["One run, as it was stored: no mean and no interval"];
  if (data.points.length < data.stored) caption.push(`${data.points.length} of ${data.stored} stored points are drawn; the lowest and highest of each range of steps are among them`);
  if (data.notFinite > 0) caption.push(`${data.notFinite} ${data.notFinite === 1 ? "value that is not finite leaves a gap" : "values that are not finite leave gaps"} (crosses at the top)`);
  if (data.hidden > 0) caption.push(`${data.hidden} values of 0 or below have no place on a log axis`);
  if (data.diverged) caption.push("The run diverged");
  return caption;
}

export function drawJobCurve(data: JobCurveData, options: DrawOptions): Figure {
  const { theme } = options;
  const known = data.points.filter((point) => Number.isFinite(point.value));
  const range = extent(known.map((point) => point.value));
  const shown = !Number.isFinite(range.low) ? { low: data.log ? 0.1 : 0, high: 1 } : data.log ? padLog(range, 0.05) : padded(range, 0.05);
  const last = known[known.length - 1];
  const end = Math.max(data.points[data.points.length - 1]?.step ?? 0, data.from + 1);
  return compose({
    name: `${data.name}-${data.metric}`,
    title: metricWithUnit(data.metric),
    caption: jobCurveCaption(data),
    columns: 1,
    minimum: 200,
    legend: [],
    records: { columns: ["metric", "step", "value"], rows: data.points.map(({ step }, i) => [data.metric, step, shortest(data.raw[i] ?? NaN)]) },
    panels: [{
      title: "",
      draw: ({ width, document }) => {
        const marginLeft = yTicksWidth(shown), marginRight = 16, marginTop = 12, marginBottom = 40;
        const height = Math.round(Math.min(Math.max(width * 0.36, 220), 340));
        const svg = plot({
          document, width, height, marginLeft, marginRight, marginTop, marginBottom,
          style: { background: "none", overflow: "visible", color: theme.ink, fontSize: `${FONT}px` },
          x: { type: "linear", domain: [data.from, end] },
          y: { type: data.log ? "log" : "linear", domain: [shown.low, shown.high] },
          marks: [
            Plot.gridY({ stroke: theme.grid, strokeOpacity: 1, ticks: 5 }),
            Plot.axisY({ label: null, color: theme.ink, ticks: 5, tickSize: 4, ...(data.log ? { tickFormat: (value: number) => significant(value, 3) } : {}) }),
            Plot.axisX({ label: null, color: theme.ink, ticks: Math.min(end - data.from, Math.max(3, Math.floor(width / 110))), tickSize: 4 }),
            Plot.frame({ stroke: theme.muted, strokeWidth: 0.8 }),
            Plot.line(data.points, { x: "step", y: "value", stroke: theme.colours[0] ?? theme.ink, strokeWidth: 1.5 }),
            Plot.dot(data.lost, { x: (step: number) => step, y: () => shown.high, dy: 8, r: 3.6, symbol: DIVERGED as unknown as Plot.SymbolType, fill: theme.ink,
              title: (step: number) => `step ${step}: not finite` }),
            Plot.dot(last ? [last] : [], { x: "step", y: "value", r: 3, fill: theme.colours[0] ?? theme.ink,
              title: (point: Point) => `step ${point.step}: ${significant(point.value, 6)}` }),
          ],
        });
        axisTitles(svg, document, options, { width, height, marginLeft, marginRight, marginTop, marginBottom }, "training step",
          metricWithUnit(data.metric) + (data.log ? ", log scale" : ""));
        return svg;
      },
    }],
  }, options);
}
