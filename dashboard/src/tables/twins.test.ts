// What the page knows by itself of metrics and presets, against the files that decide it.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { HEADLINES, OTHERS, PRESET_LENGTHS } from "./format";

const source = (name: string) => readFileSync(new URL(`../../../experiments/${name}`, import.meta.url), "utf8");

describe("experiments/", () => {
  it("metrics.cc: headline metrics in their order, and the others' names", () => {
    const rows = [...source("metrics.cc").matchAll(/^ +\{"([^"]+)", (true|false), (?:true|false), (?:true|false),/gm)].map((match) => ({ name: match[1], headline: match[2] === "true" }));
    expect(rows.length).toBeGreaterThan(50);
    expect(rows.filter((row) => row.headline).map((row) => row.name)).toEqual(HEADLINES);
    for (const name of OTHERS) expect(rows.map((row) => row.name)).toContain(name);
  });
  it("defaults.cc: the training length of each preset", () => {
    const rows = [...source("defaults.cc").matchAll(/^ +\{"([^"]+)", \d+, \d+, \d+, (\d+),/gm)].map((match) => [match[1], Number(match[2])]);
    expect(Object.fromEntries(rows)).toEqual(PRESET_LENGTHS);
  });
});
