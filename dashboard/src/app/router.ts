// The address of the page: which path is shown, moving between pages without a reload, and parsing of paths. Plain anchors
// (<a href="/jobs/1">) work as links; nothing else is needed. Must not know the pages.
import { useEffect, useState } from "preact/hooks";

export interface Location { path: string; search: string }

const listeners = new Set<() => void>();

export function currentLocation(): Location {
  return { path: window.location.pathname, search: window.location.search };
}

export function onNavigate(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// `replace`: the step back goes past this one; for what changes at every key stroke.
export function navigate(href: string, options: { replace?: boolean } = {}): void {
  const before = window.location.pathname;
  if (options.replace) history.replaceState(null, "", href);
  else history.pushState(null, "", href);
  if (window.location.pathname !== before) window.scrollTo(0, 0);
  [...listeners].forEach((listener) => listener());
}

export function useLocation(): Location {
  const [location, setLocation] = useState(currentLocation);
  useEffect(() => {
    setLocation(currentLocation());
    return onNavigate(() => setLocation(currentLocation()));
  }, []);
  return location;
}

// "/jobs/:id" and "/jobs/a%2Fb" give {id: "a/b"}; undefined where they differ. A slash at the end is ignored.
export function matchPath(pattern: string, path: string): Record<string, string> | undefined {
  const wanted = pattern.split("/").filter(Boolean);
  const given = path.split("/").filter(Boolean);
  if (wanted.length !== given.length) return undefined;
  const values: Record<string, string> = {};
  for (let i = 0; i < wanted.length; ++i) {
    const part = wanted[i]!;
    let value: string;
    try {
      value = decodeURIComponent(given[i]!);
    } catch {
      return undefined;
    }
    if (part.startsWith(":")) values[part.slice(1)] = value;
    else if (part !== value) return undefined;
  }
  return values;
}

export const sweepPath = (name: string): string => `/sweeps/${encodeURIComponent(name)}`;
export const jobPath = (id: string): string => `/jobs/${encodeURIComponent(id)}`;

// Makes clicks on anchors of this site move without a reload. Leaves alone: other buttons and keys held (new tab), targets,
// downloads, files (a dot in the last part), places within a page.
export function interceptLinks(): void {
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const anchor = (event.target as Element | null)?.closest?.("a[href]");
    // Anchors inside of a chart are SVG's, with an animated href.
    const raw = anchor?.getAttribute("href");
    if (!anchor || !raw || raw.startsWith("#") || anchor.getAttribute("target") || anchor.hasAttribute("download")) return;
    const url = new URL(raw, window.location.href);
    if (url.origin !== window.location.origin || url.pathname.startsWith("/api/") || /\.[^/]*$/.test(lastPart(url.pathname))) return;
    event.preventDefault();
    navigate(url.pathname + url.search + url.hash);
  });
  window.addEventListener("popstate", () => [...listeners].forEach((listener) => listener()));
}

// A sweep may be named "p.15": only a last part directly under the root is a file.
function lastPart(path: string): string {
  const parts = path.split("/").filter(Boolean);
  return parts.length === 1 ? parts[0]! : "";
}
