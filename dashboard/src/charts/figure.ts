// What all charts share: panels side by side or below each other with a legend in one SVG, axes, and the SVG as a file that stands for
// itself (title, caption, colours inline, white ground). Draws with Observable Plot. Must not know the API or what is measured.
import * as Plot from "@observablehq/plot";
import type { Records } from "../tables/sheet";
import { type LineStyle, type Marker, type Theme, colourOf } from "./style";

export interface DrawOptions {
  width: number;
  theme: Theme;
  standalone: boolean;  // a file: with title and caption inside
  document?: Document;
}

export interface Figure {
  name: string;       // of its files
  title: string;
  caption: string[];  // statistic, level, n, method; then what else a reader must know. One sentence each
  svg: SVGSVGElement;
  records: Records;   // every number that is drawn
}

export interface LegendEntry { text: string; style: LineStyle; key: string }
export interface PanelSize { width: number; document: Document }
export interface Panel { title: string; draw(size: PanelSize): SVGSVGElement }
export interface FigureParts {
  name: string;
  title: string;
  caption: string[];
  panels: Panel[];
  columns: number;      // at most
  minimum: number;      // width of a panel below which there is one column less
  legend: LegendEntry[];
  records: Records;
}

const SVG = "http://www.w3.org/2000/svg";
export const FONT = 11;
const SMALL = 10;

export function textWidth(text: string, size: number): number {
  return 0.56 * size * text.length;
}

type Attributes = Record<string, string | number | undefined>;
export function element(document: Document, name: string, attributes: Attributes, text?: string): SVGElement {
  const made = document.createElementNS(SVG, name) as SVGElement;
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined) made.setAttribute(key, String(value));
  }
  if (text !== undefined) made.textContent = text;
  return made;
}

// The text of a path that a marker draws.
export function markerPath(marker: Marker, radius: number): string {
  const parts: string[] = [];
  const at = (value: number) => String(Math.round(value * 100) / 100);
  marker.draw({
    moveTo: (x, y) => parts.push(`M${at(x)},${at(y)}`),
    lineTo: (x, y) => parts.push(`L${at(x)},${at(y)}`),
    arc: (_x, _y, r) => parts.push(`A${at(r)},${at(r)},0,1,1,${at(-r)},0A${at(r)},${at(r)},0,1,1,${at(r)},0`),
    closePath: () => parts.push("Z"),
  }, Math.PI * radius * radius);
  return parts.join("");
}

export function wrapped(text: string, columns: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line && line.length + 1 + word.length > columns) {
      lines.push(line);
      line = word;
    } else {
      line = line ? `${line} ${word}` : word;
    }
  }
  return line ? [...lines, line] : lines;
}

function shortened(text: string, columns: number): string {
  return text.length <= columns ? text : `${text.slice(0, Math.max(columns - 1, 1))}…`;
}

// A line with its marker, as in the chart.
export function swatch(document: Document, style: LineStyle, theme: Theme, x: number, y: number): SVGElement {
  const colour = colourOf(style, theme);
  const group = element(document, "g", { transform: `translate(${x},${y})` });
  group.append(element(document, "line", { x1: 0, x2: 26, y1: 0, y2: 0, stroke: colour, "stroke-width": style.width,
    "stroke-dasharray": style.dash || undefined }));
  group.append(element(document, "path", { d: markerPath(style.marker, 3.6), transform: "translate(13,0)", stroke: colour, "stroke-width": 1.4,
    fill: style.hollow ? theme.background : colour }));
  return group;
}

function legendInto(svg: SVGElement, entries: readonly LegendEntry[], theme: Theme, document: Document, width: number, top: number): number {
  if (entries.length === 0) return top;
  const most = Math.floor((width - 46) / (0.56 * FONT));
  const widths = entries.map((entry) => 40 + textWidth(shortened(entry.text, most), FONT));
  const column = Math.min(Math.max(...widths) + 10, width);
  const columns = Math.max(1, Math.floor(width / column));
  entries.forEach((entry, i) => {
    const x = (i % columns) * column + 4, y = top + Math.floor(i / columns) * 18 + 9;
    const group = element(document, "g", { "data-legend": entry.key });
    group.append(swatch(document, entry.style, theme, x, y));
    group.append(element(document, "text", { x: x + 32, y: y + 4, "font-size": FONT, fill: theme.ink }, shortened(entry.text, most)));
    svg.append(group);
  });
  return top + Math.ceil(entries.length / columns) * 18 + 4;
}

export function compose(parts: FigureParts, options: DrawOptions): Figure {
  const { theme, width } = options;
  const document = options.document ?? globalThis.document;
  const svg = element(document, "svg", { xmlns: SVG, role: "img", "aria-label": `${parts.title}. ${parts.caption.join(". ")}`,
    fill: theme.ink, "font-family": theme.font, "font-size": FONT, "text-anchor": "start" }) as SVGSVGElement;
  let top = 0;
  if (options.standalone) {
    svg.append(element(document, "title", {}, parts.title));
    svg.append(element(document, "desc", {}, parts.caption.join(". ")));
    svg.append(element(document, "rect", { width: "100%", height: "100%", fill: theme.background }));
    for (const line of wrapped(parts.title, Math.floor(width / (0.6 * 14)))) {
      top += 20;
      svg.append(element(document, "text", { x: 8, y: top, "font-size": 14, "font-weight": "bold" }, line));
    }
    top += 8;
  }
  const gap = 12;
  const fit = Math.max(1, Math.min(parts.columns, parts.panels.length, Math.floor((width + gap) / (parts.minimum + gap))));
  const panelWidth = (width - gap * (fit - 1)) / fit;
  const several = parts.panels.length > 1 || parts.panels.some((panel) => panel.title);
  for (let row = 0; row * fit < parts.panels.length; ++row) {
    let height = 0;
    parts.panels.slice(row * fit, (row + 1) * fit).forEach((panel, column) => {
      const x = column * (panelWidth + gap);
      const drawn = panel.draw({ width: Math.floor(panelWidth), document });
      const title = several && panel.title ? wrapped(panel.title, Math.floor((panelWidth - 46) / (0.58 * 12))) : [];
      title.forEach((line, i) => svg.append(element(document, "text", { x: x + 4, y: top + 14 + 15 * i, "font-size": 12, "font-weight": "bold" }, line)));
      const y = top + title.length * 15 + (title.length > 0 ? 3 : 0);
      drawn.setAttribute("x", String(x));
      drawn.setAttribute("y", String(y));
      svg.append(drawn);
      height = Math.max(height, y - top + Number(drawn.getAttribute("height")));
    });
    top += height + 6;
  }
  top = legendInto(svg, parts.legend, theme, document, width, top + 2);
  if (options.standalone) {
    top += 4;
    for (const sentence of parts.caption) {
      for (const line of wrapped(`${sentence}.`, Math.floor((width - 16) / (0.52 * SMALL)))) {
        top += 14;
        svg.append(element(document, "text", { x: 8, y: top, "font-size": SMALL }, line));
      }
    }
    top += 10;
  }
  const height = Math.ceil(top);
  svg.setAttribute("width", String(width));
  svg.setAttribute("height", String(height));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return { name: parts.name, title: parts.title, caption: parts.caption, svg, records: parts.records };
}

// A plot of Observable Plot as a part of a figure: what it says in a style element (which a page's policy refuses) is said by the figure.
export function plot(options: Plot.PlotOptions): SVGSVGElement & { scale: Plot.Plot["scale"] } {
  const made = Plot.plot({ ...options, figure: false } as Plot.PlotOptions) as unknown as SVGSVGElement & Plot.Plot;
  made.querySelectorAll("style").forEach((style) => style.remove());
  // Plot names groups by their marks ("rule"): no reader of a screen is helped by it, and groups may not have names.
  made.querySelectorAll("[aria-label]").forEach((part) => part.removeAttribute("aria-label"));
  made.removeAttribute("class");
  made.removeAttribute("font-family");
  made.setAttribute("overflow", "visible");
  return made;
}

// A mark's render that writes `attributes` of each datum into its elements.
export function described<T>(data: readonly T[], attributes: (datum: T) => Record<string, string | number | undefined>): Plot.RenderFunction {
  return (index, scales, values, dimensions, context, next) => {
    const group = next?.(index, scales, values, dimensions, context) ?? null;
    if (group) {
      Array.from(group.children).forEach((child, k) => {
        const datum = data[index[k] ?? -1];
        if (datum === undefined) return;
        for (const [name, value] of Object.entries(attributes(datum))) {
          if (value !== undefined) child.setAttribute(name, String(value));
        }
      });
    }
    return group;
  };
}

export interface Range { low: number; high: number }

// Of any number of values: Math.min(...values) takes no more than the stack holds.
export function extent(values: Iterable<number>): Range {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return { low, high };
}

// The range of `values` without what would press all others into one line; how many are beyond it. As cli/report/panel.cc.
export function robustRange(values: readonly number[]): { range: Range; beyond: number } {
  const known = values.filter(Number.isFinite);
  if (known.length === 0) return { range: { low: 0, high: 1 }, beyond: 0 };
  const middle = (list: number[]) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)] ?? 0;
  const center = middle(known);
  const limit = Math.max(20 * middle(known.map((value) => Math.abs(value - center))), 5 * Math.abs(center));
  const kept = limit > 0 ? known.filter((value) => Math.abs(value - center) <= limit) : known;
  return { range: extent(kept), beyond: known.length - kept.length };
}

export function padded({ low, high }: Range, share: number): Range {
  const margin = high > low ? (high - low) * share : Math.max(Math.abs(low) * 0.05, 1e-6);
  return { low: low - margin, high: high + margin };
}

export function padLog({ low, high }: Range, share: number): Range {
  const margin = high > low ? (high / low) ** share : 1.1;
  return { low: low / margin, high: high * margin };
}

// Places moved apart until neighbours are `gap` away from each other, in the order of `wanted`.
export function spread(wanted: readonly number[], gap: number, low: number, high: number): number[] {
  const order = wanted.map((_, i) => i).sort((a, b) => (wanted[a] ?? 0) - (wanted[b] ?? 0));
  const places = [...wanted];
  for (let round = 0; round < 300; ++round) {
    let moved = false;
    for (let i = 0; i < order.length; ++i) {
      const here = order[i] ?? 0;
      if (i > 0) {
        const above = order[i - 1] ?? 0;
        const lack = gap - ((places[here] ?? 0) - (places[above] ?? 0));
        if (lack > 1e-6) {
          places[above] = (places[above] ?? 0) - lack / 2;
          places[here] = (places[here] ?? 0) + lack / 2;
          moved = true;
        }
      }
      places[here] = Math.min(Math.max(places[here] ?? 0, low), Math.max(high, low));
    }
    if (!moved) break;
  }
  return places;
}

// Names at the right end of lines, each tied to its line.
export function directLabels(svg: SVGSVGElement, document: Document, theme: Theme, right: number,
                             ends: readonly { x: number; y: number; text: string; style: LineStyle; key: string }[],
                             low: number, high: number): void {
  const places = spread(ends.map((end) => end.y), 15, low, high);
  ends.forEach((end, i) => {
    const y = places[i] ?? end.y;
    const group = element(document, "g", { "data-legend": end.key });
    group.append(element(document, "line", { x1: end.x + 6, y1: end.y, x2: right + 12, y2: y, stroke: theme.muted, "stroke-width": 0.6 }));
    group.append(swatch(document, end.style, theme, right + 14, y));
    group.append(element(document, "text", { x: right + 46, y: y + 4, "font-size": FONT, "text-anchor": "start", fill: theme.ink }, end.text));
    svg.append(group);
  });
}

// The SVG as a file.
export function svgText(svg: SVGSVGElement): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(svg)}\n`;
}
