// A chart in a page: drawn as wide as its place, with its caption, its data as a table, and downloads. The SVG file is drawn anew for
// print: white ground, colours, title and caption inside.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { announce, Scroll } from "../app/widgets";
import { type Records, toCsv } from "../tables/sheet";
import "./charts.css";
import { type DrawOptions, type Figure, svgText } from "./figure";
import { PAGE, PRINT } from "./style";

export function download(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  announce(`${name} is being downloaded`);
}

export function fileName(parts: readonly string[], extension: string): string {
  return `${parts.filter(Boolean).join("-").replace(/[^A-Za-z0-9._-]+/g, "-")}.${extension}`;
}

// The width of an element in pixels, rounded so that a scroll bar that comes and goes draws nothing anew.
export function useWidth<E extends HTMLElement>(): [{ current: E | null }, number] {
  const box = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const take = () => setWidth(Math.floor(element.clientWidth / 4) * 4);
    take();
    const observer = new ResizeObserver(take);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

const PRINT_WIDTH = 760;

export function ChartCard({ draw, sweep, heading = true, most = 1120 }: {
  draw: (options: DrawOptions) => Figure;   // the same function for the same picture
  sweep: string;
  heading?: boolean;
  most?: number;                            // pixels
}) {
  const [box, width] = useWidth<HTMLDivElement>();
  const figure = useMemo(() => (width > 0 ? draw({ width: Math.min(width, most), theme: PAGE, standalone: false }) : undefined), [draw, width, most]);
  useEffect(() => {
    if (figure) box.current?.replaceChildren(figure.svg);
  }, [figure]);
  return (
    <figure class="panel chart-card" data-chart={figure?.name}>
      <div class="chart-head">
        {heading && <h2>{figure?.title ?? " "}</h2>}
        {figure && (
          <div class="tools">
            <button type="button" onClick={() => {
              const file = draw({ width: PRINT_WIDTH, theme: PRINT, standalone: true });
              download(fileName([sweep, file.name], "svg"), "image/svg+xml", svgText(file.svg));
            }}>Download SVG</button>
            <button type="button" onClick={() => download(fileName([sweep, figure.name], "csv"), "text/csv", toCsv(figure.records))}>Download CSV</button>
          </div>
        )}
      </div>
      <div class="chart-body" ref={box} />
      {figure && <figcaption>{figure.caption.map((line) => <p key={line}>{line}.</p>)}</figcaption>}
      {figure && figure.records.rows.length > 0 && <Numbers records={figure.records} />}
    </figure>
  );
}

const MOST_ROWS = 200;

function Numbers({ records }: { records: Records }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>The numbers of this chart ({records.rows.length} rows)</summary>
      {open && (
        <Scroll label="The numbers of this chart">
          <table>
            <thead><tr>{records.columns.map((column) => <th key={column} scope="col">{column}</th>)}</tr></thead>
            <tbody>
              {records.rows.slice(0, MOST_ROWS).map((row, i) => <tr key={i}>{row.map((cell, k) => <td key={k} class="nowrap">{String(cell ?? "")}</td>)}</tr>)}
            </tbody>
          </table>
          {records.rows.length > MOST_ROWS && <p class="muted">{records.rows.length - MOST_ROWS} more rows are in the CSV.</p>}
        </Scroll>
      )}
    </details>
  );
}
