import { describe, expect, it } from "vitest";
import { jobCurveCaption, prepareJobCurve, thin } from "./job_curve";

const line = (count: number, value: (i: number) => number) => Array.from({ length: count }, (_, i) => ({ step: i * 10, value: value(i) }));

describe("thin", () => {
  it("keeps extremes, ends and what is not finite", () => {
    const points = line(10_000, (i) => (i === 4321 ? 99 : i === 777 ? -99 : i === 5000 ? NaN : Math.sin(i / 50)));
    const kept = thin(points, 200);
    expect(kept.length).toBeLessThanOrEqual(201);
    expect(kept).toContainEqual({ step: 43210, value: 99 });
    expect(kept).toContainEqual({ step: 7770, value: -99 });
    expect(kept.filter((point) => Number.isNaN(point.value))).toHaveLength(1);
    expect(kept[0]!.step).toBe(0);
    expect(kept[kept.length - 1]!.step).toBe(99_990);
    expect(kept.map((point) => point.step)).toEqual([...kept].map((point) => point.step).sort((a, b) => a - b));
  });
  it("leaves short curves alone", () => {
    const points = line(20, (i) => i);
    expect(thin(points, 20)).toEqual(points);
  });
});

describe("prepareJobCurve", () => {
  it("takes one metric, counts what has no place, and says so", () => {
    const points = [
      { metric: "train_loss", step: "20", value: "NaN" as const },
      { metric: "train_loss", step: "10", value: 2.5 },
      { metric: "gradient_norm", step: "10", value: "Infinity" as const },
      { metric: "train_loss", step: "30", value: 0 },
    ];
    const data = prepareJobCurve(points, { name: "j", metric: "train_loss", log: true, diverged: true });
    expect(data.points.map((point) => point.step)).toEqual([10, 20, 30]);
    expect(data.points.map((point) => Number.isFinite(point.value))).toEqual([true, false, false]);
    expect([data.from, data.lost, data.raw]).toEqual([10, [20], [2.5, NaN, 0]]);
    expect([data.stored, data.notFinite, data.hidden]).toEqual([3, 1, 1]);
    expect(jobCurveCaption(data).join(" ")).toMatch(/1 value that is not finite.*1 values of 0 or below.*diverged/);
  });
});
