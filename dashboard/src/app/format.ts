// Numbers, times and names as text, the same as the command line prints them where it prints them (base/strings.cc). Must not know
// the page.
import { double, int64, type Configuration, type Double, type Int64, type Sweep, type Value } from "../api/types";
import { significant } from "../tables/format";

export const NOTHING = "–";

// With six digits, as the command line's tables; "nan" and "inf" for what is not finite.
export function formatNumber(value: Double | undefined, digits = 6): string {
  return value === undefined ? NOTHING : significant(double(value), digits);
}

// 12345 as "12,345". Of int64 beyond 2^53 too.
export function formatCount(value: Int64 | number | undefined): string {
  if (value === undefined) return NOTHING;
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

// "15.2k", "3.4M": rates.
export function formatRate(value: Double): string {
  const x = double(value);
  if (!Number.isFinite(x)) return formatNumber(value);
  if (x >= 1e6) return `${(x / 1e6).toFixed(1)}M`;
  if (x >= 1e3) return `${(x / 1e3).toFixed(1)}k`;
  return x.toFixed(0);
}

export function formatBytes(value: Int64 | number): string {
  let x = Number(value), unit = 0;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  while (x >= 1024 && unit + 1 < units.length) {
    x /= 1024;
    ++unit;
  }
  return unit === 0 ? `${x} B` : `${x.toFixed(1)} ${units[unit]}`;
}

// "3.0s", "12s", "3m20s", "5h07m".
export function formatSeconds(value: number): string {
  if (!Number.isFinite(value)) return NOTHING;
  const x = Math.max(0, value);
  if (x < 10) return `${x.toFixed(1)}s`;
  const two = (n: number): string => String(n).padStart(2, "0");
  const total = Math.round(x);
  if (total < 60) return `${total}s`;
  if (total < 3600) return `${Math.floor(total / 60)}m${two(total % 60)}s`;
  return `${Math.floor(total / 3600)}h${two(Math.floor(total / 60) % 60)}m`;
}

// The reader's own time zone, to the second, in one fixed order. "–" for 0.
export function formatTime(us: Int64): string {
  const ms = int64(us) / 1000;
  if (ms === 0) return NOTHING;
  const date = new Date(ms);
  const two = (n: number): string => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function formatValue(value: Value | undefined): string {
  if (value?.text !== undefined) return value.text;
  if (value?.flag !== undefined) return value.flag ? "true" : "false";
  return value?.number === undefined ? NOTHING : String(value.number);
}

export function settingsOf(configuration: Configuration | undefined): { axis: string; value: string }[] {
  return (configuration?.settings ?? []).map(({ axis, value }) => ({ axis, value: formatValue(value) }));
}

// "OUT_OF_MEMORY" -> "out of memory".
export function words(name: string): string {
  return name.toLowerCase().replace(/_/g, " ");
}

export const plural = (count: number, one: string, many = `${one}s`): string => `${formatCount(count)} ${count === 1 ? one : many}`;

// --- a sweep's progress ---

// `over` jobs are those that succeeded, failed or were cancelled: for the bar and the time left alone. What is done are the succeeded
// ones, as `ablate sweep list` counts.
export interface Progress { succeeded: number; failed: number; cancelled: number; diverged: number; over: number; all: number; share: number }

export function progressOf(sweep: Sweep): Progress {
  const jobs = sweep.jobs;
  const succeeded = int64(jobs?.succeeded), failed = int64(jobs?.failed), cancelled = int64(jobs?.cancelled);
  const over = succeeded + failed + cancelled;
  const all = over + int64(jobs?.blocked) + int64(jobs?.queued) + int64(jobs?.running);
  const byJobs = all > 0 ? over / all : 0;
  const total = int64(sweep.steps_total);
  // Training and evaluation each count by half: either can be the longer part. As cli/progress.cc.
  const share = total <= 0 ? byJobs : 0.5 * byJobs + 0.5 * Math.min(1, int64(sweep.steps_done) / total);
  return { succeeded, failed, cancelled, diverged: int64(sweep.diverged), over, all, share };
}

// ", 2 failed, 1 cancelled"; "" where there is neither.
export function lostText({ failed, cancelled }: Progress): string {
  return (failed > 0 ? `, ${formatCount(failed)} failed` : "") + (cancelled > 0 ? `, ${formatCount(cancelled)} cancelled` : "");
}

// How long a sweep will take: from the share done since this page saw it first; undefined until there is enough to judge by.
export class TimeLeft {
  private start: { seconds: number; share: number } | undefined;

  update(share: number, nowSeconds: number): number | undefined {
    this.start ??= { seconds: nowSeconds, share };
    const elapsed = nowSeconds - this.start.seconds, gained = share - this.start.share;
    if (elapsed < 3 || gained < 0.01) return undefined;
    return elapsed * (1 - share) / gained;
  }
}

// From when this tab saw a sweep first: pages come and go.
const timers = new Map<string, TimeLeft>();

// undefined where it is not known yet, or the sweep is over.
export function secondsLeft(sweep: Sweep, nowSeconds: number): number | undefined {
  if (sweep.state !== "SWEEP_RUNNING") return undefined;
  let timer = timers.get(sweep.sweep_id);
  if (!timer) timers.set(sweep.sweep_id, timer = new TimeLeft());
  return timer.update(progressOf(sweep).share, nowSeconds);
}
