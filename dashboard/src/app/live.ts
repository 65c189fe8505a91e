// Resources that stay fresh. One stream of /api/v1/changes for the whole page says that something changed; each resource that is
// shown is then asked for again, with its ETag, not more often than it can be answered. Says what the connection is doing, for the
// page's top. Must not know the pages.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, apiUrl, get, stream } from "../api/client";
import { int64, type Changes } from "../api/types";

export type Connection = "connecting" | "live" | "lost" | "paused";

export class ChangeFeed {
  connection: Connection = "connecting";
  error: ApiError | undefined;
  lastHeard = 0; // seconds; when the server spoke last
  // Grows whenever what is shown may be old.
  version = 0;
  private revision = "";
  private listeners = new Set<() => void>();
  private abort: AbortController | undefined;
  private wake: (() => void) | undefined;
  private running = false;
  private settled = false;
  private settle!: () => void;
  private readonly whenSettled = new Promise<void>((resolve) => { this.settle = resolve; });

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  start(): void {
    if (this.running) return;
    this.running = true;
    // A hidden page holds no connection: a browser has six for a server.
    document.addEventListener("visibilitychange", () => this.restart());
    window.addEventListener("online", () => this.restart());
    window.setTimeout(() => this.open(), 300);
    void this.run();
  }

  // When resources may be asked for: once the stream is heard, so that no change falls between the two and none need be asked for again;
  // without it where it fails or is slow, and its first word makes what was asked old then.
  ready(): Promise<void> {
    return this.whenSettled;
  }

  // Whether that was still to be decided.
  private open(): boolean {
    const first = !this.settled;
    this.settled = true;
    this.settle();
    return first;
  }

  // After another token, or to ask at once.
  restart(): void {
    this.abort?.abort();
    this.wake?.();
  }

  changed(): void {
    ++this.version;
    this.tell();
  }

  private tell(): void {
    [...this.listeners].forEach((listener) => listener());
  }

  private become(connection: Connection, error?: ApiError): void {
    if (connection === this.connection && error === this.error) return;
    this.connection = connection;
    this.error = error;
    if (connection === "lost" || connection === "paused") this.open();
    this.tell();
  }

  private async run(): Promise<never> {
    let wait = 500;
    for (;;) {
      if (document.hidden) {
        this.become("paused");
        await this.sleep(3_600_000);
        continue;
      }
      if (this.connection === "paused") this.become("connecting");
      this.abort = new AbortController();
      const abort = this.abort;
      // The server speaks at least every 15 s; a connection that died without a word is given up.
      let failure: ApiError | undefined;
      const giveUp = (): void => {
        failure = new ApiError("UNREACHABLE", "The server has said nothing for 40 seconds.");
        abort.abort();
      };
      let watchdog = window.setTimeout(giveUp, 40_000);
      try {
        await stream(apiUrl("/changes"), abort.signal, ({ event, data }) => {
          clearTimeout(watchdog);
          watchdog = window.setTimeout(giveUp, 40_000);
          this.lastHeard = Date.now() / 1000;
          if (event !== "change") return;
          wait = 500;
          const { revision } = JSON.parse(data) as Changes;
          const nothingAsked = this.open();
          const known = nothingAsked || (revision === this.revision && this.connection === "live");
          this.revision = revision;
          this.become("live");
          if (!known) this.changed();
        });
      } catch (error) {
        failure ??= error instanceof ApiError ? error : undefined;
      }
      clearTimeout(watchdog);
      if (abort.signal.aborted && !failure) continue;
      const refused = failure?.code === "UNAUTHENTICATED" && this.error?.code !== "UNAUTHENTICATED";
      this.become("lost", failure);
      if (refused) this.changed(); // so that the page asks who the reader is, and for a token
      await this.sleep(wait);
      wait = Math.min(wait * 2, 8000);
    }
  }

  private sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = window.setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

export const feed = new ChangeFeed();

export function useConnection(): { connection: Connection; error: ApiError | undefined } {
  const [, redraw] = useState(0);
  const seen = useRef<Connection>(feed.connection);
  useEffect(() => feed.subscribe(() => {
    if (seen.current === feed.connection) return;
    seen.current = feed.connection;
    redraw((n) => n + 1);
  }), []);
  return { connection: feed.connection, error: feed.error };
}

export interface Live<T> {
  data: T | undefined;       // the last good answer, also while `error` is set
  error: ApiError | undefined;
  loading: boolean;          // nothing to show yet
  refresh(): void;           // ask now, after an action
}

// Answers of the last resources, so that a step back shows them at once; asked again all the same.
const CACHE_SIZE = 40;
const cache = new Map<string, { value: unknown; etag: string }>();

export function clearCache(): void {
  cache.clear();
}

function remember(url: string, entry: { value: unknown; etag: string }): void {
  cache.delete(url);
  cache.set(url, entry);
  if (cache.size > CACHE_SIZE) cache.delete(cache.keys().next().value!);
}

// How long after an answer the next question may go out: a slow one (a table over many jobs) is asked for less often.
export function pauseAfter(milliseconds: number, least = 1000): number {
  return Math.max(least, Math.min(15_000, 4 * milliseconds));
}

// `url` of apiUrl(); undefined asks nothing. `follow: false` asks once; `pause`: milliseconds between questions, at least.
export function useLive<T>(url: string | undefined, options: { follow?: boolean; pause?: number } = {}): Live<T> {
  const follow = options.follow ?? true, least = options.pause ?? 1000;
  const [state, setState] = useState<{ url: string | undefined; data: T | undefined; error: ApiError | undefined }>(
    { url: undefined, data: undefined, error: undefined });
  const ask = useRef<() => void>(() => undefined);

  useEffect(() => {
    if (url === undefined) return;
    const cached = cache.get(url);
    setState({ url, data: cached?.value as T | undefined, error: undefined });
    const abort = new AbortController();
    let timer: number | undefined;
    let busy = false, again = false, pause = 0, version = feed.version;

    const load = async (): Promise<void> => {
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      again = false;
      version = feed.version;
      const started = performance.now();
      try {
        const held = cache.get(url);
        const fetched = await get<T>(url, { etag: held?.etag ?? "", signal: abort.signal });
        if (fetched) remember(url, fetched);
        setState((before) => {
          const data = fetched ? fetched.value : (held?.value as T);
          return before.url === url && before.data === data && !before.error ? before : { url, data, error: undefined };
        });
      } catch (error) {
        if (abort.signal.aborted) return;
        const known = error instanceof ApiError ? error : new ApiError("PAGE", String(error));
        if (known.code === "UNAUTHENTICATED" || known.code === "UNREACHABLE") feed.restart();
        setState((before) => ({ url, data: before.url === url ? before.data : undefined, error: known }));
      }
      busy = false;
      pause = pauseAfter(performance.now() - started, least);
      if (again || feed.version !== version) schedule();
    };
    const schedule = (): void => {
      if (timer !== undefined || document.hidden) return;
      timer = window.setTimeout(() => {
        timer = undefined;
        void load();
      }, pause);
    };
    ask.current = () => void load();
    void feed.ready().then(() => {
      if (!abort.signal.aborted) void load();
    });
    const unsubscribe = follow ? feed.subscribe(() => {
      if (feed.version !== version) schedule();
    }) : () => undefined;
    return () => {
      unsubscribe();
      clearTimeout(timer);
      abort.abort();
    };
  }, [url, follow, least]);

  const current = state.url === url ? state : { data: cache.get(url ?? "")?.value as T | undefined, error: undefined };
  const refresh = useCallback(() => ask.current(), []);
  return { data: current.data, error: current.error, loading: current.data === undefined && !current.error, refresh };
}

// Seconds, drawn again every `every` seconds: for "3 s ago".
export function useNow(every = 5): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now() / 1000), every * 1000);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

export const seconds = (us: string): number => int64(us) / 1e6;
