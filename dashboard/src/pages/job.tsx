import type { PageProps } from "../app/shell";

export function JobPage(_props: PageProps) {
  return <h1>Job</h1>;
}
