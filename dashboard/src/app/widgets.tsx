// What several pages are made of: states, errors, tabs, dialogs, boxes for wide tables, spoken messages. Each is usable by keyboard
// and says in words what its colour says. Must not know the pages or the server.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/client";
import { formatTime, words } from "./format";

// --- spoken messages ---

let speak: (text: string) => void = () => undefined;

// Says something to readers of the screen without moving anything.
export function announce(text: string): void {
  speak(text);
}

export function Announcer() {
  const [text, setText] = useState("");
  useEffect(() => {
    speak = setText;
  }, []);
  return <div class="visually-hidden" aria-live="polite" role="status">{text}</div>;
}

// --- what came of an action: stays until it is closed or the page left, also when the button has gone with the state ---

export interface Report { id: number; title: string; text: ComponentChildren }

let reports: Report[] = [];
let showReports: (reports: Report[]) => void = () => undefined;

function setReports(next: Report[]): void {
  reports = next;
  showReports(next);
}

export function report(title: string, text: ComponentChildren): void {
  setReports([...reports, { id: (reports[reports.length - 1]?.id ?? 0) + 1, title, text }]);
}

export function clearReports(): void {
  if (reports.length > 0) setReports([]);
}

export function Reports() {
  const [shown, setShown] = useState(reports);
  useEffect(() => {
    showReports = setShown;
  }, []);
  return (
    <div role="status">
      {shown.map((one) => (
        <div key={one.id} class="notice good report">
          <p><strong>{one.title}:</strong> {one.text}</p>
          <button type="button" onClick={() => setReports(reports.filter((other) => other.id !== one.id))}>Close</button>
        </div>
      ))}
    </div>
  );
}

// --- states ---

export type Tone = "ok" | "run" | "wait" | "warn" | "bad" | "off";

const SHAPES: Record<string, JSX.Element> = {
  check: <path d="M2 6.5 4.8 9.5 10 3" fill="none" stroke="currentColor" stroke-width="2" />,
  play: <path d="M3 1.5 10.5 6 3 10.5Z" fill="currentColor" />,
  queue: <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.8" />,
  bars: <path d="M3.8 2v8M8.2 2v8" stroke="currentColor" stroke-width="2.2" />,
  cross: <path d="M2 2 10 10M10 2 2 10" stroke="currentColor" stroke-width="2.2" />,
  dash: <path d="M2 6h8" stroke="currentColor" stroke-width="2.2" />,
  up: <path d="M1.5 9.5 4.5 7 7 8.5 10.5 2M7.5 2h3v3" fill="none" stroke="currentColor" stroke-width="1.6" />,
  lock: <path d="M2.5 5.5h7v5h-7zM4 5.5V4a2 2 0 0 1 4 0v1.5" fill="none" stroke="currentColor" stroke-width="1.5" />,
  hand: <path d="M6 1.2 11 10.5H1ZM6 4.5v3M6 8.6v1" fill="none" stroke="currentColor" stroke-width="1.4" />,
};

// State by name as the server gives it: tone, shape, word. Of sweeps, jobs, attempts and verdicts.
export const STATES: Record<string, { tone: Tone; shape: string; word: string }> = {
  SWEEP_RUNNING: { tone: "run", shape: "play", word: "running" },
  SWEEP_SUCCEEDED: { tone: "ok", shape: "check", word: "succeeded" },
  SWEEP_FAILED: { tone: "bad", shape: "cross", word: "failed" },
  SWEEP_CANCELLED: { tone: "off", shape: "dash", word: "cancelled" },
  BLOCKED: { tone: "wait", shape: "bars", word: "blocked" },
  QUEUED: { tone: "wait", shape: "queue", word: "queued" },
  RUNNING: { tone: "run", shape: "play", word: "running" },
  SUCCEEDED: { tone: "ok", shape: "check", word: "succeeded" },
  FAILED: { tone: "bad", shape: "cross", word: "failed" },
  CANCELLED: { tone: "off", shape: "dash", word: "cancelled" },
  RELEASED: { tone: "wait", shape: "dash", word: "released" },
  LOST: { tone: "bad", shape: "cross", word: "lost" },
  DIVERGED: { tone: "warn", shape: "up", word: "diverged" },
  SEALED: { tone: "wait", shape: "lock", word: "sealed" },
  PAUSED: { tone: "warn", shape: "hand", word: "paused" },
  WAITS: { tone: "warn", shape: "hand", word: "waits for you" },
  CONNECTED: { tone: "ok", shape: "check", word: "connected" },
  AWAY: { tone: "bad", shape: "cross", word: "no contact" },
  DRAINING: { tone: "warn", shape: "dash", word: "draining" },
  NOT_YET: { tone: "wait", shape: "queue", word: "not yet" },
  SUPPORTED: { tone: "ok", shape: "check", word: "supported" },
  REFUTED: { tone: "bad", shape: "cross", word: "refuted" },
  UNDECIDED: { tone: "wait", shape: "dash", word: "undecided" },
};

export function State({ name, word }: { name: string; word?: string }) {
  const state = STATES[name] ?? { tone: "off" as Tone, shape: "dash", word: words(name) };
  return (
    <span class="state" data-tone={state.tone} data-state={name}>
      <svg viewBox="0 0 12 12" aria-hidden="true">{SHAPES[state.shape]}</svg>
      {word ?? state.word}
    </span>
  );
}

// --- errors and waiting ---

export function ErrorNotice({ error, what }: { error: Error; what?: string }) {
  return (
    <div class="notice bad" role="alert">
      <p><strong>{what ?? "The server refused"}:</strong> {error.message}</p>
      {error instanceof ApiError && <p>{error.advice}</p>}
    </div>
  );
}

export function Loading({ what = "Loading" }: { what?: string }) {
  return <div class="empty" role="status">{what} …</div>;
}

export function Time({ us }: { us: string }) {
  const ms = Number(us) / 1000;
  return ms > 0 ? <time class="nowrap" dateTime={new Date(ms).toISOString()}>{formatTime(us)}</time> : <>–</>;
}

// --- boxes for what is wider than the page ---

export function Scroll({ label, children }: { label: string; children: ComponentChildren }) {
  return <div class="scroll" role="region" aria-label={label} tabIndex={0}>{children}</div>;
}

// --- tabs: arrow keys move, Home and End go to the ends ---

export interface Tab<T extends string> { id: T; name: string }

export function Tabs<T extends string>({ tabs, selected, onSelect, label }: {
  tabs: readonly Tab<T>[]; selected: T; onSelect: (id: T) => void; label: string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const onKeyDown = (event: KeyboardEvent): void => {
    const at = tabs.findIndex((tab) => tab.id === selected);
    const last = tabs.length - 1;
    const to = event.key === "ArrowRight" ? (at === last ? 0 : at + 1) : event.key === "ArrowLeft" ? (at <= 0 ? last : at - 1)
      : event.key === "Home" ? 0 : event.key === "End" ? last : -1;
    if (to < 0) return;
    event.preventDefault();
    onSelect(tabs[to]!.id);
    box.current?.querySelectorAll<HTMLElement>('[role="tab"]')[to]?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={box} onKeyDown={onKeyDown}>
      {tabs.map((tab) => (
        <button key={tab.id} type="button" role="tab" id={`tab-${tab.id}`} aria-selected={tab.id === selected}
          aria-controls={`panel-${tab.id}`} tabIndex={tab.id === selected ? 0 : -1} onClick={() => onSelect(tab.id)}>
          {tab.name}
        </button>
      ))}
    </div>
  );
}

export function TabPanel({ id, children }: { id: string; children: ComponentChildren }) {
  return <div role="tabpanel" id={`panel-${id}`} aria-labelledby={`tab-${id}`}>{children}</div>;
}

// --- dialog: the browser's own, which keeps the focus inside and closes by Escape ---

export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => before?.focus?.();
  }, []);
  // The browser would let Tab out to its own bars.
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Tab" || !dialog.current) return;
    const stops = [...dialog.current.querySelectorAll<HTMLElement>("button, a[href], input, select, textarea, [tabindex='0']")]
      .filter((stop) => !(stop as HTMLButtonElement).disabled);
    const edge = event.shiftKey ? stops[0] : stops[stops.length - 1];
    if (stops.length === 0 || (document.activeElement !== edge && dialog.current.contains(document.activeElement) && document.activeElement !== dialog.current)) return;
    event.preventDefault();
    (event.shiftKey ? stops[stops.length - 1] : stops[0])?.focus();
  };
  return (
    <dialog ref={dialog} aria-labelledby="dialog-title" onClose={onClose} onKeyDown={onKeyDown}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}
