// What of a page's view is kept in its address, so that a view can be sent to somebody and the browser's back and forward work.
// A page names its parameters once, with type and default; a parameter at its default is left out of the address.
//
//   const VIEW = { tab: text("overview"), arms: list(), level: level(), log: flag(false) };
//   const [view, setView] = useUrlState(VIEW);      // view.tab: string, view.arms: string[], ...
//   setView({ tab: "curves" });                     // a step of the history; {replace: true} for key strokes
//
// Parameters of other hooks of the same page are left as they are.
import { useCallback, useMemo } from "preact/hooks";
import { currentLocation, navigate, useLocation } from "./router";

export interface Parameter<T> {
  fallback: T;
  read(values: string[]): T | undefined; // undefined: not understood, the default holds
  write(value: T): string[];
}
export type Parameters = Record<string, Parameter<any>>;
export type Values<P extends Parameters> = { [K in keyof P]: P[K] extends Parameter<infer T> ? T : never };

export function text(fallback = ""): Parameter<string> {
  return { fallback, read: (values) => values[0], write: (value) => [value] };
}

export function oneOf<const T extends string>(choices: readonly T[], fallback: T): Parameter<T> {
  return { fallback, read: (values) => choices.find((choice) => choice === values[0]), write: (value) => [value] };
}

// Both ends are left out: what lies at or beyond one is not understood, as what is no number.
export function number(fallback: number, { over = -Infinity, under = Infinity }: { over?: number; under?: number } = {}): Parameter<number> {
  return {
    fallback,
    read: (values) => {
      const value = Number(values[0]);
      return values[0]?.trim() && value > over && value < under ? value : undefined;
    },
    write: (value) => [String(value)],
  };
}

// Of confidence, as `--level` takes it.
export const level = (): Parameter<number> => number(0.95, { over: 0, under: 1 });

export function flag(fallback = false): Parameter<boolean> {
  return {
    fallback,
    read: (values) => (values[0] === "1" || values[0] === "true" ? true : values[0] === "0" || values[0] === "false" ? false : undefined),
    write: (value) => [value ? "1" : "0"],
  };
}

// Repeated in the address (arms=a&arms=b), since values may contain commas (arms are JSON).
export function list(fallback: string[] = []): Parameter<string[]> {
  return { fallback, read: (values) => values, write: (value) => value };
}

export function readState<P extends Parameters>(parameters: P, search: string): Values<P> {
  const query = new URLSearchParams(search);
  const values: Record<string, unknown> = {};
  for (const [name, parameter] of Object.entries(parameters)) {
    const given = query.getAll(name);
    values[name] = given.length === 0 ? parameter.fallback : parameter.read(given) ?? parameter.fallback;
  }
  return values as Values<P>;
}

// The query ("?tab=curves" or "") after a change.
export function writeState<P extends Parameters>(parameters: P, search: string, change: Partial<Values<P>>): string {
  const query = new URLSearchParams(search);
  for (const [name, value] of Object.entries(change)) {
    const parameter = parameters[name];
    if (!parameter) continue;
    query.delete(name);
    if (value === undefined) continue;
    const written = parameter.write(value);
    if (JSON.stringify(written) === JSON.stringify(parameter.write(parameter.fallback))) continue;
    for (const item of written) query.append(name, item);
  }
  const result = query.toString();
  return result ? `?${result}` : "";
}

export type SetState<P extends Parameters> = (change: Partial<Values<P>>, options?: { replace?: boolean }) => void;

// `parameters` must be the same object at every call: declare it outside of the component.
export function useUrlState<P extends Parameters>(parameters: P): [Values<P>, SetState<P>] {
  const location = useLocation();
  const values = useMemo(() => readState(parameters, location.search), [parameters, location.search]);
  const set = useCallback<SetState<P>>((change, options) => {
    const now = currentLocation();
    const search = writeState(parameters, now.search, change);
    if (search !== now.search) navigate(now.path + search, options);
  }, [parameters]);
  return [values, set];
}
