import { describe, expect, it } from "vitest";
import type { Sweep } from "../api/types";
import { compareSweeps, isPaused, phaseOf, statesOf } from "./sweeps";

const sweep = (name: string, rest: Partial<Sweep> = {}): Sweep => ({
  name, state: "SWEEP_RUNNING", created_at_us: "0", diverged: "0", waiting_for: "", needs_person: false, sealed: false, phase: "PLAIN", ...rest,
}) as Sweep;
const order = (by: Parameters<typeof compareSweeps>[0], sweeps: Sweep[]): string[] => sweeps.sort(compareSweeps(by, () => 0)).map((one) => one.name);

describe("sweeps", () => {
  it("say what they wait for", () => {
    const paused = sweep("a", { needs_person: true, waiting_for: "paused after 20 failures of code_error; ablate sweep resume a" });
    expect(isPaused(paused)).toBe(true);
    expect(statesOf(paused)).toEqual(["SWEEP_RUNNING", "PAUSED"]);
    expect(statesOf(sweep("b", { needs_person: true, waiting_for: "a lock by hand", sealed: true }))).toEqual(["SWEEP_RUNNING", "WAITS", "SEALED"]);
    expect([phaseOf(paused), phaseOf(sweep("c", { phase: "CONFIRMING" })), phaseOf(sweep("d", { phase: "CONFIRMING", state: "SWEEP_SUCCEEDED" }))]).toEqual(["", "confirming", ""]);
  });
  it("are ordered by name with numbers by value, and what needs somebody comes first", () => {
    expect(order("name", [sweep("p10"), sweep("p2"), sweep("a")])).toEqual(["a", "p2", "p10"]);
    expect(order("state", [sweep("done", { state: "SWEEP_SUCCEEDED" }), sweep("failed", { state: "SWEEP_FAILED" }), sweep("person", { needs_person: true })]))
      .toEqual(["person", "failed", "done"]);
    expect(order("created", [sweep("old", { created_at_us: "5" }), sweep("new", { created_at_us: "1796076164915989" })])).toEqual(["new", "old"]);
  });
});
