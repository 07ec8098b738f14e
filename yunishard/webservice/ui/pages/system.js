// What the system consists of: partitions, resource managers, hosts, health.

import { usePoll } from "../api.js";
import { plainColumnsOf } from "../catalogue.js";
import { html } from "../html.js";
import { Bar, Facts, Loaded, PlainTable, State } from "../parts.js";
import { count, kindsOf } from "../units.js";

export function System() {
  const partitions = usePoll("partitions", {}, 3000);
  const clusters = usePoll("clusters", {}, 5000);
  const hosts = usePoll("hosts", {}, 5000);
  const health = usePoll("scheduler/healthcheck", {}, 5000);
  return html`
    <h2>Health</h2>
    <${Loaded} poll=${health}>${(one) => html`<${PlainTable} caption="Health checks" isBelowHeading=${true} rows=${one.HealthChecks ?? []} keyOf=${(row) => row.Name} columns=${[
      ["check", (row) => row.Name],
      ["state", (row) => html`<${State} name=${row.Succeeded ? "healthy" : "unhealthy"} />`],
      ["diagnosis", (row) => html`${row.DiagnosisMessage || row.Description}${!row.Succeeded && row.NextStep && html` <span class="next">Next: ${row.NextStep}</span>`}`],
    ]} />`}<//>
    <h2>Partitions</h2>
    <${Loaded} poll=${partitions}>${(all) => html`<${PlainTable} caption="Partitions" isBelowHeading=${true} rows=${all} keyOf=${(row) => row.name} empty="None yet: no resource manager has registered." columns=${[
      ["partition", (row) => row.name],
      ["resource manager", (row) => row.clusterId],
      ["state", (row) => html`<${State} name=${row.state} />`],
      ["nodes", (row) => count(row.totalNodes ?? 0), true],
      ["applications", (row) => count(row.applications.total ?? 0), true],
      ...kindsOf(...all.map((one) => one.capacity.capacity)).slice(0, 3).map((kind) => [kind, (row) => html`<${Bar} kind=${kind} label=${kind} used=${row.capacity.usedCapacity?.[kind] ?? 0} total=${row.capacity.capacity?.[kind] ?? 0} />`]),
    ]} />`}<//>
    <h2>Resource managers</h2>
    <${Loaded} poll=${clusters}>${(all) => html`<${Managers} all=${all} />`}<//>
    <h2>Hosts</h2>
    ${hosts.error?.status === 403 ? html`<p class="quiet">Only scheduler administrators see the hosts.</p>` : html`<${Loaded} poll=${hosts}>${(view) => html`<${Hosts} view=${view} />`}<//>`}
  `;
}

function Managers({ all }) {
  const found = new Map();
  for (const one of all) {
    for (const { rmId, ...build } of one.rmBuildInformation ?? []) if (!found.has(rmId)) found.set(rmId, { rm: rmId, state: "connected", partitions: [], build });
    const row = found.get(one.rmId);
    if (row) Object.assign(row, { state: row.awaySince || one.awaySince ? "away" : "connected", awaySince: row.awaySince || one.awaySince, partitions: [...row.partitions, one.partition] });
  }
  return html`<${PlainTable} caption="Resource managers" isBelowHeading=${true} rows=${[...found.values()].sort((left, right) => (left.rm < right.rm ? -1 : 1))} keyOf=${(row) => row.rm} columns=${plainColumnsOf("rms")} />`;
}

function Hosts({ view }) {
  return html`<${Facts} rows=${[["balance", view.rebalancing ? "partitions move" : ""]]} />
  <${PlainTable} caption="Hosts" isBelowHeading=${true} rows=${view.hosts ?? []} keyOf=${(row) => row.name} empty="One host, without a shared store." columns=${plainColumnsOf("hosts")} />`;
}
