// The preemption ledger: what was preempted, for which ask or queue, and what it had done.

import { segment, usePoll } from "../api.js";
import { html } from "../html.js";
import { Ago, AppLink, Loaded, NodeLink, PlainTable, QueueLink } from "../parts.js";
import { amounts, count, duration } from "../units.js";

const KINDS = { guaranteed: "its queue is below its guaranteed amount", "required-node": "it requires this node", quota: "the queue is above its lowered maximum" };

export function Preemptions({ partition }) {
  const poll = usePoll(`partition/${segment(partition)}/preemptions`, { limit: 200 }, 5000);
  return html`<p class="quiet">The newest 200.</p><${Loaded} poll=${poll}>${(all) => html`<${PlainTable} caption="Preemptions" isBelowHeading=${true} rows=${all} empty="Nothing was preempted." columns=${[
    ["time", (row) => html`<${Ago} ns=${row.time} />`],
    ["for", (row) => (row.applicationID ? html`<${AppLink} name=${row.applicationID} />` : html`<${QueueLink} name=${row.queueName} />`)],
    ["queue", (row) => html`<${QueueLink} name=${row.queueName} />`],
    ["because", (row) => KINDS[row.kind] ?? row.kind],
    ["node", (row) => (row.nodeID ? html`<${NodeLink} name=${row.nodeID} />` : "–")],
    ["victims", (row) => html`<${Victims} row=${row} />`],
    ["released", (row) => amounts(row.resource)],
  ]} />`}<//>`;
}

function Victims({ row }) {
  const unnamed = row.victimCount - row.victims.length;
  return html`<details><summary>${count(row.victimCount)}</summary><ul>${row.victims.map((one) => html`<li key=${one.allocationKey}>
    <span class="mono">${one.allocationKey}</span> of <${AppLink} name=${one.applicationID} /> in ${one.queueName}, ran ${duration(one.ranSeconds)}</li>`)}
    ${unnamed > 0 && html`<li>and ${count(unnamed)} more</li>`}</ul></details>`;
}
