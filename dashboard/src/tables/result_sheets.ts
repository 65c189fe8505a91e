// Confidence and comparison rows as sheets: one a metric, split and phase, arms as rows and lengths as columns under "NTK off" and
// "NTK on"; and as flat records. A twin of cli/result_tables.cc, held to its golden files by the test. Computes no statistics.
import type { ComparisonRow, ConfidenceRow, Double, Phase } from "../api/types";
import {
  armLabel, counted, decimalsFor, levelText, meanInterval, methodText, number, pText, phaseText, shortest, splitText,
} from "./format";
import { metricRank } from "./metrics";
import type { CsvCell, Records, Sheet } from "./sheet";

type Row = ConfidenceRow | ComparisonRow;

export interface SheetCell<R extends Row> { text: string; row: R | undefined }

// A sheet whose cells still know the rows they are made of.
export interface LinkedSheet<R extends Row> extends Sheet {
  sweep: string;
  metric: string;
  split: string;
  phase: Phase;
  arms: string[];            // arm_json by row
  cells: SheetCell<R>[][];   // by row, without the first column
}

interface Block<R extends Row> {
  rows: R[];
  sweep: string;
  metric: string;
  split: string;
  phase: Phase;
  marked: boolean; // the sweep has phases: what a number counts as is said of each
  arms: string[];
  columns: { ntk: boolean; length: number }[];
  counts: number[]; // every n seen, ascending
  halfWidth: number; // the median
  decimals: number; // by it: a column is read at a glance only if its points line up
}

const cellKey = (arm: string, ntk: boolean, length: number) => `${ntk ? 1 : 0} ${length} ${arm}`;
const unique = <T>(values: readonly T[]): T[] => [...new Set(values)];
const sorted = (values: readonly string[]) => unique(values).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));

function blocksOf<R extends Row>(rows: readonly R[], phases: boolean): Block<R>[] {
  const blocks = new Map<string, Block<R>>();
  for (const row of rows) {
    if (!row.metric) continue; // says of an arm that nothing at all was measured
    const key = JSON.stringify([row.sweep, row.metric, row.split, row.phase]);
    let block = blocks.get(key);
    if (!block) {
      block = { rows: [], sweep: row.sweep, metric: row.metric, split: row.split, phase: row.phase,
        marked: phases || phaseText(row.phase) !== "", arms: [], columns: [], counts: [], halfWidth: 0, decimals: 4 };
      blocks.set(key, block);
    }
    block.rows.push(row);
  }
  for (const block of blocks.values()) {
    block.arms = unique(block.rows.map((row) => row.arm_json));
    const columns = new Map<string, { ntk: boolean; length: number }>();
    for (const row of block.rows) columns.set(cellKey("", row.ntk, Number(row.length)), { ntk: row.ntk, length: Number(row.length) });
    block.columns = [...columns.values()].sort((a, b) => Number(a.ntk) - Number(b.ntk) || a.length - b.length);
    block.counts = unique(block.rows.map((row) => row.n)).sort((a, b) => a - b);
    const widths = block.rows.flatMap((row) => {
      const low = number(row.low), high = number(row.high);
      return low !== undefined && high !== undefined ? [(high - low) / 2] : [];
    }).sort((a, b) => a - b);
    if (widths.length > 0) {
      block.halfWidth = widths[Math.floor(widths.length / 2)] ?? 0;
      block.decimals = decimalsFor(block.halfWidth);
    }
  }
  // The metrics that people come for go first.
  return [...blocks.values()].sort((a, b) => metricRank(a.metric) - metricRank(b.metric));
}

// A row of another size than the block's median has decimals of its own: with one arm far off, the others would be "0.0 ± 0.0".
function decimalsOf<R extends Row>(block: Block<R>, row: R): number {
  const low = number(row.low), high = number(row.high);
  if (low === undefined || high === undefined) return block.decimals;
  const halfWidth = (high - low) / 2;
  if (!(halfWidth > 0) || !(block.halfWidth > 0)) return block.decimals;
  const ratio = halfWidth / block.halfWidth;
  return ratio > 100 || ratio < 0.01 ? decimalsFor(halfWidth) : block.decimals;
}

function most(block: { counts: number[] }): number {
  return block.counts[block.counts.length - 1] ?? 0;
}

function countText<R extends Row>(block: Block<R>, what: string): string {
  return `n = ${counted(most(block), what)}${block.counts.length === 1 ? " in every cell" : " unless a cell says otherwise"}`;
}

function sheetOf<R extends Row>(block: Block<R>, title: string, text: (row: R, block: Block<R>) => string): LinkedSheet<R> {
  let full = `${block.sweep}: ${title}${block.split ? `, ${splitText(block.split)}` : ""}`;
  const standings = sorted(block.rows.map((row) => row.standing));
  if (block.marked) {
    const phase = phaseText(block.phase);
    full += `${phase ? `, ${phase}` : ""} (${standings.length === 1 ? standings[0] : "standing by cell: see below"})`;
  }
  const byCell = new Map(block.rows.map((row) => [cellKey(row.arm_json, row.ntk, Number(row.length)), row]));
  const cells = block.arms.map((arm) => block.columns.map(({ ntk, length }) => {
    const row = byCell.get(cellKey(arm, ntk, length));
    return { row, text: row ? text(row, block) : "" };
  }));
  return {
    sweep: block.sweep, metric: block.metric, split: block.split, phase: block.phase, arms: block.arms, title: full, cells,
    columns: [{ title: "arm" }, ...block.columns.map(({ ntk, length }) => ({
      title: length === 0 ? "training" : `length ${length}`, right: true, group: length === 0 ? "" : ntk ? "NTK on" : "NTK off",
    }))],
    rows: block.arms.map((arm, i) => [armLabel(arm), ...(cells[i] ?? []).map((cell) => cell.text)]),
    footer: [],
  };
}

function notesOf<R extends Row>(block: Block<R>): string[] {
  const footer: string[] = [];
  const standings = sorted(block.rows.map((row) => row.standing));
  if (block.marked && standings.length > 1) {
    for (const standing of standings) {
      footer.push(`${standing} are:`);
      for (const arm of block.arms) {
        const places = block.rows.filter((row) => row.standing === standing && row.arm_json === arm)
          .map((row) => `${row.length}${row.ntk ? " NTK" : ""}`);
        if (places.length > 0) footer.push(`  ${armLabel(arm)}, length ${places.join(", ")}`);
      }
    }
  }
  const withNtk = block.columns.some((column) => column.ntk);
  const once = block.columns.filter(({ ntk, length }) =>
    withNtk && !ntk && length > 0 && !block.columns.some((other) => other.ntk && other.length === length));
  if (once.length > 0)
    footer.push(`length ${once.map((column) => column.length).join(", ")}: NTK on and off are the same there, shown once`);
  // What is said of many cells is said once.
  const notes = new Map<string, string[]>();
  for (const row of block.rows) {
    if (!row.note) continue;
    const place = `${armLabel(row.arm_json)}, length ${row.length}${row.ntk ? ", NTK on" : ""}`;
    notes.set(row.note, [...(notes.get(row.note) ?? []), place]);
  }
  const lines: string[] = [];
  for (const [note, places] of notes) {
    if (places.length === block.rows.length && places.length > 1) lines.push(`every cell: ${note}`);
    else if (places.length > 2) lines.push(`${places.length} cells: ${note} (which: see -o json)`);
    else for (const place of places) lines.push(`${place}: ${note}`);
  }
  footer.push(...lines.slice(0, 8));
  if (lines.length > 8) footer.push(`and ${counted(lines.length - 8, "more note")}: see -o json`);
  return footer;
}

function tableCell(row: ConfidenceRow, block: Block<ConfidenceRow>): string {
  let text = meanInterval(number(row.mean), number(row.low), number(row.high), decimalsOf(block, row));
  const extra: string[] = [];
  // Where seeds give no interval: of the tries.
  if (row.rate_low !== undefined && row.rate_high !== undefined && row.low === undefined)
    text += ` [${Number(row.rate_low).toFixed(3)}, ${Number(row.rate_high).toFixed(3)}]`;
  if (row.n > 0 && row.n !== most(block)) extra.push(`n=${row.n}`);
  if (row.diverged_seeds.length > 0) extra.push(`${row.diverged_seeds.length} diverged`);
  if (row.missing_seeds.length > 0) extra.push(`${row.missing_seeds.length} missing`);
  return extra.length > 0 ? `${text} (${extra.join(", ")})` : text;
}

export function tableSheets(rows: readonly ConfidenceRow[], phases: boolean): LinkedSheet<ConfidenceRow>[] {
  return blocksOf(rows, phases).map((block) => {
    const sheet = sheetOf(block, block.metric, tableCell);
    const levels = sorted(block.rows.map((row) => levelText(row.level))).join("/");
    const methods = sorted(block.rows.filter((row) => row.method).map((row) => methodText(row.method))).join(", ");
    sheet.footer.push(`mean ± half-width of the ${levels} ${methods} over seeds; ${countText(block, "seed")}`);
    if (block.rows.some((row) => row.rate_low !== undefined && row.low === undefined))
      sheet.footer.push(`[low, high]: ${levels} Wilson interval of the tries of all seeds pooled; ignores seed variance`);
    if (block.rows.some((row) => row.diverged_seeds.length > 0))
      sheet.footer.push("diverged: the run's loss or gradient stopped being finite; it is not in the mean (survivors only)");
    sheet.footer.push(...notesOf(block));
    return sheet;
  });
}

function comparisonCell(row: ComparisonRow, block: Block<ComparisonRow>): string {
  const text = meanInterval(number(row.difference), number(row.low), number(row.high), decimalsOf(block, row));
  const extra: string[] = [];
  if (row.p !== undefined) extra.push(`p ${pText(number(row.p))}`);
  if (row.p_adjusted !== undefined) extra.push(`Holm ${pText(number(row.p_adjusted))}`);
  if (row.diverged_seeds.length > 0) extra.push(`${row.diverged_seeds.length} diverged`);
  if (row.n > 0 && row.n !== most(block)) extra.push(`n=${row.n}`);
  return extra.length > 0 ? `${text} (${extra.join(", ")})` : text;
}

export function comparisonSheets(rows: readonly ComparisonRow[], phases: boolean): LinkedSheet<ComparisonRow>[] {
  return blocksOf(rows, phases).map((block) => {
    const baselines = sorted(block.rows.map((row) => armLabel(row.baseline_json)));
    const sheet = sheetOf(block, `${block.metric}, difference from ${baselines.join(" / ")}`, comparisonCell);
    const levels = sorted(block.rows.map((row) => levelText(row.level))).join("/");
    const methods = sorted(block.rows.filter((row) => row.method).map((row) => methodText(row.method))).join(", ");
    const families = unique(block.rows.map((row) => row.family_size)).sort((a, b) => a - b);
    sheet.footer.push(`mean paired difference (arm minus baseline, same seed) ± half-width of the ${levels} ${methods}; ` +
      countText(block, "pair"));
    sheet.footer.push(`p: two-sided, unadjusted; Holm: the same, adjusted over ${families.join("/")}` +
      `${families[families.length - 1] === 1 ? " comparison of " : " comparisons of "}${block.metric}`);
    sheet.footer.push(...notesOf(block));
    return sheet;
  });
}

const exact = (value: Double | undefined): CsvCell => (value === undefined ? "" : shortest(Number(value)));
const seeds = (values: readonly string[]) => `[${values.join(",")}]`;
const jobs = (values: readonly string[]) => JSON.stringify(values);
const phaseName = (phase: Phase) => phaseText(phase) || "plain";

export function tableRecords(rows: readonly ConfidenceRow[]): Records {
  return {
    columns: ["sweep", "arm", "metric", "length", "ntk", "split", "n", "mean", "sd", "low", "high", "level", "method", "seeds",
      "diverged", "diverged_seeds", "missing", "jobs", "diverged_jobs", "note", "phase", "standing", "rate_low", "rate_high", "tries"],
    rows: rows.filter((row) => row.metric).map((row) => [
      row.sweep, row.arm_json, row.metric, row.length, row.ntk, row.split, row.n, exact(row.mean), exact(row.sd), exact(row.low),
      exact(row.high), exact(row.level), row.method, seeds(row.seeds), row.diverged_seeds.length, seeds(row.diverged_seeds),
      seeds(row.missing_seeds), jobs(row.job_ids), jobs(row.diverged_job_ids), row.note, phaseName(row.phase), row.standing,
      exact(row.rate_low), exact(row.rate_high), row.rate_low === undefined ? "" : row.tries,
    ]),
  };
}

export function comparisonRecords(rows: readonly ComparisonRow[]): Records {
  return {
    columns: ["sweep", "arm", "baseline", "metric", "length", "ntk", "split", "n", "difference", "sd", "low", "high", "p", "p_adjusted",
      "family_size", "level", "method", "seeds", "diverged", "diverged_seeds", "missing", "note", "phase", "standing", "jobs",
      "diverged_jobs"],
    rows: rows.filter((row) => row.metric).map((row) => [
      row.sweep, row.arm_json, row.baseline_json, row.metric, row.length, row.ntk, row.split, row.n, exact(row.difference), exact(row.sd),
      exact(row.low), exact(row.high), exact(row.p), exact(row.p_adjusted), row.family_size, exact(row.level), row.method,
      seeds(row.seeds), row.diverged_seeds.length, seeds(row.diverged_seeds), seeds(row.missing_seeds), row.note, phaseName(row.phase),
      row.standing, jobs(row.job_ids), jobs(row.diverged_job_ids),
    ]),
  };
}
