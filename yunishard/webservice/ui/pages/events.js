// The newest events of the partition.

import { usePoll } from "../api.js";
import { html, useState } from "../html.js";
import { Ago, AppLink, Choice, NodeLink, PlainTable, Problem, QueueLink, Search } from "../parts.js";
import { describeEvent, eventTypes } from "../catalogue.js";
import { setParams } from "../route.js";
import { amount, count, kindsOf } from "../units.js";

const BATCH = 1000; // the newest events that are searched
const SHOWN = 200; // rows at first, and more with each press of the button

export function Events({ partition, params }) {
  const { text = "", type = "" } = params;
  const [shown, setShown] = useState(SHOWN);
  const types = Object.fromEntries(eventTypes());
  // Without any events, the start tells where the range begins; then the newest ones are requested.
  const range = usePoll("events/batch", { partition, count: 1 }, 2000);
  const start = range.data ? Math.max(range.data.LowestID, range.data.HighestID - BATCH + 1) : undefined;
  const batch = usePoll(start === undefined ? "" : "events/batch", { partition, start, count: BATCH }, 2000);
  const found = [...(batch.data?.EventRecords ?? [])].reverse().filter((one) => matches(one, text.toLowerCase(), type));
  return html`
    <div class="filters">
      <${Search} label="Text" value=${text} onChange=${(value) => setParams({ text: value })} />
      <${Choice} label="About" value=${type} options=${[["", "everything"], ...eventTypes()]} onChange=${(value) => setParams({ type: value })} />
      <span class="quiet" role="status">${batch.data ? `${count(found.length)} of the newest ${count(batch.data.EventRecords?.length ?? 0)}` : ""}</span>
    </div>
    <${Problem} error=${range.error ?? batch.error} />
    ${batch.data && html`<${PlainTable} caption="Events, newest first" rows=${found.slice(0, shown)} keyOf=${(row) => `${row.timestampNano} ${row.objectID} ${row.referenceID} ${row.message}`} empty="No event matches." columns=${[
      ["time", (row) => html`<${Ago} ns=${row.timestampNano} />`],
      ["about", (row) => html`<span class="line">${types[row.type] ?? "–"}</span>`],
      ["object", (row) => html`<${Subject} type=${row.type} name=${row.objectID} />`],
      ["reference", (row) => html`<${Reference} row=${row} />`],
      ["change", (row) => describeEvent(row)],
      ["amounts", (row) => html`<span class="line">${amountsOf(row)}</span>`],
      ["message", (row) => row.message ?? ""],
    ]} />`}
    ${found.length > shown && html`<p><button onClick=${() => setShown(shown + SHOWN)}>Show ${count(Math.min(SHOWN, found.length - shown))} more</button></p>`}
  `;
}

function Subject({ type, name = "" }) {
  if (!name) return "–";
  if (type === 2) return html`<${AppLink} name=${name} />`;
  if (type === 3) return html`<${NodeLink} name=${name} />`;
  return type === 4 ? html`<${QueueLink} name=${name} />` : html`<span class="mono">${name}</span>`;
}

/** The application of an ask; otherwise the name as it is. */
function Reference({ row }) {
  const name = row.referenceID ?? "";
  return row.type === 1 && name ? html`<${AppLink} name=${name} />` : html`<span class="mono">${name}</span>`;
}

function matches(one, text, type) {
  if (type && String(one.type) !== type) return false;
  return !text || [one.objectID, one.referenceID, one.message, describeEvent(one)].some((part) => (part ?? "").toLowerCase().includes(text));
}

/** The amounts of an event: "2 vcore, 4 GiB"; empty without any. */
function amountsOf(event) {
  const resources = event.resource?.resources ?? {};
  return kindsOf(resources).map((kind) => amount(kind, resources[kind].value ?? 0)).join(", ");
}
