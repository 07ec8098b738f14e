// Why something waits: the checks in the order of the scheduler, which of them stops it, who is ahead, and what to do.

import { usePoll } from "./api.js";
import { html } from "./html.js";
import { Loaded, NodeLink, PlainTable } from "./parts.js";
import { amount, ago, count, duration } from "./units.js";

/** The explanation that a path of the API answers. */
export function Explained({ path, query, heading = "Why" }) {
  const poll = usePoll(path, query, 5000);
  if (poll.error?.status === 404) return null; // the page shows that the object is gone
  return html`<section class="explain" aria-label=${heading}><h2>${heading}</h2>
    <${Loaded} poll=${poll}>${(one) => html`<${Explanation} one=${one} />`}<//>
  </section>`;
}

export function Explanation({ one }) {
  const nodes = Object.entries(one.nodes ?? {}).sort((left, right) => right[1] - left[1]);
  return html`
    <p class="summary">${one.summary}${one.since ? html` <span class="quiet">(since ${ago(one.since)})</span>` : ""}</p>
    ${one.checks?.length > 0 && html`<ol class="checks">${one.checks.map((check, index) => html`<${Check} key=${index} check=${check} isStop=${!check.passed && (!one.stoppedBy || check.code === one.stoppedBy)} />`)}</ol>`}
    <${Remedies} remedies=${one.remedies} />
    ${one.ahead?.length > 0 && html`<h3>Ahead of it</h3><ol>${one.ahead.map((ahead, index) => html`<li key=${index}>${textOf(ahead)}</li>`)}</ol>`}
    ${nodes.length > 0 && html`<${PlainTable} caption="Nodes by reason" rows=${nodes} columns=${[["reason", ([code]) => code], ["nodes", ([, number]) => count(number), true]]} />`}
    ${one.nearest?.length > 0 && html`<${PlainTable} caption="Nearest nodes" rows=${one.nearest} columns=${[
      ["node", (miss) => html`<${NodeLink} name=${miss.node} />`],
      ["short of", (miss) => amount(miss.resource, miss.shortfall), true],
    ]} />`}
    ${one.asks?.length > 0 && html`<h3>Its asks</h3>${one.asks.map((ask, index) => html`<div class="card" key=${index}><strong>${ask.name}</strong><${Explanation} one=${ask} /></div>`)}`}
  `;
}

function Check({ check, isStop }) {
  return html`<li class=${check.passed ? "" : isStop ? "failed" : "failed other"}>
    <span class="hidden">${check.passed ? "passed: " : "stops it: "}</span>${check.text || check.code}
    ${!check.passed && check.resource && check.shortfall ? html` <span class="quiet">(short by ${amount(check.resource, check.shortfall)})</span>` : ""}
  </li>`;
}

function Remedies({ remedies }) {
  if (!remedies?.length) return null;
  return html`<h3>What would let it run</h3><ol>${remedies.map((one, index) => html`<li key=${index}>
    ${one.text || one.code}${one.seconds ? html` <span class="quiet">(at most ${duration(one.seconds)})</span>` : ""}
  </li>`)}</ol>`;
}

function textOf(one) {
  return typeof one === "string" ? one : one.text || one.summary || one.name || one.application || JSON.stringify(one);
}
