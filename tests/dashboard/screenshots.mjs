// Makes the pictures of docs/dashboard.md: each page and tab of a finished data folder, on a desk and on a phone, light and dark.
//   ABLATE_BIN=build/release/bin ABLATE_DASHBOARD_MODULES=build/release/dashboard/work/node_modules \
//     node tests/dashboard/screenshots.mjs DATA_DIR [OUT] [NAME...]
// DATA_DIR: the folder of a run of demo/*.yaml, minutes on two cores (data/kjv.txt: scripts/quickstart.sh):
//   for sweep in diverging p-sealed factorial p; do ablate run tests/dashboard/demo/$sweep.yaml --data-dir DATA_DIR; done
// PNGs are made small where `pngquant` is there.
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Cluster, launch, needBrowser, openTab } from "./harness.mjs";

const [data, out = "docs/figures/dashboard", ...only] = process.argv.slice(2);
if (!data) {
  console.error("usage: screenshots.mjs DATA_DIR [OUT] [NAME...]");
  process.exit(2);
}
const desk = { width: 1280, height: 820 }, phone = { width: 390, height: 780 };
// name, address, what must be there first, then options.
const PICTURES = [
  ["sweeps", "/", "tbody tr"],
  ["sweeps-phone", "/", "tbody tr", { viewport: phone }],
  ["overview", "/sweeps/p-sealed", "svg [data-mean]"],
  ["overview-dark", "/sweeps/p-sealed", "svg [data-mean]", { colorScheme: "dark" }],
  ["curves", "/sweeps/p-sealed?tab=curves", "svg [data-step][data-mean]"],
  ["curves-diverging", "/sweeps/diverging?tab=curves&log=1", "svg [data-step][data-mean]"],
  ["lengths", "/sweeps/p?tab=lengths", "svg [data-mean]"],
  ["lengths-phone", "/sweeps/p?tab=lengths", "svg [data-mean]", { viewport: phone, most: 1500 }],
  ["axis", "/sweeps/p?tab=axis", "svg [data-mean]"],
  ["table", "/sweeps/p?tab=table", "td[data-mean]"],
  ["differences", "/sweeps/p-sealed?tab=differences&split=selection%2Fselecting", "svg [data-difference]"],
  ["effects", "/sweeps/factorial?tab=differences", "svg [data-effect]", { element: 'figure:has([data-effect])' }],
  ["claims", "/sweeps/p-sealed?tab=claims", "section.claim"],
  ["grid", "/sweeps/diverging?tab=grid", '[role="gridcell"]'],
  ["jobs", "/sweeps/diverging?tab=jobs", "tr[data-job]", { most: 800 }],
  ["job", "JOB", '[aria-labelledby="curve-title"] svg'],
  ["workers", "/workers", "h1"],
  ["compare", "/compare?sweeps=p,p-sealed", "svg [data-mean]"],
];

await needBrowser();
mkdirSync(out, { recursive: true });
const cluster = new Cluster();
cluster.dataDir = data;
await cluster.startServer();
const jobs = await cluster.json("job", "list", "p-sealed");
const browser = await launch();
for (const [name, path, ready, options = {}] of PICTURES) {
  if (only.length > 0 && !only.includes(name)) continue;
  const tab = await openTab(browser, cluster.url, { viewport: desk, timezoneId: "UTC", locale: "en-GB", ...options });
  await tab.go(path === "JOB" ? `/jobs/${jobs.find((job) => job.kind === "STAGE" && job.arm.includes("lssar")).job_id}` : path, ready);
  await tab.page.waitForLoadState("load");
  await tab.page.locator('.connection[data-state="live"]').waitFor();
  await tab.page.evaluate(() => document.fonts.ready);
  // As much of the page as a reader scrolls through at once.
  const height = await tab.page.evaluate(() => document.documentElement.scrollHeight);
  await tab.page.setViewportSize({ width: (options.viewport ?? desk).width, height: Math.min(height, options.most ?? 1250) });
  await tab.page.waitForTimeout(400); // transitions of bars
  const file = join(out, `${name}.png`);
  await (options.element ? tab.page.locator(options.element).first() : tab.page).screenshot({ path: file });
  spawnSync("pngquant", ["--force", "--skip-if-larger", "--speed", "1", "--nofs", "--quality", "85-100", "--output", file, "256", file]);
  if (tab.troubles.length > 0) console.error(`${name}: ${tab.troubles.join("; ")}`);
  await tab.context.close();
}
await browser.close();
await cluster.close();
