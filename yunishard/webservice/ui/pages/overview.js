// The first page: what needs attention, how full the cluster is, and the upper queues.

import { segment, usePoll } from "../api.js";
import { html } from "../html.js";
import { Bar, Link, Loaded, PlainTable } from "../parts.js";
import { useAll } from "../table.js";
import { count, kindsOf } from "../units.js";
import { QueueRows } from "./queues.js";

export function Overview({ partition }) {
  const partitions = usePoll("partitions", {}, 3000);
  const mine = partitions.data?.find((one) => one.name === partition);
  return html`
    <${Attention} />
    <${Loaded} poll=${partitions}>${() => (mine ? html`<${Summary} one=${mine} />` : html`<p>There is no partition ${partition} that you may see.</p>`)}<//>
    <${UpperQueues} partition=${partition} />
  `;
}

/** The health checks that fail. */
function Attention() {
  const health = usePoll("scheduler/healthcheck", {}, 5000);
  const failed = (health.data?.HealthChecks ?? []).filter((one) => !one.Succeeded);
  if (!failed.length) return health.data ? html`<p class="quiet">All health checks pass.</p>` : null;
  return html`<section aria-label="Needs attention">${failed.map((one) => html`<p class="attention" key=${one.Name}>
    <strong>${one.Name}:</strong> ${one.DiagnosisMessage || one.Description}${one.NextStep && html` <span class="next">Next: ${one.NextStep}</span>`}</p>`)}</section>`;
}

function Summary({ one }) {
  const { capacity = {}, usedCapacity = {} } = one.capacity;
  const states = Object.entries(one.applications).filter(([name]) => name !== "total");
  return html`<div class="cards">
    <section class="card"><h2>Capacity</h2>
      ${kindsOf(capacity).map((kind) => html`<div key=${kind}><span class="quiet">${kind}</span><${Bar} kind=${kind} label=${kind} used=${usedCapacity[kind] ?? 0} total=${capacity[kind]} /></div>`)}
      ${!kindsOf(capacity).length && html`<p class="quiet">No nodes.</p>`}
    </section>
    <section class="card"><h2>Applications</h2>
      <${PlainTable} caption=${`${count(one.applications.total ?? 0)} in all`} empty="None." keyOf=${([name]) => name} rows=${states} columns=${[
        ["state", ([name]) => html`<${Link} page="applications" params=${{ state: name.toLowerCase() }}>${name.toLowerCase()}<//>`],
        ["number", ([, number]) => count(number), true],
      ]} />
    </section>
    <section class="card"><h2>Nodes</h2>
      <p><${Link} page="nodes">${count(one.totalNodes ?? 0)} nodes<//>, ${count(one.totalContainers ?? 0)} allocations</p>
      <p class="quiet">Nodes are chosen by ${one.nodeSortingPolicy.type || "default"}; preemption is ${one.preemptionEnabled ? "on" : "off"}.</p>
    </section>
  </div>`;
}

const SHOWN_MAX = 40; // queues of the overview; the page of queues has them all

function UpperQueues({ partition }) {
  const table = useAll(`partition/${segment(partition)}/table/queues`, {});
  return html`<h2>Queues</h2><${Loaded} poll=${table}>${(data) => {
    const upper = data.rows.filter((row) => row.queue.split(".").length <= 2);
    return html`<${QueueRows} rows=${upper.slice(0, SHOWN_MAX)} resources=${data.resources} isTall=${false} />
      <p><${Link} page="queues">All ${count(data.total)} queues<//></p>`;
  }}<//>`;
}
