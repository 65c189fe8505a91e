// A metric by a numeric axis such as attention.p: one line a length. The axis is logarithmic where values span a factor of 10; zero
// and `none` have places of their own at its left, and so has the baseline where it has no such axis.
import * as Plot from "@observablehq/plot";
import type { ConfidenceRow, Lock } from "../api/types";
import { armLabel, armValues, metricWithUnit, shortest } from "../tables/format";
import type { Records } from "../tables/sheet";
import { type DrawOptions, type Figure, type LegendEntry, type Panel, type Range, FONT, compose, element, padded, plot, robustRange, textWidth } from "./figure";
import { axisTitles, lengthsRecords, multipleText, seriesMarks, yTicksWidth } from "./lengths";
import { type Point, type View, firstLines, isIn, seriesByLength, standingText, statisticText, troubles, viewText } from "./rows";
import { type Arm, type LineStyle, BASELINE_STYLE, colourOf, orderedStyle } from "./style";

export type AxisValue = number | "none";

// Arms that are alike but for one axis.
export interface AxisGroup { axis: string; rest: string; arms: { value: AxisValue; arm: Arm }[] }

// All groups of at least two arms by one axis, axes with the most values first. An arm without the axis in it is in no group.
export function axisGroups(arms: readonly Arm[], least = 2): AxisGroup[] {
  const groups = new Map<string, AxisGroup>();
  for (const arm of arms) {
    const values = armValues(arm.json);
    for (const [axis, value] of Object.entries(values)) {
      if (typeof value !== "number" && value !== "none") continue;
      const { [axis]: _own, ...others } = values;
      const rest = JSON.stringify(others);
      const key = JSON.stringify([axis, rest, arm.sweep ?? ""]);
      if (!groups.has(key)) groups.set(key, { axis, rest, arms: [] });
      groups.get(key)?.arms.push({ value: value as AxisValue, arm });
    }
  }
  const kept = [...groups.values()].filter((group) =>
    group.arms.length >= least && group.arms.filter(({ value }) => typeof value === "number").length > 0);
  for (const group of kept) group.arms.sort((a, b) => order(a.value) - order(b.value));
  return kept.sort((a, b) => b.arms.length - a.arms.length);
}
const order = (value: AxisValue) => (value === "none" ? -Infinity : value);

// Names of the axes that have groups, the one with the most values first.
export function axesOf(arms: readonly Arm[]): string[] {
  return [...new Set(axisGroups(arms).map((group) => group.axis))];
}

// Where values lie: places on a linear scale, whatever the axis is.
export interface AxisScale {
  log: boolean;
  places: Map<string, number>;              // by text of the value; and BASELINE
  ticks: { at: number; text: string; side: boolean }[];
  domain: [number, number];
  separator: number | undefined;            // between the places at the side and the axis
}
export const BASELINE = "baseline";

export function axisScale(values: readonly AxisValue[], withBaseline: boolean): AxisScale {
  const numbers = [...new Set(values.filter((value): value is number => typeof value === "number" && Number.isFinite(value)))].sort((a, b) => a - b);
  const positive = numbers.filter((value) => value > 0);
  const low = positive[0] ?? 1, high = positive[positive.length - 1] ?? 1;
  const log = positive.length > 1 && numbers.every((value) => value >= 0) && high / low >= 10;
  const on = log ? positive : numbers;
  const at = (value: number) => (log ? Math.log10(value) : value);
  const first = at(on[0] ?? 0), last = at(on[on.length - 1] ?? 0);
  const span = last > first ? last - first : 1;
  const places = new Map<string, number>();
  const ticks: AxisScale["ticks"] = [];
  const sides: { key: string; text: string }[] = [];
  if (withBaseline) sides.push({ key: BASELINE, text: "baseline" });
  if (values.includes("none")) sides.push({ key: "none", text: "none" });
  if (log && numbers.includes(0)) sides.push({ key: "0", text: "0" });
  const step = span * 0.14;
  sides.forEach((side, i) => {
    const place = first - step * (sides.length - i) - step * 0.35;
    places.set(side.key, place);
    ticks.push({ at: place, text: side.text, side: true });
  });
  for (const value of on) {
    places.set(shortest(value), at(value));
    ticks.push({ at: at(value), text: shortest(value), side: false });
  }
  const left = sides.length > 0 ? first - step * sides.length - step * 0.9 : first - span * 0.06;
  return { log, places, ticks, domain: [left, last + span * 0.06], separator: sides.length > 0 ? first - step * 0.6 : undefined };
}

export interface AxisLine { length: number; style: LineStyle; points: { value: AxisValue; arm: Arm; point: Point }[]; baseline: Point | undefined }
export interface AxisPanel { title: string; ntk: boolean; group: AxisGroup; lines: AxisLine[]; range: Range; beyond: number }
export interface AxisData {
  metric: string;
  axis: string;
  view: View;
  panels: AxisPanel[];
  scale: AxisScale;
  lengths: number[];
  trainLength: number;
  baseline: Arm | undefined;
  locked: { value: AxisValue; text: string }[];
  split: boolean;
  phases: boolean;
  title: string;
}

export interface AxisQuery {
  metric: string;
  view: View;
  axis: string;
  ntk: "off" | "on" | "both";
  arms: readonly Arm[];     // all of the sweep: a chosen few would cut the axis
  lengths?: readonly number[];
  trainLength: number;
  phases: boolean;
  split: boolean;           // a panel a length, each with its own scale
  lock: Lock | undefined;
  sweep: string;
}

function lockedValues(lock: Lock | undefined, axis: string): AxisData["locked"] {
  if (!lock) return [];
  const valueOf = (json: string): AxisValue | undefined => {
    const value = armValues(json)[axis];
    return typeof value === "number" || value === "none" ? value : undefined;
  };
  const found: AxisData["locked"] = [];
  const say = (json: string, text: string) => {
    const value = json ? valueOf(json) : undefined;
    if (value === undefined) return;
    const same = found.find((other) => other.value === value);
    if (same) same.text += `, ${text}`;
    else found.push({ value, text });
  };
  say(lock.arm_json, lock.by_hand ? "locked by hand" : "locked by the rule");
  if (lock.rule_arm_json !== lock.arm_json) say(lock.rule_arm_json, "the rule's pick");
  if (lock.short_rule_arm_json !== lock.arm_json) say(lock.short_rule_arm_json, "1× alone would pick");
  return found;
}

export function prepareAxis(rows: readonly ConfidenceRow[], query: AxisQuery): AxisData {
  const groups = axisGroups(query.arms).filter((group) => group.axis === query.axis);
  const hasNtk = rows.some((row) => isIn(row, query.metric, query.view) && row.ntk);
  const settings = query.ntk === "both" ? (hasNtk ? [false, true] : [false]) : [query.ntk === "on"];
  const baseline = query.arms.find((arm) => arm.baseline);
  const baselineApart = baseline !== undefined && !groups.some((group) => group.arms.some(({ arm }) => arm === baseline));
  const made: AxisPanel[] = [];
  const seen = new Set<number>();
  const measured: AxisValue[] = [];
  for (const ntk of settings) {
    const series = new Map(seriesByLength(rows, query.arms, query.metric, query.view, ntk).map((one) => [one.arm.key, one.points]));
    for (const group of groups) {
      const lengths = new Set<number>();
      for (const { arm } of group.arms) for (const point of series.get(arm.key) ?? []) lengths.add(point.length);
      const wanted = [...lengths].filter((length) => !query.lengths || query.lengths.includes(length)).sort((a, b) => a - b);
      const lines = wanted.flatMap((length): AxisLine[] => {
        const points = group.arms.flatMap(({ value, arm }) => {
          const point = series.get(arm.key)?.find((one) => one.length === length);
          return point ? [{ value, arm, point }] : [];
        });
        const level = baselineApart && baseline ? series.get(baseline.key)?.find((one) => one.length === length) : undefined;
        points.forEach(({ value }) => measured.push(value));
        return points.length > 0 ? [{ length, style: BASELINE_STYLE, points, baseline: level }] : [];
      });
      if (lines.length === 0) continue;
      lines.forEach((line) => seen.add(line.length));
      const rest = groups.length > 1 ? armLabel(group.rest) : "";
      const setting = settings.length > 1 || ntk ? (ntk ? "NTK on" : "NTK off") : "";
      for (const part of query.split ? lines.map((line) => [line]) : [lines]) {
        const values = part.flatMap((line) => [...line.points.map(({ point }) => point), ...(line.baseline ? [line.baseline] : [])])
          .flatMap((point) => [point.mean, point.low, point.high].filter((value) => value !== undefined));
        const { range, beyond } = robustRange(values);
        const length = query.split ? `length ${part[0]?.length}${query.trainLength > 0 ? ` (${multipleText(part[0]?.length ?? 0, query.trainLength)})` : ""}` : "";
        made.push({ title: [rest, length, setting].filter(Boolean).join(", "), ntk, group, lines: part, range: padded(range, 0.06), beyond });
      }
    }
  }
  const lengths = [...seen].sort((a, b) => a - b);
  for (const panel of made) for (const line of panel.lines) line.style = orderedStyle(lengths.indexOf(line.length));
  // Side by side, NTK off and on are compared by eye: one scale.
  if (!query.split && made.length > 1) {
    const range = { low: Math.min(...made.map((panel) => panel.range.low)), high: Math.max(...made.map((panel) => panel.range.high)) };
    for (const panel of made) panel.range = range;
  }
  const baselineDrawn = baselineApart && made.some((panel) => panel.lines.some((line) => line.baseline));
  return {
    metric: query.metric, axis: query.axis, view: query.view, panels: made, lengths, trainLength: query.trainLength, split: query.split, phases: query.phases,
    scale: axisScale(measured, baselineDrawn), baseline: baselineDrawn ? baseline : undefined, locked: lockedValues(query.lock, query.axis),
    title: `${query.sweep ? `${query.sweep}: ` : ""}${query.metric} by ${query.axis}, ${viewText(query.view)}`,
  };
}

const MOST_BARS = 60; // values of an axis; beyond, bars would be a wall: bands, and small marks

export function axisCaption(data: AxisData): string[] {
  const lines = data.panels.flatMap((panel) => panel.lines);
  const points = lines.flatMap((line) => line.points.map(({ point }) => point));
  const caption = [statisticText([...points, ...lines.flatMap((line) => (line.baseline ? [line.baseline] : []))])];
  if (points.some((point) => point.low !== undefined) && points.some((point) => point.mean !== undefined && point.low === undefined))
    caption.push("A mark without a bar has no interval: a single seed, or seeds without any variance");
  if (data.scale.ticks.length > MOST_BARS) caption.push("Intervals as bands, means as small marks");
  if (data.scale.log) caption.push(`${data.axis} on a log scale`);
  if (data.scale.separator !== undefined) caption.push(`Left of the line: ${[
    data.baseline ? `the baseline ${data.baseline.label}, which has no ${data.axis} (thin dashed level lines)` : "",
    data.scale.places.has("none") ? "none" : "",
    data.scale.log && data.scale.places.has("0") ? "0, which a log scale has no place for" : ""].filter(Boolean).join("; ")}`);
  for (const { value, text } of data.locked) caption.push(`${data.axis} = ${value === "none" ? value : shortest(value)}: ${text}`);
  caption.push(...standingText(points, data.phases));
  if (data.split) caption.push("Each panel has a scale of its own");
  const beyond = data.panels.reduce((sum, panel) => sum + panel.beyond, 0);
  if (beyond > 0) caption.push(`${beyond} ${beyond === 1 ? "value" : "values"} so far off lie at the edge, means as open triangles; the table has them`);
  const wrong = data.panels.flatMap((panel) => troubles(panel.group.arms.map(({ arm }) => ({
    arm, points: panel.lines.flatMap((line) => line.points.filter((point) => point.arm === arm).map(({ point }) => point)) }))));
  return [...caption, ...firstLines([...new Set(wrong)], 6, "diverged and missing seeds")];
}

export function axisRecords(data: AxisData): Records {
  const panels = data.panels.map((panel) => ({
    ntk: panel.ntk,
    series: panel.lines.flatMap((line) => [
      ...line.points.map(({ arm, point }) => ({ arm, points: [point] })),
      ...(line.baseline && data.baseline ? [{ arm: data.baseline, points: [line.baseline] }] : []),
    ]),
  }));
  const records = lengthsRecords({ panels } as Parameters<typeof lengthsRecords>[0]);
  return {
    columns: [data.axis, ...records.columns],
    rows: records.rows.map((row) => {
      const value = armValues(String(row[1]))[data.axis];
      return [value === undefined ? "" : typeof value === "number" ? shortest(value) : value, ...row];
    }),
  };
}

// The ticks whose texts have room, those with the most room around them first.
export function labelled<T extends { at: number; text: string }>(ticks: readonly T[], toX: (at: number) => number): T[] {
  const room = (i: number) => Math.min((ticks[i + 1]?.at ?? Infinity) - (ticks[i]?.at ?? 0), 1e9) + Math.min((ticks[i]?.at ?? 0) - (ticks[i - 1]?.at ?? -Infinity), 1e9);
  const kept: T[] = [];
  for (const i of ticks.map((_, place) => place).sort((a, b) => room(b) - room(a) || a - b)) {
    const tick = ticks[i];
    if (!tick) continue;
    const at = toX(tick.at);
    if (kept.every((other) => Math.abs(toX(other.at) - at) >= (textWidth(other.text, FONT) + textWidth(tick.text, FONT)) / 2 + 4)) kept.push(tick);
  }
  return kept;
}

export function drawAxis(data: AxisData, options: DrawOptions): Figure {
  const { theme } = options;
  const name = data.axis.slice(data.axis.lastIndexOf(".") + 1);
  const { scale } = data;
  const lengthText = (length: number) => `length ${length}${data.trainLength > 0 ? ` (${multipleText(length, data.trainLength)})` : ""}`;
  const panels: Panel[] = data.panels.map((panel) => ({
    title: panel.title,
    draw: ({ width, document }) => {
      const marginLeft = yTicksWidth(panel.range), marginRight = 14, marginBottom = 40, marginTop = data.locked.length > 0 ? 26 : 14;
      const inner = width - marginLeft - marginRight;
      const height = Math.round(Math.min(Math.max(inner * 0.62, 220), 380));
      const toX = (at: number) => ((at - scale.domain[0]) / (scale.domain[1] - scale.domain[0])) * inner;
      const named = labelled(scale.ticks, toX);
      const texts = new Map(named.map((tick) => [tick.at, tick.text]));
      const dense = scale.ticks.length > MOST_BARS;
      const shownTicks = (dense ? named : scale.ticks).map((tick) => tick.at);
      const place = (value: AxisValue) => scale.places.get(value === "none" ? value : shortest(value)) ?? NaN;
      const svg = plot({
        document, width, height, marginLeft, marginRight, marginTop, marginBottom,
        style: { background: "none", overflow: "visible", color: theme.ink, fontSize: `${FONT}px` },
        x: { type: "linear", domain: scale.domain },
        y: { domain: [panel.range.low, panel.range.high] },
        marks: [
          Plot.gridY({ stroke: theme.grid, strokeOpacity: 1, ticks: 6 }),
          Plot.gridX(shownTicks, { stroke: theme.grid, strokeOpacity: 1 }),
          Plot.axisY({ label: null, color: theme.ink, ticks: 6, tickSize: 4 }),
          Plot.axisX(shownTicks, { label: null, color: theme.ink, tickSize: 4, tickFormat: (at: number) => texts.get(at) ?? "" }),
          Plot.frame({ stroke: theme.muted, strokeWidth: 0.8 }),
          ...(scale.separator === undefined ? [] : [Plot.ruleX([scale.separator], { stroke: theme.muted, strokeWidth: 1, strokeDasharray: "1,3" })]),
          ...data.locked.filter(({ value }) => Number.isFinite(place(value))).map(({ value }) =>
            Plot.ruleX([place(value)], { stroke: theme.ink, strokeWidth: 1, strokeDasharray: "5,3" })),
          ...panel.lines.filter((line) => line.baseline?.mean !== undefined).map((line) =>
            Plot.ruleY([line.baseline?.mean ?? 0], { stroke: colourOf(line.style, theme), strokeWidth: 0.9, strokeDasharray: "6,4", clip: true })),
          ...panel.lines.flatMap((line, i) => {
            const dx = panel.lines.length > 1 ? (i - (panel.lines.length - 1) / 2) * Math.min(3, 18 / panel.lines.length) : 0;
            const dressed = (arm: Arm): Arm => ({ ...arm, style: line.style });
            const on = line.points.filter(({ value }) => typeof value === "number" && !(scale.log && value === 0));
            const side = line.points.filter((point) => !on.includes(point));
            const draw = (points: typeof line.points, joined: boolean) =>
              seriesMarks(points.map(({ arm, point }) => ({ arm: dressed(arm), point })), (d) => placeOf(points, d.point, place), panel.ntk, dx, options,
                panel.range, joined && (dense || panel.lines.length <= 2), false, joined, joined && dense);
            return [
              ...draw(on, true), ...draw(side, false),
              ...(line.baseline && data.baseline
                ? seriesMarks([{ arm: dressed(data.baseline), point: line.baseline }], () => scale.places.get(BASELINE) ?? NaN, panel.ntk, dx, options, panel.range,
                  false, false, false)
                : []),
            ];
          }),
        ],
      });
      const x = svg.scale("x");
      data.locked.forEach(({ value, text }) => {
        const at = place(value);
        if (!x || !Number.isFinite(at)) return;
        const px = x.apply(at), half = textWidth(text, 10) / 2;
        svg.append(element(document, "text", { x: Math.min(Math.max(px, marginLeft + half), width - half), y: marginTop - 10, "font-size": 10, "text-anchor": "middle",
          fill: theme.ink, "data-locked": String(value) }, text));
      });
      axisTitles(svg, document, options, { width, height, marginLeft, marginRight, marginTop, marginBottom },
        `${name}${scale.log ? " (log scale)" : ""}`, metricWithUnit(data.metric));
      return svg;
    },
  }));
  const legend: LegendEntry[] = data.split && data.panels.length > 1 ? []
    : data.lengths.map((length) => ({ text: lengthText(length), style: orderedStyle(data.lengths.indexOf(length)), key: `length ${length}` }));
  return compose({
    name: `${data.metric}-by-${name}-${data.view.split}`, title: data.title, caption: axisCaption(data), panels, columns: data.split ? 3 : 2,
    minimum: data.split ? 300 : 400, legend, records: axisRecords(data),
  }, options);
}

function placeOf(points: AxisLine["points"], point: Point, place: (value: AxisValue) => number): number {
  const found = points.find((one) => one.point === point);
  return found ? place(found.value) : NaN;
}
