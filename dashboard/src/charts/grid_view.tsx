// The grid of arms by seeds in a page. Draws the rows in view only, so that thousands of arms stay quick; arrow keys move, Enter
// opens the cell's job. Each cell has a letter, so colour is not needed.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { jobPath } from "../app/router";
import { phaseText } from "../tables/format";
import { type CellKind, type GridData, KINDS, cellText, kindOf } from "./grid";

const ROW = 26, HEAD = 40, OVERSCAN = 8;

export function GridLegend({ data }: { data: GridData }) {
  return (
    <div class="grid-legend">
      {(Object.keys(KINDS) as CellKind[]).filter((kind) => data.counts[kind]).map((kind) => (
        <span class="key" key={kind}><span class="kind" data-kind={kind} aria-hidden="true">{KINDS[kind].letter}</span>{KINDS[kind].word}: {data.counts[kind]}</span>
      ))}
    </div>
  );
}

export function GridView({ data, label }: { data: GridData; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [focus, setFocus] = useState<{ row: number; column: number }>({ row: 0, column: 0 });
  const wanted = useRef(false);
  const at = useRef(focus);   // what keys count from: several may come before the next drawing
  const go = (to: { row: number; column: number }): void => {
    at.current = to;
    setFocus(to);
  };
  const armWidth = useMemo(() => Math.round(Math.min(Math.max(...data.rows.map((row) => row.name.length), 8) * 7.7 + 24, 340)), [data.rows]);
  const compact = typeof window !== "undefined" && window.innerWidth < 600;
  const names = compact ? Math.min(armWidth, 140) : armWidth;

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const take = () => setView({ top: element.scrollTop, height: element.clientHeight });
    take();
    const observer = new ResizeObserver(take);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (!wanted.current) return;
    const { row: r, column: c } = at.current;
    const cell = box.current?.querySelector<HTMLElement>(`[data-row="${r}"][data-column="${c}"]`);
    if (!cell) return; // drawn next
    wanted.current = false;
    cell.focus({ preventScroll: true });
  }, [focus, view]);

  const rows = data.rows.length, columns = data.columns.length;
  const row = Math.min(focus.row, Math.max(rows - 1, 0)), column = Math.min(focus.column, Math.max(columns - 1, 0));
  const first = Math.max(0, Math.floor(view.top / ROW) - OVERSCAN);
  const last = Math.min(rows, Math.ceil((view.top + view.height) / ROW) + OVERSCAN);
  const drawn = Array.from({ length: Math.max(last - first, 0) }, (_, k) => first + k);
  // The row that has the focus stays, or Enter would go nowhere after a scroll.
  if (rows > 0 && row < first) drawn.unshift(row);
  else if (rows > 0 && row >= last) drawn.push(row);
  const gaps = new Set(data.phases.slice(1).map((phase) => phase.first));
  const width = names + columns * ROW + gaps.size * 10 + 8;

  const move = (event: KeyboardEvent): void => {
    const page = Math.max(1, Math.floor(view.height / ROW) - 2);
    const to = { row: Math.min(at.current.row, rows - 1), column: Math.min(at.current.column, columns - 1) };
    switch (event.key) {
      case "ArrowDown": ++to.row; break;
      case "ArrowUp": --to.row; break;
      case "ArrowRight": ++to.column; break;
      case "ArrowLeft": --to.column; break;
      case "PageDown": to.row += page; break;
      case "PageUp": to.row -= page; break;
      case "Home": if (event.ctrlKey) to.row = 0; to.column = 0; break;
      case "End": if (event.ctrlKey) to.row = rows - 1; to.column = columns - 1; break;
      default: return;
    }
    event.preventDefault();
    to.row = Math.min(Math.max(to.row, 0), rows - 1);
    to.column = Math.min(Math.max(to.column, 0), columns - 1);
    const element = box.current;
    if (element) {
      const top = to.row * ROW, room = element.clientHeight - HEAD;
      if (top < element.scrollTop) element.scrollTop = top;
      else if (top + ROW > element.scrollTop + room) element.scrollTop = top + ROW - room;
      const left = to.column * ROW;
      if (left < element.scrollLeft) element.scrollLeft = left;
      else if (names + left + ROW > element.scrollLeft + element.clientWidth) element.scrollLeft = names + left + ROW - element.clientWidth;
      setView({ top: element.scrollTop, height: element.clientHeight });
    }
    wanted.current = true;
    go(to);
  };

  return (
    <div class="cell-grid" ref={box} role="grid" aria-label={label} aria-rowcount={rows + 1} aria-colcount={columns + 1} onKeyDown={move}
      onScroll={(event) => setView({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })}>
      <div class="grid-head" role="row" aria-rowindex={1} style={{ width }}>
        <span class="grid-arm" role="columnheader" style={{ width: names }}>arm</span>
        {data.columns.map((one, i) => (
          <span key={i} role="columnheader" class={`grid-seed${gaps.has(i) ? " gap" : ""}${one.seed.length > 3 ? " long" : ""}`} title={`seed ${one.seed}`}>
            {data.phases.some((phase) => phase.first === i) && <span class="phase">{phaseText(one.phase) || "seeds"}</span>}
            {one.seed.length > 4 ? `…${one.seed.slice(-3)}` : one.seed}
          </span>
        ))}
      </div>
      <div style={{ height: rows * ROW, width, position: "relative" }}>
        {drawn.map((r) => {
          const one = data.rows[r]!;
          return (
            <div key={one.json} class="grid-row" role="row" aria-rowindex={r + 2} style={{ top: r * ROW, width }}>
              <span class={`grid-arm${one.baseline ? " baseline" : ""}`} role="rowheader" style={{ width: names }} title={one.name}>{one.name}</span>
              {one.cells.map((cell, c) => {
                const seed = data.columns[c]!;
                const text = cellText(one, seed, cell);
                const place = { "data-row": r, "data-column": c, tabIndex: r === row && c === column ? 0 : -1 };
                return (
                  <span key={c} class={`grid-cell${gaps.has(c) ? " gap" : ""}`} role="gridcell" aria-colindex={c + 2}>
                    {cell?.job_id
                      ? <a class="kind" href={jobPath(cell.job_id)} data-kind={kindOf(cell)} data-arm={one.json} data-seed={seed.seed} data-phase={seed.phase}
                          data-state={cell.state} data-diverged={cell.diverged ? "" : undefined} aria-label={text} title={text} {...place}
                          onFocus={() => go({ row: r, column: c })}>{KINDS[kindOf(cell)].letter}{cell.diverged && kindOf(cell) !== "diverged" ? "d" : ""}</a>
                      : <span class={cell ? "none kind" : "none"} data-kind={cell ? kindOf(cell) : undefined} aria-label={text} title={text} {...place}>
                          {cell ? KINDS[kindOf(cell)].letter : "·"}</span>}
                  </span>
                );
              })}
            </div>
          );
        })}
      </div>
    </div>
  );
}
