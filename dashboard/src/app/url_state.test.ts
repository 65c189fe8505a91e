import { describe, expect, it } from "vitest";
import { flag, level, list, number, oneOf, readState, text, writeState } from "./url_state";

const VIEW = {
  tab: oneOf(["overview", "curves"], "overview"),
  metric: text("loss"),
  arms: list(),
  level: number(0.95),
  log: flag(false),
};

describe("readState", () => {
  it("gives defaults for what is absent or not understood", () => {
    expect(readState(VIEW, "")).toEqual({ tab: "overview", metric: "loss", arms: [], level: 0.95, log: false });
    expect(readState(VIEW, "?tab=nonsense&level=high&log=maybe")).toEqual(readState(VIEW, ""));
    expect(readState(VIEW, "?level=").level).toBe(0.95);
    expect(readState(VIEW, "?level=Infinity").level).toBe(0.95);
    for (const bad of ["2", "1", "0", "-0.5", "abc", "", "NaN"]) expect(readState({ level: level() }, `?level=${bad}`).level, bad).toBe(0.95);
    expect(["0.8", "0.999", "1e-3"].map((good) => readState({ level: level() }, `?level=${good}`).level)).toEqual([0.8, 0.999, 0.001]);
  });
  it("reads what writeState wrote, commas and all", () => {
    const change = { tab: "curves" as const, arms: ['{"attention.p":3,"train.lr":1e-3}', "b=1,2"], level: 0.9, log: true, metric: "a b&c" };
    expect(readState(VIEW, writeState(VIEW, "", change))).toEqual(change);
  });
});

describe("writeState", () => {
  it("leaves out defaults and keeps what is not its own", () => {
    expect(writeState(VIEW, "?page=2&tab=curves", { tab: "overview" })).toBe("?page=2");
    expect(writeState(VIEW, "?log=1", { log: false })).toBe("");
    expect(writeState(VIEW, "?x=1", { metric: "loss_targets" })).toBe("?x=1&metric=loss_targets");
  });
});
