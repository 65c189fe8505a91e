// What the page knows by itself of metrics and presets, against the files that decide it.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { PRESET_LENGTHS } from "./format";
import { AT_ONCE, BY_NAME, CURVE_METRICS, METRICS, metricRank } from "./metrics";

const source = (name: string) => readFileSync(new URL(`../../../experiments/${name}`, import.meta.url), "utf8");

describe("experiments/", () => {
  it("metrics.cc: every metric in its order, headlines and families as such", () => {
    const rows = [...source("metrics.cc").matchAll(/^ +\{"([^"]+)", (true|false), (?:true|false), (?:true|false),/gm)].map((match) => ({ name: match[1], headline: match[2] === "true" }));
    expect(rows.length).toBeGreaterThan(50);
    expect(METRICS.map(({ name }) => name)).toEqual(rows.map((row) => row.name));
    for (const { name, headline } of rows) {
      const kind = METRICS.find((metric) => metric.name === name)?.kind;
      expect(kind === "headline", name).toBe(headline);
      expect(kind === "family", name).toBe(name!.includes("<"));
    }
    expect([...AT_ONCE, ...BY_NAME].length).toBe(METRICS.filter(({ kind }) => kind !== "family").length);
    // Members of a family by their row; what is not named comes last.
    const member = METRICS.findIndex(({ name }) => name === "attention_first.l<layer>.h<head>");
    expect(["loss_targets", "attention_first.l0.h12", "attention_first.l.h1", "loss_by_position.T/64", "loss_by_positionxT/64", "new"].map(metricRank))
      .toEqual([0, member, METRICS.length, 16, METRICS.length, METRICS.length]);
  });
  it("curves.cc: the metrics of training curves", () => {
    const list = /vector<std::string>\{([^}]*)\}/.exec(source("curves.cc"))?.[1] ?? "";
    expect([...list.matchAll(/"(\w+)"/g)].map((match) => match[1])).toEqual(CURVE_METRICS);
  });
  it("defaults.cc: the training length of each preset", () => {
    const rows = [...source("defaults.cc").matchAll(/^ +\{"([^"]+)", \d+, \d+, \d+, (\d+),/gm)].map((match) => [match[1], Number(match[2])]);
    expect(Object.fromEntries(rows)).toEqual(PRESET_LENGTHS);
  });
});
