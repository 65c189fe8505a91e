// A metric by evaluation length: one line an arm with its interval, the baseline heavy and dashed, NTK off and on in panels of their own.
import * as Plot from "@observablehq/plot";
import type { ConfidenceRow } from "../api/types";
import { metricWithUnit, shortest, significant } from "../tables/format";
import type { Records } from "../tables/sheet";
import {
  type DrawOptions, type Figure, type LegendEntry, type Panel, type Range, FONT, compose, described, directLabels, padded, plot, robustRange,
  textWidth,
} from "./figure";
import { type KeyOf, type Point, type Series, type View, byArm, firstLines, isIn, seriesByLength, standingText, statisticText, troubles, viewText } from "./rows";
import { type Arm, DIVERGED, DOWN, UP, armName, colourOf } from "./style";

export interface LengthsData {
  metric: string;
  view: View;
  panels: { ntk: boolean; series: Series[] }[];
  phases: boolean;
  lengths: number[];
  trainLength: number;    // 0: not known
  range: Range;
  beyond: number;
  title: string;
}

export interface LengthsQuery {
  metric: string;
  view: View;
  ntk: "off" | "on" | "both";
  arms: readonly Arm[];   // those to show
  phases: boolean;        // the sweep has phases: what numbers count as is said
  trainLength: number;
  sweep: string;          // for the title
  keyOf?: KeyOf;
}

export function prepareLengths(rows: readonly ConfidenceRow[], query: LengthsQuery): LengthsData {
  const { metric, view } = query;
  const hasNtk = rows.some((row) => isIn(row, metric, view) && row.ntk);
  const settings = query.ntk === "both" ? (hasNtk ? [false, true] : [false]) : query.ntk === "on" ? (hasNtk ? [true] : []) : [false];
  const panels = settings
    .map((ntk) => ({ ntk, series: seriesByLength(rows, query.arms, metric, view, ntk, query.keyOf ?? byArm) }))
    .filter((panel) => panel.series.length > 0);
  const points = panels.flatMap((panel) => panel.series.flatMap((series) => series.points));
  const values = points.flatMap((point) => [point.mean, point.low, point.high].filter((value) => value !== undefined));
  const { range, beyond } = robustRange(values);
  return {
    metric, view, panels, beyond, phases: query.phases, range: padded(range, 0.06),
    lengths: [...new Set(points.map((point) => point.length))].sort((a, b) => a - b),
    trainLength: query.trainLength,
    title: `${query.sweep ? `${query.sweep}: ` : ""}${metric} by evaluation length, ${viewText(view)}`,
  };
}

// "1×", "0.5×"; "" where the training length is not known.
export function multipleText(length: number, trainLength: number): string {
  return trainLength > 0 ? `${shortest(Number((length / trainLength).toPrecision(6)))}×` : "";
}

export function lengthsRecords(data: LengthsData): Records {
  return {
    columns: ["arm", "arm_json", "sweep", "baseline", "metric", "split", "phase", "ntk", "length", "n", "mean", "low", "high", "level", "method",
      "seeds", "diverged_seeds", "missing_seeds", "jobs", "note", "standing"],
    rows: data.panels.flatMap((panel) => panel.series.flatMap(({ arm, points }) => points.map((point) => {
      const { row } = point;
      const exact = (value: number | undefined) => (value === undefined ? "" : shortest(value));
      return [arm.label, arm.json, row.sweep, arm.baseline, row.metric, row.split, row.phase.toLowerCase(), panel.ntk, point.length, point.n,
        exact(point.mean), exact(point.low), exact(point.high), exact(Number(row.level)), row.method, row.seeds.join(" "),
        row.diverged_seeds.join(" "), row.missing_seeds.join(" "), row.job_ids.join(" "), row.note, row.standing];
    }))),
  };
}

const MOST_BANDS = 5; // more merge to grey in print

export function lengthsCaption(data: LengthsData): string[] {
  const series = data.panels.flatMap((panel) => panel.series);
  const points = series.flatMap((one) => one.points);
  const arms = Math.max(0, ...data.panels.map((panel) => panel.series.length));
  const caption = [statisticText(points)];
  const bars = points.some((point) => point.low !== undefined);
  if (bars && points.some((point) => point.mean !== undefined && point.low === undefined))
    caption.push("A mark without a bar has no interval: a single seed, or seeds without any variance");
  if (arms > 1) caption.push(`At each length the arms' marks stand side by side${arms > MOST_BANDS || !bars ? "" : "; bands join the ends of the bars"}`);
  const baselines = [...new Map(series.filter(({ arm }) => arm.baseline).map(({ arm }) => [arm.key, arm])).values()];
  if (baselines.length === 1) caption.push(`Heavy dashed line: the baseline ${baselines[0]?.label}`);
  if (baselines.length > 1) caption.push(`Heavy dashed lines: the baselines ${baselines.map((arm) => `${arm.label}${arm.sweep ? ` of ${arm.sweep}` : ""}`).join(", ")}`);
  caption.push(...standingText(points, data.phases));
  if (data.panels.some((panel) => panel.ntk)) caption.push("Where Dynamic NTK cannot act, both settings show the same measurement");
  const signs = [points.some((point) => point.diverged.length > 0) ? "a cross: seeds diverged there" : "", points.some((point) => point.missing.length > 0) ? "a question mark: seeds are missing" : ""].filter(Boolean);
  if (signs.length > 0) caption.push(`Above a mark or at the edge, ${signs.join("; ")}`);
  if (data.beyond > 0)
    caption.push(`${data.beyond} ${data.beyond === 1 ? "value" : "values"} (means or ends of intervals) so far off lie at the edge, means as open triangles; the table has them`);
  const wrong = troubles(data.panels[0]?.series ?? []);
  const more = data.panels.slice(1).flatMap((panel) => troubles(panel.series).filter((line) => !wrong.includes(line)).map((line) => `NTK on, ${line}`));
  return [...caption, ...firstLines([...wrong, ...more], 8, "diverged and missing seeds")];
}

export function tooltip(arm: Arm, point: Point): string {
  const { row } = point;
  const at = `${armName(arm)}${arm.sweep ? ` of ${arm.sweep}` : ""}, length ${point.length}${point.ntk ? ", NTK on" : ""}`;
  if (point.mean === undefined) return `${at}: no mean; ${row.note}`;
  const interval = point.low === undefined || point.high === undefined ? "no interval"
    : `${significant(point.low, 6)} to ${significant(point.high, 6)}`;
  return `${at}: ${significant(point.mean, 6)}, ${interval}, n = ${point.n}` + (row.note ? `; ${row.note}` : "") +
    (row.standing ? `; ${row.standing}` : "") + `; jobs ${row.job_ids.join(" ")}`;
}

export function pointAttributes(arm: Arm, point: Point, ntk: boolean): Record<string, string | number | undefined> {
  return {
    "data-arm": arm.json, "data-sweep": point.row.sweep, "data-metric": point.row.metric, "data-length": point.length, "data-ntk": String(ntk),
    "data-split": point.row.split, "data-phase": point.row.phase, "data-mean": point.mean === undefined ? undefined : shortest(point.mean),
    "data-low": point.low === undefined ? undefined : shortest(point.low), "data-high": point.high === undefined ? undefined : shortest(point.high),
    "data-n": point.n, "data-diverged": point.diverged.length || undefined, "data-missing": point.missing.length || undefined,
  };
}

interface Drawn { arm: Arm; point: Point }

// Marks of one series at `x`; used by the chart of an axis as well.
export function seriesMarks(drawn: readonly Drawn[], x: (d: Drawn) => number, ntk: boolean, dx: number, options: DrawOptions, range: Range,
                            band: boolean, heavy: boolean, line = true, dense = false): Plot.Markish[] {
  const first = drawn[0];
  if (!first) return [];
  const { theme } = options;
  const { style } = first.arm;
  const stroke = colourOf(style, theme);
  const known = drawn.filter((d) => d.point.mean !== undefined);
  const inside = known.filter((d) => (d.point.mean ?? 0) >= range.low && (d.point.mean ?? 0) <= range.high);
  const outside = known.filter((d) => !inside.includes(d));
  const whole = known.filter((d) => d.point.low !== undefined && d.point.high !== undefined);
  const bars = dense ? [] : whole;
  const clamp = (value: number) => Math.min(Math.max(value, range.low), range.high);
  const attributes = (d: Drawn) => pointAttributes(d.arm, d.point, ntk);
  const title = (d: Drawn) => tooltip(d.arm, d.point);
  const marks: Plot.Markish[] = [];
  if (band && whole.length > 1)
    marks.push(Plot.areaY(drawn, { x, y1: (d: Drawn) => d.point.low ?? NaN, y2: (d: Drawn) => d.point.high ?? NaN, fill: stroke, fillOpacity: 0.12, dx,
      clip: true, ariaHidden: "true" }));
  if (line)
    marks.push(Plot.line(drawn, { x, y: (d: Drawn) => d.point.mean ?? NaN, stroke, strokeWidth: style.width, strokeDasharray: style.dash || undefined,
      dx, clip: true, ariaHidden: "true" }));
  marks.push(Plot.ruleX(bars, { x, y1: (d: Drawn) => clamp(d.point.low ?? 0), y2: (d: Drawn) => clamp(d.point.high ?? 0), stroke, strokeWidth: heavy ? 1.8 : 1.2,
    dx, marker: undefined }));
  for (const end of ["low", "high"] as const) {
    const shown = bars.filter((d) => { const value = d.point[end] ?? NaN; return value >= range.low && value <= range.high; });
    marks.push(Plot.tickY(shown, { x: undefined, y: (d: Drawn) => d.point[end], stroke, strokeWidth: 1.2, ...caps(shown, x, dx, stroke) }));
  }
  const dots = { x, stroke, strokeWidth: 1.4, r: heavy ? 4.2 : dense ? 1.4 : 3.6, dx, title };
  marks.push(Plot.dot(inside, { ...dots, y: (d: Drawn) => d.point.mean, symbol: style.marker as unknown as Plot.SymbolType,
    fill: style.hollow ? theme.background : stroke, render: described(inside, attributes) }));
  for (const above of [true, false]) {
    const there = outside.filter((d) => ((d.point.mean ?? 0) > range.high) === above);
    marks.push(Plot.dot(there, { ...dots, y: () => (above ? range.high : range.low), symbol: (above ? UP : DOWN) as unknown as Plot.SymbolType,
      fill: theme.background, dy: above ? 6 : -6, render: described(there, attributes) }));
  }
  // Nothing to average: the cross lies at the upper edge.
  const lost = drawn.filter((d) => d.point.mean === undefined && d.point.diverged.length > 0);
  marks.push(Plot.dot(lost, { x, y: () => range.high, dx, dy: 6, r: 3.6, symbol: DIVERGED as unknown as Plot.SymbolType, fill: stroke, title,
    render: described(lost, attributes) }));
  const partly = known.filter((d) => d.point.diverged.length > 0);
  marks.push(Plot.dot(partly, { x, y: (d: Drawn) => clamp(d.point.high ?? d.point.mean ?? 0), dx, dy: -8, r: 2.6, symbol: DIVERGED as unknown as Plot.SymbolType,
    fill: stroke, title: (d: Drawn) => `${d.point.diverged.length} diverged, not in the mean` }));
  for (const measured of [true, false]) {
    const missing = drawn.filter((d) => d.point.missing.length > 0 && (d.point.mean !== undefined) === measured);
    marks.push(Plot.text(missing, { x, y: (d: Drawn) => clamp(d.point.high ?? d.point.mean ?? range.high), dx: dx + 1, dy: measured ? -9 : 8, text: () => "?",
      fill: stroke, fontWeight: "bold", title: (d: Drawn) => `${d.point.missing.length} missing` }));
  }
  return marks;
}

// The caps of error bars: ticks of a few pixels, whatever the scale.
function caps(data: readonly Drawn[], x: (d: Drawn) => number, dx: number, stroke: string): Partial<Plot.TickYOptions> {
  return {
    render: (index, scales, values, _dimensions, context) => {
      const document = context.document;
      const group = document.createElementNS("http://www.w3.org/2000/svg", "g");
      const toX = scales.x as unknown as ((value: number) => number) | undefined;
      const ys = values.y as unknown as ArrayLike<number> | undefined;
      for (const i of Array.from(index)) {
        const datum = data[i];
        if (!datum || !toX || !ys) continue;
        const at = toX(x(datum)) + dx, y = ys[i] ?? 0;
        const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
        for (const [name, value] of Object.entries({ x1: at - 3, x2: at + 3, y1: y, y2: y, stroke, "stroke-width": 1.2 })) line.setAttribute(name, String(value));
        group.append(line);
      }
      return group as unknown as SVGElement;
    },
  };
}

export function yTicksWidth(range: Range): number {
  const digits = Math.max(significant(range.low, 3).length, significant(range.high, 3).length, 4);
  return Math.max(54, textWidth("0".repeat(digits), FONT) + 36);
}

export function drawLengths(data: LengthsData, options: DrawOptions): Figure {
  const { theme } = options;
  const single = data.panels.length === 1;
  const shown = data.panels.flatMap((panel) => panel.series.map((series) => series.arm)).filter((arm, i, all) => all.indexOf(arm) === i);
  const labels = shown.map((arm) => armName(arm) + (arm.sweep ? ` · ${arm.sweep}` : ""));
  const labelWidth = Math.max(...labels.map((label) => textWidth(label, FONT)), 40) + 60;
  const direct = single && labelWidth <= options.width * 0.36 && options.width - labelWidth >= 420 && shown.length <= 18;
  const low = data.lengths[0] ?? 1, high = data.lengths[data.lengths.length - 1] ?? 1;
  const panels: Panel[] = data.panels.map((panel) => ({
    title: single && !panel.ntk ? "" : panel.ntk ? "NTK on" : "NTK off",
    draw: ({ width, document }) => {
      const marginLeft = yTicksWidth(data.range), marginRight = direct ? labelWidth : 14;
      const height = Math.round(Math.min(Math.max((width - marginLeft - marginRight) * 0.66, 230), 400));
      const room = (width - marginLeft - marginRight) / Math.max(data.lengths.length, 1);
      const step = Math.min(data.lengths.length === 1 ? 60 : 7, (room * 0.55) / Math.max(panel.series.length, 1));
      const bands = panel.series.length <= MOST_BANDS;
      const margin = data.lengths.length === 1 ? 1.18 : Math.max(1.18, 2 ** ((step * panel.series.length) / Math.max(room, 1) / 1.4));
      const svg = plot({
        document, width, height, marginLeft, marginRight, marginTop: 14, marginBottom: 46,
        style: { background: "none", overflow: "visible", color: theme.ink, fontSize: `${FONT}px` },
        x: { type: "log", base: 2, domain: [low / margin, high * margin] },
        y: { domain: [data.range.low, data.range.high] },
        marks: [
          Plot.gridY({ stroke: theme.grid, strokeOpacity: 1, ticks: 6 }),
          Plot.gridX(thinned(data.lengths, width - marginLeft - marginRight), { stroke: theme.grid, strokeOpacity: 1 }),
          Plot.axisY({ label: null, color: theme.ink, ticks: 6, tickSize: 4 }),
          Plot.axisX(thinned(data.lengths, width - marginLeft - marginRight), { label: null, color: theme.ink, tickSize: 4,
            tickFormat: (length: number) => (data.trainLength > 0 ? `${multipleText(length, data.trainLength)}\n${length}` : String(length)) }),
          Plot.frame({ stroke: theme.muted, strokeWidth: 0.8 }),
          ...[...panel.series].sort((a, b) => Number(a.arm.baseline) - Number(b.arm.baseline)).flatMap((series) => {
            const place = panel.series.indexOf(series);
            const dx = (place - (panel.series.length - 1) / 2) * step;
            return seriesMarks(series.points.map((point) => ({ arm: series.arm, point })), (d) => d.point.length, panel.ntk, dx, options, data.range,
              bands, series.arm.baseline);
          }),
        ],
      });
      axisTitles(svg, document, options, { width, height, marginLeft, marginRight, marginTop: 14, marginBottom: 46 },
        width < 420 ? "evaluation length (log scale)" : data.trainLength > 0 ? "evaluation length (× training length, tokens; log scale)" : "evaluation length (tokens; log scale)",
        metricWithUnit(data.metric));
      if (direct) {
        const x = svg.scale("x"), y = svg.scale("y");
        const ends = panel.series.flatMap((series, place) => {
          const last = [...series.points].reverse().find((point) => point.mean !== undefined);
          if (!x || !y) return [];
          if (!last) {
            const edge = series.points[series.points.length - 1];
            return edge ? [{ x: x.apply(edge.length) + (place - (panel.series.length - 1) / 2) * step, y: y.apply(data.range.high) + 6, style: series.arm.style,
              key: series.arm.key, text: `${armName(series.arm)}: no mean` }] : [];
          }
          const at = Math.min(Math.max(last.mean ?? 0, data.range.low), data.range.high);
          return [{ x: x.apply(last.length) + (place - (panel.series.length - 1) / 2) * step, y: y.apply(at), style: series.arm.style, key: series.arm.key,
            text: armName(series.arm) + (series.arm.sweep ? ` · ${series.arm.sweep}` : "") }];
        });
        directLabels(svg, document, theme, width - marginRight, ends, 16, height - 50);
      }
      return svg;
    },
  }));
  const legend: LegendEntry[] = direct ? [] : shown.map((arm, i) => ({ text: labels[i] ?? arm.label, style: arm.style, key: arm.key }));
  return compose({
    name: `${data.metric}-by-length-${data.view.split}`, title: data.title, caption: lengthsCaption(data), panels, columns: 2, minimum: 400, legend,
    records: lengthsRecords(data),
  }, options);
}

export interface Margins { width: number; height: number; marginLeft: number; marginRight: number; marginTop: number; marginBottom: number }

export function axisTitles(svg: SVGSVGElement, document: Document, options: DrawOptions, m: Margins, x: string, y: string): void {
  const make = (attributes: Record<string, string | number>, text: string) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "text");
    for (const [name, value] of Object.entries({ "font-size": FONT, "text-anchor": "middle", fill: options.theme.ink, ...attributes }))
      made.setAttribute(name, String(value));
    made.textContent = text;
    svg.append(made);
  };
  make({ x: m.marginLeft + (m.width - m.marginLeft - m.marginRight) / 2, y: m.height - 3 }, x);
  const middle = m.marginTop + (m.height - m.marginTop - m.marginBottom) / 2;
  make({ transform: `rotate(-90 11 ${middle})`, x: 11, y: middle + 4 }, y);
}

// Lengths whose labels do not overlap.
export function thinned(lengths: readonly number[], width: number): number[] {
  const low = lengths[0] ?? 1, high = lengths[lengths.length - 1] ?? 1;
  if (lengths.length < 2 || high <= low) return [...lengths];
  const kept: number[] = [];
  let last = -Infinity;
  for (const length of lengths) {
    const at = (Math.log(length / low) / Math.log(high / low)) * width;
    const room = textWidth(String(length), FONT) + 8;
    if (at - last < room) continue;
    kept.push(length);
    last = at;
  }
  return kept;
}
