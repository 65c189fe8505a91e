// The tables against the golden files of the command line (cli/golden): the same text, whichever of the two makes it.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { ComparisonRow, ConfidenceRow } from "../api/types";
import { armLabel, decimalsFor, finite, levelText, pText, shortest, significant, toDecimals } from "./format";
import { comparisonRecords, comparisonSheets, tableRecords, tableSheets } from "./result_sheets";
import { joined, toCsv, toLatex, toMarkdown } from "./sheet";

const golden = (name: string) => readFileSync(new URL(`../../../cli/golden/${name}`, import.meta.url), "utf8");

/* eslint-disable @typescript-eslint/no-explicit-any */
// The records of `-o json` as the API's messages.
function confidenceRows(): ConfidenceRow[] {
  return (JSON.parse(golden("table.json")) as any[]).map((r) => ({
    ...r, arm_json: JSON.stringify(r.arm), length: String(r.length), mean: r.mean ?? undefined, sd: r.sd ?? undefined,
    low: r.low ?? undefined, high: r.high ?? undefined, rate_low: r.rate_low ?? undefined, rate_high: r.rate_high ?? undefined,
    tries: "0", seeds: r.seeds.map(String), diverged_seeds: r.diverged_seeds.map(String), missing_seeds: r.missing.map(String),
    job_ids: r.jobs, diverged_job_ids: r.diverged_jobs, phase: "PLAIN",
  }));
}
function comparisonRows(): ComparisonRow[] {
  return (JSON.parse(golden("compare.json")) as any[]).map((r) => ({
    ...r, arm_json: JSON.stringify(r.arm), baseline_json: JSON.stringify(r.baseline), length: String(r.length),
    p: r.p ?? undefined, p_adjusted: r.p_adjusted ?? undefined, seeds: r.seeds.map(String),
    diverged_seeds: r.diverged_seeds.map(String), missing_seeds: r.missing.map(String), job_ids: r.jobs,
    diverged_job_ids: r.diverged_jobs, phase: "PLAIN",
  }));
}

describe("the command line's golden tables", () => {
  it("Markdown", () => expect(joined(tableSheets(confidenceRows(), false), toMarkdown)).toBe(golden("table.md")));
  it("LaTeX", () => expect(joined(tableSheets(confidenceRows(), false), toLatex)).toBe(golden("table.tex")));
  it("CSV", () => expect(toCsv(tableRecords(confidenceRows()))).toBe(golden("table.csv")));
  it("comparison as Markdown", () => expect(joined(comparisonSheets(comparisonRows(), false), toMarkdown)).toBe(golden("compare.md")));
  it("comparison as LaTeX", () => expect(joined(comparisonSheets(comparisonRows(), false), toLatex)).toBe(golden("compare.tex")));
  it("comparison as CSV", () => expect(toCsv(comparisonRecords(comparisonRows()))).toBe(golden("compare.csv")));
});

describe("sheets", () => {
  it("mark what a number counts as where a sweep has phases", () => {
    const rows = confidenceRows().filter((row) => row.metric === "loss").map((row, i) => ({
      ...row, phase: "CONFIRMING" as const, standing: i === 0 ? "exploratory: seen in job X" : "confirmatory",
    }));
    const [sheet] = tableSheets(rows, true);
    expect(sheet?.title).toContain("confirming (standing by cell: see below)");
    expect(sheet?.footer).toContain("exploratory: seen in job X are:");
  });
  it("show the interval of the tries where seeds give none", () => {
    const row = { ...confidenceRows()[0]!, metric: "passkey_accuracy", low: undefined, high: undefined, rate_low: 0.7672, rate_high: 0.9069,
      tries: "100" };
    const [sheet] = tableSheets([row], false);
    expect(sheet?.cells[0]?.[0]?.text).toContain("[0.767, 0.907]");
    expect(sheet?.footer.join()).toContain("Wilson");
  });
  it("survive non-finite numbers", () => {
    const row = { ...confidenceRows()[0]!, mean: "NaN" as const, low: "-Infinity" as const, high: "Infinity" as const };
    expect(tableSheets([row], false)[0]?.cells[0]?.[0]?.text).toBe("nan ± inf");
    expect(toCsv(tableRecords([row]))).toContain(",nan,");
  });
  it("are none for an arm of which nothing was measured", () => {
    expect(tableSheets([{ ...confidenceRows()[0]!, metric: "" }], false)).toEqual([]);
  });
});

describe("format", () => {
  it("names arms as the command line does", () => {
    expect(armLabel('{"attention.p":15,"attention.variant":"lssar"}')).toBe("lssar p=15");
    expect(armLabel('{"attention.p":15,"eval.attention.p":3}')).toBe("attention.p=15 eval.attention.p=3");
    expect(armLabel("{}")).toBe("default");
    expect(armLabel("not an arm")).toBe("not an arm");
  });
  it("keeps doubles", () => {
    expect([0.1 + 0.2, 1e-4, 1e-7, 1.5e-7, 1e21, 100000, -0, NaN, -Infinity].map(shortest)).toEqual(
      ["0.30000000000000004", "0.0001", "1e-07", "1.5e-07", "1e+21", "100000", "0", "nan", "-inf"]);
  });
  it("rounds as C does", () => {
    expect([significant(1234567, 3), significant(0.00012345, 3), significant(2.5, 6)]).toEqual(["1.23e+06", "0.000123", "2.5"]);
    expect([toDecimals(0.125, 2), toDecimals(0.375, 2), toDecimals(-2.5, 0), toDecimals(0.1245, 3), toDecimals(3.5, 0), toDecimals(-0.25, 1)])
      .toEqual(["0.12", "0.38", "-2", "0.124", "4", "-0.2"]);
    expect([decimalsFor(0.0388), decimalsFor(12), decimalsFor(0), pText(0.00001), levelText(0.95), levelText(0.999)]).toEqual(
      [4, 1, 4, "<0.0001", "95 %", "99.9 %"]);
  });
  it("has no number for what is not finite", () => {
    expect([finite("NaN"), finite("Infinity"), finite(undefined), finite("12"), finite(0)]).toEqual([undefined, undefined, undefined, 12, 0]);
  });
});
