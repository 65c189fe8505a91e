// A sheet of confidence or comparison rows as a table of the page: sorted by any column by mouse or keyboard, each number a link to the
// jobs that it is made of, what is missing or diverged in its cell.
import { useMemo } from "preact/hooks";
import type { ComparisonRow, ConfidenceRow } from "../api/types";
import { Scroll } from "../app/widgets";
import { armLabel, finite, shortest } from "./format";
import type { LinkedSheet } from "./result_sheets";
import { hasGroups, spans } from "./sheet";

type Row = ConfidenceRow | ComparisonRow;

export interface Order { column: number; descending: boolean }

// "2" or "-2": in an address. undefined: the table's own order.
export function readOrder(text: string): Order | undefined {
  const match = /^(-?)(\d+)$/.exec(text);
  return match ? { column: Number(match[2]), descending: match[1] === "-" } : undefined;
}
export function writeOrder(order: Order | undefined): string {
  return order ? `${order.descending ? "-" : ""}${order.column}` : "";
}

function valueOf(row: Row | undefined): number | undefined {
  if (!row) return undefined;
  return finite("difference" in row ? row.difference : (row as ConfidenceRow).mean);
}

const names = new Intl.Collator("en", { numeric: true });

// The rows' places in the order that is wanted; what has no number comes last either way.
export function orderedRows<R extends Row>(sheet: LinkedSheet<R>, order: Order | undefined): number[] {
  const places = sheet.arms.map((_, i) => i);
  if (!order || order.column > sheet.columns.length - 1) return places;
  const sign = order.descending ? -1 : 1;
  if (order.column === 0) return places.sort((a, b) => sign * names.compare(armLabel(sheet.arms[a] ?? ""), armLabel(sheet.arms[b] ?? "")) || a - b);
  return places.sort((a, b) => {
    const x = valueOf(sheet.cells[a]?.[order.column - 1]?.row), y = valueOf(sheet.cells[b]?.[order.column - 1]?.row);
    if (x === undefined || y === undefined) return (x === undefined ? 1 : 0) - (y === undefined ? 1 : 0) || a - b;
    return sign * (x - y) || a - b;
  });
}

// The sheet in another order or with fewer arms, for copying what is seen.
export function rearranged<R extends Row>(sheet: LinkedSheet<R>, places: readonly number[]): LinkedSheet<R> {
  const pick = <T,>(list: readonly T[]): T[] => places.flatMap((place) => (list[place] === undefined ? [] : [list[place] as T]));
  return { ...sheet, arms: pick(sheet.arms), cells: pick(sheet.cells), rows: pick(sheet.rows) };
}

function attributes(row: Row): Record<string, string | number | undefined> {
  const comparison = "difference" in row || "baseline_json" in row;
  const exact = (value: unknown) => (value === undefined ? undefined : shortest(Number(value)));
  return {
    "data-arm": row.arm_json, "data-sweep": row.sweep, "data-metric": row.metric, "data-length": row.length, "data-ntk": String(row.ntk), "data-split": row.split,
    "data-phase": row.phase, "data-n": row.n, "data-low": exact(row.low), "data-high": exact(row.high),
    ...(comparison ? { "data-difference": exact((row as ComparisonRow).difference), "data-p": exact((row as ComparisonRow).p), "data-p-adjusted": exact((row as ComparisonRow).p_adjusted) }
      : { "data-mean": exact((row as ConfidenceRow).mean) }),
  };
}

// "2.375 ± 0.039 (n=2, 1 diverged)" in parts: what is in brackets is small.
function parts(text: string): [string, string] {
  const at = text.indexOf(" (");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

export function ResultTable<R extends Row>({ sheet, order, onOrder, jobsHref, baseline, markStanding }: {
  sheet: LinkedSheet<R>;
  order: Order | undefined;
  onOrder: (order: Order | undefined) => void;
  jobsHref: (jobs: readonly string[]) => string;
  baseline: string;           // its arm_json
  markStanding: boolean;
}) {
  const places = useMemo(() => orderedRows(sheet, order), [sheet, order]);
  const standings = new Set(sheet.cells.flat().flatMap((cell) => (cell.row?.standing ? [cell.row.standing] : [])));
  const sortable = (title: string, column: number, right: boolean) => {
    const mine = order?.column === column;
    return (
      <th key={column} scope="col" class={right ? "number" : undefined} aria-sort={mine ? (order.descending ? "descending" : "ascending") : undefined}>
        <button type="button" class="sort" onClick={() => onOrder(!mine ? { column, descending: false } : order.descending ? undefined : { column, descending: true })}
          title={mine && order.descending ? "Back to the sweep's order" : `Order by ${title}`}>
          {title}<span class="arrow" aria-hidden="true">{mine ? (order.descending ? "▾" : "▴") : "↕"}</span>
        </button>
      </th>
    );
  };
  return (
    <>
      <Scroll label={sheet.title}>
        <table class="results">
          <caption class="visually-hidden">{sheet.title}</caption>
          <thead>
            {hasGroups(sheet) && (
              <tr>{spans(sheet.columns).map((span) => span.group
                ? <th key={span.begin} scope="colgroup" colSpan={span.end - span.begin} class="group">{span.group}</th>
                : <td key={span.begin} colSpan={span.end - span.begin} />)}</tr>
            )}
            <tr>{sheet.columns.map((column, i) => sortable(column.title, i, column.right ?? false))}</tr>
          </thead>
          <tbody>
            {places.map((place) => {
              const arm = sheet.arms[place] ?? "";
              return (
                <tr key={arm} class={arm === baseline ? "baseline" : undefined}>
                  <th scope="row">{armLabel(arm)}{arm === baseline ? " (baseline)" : ""}</th>
                  {(sheet.cells[place] ?? []).map((cell, i) => {
                    const { row } = cell;
                    if (!row) return <td key={i} class="number" />;
                    const [number, extra] = parts(cell.text);
                    const jobs = [...row.job_ids, ...row.diverged_job_ids];
                    const trouble = row.diverged_seeds.length + row.missing_seeds.length > 0;
                    const exploratory = markStanding && standings.size > 1 && !row.standing.startsWith("confirmatory");
                    const title = [row.note, row.standing, row.diverged_seeds.length > 0 ? `diverged: seeds ${row.diverged_seeds.join(", ")}` : "",
                      row.missing_seeds.length > 0 ? `missing: seeds ${row.missing_seeds.join(", ")}` : "", `seeds ${row.seeds.join(", ")}`].filter(Boolean).join("; ");
                    return (
                      <td key={i} class="number" title={title} {...attributes(row)}>
                        {jobs.length > 0 ? <a href={jobsHref(jobs)}>{number}</a> : number}
                        {exploratory && <abbr title={row.standing}>*</abbr>}
                        {extra && <div class={trouble ? "trouble" : "extra"}>{extra}</div>}
                      </td>
                    );
                  })}
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
      <div class="sheet-notes">
        {markStanding && standings.size === 1 && <p>Standing of every number: {[...standings][0]}.</p>}
        {markStanding && standings.size > 1 && <p>* not confirmatory; what each cell counts as is listed below.</p>}
        {sheet.footer.map((line) => <p key={line}>{line}</p>)}
      </div>
    </>
  );
}
