import { describe, expect, it } from "vitest";
import type { Sweep } from "../api/types";
import { formatBytes, formatCount, formatNumber, formatRate, formatSeconds, formatTime, formatValue, lostText, progressOf, settingsOf, TimeLeft, words } from "./format";

const sweep = (jobs: Partial<Record<string, string>>, rest: Partial<Sweep> = {}): Sweep => ({
  jobs: { blocked: "0", queued: "0", running: "0", succeeded: "0", failed: "0", cancelled: "0", ...jobs }, steps_done: "0", steps_total: "0", ...rest,
}) as Sweep;

describe("numbers", () => {
  it("are as the command line prints them, and words where they are not finite", () => {
    expect([1.4815111133765526, 614400, 1e-5, 12345678, 0].map((x) => formatNumber(x))).toEqual(["1.48151", "614400", "1e-05", "1.23457e+07", "0"]);
    expect([formatNumber("NaN"), formatNumber("Infinity"), formatNumber("-Infinity"), formatNumber(undefined)]).toEqual(["nan", "inf", "-inf", "–"]);
  });
  it("group digits of any int64", () => {
    expect(["0", "999", "1000", "9223372036854775807", "-1234"].map(formatCount)).toEqual(["0", "999", "1,000", "9,223,372,036,854,775,807", "-1,234"]);
  });
  it("have units", () => {
    expect(["0", "1023", "1024", "25276059648"].map(formatBytes)).toEqual(["0 B", "1023 B", "1.0 KiB", "23.5 GiB"]);
    expect([0, 9.94, 10, 59.4, 61, 3599.6, 18420, 200000].map(formatSeconds)).toEqual(["0.0s", "9.9s", "10s", "59s", "1m01s", "1h00m", "5h07m", "55h33m"]);
    expect([formatSeconds(NaN), formatSeconds(-3)]).toEqual(["–", "0.0s"]);
    expect([formatRate(950), formatRate(15200), formatRate(3.4e6), formatRate("NaN")]).toEqual(["950", "15.2k", "3.4M", "nan"]);
  });
  it("of times are nothing where there is none", () => {
    expect(formatTime("0")).toBe("–");
    expect(formatTime("1796076164915989")).toMatch(/^2026-11-30 \d\d:\d\d:44$|^2026-12-01 \d\d:\d\d:44$/);
  });
});

describe("settings", () => {
  it("keep their kind of value", () => {
    expect([{ number: 3 }, { text: "lssar" }, { flag: false }, { number: "NaN" as const }, {}, undefined].map(formatValue)).toEqual(["3", "lssar", "false", "NaN", "–", "–"]);
    expect(settingsOf(undefined)).toEqual([]);
    expect(words("OUT_OF_MEMORY")).toBe("out of memory");
  });
});

describe("progress", () => {
  it("counts jobs and steps by half, as the command line does", () => {
    expect(progressOf(sweep({ succeeded: "3", failed: "1", queued: "4" }))).toMatchObject({ succeeded: 3, failed: 1, cancelled: 0, over: 4, all: 8, share: 0.5 });
    expect(progressOf(sweep({ succeeded: "2", queued: "6" }, { steps_done: "30", steps_total: "40" })).share).toBe(0.125 + 0.375);
    expect(progressOf(sweep({}, { steps_done: "50", steps_total: "40" })).share).toBe(0.5);
    expect(progressOf({} as Sweep)).toEqual({ succeeded: 0, failed: 0, cancelled: 0, diverged: 0, over: 0, all: 0, share: 0 });
  });
  it("says apart what failed and what was cancelled", () => {
    const text = (jobs: Partial<Record<string, string>>): string => lostText(progressOf(sweep(jobs)));
    expect([text({ succeeded: "3" }), text({ failed: "2" }), text({ cancelled: "1200" }), text({ failed: "1", cancelled: "3" })])
      .toEqual(["", ", 2 failed", ", 1,200 cancelled", ", 1 failed, 3 cancelled"]);
  });
  it("gives the time left only once there is enough to judge by", () => {
    const left = new TimeLeft();
    expect(left.update(0.2, 100)).toBeUndefined();
    expect(left.update(0.4, 102)).toBeUndefined();
    expect(left.update(0.205, 110)).toBeUndefined();
    expect(left.update(0.4, 110)).toBeCloseTo(30);
    expect(left.update(1, 150)).toBe(0);
  });
});
