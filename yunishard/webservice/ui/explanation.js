// Why something waits: the checks in the order of the scheduler, which of them stops it, who is ahead, and what to do.

import { usePoll } from "./api.js";
import { html } from "./html.js";
import { AppLink, Link, Loaded, NodeLink, PlainTable, QueueLink } from "./parts.js";
import { count, duration, words } from "./units.js";

/** The explanation that a path of the API answers. */
export function Explained({ path, query, heading = "Why" }) {
  const poll = usePoll(path, query, 5000);
  if (poll.error?.status === 404) return null; // the page shows that the object is gone
  return html`<section class="explain" aria-label=${heading}><h2>${heading}</h2>
    <${Loaded} poll=${poll}>${(one) => html`<${Explanation} one=${one} />`}<//>
  </section>`;
}

export function Explanation({ one, isBelow = false, isRepeated = false }) {
  const reasons = Object.entries(one.reasons ?? {}).sort((left, right) => right[1] - left[1]);
  const nodes = Object.entries(one.nodes ?? {}).sort((left, right) => right[1] - left[1]);
  return html`
    ${!isBelow && html`<p class="summary">${one.summary}${one.since ? html` <span class="quiet">(waiting for ${duration(Date.now() / 1000 - one.since / 1e9)})</span>` : ""}</p>`}
    ${one.checks?.length > 0 && html`<ol class="checks">${one.checks.map((check, index) => html`<${Check} key=${index} check=${check} isStop=${!check.passed && (!one.stoppedBy || check.code === one.stoppedBy)} />`)}</ol>`}
    <${Remedies} remedies=${isRepeated ? [] : one.remedies} />
    ${one.ahead?.length > 0 && html`<h3>Ahead of it</h3><ol>${one.ahead.map((ahead, index) => html`<li key=${index}>${textOf(ahead)}</li>`)}</ol>`}
    ${nodes.some(([code]) => code !== "node-fits") && html`<${PlainTable} caption="Nodes by reason" label=${`Nodes by reason, ${one.name}`} rows=${nodes} columns=${[["reason", ([code]) => words(code)], ["nodes", ([, number]) => count(number), true]]} />`}
    ${one.nearest?.length > 0 && html`<${PlainTable} caption="Nearest nodes" label=${`Nearest nodes, ${one.name}`} rows=${one.nearest} columns=${[
      ["node", (miss) => html`<${NodeLink} name=${miss.node} />`],
      ["why not", (miss) => miss.text || words(miss.code)],
    ]} />`}
    ${one.reservations?.length > 0 && html`<${PlainTable} caption="Reserved nodes" label=${`Reserved nodes, ${one.name}`} rows=${one.reservations} columns=${[
      ["node", (reservation) => html`<${NodeLink} name=${reservation.node} />`],
      ["reservation", (reservation) => linked(reservation.text, [{ application: reservation.application }])],
    ]} />`}
    ${reasons.length > 0 && html`<${PlainTable} caption="Waiting asks by reason" label=${`Waiting asks by reason, ${one.name}`} rows=${reasons} columns=${[["reason", ([code]) => words(code)], ["asks", ([, number]) => count(number), true]]} />`}
    ${one.asks?.length > 0 && html`<h3>${one.kind === "application" ? "Its asks" : "Asks that wait longest"}</h3>${one.asks.map((ask) => html`<details class="card" key=${ask.name} open=${one.asks.length === 1}><summary><strong>${ask.name}</strong>${ask.count > 1 ? ` and ${count(ask.count - 1)} more like it` : ""}: ${ask.summary}</summary><${Explanation} one=${ask} isBelow=${true} isRepeated=${one.kind === "application" && one.asks.length === 1} /></details>`)}`}
  `;
}

function Check({ check, isStop }) {
  const isNote = !check.passed && !isStop && check.code.startsWith("preemption-"); // it would help, but nothing demands it
  return html`<li class=${check.passed || isNote ? "" : isStop ? "failed" : "failed other"}>
    <span class="hidden">${check.passed ? "passed: " : isNote ? "note: " : "stops it: "}</span>${check.text || check.code}
  </li>`;
}

function Remedies({ remedies }) {
  if (!remedies?.length) return null;
  return html`<h3>What would let it run</h3><ol>${remedies.map((one, index) => html`<li key=${index}>
    ${linked(one.text || one.code, [one, ...(one.changes ?? [])])}${one.seconds ? html` <span class="quiet">(at most ${duration(one.seconds)})</span>` : ""}
  </li>`)}</ol>`;
}

/** A text in which the names of queues, nodes, applications and users are links; things: objects that have them. */
function linked(text, things) {
  const links = new Map();
  for (const one of things) {
    if (one.user) links.set(one.user, () => html`<${Link} page="users" params=${{ text: one.user }}>${one.user}<//>`);
    if (one.group) links.set(one.group, () => html`<${Link} page="users" params=${{ of: "groups", text: one.group }}>${one.group}<//>`);
    if (one.node) links.set(one.node, () => html`<${NodeLink} name=${one.node} />`);
    if (one.application) links.set(one.application, () => html`<${AppLink} name=${one.application} />`);
    if (one.queue) links.set(one.queue, () => html`<${QueueLink} name=${one.queue} />`);
  }
  if (!links.size) return text;
  const names = [...links.keys()].sort((left, right) => right.length - left.length).map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  // a name that is a part of a longer one, such as root.a in root.a.b, is not meant
  return text.split(new RegExp(`(?<![\\w.:@/-])(${names.join("|")})(?![\\w:@/-]|\\.\\w)`)).map((part) => links.get(part)?.() ?? part);
}

function textOf(one) {
  return typeof one === "string" ? one : one.text || one.summary || one.name || one.application || JSON.stringify(one);
}
