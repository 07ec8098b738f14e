// What would happen after a change: the report of a plan that a worker makes with a copy of its present state.

import { address, segment, send } from "./api.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { AppLink, Choice, NodeLink, PlainTable, Problem, QueueLink } from "./parts.js";
import { count, duration, figure, percent, words } from "./units.js";

const PLAN_S = 30; // the API ends a plan after so long
const TIMEOUT_MS = 45_000; // for its answer, which may wait for the configuration to be validated
const ROWS_SHOWN = 10; // of each table, until the user wants all
const HORIZONS = [["600", "10 minutes"], ["3600", "1 hour"], ["28800", "8 hours"], ["86400", "1 day"], ["604800", "7 days"]];
const HINTS = {
  0: "Try again, or choose a nearer horizon.",
  403: "Ask a scheduler administrator to plan the change; plan jobs of your own with: yunishard plan submit.",
  409: "Correct the change above, and review it again.",
  503: "Try again in a moment; a nearer horizon takes less time.",
};

/** Changes to plan for a partition: a horizon to choose, a button, and the report. `level` is the tag of its heading. */
export function Plan({ partition, changes, level = "h3" }) {
  const [horizon, setHorizon] = useState("3600");
  const [view, setView] = useState(null);
  const [error, setError] = useState(null);
  const [isRunning, setRunning] = useState(false);
  const isSent = useRef(false); // two presses in one frame send one request
  const make = async () => {
    if (isSent.current) return;
    isSent.current = true;
    setRunning(true);
    setError(null);
    setView(null);
    try {
      const body = JSON.stringify({ changes, horizon: Number(horizon) });
      const headers = { "Content-Type": "application/json" };
      const answer = await send(address(`partition/${segment(partition)}/plan`), { method: "POST", headers, body, timeoutMs: TIMEOUT_MS });
      setView(await answer.json());
    } catch (failure) {
      setError(failure);
    }
    isSent.current = false;
    setRunning(false);
  };
  return html`<section aria-label="What would happen">
    <${level}>What would happen<//>
    <p class="quiet">Plays the near future of partition ${partition} with the change and without, on a copy of its present state. Nothing is changed.</p>
    <div class="filters">
      <${Choice} label="Look ahead" value=${horizon} options=${HORIZONS} onChange=${setHorizon} />
      <button type="button" disabled=${isRunning} onClick=${make}>${view ? "Plan again" : "Plan the change"}</button>
    </div>
    ${isRunning && html`<${Progress} />`}
    <${Problem} error=${error} hints=${HINTS} />
    ${view && html`<${Report} view=${view} />`}
  </section>`;
}

function Progress() {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setSeconds((one) => one + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return html`<p role="status">Planning … <progress aria-label="Planning" max=${PLAN_S} value=${seconds}></progress></p>
    <p class="quiet" aria-hidden="true">${duration(seconds)} of at most ${PLAN_S} s</p>`;
}

// The report ----------------------------------------------------------------------------------------------------------

function Report({ view }) {
  const when = (at) => after(view, at);
  const affected = (view.applications ?? []).filter(isAffected);
  const moved = (view.asks ?? []).filter((one) => (one.at ?? 0) !== (one.atBaseline ?? 0));
  const others = (view.applications ?? []).filter((one) => one.waiting && !isAffected(one)).length;
  return html`
    <div role="status">
      <p>The next ${duration(view.horizon)} of partition ${view.partition}:</p>
      <ul class="impact">${(view.summary ?? []).map((text, index) => html`<li key=${index} class="attention">${text}</li>`)}</ul>
    </div>
    <${Totals} view=${view} />
    <${Rows} caption="Evicted" rows=${view.evictions} columns=${[
      ["allocation", (row) => html`<span class="mono">${row.allocation}</span>`],
      ["application", (row) => html`<${AppLink} name=${row.application} />`],
      ["user", (row) => row.user],
      ["queue", (row) => html`<${QueueLink} name=${row.queue} />`],
      ["node", (row) => html`<${NodeLink} name=${row.node} />`],
      ["evicted", (row) => when(row.at)],
      ["runs again", (row) => (row.againAt ? `${when(row.againAt)} on ${row.againNode}` : "waits")],
      ["for queue", (row) => (row.byQueue ? html`<${QueueLink} name=${row.byQueue} />` : "–")],
      ["without the change", (row) => (row.inBaseline ? "evicted, too" : "runs on")],
    ]} />
    <${Rows} caption="Applications that the change affects" rows=${affected} columns=${[
      ["application", (row) => html`<${AppLink} name=${row.application} />`],
      ["queue", (row) => html`<${QueueLink} name=${row.queue} />`],
      ["user", (row) => row.user],
      ["asks that wait now", (row) => count(row.waitingBefore ?? 0), true],
      ["start", (row) => both(row.startedBaseline, row.started), true],
      ["first start", (row) => when(row.firstStart)],
      ["wait at the end", (row) => both(row.waitingBaseline, row.waiting), true],
      ["evicted", (row) => both(row.evictedBaseline, row.evicted), true],
      ["why they wait", (row) => html`<span class="why">${row.rejected || row.text || Object.keys(row.reasons ?? {}).map(words).join(", ") || "–"}</span>`],
    ]} />
    ${affected.some((one) => one.startedBaseline !== one.started || one.waitingBaseline !== one.waiting) && html`<p class="key">2 → 4: two without the change, four with it.</p>`}
    ${others > 0 && html`<p class="quiet">${count(others)} other ${others === 1 ? "application waits" : "applications wait"} as without the change.</p>`}
    <${Rows} caption="Expected starts that the change affects" rows=${moved} columns=${[
      ["ask", (row) => html`<span class="mono">${row.ask}</span>`],
      ["application", (row) => html`<${AppLink} name=${row.application} />`],
      ["user", (row) => row.user],
      ["without the change", (row) => when(row.atBaseline)],
      ["with it", (row) => when(row.at)],
      ["node", (row) => (row.node ? html`<${NodeLink} name=${row.node} />` : "–")],
    ]} />
    <${Rows} caption="Above a maximum" rows=${view.excesses} columns=${[
      ["queue", (row) => html`<${QueueLink} name=${row.queue} />`],
      ["whose", (row) => (row.user ? `user ${row.user}` : row.group ? `group ${row.group}` : "the queue")],
      ["of", (row) => row.resource || "running applications"],
      ["maximum", (row) => amountOf(row, row.maximum), true],
      ["used right after the change", (row) => (row.used ? amountOf(row, row.used) : "within"), true],
      ["at the end", (row) => (row.usedAtEnd ? amountOf(row, row.usedAtEnd) : "within"), true],
      ["without the change", (row) => (row.isNew ? "within its maximum" : "above it, too")],
    ]} />
    <${Rows} caption="Use of the nodes" rows=${view.utilisation} columns=${[
      ["resource", (row) => row.resource],
      ["now", (row) => use(row.resource, row.usedBefore, row.capacityBefore), true],
      ["at the end, without the change", (row) => use(row.resource, row.usedBaseline, row.capacityBefore), true],
      ["with it", (row) => use(row.resource, row.used, row.capacity), true],
    ]} />
    <${Texts} heading="Taken for granted" texts=${view.assumptions} />
    <${Texts} heading="Left out" texts=${[...(view.incomplete ?? []), ...(view.hidden ? [`${count(view.hidden)} applications that you may not see`] : [])]} />
  `;
}

const TOTALS = [["asks that start", "started"], ["allocations that end by themselves", "ended"], ["evicted allocations", "evicted"], ["refused applications and asks", "rejected"], ["asks that wait at the end", "waiting"], ["allocations at the end", "running"]];

function Totals({ view }) {
  const rows = TOTALS.filter(([, key]) => view.baseline?.[key] || view.planned?.[key]);
  return html`<${Rows} caption="In total" rows=${rows} columns=${[
    ["number of", ([text]) => text],
    ["without the change", ([, key]) => count(view.baseline?.[key] ?? 0), true],
    ["with it", ([, key]) => count(view.planned?.[key] ?? 0), true],
  ]} />`;
}

/** A table of the report, the first rows of it at first; nothing without rows. */
function Rows({ caption, rows = [], columns }) {
  const [isWhole, setWhole] = useState(false);
  if (!rows.length) return null;
  return html`<div class="planned"><${PlainTable} caption=${caption} rows=${isWhole ? rows : rows.slice(0, ROWS_SHOWN)} columns=${columns} />
    ${!isWhole && rows.length > ROWS_SHOWN && html`<button type="button" onClick=${() => setWhole(true)}>Show all ${count(rows.length)}</button>`}</div>`;
}

function Texts({ heading, texts = [] }) {
  if (!texts.length) return null;
  return html`<details class="card"><summary>${heading}</summary><ul class="impact">${texts.map((text, index) => html`<li key=${index}>${text}</li>`)}</ul></details>`;
}

/** Keys with the value 0 are left out of the report, so both may be undefined. */
function isAffected(one) {
  return ["started", "waiting", "evicted", "firstStart"].some((key) => (one[key] ?? 0) !== (one[`${key}Baseline`] ?? 0));
}

/** A time of the plan: "at once", "in 5 min"; "not in this time" without one. */
function after(view, at) {
  if (!at) return "not in this time";
  const seconds = (at - view.at) / 1e9;
  return seconds < 0.5 ? "at once" : `in ${duration(seconds)}`;
}

function both(before = 0, then = 0) {
  return before === then ? count(then) : `${count(before)} → ${count(then)}`;
}

function amountOf(row, value) {
  return row.resource ? figure(row.resource, value) : count(value);
}

function use(kind, used = 0, capacity = 0) {
  return `${figure(kind, used)} of ${figure(kind, capacity)} (${percent(used, capacity)})`;
}
