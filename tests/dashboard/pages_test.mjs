// Every page and tab of the dashboard against a coordinator with workers: loads without a word on the console, holds the numbers that the
// command line prints, survives what is not finite, not there or too much, and follows what happens. Use of the page: use_test.mjs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { Cluster, armOf, launch, needBrowser, noopYaml, numberOf, openTab, pageCells, poll, recordCells, sweepYaml } from "./harness.mjs";

await needBrowser();
const cluster = new Cluster();
let browser, tab;

const ARMS = `arms:
  - {attention.variant: softmax, eval.ntk: [off, dynamic]}
  - {attention.variant: lssar, attention.p: [1, 3, 15], eval.ntk: [off, dynamic]}
baseline: {attention.variant: softmax}`;
const SEALED = `name: sealed
data: {name: words, format: text, path: text.txt}
settings:
  model.layers: 1
  model.width: 32
  model.heads: 2
  train.length: 32
  train.batch: 4
  train.steps: 10
  train.warmup_steps: 5
  eval.target_spans: 8
  eval.loss_tokens: 1024
arms:
  - {attention.variant: softmax}
  - {attention.variant: lssar, attention.p: [1, 3]}
baseline: {attention.variant: softmax}
seeds: 2
evaluate: {lengths: [1x, 2x]}
select:
confirm: {seeds: 5, fixed: [{attention.variant: lssar, attention.p: 3}]}
claims:
  - {name: selected, kind: differs, arm: selected, length: 8x}
  - {name: p3, kind: equivalent, arm: {attention.p: 3}, length: 8x, margin: 0.5, why: of a test}
`;
const FIELDS = ["mean", "low", "high", "n"];

async function setUp() {
  await cluster.startServer("--max-failures", "1");
  await cluster.submit("empty", sweepYaml("empty", { steps: 31, axes: "axes: {attention.variant: [softmax, lssar]}", extra: "requires: {labels: [nowhere]}\n" }));
  await cluster.submit("main", sweepYaml("main", { axes: ARMS, seeds: 3 }));
  await cluster.submit("one", sweepYaml("one", { axes: "axes: {attention.variant: [softmax, lssar]}", seeds: 1, steps: 20 }));
  await cluster.submit("hot", sweepYaml("hot", { axes: "axes: {train.learning_rate: [3e-3, 10]}", steps: 60, settings: "  train.weight_decay: 1\n" }));
  await cluster.submit("sealed", SEALED);
  await cluster.submit("failing", noopYaml("failing", { axes: "axes: {noop.outcome: [succeed, code_error]}\nbaseline: {noop.outcome: succeed}\n", seeds: 2 }));
  // Nothing of this one ran; of the next one nothing has a mean.
  await cluster.submit("stopped", sweepYaml("stopped", { steps: 32, axes: "axes: {attention.variant: [softmax]}", seeds: 1, extra: "requires: {labels: [nowhere]}\n" }));
  await cluster.ablate("sweep", "cancel", "stopped");
  await cluster.submit("burnt", sweepYaml("burnt", { axes: "axes: {train.learning_rate: [10]}", seeds: 1, steps: 60, settings: "  train.weight_decay: 1\n" }));
  cluster.startWorker("trains");
  cluster.startWorker("noops", { executor: "noop", slots: 4 });
  [browser] = await Promise.all([launch(), ...["main", "one", "hot", "sealed", "failing", "burnt"].map((sweep) => cluster.wait(sweep, 240))]);
  tab = await openTab(browser, cluster.url);
  await tab.context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: cluster.url });
}
// Without what they are about, no test needs to be tried.
before(() => setUp().catch(async (error) => {
  console.error(error);
  await cluster.close();
  process.exit(1);
}));
after(async () => {
  await browser?.close();
  await cluster.close();
});

// Nothing was said on the console since the last time, and no request left the server.
function quiet() {
  assert.deepEqual(tab.troubles.splice(0), []);
  assert.deepEqual(tab.foreign.splice(0), []);
}

// As the page shows them with NTK on: where it cannot act, what was measured without it.
const withNtk = (records) => records.filter((r) => r.ntk || !records.some((other) => other.ntk && other.length === r.length && armOf(other.arm) === armOf(r.arm)))
  .map((r) => ({ ...r, ntk: true }));

test("sweeps: names, states, counts", async () => {
  await tab.go("/", "text=failing");
  const sweeps = await cluster.json("sweep", "list");
  const rows = await tab.page.locator("tbody tr").evaluateAll((all) => all.map((row) => `${row.querySelector("a").innerText}: ${row.innerText}`));
  assert.equal(rows.length, sweeps.length);
  for (const sweep of sweeps) {
    const row = rows.find((text) => text.startsWith(`${sweep.sweep}: `));
    for (const word of [sweep.state.toLowerCase(), `${sweep.succeeded}/${sweep.jobs} jobs`, `${sweep.arms} × ${sweep.seeds}`])
      assert.ok(row?.includes(word), `${word} in ${row}`);
    for (const lost of ["failed", "cancelled"]) assert.equal(row.includes(`, ${sweep[lost]} ${lost}`), sweep[lost] > 0, `${sweep[lost]} ${lost} in ${row}`);
  }
  quiet();
});

test("a sweep that is over: the page counts as done what `ablate sweep list` does, and says what became of the rest, not that it comes yet", async () => {
  const sweeps = await cluster.json("sweep", "list");
  const said = {};
  // Of a single diverged seed the charts show what there is; nothing to compare is what is left to say.
  for (const [name, first] of [["failing", "overview"], ["stopped", "overview"], ["burnt", "differences"]]) {
    const { jobs, succeeded, failed, cancelled, diverged } = sweeps.find((sweep) => sweep.sweep === name);
    await tab.go(`/sweeps/${name}?tab=${first}`, "[data-empty]");
    said[name] = { jobs, succeeded, failed, cancelled, diverged };
    const head = await tab.page.locator(".page-head").innerText(), empty = await tab.page.locator("[data-empty]").innerText();
    assert.ok(head.includes(`${succeeded} of ${jobs} job`), head);
    assert.ok(empty.includes(`${succeeded} of ${jobs} job`), empty);
    for (const text of [head, empty]) for (const [word, count] of [["failed", failed], ["cancelled", cancelled]])
      assert.equal(text.includes(`${count} ${word}`), count > 0, `${count} ${word} in ${text}`);
    assert.equal(empty.includes(`${diverged} of them as diverged`), diverged > 0, empty);
    assert.doesNotMatch(empty, /\byet\b|fills in/);
    for (const other of ["curves", "lengths", "axis", "table", "differences"]) {
      await tab.go(`/sweeps/${name}?tab=${other}`, `#panel-${other} :is(svg [data-n], td[data-n], [data-empty])`);
      for (const text of await tab.page.locator("[data-empty]").allInnerTexts()) assert.doesNotMatch(text, /\byet\b|fills in/);
    }
  }
  assert.ok(said.failing.failed === 2 && said.failing.succeeded === 2 && said.stopped.succeeded === 0 && said.stopped.cancelled === said.stopped.jobs && said.burnt.diverged > 0,
    JSON.stringify(said));
  quiet();
});

test("the table: every metric's numbers, sorted by a click, copied as the command line prints them", async () => {
  for (const metric of ["loss_targets", "loss"]) {
    const records = await cluster.json("table", "main", "--metric", metric);
    assert.ok(records.length >= 12);
    await tab.go(`/sweeps/main?tab=table&metric=${metric}`, "td[data-mean]");
    assert.deepEqual(pageCells(await tab.data("td[data-mean]"), FIELDS), recordCells(records, FIELDS));
  }
  await tab.go("/sweeps/main?tab=table&metric=loss_targets", "td[data-mean]");
  for (const [button, format] of [["Copy Markdown", "markdown"], ["Copy LaTeX", "latex"], ["Copy CSV", "csv"]]) {
    await tab.page.getByRole("button", { name: button }).click();
    await tab.page.getByText("Copied as").first().waitFor();
    assert.equal(await tab.page.evaluate(() => navigator.clipboard.readText()), await cluster.ablate("table", "main", "--metric", "loss_targets", "-o", format));
  }
  const column = async () => (await tab.data("tbody td:nth-child(2)")).map((cell) => Number(cell.mean));
  const before = await column();
  await tab.page.locator("th button.sort").nth(1).click();
  await tab.page.locator('th[aria-sort="ascending"]').waitFor();
  assert.deepEqual(await column(), [...before].sort((a, b) => a - b));
  await tab.page.locator("th button.sort").nth(1).click();
  await tab.page.locator('th[aria-sort="descending"]').waitFor();
  assert.deepEqual(await column(), [...before].sort((a, b) => b - a));
  quiet();
});

test("another level of confidence changes intervals as on the command line", async () => {
  const records = await cluster.json("table", "main", "--metric", "loss_targets", "--level", "0.8");
  await tab.go("/sweeps/main?tab=table&metric=loss_targets&level=0.8", "td[data-mean]");
  assert.deepEqual(pageCells(await tab.data("td[data-mean]"), FIELDS), recordCells(records, FIELDS));
  quiet();
});

test("by length and the overview: means, intervals and n of every arm, NTK off and on", async () => {
  const records = await cluster.json("table", "main", "--metric", "loss_targets");
  const off = records.filter((row) => !row.ntk);
  const expected = recordCells([...off, ...withNtk(records)], FIELDS);
  for (const path of ["/sweeps/main?tab=lengths&metric=loss_targets", "/sweeps/main?metric=loss_targets"]) {
    await tab.go(path, "svg [data-mean]");
    assert.deepEqual(pageCells(await tab.data("svg [data-mean]"), FIELDS), expected);
  }
  const caption = await tab.page.locator("figcaption").first().innerText();
  assert.match(caption, /n = 3 seeds.*95 % Student t/s);
  quiet();
});

test("what is shown beside an arm changes nothing of it", async () => {
  await tab.go("/sweeps/main?tab=lengths&metric=loss_targets&ntk=off", "svg [data-mean]");
  const all = pageCells(await tab.data("svg [data-mean]"), FIELDS);
  await tab.page.locator("summary", { hasText: "Arms:" }).click();
  await tab.page.getByRole("button", { name: "Only the baseline" }).click();
  await tab.page.waitForURL(/arms=/);
  await poll("the others are gone", async () => (await tab.data("svg [data-mean]")).length < all.length);
  const alone = pageCells(await tab.data("svg [data-mean]"), FIELDS);
  assert.equal(alone.length, all.length / 4);
  for (const cell of alone) assert.ok(all.includes(cell), cell);
  quiet();
});

test("by axis: the numbers of p, one line a length", async () => {
  const records = (await cluster.json("table", "main", "--metric", "loss_targets")).filter((row) => !row.ntk);
  await tab.go("/sweeps/main?tab=axis&metric=loss_targets&axis=attention.p&ntk=off", "svg [data-mean]");
  // The baseline has no p: a place of its own.
  assert.deepEqual(pageCells(await tab.data("svg [data-mean]"), FIELDS), recordCells(records, FIELDS));
  assert.match(await tab.page.locator("figcaption").first().innerText(), /log scale/);
  quiet();
});

test("differences: the forest and the table hold the numbers of `ablate compare`", async () => {
  const records = await cluster.json("compare", "main", "--metric", "loss_targets");
  assert.ok(records.length >= 9);
  const fields = ["difference", "low", "high", "n", "p", "pAdjusted"];
  const names = { pAdjusted: "p_adjusted" };
  await tab.go("/sweeps/main?tab=differences&metric=loss_targets&ntk=off", "svg [data-difference]");
  const off = recordCells(records.filter((row) => !row.ntk), fields, names);
  assert.deepEqual(pageCells(await tab.data("svg [data-difference]"), fields), off);
  await tab.go("/sweeps/main?tab=differences&metric=loss_targets", "td[data-difference]");
  assert.deepEqual(pageCells(await tab.data("td[data-difference]"), fields), recordCells(records, fields, names));
  for (const [button, format] of [["Copy Markdown", "markdown"], ["Copy LaTeX", "latex"], ["Copy CSV", "csv"]]) {
    await tab.page.getByRole("button", { name: button }).click();
    await tab.page.getByText("Copied as").first().waitFor();
    assert.equal(await tab.page.evaluate(() => navigator.clipboard.readText()), await cluster.ablate("compare", "main", "--metric", "loss_targets", "-o", format));
  }
  quiet();
});

// The means of a chart of curves, at the steps that have a mark, are those of `ablate curves`.
async function curvesAre(sweep) {
  const records = await cluster.json("curves", sweep, "--mean");
  const means = new Map(records.map((row) => [`${armOf(row.arm)} ${row.step}`, [row.mean, row.low, row.high, row.n]]));
  const shown = await tab.data("svg [data-step][data-mean]");
  assert.ok(shown.length > 0 && means.size > 0, `${shown.length} marks, ${means.size} means`);
  for (const mark of shown) {
    assert.deepEqual([mark.mean, mark.low, mark.high, mark.n].map(numberOf), means.get(`${armOf(mark.arm)} ${mark.step}`), `${mark.arm} step ${mark.step}`);
  }
  return shown;
}

test("curves: means with intervals as `ablate curves` has them, seeds apart", async () => {
  await tab.go("/sweeps/main?tab=curves", "svg [data-step][data-mean]");
  const shown = await curvesAre("main");
  assert.equal(new Set(shown.map((mark) => mark.arm)).size, 4);
  assert.equal((await tab.data("svg [data-seed]")).length, 12);
  quiet();
});

test("one seed: marks without any interval, no band, and the caption says so", async () => {
  await tab.go("/sweeps/one?tab=lengths", "svg [data-mean]");
  const marks = await tab.data("svg [data-mean]");
  assert.ok(marks.length >= 4);
  for (const mark of marks) assert.deepEqual([mark.n, mark.low, mark.high], ["1", undefined, undefined]);
  const bands = () => tab.page.locator('svg g[fill-opacity] path').evaluateAll((all) => all.filter((one) => (one.getAttribute("d") ?? "").length > 0).length);
  assert.equal(await bands(), 0);
  assert.match(await tab.page.locator("figcaption").innerText(), /n = 1 seed; no interval/);
  await tab.go("/sweeps/one?tab=curves", "svg [data-step][data-mean]");
  for (const mark of await curvesAre("one")) assert.deepEqual([mark.n, mark.low, mark.high], ["1", undefined, undefined]);
  assert.equal(await bands(), 0);
  // A chart with bands has some, so that the count above can fail.
  await tab.go("/sweeps/main?tab=curves", "svg [data-step][data-mean]");
  assert.ok(await bands() > 0);
  quiet();
});

test("diverged seeds are seen, are in no mean, and break no page", async () => {
  const [record] = (await cluster.json("table", "hot", "--metric", "loss_targets")).filter((row) => row.diverged > 0);
  assert.ok(record, "a learning rate of 10 diverges");
  for (const name of ["overview", "curves", "lengths", "axis", "table", "differences", "claims", "grid", "jobs"]) {
    await tab.go(`/sweeps/hot?tab=${name}`, '[role="tabpanel"] >> :is(svg [data-n], td[data-n], [data-empty], [role="grid"], tr[data-job])');
  }
  await tab.go("/sweeps/hot?tab=curves", "svg [data-diverged-seed]");
  assert.equal((await tab.data("svg [data-diverged-seed]")).length, record.diverged_seeds.length);
  assert.match(await tab.page.locator("figcaption").innerText(), /diverged at step \d+/);
  await tab.go("/sweeps/hot?tab=table", "td[data-n]");
  assert.match(await tab.page.locator("table.results").innerText(), /diverged/);
  await tab.go("/sweeps/hot?tab=lengths", "svg [data-diverged]");
  await tab.go("/sweeps/hot?tab=curves&log=1", "svg [data-mean]");
  await tab.go("/sweeps/hot?tab=grid", '[data-kind="diverged"]');
  const job = (await cluster.json("job", "list", "hot")).find((one) => one.outcome === "DIVERGED" && one.kind === "STAGE");
  await tab.go(`/jobs/${job.job_id}`, '[data-state="DIVERGED"]');
  await tab.page.locator('section[aria-labelledby="curve-title"] svg').first().waitFor();
  quiet();
});

test("a sweep without results says so in every tab", async () => {
  for (const name of ["overview", "curves", "lengths", "table", "differences", "claims", "axis"]) {
    await tab.go(`/sweeps/empty?tab=${name}`, `#panel-${name} [data-empty]`);
    assert.match(await tab.page.locator("[data-empty]").first().innerText(), /nothing|no |not /i);
  }
  await tab.go("/sweeps/empty?tab=grid", '[data-kind="queued"]');
  await tab.go("/sweeps/empty?tab=jobs", "tr[data-job]");
  const [job] = await cluster.json("job", "list", "empty");
  await tab.go(`/jobs/${job.job_id}`, "text=nowhere"); // why it does not run: no worker has the label
  quiet();
});

test("claims: seal, lock, verdicts and estimates as `ablate claims` has them", async () => {
  const records = await cluster.json("claims", "sealed");
  assert.equal(records.length, 2);
  await tab.go("/sweeps/sealed?tab=claims", "section.claim[data-estimate]");
  const shown = await tab.data("section.claim");
  for (const record of records) {
    const claim = shown.find((one) => one.claim === (record.claim.name ?? record.claim));
    assert.equal(claim.verdict, record.verdict.toUpperCase().replace(" ", "_"));
    assert.deepEqual(["estimate", "low", "high", "familyLow", "familyHigh", "p", "pAdjusted", "n"].map((name) => numberOf(claim[name])),
      [record.estimate, record.low, record.high, record.family_low, record.family_high, record.p, record.p_adjusted, record.n]);
  }
  await tab.page.getByText("the selection is locked").waitFor();
  quiet();
});

test("failures: grid, jobs, evidence, and a retry by the page", async () => {
  await tab.go("/sweeps/failing?tab=grid", '[data-kind="failed"]');
  assert.equal(await tab.page.locator('[role="grid"] [data-kind="failed"]').count(), 2);
  await tab.go("/sweeps/failing?tab=jobs&state=failed", "tr[data-job]");
  assert.equal((await tab.data("tr[data-job]")).length, 2);
  await tab.page.locator("tr[data-job] a").first().click();
  await tab.page.locator("#failure-title").waitFor();
  await tab.page.getByText("code error").first().waitFor();
  await tab.go("/sweeps/failing", '[role="tab"]');
  await tab.page.getByRole("button", { name: "Retry failed jobs" }).click();
  await tab.page.getByRole("dialog").getByRole("button", { name: "Retry" }).click();
  await tab.page.getByText("2 new jobs made").waitFor();
  assert.equal((await cluster.json("job", "list", "failing")).filter((job) => job.retry_of).length, 2);
  quiet();
});

test("compare: arms of two sweeps, with the warning that nothing is paired", async () => {
  const records = [...await cluster.json("table", "main", "--metric", "loss_targets"), ...await cluster.json("table", "one", "--metric", "loss_targets")];
  await tab.go("/compare?sweeps=main,one&metric=loss_targets", "td[data-mean]");
  await tab.page.locator("svg [data-mean]").first().waitFor();
  const cells = await tab.data("td[data-mean]");
  assert.deepEqual(pageCells(cells, FIELDS), recordCells(records, FIELDS));
  for (const cell of cells) assert.equal(cell.n, cell.sweep === "one" ? "1" : "3");
  assert.match(await tab.page.locator("[data-notes]").innerText(), /not paired/);
  quiet();
});

test("where there are more sweeps than a page lists, both pages say so", async () => {
  const { page } = tab;
  const lists = (url) => url.pathname === "/api/v1/sweeps";
  await tab.go("/compare", "[data-empty]");
  assert.equal(await page.locator("[data-more]").count(), 0);
  await page.route(lists, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...await response.json(), next_page_token: "more" } });
  });
  await tab.go("/compare", "[data-more]");
  assert.match(await page.locator("[data-more]").innerText(), /first 200 sweeps.*in the address/s);
  await tab.go("/", "text=Find, Show and the order are of this page");
  assert.ok(await page.getByText("sweeps on this page").first().isVisible());
  await page.unroute(lists);
  quiet();
});

test("workers: who is there, with how many slots", async () => {
  await tab.go("/workers", "text=2 workers connected");
  const text = await tab.page.locator("table").innerText();
  for (const word of ["trains", "noops", "test executor"]) assert.ok(text.includes(word), text);
  quiet();
});

test("a chart as SVG and as CSV holds its numbers", async () => {
  await tab.go("/sweeps/main?tab=lengths&metric=loss_targets&ntk=off", "svg [data-mean]");
  const records = (await cluster.json("table", "main", "--metric", "loss_targets")).filter((row) => !row.ntk);
  const take = async (name) => {
    const [file] = await Promise.all([tab.page.waitForEvent("download"), tab.page.getByRole("button", { name }).click()]);
    return readFileSync(await file.path(), "utf8");
  };
  const svg = await take("Download SVG");
  const read = await tab.page.evaluate((text) => {
    const parsed = new DOMParser().parseFromString(text, "image/svg+xml");
    const texts = [...parsed.querySelectorAll("text, title")].map((one) => one.textContent);
    return { error: parsed.querySelector("parsererror")?.textContent, texts, variables: text.includes("var("),
      cells: [...parsed.querySelectorAll("[data-mean]")].map((one) => Object.fromEntries([...one.attributes].filter(({ name }) => name.startsWith("data-")).map(({ name, value }) => [name.slice(5), value]))) };
  }, svg);
  assert.equal(read.error, undefined);
  assert.equal(read.variables, false, "a file has no style sheet to take colours from");
  assert.deepEqual(pageCells(read.cells, FIELDS), recordCells(records, FIELDS));
  assert.ok(read.texts.some((text) => text.includes("Student t interval")), "the caption is inside");
  const csv = await take("Download CSV");
  const [head, ...lines] = csv.trim().split("\n");
  const at = head.split(",").indexOf("mean");
  assert.equal(lines.length, records.length);
  // No cell before the mean has a line break; commas within quotes are left out of the count.
  const means = lines.map((line) => line.replace(/"(?:[^"]|"")*"/g, "q").split(",")[at]);
  assert.deepEqual(means.map(Number).sort(), records.map((row) => row.mean).sort());
  quiet();
});

test("the address holds the view: reload, back, forward", async () => {
  const { page } = tab;
  await tab.go("/sweeps/main", "svg [data-mean]");
  await page.getByRole("tab", { name: "Table" }).click();
  await page.locator("td[data-mean]").first().waitFor();
  await page.getByLabel("Metric").selectOption("loss");
  await page.locator('td[data-metric="loss"]').first().waitFor();
  await page.getByLabel("Level of confidence").selectOption("0.99");
  await page.waitForURL(/level=0\.99/);
  await page.locator('td[data-metric="loss"]').first().waitFor();
  const seen = await poll("the table at 99 %", async () => {
    const cells = pageCells(await tab.data("td[data-mean]"), FIELDS);
    const expected = recordCells(await cluster.json("table", "main", "--metric", "loss", "--level", "0.99"), FIELDS);
    return JSON.stringify(cells) === JSON.stringify(expected) && cells;
  });
  await page.reload();
  await page.locator('td[data-metric="loss"]').first().waitFor();
  assert.deepEqual(pageCells(await tab.data("td[data-mean]"), FIELDS), seen);
  assert.equal(await page.getByLabel("Level of confidence").inputValue(), "0.99");
  await page.goBack();
  assert.equal(await poll("the level before", async () => (await page.getByLabel("Level of confidence").inputValue()) === "0.95"), true);
  await page.goBack();
  await page.locator('td[data-metric="loss_targets"]').first().waitFor();
  await page.goForward();
  await page.locator('td[data-metric="loss"]').first().waitFor();
  quiet();
});

test("a running job: progress and curve grow without a reload, and the page cancels it", async () => {
  const { page } = tab;
  await cluster.submit("long", sweepYaml("long", { axes: "axes: {attention.variant: [softmax]}", seeds: 1, steps: 200000, lengths: "[1x]" }));
  const job = await poll("the job runs", async () => (await cluster.json("job", "list", "long")).find((one) => one.state === "RUNNING"));
  await tab.go(`/jobs/${job.job_id}`, 'section[aria-labelledby="curve-title"] svg');
  await page.evaluate(() => { window.notReloaded = true; });
  const step = async () => Number(/([\d  , ]+) of [\d  , ]+/.exec(await page.locator("dt:text-is('Step') + dd").innerText())?.[1].replace(/\D/g, ""));
  const first = await step();
  await poll("the step grows", async () => (await step()) > first);
  await tab.go("/sweeps/long?tab=curves", "svg [data-step][data-mean]");
  await page.evaluate(() => { window.notReloaded = true; });
  const last = async () => Math.max(...(await tab.data("svg [data-step][data-mean]")).map((mark) => Number(mark.step)));
  const before = await last();
  await poll("the curve grows", async () => (await last()) > before);
  assert.equal(await page.evaluate(() => window.notReloaded), true);
  await page.getByRole("button", { name: "Cancel sweep" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the sweep" }).click();
  await page.getByText("The sweep is cancelled").waitFor();
  await page.locator('.page-head [data-state="SWEEP_CANCELLED"]').waitFor();
  assert.equal((await cluster.json("sweep", "show", "long"))[0].state, "CANCELLED");
  quiet();
});

test("10,000 jobs: the grid comes, scrolls, and answers to keys while they are worked on", async () => {
  const { page } = tab;
  const values = Array.from({ length: 100 }, (_, i) => i + 1).join(", ");
  await cluster.submit("many", noopYaml("many", { axes: `  attention.variant: lssar\naxes: {attention.p: [${values}]}\n`, seeds: 100, seconds: 0.2 }));
  const start = Date.now();
  await tab.go("/sweeps/many?tab=grid", '[role="gridcell"]');
  console.log(`# first grid of 10,000 cells after ${Date.now() - start} ms`);
  assert.match(await page.locator("body").innerText(), /100 arms, 100 columns/);
  // Rows that are not in view are not drawn.
  const drawn = await page.locator('[role="gridcell"]').count();
  assert.ok(drawn > 100 && drawn < 10_000, `${drawn} cells drawn`);
  await page.locator('[role="gridcell"] [tabindex="0"]').focus();
  await page.keyboard.press("Control+End");
  await poll("the last cell has the focus", () => page.evaluate(() => {
    const { row, column } = document.activeElement?.dataset ?? {};
    return row === "99" && column === "99";
  }));
  await tab.go("/sweeps/many?tab=jobs", "tr[data-job]");
  assert.equal((await tab.data("tr[data-job]")).length, 100);
  await page.getByRole("button", { name: "Next page" }).click();
  await page.getByRole("button", { name: "First page" }).waitFor();
  for (const name of ["overview", "curves", "lengths", "axis", "table", "differences", "claims"]) await tab.go(`/sweeps/many?tab=${name}`, '[role="tabpanel"] > *');
  await tab.go("/", "text=many");
  quiet();
  await cluster.ablate("sweep", "cancel", "many");
});
