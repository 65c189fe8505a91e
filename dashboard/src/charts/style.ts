// How arms look: colour, marker and dash by an arm's place among all arms of its sweep, so that an arm looks the same on every chart,
// whatever else is shown. Colours are Okabe and Ito's, darkened where they would be faint on white; markers and dashes tell arms apart
// without them. Must not know what is drawn.
import type { Phase } from "../api/types";
import { armLabel } from "../tables/format";

// In a page colours are CSS variables, so that light and dark need no second drawing; in a file they are what print takes.
export interface Theme {
  ink: string;
  muted: string;
  grid: string;
  background: string;
  band: string;      // behind what is declared: margins
  colours: readonly string[];
  font: string;
}

const PRINT_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7A5C00", "#56B4E9", "#5E3C99"] as const;

export const PAGE: Theme = {
  ink: "var(--chart-ink)",
  muted: "var(--chart-muted)",
  grid: "var(--chart-grid)",
  background: "var(--chart-background)",
  band: "var(--chart-band)",
  colours: PRINT_COLOURS.map((_, i) => `var(--chart-${i + 1})`),
  font: "system-ui, sans-serif",
};

export const PRINT: Theme = {
  ink: "#000000",
  muted: "#555555",
  grid: "#dddddd",
  background: "#ffffff",
  band: "#56B4E9",
  colours: PRINT_COLOURS,
  font: "Helvetica, Arial, sans-serif",
};

// Draws itself around (0, 0); what both a canvas-like path and d3's symbols take.
interface PathContext {
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
  arc(x: number, y: number, r: number, from: number, to: number): void;
  closePath(): void;
}
export interface Marker { name: string; draw(context: PathContext, size: number): void }

function polygon(name: string, corners: readonly (readonly [number, number])[]): Marker {
  return {
    name,
    draw(context, size) {
      const r = Math.sqrt(size / Math.PI);
      corners.forEach(([x, y], i) => (i === 0 ? context.moveTo(x * r, y * r) : context.lineTo(x * r, y * r)));
      context.closePath();
    },
  };
}

function star(): Marker {
  const corners = Array.from({ length: 10 }, (_, i) => {
    const r = i % 2 === 0 ? 1.55 : 0.65, angle = (Math.PI * i) / 5;
    return [Math.sin(angle) * r, -Math.cos(angle) * r] as const;
  });
  return polygon("star", corners);
}

const CIRCLE: Marker = {
  name: "circle",
  draw(context, size) {
    const r = Math.sqrt(size / Math.PI);
    context.moveTo(r, 0);
    context.arc(0, 0, r, 0, 2 * Math.PI);
    context.closePath();
  },
};
const MARKERS: readonly Marker[] = [
  polygon("square", [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]),
  polygon("triangle", [[0, -1.25], [1.15, 0.95], [-1.15, 0.95]]),
  polygon("diamond", [[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]]),
  polygon("triangle-down", [[0, 1.25], [1.15, -0.95], [-1.15, -0.95]]),
  polygon("cross", [[-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2], [-0.4, 0.4],
    [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]]),
  star(),
  polygon("triangle-right", [[1.25, 0], [-0.95, 1.15], [-0.95, -1.15]]),
];
// A saltire: where a run diverged.
export const DIVERGED: Marker = polygon("diverged", [[0, -0.45], [0.85, -1.3], [1.3, -0.85], [0.45, 0], [1.3, 0.85], [0.85, 1.3], [0, 0.45],
  [-0.85, 1.3], [-1.3, 0.85], [-0.45, 0], [-1.3, -0.85], [-0.85, -1.3]]);
export const UP: Marker = polygon("beyond-above", [[0, -1.5], [1.2, 0.8], [-1.2, 0.8]]);
export const DOWN: Marker = polygon("beyond-below", [[0, 1.5], [1.2, -0.8], [-1.2, -0.8]]);

const DASHES = ["", "2,2.5", "8,3,2,3", "4,2,1,2,1,2"] as const;
const BASELINE_DASH = "7,3.5";

export interface LineStyle {
  colour: number;   // index into Theme.colours; -1: the ink
  marker: Marker;
  hollow: boolean;
  dash: string;
  width: number;
}

export function colourOf(style: LineStyle, theme: Theme): string {
  return style.colour < 0 ? theme.ink : (theme.colours[style.colour % theme.colours.length] ?? theme.ink);
}

export const BASELINE_STYLE: LineStyle = { colour: -1, marker: CIRCLE, hollow: false, dash: BASELINE_DASH, width: 2.4 };

// `place`: among the arms that are not the baseline. The first 392 differ in colour, marker, filling or dash.
export function styleAt(place: number): LineStyle {
  const colours = PRINT_COLOURS.length, round = Math.floor(place / colours);
  return {
    colour: place % colours,
    marker: MARKERS[(place + Math.floor(round / (2 * DASHES.length))) % MARKERS.length] ?? CIRCLE,
    hollow: round % 2 === 1,
    dash: DASHES[Math.floor(round / 2) % DASHES.length] ?? "",
    width: 1.6,
  };
}

export interface Arm {
  key: string;        // unique among what a page shows: arm_json, with its sweep where several are shown
  json: string;       // as rows of results have it
  requested: string;  // as the sweep's plan has it, to ask for its curves
  label: string;
  baseline: boolean;
  style: LineStyle;
  sweep?: string;
}

// Rows of results have the NTK setting in a field of their own, so that it is not in their arm.
export function withoutNtk(armJson: string): string {
  return armJson.replace(/"eval\.ntk":"[^"]*",?/, "").replace(/,\}$/, "}");
}

// All arms of a sweep that have results of their own, in the order of the table: arms that differ in NTK alone are one, and tuning runs
// are none. Named as the command line names them.
export function armsOf(arms: readonly { arm_json: string; label: string; baseline: boolean; phase?: Phase }[]): Arm[] {
  const found = new Map<string, Arm>();
  for (const arm of arms) {
    if (arm.phase === "TUNING") continue;
    const json = withoutNtk(arm.arm_json);
    const known = found.get(json);
    if (known) known.baseline ||= arm.baseline;
    else found.set(json, { key: json, json, requested: arm.arm_json, label: armLabel(json), baseline: arm.baseline, style: BASELINE_STYLE });
  }
  const made = [...found.values()];
  const twice = new Set(made.map((arm) => arm.label).filter((label, i, all) => all.indexOf(label) !== i));
  let place = 0;
  for (const arm of made) {
    if (twice.has(arm.label)) arm.label = arm.json;
    if (!arm.baseline) arm.style = styleAt(place++);
  }
  return made;
}

export function armName(arm: Arm): string {
  return arm.baseline ? `${arm.label} (baseline)` : arm.label;
}

// Lines of something ordered, such as lengths: the palette in its order, without the baseline's look.
export function orderedStyle(place: number): LineStyle {
  return styleAt(place);
}
