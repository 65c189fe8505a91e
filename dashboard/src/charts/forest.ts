// Forest plots: estimates with intervals, one below the other: paired differences from the baseline, claims against their margins,
// effects of a factorial. Numbers stand beside their marks as text.
import * as Plot from "@observablehq/plot";
import type { ClaimRow, ComparisonRow, EffectRow } from "../api/types";
import {
  armLabel, claimMethodText, counted, decimalsFor, finite, levelText, methodText, pText, phaseText, shortest, unitOf, verdictText, withInterval,
} from "../tables/format";
import type { Records } from "../tables/sheet";
import { comparisonRecords } from "../tables/result_sheets";
import { type DrawOptions, type Figure, type Panel, FONT, compose, element, markerPath, padded, plot, robustRange, textWidth, wrapped } from "./figure";
import { type View, firstLines, isIn, seedCounts, viewText } from "./rows";
import { type Arm, BASELINE_STYLE, DOWN, colourOf } from "./style";

export interface ForestRow {
  label: string;
  heading?: boolean;
  arm?: Arm;
  estimate?: number | undefined;
  low?: number | undefined;
  high?: number | undefined;
  outerLow?: number | undefined;
  outerHigh?: number | undefined;
  margin?: { low: number; high: number } | undefined;  // shaded
  numbers: string;
  tooltip?: string;
  attributes?: Record<string, string | number | undefined>;
}

export interface ForestData {
  name: string;
  title: string;
  rows: ForestRow[];
  xLabel: string;
  caption: string[];
  records: Records;
}

const median = (values: number[]) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

// Decimals for all rows of a figure, by the median half-width: a column is read at a glance only if its points line up.
export function commonDecimals(rows: readonly { low?: unknown; high?: unknown }[]): number {
  const widths = rows.flatMap((row) => {
    const low = finite(row.low as number | undefined), high = finite(row.high as number | undefined);
    return low !== undefined && high !== undefined ? [(high - low) / 2] : [];
  });
  return widths.length > 0 ? decimalsFor(median(widths)) : 4;
}

export type ForestSort = "table" | "difference" | "p" | "arm";

export interface DifferencesQuery {
  metric: string;
  view: View;
  ntk: boolean;
  arms: readonly Arm[];
  lengths?: readonly number[] | undefined;
  sort: ForestSort;
  phases: boolean;
  margins: readonly { arm: string; baseline: string; length: number; ntk: boolean; margin: number; claim: string }[];
  sweep: string;
}

export function prepareDifferences(rows: readonly ComparisonRow[], query: DifferencesQuery): ForestData {
  const own = rows.filter((row) => isIn(row, query.metric, query.view) && Number(row.length) > 0);
  // Where NTK cannot act the pair was measured once, as NTK off.
  const withNtk = new Set(own.filter((row) => row.ntk).map((row) => `${row.arm_json} ${row.length}`));
  const shown = own.filter((row) => row.ntk === query.ntk || (query.ntk && !row.ntk && withNtk.size > 0 && !withNtk.has(`${row.arm_json} ${row.length}`)))
    .filter((row) => query.arms.some((arm) => arm.json === row.arm_json) && (!query.lengths || query.lengths.includes(Number(row.length))));
  const byJson = new Map(query.arms.map((arm) => [arm.json, arm]));
  const decimals = commonDecimals(shown);
  const forest: ForestRow[] = [];
  const trouble = new Map<string, string[]>(); // what, and at which lengths
  const say = (what: string, length: number) => trouble.set(what, [...(trouble.get(what) ?? []), String(length)]);
  const lengths = [...new Set(shown.map((row) => Number(row.length)))].sort((a, b) => a - b);
  const claims = new Set<string>();
  const marks = new Set(query.phases ? shown.map((row) => row.standing) : []);
  for (const length of lengths) {
    const cells = sortRows(shown.filter((row) => Number(row.length) === length), query.sort);
    forest.push({ label: `length ${length}`, heading: true, numbers: "" });
    for (const row of cells) {
      const estimate = finite(row.difference), low = finite(row.low), high = finite(row.high);
      const p = finite(row.p), holm = finite(row.p_adjusted);
      const claim = query.margins.find((one) => one.arm === row.arm_json && one.baseline === row.baseline_json && one.ntk === row.ntk &&
        one.length === length);
      if (claim) claims.add(claim.claim);
      const numbers = [withInterval(estimate, low, high, decimals), `n = ${row.n}`,
        p === undefined ? "no p" : `p ${pText(p)}`, ...(holm === undefined ? [] : [`Holm ${pText(holm)}`])].join(", ") +
        (marks.size > 1 && !row.standing.startsWith("confirmatory") ? " *" : "") +
        (row.diverged_seeds.length > 0 ? `, ${row.diverged_seeds.length} diverged` : "") + (row.missing_seeds.length > 0 ? `, ${row.missing_seeds.length} missing` : "");
      if (row.diverged_seeds.length > 0) say(`${armLabel(row.arm_json)}: ${seeds(row.diverged_seeds)} diverged in either arm (not in the mean)`, length);
      if (row.missing_seeds.length > 0) say(`${armLabel(row.arm_json)}: ${seeds(row.missing_seeds)} missing`, length);
      const arm = byJson.get(row.arm_json);
      forest.push({
        label: armLabel(row.arm_json), ...(arm ? { arm } : {}), estimate, low, high, numbers,
        margin: claim ? { low: -claim.margin, high: claim.margin } : undefined,
        tooltip: `${armLabel(row.arm_json)} less ${armLabel(row.baseline_json)}, length ${length}: ${numbers}` + (row.note ? `; ${row.note}` : "") +
          (row.standing ? `; ${row.standing}` : "") + `; jobs ${row.job_ids.join(" ")}`,
        attributes: { "data-arm": row.arm_json, "data-baseline": row.baseline_json, "data-metric": row.metric, "data-length": row.length, "data-ntk": String(row.ntk),
          "data-difference": text(estimate), "data-low": text(low), "data-high": text(high), "data-n": row.n, "data-p": text(p), "data-p-adjusted": text(holm) },
      });
    }
  }
  const baselines = [...new Set(shown.map((row) => armLabel(row.baseline_json)))];
  const levels = [...new Set(shown.map((row) => levelText(row.level)))].join("/");
  const methods = [...new Set(shown.filter((row) => row.method).map((row) => methodText(row.method)))].join(", ");
  const families = [...new Set(shown.map((row) => row.family_size))].join("/");
  const standings = !query.phases ? [] : [...new Set(shown.map((row) => row.standing).filter(Boolean))];
  const unit = unitOf(query.metric);
  return {
    name: `${query.metric}-differences-${query.view.split}`,
    title: `${query.sweep ? `${query.sweep}: ` : ""}${query.metric}, difference from ${baselines.join(" / ")}, ${viewText(query.view)}, NTK ${query.ntk ? "on" : "off"}`,
    rows: forest, xLabel: `arm less baseline${unit ? ` (${unit})` : ""}`,
    caption: shown.length === 0 ? [] : [
      `Mean paired difference (arm less baseline, same seed), ${seedCounts(shown.filter((row) => row.difference !== undefined).map((row) => row.n), "pair")}, with the ${levels} ${methods}`,
      `p: two-sided, unadjusted; Holm: the same, adjusted over ${families} ${families === "1" ? "comparison" : "comparisons"} of ${query.metric}`,
      ...(shown.some((row) => row.difference !== undefined && row.low === undefined) ? ["A mark without a line: no interval (one pair, or no variance)"] : []),
      ...(claims.size > 0 ? [`Shaded: the margin that ${[...claims].join(", ")} ${claims.size === 1 ? "declares" : "declare"}`] : []),
      ...(standings.length === 1 ? [`Every number is ${standings[0]}`] : standings.length > 1 ? [`* ${standings.filter((standing) => !standing.startsWith("confirmatory")).join("; ")}; the others are confirmatory`] : []),
      ...(query.ntk && shown.some((row) => !row.ntk) ? ["Where Dynamic NTK cannot act, both settings show the same measurement"] : []),
      ...firstLines([...trouble].map(([what, at]) => what + (at.length === lengths.length ? "" : ` at ${at.length > 1 ? "lengths" : "length"} ${at.join(", ")}`)), 8, "diverged and missing seeds"),
    ],
    records: comparisonRecords(shown),
  };
}

function sortRows(rows: ComparisonRow[], sort: ForestSort): ComparisonRow[] {
  const last = (value: number | undefined) => value ?? Infinity;
  if (sort === "difference") return [...rows].sort((a, b) => last(finite(a.difference)) - last(finite(b.difference)));
  if (sort === "p") return [...rows].sort((a, b) => last(finite(a.p)) - last(finite(b.p)));
  if (sort === "arm") return [...rows].sort((a, b) => armLabel(a.arm_json).localeCompare(armLabel(b.arm_json), "en", { numeric: true }));
  return rows;
}

const seeds = (list: readonly string[]) => `${list.length === 1 ? "seed" : "seeds"} ${list.join(", ")}`;
const text = (value: number | undefined) => (value === undefined ? undefined : shortest(value));

// The margin of a claim as the range that it speaks of: equivalence lies within, `differs` refutes by it, of rises_less what is forgiven.
export function marginOf(row: ClaimRow): { low: number; high: number } | undefined {
  const margin = finite(row.claim?.margin) ?? 0;
  if (!(margin > 0) || row.claim?.kind === "RISES_LESS") return undefined;
  return { low: -margin, high: margin };
}

// Of the plain interval: one less the family's alpha. With looks each row's alpha is a share of it.
export function levelOfClaims(rows: readonly ClaimRow[]): string {
  const levels = [...new Set(rows.filter((row) => row.look === 0 && finite(row.alpha) !== undefined).map((row) => levelText(1 - Number(row.alpha))))];
  return levels.length === 1 ? ` (${levels[0]})` : "";
}

export function prepareClaims(rows: readonly ClaimRow[], sweep: string): ForestData {
  const decimals = commonDecimals(rows);
  const methods = [...new Set(rows.map((row) => claimMethodText(row.method)).filter(Boolean))].join("; ");
  const counts = rows.filter((row) => row.estimate !== undefined).map((row) => row.n);
  return {
    name: "claims", title: `${sweep ? `${sweep}: ` : ""}claims, estimates and verdicts`, xLabel: "estimate (in the claim's metric)",
    rows: rows.map((row) => {
      const estimate = finite(row.estimate), low = finite(row.low), high = finite(row.high);
      return {
        label: row.claim?.name ?? "", estimate, low, high, outerLow: finite(row.family_low), outerHigh: finite(row.family_high), margin: marginOf(row),
        numbers: `${verdictText(row.verdict)}: ${withInterval(estimate, low, high, decimals)}, n = ${row.n}`, tooltip: row.sentence,
        attributes: { "data-claim": row.claim?.name, "data-verdict": row.verdict, "data-estimate": text(estimate), "data-low": text(low), "data-high": text(high),
          "data-family-low": text(finite(row.family_low)), "data-family-high": text(finite(row.family_high)), "data-n": row.n },
      };
    }),
    caption: [
      `Mean over ${seedCounts(counts, "pair")} paired by seed; thick: the plain interval${levelOfClaims(rows)}; thin with caps: simultaneous over the family of ${counted(rows.length, "claim")} (Bonferroni)`,
      ...(rows.some((row) => marginOf(row)) ? ["Shaded: the declared margin"] : []),
      ...(rows.some((row) => row.claim?.kind === "RISES_LESS") ? ["Of rises_less the estimate is the difference of rises"] : []),
      ...(methods ? [`Method: ${methods}`] : []),
    ],
    records: {
      columns: ["claim", "verdict", "standing", "n", "estimate", "low", "high", "family_low", "family_high", "p", "p_adjusted", "alpha", "method", "margin", "seeds", "jobs"],
      rows: rows.map((row) => [row.claim?.name, verdictText(row.verdict), row.standing, row.n, ...[row.estimate, row.low, row.high, row.family_low, row.family_high, row.p,
        row.p_adjusted, row.alpha].map((value) => (value === undefined ? "" : shortest(Number(value)))), row.method, shortest(finite(row.claim?.margin) ?? 0),
        row.seeds.join(" "), row.job_ids.join(" ")]),
    },
  };
}

export function prepareEffects(rows: readonly EffectRow[], metric: string, view: View, ntk: boolean, sweep: string): ForestData {
  const shown = rows.filter((row) => row.metric === metric && row.split === view.split && row.phase === view.phase && row.ntk === ntk);
  const decimals = commonDecimals(shown);
  const forest: ForestRow[] = [];
  for (const length of [...new Set(shown.map((row) => Number(row.length)))].sort((a, b) => a - b)) {
    forest.push({ label: `length ${length}`, heading: true, numbers: "" });
    for (const row of shown.filter((one) => Number(one.length) === length).sort((a, b) => a.factors.length - b.factors.length)) {
      const estimate = finite(row.effect), low = finite(row.low), high = finite(row.high), p = finite(row.p), holm = finite(row.p_adjusted);
      const label = `${row.factors.map((factor) => factor.slice(factor.lastIndexOf(".") + 1)).join(" × ")}: ${row.levels.join(", ")}`;
      forest.push({ label, estimate, low, high, tooltip: `${label}; jobs ${row.job_ids.join(" ")}`,
        numbers: [withInterval(estimate, low, high, decimals), `n = ${row.n}`, p === undefined ? "no p" : `p ${pText(p)}`, ...(holm === undefined ? [] : [`Holm ${pText(holm)}`])].join(", "),
        attributes: { "data-factors": row.factors.join(" "), "data-length": row.length, "data-effect": text(estimate), "data-low": text(low), "data-high": text(high), "data-n": row.n } });
    }
  }
  const unit = unitOf(metric);
  return {
    name: `${metric}-effects-${view.split}`, title: `${sweep ? `${sweep}: ` : ""}effects on ${metric}, ${viewText(view)}, NTK ${ntk ? "on" : "off"}`, rows: forest,
    xLabel: `effect${unit ? ` (${unit})` : ""}`,
    caption: shown.length === 0 ? [] : [
      `Main effects and two-way interactions, averaged over the other factors, paired by seed: mean over ${seedCounts(shown.map((row) => row.n))} with the ` +
        `${[...new Set(shown.map((row) => levelText(row.level)))].join("/")} t interval`,
      `p: two-sided, unadjusted; Holm: adjusted over ${[...new Set(shown.map((row) => row.family_size))].join("/")} effects`,
      ...[...new Set(shown.map((row) => row.note).filter(Boolean))].slice(0, 4)],
    records: {
      columns: ["factors", "levels", "metric", "length", "ntk", "split", "n", "effect", "sd", "low", "high", "p", "p_adjusted", "family_size", "level", "seeds", "jobs", "note", "phase", "standing"],
      rows: shown.map((row) => [row.factors.join(" "), row.levels.join(", "), row.metric, row.length, row.ntk, row.split, row.n,
        ...[row.effect, row.sd, row.low, row.high, row.p, row.p_adjusted].map((value) => (value === undefined ? "" : shortest(Number(value)))), row.family_size,
        shortest(Number(row.level)), row.seeds.join(" "), row.job_ids.join(" "), row.note, phaseText(row.phase) || "plain", row.standing]),
    },
  };
}

const MOST_LABEL = 290; // pixels; longer ones take two lines

export function drawForest(data: ForestData, options: DrawOptions): Figure {
  const { theme } = options;
  const values = data.rows.flatMap((row) => [row.estimate, row.low, row.high, row.outerLow, row.outerHigh].filter((value) => value !== undefined));
  const { range: robust, beyond } = robustRange(values);
  const margins = data.rows.flatMap((row) => (row.margin ? [row.margin.low, row.margin.high] : []));
  const range = padded({ low: Math.min(robust.low, 0, ...margins), high: Math.max(robust.high, 0, ...margins) }, 0.06);
  const caption = beyond > 0 ? [...data.caption, "What is beyond the axis ends at its edge with an open triangle; the numbers are whole"] : data.caption;
  const labels = Math.min(MOST_LABEL, Math.max(60, ...data.rows.map((row) => textWidth(row.label, row.heading ? 12 : FONT) + (row.heading ? 0 : 30))));
  const linesOf = (row: ForestRow) => wrapped(row.label, Math.floor((MOST_LABEL - 24) / (0.56 * FONT)));
  const tall = data.rows.some((row) => linesOf(row).length > 1);
  const numbers = Math.max(60, ...data.rows.map((row) => textWidth(row.numbers, 10) * 0.96));
  const wide = options.width - labels - numbers >= 260;
  const step = wide ? (tall ? 30 : 20) : 46;
  const panel: Panel = {
    title: "",
    draw: ({ width, document }) => {
      const marginLeft = wide ? labels + 8 : 8, marginRight = wide ? numbers + 18 : 8, marginTop = 6, marginBottom = 40;
      const height = marginTop + marginBottom + step * data.rows.length + 4;
      const inside = (value: number) => value >= range.low && value <= range.high;
      const clamp = (value: number) => Math.min(Math.max(value, range.low), range.high);
      const at = (i: number) => i + (wide ? 0.5 : 0.8);
      const rows = data.rows.map((row, i) => ({ row, y: at(i), top: i }));
      const plain = rows.filter(({ row }) => row.low !== undefined && row.high !== undefined);
      const outer = rows.filter(({ row }) => row.outerLow !== undefined && row.outerHigh !== undefined);
      type Placed = (typeof rows)[number];
      const svg = plot({
        document, width, height, marginLeft, marginRight, marginTop, marginBottom,
        style: { background: "none", overflow: "visible", color: theme.ink, fontSize: `${FONT}px` },
        x: { type: "linear", domain: [range.low, range.high] },
        y: { type: "linear", domain: [data.rows.length, 0], axis: null },
        marks: [
          Plot.rect(rows.filter(({ row }) => row.margin), { x1: (d: Placed) => d.row.margin?.low, x2: (d: Placed) => d.row.margin?.high, y1: (d: Placed) => d.top + (wide ? 0.04 : 0.64),
            y2: (d: Placed) => d.top + 0.96, fill: theme.band, fillOpacity: 0.28 }),
          Plot.gridX({ stroke: theme.grid, strokeOpacity: 1, ticks: Math.max(3, Math.floor((width - marginLeft - marginRight) / 80)) }),
          Plot.axisX({ label: null, color: theme.ink, ticks: Math.max(3, Math.floor((width - marginLeft - marginRight) / 80)), tickSize: 4 }),
          Plot.frame({ stroke: theme.muted, strokeWidth: 0.8 }),
          Plot.ruleX([0], { stroke: theme.ink, strokeWidth: 1.2, strokeDasharray: "3,3" }),
          Plot.ruleY(outer, { x1: (d: Placed) => clamp(d.row.outerLow ?? 0), x2: (d: Placed) => clamp(d.row.outerHigh ?? 0), y: "y", stroke: theme.ink, strokeWidth: 1 }),
          ...(["outerLow", "outerHigh"] as const).map((end) => Plot.dot(outer.filter(({ row }) => inside(row[end] ?? 0)), { x: (d: Placed) => d.row[end], y: "y", r: 3.5,
            symbol: { draw: (context: CanvasRenderingContext2D, size: number) => { const r = Math.sqrt(size / Math.PI); context.moveTo(0, -r); context.lineTo(0, r); } } as unknown as Plot.SymbolType,
            stroke: theme.ink, strokeWidth: 1 })),
          Plot.ruleY(plain, { x1: (d: Placed) => clamp(d.row.low ?? 0), x2: (d: Placed) => clamp(d.row.high ?? 0), y: "y", stroke: theme.ink, strokeWidth: 2.4 }),
        ],
      });
      const x = svg.scale("x"), y = svg.scale("y");
      if (!x || !y) return svg;
      // On narrow pages text lies over the grid and the line of zero.
      const halo = wide ? {} : { stroke: theme.background, "stroke-width": 3.5, "stroke-linejoin": "round", "paint-order": "stroke" };
      rows.forEach(({ row, y: place, top }) => {
        const group = element(document, "g", { ...row.attributes });
        if (row.tooltip) group.append(element(document, "title", {}, row.tooltip));
        const middle = y.apply(place), style = row.arm?.style ?? { ...BASELINE_STYLE, dash: "" }, colour = colourOf(style, theme);
        if (row.estimate !== undefined) {
          const off = !inside(row.estimate);
          const r = 4.2;
          group.append(element(document, "path", { d: markerPath(off ? DOWN : style.marker, r), stroke: row.arm ? colour : theme.ink, "stroke-width": 1.4,
            fill: off || style.hollow ? theme.background : row.arm ? colour : theme.ink,
            transform: `translate(${x.apply(clamp(row.estimate))},${middle})${off ? ` rotate(${row.estimate > range.high ? -90 : 90})` : ""}` }));
        }
        for (const [value, high] of [[row.outerLow ?? row.low, false], [row.outerHigh ?? row.high, true]] as const) {
          if (value === undefined || inside(value) || (row.estimate !== undefined && !inside(row.estimate))) continue;
          group.append(element(document, "path", { d: markerPath(DOWN, 3.6), stroke: theme.ink, fill: theme.background, transform: `translate(${x.apply(clamp(value)) + (high ? -4 : 4)},${middle}) rotate(${high ? -90 : 90})` }));
        }
        const baseline = wide ? middle + 4 : y.apply(top) + 14;
        const labelX = row.heading ? 4 : 18;
        if (row.arm) group.append(element(document, "path", { d: markerPath(style.marker, 3.2), stroke: colour, fill: style.hollow ? theme.background : colour, transform: `translate(10,${baseline - 4})` }));
        const lines = row.heading ? [row.label] : wide ? linesOf(row).slice(0, 2)
          : [textWidth(row.label, FONT) < width - 24 ? row.label : `${row.label.slice(0, Math.floor((width - 30) / (0.56 * FONT)))}…`];
        lines.forEach((line, k) => group.append(element(document, "text", { x: labelX, y: row.heading && !wide ? y.apply(top) + 30 : baseline + 12 * (k - (lines.length - 1) / 2),
          "font-size": row.heading ? 12 : FONT, "text-anchor": "start", fill: theme.ink, "font-weight": row.heading ? "bold" : undefined, ...halo }, line)));
        if (row.numbers) {
          group.append(element(document, "text", wide ? { x: width - marginRight + 10, y: middle + 4, "font-size": 10, "text-anchor": "start", fill: theme.ink }
            : { x: 18, y: baseline + 12, "font-size": 9, "text-anchor": "start", fill: theme.muted, ...halo }, row.numbers));
        }
        svg.append(group);
      });
      svg.append(element(document, "text", { x: marginLeft + (width - marginLeft - marginRight) / 2, y: height - 4, "font-size": FONT, "text-anchor": "middle", fill: theme.ink }, data.xLabel));
      return svg;
    },
  };
  return compose({ name: data.name, title: data.title, caption, panels: [panel], columns: 1, minimum: 200, legend: [], records: data.records }, options);
}
