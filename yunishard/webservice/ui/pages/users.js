// Usage and limits of users and groups, queue by queue.

import { segment } from "../api.js";
import { html } from "../html.js";
import { Choice, Link, QueueLink, QueueSearch, Search } from "../parts.js";
import { setParams } from "../route.js";
import { ApiTable } from "../table.js";
import { amounts, count } from "../units.js";

export function Users({ partition, params }) {
  const { of = "users", text = "", queue = "", limited = "", sort = "name" } = params;
  const one = of === "users" ? "user" : "group";
  const columns = [
    { name: "name", heading: one, sort: "name", cell: (row) => (one === "user" ? html`<${Link} page="applications" params=${{ user: row.name }}>${row.name}<//>` : row.name) },
    { name: "queue", heading: "queue", sort: "queue", cell: (row) => html`<${QueueLink} name=${row.queue} />` },
    { name: "used", heading: "used", sort: "used", cell: (row) => amounts(row.used) },
    { name: "maximum", heading: "limit", sort: "maximum", cell: (row) => (row.maximum ? amounts(row.maximum) : html`<span class="quiet">no limit</span>`) },
    { name: "utilization", heading: "% of the limit", sort: "utilization", isNumber: true, cell: (row) => (row.utilization === null ? "–" : `${row.utilization} %`) },
    { name: "running", heading: "running applications", sort: "runningApplications", isNumber: true, cell: (row) => `${count(row.runningApplications)}${row.maxApplications ? ` / ${count(row.maxApplications)}` : ""}` },
  ];
  const tab = (name, heading) => html`<button aria-pressed=${String(of === name)} onClick=${() => setParams({ of: name })}>${heading}</button>`;
  return html`
    <div class="tabs">${tab("users", "Users")}${tab("groups", "Groups")}</div>
    <div class="filters">
      <${Search} label="Name" value=${text} onChange=${(value) => setParams({ text: value })} />
      <${QueueSearch} partition=${partition} value=${queue} onChange=${(value) => setParams({ queue: value })} />
      <${Choice} label="Rows" value=${limited} options=${[["", "all queues"], ["true", "queues with a limit"]]} onChange=${(value) => setParams({ limited: value })} />
    </div>
    <${ApiTable} key=${of} caption=${of === "users" ? "Users" : "Groups"} path=${`partition/${segment(partition)}/table/${of}`} query=${{ text, queue, limited }} columns=${columns}
      sort=${sort} onSort=${(value) => setParams({ sort: value || "name" })} empty="No usage or limit matches." />
  `;
}
