// Numbers, arms and settings as text, the same text as the command line prints (cli/result_tables.cc, experiments/table.cc,
// base/strings.cc). Nothing is computed here beyond rounding and the half-width of an interval. Must not know the page.
import type { Configuration, Double, Int64, JobState, LengthSpec, Phase, Verdict } from "../api/types";

// undefined for what is absent; NaN and infinities as they are.
export function number(value: Double | Int64 | undefined): number | undefined {
  return value === undefined ? undefined : Number(value);
}

// undefined for what is absent or not finite: a chart has no place for it.
export function finite(value: Double | Int64 | undefined): number | undefined {
  const read = number(value);
  return read !== undefined && Number.isFinite(read) ? read : undefined;
}

// The shortest decimal text that reads back as the same double, without an exponent where a person would use none.
export function shortest(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return "0";
  const magnitude = Math.abs(value);
  const plain = magnitude >= 1e-5 && magnitude < 1e15;
  const text = plain ? String(value) : value.toExponential();
  const match = /^(-?)(\d+)(?:\.(\d+))?e([+-]\d+)$/.exec(text);
  if (!match) return text;
  const [, sign = "", whole = "0", part = "", power = "0"] = match;
  if (plain) return `${sign}0.${"0".repeat(-Number(power) - 1)}${whole}${part}`;
  const digits = power.slice(1).padStart(2, "0");
  return `${sign}${whole}${part ? `.${part}` : ""}e${power[0]}${digits}`;
}

// As C's %.Ng.
export function significant(value: number, digits: number): string {
  if (!Number.isFinite(value)) return shortest(value);
  if (value === 0) return "0";
  const exponent = Number(value.toExponential(digits - 1).split("e")[1]);
  const trim = (text: string) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  if (exponent >= -4 && exponent < digits) return trim(value.toFixed(digits - 1 - exponent));
  const [mantissa = "", power = ""] = value.toExponential(digits - 1).split("e");
  return `${trim(mantissa)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
}

// Decimals at which a half-width has three significant digits.
export function decimalsFor(halfWidth: number, digits = 3): number {
  if (!Number.isFinite(halfWidth) || halfWidth <= 0) return 4;
  return Math.min(Math.max(digits - 1 - Math.floor(Math.log10(halfWidth)), 0), 12);
}

// As C's %.Nf: where both neighbours are equally far, the even one (toFixed takes the larger).
export function toDecimals(value: number, decimals: number): string {
  const exact = Math.abs(value).toFixed(Math.min(decimals + 40, 100));
  const cut = exact.length - 40;
  const kept = exact.slice(0, decimals === 0 ? cut - 1 : cut);
  if (!/^50*$/.test(exact.slice(cut)) || !/[02468]$/.test(kept)) return value.toFixed(decimals);
  return (value < 0 ? "-" : "") + kept;
}

export function fixed(value: number, decimals: number): string {
  if (!Number.isFinite(value)) return shortest(value);
  return Math.abs(value) >= 1e6 ? significant(value, 3) : toDecimals(value, decimals);
}

// "2.3750 ± 0.0388"; "-" without a mean.
export function meanInterval(mean: number | undefined, low: number | undefined, high: number | undefined, decimals: number): string {
  if (mean === undefined) return "-";
  if (low === undefined || high === undefined) return fixed(mean, decimals);
  return `${fixed(mean, decimals)} ± ${fixed((high - low) / 2, decimals)}`;
}

// "0.0312 [0.0201, 0.0423]"; "-" without an estimate.
export function withInterval(estimate: number | undefined, low: number | undefined, high: number | undefined, decimals?: number): string {
  if (estimate === undefined) return "-";
  const has = low !== undefined && high !== undefined;
  const places = decimals ?? decimalsFor(has ? (high - low) / 2 : 0);
  return fixed(estimate, places) + (has ? ` [${fixed(low, places)}, ${fixed(high, places)}]` : "");
}

export function pText(p: number | undefined): string {
  if (p === undefined) return "-";
  return p < 0.0001 ? "<0.0001" : p.toFixed(4);
}

export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

export function levelText(level: Double): string {
  return `${shortest(Number((Number(level) * 100).toPrecision(12)))} %`;
}

const METHODS: Record<string, string> = { student_t: "Student t interval", paired_t: "paired t interval" };
export function methodText(method: string): string {
  return METHODS[method] ?? `${method} interval`;
}

const METHODS_OF_CLAIMS: Record<string, string> = {
  paired_t: "paired t",
  tost: "two one-sided t tests (TOST)",
  sign_test: "exact sign test",
  intersection_union: "intersection-union of three paired t tests",
  stein: "Stein's two stages",
};
export function claimMethodText(method: string): string {
  return METHODS_OF_CLAIMS[method] ?? method;
}

// "selection split"; the name of a task, which stands in the place of a split, as it is.
export function splitText(split: string): string {
  return split === "selection" || split === "confirmation" || split === "train" ? `${split} split` : split;
}

// "" for a sweep without phases.
export function phaseText(phase: Phase): string {
  return phase === "TUNING" || phase === "SELECTING" || phase === "CONFIRMING" ? phase.toLowerCase() : "";
}

export function verdictText(verdict: Verdict): string {
  switch (verdict) {
    case "SUPPORTED": return "supported";
    case "REFUTED": return "refuted";
    case "UNDECIDED": return "undecided";
    case "NOT_YET": return "not yet";
    default: return "unknown";
  }
}

export function stateText(state: JobState): string {
  return state === "JOB_STATE_UNSPECIFIED" ? "unknown" : state.toLowerCase();
}

export type ArmValues = Record<string, number | string | boolean>;

// {} for a text that is no arm.
export function armValues(armJson: string): ArmValues {
  try {
    const read: unknown = JSON.parse(armJson);
    return read !== null && typeof read === "object" && !Array.isArray(read) ? (read as ArmValues) : {};
  } catch {
    return {};
  }
}

export function valueText(value: number | string | boolean): string {
  return typeof value === "number" ? shortest(value) : String(value);
}

function lastPart(axis: string): string {
  return axis.slice(axis.lastIndexOf(".") + 1);
}

function label(values: ArmValues): string {
  const axes = Object.keys(values);
  const parts = axes.map((axis) => {
    const alike = axes.filter((other) => lastPart(other) === lastPart(axis)).length;
    return `${alike > 1 ? axis : lastPart(axis)}=${valueText(values[axis] ?? "")}`;
  });
  return parts.join(" ") || "default";
}

// "lssar p=3": the variant speaks for itself, other axes need their names.
export function armLabel(armJson: string): string {
  const values = armValues(armJson);
  if (Object.keys(values).length === 0 && armJson.trim() !== "{}") return armJson;
  const { "attention.variant": variant, ...rest } = values;
  if (typeof variant !== "string") return label(values);
  return Object.keys(rest).length === 0 ? variant : `${variant} ${label(rest)}`;
}

export function configurationJson(config: Configuration | undefined): string {
  const values: ArmValues = {};
  for (const { axis, value } of config?.settings ?? []) {
    values[axis] = value.text ?? value.flag ?? Number(value.number ?? 0);
  }
  return JSON.stringify(values);
}

export function lengthSpecText(length: LengthSpec | undefined): string {
  if (!length) return "";
  return length.multiple !== undefined ? `${shortest(Number(length.multiple))}x` : `${length.tokens ?? ""}`;
}

// What experiments/metrics.cc says of the unit.
export function unitOf(metric: string): string {
  if (metric === "bits_per_byte") return "bits per byte";
  if (metric === "loss_per_byte") return "nats per byte";
  if (metric.startsWith("attention_entropy_slope")) return "nats per e-fold";
  if (metric.startsWith("attention_entropy_ratio")) return "";
  if (/^(loss_tokens|target_tokens|tokens)$/.test(metric)) return "tokens";
  if (metric.startsWith("loss") || metric === "gain" || metric === "mqar_loss" || metric === "train_loss" ||
      metric === "final_train_loss" || metric.startsWith("attention_entropy")) return "nats";
  return "";
}

export function metricWithUnit(metric: string): string {
  const unit = unitOf(metric);
  return unit ? `${metric} (${unit})` : metric;
}

// train.length by model.preset, as experiments/defaults.cc; permanent there.
export const PRESET_LENGTHS: Record<string, number> = { tiny: 256, small: 256, "gpt2-45m": 1024, "gpt2-124m": 1024, "gpt2-355m": 1024 };

export function timeText(microseconds: Int64 | undefined): string {
  const value = Number(microseconds ?? 0);
  return value > 0 ? new Date(value / 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC" : "";
}
