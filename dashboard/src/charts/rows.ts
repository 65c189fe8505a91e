// Which cells of a sweep's table a chart shows, and what is wrong with them. Pure; computes no statistics.
import type { ComparisonRow, ConfidenceRow, Phase } from "../api/types";
import { counted, finite, levelText, methodText, phaseText, splitText } from "../tables/format";
import { extent } from "./figure";
import type { Arm } from "./style";

type Row = ConfidenceRow | ComparisonRow;

// Cells of one split and phase. In URLs "selection", or "selection/confirming" in a sweep with phases.
// Without a phase: of any but tuning, where sweeps of several kinds stand side by side.
export interface View { split: string; phase?: Phase }

export function viewKey(view: View): string {
  const phase = view.phase ? phaseText(view.phase) : "";
  return phase ? `${view.split}/${phase}` : view.split;
}

export function viewText(view: View): string {
  const phase = view.phase ? phaseText(view.phase) : "";
  return splitText(view.split) + (phase ? `, ${phase} seeds` : "");
}

export function viewsOf(rows: readonly Row[], metric?: string): View[] {
  const views = new Map<string, View>();
  for (const row of rows) {
    if (!row.metric || (metric !== undefined && row.metric !== metric)) continue;
    const view = { split: row.split, phase: row.phase };
    if (!views.has(viewKey(view))) views.set(viewKey(view), view);
  }
  return [...views.values()];
}

export function isIn(row: Row, metric: string, view: View): boolean {
  return row.metric === metric && row.split === view.split && (view.phase ? row.phase === view.phase : row.phase !== "TUNING");
}

// One mean with what a chart says of it. `mean` is absent where no seed is in it.
export interface Point {
  length: number;
  mean: number | undefined;
  low: number | undefined;
  high: number | undefined;
  n: number;
  ntk: boolean;
  diverged: string[];
  missing: string[];
  row: ConfidenceRow;
}

export interface Series { arm: Arm; points: Point[] }

function pointOf(row: ConfidenceRow): Point {
  const mean = finite(row.mean), low = finite(row.low), high = finite(row.high);
  const whole = low !== undefined && high !== undefined;
  return { length: Number(row.length), mean, low: whole ? low : undefined, high: whole ? high : undefined, n: row.n, ntk: row.ntk,
    diverged: row.diverged_seeds, missing: row.missing_seeds, row };
}

// One arm's key of a row: its JSON; with the sweep's name where arms of several sweeps are shown.
export type KeyOf = (row: ConfidenceRow) => string;
export const byArm: KeyOf = (row) => row.arm_json;

// The arms' points by length. With NTK on, lengths at which it cannot act are those of NTK off: the same numbers, measured once.
export function seriesByLength(rows: readonly ConfidenceRow[], arms: readonly Arm[], metric: string, view: View, ntk: boolean,
                               keyOf: KeyOf = byArm): Series[] {
  const cells = new Map<string, Map<number, Point>>();
  for (const wanted of ntk ? [false, true] : [false]) {
    for (const row of rows) {
      if (!isIn(row, metric, view) || row.ntk !== wanted || Number(row.length) <= 0) continue;
      const point = pointOf(row);
      if (point.mean === undefined && point.diverged.length === 0 && point.missing.length === 0) continue;
      const key = keyOf(row);
      if (!cells.has(key)) cells.set(key, new Map());
      const lengths = cells.get(key);
      lengths?.set(point.length, point);
    }
  }
  return arms.flatMap((arm) => {
    const points = [...(cells.get(arm.key)?.values() ?? [])].sort((a, b) => a.length - b.length);
    return points.length > 0 ? [{ arm, points }] : [];
  });
}

export function seedCounts(counts: readonly number[], what = "seed"): string {
  const { low, high } = extent(counts);
  if (counts.length === 0) return "n = 0";
  return low === high ? `n = ${counted(low, what)}` : `n = ${low} to ${high} ${what}s`;
}

// "Mean over n = 5 seeds with the 95 % Student t interval".
export function statisticText(points: readonly Point[]): string {
  const drawn = points.filter((point) => point.mean !== undefined);
  const levels = [...new Set(drawn.map((point) => levelText(point.row.level)))].sort().join("/");
  const methods = [...new Set(drawn.filter((point) => point.row.method).map((point) => methodText(point.row.method)))].sort().join(", ");
  if (drawn.length === 0) return "No seed has a value here";
  if (drawn.every((point) => point.low === undefined)) return `Mean over ${seedCounts(drawn.map((point) => point.n))}; no interval, since one takes two seeds that differ`;
  return `Mean over ${seedCounts(drawn.map((point) => point.n))} with the ${levels} ${methods} over seeds`;
}

// What the numbers count as. A sweep without phases has nothing to tell apart.
export function standingText(points: readonly Point[], phases: boolean): string[] {
  if (!phases) return [];
  const standings = [...new Set(points.map((point) => point.row.standing.replace(/seen in job \S+/, "seen before, in another job")).filter(Boolean))].sort();
  if (standings.length === 0) return [];
  return standings.length === 1 ? [`Every number is ${standings[0]}`] : [`Of these numbers some are ${standings.join("; some ")}: which, the table says`];
}

// "Seeds 1, 3 diverged (not in the mean) at length 1024: lssar p=50"; what holds for several arms is said once.
export function troubles(series: readonly Series[]): string[] {
  const lines = new Map<string, string[]>();
  for (const { arm, points } of series) {
    const say = (pick: (point: Point) => string[], word: string) => {
      const places = new Map<string, number[]>();
      for (const point of points) {
        const seeds = pick(point);
        if (seeds.length === 0) continue;
        const key = seeds.join(", ");
        places.set(key, [...(places.get(key) ?? []), point.length]);
      }
      for (const [seeds, lengths] of places) {
        const many = seeds.includes(",");
        const where = lengths.length === points.length ? "" : ` at ${lengths.length > 1 ? "lengths" : "length"} ${lengths.join(", ")}`;
        const line = `${many ? "Seeds" : "Seed"} ${seeds} ${word}${where}`;
        lines.set(line, [...(lines.get(line) ?? []), arm.label]);
      }
    };
    say((point) => point.diverged, "diverged (not in the mean)");
    say((point) => point.missing, "missing");
  }
  const names = (arms: string[]) => arms.slice(0, 3).join("; ") + (arms.length > 3 ? ` and ${counted(arms.length - 3, "more arm")}` : "");
  return [...lines].map(([line, arms]) => `${line}: ${names(arms)}`);
}

// The first few lines and how many more there are: a caption is read, a list of hundreds is not.
export function firstLines(lines: readonly string[], most: number, what: string): string[] {
  if (lines.length <= most) return [...lines];
  return [...lines.slice(0, most), `And ${counted(lines.length - most, "more line")} of ${what}: see the table`];
}
