import type { PageProps } from "../app/shell";

export function SweepsPage(_props: PageProps) {
  return <h1>Sweeps</h1>;
}
