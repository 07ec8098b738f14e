// All applications: filtered and sorted by the API, windowed.

import { segment } from "../api.js";
import { html } from "../html.js";
import { Ago, AppLink, Choice, QueueLink, QueueSearch, Search, State } from "../parts.js";
import { setParams } from "../route.js";
import { ApiTable } from "../table.js";
import { amounts, count, words } from "../units.js";

const STATES = ["new", "accepted", "starting", "running", "resuming", "completing", "failing", "completed", "failed", "rejected"];

const COLUMNS = [
  { name: "application", heading: "application", sort: "application", cell: (row) => html`<${AppLink} name=${row.application} />` },
  { name: "state", heading: "state", sort: "state", cell: (row) => html`<${State} name=${row.state} />` },
  { name: "reason", heading: "waits because", sort: "reason", cell: (row) => (row.reason ? words(row.reason) : "–") },
  { name: "queue", heading: "queue", sort: "queue", cell: (row) => html`<${QueueLink} name=${row.queue} />` },
  { name: "user", heading: "user", sort: "user", cell: (row) => row.user },
  { name: "pending", heading: "pending", sort: "pending", cell: (row) => amounts(row.pending) },
  { name: "asks", heading: "asks", sort: "asks", isNumber: true, cell: (row) => count(row.asks) },
  { name: "used", heading: "used", sort: "used", cell: (row) => amounts(row.used) },
  { name: "allocations", heading: "allocations", sort: "allocations", isNumber: true, cell: (row) => count(row.allocations) },
  { name: "submitted", heading: "submitted", sort: "submitted", cell: (row) => html`<${Ago} ns=${row.submitted} />` },
];

export function Applications({ partition, params }) {
  const { state = "", queue = "", user = "", text = "", subtree = "", node = "", sort = "-pending" } = params;
  const query = { state, queue, user, text, node, subtree: queue && subtree };
  return html`
    <div class="filters">
      <${Search} label="Name" value=${text} onChange=${(value) => setParams({ text: value })} />
      <${Choice} label="State" value=${state} options=${[["", "not ended"], ...STATES.map((one) => [one, one]), ["ended", "ended"]]} onChange=${(value) => setParams({ state: value })} />
      <${QueueSearch} partition=${partition} value=${queue} onChange=${(value) => setParams({ queue: value, subtree: value && "true" })} />
      <${Search} label="User" value=${user} onChange=${(value) => setParams({ user: value })} />
      ${node && html`<button onClick=${() => setParams({ node: "" })}>on node ${node} ✕</button>`}
    </div>
    <${ApiTable} caption="Applications" path=${`partition/${segment(partition)}/table/applications`} query=${query} columns=${COLUMNS}
      sort=${sort} onSort=${(value) => setParams({ sort: value || "application" })} empty="No application matches." />
  `;
}
