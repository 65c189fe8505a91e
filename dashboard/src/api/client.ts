// How the page asks the server: one function for reading, one for changing, one for streams. Errors say what happened and what to
// do. Must not know the page.

// `code` is gRPC's name of the cause ("NOT_FOUND"), or "UNREACHABLE" where no answer came.
export class ApiError extends Error {
  constructor(readonly code: string, message: string, readonly status = 0) {
    super(message);
  }
  get advice(): string {
    return ADVICE[this.code] ?? "Try again; if it stays, look into the server's log.";
  }
}

const ADVICE: Record<string, string> = {
  UNREACHABLE: "The page asks again by itself. See whether ablate-server runs: `ablate sweep list` says so too.",
  UNAVAILABLE: "The server is starting, stopping, or its disk is full; the page asks again by itself.",
  UNAUTHENTICATED: "Enter a token that the server knows: `ablate-server` names its tokens file with --tokens.",
  PERMISSION_DENIED: "Ask for a token of a role that may do this, or have somebody do it who may.",
  NOT_FOUND: "It may have been named differently, or belong to another server. The list of sweeps is the place to look.",
  INVALID_ARGUMENT: "Change what the message names.",
  FAILED_PRECONDITION: "Nothing was changed. Look at the state again before trying once more.",
  RESOURCE_EXHAUSTED: "Too much was asked of the server at once. Wait a moment, then load the page again.",
  DEADLINE_EXCEEDED: "It took too long. Try again, or ask for less.",
};

const TOKEN_KEY = "ablate.token";

export function token(): string {
  try {
    return sessionStorage.getItem(TOKEN_KEY) ?? "";
  } catch {
    return "";
  }
}

export function setToken(value: string): void {
  try {
    if (value) sessionStorage.setItem(TOKEN_KEY, value);
    else sessionStorage.removeItem(TOKEN_KEY);
  } catch {
    // Storage is forbidden: the page stays without a token and says so again.
  }
}

export type QueryValue = string | number | boolean | readonly string[] | undefined;

// "/api/v1" + path with the query; "" and undefined are left out, arrays repeat.
export function apiUrl(path: string, query: Record<string, QueryValue> = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === "") continue;
    if (Array.isArray(value)) for (const item of value) parameters.append(name, item);
    else parameters.append(name, String(value));
  }
  const text = parameters.toString();
  return `/api/v1${path}${text ? `?${text}` : ""}`;
}

export function headers(extra: Record<string, string> = {}): Record<string, string> {
  const held = token();
  return held ? { ...extra, Authorization: `Bearer ${held}` } : extra;
}

export async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text) as { error: { code: string; message: string } };
    if (error.code && error.message) return new ApiError(error.code, error.message, response.status);
  } catch {
    // Not of our server's making: a proxy's page, most likely.
  }
  return new ApiError(`HTTP_${response.status}`, `The server answered ${response.status} ${response.statusText}`.trim() + ".", response.status);
}

async function send(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, { ...init, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new ApiError("UNREACHABLE", "The server does not answer.");
  }
}

export interface Fetched<T> { value: T; etag: string }

// undefined: not changed since `etag`.
export async function get<T>(url: string, options: { etag?: string; signal?: AbortSignal } = {}): Promise<Fetched<T> | undefined> {
  const extra: Record<string, string> = { Accept: "application/json" };
  if (options.etag) extra["If-None-Match"] = options.etag;
  const response = await send(url, { headers: headers(extra), signal: options.signal ?? null });
  if (response.status === 304) return undefined;
  if (!response.ok) throw await errorOf(response);
  return { value: (await response.json()) as T, etag: response.headers.get("ETag") ?? "" };
}

// A change has an id of its own, so that a repeated request (a lost answer) changes nothing twice.
export async function post<T>(path: string, body: Record<string, unknown> = {}): Promise<T> {
  const response = await send(apiUrl(path), {
    method: "POST",
    headers: headers({ "Content-Type": "application/json", Accept: "application/json" }),
    body: JSON.stringify({ request_id: requestId(), ...body }),
  });
  if (!response.ok) throw await errorOf(response);
  return (await response.json()) as T;
}

export function requestId(): string {
  // randomUUID is there on secure pages only; a page over plain http beyond localhost is not one.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "page-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export interface ServerEvent { event: string; data: string }

// Splits text of server-sent events into events; what is not whole yet stays in the returned rest.
export function parseEvents(text: string): { events: ServerEvent[]; rest: string } {
  const events: ServerEvent[] = [];
  const blocks = text.replace(/\r\n/g, "\n").split("\n\n");
  const rest = blocks.pop() ?? "";
  for (const block of blocks) {
    let event = "message";
    const data: string[] = [];
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
    }
    if (data.length > 0) events.push({ event, data: data.join("\n") });
  }
  return { events, rest };
}

// Reads a stream of events until it ends; throws ApiError as the others do. EventSource cannot carry a token, so this is fetch.
export async function stream(url: string, signal: AbortSignal, onEvent: (event: ServerEvent) => void): Promise<void> {
  const response = await send(url, { headers: headers({ Accept: "text/event-stream" }), signal });
  if (!response.ok) throw await errorOf(response);
  if (!response.body) throw new ApiError("UNREACHABLE", "The server sent no stream.");
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    let chunk: ReadableStreamReadResult<Uint8Array>;
    try {
      chunk = await reader.read();
    } catch (error) {
      if (signal.aborted) throw error;
      throw new ApiError("UNREACHABLE", "The connection to the server broke.");
    }
    if (chunk.done) return;
    const parsed = parseEvents(text + decoder.decode(chunk.value, { stream: true }));
    text = parsed.rest;
    parsed.events.forEach(onEvent);
  }
}
