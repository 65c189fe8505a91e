import { webcrypto } from "node:crypto";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ApiError, apiUrl, errorOf, get, parseEvents, post, stream } from "./client";
import { double, int64 } from "./types";

const answer = (body: BodyInit | null, init: ResponseInit = {}) => {
  const fetched = vi.fn(async (_url: string, _init: RequestInit) => new Response(body, init));
  vi.stubGlobal("fetch", fetched);
  return fetched;
};

afterEach(() => vi.unstubAllGlobals());

describe("numbers of the JSON mapping", () => {
  it("come as text and words", () => {
    expect([int64("1796076164915989"), int64(undefined)]).toEqual([1796076164915989, 0]);
    expect([double("NaN"), double("Infinity"), double("-Infinity"), double(2.5), double(undefined)]).toEqual([NaN, Infinity, -Infinity, 2.5, NaN]);
  });
});

describe("apiUrl", () => {
  it("leaves out what is empty and repeats lists", () => {
    expect(apiUrl("/sweeps", { page_size: 100, page_token: "", x: undefined })).toBe("/api/v1/sweeps?page_size=100");
    expect(apiUrl("/sweeps/a/curves", { arms_json: ['{"p":3}', "b"], level: 0.9 })).toBe("/api/v1/sweeps/a/curves?arms_json=%7B%22p%22%3A3%7D&arms_json=b&level=0.9");
  });
});

describe("get", () => {
  it("gives the value with its ETag, and nothing when it has not changed", async () => {
    answer('{"a": 1}', { headers: { ETag: '"x"' } });
    expect(await get("/api/v1/me")).toEqual({ value: { a: 1 }, etag: '"x"' });
    const fetched = answer(null, { status: 304 });
    expect(await get("/api/v1/me", { etag: '"x"' })).toBeUndefined();
    expect((fetched.mock.calls[0]![1].headers as Record<string, string>)["If-None-Match"]).toBe('"x"');
  });
  it("throws the server's own words with advice", async () => {
    answer('{"error": {"code": "NOT_FOUND", "message": "no sweep \\"x\\""}}', { status: 404 });
    await expect(get("/api/v1/sweeps/x")).rejects.toMatchObject({ code: "NOT_FOUND", message: 'no sweep "x"', status: 404 });
  });
  it("says so when no server answers", async () => {
    vi.stubGlobal("fetch", async () => { throw new TypeError("Failed to fetch"); });
    const error = await get("/api/v1/me").catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(ApiError);
    expect((error as ApiError).code).toBe("UNREACHABLE");
    expect((error as ApiError).advice).toContain("ablate-server");
  });
});

describe("errorOf", () => {
  it("copes with pages that are not ours", async () => {
    const error = await errorOf(new Response("<h1>Bad gateway</h1>", { status: 502, statusText: "Bad Gateway" }));
    expect([error.code, error.message]).toEqual(["HTTP_502", "The server answered 502 Bad Gateway."]);
    expect(error.advice).not.toBe("");
  });
});

describe("post", () => {
  it("sends JSON with an id of its own each time", async () => {
    const fetched = answer("{}");
    vi.stubGlobal("crypto", webcrypto); // Node 18 has it under no global name
    await post("/sweeps/a/cancel");
    await post("/sweeps/a/lock", { why: "because" });
    const bodies = fetched.mock.calls.map((call) => JSON.parse(call[1].body as string));
    expect(bodies[1].why).toBe("because");
    expect(bodies[0].request_id).toMatch(/^page-[0-9a-f]{32}$/);
    expect(bodies[0].request_id).not.toBe(bodies[1].request_id);
    expect((fetched.mock.calls[0]![1].headers as Record<string, string>)["Content-Type"]).toBe("application/json");
  });
});

describe("events", () => {
  it("are whole before they are given, whatever the pieces", async () => {
    const text = ": here\n\nevent: change\r\ndata: {\"revision\":\r\ndata: \"7\"}\r\n\r\nevent: change\ndata: {}\n\nevent: chan";
    const parsed = parseEvents(text);
    expect(parsed.events).toEqual([{ event: "change", data: '{"revision":\n"7"}' }, { event: "change", data: "{}" }]);
    expect(parsed.rest).toBe("event: chan");
    const bytes = new TextEncoder().encode("event: change\ndata: {\"revision\":\"ä\"}\n\n");
    const pieces = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
        controller.close();
      },
    });
    answer(pieces);
    const seen: string[] = [];
    await stream("/api/v1/changes", new AbortController().signal, (event) => seen.push(event.data));
    expect(seen).toEqual(['{"revision":"ä"}']);
  });
});
