import type { PageProps } from "../app/shell";

export function SweepPage({ parameters }: PageProps) {
  return <h1>{parameters.sweep}</h1>;
}
