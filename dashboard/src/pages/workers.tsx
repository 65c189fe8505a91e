import type { PageProps } from "../app/shell";

export function WorkersPage(_props: PageProps) {
  return <h1>Workers</h1>;
}
