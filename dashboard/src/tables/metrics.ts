// The metrics that the page knows by name: the one list, as experiments/metrics.cc has it (twins.test.ts holds them together). A metric
// that is not here is shown all the same, after these, where the server or the address names it. Must not know the page.

// headline: as there. at_once: asked for with the headlines, so that a list of what is measured has them. by_name: offered, and asked
// for alone. family: <word> stands for a number; shown where an address names a member.
export type MetricKind = "headline" | "at_once" | "by_name" | "family";
const all = (kind: MetricKind, ...names: string[]): { name: string; kind: MetricKind }[] => names.map((name) => ({ name, kind }));

// In the order of tables.
export const METRICS: readonly { name: string; kind: MetricKind }[] = [
  ...all("headline", "loss_targets", "loss", "passkey_accuracy", "mqar_accuracy", "attention_entropy", "attention_entropy_ratio", "attention_entropy_slope",
    "acc", "acc_norm", "rouge1", "rouge2", "rougeL"),
  ...all("at_once", "loss_per_byte", "bits_per_byte", "loss_targets_windowed", "gain"),
  ...all("by_name", "loss_by_position.T/64", "loss_by_position.T/32", "loss_by_position.T/16", "loss_by_position.T/8", "loss_by_position.T/4",
    "loss_by_position.T/2", "loss_by_position.3T/4", "loss_by_position.T", "loss_by_position.2T", "loss_by_position.4T", "loss_by_position.8T",
    "loss_by_position.16T", "loss_tokens", "target_tokens"),
  ...all("family", "passkey_accuracy.depth_<k>_of_<n>"),
  ...all("by_name", "passkey_trials"),
  ...all("family", "passkey_trials.depth_<k>_of_<n>"),
  ...all("at_once", "mqar_loss"),
  ...all("by_name", "mqar_queries", "attention_largest", "attention_first", "attention_zeros", "attention_uncontrasted", "attention_zero_rows"),
  ...all("family", "attention_entropy.l<layer>.h<head>", "attention_entropy_ratio.l<layer>.h<head>", "attention_entropy_slope.l<layer>.h<head>",
    "attention_largest.l<layer>.h<head>", "attention_first.l<layer>.h<head>", "attention_zeros.l<layer>.h<head>", "attention_uncontrasted.l<layer>.h<head>",
    "attention_zero_rows.l<layer>.h<head>"),
  ...all("by_name", "choice_items", "choice_items_cut", "summary_items", "summary_items_cut", "zero_rows", "uncontrasted_rows", "final_train_loss",
    "max_gradient_norm", "tokens"),
];

// Of training curves, as experiments/curves.cc.
export const CURVE_METRICS = ["train_loss", "gradient_norm", "learning_rate"];

const namesOf = (...kinds: MetricKind[]): string[] => METRICS.filter(({ kind }) => kinds.includes(kind)).map(({ name }) => name);
export const AT_ONCE = namesOf("headline", "at_once");
export const BY_NAME = namesOf("by_name");

const PATTERNS = METRICS.map(({ name }) => new RegExp(`^${name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&").replace(/<\w+>/g, "\\d+")}$`));

// A place in the order of tables, as MetricRank() there; unknown ones are last and keep their order.
export function metricRank(metric: string): number {
  const rank = PATTERNS.findIndex((pattern) => pattern.test(metric));
  return rank < 0 ? METRICS.length : rank;
}
