// The grid of arms by seeds: what each cell shows (a letter and a colour by state), how many of each there are, and the grid as an
// SVG file. Pure; the page's own grid (charts/grid_view.tsx) shows the same cells and draws only those in view.
import type { GetGridResponse, GridCell, Phase } from "../api/types";
import { armLabel, counted, phaseText, stateText } from "../tables/format";
import type { Records } from "../tables/sheet";
import { type DrawOptions, type Figure, FONT, compose, element, textWidth } from "./figure";

export type CellKind = "succeeded" | "diverged" | "running" | "queued" | "blocked" | "sealed" | "failed" | "cancelled" | "unknown";

// Letter and word of each state, in the order of the legend. A letter, so that the grid is read without colour.
export const KINDS: Record<CellKind, { letter: string; word: string }> = {
  succeeded: { letter: "✓", word: "succeeded" },
  diverged: { letter: "D", word: "diverged" },
  running: { letter: "▸", word: "running" },
  queued: { letter: "Q", word: "queued" },
  blocked: { letter: "B", word: "blocked" },
  sealed: { letter: "S", word: "sealed" },
  failed: { letter: "F", word: "failed" },
  cancelled: { letter: "–", word: "cancelled" },
  unknown: { letter: "?", word: "unknown" },
};

export function kindOf(cell: GridCell): CellKind {
  if (cell.state === "FAILED") return "failed";
  if (cell.state === "BLOCKED" && cell.sealed) return "sealed";
  if (cell.diverged && cell.state === "SUCCEEDED") return "diverged";
  const word = stateText(cell.state);
  return word in KINDS ? (word as CellKind) : "unknown";
}

export interface GridColumn { phase: Phase; seed: string }
export interface GridRow { name: string; json: string; baseline: boolean; cells: (GridCell | undefined)[] }
export interface GridData {
  columns: GridColumn[];
  phases: { phase: Phase; first: number; count: number }[];
  rows: GridRow[];
  counts: Partial<Record<CellKind, number>>;
  jobs: { done: number; all: number };
}

const ORDER: Phase[] = ["PLAIN", "TUNING", "SELECTING", "CONFIRMING", "PHASE_UNSPECIFIED"];

// Rows as the plan has them: arms that differ in NTK alone apart, tuning runs too.
export function prepareGrid(grid: GetGridResponse): GridData {
  const seen = new Map<string, GridColumn>();
  for (const { phase, seed } of grid.cells) if (!seen.has(`${phase} ${seed}`)) seen.set(`${phase} ${seed}`, { phase, seed });
  const columns = [...seen.values()].sort((a, b) => ORDER.indexOf(a.phase) - ORDER.indexOf(b.phase) || Number(a.seed) - Number(b.seed));
  const place = new Map(columns.map((column, i) => [`${column.phase} ${column.seed}`, i]));
  const rows: GridRow[] = grid.arms.map((arm) => ({
    name: armLabel(arm.arm_json) + (arm.baseline ? " (baseline)" : ""), json: arm.arm_json, baseline: arm.baseline, cells: columns.map(() => undefined),
  }));
  const counts: Partial<Record<CellKind, number>> = {};
  const jobs = { done: 0, all: 0 };
  for (const cell of grid.cells) {
    const row = rows[cell.arm], column = place.get(`${cell.phase} ${cell.seed}`);
    if (!row || column === undefined) continue;
    row.cells[column] = cell;
    const kind = kindOf(cell);
    counts[kind] = (counts[kind] ?? 0) + 1;
    jobs.done += cell.jobs_done;
    jobs.all += cell.jobs;
  }
  const phases: GridData["phases"] = [];
  columns.forEach((column, i) => {
    const last = phases[phases.length - 1];
    if (last && last.phase === column.phase) ++last.count;
    else phases.push({ phase: column.phase, first: i, count: 1 });
  });
  return { columns, phases, rows, counts, jobs };
}

export function cellText(row: GridRow, column: GridColumn, cell: GridCell | undefined): string {
  const at = `${row.name}, seed ${column.seed}${phaseText(column.phase) ? `, ${phaseText(column.phase)}` : ""}`;
  if (!cell) return `${at}: not planned`;
  const kind = kindOf(cell);
  const word = cell.diverged && kind !== "diverged" ? `${KINDS[kind].word}, diverged` : KINDS[kind].word;
  const steps = Number(cell.steps) > 0 ? `, step ${cell.step} of ${cell.steps}` : "";
  const failure = cell.failure !== "FAILURE_KIND_UNSPECIFIED" && kind === "failed" ? `, ${cell.failure.toLowerCase().replace(/_/g, " ")}` : "";
  return `${at}: ${word}, ${cell.jobs_done} of ${counted(cell.jobs, "job")} done${steps}${failure}`;
}

// "12 succeeded, 2 diverged"; only what there is.
export function countsText(counts: GridData["counts"]): string {
  return (Object.keys(KINDS) as CellKind[]).filter((kind) => counts[kind]).map((kind) => `${counts[kind]} ${KINDS[kind].word}`).join(", ");
}

export function gridRecords(data: GridData): Records {
  return {
    columns: ["arm", "arm_json", "baseline", "phase", "seed", "state", "sealed", "diverged", "jobs_done", "jobs", "step", "steps", "job", "failure"],
    rows: data.rows.flatMap((row) => row.cells.flatMap((cell, i) => {
      const column = data.columns[i];
      if (!cell || !column) return [];
      return [[row.name, row.json, row.baseline, phaseText(column.phase) || "plain", column.seed, stateText(cell.state), cell.sealed, cell.diverged,
        cell.jobs_done, cell.jobs, cell.step, cell.steps, cell.job_id, cell.failure === "FAILURE_KIND_UNSPECIFIED" ? "" : cell.failure.toLowerCase()]];
    })),
  };
}

export function gridCaption(data: GridData): string[] {
  return [`One cell an arm and seed, over all jobs that the sweep needs for it: ${countsText(data.counts) || "none"}`,
    `Letters: ${(Object.keys(KINDS) as CellKind[]).filter((kind) => data.counts[kind]).map((kind) => `${KINDS[kind].letter} ${KINDS[kind].word}`).join(", ")}`];
}

// Fills that stay apart in grey.
const FILLS: Record<CellKind, string> = {
  succeeded: "#cfe8d6", diverged: "#f3d9a4", running: "#b9d6ef", queued: "#f4f4f4", blocked: "#e4e4e4", sealed: "#dcd6ea", failed: "#f0aaa2",
  cancelled: "#c9c9c9", unknown: "#ffffff",
};

export function drawGrid(data: GridData, title: string, options: DrawOptions): Figure {
  const { theme } = options;
  const size = 18;
  const labels = Math.min(Math.max(...data.rows.map((row) => textWidth(row.name, FONT)), 60) + 12, 420);
  return compose({
    name: "grid", title, caption: gridCaption(data), columns: 1, minimum: 100, legend: [], records: gridRecords(data),
    panels: [{
      title: "",
      draw: ({ document }) => {
        const top = 34, height = top + size * data.rows.length + 6;
        const svg = element(document, "svg", { width: labels + size * data.columns.length + 12 * data.phases.length, height }) as SVGSVGElement;
        const left = (i: number) => labels + size * i + 10 * data.phases.filter((phase) => phase.first <= i).length - 10;
        for (const { phase, first } of data.phases)
          if (phaseText(phase)) svg.append(element(document, "text", { x: left(first), y: 12, "font-size": 10, "font-weight": "bold" }, phaseText(phase)));
        data.columns.forEach((column, i) => svg.append(element(document, "text", { x: left(i) + size / 2, y: 27, "font-size": 8, "text-anchor": "middle" }, column.seed)));
        data.rows.forEach((row, r) => {
          const y = top + size * r;
          svg.append(element(document, "text", { x: 4, y: y + 13, "font-size": FONT, "font-weight": row.baseline ? "bold" : undefined }, row.name.slice(0, 66)));
          row.cells.forEach((cell, i) => {
            if (!cell) return;
            const kind = kindOf(cell);
            svg.append(element(document, "rect", { x: left(i) + 1, y: y + 1, width: size - 2, height: size - 2, fill: FILLS[kind], stroke: theme.muted, "stroke-width": 0.6 }));
            svg.append(element(document, "text", { x: left(i) + size / 2, y: y + 13, "font-size": 10, "text-anchor": "middle" }, KINDS[kind].letter));
          });
        });
        return svg;
      },
    }],
  }, { ...options, width: Math.max(options.width, labels + size * data.columns.length + 12 * data.phases.length + 8) });
}
