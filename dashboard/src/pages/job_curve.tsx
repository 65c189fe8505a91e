// The stored training curve of one job.
import type { CurvePoint, Job } from "../api/types";

export function JobCurve({ points }: { job: Job; points: CurvePoint[] }) {
  return <p class="muted">{points.length} points.</p>;
}
