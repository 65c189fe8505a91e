// The dashboard in a browser, in seconds: each page of a small finished sweep loads without a word on the console, and its numbers are
// those of `ablate table -o json`. All pages and tabs: pages_test.mjs.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Cluster, launch, needBrowser, openTab, pageCells, recordCells, sweepYaml } from "./harness.mjs";

await needBrowser();
const cluster = new Cluster();
let browser, tab;

before(async () => {
  await cluster.startServer();
  cluster.startWorker("one");
  await cluster.submit("small", sweepYaml("small", { steps: 12, axes: "axes:\n  attention.variant: [softmax, lssar]\n  eval.ntk: [off, dynamic]" }));
  [browser] = await Promise.all([launch(), cluster.wait("small")]);
  tab = await openTab(browser, cluster.url);
});
after(async () => {
  await browser?.close();
  await cluster.close();
});

test("the list of sweeps leads to the sweep", async () => {
  await tab.go("/", "text=small");
  await tab.page.getByRole("link", { name: "small" }).click();
  await tab.page.locator("svg [data-mean]").first().waitFor();
  assert.equal(new URL(tab.page.url()).pathname, "/sweeps/small");
});

test("the chart of the overview and the table hold the numbers of `ablate table`", async () => {
  const all = await cluster.json("table", "small", "--metric", "loss_targets");
  const records = all.filter((row) => row.length > 0 && row.split === all[0].split);
  assert.ok(records.length >= 6, `${records.length} records`);
  const fields = ["mean", "low", "high", "n"];
  await tab.go("/sweeps/small?tab=table&metric=loss_targets", "td[data-mean]");
  assert.deepEqual(pageCells(await tab.data("td[data-mean]"), fields), recordCells(records, fields));
  await tab.go("/sweeps/small?metric=loss_targets&ntk=off", "svg [data-mean]");
  assert.deepEqual(pageCells(await tab.data("svg [data-mean]"), fields), recordCells(records.filter((row) => !row.ntk), fields));
});

test("curves, a job and the worker", async () => {
  await tab.go("/sweeps/small?tab=curves", "svg [data-step][data-mean]");
  assert.equal((await tab.data("svg [data-seed]")).length, 4); // arms × seeds
  const job = (await cluster.json("job", "list", "small")).find((one) => one.kind === "STAGE" && one.arm.includes("lssar"));
  await tab.go(`/jobs/${job.job_id}`, "#attempts-title");
  await tab.page.locator("text=attention.variant").first().waitFor();
  await tab.go("/workers", "text=1 worker connected");
});

test("nothing went wrong, and nothing left the server", () => {
  assert.deepEqual(tab.troubles, []);
  assert.deepEqual(tab.foreign, []);
  assert.ok(tab.answers > 20, `${tab.answers} answers`);
});
