// How the dashboard is used: by keyboard alone, on a phone, in the dark, by people of several roles, while the server dies and comes back;
// and that pages of other sites get nothing from it. What it shows: pages_test.mjs.
import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import { after, before, test } from "node:test";
import { Cluster, launch, needBrowser, noopYaml, openTab, poll, sweepYaml } from "./harness.mjs";

await needBrowser();
const cluster = new Cluster(), guarded = new Cluster();
const tokens = {};
let browser;

const PAGES = ["/", "/sweeps/small?tab=overview", "/sweeps/small?tab=curves", "/sweeps/small?tab=lengths", "/sweeps/small?tab=axis", "/sweeps/small?tab=table",
  "/sweeps/small?tab=differences", "/sweeps/small?tab=claims", "/sweeps/small?tab=grid", "/sweeps/small?tab=jobs", "JOB", "/workers", "/compare?sweeps=small,small2"];

async function setUp() {
  await Promise.all([cluster.startServer(), guarded.startServer("--require-tokens", "--max-failures", "1")]);
  cluster.startWorker("trains");
  const axes = "axes:\n  attention.p: [1, 3, 15]";
  const settings = "  attention.variant: lssar\n";
  await cluster.submit("small", sweepYaml("small", { steps: 20, axes, settings }));
  await cluster.submit("small2", sweepYaml("small2", { steps: 21, axes, settings }));
  for (const role of ["read", "submit", "admin", "worker"])
    tokens[role] = (await guarded.ablate("token", "create", "--role", role, "--name", role, "--data-dir", guarded.dataDir)).trim();
  [browser] = await Promise.all([launch(), cluster.wait("small"), cluster.wait("small2")]);
  const { job_id: job } = (await cluster.json("job", "list", "small")).find((one) => one.kind === "STAGE");
  PAGES[PAGES.indexOf("JOB")] = `/jobs/${job}`;
}
// Without what they are about, no test needs to be tried.
before(() => setUp().catch(async (error) => {
  console.error(error);
  await Promise.all([cluster.close(), guarded.close()]);
  process.exit(1);
}));
after(async () => {
  await browser?.close();
  await Promise.all([cluster.close(), guarded.close()]);
});

// What is shown is all there: nothing loads any more.
async function settled(tab, path) {
  await tab.go(path, "main h1");
  await poll(`${path} has loaded`, () => tab.page.evaluate(() => !document.querySelector("main").innerText.includes(" …\n") && document.querySelector(".connection").dataset.state === "live"));
}

test("the keyboard alone: skip link, tabs, sorting, a dialog, with the focus always in sight", async () => {
  const tab = await openTab(browser, cluster.url);
  const { page } = tab;
  const focused = () => page.evaluate(() => {
    const element = document.activeElement, style = getComputedStyle(element);
    const { width, height } = element.getBoundingClientRect();
    return { tag: element.tagName, text: element.innerText?.trim(), role: element.getAttribute("role"), id: element.id, width, height,
      seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1 };
  });
  const until = async (what, key, fits) => {
    for (let i = 0; i < 60; ++i) {
      await page.keyboard.press(key);
      const now = await focused();
      if (now.tag !== "BODY" && now.tag !== "MAIN") assert.ok(now.seen && now.width > 0 && now.height > 0, `no outline on ${JSON.stringify(now)}`);
      if (fits(now)) return now;
    }
    throw new Error(`${what} was not reached by ${key}`);
  };
  await settled(tab, "/");
  await page.keyboard.press("Tab");
  assert.equal((await focused()).text, "Skip to the page");
  await page.keyboard.press("Enter");
  await until("the sweep", "Tab", (now) => now.tag === "A" && now.text === "small");
  await page.keyboard.press("Enter");
  await page.locator("svg [data-mean]").first().waitFor();
  await until("the tabs", "Tab", (now) => now.role === "tab");
  for (let i = 0; i < 4; ++i) await page.keyboard.press("ArrowRight");
  assert.equal((await focused()).id, "tab-table");
  await page.locator("td[data-mean]").first().waitFor();
  await until("a heading", "Tab", (now) => now.tag === "BUTTON" && now.text.startsWith("length"));
  await page.keyboard.press("Enter");
  await page.locator('th[aria-sort="ascending"]').waitFor();
  await page.keyboard.press("Space");
  await page.locator('th[aria-sort="descending"]').waitFor();
  // A dialog keeps the focus inside, closes by Escape and gives the focus back.
  await settled(tab, PAGES.find((path) => path.startsWith("/jobs/")));
  await until("Verify", "Tab", (now) => now.text === "Verify");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  for (let i = 0; i < 6; ++i) {
    await page.keyboard.press("Tab");
    const inside = await page.evaluate(() => document.activeElement === document.body || document.querySelector("dialog").contains(document.activeElement));
    assert.ok(inside, "the focus left the dialog");
  }
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal((await focused()).text, "Verify");
  await tab.context.close();
});

test("at 360 pixels no page scrolls sideways", async () => {
  const tab = await openTab(browser, cluster.url, { viewport: { width: 360, height: 740 } });
  for (const path of PAGES) {
    await settled(tab, path);
    const { wide, culprits } = await tab.page.evaluate(() => {
      const root = document.scrollingElement;
      const over = [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".scroll, .tabs, .cell-grid, .visually-hidden, svg"));
      return { wide: root.scrollWidth - root.clientWidth, culprits: over.slice(0, 3).map((one) => one.outerHTML.slice(0, 120)) };
    });
    assert.equal(wide, 0, `${path} is ${wide} pixels too wide: ${culprits}`);
  }
  assert.deepEqual(tab.troubles, []);
  await tab.context.close();
});

// Texts whose colour is too close to what is behind them (WCAG 2.1: 4.5, large texts 3).
const faintTexts = () => {
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return colour.startsWith("color(srgb") ? { r: r * 255, g: g * 255, b: b * 255, a } : { r, g, b, a };
  };
  const over = (top, below) => ({ r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a), b: top.b * top.a + below.b * (1 - top.a), a: 1 });
  const luminance = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const found = [];
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    if (!walker.currentNode.textContent.trim() || box.width < 2 || style.visibility === "hidden" || element.closest(":disabled, option, title, .visually-hidden, .skip")) continue;
    ++texts;
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.unshift(parse(getComputedStyle(one).backgroundColor));
    const ground = layers.reduce((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
    const ink = parse(element.closest("svg") && element.tagName !== "svg" && style.fill !== "none" ? style.fill : style.color);
    const [light, dark] = [luminance(over(ink, ground)), luminance(ground)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)}: "${walker.currentNode.textContent.trim().slice(0, 40)}" ${style.color} of ${element.tagName}.${element.getAttribute("class")}`);
  }
  return { found: [...new Set(found)], texts };
};

for (const scheme of ["dark", "light"]) {
  test(`${scheme}: every text has a contrast of 4.5`, async () => {
    const tab = await openTab(browser, cluster.url, { colorScheme: scheme });
    for (const path of PAGES) {
      await settled(tab, path);
      const { found, texts } = await tab.page.evaluate(faintTexts);
      assert.ok(texts > 20, `${texts} texts of ${path}`);
      assert.deepEqual(found, [], path);
    }
    const ground = await tab.page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number)[0]);
    assert.ok(scheme === "dark" ? ground < 60 : ground > 200, `the page's ground is ${ground}`);
    await tab.context.close();
  });
}

// --- roles ---

const enter = async (role) => {
  const tab = await openTab(browser, guarded.url);
  await tab.go("/", "input[name=token]");
  tab.troubles.splice(0); // 401: who is there is what the page asks first
  await tab.page.locator("input[name=token]").fill(tokens[role]);
  await tab.page.getByRole("button", { name: "Enter" }).click();
  await tab.page.locator("h1", { hasText: "Sweeps" }).waitFor();
  return tab;
};
const post = (path, token, body = "{}") => fetch(guarded.url + path, { method: "POST", body,
  headers: { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) } });

test("roles: no token sees nothing, a reader no button, a submitter cancels and retries, an admin drains", async () => {
  guarded.token = tokens.submit;
  guarded.spawn("worker-noops", "ablate-worker", ["--server", guarded.address, "--name", "noops", "--device", "cpu", "--slots", "2", "--threads-per-slot", "1",
    "--work-dir", `${guarded.dir}/work-noops`, "--executor", "noop", "--token-file", guarded.file("worker.token", tokens.worker)]);
  await guarded.submit("bad", noopYaml("bad", { axes: "axes: {noop.outcome: [code_error]}\n", seeds: 1 }));
  const sweep = async (name) => (await fetch(`${guarded.url}/api/v1/sweeps/${name}`, { headers: { Authorization: `Bearer ${tokens.read}` } })).json();
  await poll("bad has failed", async () => (await sweep("bad")).state === "SWEEP_FAILED");
  await guarded.submit("slow", noopYaml("slow", { seeds: 2, seconds: 3600 }));

  // Nothing without a token, not by the page and not by hand.
  assert.equal((await fetch(`${guarded.url}/api/v1/sweeps`)).status, 401);
  assert.equal((await fetch(`${guarded.url}/api/v1/sweeps`, { headers: { Authorization: `Bearer ${tokens.read}x` } })).status, 401);
  assert.equal((await post("/api/v1/sweeps/slow/cancel")).status, 401);

  const reader = await enter("read");
  for (const path of ["/sweeps/slow", "/sweeps/bad", "/workers"]) {
    await reader.go(path, "h1");
    await reader.page.locator(path === "/workers" ? "text=noops" : '[role="tab"]').first().waitFor();
    for (const name of ["Cancel sweep", "Retry failed jobs", "Drain"]) assert.equal(await reader.page.getByRole("button", { name, exact: true }).count(), 0, `${name} at ${path}`);
  }
  for (const path of ["/api/v1/sweeps/slow/cancel", "/api/v1/sweeps/bad/retry", "/api/v1/workers/noops/drain"]) assert.equal((await post(path, tokens.read)).status, 403, path);
  // The token stays in its tab: another one is asked for its own.
  assert.deepEqual(await reader.page.evaluate(() => [localStorage.length, document.cookie]), [0, ""]);

  const submitter = await enter("submit");
  await submitter.go("/sweeps/bad", '[role="tab"]');
  await submitter.page.getByRole("button", { name: "Retry failed jobs" }).click();
  await submitter.page.getByRole("dialog").getByRole("button", { name: "Retry" }).click();
  await submitter.page.getByText("1 new job made").waitFor();
  await submitter.go("/sweeps/slow", '[role="tab"]');
  await submitter.page.getByRole("button", { name: "Cancel sweep" }).click();
  await submitter.page.getByRole("button", { name: "Cancel the sweep" }).click();
  await submitter.page.locator('.page-head [data-state="SWEEP_CANCELLED"]').waitFor();
  await submitter.go("/workers", "text=noops");
  assert.equal(await submitter.page.getByRole("button", { name: "Drain" }).count(), 0);

  const admin = await enter("admin");
  await admin.go("/workers", "text=noops");
  await admin.page.getByRole("button", { name: "Drain" }).click();
  await admin.page.getByRole("button", { name: "Drain the worker" }).click();
  await poll("the worker drains", async () => (await (await fetch(`${guarded.url}/api/v1/workers`, { headers: { Authorization: `Bearer ${tokens.read}` } })).json())
    .workers.some((worker) => worker.draining || !worker.connected));
  for (const tab of [reader, submitter, admin]) {
    assert.deepEqual(tab.troubles, []);
    await tab.context.close();
  }
});

// --- other sites ---

// The status of a request with headers that fetch does not let one choose.
const statusOf = (headers, { method = "GET", path = "/api/v1/sweeps" } = {}) => new Promise((resolve, reject) => {
  const { hostname, port } = new URL(cluster.url);
  request({ hostname, port, path, method, headers }, (response) => response.resume().on("end", () => resolve(response.statusCode)))
    .on("error", reject).end(method === "POST" ? "{}" : undefined);
});

test("a page of another origin reads nothing and changes nothing; a name that is not the server's is refused", async () => {
  const other = createServer((_request, response) => response.writeHead(200, { "Content-Type": "text/html" }).end("<!doctype html><title>other</title>"));
  await new Promise((resolve) => other.listen(0, "127.0.0.1", resolve));
  await cluster.submit("victim", noopYaml("victim", { seeds: 1 }));
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`http://127.0.0.1:${other.address().port}/`);
  const tried = await page.evaluate(async (url) => {
    const attempt = async (path, init) => {
      try {
        const response = await fetch(url + path, init);
        return `${response.type} ${await response.text()}`;
      } catch (error) {
        return `failed: ${error.message}`;
      }
    };
    const cancel = "/api/v1/sweeps/victim/cancel";
    return {
      read: await attempt("/api/v1/sweeps"),
      blind: await attempt("/api/v1/sweeps", { mode: "no-cors" }),
      plain: await attempt(cancel, { method: "POST", mode: "no-cors", body: "{}" }),
      form: await attempt(cancel, { method: "POST", mode: "no-cors", body: new URLSearchParams({ a: "b" }) }),
      json: await attempt(cancel, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" }),
      framed: await new Promise((resolve) => {
        const frame = document.createElement("iframe");
        frame.src = url;
        frame.onload = () => { try { resolve(frame.contentDocument === null ? "closed" : frame.contentDocument.body.innerHTML); } catch { resolve("closed"); } };
        document.body.append(frame);
      }),
    };
  }, cluster.url);
  for (const [name, said] of Object.entries(tried)) assert.ok(!said.includes("victim") && !said.includes("sweep_id"), `${name}: ${said}`);
  assert.match(tried.read, /^failed/);
  assert.match(tried.json, /^failed/);
  // The frame has the browser's own page of a refusal, not ours.
  assert.equal(await page.frames()[1]?.locator("nav").count().catch(() => 0) ?? 0, 0);
  assert.equal((await cluster.json("sweep", "show", "victim"))[0].state, "RUNNING");
  await context.close();
  other.close();

  const { port } = new URL(cluster.url);
  assert.equal(await statusOf({ Host: `127.0.0.1:${port}` }), 200);
  assert.equal(await statusOf({ Host: `rebound.example:${port}` }), 403);
  assert.equal(await statusOf({ Host: `127.0.0.1:${port}`, Origin: "http://evil.example" }), 403);
  assert.equal(await statusOf({ Host: `127.0.0.1:${port}`, "Content-Type": "text/plain", "Content-Length": 2 }, { method: "POST", path: "/api/v1/sweeps/victim/cancel" }), 415);
  assert.equal((await cluster.json("sweep", "show", "victim"))[0].state, "RUNNING");
});

test("the headers that keep a page to itself", async () => {
  const { headers } = await fetch(cluster.url);
  assert.match(headers.get("content-security-policy"), /default-src 'self'/);
  assert.match(headers.get("content-security-policy"), /frame-ancestors 'none'/);
  assert.equal(headers.get("x-content-type-options"), "nosniff");
  assert.equal(headers.get("referrer-policy"), "no-referrer");
});

// --- a server that dies ---

test("the server dies: the page says so, keeps what it had, and goes on by itself when it is back", async () => {
  const tab = await openTab(browser, cluster.url);
  await settled(tab, "/sweeps/small?tab=table");
  await tab.page.locator("td[data-mean]").first().waitFor();
  assert.deepEqual(tab.troubles, []);
  await tab.page.evaluate(() => { window.notReloaded = true; });
  const before = await tab.data("td[data-mean]");
  await cluster.kill(cluster.server);
  await tab.page.locator('.connection[data-state="lost"]').waitFor();
  assert.match(await tab.page.locator(".connection").innerText(), /no connection/);
  assert.deepEqual(await tab.data("td[data-mean]"), before);
  await cluster.startServer();
  await tab.page.locator('.connection[data-state="live"]').waitFor();
  await cluster.submit("later", noopYaml("later", { seeds: 1 }));
  await tab.page.getByRole("link", { name: "Sweeps" }).first().click();
  await tab.page.locator("text=later").first().waitFor();
  assert.equal(await tab.page.evaluate(() => window.notReloaded), true);
  assert.equal(await tab.page.locator('[role="alert"]').count(), 0);
  await tab.context.close();
});
