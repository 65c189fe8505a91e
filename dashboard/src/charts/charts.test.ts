// What charts are made of: which numbers, which ranges, what is said of them. The drawing itself is looked at in a browser.
import { describe, expect, it } from "vitest";
import type { ClaimRow, ComparisonRow, ConfidenceRow, GetCurvesResponse, GetGridResponse, GridCell } from "../api/types";
import { axisCaption, axisGroups, axisRecords, axisScale, axesOf, prepareAxis } from "./axis";
import { curvesCaption, curvesRecords, logTicks, prepareCurves } from "./curves";
import { markerPath, padded, robustRange, spread } from "./figure";
import { prepareClaims, prepareDifferences } from "./forest";
import { countsText, gridRecords, kindOf, prepareGrid } from "./grid";
import { lengthsCaption, lengthsRecords, multipleText, prepareLengths, thinned } from "./lengths";
import { firstLines, troubles, viewKey, viewsOf } from "./rows";
import { armsOf, styleAt, withoutNtk } from "./style";

const SOFTMAX = '{"attention.variant":"softmax"}';
const lssar = (p: number | string) => `{"attention.p":${JSON.stringify(p)},"attention.variant":"lssar"}`;
const VIEW = { split: "selection", phase: "PLAIN" } as const;
const ARMS = armsOf([
  { arm_json: SOFTMAX, label: "variant=softmax", baseline: true },
  { arm_json: lssar(1), label: "", baseline: false }, { arm_json: lssar(15), label: "", baseline: false },
]);

function row(arm: string, length: number, change: Partial<ConfidenceRow> = {}): ConfidenceRow {
  return { sweep: "s", arm_json: arm, metric: "loss_targets", length: String(length), split: "selection", ntk: false, n: 3, mean: 2.5, sd: 0.1, low: 2.25, high: 2.75,
    level: 0.95, method: "student_t", note: "", seeds: ["0", "1", "2"], diverged_seeds: [], missing_seeds: [], job_ids: ["a", "b", "c"], diverged_job_ids: [], phase: "PLAIN",
    standing: "", tries: "0", ...change };
}
const QUERY = { metric: "loss_targets", view: VIEW, ntk: "both", arms: ARMS, trainLength: 128, phases: false, sweep: "s" } as const;

describe("arms", () => {
  it("look the same whatever else is shown, and differ from each other", () => {
    const looks = Array.from({ length: 56 }, (_, i) => styleAt(i)).map((style) => `${style.colour} ${style.marker.name} ${style.hollow} ${style.dash}`);
    expect(new Set(looks).size).toBe(56);
    expect(ARMS.map((arm) => arm.label)).toEqual(["softmax", "lssar p=1", "lssar p=15"]);
    expect(ARMS[0]?.style.dash).not.toBe("");
    expect(ARMS[0]?.style.width).toBeGreaterThan(ARMS[1]?.style.width ?? 9);
  });
  it("are one where they differ in NTK alone, and none where they are tuning runs", () => {
    const arms = armsOf([
      { arm_json: SOFTMAX, label: "", baseline: true }, { arm_json: '{"attention.variant":"softmax","eval.ntk":"dynamic"}', label: "", baseline: false },
      { arm_json: '{"train.learning_rate":1}', label: "", baseline: false, phase: "TUNING" },
    ]);
    expect(arms.map((arm) => [arm.json, arm.baseline])).toEqual([[SOFTMAX, true]]);
    expect(withoutNtk('{"eval.ntk":"off","model.width":3}')).toBe('{"model.width":3}');
    expect(withoutNtk('{"eval.ntk":"off"}')).toBe("{}");
  });
});

describe("by length", () => {
  const rows = [row(SOFTMAX, 128), row(SOFTMAX, 256, { mean: 3 }), row(SOFTMAX, 256, { ntk: true, mean: 2.75 }), row(lssar(1), 128, { n: 1, sd: undefined, low: undefined, high: undefined }),
    row(lssar(1), 256, { n: 0, mean: undefined, low: undefined, high: undefined, seeds: [], diverged_seeds: ["0", "1", "2"] }), row(lssar(15), 128, { missing_seeds: ["2"], n: 2 }),
    row(lssar(15), 256, { mean: "NaN", low: "-Infinity", high: "Infinity" })];
  const data = prepareLengths(rows, QUERY);
  it("keeps NTK apart, and shows what NTK cannot change with both", () => {
    expect(data.panels.map((panel) => panel.ntk)).toEqual([false, true]);
    expect(data.panels[1]?.series[0]?.points.map((point) => [point.length, point.mean])).toEqual([[128, 2.5], [256, 2.75]]);
    expect(prepareLengths(rows, { ...QUERY, ntk: "off" }).panels).toHaveLength(1);
  });
  it("has no interval for one seed, no mean where all diverged, and no place for what is not finite", () => {
    const [softmax, one, fifteen] = data.panels[0]?.series ?? [];
    expect(softmax?.points[0]).toMatchObject({ mean: 2.5, low: 2.25, high: 2.75, n: 3 });
    expect(one?.points[0]).toMatchObject({ mean: 2.5, low: undefined, high: undefined, n: 1 });
    expect(one?.points[1]).toMatchObject({ mean: undefined, diverged: ["0", "1", "2"] });
    expect(fifteen?.points.map((point) => point.length)).toEqual([128]);
    expect(Number.isFinite(data.range.low) && Number.isFinite(data.range.high)).toBe(true);
  });
  it("says statistic, level, n, method, and who diverged or is missing", () => {
    const caption = lengthsCaption(data).join(". ");
    for (const said of ["Mean over n = 1 to 3 seeds with the 95 % Student t interval", "baseline softmax", "Seeds 0, 1, 2 diverged (not in the mean) at length 256: lssar p=1",
      "Seed 2 missing: lssar p=15", "has no interval"]) expect(caption).toContain(said);
  });
  it("gives the same numbers of an arm whatever else is shown", () => {
    const alone = prepareLengths(rows, { ...QUERY, arms: ARMS.slice(0, 1) });
    expect(alone.panels[0]?.series[0]?.points).toEqual(data.panels[0]?.series[0]?.points);
  });
  it("writes what is drawn, exactly", () => {
    const records = lengthsRecords(prepareLengths([row(SOFTMAX, 128, { mean: 0.1 + 0.2 })], QUERY));
    expect(records.rows[0]?.[records.columns.indexOf("mean")]).toBe("0.30000000000000004");
    expect(records.rows[0]?.[records.columns.indexOf("jobs")]).toBe("a b c");
  });
  it("labels lengths by the training length, as many as have room", () => {
    expect([multipleText(128, 128), multipleText(64, 128), multipleText(2048, 128), multipleText(128, 0)]).toEqual(["1×", "0.5×", "16×", ""]);
    expect(thinned([128, 256, 512, 1024, 2048], 400)).toHaveLength(5);
    expect(thinned([128, 256, 512, 1024, 2048], 60).length).toBeLessThan(4);
    expect(thinned([128], 60)).toEqual([128]);
  });
  it("says that one seed has no interval", () => {
    const caption = lengthsCaption(prepareLengths([row(SOFTMAX, 128, { n: 1, low: undefined, high: undefined }), row(SOFTMAX, 256, { n: 1, low: undefined, high: undefined })], QUERY)).join(". ");
    expect(caption).toContain("Mean over n = 1 seed; no interval");
    expect(caption).not.toMatch(/95 %|bands/);
  });
  it("is empty, not broken, without a row", () => {
    expect(prepareLengths([], QUERY).panels).toEqual([]);
  });
});

describe("by axis", () => {
  const arms = armsOf([{ arm_json: SOFTMAX, label: "", baseline: true }, ...["none", 0, 1, 15, 100].map((p) => ({ arm_json: lssar(p), label: "", baseline: false }))]);
  it("finds arms that are alike but for a number", () => {
    expect(axesOf(arms)).toEqual(["attention.p"]);
    expect(axisGroups(arms)[0]?.arms.map(({ value }) => value)).toEqual(["none", 0, 1, 15, 100]);
    expect(axesOf(ARMS.slice(0, 2))).toEqual([]);
  });
  it("has a log scale with places at the side for zero, none and the baseline", () => {
    const scale = axisScale(["none", 0, 1, 15, 100], true);
    expect(scale.log).toBe(true);
    expect(scale.ticks.map((tick) => [tick.text, tick.side])).toEqual([["baseline", true], ["none", true], ["0", true], ["1", false], ["15", false], ["100", false]]);
    const places = scale.ticks.map((tick) => tick.at);
    expect(places).toEqual([...places].sort((a, b) => a - b));
    expect(scale.separator).toBeGreaterThan(places[2] ?? 0);
    expect(scale.separator).toBeLessThan(places[3] ?? 0);
    expect(scale.places.get("100")).toBeCloseTo(2);
  });
  it("is linear where values are close or negative, and takes a single value", () => {
    expect(axisScale([1, 2, 3], false).log).toBe(false);
    expect(axisScale([-1, 0, 100], false).log).toBe(false);
    const one = axisScale([7], false);
    expect(one.domain[0]).toBeLessThan(one.domain[1]);
  });
  it("draws a line a length, the lock, and the baseline as a level", () => {
    const rows = arms.flatMap((arm) => [row(arm.json, 128), row(arm.json, 256)]);
    const data = prepareAxis(rows, { metric: "loss_targets", view: VIEW, axis: "attention.p", ntk: "both", arms, trainLength: 128, split: false, phases: false, sweep: "s",
      lock: { arm_json: lssar(15), rule_arm_json: lssar(15), by_hand: false, why: "", at_us: "0", evidence_json: "", short_rule_arm_json: lssar(1) } });
    expect(data.panels[0]?.lines.map((line) => [line.length, line.points.length, line.baseline?.mean])).toEqual([[128, 5, 2.5], [256, 5, 2.5]]);
    expect(data.locked).toEqual([{ value: 15, text: "locked by the rule" }, { value: 1, text: "1× alone would pick" }]);
    expect(axisCaption(data).join(". ")).toContain("0, which a log scale has no place for");
    expect(axisRecords(data).rows.map((one) => one[0])).toContain("none");
  });
});

describe("curves", () => {
  const response: GetCurvesResponse = {
    arms_json: [SOFTMAX, lssar(1)], arm_labels: ["", ""], level: 0.95, method: "student_t", note: "thinned from 5000 points",
    curves: [
      { arm: 0, seed: "0", phase: "PLAIN", metric: "train_loss", steps: ["10", "20", "30"], values: [3, "NaN", 2], stored_points: "3", diverged_at_step: "0", job_ids: ["j"] },
      { arm: 1, seed: "0", phase: "PLAIN", metric: "train_loss", steps: ["10", "20"], values: [4, "Infinity"], stored_points: "2", diverged_at_step: "15", job_ids: ["k"] },
    ],
    means: [
      { arm: 0, phase: "PLAIN", metric: "train_loss", steps: ["10", "30"], means: [3, 2], lows: [2.5, "NaN"], highs: [3.5, "NaN"], n: [2, 1], seeds: ["0", "1"] },
      { arm: 1, phase: "PLAIN", metric: "train_loss", steps: ["10"], means: [4], lows: ["NaN"], highs: ["NaN"], n: [1], seeds: ["0"] },
    ],
  };
  const data = prepareCurves(response, { arms: ARMS, log: true, sweep: "s" });
  it("leaves gaps for what is not finite, and ends a diverged seed at its last value", () => {
    const [first, second] = data.panels[0]?.seeds ?? [];
    expect(first?.points.map((point) => point.value)).toEqual([3, NaN, 2]);
    expect([first?.gaps, first?.diverged]).toEqual([1, undefined]);
    expect(second?.diverged).toEqual({ step: 15, value: 4 });
    expect(data.panels[0]?.range.low).toBeGreaterThan(0);
  });
  it("says n where it changes, thinning, divergence and gaps", () => {
    const caption = curvesCaption(data).join(". ");
    for (const said of ["n = 1 to 2 seeds, with the pointwise 95 % Student t interval", "softmax: n = 2, 1 from step 30 on", "lssar p=1, seed 0: diverged at step 15", "2 points that are not finite",
      "thinned from 5000 points"]) expect(caption).toContain(said);
  });
  it("writes seeds and means", () => {
    const records = curvesRecords(data);
    expect(records.rows.filter((one) => one[4] === "seed")).toHaveLength(5);
    expect(records.rows.find((one) => one[4] === "mean")?.slice(6, 11)).toEqual([10, "3", "2.5", "3.5", 2]);
  });
  it("draw nothing where nothing has run", () => {
    const none = { ...response, means: [], curves: [{ ...response.curves[0]!, steps: [], values: [] }] };
    expect(prepareCurves(none, { arms: ARMS, log: false, sweep: "s" }).panels).toEqual([]);
  });
  it("counts what a log axis has no place for", () => {
    const zero = { ...response, curves: [{ ...response.curves[0]!, values: [0, -1, 2] }] };
    expect(prepareCurves(zero, { arms: ARMS, log: true, sweep: "s" }).hidden).toBe(2);
  });
  it("has ticks on any log axis", () => {
    for (const [low, high] of [[0.9, 1200], [2.4, 4.9], [1e-5, 3e4], [2.6, 2.9], [0.2, 1.9]] as const) expect(logTicks({ low, high }).length).toBeGreaterThan(1);
  });
});

describe("forests", () => {
  const pair = (arm: string, difference: number, change: Partial<ComparisonRow> = {}): ComparisonRow => ({ sweep: "s", arm_json: arm, baseline_json: SOFTMAX, metric: "loss_targets", length: "256",
    split: "selection", ntk: false, n: 3, difference, sd: 0.1, low: difference - 0.1, high: difference + 0.1, p: 0.01, p_adjusted: 0.02, family_size: 2, level: 0.95, method: "paired_t", note: "",
    seeds: ["0", "1", "2"], diverged_seeds: [], missing_seeds: [], phase: "PLAIN", standing: "", job_ids: ["a", "b"], diverged_job_ids: [], ...change });
  const query = { metric: "loss_targets", view: VIEW, ntk: false, arms: ARMS, sort: "difference", margins: [], phases: false, sweep: "s" } as const;
  it("sort by difference, print interval, n, p and Holm's p, list who is out", () => {
    const data = prepareDifferences([pair(lssar(1), 0.5, { diverged_seeds: ["2"] }), pair(lssar(15), -0.5, { p: undefined, p_adjusted: undefined, missing_seeds: ["1"] })], query);
    expect(data.rows.map((one) => one.label)).toEqual(["length 256", "lssar p=15", "lssar p=1"]);
    expect(data.rows[2]?.numbers).toBe("0.500 [0.400, 0.600], n = 3, p 0.0100, Holm 0.0200, 1 diverged");
    expect(data.rows[1]?.numbers).toContain("no p, 1 missing");
    expect(data.caption.join()).toMatch(/paired difference.*n = 3 pairs.*95 % paired t interval.*Holm.*2 comparisons.*seed 2 diverged/);
  });
  it("shade the margin of a claim on that very comparison", () => {
    const margins = [{ arm: lssar(1), baseline: SOFTMAX, length: 256, ntk: false, margin: 0.2, claim: "c" }];
    const data = prepareDifferences([pair(lssar(1), 0.5), pair(lssar(15), 0.1)], { ...query, margins });
    expect(data.rows.map((one) => one.margin)).toEqual([undefined, undefined, { low: -0.2, high: 0.2 }]);
  });
  it("show claims with both intervals, and none before there is an estimate", () => {
    const claim: ClaimRow = { claim: { name: "c", kind: "EQUIVALENT", selected_arm: false, metric: "loss_targets", ntk: false, direction: 0, margin: 0.1, margin_reason: "", smallest_effect: 0, main: false,
      divergence_is_worst: false }, arm_json: lssar(1), baseline_json: SOFTMAX, verdict: "SUPPORTED", standing: "confirmatory", sentence: "", n: 8, look: 0, estimate: 0.01, low: -0.01, high: 0.03,
      family_low: -0.02, family_high: 0.04, p: 0.01, p_adjusted: 0.02, alpha: 0.05, method: "tost", notes: [], seeds: [], job_ids: [] };
    const data = prepareClaims([claim, { ...claim, estimate: undefined, low: undefined, high: undefined, verdict: "NOT_YET" }], "s");
    expect(data.rows[0]).toMatchObject({ estimate: 0.01, low: -0.01, outerHigh: 0.04, margin: { low: -0.1, high: 0.1 } });
    expect(data.rows.map((one) => one.numbers.split(":")[0])).toEqual(["supported", "not yet"]);
    expect(data.caption[0]).toContain("95 %");
  });
});

describe("grid", () => {
  const cell = (arm: number, seed: number, change: Partial<GridCell> = {}): GridCell => ({ arm, seed: String(seed), phase: "PLAIN", state: "SUCCEEDED", sealed: false, diverged: false, jobs_done: 2, jobs: 2,
    step: "10", steps: "10", job_id: `job_${arm}_${seed}`, failure: "FAILURE_KIND_UNSPECIFIED", ...change });
  it("keeps phases apart and tells sealed, diverged and failed by letters", () => {
    const response: GetGridResponse = { arms: [{ arm_json: SOFTMAX, label: "", baseline: true, phase: "PLAIN" }], seeds: ["0", "100"],
      cells: [cell(0, 100, { phase: "CONFIRMING", state: "BLOCKED", sealed: true, job_id: "" }), cell(0, 0, { phase: "SELECTING", diverged: true }), cell(0, 1, { phase: "SELECTING", state: "FAILED" })] };
    const data = prepareGrid(response);
    expect(data.phases.map(({ phase, first, count }) => [phase, first, count])).toEqual([["SELECTING", 0, 2], ["CONFIRMING", 2, 1]]);
    expect(data.rows[0]?.cells.map((one) => one && kindOf(one))).toEqual(["diverged", "failed", "sealed"]);
    expect(countsText(data.counts)).toBe("1 diverged, 1 sealed, 1 failed");
    expect(gridRecords(data).rows).toHaveLength(3);
  });
  it("takes 10,000 cells in a moment", () => {
    const arms = Array.from({ length: 2000 }, (_, i) => ({ arm_json: lssar(i + 1), label: "", baseline: i === 0, phase: "PLAIN" as const }));
    const cells = arms.flatMap((_, arm) => [0, 1, 2, 3, 4].map((seed) => cell(arm, seed)));
    const data = prepareGrid({ arms, seeds: ["0", "1", "2", "3", "4"], cells });
    expect([data.rows.length, data.counts.succeeded, data.jobs.all]).toEqual([2000, 10_000, 20_000]);
  });
});

describe("ranges and places", () => {
  it("leave out what is far off, and say how much", () => {
    const { range, beyond } = robustRange([1, 1.1, 1.2, 1.3, 1000, NaN, Infinity]);
    expect([range.low, range.high, beyond]).toEqual([1, 1.3, 1]);
    expect(robustRange([]).beyond).toBe(0);
    // As many as a sweep's curves have: more than a call takes arguments.
    expect(robustRange(Array.from({ length: 300_000 }, (_, i) => 1 + (i % 7) / 10)).range).toEqual({ low: 1, high: 1.6 });
    const flat = padded({ low: 2, high: 2 }, 0.05);
    expect(flat.high).toBeGreaterThan(flat.low);
  });
  it("move labels apart in order, inside of the chart", () => {
    const places = spread([10, 11, 12, 200], 15, 0, 210);
    expect((places[1] ?? 0) - (places[0] ?? 0)).toBeGreaterThan(14.9);
    expect(Math.min(...places)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...places)).toBeLessThanOrEqual(210);
  });
  it("draw every marker", () => {
    for (let i = 0; i < 7; ++i) expect(markerPath(styleAt(i).marker, 4)).toMatch(/^M.*Z$/);
  });
  it("name views and cut long lists", () => {
    expect(viewsOf([row(SOFTMAX, 1), row(SOFTMAX, 2, { phase: "CONFIRMING", split: "confirmation" })]).map(viewKey)).toEqual(["selection", "confirmation/confirming"]);
    expect(firstLines(["a", "b", "c"], 2, "things")).toEqual(["a", "b", "And 1 more line of things: see the table"]);
    expect(troubles([])).toEqual([]);
  });
});
