// The frame around every page: top with navigation, connection, theme; the table of pages; login; errors of a page. A new page is
// a file in pages/ and a row of PAGES.
import { Component, type ComponentChildren, type ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { setToken, token } from "../api/client";
import { ComparePage } from "../pages/compare";
import { JobPage } from "../pages/job";
import { SweepPage } from "../pages/sweep";
import { SweepsPage } from "../pages/sweeps";
import { WorkersPage } from "../pages/workers";
import { formatTime } from "./format";
import { clearCache, feed, useConnection } from "./live";
import { MeContext, useAskMe } from "./me";
import { matchPath, navigate, useLocation } from "./router";
import { Announcer, clearReports, ErrorNotice, Reports } from "./widgets";

// What a page is given: the parts of its path that are named in the pattern.
export interface PageProps { parameters: Record<string, string> }

interface Page {
  pattern: string;
  component: ComponentType<PageProps>;
  title: (parameters: Record<string, string>) => string;
  menu?: string; // its name in the navigation
}

const PAGES: Page[] = [
  { pattern: "/", component: SweepsPage, title: () => "Sweeps", menu: "Sweeps" },
  { pattern: "/sweeps/:sweep", component: SweepPage, title: ({ sweep }) => sweep! },
  { pattern: "/jobs/:job", component: JobPage, title: ({ job }) => `Job ${job}` },
  { pattern: "/workers", component: WorkersPage, title: () => "Workers", menu: "Workers" },
  { pattern: "/compare", component: ComparePage, title: () => "Compare sweeps", menu: "Compare" },
];

export function Shell() {
  const location = useLocation();
  const me = useAskMe();
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  let found: { page: Page; parameters: Record<string, string> } | undefined;
  for (const page of PAGES) {
    const parameters = matchPath(page.pattern, location.path);
    if (parameters) {
      found = { page, parameters };
      break;
    }
  }
  const title = found ? found.page.title(found.parameters) : "No such page";
  useEffect(() => {
    document.title = `${title} · Ablate`;
  }, [title]);
  // A reader of the screen hears the new page, and Tab goes on from its start.
  useEffect(() => {
    if (!first.current) main.current?.focus({ preventScroll: true });
    first.current = false;
    return clearReports;
  }, [location.path]);

  const locked = me.error?.code === "UNAUTHENTICATED" || (me.data?.needs_token && !me.data.role);
  const Found = found?.page.component;
  return (
    <MeContext.Provider value={me.data}>
      <a class="skip" href="#main">Skip to the page</a>
      <header class="top">
        <div class="top-in">
          <a class="brand" href="/">Ablate</a>
          <nav aria-label="Pages">
            {PAGES.filter((page) => page.menu).map((page) => (
              <a key={page.pattern} href={page.pattern} aria-current={page === found?.page ? "page" : undefined}>{page.menu}</a>
            ))}
          </nav>
          <div class="top-end">
            {!locked && <ConnectionState />}
            <ThemeSwitch />
          </div>
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {!locked && <LostNotice />}
        <Reports />
        {locked ? <Login />
          : me.error && !me.data ? <ErrorNotice error={me.error} />
          : Found ? <PageBoundary key={location.path}><Found parameters={found!.parameters} /></PageBoundary>
          : <div class="empty"><h1>No such page</h1><p>Nothing is at {location.path}. <a href="/">The list of sweeps</a></p></div>}
      </main>
      <footer class="footer">
        <span>Ablate {me.data?.version}</span>
        {me.data && <span>role {me.data.role || "none"}{me.data.token_name && `, token ${me.data.token_name}`}{me.data.read_only && ", read only"}</span>}
        {token() && <button class="quiet" onClick={() => enter("")}>Forget the token</button>}
        <a href="/licenses.txt">Licences</a>
      </footer>
      <Announcer />
    </MeContext.Provider>
  );
}

function enter(value: string): void {
  setToken(value);
  clearCache();
  feed.restart();
  // Everything that is shown was another role's.
  window.location.reload();
}

function Login() {
  const [value, setValue] = useState("");
  const held = token() !== "";
  return (
    <form class="panel" style="max-width: 560px; margin: 24px auto" onSubmit={(event) => {
      event.preventDefault();
      if (value.trim()) enter(value.trim());
    }}>
      <h1>This server asks for a token</h1>
      <p style="margin-top: 8px">{held
        ? "The server does not know the token that was entered, or it was revoked or has expired."
        : "It shows nothing without one."}{" "}
        Whoever runs the server makes one:
      </p>
      <pre style="margin-bottom: 12px">ablate token create --role read --name NAME</pre>
      <label class="stack">
        <span>Token</span>
        <input type="password" name="token" autocomplete="off" spellcheck={false} value={value} placeholder="ablate_…"
          onInput={(event) => setValue(event.currentTarget.value)} />
      </label>
      <p class="muted">It is kept in this tab until you close it, and goes to this server only.</p>
      <button class="primary" type="submit" disabled={!value.trim()}>Enter</button>
    </form>
  );
}

function LostNotice() {
  const { connection, error } = useConnection();
  if (connection !== "lost" || feed.lastHeard === 0) return null;
  return (
    <div class="notice warn" role="status">
      <p><strong>No connection to the server.</strong> {error && error.code !== "UNREACHABLE" && `${error.message} `}What is shown is as of {formatTime(String(feed.lastHeard * 1e6))};
        the page tries again by itself.</p>
    </div>
  );
}

const CONNECTION_TEXT = {
  connecting: "connecting",
  live: "live",
  lost: "no connection, trying again",
  paused: "paused",
} as const;

function ConnectionState() {
  const { connection } = useConnection();
  return (
    <span class="connection" data-state={connection} role="status">
      <svg width="10" height="10" viewBox="0 0 10 10" aria-hidden="true">
        {connection === "live" ? <circle cx="5" cy="5" r="4" fill="currentColor" />
          : connection === "lost" ? <path d="M1 1 9 9M9 1 1 9" stroke="currentColor" stroke-width="2" />
          : <circle cx="5" cy="5" r="3.5" fill="none" stroke="currentColor" stroke-width="1.5" />}
      </svg>
      {CONNECTION_TEXT[connection]}
    </span>
  );
}

declare global {
  interface Window { applyTheme?: () => void }
}

const THEMES = [["", "System's theme"], ["light", "Light"], ["dark", "Dark"]] as const;

function ThemeSwitch() {
  const [theme, setTheme] = useState(() => {
    try {
      return localStorage.getItem("ablate.theme") ?? "";
    } catch {
      return "";
    }
  });
  return (
    <select aria-label="Theme" value={theme} onChange={(event) => {
      const chosen = event.currentTarget.value;
      setTheme(chosen);
      try {
        if (chosen) localStorage.setItem("ablate.theme", chosen);
        else localStorage.removeItem("ablate.theme");
      } catch {
        document.documentElement.dataset.theme = chosen || "light";
        return;
      }
      window.applyTheme?.();
    }}>
      {THEMES.map(([value, name]) => <option key={value} value={value}>{name}</option>)}
    </select>
  );
}

// A page that breaks says so, and leaves the frame usable.
class PageBoundary extends Component<{ children: ComponentChildren }, { error?: Error }> {
  static override getDerivedStateFromError(error: Error) {
    return { error };
  }
  override componentDidCatch(error: Error) {
    console.error(error);
  }
  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <div class="notice bad" role="alert">
        <p><strong>This page has a fault:</strong> {this.state.error.message}</p>
        <p>The data are safe; the command line shows the same. <button onClick={() => window.location.reload()}>Load again</button>{" "}
          <button onClick={() => navigate("/")}>To the sweeps</button></p>
      </div>
    );
  }
}
