// What a sweep's state comes to for people. Must not know the page.
import type { Sweep } from "../api/types";

// Paused after too many failures (cli/watcher.cc has the same rule).
export function isPaused(sweep: Sweep): boolean {
  return sweep.needs_person && sweep.waiting_for.startsWith("paused after ");
}

export const isOver = (sweep: Sweep): boolean => sweep.state !== "SWEEP_RUNNING";

// The names of states (app/widgets.tsx) that are to be shown, most important first.
export function statesOf(sweep: Sweep): string[] {
  const states: string[] = [sweep.state];
  if (isPaused(sweep)) states.push("PAUSED");
  else if (sweep.needs_person) states.push("WAITS");
  if (sweep.sealed) states.push("SEALED");
  return states;
}

const PHASES: Record<string, string> = { TUNING: "tuning", SELECTING: "selecting", CONFIRMING: "confirming" };

// "" for sweeps without phases, and for those that are over: "succeeded, confirming" would read as if something went on.
export function phaseOf(sweep: Sweep): string {
  return sweep.state === "SWEEP_RUNNING" || sweep.sealed ? PHASES[sweep.phase] ?? "" : "";
}

// Numbers inside of names by value: p2 before p10.
const names = new Intl.Collator("en", { numeric: true });

export type SweepOrder = "created" | "name" | "state" | "progress" | "failed" | "diverged";

export function compareSweeps(order: SweepOrder, progress: (sweep: Sweep) => number): (a: Sweep, b: Sweep) => number {
  const by: Record<SweepOrder, (a: Sweep, b: Sweep) => number> = {
    created: (a, b) => Number(b.created_at_us) - Number(a.created_at_us),
    name: (a, b) => names.compare(a.name, b.name),
    state: (a, b) => rank(a) - rank(b),
    progress: (a, b) => progress(a) - progress(b),
    failed: (a, b) => Number(b.jobs?.failed ?? 0) - Number(a.jobs?.failed ?? 0),
    diverged: (a, b) => Number(b.diverged) - Number(a.diverged),
  };
  return (a, b) => by[order](a, b) || names.compare(a.name, b.name);
}

// What somebody should look at first.
function rank(sweep: Sweep): number {
  if (sweep.needs_person) return 0;
  return { SWEEP_FAILED: 1, SWEEP_RUNNING: 2, SWEEP_SUCCEEDED: 3, SWEEP_CANCELLED: 4, SWEEP_STATE_UNSPECIFIED: 5 }[sweep.state];
}
