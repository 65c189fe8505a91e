import type { PageProps } from "../app/shell";

export function ComparePage(_props: PageProps) {
  return <h1>Compare</h1>;
}
