// One application: why it waits, its asks, its allocations, its states.

import { segment, usePoll } from "../api.js";
import { Explained } from "../explanation.js";
import { ObjectActions, amountsOf, factsOf, plainColumnsOf, useRow } from "../catalogue.js";
import { html, useState } from "../html.js";
import { Ago, AmountTable, Facts, Loaded, NodeLink, PlainTable, QueueLink, State } from "../parts.js";
import { useAll } from "../table.js";
import { amounts, count, time } from "../units.js";

const SHOWN_MAX = 500; // allocations on the page

export function Application({ partition, args: [name] }) {
  const base = `partition/${segment(partition)}`;
  const path = `${base}/application/${segment(name)}`;
  const poll = usePoll(path);
  const row = useRow("applications", partition, name);
  const asks = useAll(`${base}/table/asks`, { application: name });
  return html`<${Loaded} poll=${poll}>${(one) => html`
    <${Facts} rows=${[
      ...(row ? factsOf("applications", row) : [["state", html`<${State} name=${one.applicationState} />`], ["queue", html`<${QueueLink} name=${one.queueName} />`], ["user", one.user], ["rejected", one.rejectedMessage]]),
      ["reserved nodes", one.reservations?.length || ""],
    ]} />
    ${row && html`<${AmountTable} caption="Amounts" rows=${[...amountsOf("applications", row), ["most used", one.maxUsedResource]]} />`}
    <${Explained} path=${`${path}/explain`} heading="Why it waits" />
    <h2>Pending asks</h2>
    <${Loaded} poll=${asks}>${(data) => html`<${Asks} rows=${data.rows} path=${path} />`}<//>
    <h2>Allocations</h2>
    <${Allocations} all=${one.allocations ?? []} />
    <h2>States</h2>
    <${PlainTable} caption="States that it entered" rows=${one.stateLog ?? []} columns=${[["state", (row) => html`<${State} name=${row.applicationState} />`], ["time", (row) => time(row.time)]]} />
  `}<//>
  <${ObjectActions} key=${name} name="applications" row=${row} path=${path} partition=${partition} />`;
}

function Asks({ rows, path }) {
  const [open, setOpen] = useState("");
  return html`<${PlainTable} caption="Equal asks in one row" rows=${rows} keyOf=${(row) => row.key} empty="None: everything that it asked for runs." columns=${[
    ...plainColumnsOf("asks"),
    [html`<span class="hidden">explanation</span>`, (row) => html`<button aria-expanded=${String(open === row.key)} aria-label=${`Explain ${row.key}`} onClick=${() => setOpen(open === row.key ? "" : row.key)}>Explain</button>`],
  ]} />
  ${open && html`<${Explained} key=${open} path=${`${path}/ask/${segment(open)}/explain`} heading=${`Why ${open} waits`} />`}`;
}

function Allocations({ all }) {
  return html`<${PlainTable} caption=${all.length > SHOWN_MAX ? `The first ${SHOWN_MAX} of ${count(all.length)}` : `${count(all.length)} in all`} rows=${all.slice(0, SHOWN_MAX)} keyOf=${(row) => row.allocationKey} columns=${[
    ["allocation", (row) => html`<span class="mono">${row.allocationKey}</span>${row.placeholder ? " (placeholder)" : ""}`],
    ["node", (row) => html`<${NodeLink} name=${row.nodeId} />`],
    ["resources", (row) => amounts(row.resource)],
    ["priority", (row) => row.priority, true],
    ["since", (row) => html`<${Ago} ns=${row.allocationTime} />`],
  ]} />`;
}
