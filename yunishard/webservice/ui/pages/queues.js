// The tree of queues, and one queue.

import { segment, usePoll } from "../api.js";
import { markText } from "../actions.js";
import { ObjectActions, amountsOf, chooseKinds, columnsOf, factsOf, useRow } from "../catalogue.js";
import { Explained } from "../explanation.js";
import { html, useMemo, useRef, useState } from "../html.js";
import { AmountTable, Bar, BarKey, Choice, Facts, Link, Loaded, QueueLink, Search } from "../parts.js";
import { setParams } from "../route.js";
import { ROW_PX, useAll, windowOf } from "../table.js";
import { count } from "../units.js";
import { QueueLimits } from "./queue_limits.js";

export function Queues({ partition, params }) {
  const table = useAll(`partition/${segment(partition)}/table/queues`, {});
  return html`<${Loaded} poll=${table}>${(data) => html`<${Tree} data=${data} params=${params} />`}<//>`;
}

function Tree({ data, params }) {
  const { text = "", kind = "" } = params;
  const [closed, setClosed] = useState(() => new Set());
  const parents = useMemo(() => new Set(data.rows.map((row) => parentOf(row.queue))), [data]);
  const shown = useMemo(() => filter(data.rows, text.toLowerCase(), closed), [data, text, closed]);
  const toggle = (name) => setClosed((old) => {
    const changed = new Set(old);
    if (!changed.delete(name)) changed.add(name);
    return changed;
  });
  const upper = () => data.rows.filter((row) => parents.has(row.queue) && row.queue.includes(".")).map((row) => row.queue);
  return html`
    <div class="filters">
      <${Search} label="Name" value=${text} onChange=${(value) => setParams({ text: value })} />
      <${Choice} label="Resource" value=${kind} options=${[["", "main ones"], ...data.resources.map((one) => [one, one])]} onChange=${(value) => setParams({ kind: value })} />
      <button onClick=${() => setClosed(new Set(upper()))}>Collapse</button>
      <button onClick=${() => setClosed(new Set())}>Expand</button>
      <span class="quiet" role="status">${count(shown.length)} of ${count(data.total)} queues</span>
    </div>
    <${BarKey} />
    <${QueueRows} rows=${shown} resources=${data.resources} kind=${kind} parents=${parents} closed=${closed} onToggle=${toggle} isTall=${true} />
  `;
}

function parentOf(name) {
  return name.slice(0, Math.max(0, name.lastIndexOf(".")));
}

/** The rows to show: matches with their parents, or those with no closed queue above. */
function filter(rows, text, closed) {
  if (text) {
    const wanted = new Set();
    for (const row of rows) {
      if (!row.queue.toLowerCase().includes(text)) continue;
      for (let name = row.queue; name; name = parentOf(name)) wanted.add(name);
    }
    return rows.filter((row) => wanted.has(row.queue));
  }
  if (!closed.size) return rows;
  const hidden = new Set();
  return rows.filter((row) => {
    const parent = parentOf(row.queue);
    if (!closed.has(parent) && !hidden.has(parent)) return true;
    hidden.add(row.queue);
    return false;
  });
}

/** Rows of the table of queues with their bars; only those that can be seen exist in the page. */
export function QueueRows({ rows, resources, kind = "", parents, closed, onToggle, isTall }) {
  const box = useRef(null);
  const [seen, setSeen] = useState([0, 60]);
  const measure = () => {
    const now = windowOf(box.current);
    setSeen((old) => (old[0] === now[0] && old[1] === now[1] ? old : now));
  };
  const [, ...columns] = columnsOf("queues", chooseKinds(kind, resources), rows);
  const first = Math.min(seen[0], Math.max(0, rows.length - 1));
  const part = isTall ? rows.slice(first, seen[1]) : rows;
  const above = isTall ? first : 0;
  const below = isTall ? Math.max(0, rows.length - seen[1]) : 0;
  const spacer = (key, number) => number > 0 && html`<tr key=${key} class="spacer" aria-hidden="true"><td colspan=${columns.length + 1} style=${{ height: `${number * ROW_PX}px` }}></td></tr>`;
  return html`<div class="scroll ${isTall ? "tall" : ""}" tabindex="0" role="region" aria-label="Queues" ref=${box} onScroll=${isTall ? measure : undefined}>
    <table class="windowed" aria-rowcount=${rows.length + 1}>
      <caption class="hidden">Queues with their usage</caption>
      <thead><tr aria-rowindex="1"><th scope="col">queue</th>${columns.map((one) => html`<th scope="col" key=${one.name} class=${one.isNumber ? "number" : ""} title=${one.title}>${one.heading}</th>`)}</tr></thead>
      <tbody>
        ${spacer("above", above)}
        ${part.map((row, index) => html`<tr key=${row.queue} aria-rowindex=${above + index + 2}>
          <td><${Name} row=${row} isParent=${parents?.has(row.queue)} isClosed=${closed?.has(row.queue)} onToggle=${onToggle} /></td>
          ${columns.map((one) => html`<td key=${one.name} class=${one.isNumber ? "number" : ""}>${one.cell(row)}</td>`)}
        </tr>`)}
        ${spacer("below", below)}
      </tbody>
    </table>
  </div>`;
}

function Name({ row, isParent, isClosed, onToggle }) {
  const depth = row.queue.split(".").length - 1;
  return html`<span class="indent" style=${{ paddingLeft: `${depth * 1.1}rem` }}>
    ${!onToggle ? "" : isParent ? html`<button class="twist" aria-expanded=${String(!isClosed)} aria-label=${`queues below ${row.queue}`} onClick=${() => onToggle(row.queue)}>${isClosed ? "▸" : "▾"}</button>` : html`<span class="twist"></span>`}
    <${Link} page="queue" args=${[row.queue]} aria-label=${row.queue}>${row.queue.slice(row.queue.lastIndexOf(".") + 1)}<//>
  </span>`;
}

// One queue -----------------------------------------------------------------------------------------------------------

export function Queue({ partition, args: [name] }) {
  const path = `partition/${segment(partition)}/queue/${segment(name, true)}`;
  const poll = usePoll(path);
  const row = useRow("queues", partition, name);
  return html`<${Loaded} poll=${poll}>${(one) => html`
    <${Facts} rows=${[
      ...factsOf("queues", row),
      ["stopped", markText(one.stopped)],
      ["parent", one.parent ? html`<${QueueLink} name=${one.parent} />` : ""],
      ["order", one.sortingPolicy],
      ["defined by", one.isManaged ? "the configuration" : "placement"],
      ["preemption", one.preemptionEnabled ? `after ${one.preemptionDelay}` : "off"],
    ]} />
    ${row && html`<${AmountTable} caption="Amounts" bar=${(kind) => html`<${Bar} kind=${kind} label=${kind} isShort=${true} used=${one.allocatedResource?.[kind] ?? 0} total=${one.maxResource?.[kind]} guaranteed=${one.guaranteedResource?.[kind] ?? 0} pending=${one.pendingResource?.[kind] ?? 0} />`} rows=${[
      ...amountsOf("queues", row),
      ["preempting", one.preemptingResource],
    ].filter(([, value]) => value && Object.keys(value).length)} />`}
    <p><${Link} page="applications" params=${{ queue: one.queuename, subtree: "true" }}>Applications<//> · <${Link} page="history" params=${{ queue: one.queuename }}>History<//></p>
    <${ObjectActions} name="queues" row=${row} path=${path} />
    ${one.isManaged && one.parent && html`<${QueueLimits} key=${one.queuename} partition=${partition} path=${path} one=${one} />`}
    ${one.childNames?.length > 0 && html`<h2>Queues below</h2><ul>${one.childNames.map((child) => html`<li key=${child}><${QueueLink} name=${child.startsWith("root") ? child : `${one.queuename}.${child}`} /></li>`)}</ul>`}
  `}<//>
  <${Explained} path=${`${path}/explain`} heading="Why things wait here" />`;
}
