// Real programs for the dashboard's tests: ablate-server --http, ablate-worker, `ablate`, and a browser that notes everything it
// should not see. Node's own modules and playwright-core (of the dashboard's build folder) only.
import { execFile, spawn } from "node:child_process";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";

const BIN = process.env.ABLATE_BIN ?? "";
const MODULES = process.env.ABLATE_DASHBOARD_MODULES ?? "";
const BROWSERS = ["chromium", "chromium-browser", "google-chrome"];

function browserPath() {
  if (process.env.ABLATE_CHROMIUM) return process.env.ABLATE_CHROMIUM;
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    for (const name of BROWSERS) if (folder && existsSync(join(folder, name))) return join(folder, name);
  }
  return undefined;
}

// Ends the program with a line that ctest counts as a skip where no browser is to be had. Ubuntu's `chromium` may be a stub that
// only says how to get one, so it is asked for its version.
export async function needBrowser() {
  if (!BIN) throw new Error("set ABLATE_BIN to the folder of the programs, e.g. build/release/bin");
  const skip = (why) => {
    console.log(`SKIPPED: ${why}`);
    process.exit(0);
  };
  if (!existsSync(join(MODULES, "playwright-core"))) skip("the dashboard's packages are not installed (node, npm and a network at build time)");
  const path = browserPath();
  if (!path) skip("no chromium is installed (apt-get install chromium, or name one by ABLATE_CHROMIUM)");
  const asked = await run(path, ["--version", "--no-sandbox"], { timeout: 60_000 });
  if (asked.code !== 0) skip(`${path} does not start: ${asked.stderr.trim().split("\n")[0]}`);
}

function run(program, args, options = {}) {
  return new Promise((resolve) => {
    execFile(program, args, { maxBuffer: 1 << 28, timeout: 120_000, ...options }, (error, stdout, stderr) => {
      resolve({ code: error ? (typeof error.code === "number" ? error.code : -1) : 0, stdout, stderr });
    });
  });
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// The first true value of `condition`; fails after `seconds`.
export async function poll(what, condition, seconds = 60) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`timed out waiting until ${what}`);
    await sleep(50);
  }
}

// Words with some structure, the same at every call: enough to see a loss fall.
function syntheticText(size) {
  let state = 1;
  const next = (n) => (state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff, (state >> 8) % n);
  const words = Array.from({ length: 300 }, () => Array.from({ length: 2 + next(6) }, () => "etaoinshrdlu"[next(12)]).join(""));
  const followers = words.map(() => Array.from({ length: 6 }, () => next(300)));
  let out = "", word = 0;
  while (out.length < size) {
    out += words[word] + " ";
    word = followers[word][next(6)];
  }
  return out.slice(0, size);
}

// One layer of width 32, T = 32: seconds on a laptop.
export function sweepYaml(name, { axes, seeds = 2, steps = 30, lengths = "[1x, 2x]", settings = "  train.learning_rate: 3e-3\n", extra = "" }) {
  return `name: ${name}
data: {name: words, format: text, path: text.txt}
settings:
  model.layers: 1
  model.width: 32
  model.heads: 2
  train.length: 32
  train.batch: 4
  train.steps: ${steps}
  train.warmup_steps: 5
  eval.target_spans: 8
  eval.loss_tokens: 2048
${settings}${axes}
seeds: ${seeds}
evaluate: {lengths: ${lengths}}
${extra}`;
}

// Stages of the built-in test executor: arms × seeds.
export function noopYaml(name, { seeds = 1, axes = "", seconds = 0 }) {
  return `name: ${name}
data: {name: words, format: text, path: text.txt}
executor: noop
settings:
  train.length: 32
  noop.seconds: ${seconds}
${axes}seeds: ${seeds}
`;
}

export class Cluster {
  constructor() {
    this.dir = mkdtempSync(join(tmpdir(), "ablate-page-"));
    this.dataDir = join(this.dir, "data");
    this.address = `unix:${join(this.dir, "s.sock")}`;
    this.processes = [];
    this.url = "";
    this.token = ""; // of `ablate`
    writeFileSync(join(this.dir, "text.txt"), syntheticText(100_000));
  }

  spawn(name, program, args) {
    const path = join(this.dir, `${name}.${this.processes.length}.log`);
    const log = openSync(path, "w");
    const child = spawn(join(BIN, program), args, { stdio: ["ignore", log, log] });
    closeSync(log);
    child.log = path;
    child.over = new Promise((resolve) => child.on("exit", resolve));
    this.processes.push(child);
    return child;
  }

  // On the port of the last time, if there was one: a page that was open finds it again.
  async startServer(...flags) {
    const port = this.url ? new URL(this.url).port : "0";
    this.server = this.spawn("server", "ablate-server", ["--data-dir", this.dataDir, "--listen", this.address, "--http", `127.0.0.1:${port}`,
      "--lease-seconds", "5", "--contact-seconds", "0.1", ...flags]);
    this.url = await poll("the server serves the dashboard", () => {
      if (this.server.exitCode !== null) throw new Error(`ablate-server ended\n${this.logs()}`);
      return /^dashboard (https?:\S+?)\/?$/m.exec(readFileSync(this.server.log, "utf8"))?.[1];
    });
    return this.server;
  }

  startWorker(name, { executor = "trainer", slots = 1, flags = [] } = {}) {
    return this.spawn(`worker-${name}`, "ablate-worker", ["--server", this.address, "--name", name, "--device", "cpu", "--slots", String(slots), "--threads-per-slot",
      "1", "--work-dir", join(this.dir, `work-${name}`), "--executor", executor, ...flags]);
  }

  async kill(child, signal = "SIGKILL") {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill(signal);
    await child.over;
  }

  async close() {
    for (const child of this.processes) if (child.exitCode === null && child.signalCode === null) child.kill("SIGTERM");
    for (const child of this.processes) {
      const timer = setTimeout(() => child.kill("SIGKILL"), 20_000);
      await child.over;
      clearTimeout(timer);
    }
    rmSync(this.dir, { recursive: true, force: true });
  }

  logs() {
    return readdirSync(this.dir).filter((name) => name.endsWith(".log"))
      .map((name) => `--- ${name}\n${readFileSync(join(this.dir, name), "utf8").slice(-3000)}`).join("\n");
  }

  // What `ablate` prints; throws where it does not end with 0.
  async ablate(...args) {
    const result = await run(join(BIN, "ablate"), args, { cwd: this.dir, env: { ...process.env, ABLATE_SERVER: this.address, ABLATE_TOKEN: this.token,
      XDG_CONFIG_HOME: join(this.dir, "config") } });
    if (result.code !== 0) throw new Error(`ablate ${args.join(" ")} ended with ${result.code}\n${result.stdout}${result.stderr}${this.logs()}`);
    return result.stdout;
  }

  async json(...args) {
    // Numbers that JSON does not have are texts there.
    return JSON.parse(await this.ablate(...args, "-o", "json"));
  }

  // For its user alone, as files with tokens must be.
  file(name, content) {
    const path = join(this.dir, name);
    writeFileSync(path, content, { mode: 0o600 });
    return path;
  }

  async submit(name, yaml) {
    await this.ablate("sweep", "submit", this.file(`${name}.yaml`, yaml));
  }

  // Over, whatever came of it. Asks without a token.
  async wait(sweep, seconds = 120) {
    let last;
    try {
      await poll(`${sweep} is over`, async () => {
        last = await (await fetch(`${this.url}/api/v1/sweeps/${sweep}`)).json();
        return last.state !== "SWEEP_RUNNING" || (await sleep(100), false);
      }, seconds);
    } catch (error) {
      throw new Error(`${error.message}: ${JSON.stringify(last)}\n${this.logs()}`);
    }
  }
}

// --- the browser ---

export async function launch() {
  const { chromium } = createRequire(join(MODULES, "x.js"))("playwright-core");
  return chromium.launch({ executablePath: browserPath(), args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });
}

// A tab that notes what is wrong: `tab.troubles` of the page (console errors, which violations of the policy are too, exceptions, answers
// that refuse, requests that failed) and `tab.foreign`, requests to other places than the server.
export async function openTab(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  const tab = { page, context, url, troubles: [], foreign: [], answers: 0 };
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") tab.troubles.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => tab.troubles.push(`exception: ${error.message}`));
  page.on("response", (response) => {
    ++tab.answers;
    if (response.status() >= 400) tab.troubles.push(`${response.status()} of ${response.url()}`);
  });
  page.on("requestfailed", (request) => {
    // What the page itself gave up: of a tab that was left.
    if (request.failure()?.errorText !== "net::ERR_ABORTED") tab.troubles.push(`${request.failure()?.errorText} of ${request.url()}`);
  });
  context.on("request", (request) => {
    const { protocol, origin } = new URL(request.url());
    if (origin !== new URL(url).origin && protocol !== "blob:") tab.foreign.push(request.url());
  });
  tab.go = async (path, ready) => {
    await page.goto(url + path);
    if (ready) await page.locator(ready).first().waitFor();
  };
  // Data attributes of all elements that fit.
  tab.data = (selector) => page.locator(selector).evaluateAll((all) => all.map((one) => ({ ...one.dataset })));
  return tab;
}

// --- numbers of a page against records of the command line ---

const sorted = (value) => JSON.stringify(Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))));
export const armOf = (value) => sorted(typeof value === "string" ? JSON.parse(value) : value);

// A number as `ablate -o json` has it (null: none) from an attribute; NaN and infinities are texts on both sides.
export function numberOf(text) {
  return text === undefined ? null : { nan: "NaN", inf: "Infinity", "-inf": "-Infinity" }[text] ?? Number(text);
}

// Cells of a page (data attributes) as texts that compare with those of `recordCells`.
export function pageCells(cells, fields) {
  return cells.map((cell) => `${armOf(cell.arm)} ${cell.metric} ${cell.length} ${cell.ntk} ${fields.map((f) => `${f}=${numberOf(cell[f])}`).join(" ")}`).sort();
}
export function recordCells(records, fields, names = {}) {
  return records.map((r) => `${armOf(r.arm)} ${r.metric} ${r.length} ${r.ntk} ${fields.map((f) => `${f}=${r[names[f] ?? f] ?? null}`).join(" ")}`).sort();
}
