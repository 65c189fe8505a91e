import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ChangeFeed, pauseAfter } from "./live";

// Answers of /api/v1/changes, one a connection; a list of texts is a stream that ends, "open" one that stays.
type Answer = { events: string[]; open?: boolean } | { status: number; code: string } | "unreachable";

const page = { hidden: false, listeners: [] as (() => void)[] };
let answers: Answer[];
let asked: number;

beforeEach(() => {
  vi.useFakeTimers();
  answers = [];
  asked = 0;
  page.hidden = false;
  page.listeners = [];
  const listen = (_event: string, listener: () => void): void => void page.listeners.push(listener);
  vi.stubGlobal("document", { get hidden() { return page.hidden; }, addEventListener: listen });
  vi.stubGlobal("window", { setTimeout, clearTimeout, addEventListener: () => undefined });
  vi.stubGlobal("fetch", async (_url: string, init: RequestInit) => {
    ++asked;
    const answer = answers.shift() ?? "unreachable";
    if (answer === "unreachable") throw new TypeError("Failed to fetch");
    if ("status" in answer) return new Response(JSON.stringify({ error: { code: answer.code, message: "no" } }), { status: answer.status });
    return new Response(new ReadableStream({
      start(controller) {
        for (const event of answer.events) controller.enqueue(new TextEncoder().encode(event));
        if (!answer.open) controller.close();
        init.signal?.addEventListener("abort", () => answer.open && controller.error(new DOMException("aborted", "AbortError")));
      },
    }));
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const change = (revision: number): string => `event: change\ndata: {"revision":"${revision}"}\n\n`;

describe("the stream of changes", () => {
  it("says what is old only when the revision differs", async () => {
    answers = [{ events: [change(7), change(7), ": ping\n\n", change(8)], open: true }];
    const feed = new ChangeFeed();
    feed.start();
    await vi.advanceTimersByTimeAsync(10);
    expect([feed.connection, feed.version]).toEqual(["live", 1]);
  });

  it("is heard before anything is asked for, so that its first word makes nothing old", async () => {
    answers = [{ events: [change(7)], open: true }];
    const feed = new ChangeFeed();
    const versions: number[] = [];
    void feed.ready().then(() => versions.push(feed.version));
    await vi.advanceTimersByTimeAsync(10);
    expect(versions).toEqual([]);
    feed.start();
    await vi.advanceTimersByTimeAsync(10);
    expect([versions, feed.connection]).toEqual([[0], "live"]);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(feed.version).toBe(0);
  });

  it("holds nothing up where it is slow, hidden or cannot be had, and then its first word makes all old", async () => {
    const slow: { say?: () => void } = {};
    vi.stubGlobal("fetch", async () => new Response(new ReadableStream({
      start(controller) {
        slow.say = () => controller.enqueue(new TextEncoder().encode(change(7)));
      },
    })));
    let asked = 0;
    const feed = new ChangeFeed();
    feed.start();
    void feed.ready().then(() => ++asked);
    await vi.advanceTimersByTimeAsync(290);
    expect(asked).toBe(0);
    await vi.advanceTimersByTimeAsync(20);
    expect([asked, feed.version]).toEqual([1, 0]);
    slow.say!();
    await vi.advanceTimersByTimeAsync(10);
    expect([feed.connection, feed.version]).toEqual(["live", 1]);

    vi.stubGlobal("fetch", async () => { throw new TypeError("Failed to fetch"); });
    for (const hidden of [false, true]) {
      page.hidden = hidden;
      const other = new ChangeFeed();
      other.start();
      void other.ready().then(() => ++asked);
      await vi.advanceTimersByTimeAsync(10);
      expect(other.connection).toBe(hidden ? "paused" : "lost");
    }
    expect(asked).toBe(3);
  });

  it("comes back by itself, and takes all for old then", async () => {
    answers = [{ events: [change(7)] }, "unreachable", { events: [change(7)], open: true }];
    const feed = new ChangeFeed();
    feed.start();
    await vi.advanceTimersByTimeAsync(10);
    expect(feed.connection).toBe("lost");
    await vi.advanceTimersByTimeAsync(10_000);
    expect([feed.connection, feed.version, asked]).toEqual(["live", 1, 3]);
  });

  it("has everything asked again when the token is refused, also after a stream that just ended, and once only", async () => {
    answers = [{ events: [change(7)] }, ...Array.from({ length: 9 }, () => ({ status: 401, code: "UNAUTHENTICATED" }))];
    const feed = new ChangeFeed();
    feed.start();
    await vi.advanceTimersByTimeAsync(10);
    expect([feed.connection, feed.version]).toEqual(["lost", 0]);
    await vi.advanceTimersByTimeAsync(20_000);
    expect([feed.connection, feed.version, feed.error?.code]).toEqual(["lost", 1, "UNAUTHENTICATED"]);
    expect(asked).toBeGreaterThan(2);
  });

  it("gives up a connection that says nothing", async () => {
    answers = [{ events: [change(7)], open: true }];
    const feed = new ChangeFeed();
    feed.start();
    await vi.advanceTimersByTimeAsync(39_000);
    expect(feed.connection).toBe("live");
    await vi.advanceTimersByTimeAsync(2_000);
    expect([feed.connection, feed.error?.code]).toEqual(["lost", "UNREACHABLE"]);
  });

  it("holds no connection while the page is hidden", async () => {
    answers = [{ events: [change(7)], open: true }, { events: [change(7)], open: true }];
    const feed = new ChangeFeed();
    feed.start();
    await vi.advanceTimersByTimeAsync(10);
    page.hidden = true;
    page.listeners.forEach((listener) => listener());
    await vi.advanceTimersByTimeAsync(60_000);
    expect([feed.connection, asked]).toEqual(["paused", 1]);
    page.hidden = false;
    page.listeners.forEach((listener) => listener());
    await vi.advanceTimersByTimeAsync(10);
    expect([feed.connection, feed.version, asked]).toEqual(["live", 1, 2]);
  });
});

describe("pauseAfter", () => {
  it("asks for slow answers less often", () => {
    expect([pauseAfter(3), pauseAfter(600), pauseAfter(60_000), pauseAfter(3, 5000)]).toEqual([1000, 2400, 15_000, 5000]);
  });
});
