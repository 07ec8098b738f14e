// Usage of a queue over time, as charts.

import { usePoll } from "../api.js";
import { html, useEffect, useRef } from "../html.js";
import { Choice, Problem, QueueSearch } from "../parts.js";
import { setParams } from "../route.js";
import { figure, isBytes, kindsOf, time } from "../units.js";
import UPlot from "../vendor/uplot.js";

const SINCE = [["-1h", "1 hour"], ["-6h", "6 hours"], ["-24h", "1 day"], ["-168h", "7 days"]];
const ROWS_MAX = 10_000; // the most that one request returns
const PERIOD_MS = 10_000; // the use is recorded every few seconds
const HEIGHT_PX = 220;
const SPAN_MIN_S = 300; // shown at least, so that a system that has just started has a readable axis

export function History({ partition, params }) {
  const { queue = "root", since = "-1h" } = params;
  const poll = usePoll("history/queues", { partition, queue, since, limit: ROWS_MAX }, PERIOD_MS);
  return html`
    <div class="filters">
      <${QueueSearch} partition=${partition} value=${queue} onChange=${(value) => setParams({ queue: value })} />
      <${Choice} label="Period" value=${since} options=${SINCE} onChange=${(value) => setParams({ since: value })} />
    </div>
    <${Problem} error=${poll.error} />
    ${poll.data && (poll.data.rows.length ? html`<${Charts} rows=${poll.data.rows} />` : html`<p class="quiet">Nothing was recorded for this queue in this period.</p>`)}
    ${!poll.data && poll.isLoading && html`<p class="quiet">Loading …</p>`}
  `;
}

function Charts({ rows }) {
  const kinds = kindsOf(...rows.map((one) => one.allocatedResource), ...rows.map((one) => one.pendingResource));
  const times = rows.map((one) => one.timestamp / 1e9);
  times.push(Date.now() / 1000); // between rows, usage is constant
  const line = (value) => [...rows, rows[rows.length - 1]].map(value);
  return html`
    <${Chart} name="Running applications" data=${[times, line((one) => one.runningApps ?? 0)]} series=${["running"]} kind="" />
    ${kinds.map((kind) => html`<${Chart} key=${kind} name=${kind} kind=${kind} series=${["used", "pending"]}
      data=${[times, line((one) => one.allocatedResource?.[kind] ?? 0), line((one) => one.pendingResource?.[kind] ?? 0)]} />`)}
  `;
}

function Chart({ name, kind, data, series }) {
  const box = useRef(null);
  const chart = useRef(null);
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const colour = (one) => style.getPropertyValue(one).trim();
    const shown = (value) => (value === null || value === undefined ? "–" : kind ? figure(kind, value) : value.toLocaleString("en"));
    const steps = UPlot.paths.stepped({ align: 1 });
    const clock = (_, marks, __, ___, step) => marks.map((at) => (step >= 86_400 ? time(at * 1e9).slice(5, 10) : time(at * 1e9).slice(11, step < 60 ? 19 : 16)));
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const made = new UPlot({
      width: box.current.clientWidth || 600,
      height: HEIGHT_PX,
      cursor: { drag: { x: true, y: false } },
      axes: [{ ...axis, values: clock, space: 70 }, { ...axis, size: 80, values: (_, values) => values.map(shown), ...(isBytes(kind) ? { incrs: byteSteps() } : {}) }],
      scales: { x: { range: (_, first, last) => [Math.min(first, last - SPAN_MIN_S), last] }, y: { range: (_, low, high) => [0, Math.max(high * 1.05, 1)] } },
      series: [
        { label: "time", value: (_, value) => (value === null ? "–" : time(value * 1e9)) },
        ...series.map((label, index) => ({ label, paths: steps, value: (_, value) => shown(value), width: 2, stroke: colour(index ? "--full" : "--used"), dash: index ? [6, 4] : undefined })),
      ],
    }, data, box.current);
    chart.current = made;
    const resize = () => made.setSize({ width: box.current.clientWidth, height: HEIGHT_PX });
    addEventListener("resize", resize);
    return () => {
      removeEventListener("resize", resize);
      made.destroy();
    };
  }, [kind]);
  useEffect(() => chart.current?.setData(data), [data]);
  const last = data.slice(1).map((one, index) => `${series[index]} ${kind ? figure(kind, one[one.length - 1]) : one[one.length - 1]}`).join(", ");
  return html`<figure class="chart"><figcaption><strong>${name}</strong> <span class="quiet">now: ${last}</span></figcaption><div ref=${box}></div></figure>`;
}

function byteSteps() {
  return Array.from({ length: 50 }, (_, power) => 2 ** power);
}
