// The stored training curve of one job, on its page.
import { useCallback, useMemo } from "preact/hooks";
import { int64, type CurvePoint, type Job } from "../api/types";
import { flag, text, useUrlState } from "../app/url_state";
import { ChartCard } from "../charts/card";
import type { DrawOptions } from "../charts/figure";
import { drawJobCurve, metricsOf, prepareJobCurve } from "../charts/job_curve";

const VIEW = { metric: text("train_loss"), log: flag(false) };

export function JobCurve({ job, points }: { job: Job; points: CurvePoint[] }) {
  const [view, setView] = useUrlState(VIEW);
  const metrics = useMemo(() => metricsOf(points), [points]);
  const metric = metrics.includes(view.metric) ? view.metric : metrics[0] ?? "";
  const data = useMemo(() => prepareJobCurve(points, {
    name: job.job_id, metric, log: view.log, diverged: job.outcome === "DIVERGED", from: int64(job.task?.stage?.from_step),
  }), [points, metric, view.log, job.job_id, job.outcome]);
  const draw = useCallback((options: DrawOptions) => drawJobCurve(data, options), [data]);
  if (points.length === 0) return <p class="muted">{
    int64(job.ended_at_us) > 0 ? "No point was stored." : "No point is stored yet: a worker sends them while it trains."}</p>;
  return (
    <>
      <div class="controls">
        <label>Metric <select value={metric} onChange={(event) => setView({ metric: event.currentTarget.value })}>
          {metrics.map((name) => <option key={name} value={name}>{name}</option>)}
        </select></label>
        <label><input type="checkbox" checked={view.log} onChange={(event) => setView({ log: event.currentTarget.checked })} /> Log scale</label>
      </div>
      <ChartCard draw={draw} sweep="" heading={false} />
    </>
  );
}
