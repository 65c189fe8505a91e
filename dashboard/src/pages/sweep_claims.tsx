// The tab of a sweep's claims: seal and plan hash, what was locked on what evidence, each claim with its verdict in words and its estimate
// against the margin, validity gate, tuning, deviations.
import { useCallback, useMemo } from "preact/hooks";
import { apiUrl } from "../api/client";
import type { ClaimRow, GetClaimsResponse, Lock, Sweep, TunedArm, ValidityGate } from "../api/types";
import { useLive } from "../app/live";
import { ErrorNotice, Loading, Scroll, State, Time } from "../app/widgets";
import { ChartCard } from "../charts/card";
import type { DrawOptions } from "../charts/figure";
import { drawForest, prepareClaims } from "../charts/forest";
import {
  armLabel, claimMethodText, configurationJson, finite, lengthSpecText, pText, phaseText, shortest, significant, toDecimals, unitOf, withInterval,
} from "../tables/format";
import { jobsHref } from "./sweep_results";
import { NothingYet, type TabProps, apiPath } from "./sweep_view";

export function ClaimsTab({ sweep }: TabProps) {
  const { data, error } = useLive<GetClaimsResponse>(apiUrl(apiPath(sweep.name, "claims")));
  const forest = useMemo(() => data && prepareClaims(data.claims, sweep.name), [data, sweep.name]);
  const draw = useCallback((options: DrawOptions) => drawForest(forest!, options), [forest]);
  if (!data) return error ? <ErrorNotice error={error} /> : <Loading what="Asking for the claims" />;
  const any = data.claims.length + data.tuning.length > 0 || data.lock || data.gate;
  return (
    <>
      {!any && (
        <div class="panel empty" data-empty>
          <p><strong>This sweep states no claims.</strong></p>
          <p>Its numbers are exploratory. A sweep file may say beforehand what is chosen how and what is then claimed (<code>claims:</code>): its confirming work is then sealed
            until the choice is locked.</p>
        </div>
      )}
      {data.claims.length > 0 && <Seal sweep={sweep} data={data} />}
      {forest && data.claims.some((row) => row.estimate !== undefined) ? <ChartCard draw={draw} sweep={sweep.name} />
        : data.claims.length > 0 && <NothingYet sweep={sweep} what="No claim has an estimate" />}
      {data.claims.length > 0 && (
        <div class="claims">{data.claims.map((row) => <Claim key={row.claim?.name} row={row} sweep={sweep} />)}</div>
      )}
      {data.lock && <LockPanel lock={data.lock} sweep={sweep} />}
      {data.gate && <Gate gate={data.gate} sweep={sweep} />}
      {data.tuning.length > 0 && <Tuning tuning={data.tuning} sweep={sweep} />}
      {(data.deviations.length > 0 || data.claims.length > 0) && (
        <section class="panel">
          <h2>Deviations and amendments</h2>
          {data.deviations.length === 0 ? <p class="muted">None: everything went as the plan said.</p> : (
            <Scroll label="Deviations">
              <table>
                <thead><tr><th scope="col">When</th><th scope="col">Kind</th><th scope="col">What</th></tr></thead>
                <tbody>{data.deviations.map((one, i) => <tr key={i}><td><Time us={one.at_us} /></td><td class="nowrap">{one.kind.replace(/_/g, " ")}</td><td>{one.text}</td></tr>)}</tbody>
              </table>
            </Scroll>
          )}
        </section>
      )}
    </>
  );
}

function Seal({ sweep, data }: { sweep: Sweep; data: GetClaimsResponse }) {
  return (
    <section class="panel">
      <h2>Seal</h2>
      <dl class="facts">
        <dt>Plan</dt>
        <dd><span class="hash">{data.plan_sha256 || sweep.plan_sha256 || "–"}</span><div class="muted">hashed before the first lease</div></dd>
        <dt>Confirming work</dt>
        <dd>{sweep.sealed ? <><State name="SEALED" word="sealed" />: not run, and nothing of it shown, until the selection is locked</>
          : data.lock ? <><State name="SUCCEEDED" word="let go" />: the selection is locked</> : "let go"}</dd>
        <dt>Phase</dt><dd>{phaseText(data.phase) || "plain"}</dd>
        <dt>Waits for</dt><dd>{data.waiting_for || "nothing"}</dd>
      </dl>
    </section>
  );
}

const KINDS: Record<string, (row: ClaimRow) => string> = {
  EQUIVALENT: (row) => `equivalent within ${shortest(finite(row.claim?.margin) ?? 0)}`,
  RISES_LESS: () => "rises less",
  DIFFERS: (row) => ((row.claim?.direction ?? 0) < 0 ? "lower" : (row.claim?.direction ?? 0) > 0 ? "higher" : "differs"),
};

function Claim({ row, sweep }: { row: ClaimRow; sweep: Sweep }) {
  const { claim } = row;
  if (!claim) return null;
  const arm = row.arm_json ? armLabel(row.arm_json) : claim.selected_arm ? "the selected arm (not locked yet)" : armLabel(configurationJson(claim.arm));
  const against = row.baseline_json ? armLabel(row.baseline_json) : claim.against?.settings.length ? armLabel(configurationJson(claim.against)) : "the baseline";
  const estimate = finite(row.estimate), margin = finite(claim.margin) ?? 0;
  const unit = unitOf(claim.metric) ? ` ${unitOf(claim.metric)}` : "";
  const length = (claim.short_length ? `${lengthSpecText(claim.short_length)} to ` : "") + lengthSpecText(claim.length);
  const exact = (value: unknown) => (value === undefined ? undefined : shortest(Number(value)));
  return (
    <section class="claim" data-claim={claim.name} data-verdict={row.verdict} data-estimate={exact(row.estimate)} data-low={exact(row.low)} data-high={exact(row.high)}
      data-family-low={exact(row.family_low)} data-family-high={exact(row.family_high)} data-p={exact(row.p)} data-p-adjusted={exact(row.p_adjusted)} data-n={row.n}>
      <h3><span>{claim.name}{claim.main ? " (main)" : ""}</span><State name={row.verdict} /></h3>
      {row.sentence && <p>{row.sentence}</p>}
      <dl class="facts">
        <dt>Claim</dt><dd>{arm}: {KINDS[claim.kind]?.(row) ?? claim.kind} {claim.kind === "EQUIVALENT" ? "of" : "than"} {against}; {claim.metric} at {length}, NTK {claim.ntk ? "on" : "off"}</dd>
        <dt>Estimate</dt><dd>{estimate === undefined ? "none yet" : <>{withInterval(estimate, finite(row.low), finite(row.high))}{unit} <span class="muted">plain interval</span></>}</dd>
        {row.family_low !== undefined && <><dt>Family-wise</dt><dd>{withInterval(estimate, finite(row.family_low), finite(row.family_high))} <span class="muted">Bonferroni</span></dd></>}
        {margin > 0 && <><dt>Margin</dt><dd>{shortest(margin)}{unit}{claim.margin_reason && <span class="muted">: {claim.margin_reason}</span>}</dd></>}
        <dt>p</dt><dd>{row.p === undefined ? "none" : <>{pText(finite(row.p))}, Holm {pText(finite(row.p_adjusted))}, against α = {shortest(Number(row.alpha))}</>}</dd>
        <dt>n</dt><dd>{row.n} {row.n === 1 ? "pair" : "pairs"}{row.look > 0 ? `, look ${row.look}` : ""}{row.seeds.length > 0 ? ` (seeds ${row.seeds.join(", ")})` : ""}</dd>
        {row.method && <><dt>Method</dt><dd>{claimMethodText(row.method)}</dd></>}
        <dt>Standing</dt><dd>{row.standing || "–"}</dd>
        {row.smallest_detectable !== undefined && <><dt>Smallest detectable</dt><dd>{significant(Number(row.smallest_detectable), 3)} at power 80 %
          {row.seeds_to_decide !== undefined && `; ${row.seeds_to_decide} seeds would decide ${Number(claim.smallest_effect) > 0 ? `the declared effect of ${shortest(Number(claim.smallest_effect))}` : "it"}`}</dd></>}
        {row.job_ids.length > 0 && <><dt>Jobs</dt><dd><a href={jobsHref(sweep.name)(row.job_ids.slice(0, 60))}>{row.job_ids.length} behind these numbers</a></dd></>}
      </dl>
      {row.notes.length > 0 && <ul>{row.notes.map((note) => <li key={note}>{note}</li>)}</ul>}
    </section>
  );
}

function LockPanel({ lock, sweep }: { lock: Lock; sweep: Sweep }) {
  return (
    <section class="panel" data-lock={lock.arm_json}>
      <h2>Selection</h2>
      <dl class="facts">
        <dt>{lock.arm_json ? (lock.by_hand ? "Locked by hand" : "Locked by the rule") : "Locked"}</dt>
        <dd>{lock.arm_json ? <strong>{armLabel(lock.arm_json)}</strong> : "nothing is selected: the claims name their arms"} <span class="muted">at <Time us={lock.at_us} /></span></dd>
        {lock.rule_arm_json && <><dt>The rule picks</dt><dd>{armLabel(lock.rule_arm_json)}</dd></>}
        {lock.short_rule_arm_json && <><dt>The loss at 1× alone would have picked</dt><dd>{armLabel(lock.short_rule_arm_json)}
          {lock.short_rule_regret !== undefined && `, regret ${significant(Number(lock.short_rule_regret), 4)}`} <span class="muted">(exploratory)</span></dd></>}
        {lock.why && <><dt>Why</dt><dd>{lock.why}</dd></>}
      </dl>
      <Evidence json={lock.evidence_json} sweep={sweep} />
    </section>
  );
}

interface Candidate { arm?: unknown; score?: number; eligible?: boolean; means?: { length: number; n: number; mean?: number }[]; n?: number;
  diverged_seeds?: number[]; missing_seeds?: number[]; jobs?: string[] }
interface EvidenceRead { rule?: { choose?: string; metric?: string; split?: string; seeds?: number[] }; candidates?: Candidate[] }

// What the rule saw, as it was written down at the lock. What another version wrote in another shape is shown as it is.
function Evidence({ json, sweep }: { json: string; sweep: Sweep }) {
  if (!json) return null;
  let read: EvidenceRead;
  try {
    read = JSON.parse(json) as EvidenceRead;
  } catch {
    return <pre>{json}</pre>;
  }
  const candidates = read?.candidates;
  if (!Array.isArray(candidates)) return <details><summary>What the rule saw</summary><pre>{JSON.stringify(read, null, 1)}</pre></details>;
  const lengths = [...new Set(candidates.flatMap((one) => (one.means ?? []).map((mean) => mean.length)))].sort((x, y) => x - y);
  const number = (value: number | undefined) => (typeof value === "number" ? significant(value, 6) : "–");
  const list = (seeds: number[] | undefined, word: string) => (seeds?.length ? `${word}: ${seeds.join(", ")}` : "");
  return (
    <details>
      <summary>What the rule saw ({candidates.length} candidates)</summary>
      {read.rule?.choose && <p class="muted">{read.rule.choose}: {read.rule.metric}, {read.rule.split}, seeds {read.rule.seeds?.join(", ")}</p>}
      <Scroll label="What the rule saw">
        <table>
          <thead><tr><th scope="col">Arm</th><th scope="col" class="number">Score</th>{lengths.map((length) => <th key={length} scope="col" class="number">Mean at {length}</th>)}
            <th scope="col" class="number">n</th><th scope="col">Out</th><th scope="col">Jobs</th></tr></thead>
          <tbody>{candidates.map((one, i) => (
            <tr key={i}>
              <td>{armLabel(JSON.stringify(one.arm ?? {}))}</td>
              <td class="number">{number(one.score)}</td>
              {lengths.map((length) => <td key={length} class="number">{number(one.means?.find((mean) => mean.length === length)?.mean)}</td>)}
              <td class="number">{one.n ?? "–"}</td>
              <td>{[one.eligible === false ? "not eligible" : "", list(one.diverged_seeds, "diverged"), list(one.missing_seeds, "missing")].filter(Boolean).join("; ") || "–"}</td>
              <td class="nowrap">{one.jobs?.length ? <a href={jobsHref(sweep.name)(one.jobs)}>{one.jobs.length} jobs</a> : "–"}</td>
            </tr>
          ))}</tbody>
        </table>
      </Scroll>
    </details>
  );
}

function Gate({ gate, sweep }: { gate: ValidityGate; sweep: Sweep }) {
  return (
    <section class="panel" data-gate={String(gate.passed)}>
      <h2>Is there something to explain? <State name={gate.passed ? "SUPPORTED" : "REFUTED"} word={gate.passed ? "gate passed" : "gate not passed"} /></h2>
      <p>{gate.text}</p>
      <dl class="facts">
        <dt>Context is used</dt><dd>loss falls by {significant(Number(gate.context_fall), 4)} nats per byte from T/8..T/4 to 3T/4..T (0.05 are asked)</dd>
        <dt>Loss rises</dt><dd>{withInterval(finite(gate.rise), finite(gate.rise_low), finite(gate.rise_high))} from 1× to 8×, NTK off, 95 % interval (0.1 are asked, with the interval above 0)</dd>
        <dt>Seeds</dt><dd>{gate.seeds.join(", ")}{gate.job_ids.length > 0 && <>, <a href={jobsHref(sweep.name)(gate.job_ids)}>{gate.job_ids.length} jobs</a></>}</dd>
      </dl>
    </section>
  );
}

function Tuning({ tuning, sweep }: { tuning: TunedArm[]; sweep: Sweep }) {
  return (
    <section class="panel">
      <h2>Tuning: mean over the tuning seeds by learning rate</h2>
      <Scroll label="Tuning">
        <table>
          <thead><tr><th scope="col">Arm</th><th scope="col" class="number">Chosen</th><th scope="col">Tried</th></tr></thead>
          <tbody>
            {tuning.map((arm) => (
              <tr key={arm.arm_json}>
                <td>{armLabel(arm.arm_json)}{arm.note && <div class="muted">{arm.note}</div>}</td>
                <td class="number">{Number(arm.learning_rate) > 0 ? shortest(Number(arm.learning_rate)) : "not yet"}</td>
                <td>{arm.tries.map((one, i) => {
                  const chosen = Number(one.learning_rate) === Number(arm.learning_rate);
                  const text = `${shortest(Number(one.learning_rate))}: ${one.mean === undefined ? "–" : toDecimals(Number(one.mean), 4)}`;
                  return <span key={i}>{i > 0 && ", "}{one.job_ids.length > 0 ? <a href={jobsHref(sweep.name)(one.job_ids)}>{chosen ? <strong>{text}</strong> : text}</a> : text}
                    {one.diverged > 0 && ` (${one.diverged} diverged)`}{one.extension && " (beyond the grid)"}</span>;
                })}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}
