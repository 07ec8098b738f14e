// Small components that the pages share.

import { rowsOf, segment, usePoll } from "./api.js";
import { html, useEffect, useId, useState } from "./html.js";
import { to } from "./route.js";
import { ago, amount, amounts, figure, kindsOf, percent, share, time } from "./units.js";

/** A link to a page of the dashboard. */
export function Link({ page, args = [], params = {}, children, ...more }) {
  return html`<a href=${to(page, args, params)} ...${more}>${children}</a>`;
}

export const QueueLink = ({ name }) => html`<${Link} page="queue" args=${[name]}>${name}<//>`;
export const AppLink = ({ name }) => html`<${Link} page="application" args=${[name]}>${name}<//>`;
export const NodeLink = ({ name }) => html`<${Link} page="node" args=${[name]}>${name}<//>`;

const TICK_MS = 5000; // between two updates of relative times
const tickers = new Set(); // of all relative times on the page: one timer for hundreds of rows
setInterval(() => {
  for (const ticker of tickers) ticker();
}, TICK_MS);

/** A relative time, with the absolute one as its title. */
export function Ago({ ns }) {
  const [, redraw] = useState(0);
  useEffect(() => {
    const ticker = () => redraw((one) => one + 1);
    tickers.add(ticker);
    return () => tickers.delete(ticker);
  }, []);
  return ns ? html`<time datetime=${new Date(ns / 1e6).toISOString()} title=${time(ns)}>${ago(ns)}</time>` : "–";
}

const GOOD = new Set(["active", "running", "completed", "ready", "schedulable", "healthy", "connected"]);
const BAD = new Set(["failed", "rejected", "failing", "lost", "silent", "away", "unhealthy", "stopped"]);

/** A state as a word with a mark, so that its meaning does not depend on colours. */
export function State({ name }) {
  const key = String(name ?? "").toLowerCase();
  const kind = GOOD.has(key) ? "good" : BAD.has(key) ? "bad" : "other";
  return html`<span class="state ${kind}">${key || "–"}</span>`;
}

/**
 * A bar of what is used of a total, with what waits behind it and a mark at the guaranteed amount. Without a total of
 * its own the bar has the length of `scale`, and without that one of the largest amount.
 */
export function Bar({ kind, used = 0, total, scale: given, guaranteed = 0, pending = 0, label = "", isShort = false }) {
  const scale = total ?? given ?? Math.max(used + pending, guaranteed, 1);
  const filled = share(used, scale) * 100;
  const waits = Math.min(100 - filled, share(pending, scale) * 100);
  const level = total === undefined ? "" : used > total ? " over" : used >= total ? " full" : "";
  const limit = total === undefined ? "" : ` of ${amount(kind, total)} (${percent(used, total)})`;
  const about = [
    `${amount(kind, used)}${limit}`,
    guaranteed ? `guaranteed ${amount(kind, guaranteed)}` : "",
    pending ? `pending ${amount(kind, pending)}` : "",
  ].filter(Boolean).join(", ");
  return html`<span class="bar${level}" role="img" aria-label=${label ? `${label}: ${about}` : about} title=${about}>
    <span class="track">
      <span class="used" style=${{ width: `${filled}%` }}></span>
      ${waits > 0 && html`<span class="pending" style=${{ width: `${waits}%` }}></span>`}
      ${guaranteed > 0 && html`<span class="mark" style=${{ left: `${Math.min(99, share(guaranteed, scale) * 100)}%` }}></span>`}
    </span>
    ${!isShort && html`<span class="figures" aria-hidden="true">${figure(kind, used)}${total === undefined ? "" : ` / ${figure(kind, total)}`}</span>`}
  </span>`;
}

export const BarKey = () => html`<p class="key">
  <span class="sample"><span class="used"></span></span> used
  <span class="sample"><span class="pending"></span></span> pending
  <span class="sample"><span class="mark"></span></span> guaranteed
</p>`;

/** Amounts as text, in full on a page of one object. */
export const Amounts = ({ value }) => html`<span>${amounts(value)}</span>`;

/** A table of resource types with the given amounts: rows are [heading, resource]; `bar` makes a bar of a type. */
export function AmountTable({ caption, rows, bar }) {
  const kinds = kindsOf(...rows.map(([, value]) => value));
  if (!kinds.length) return html`<p class="quiet">No amounts.</p>`;
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${caption}><table>
    <caption>${caption}</caption>
    <thead><tr><th scope="col">resource</th>${bar && html`<th scope="col">use</th>`}${rows.map(([name]) => html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
    <tbody>${kinds.map((kind) => html`<tr key=${kind}><th scope="row">${kind}</th>${bar && html`<td>${bar(kind)}</td>`}
      ${rows.map(([, value]) => html`<td class="number">${value?.[kind] === undefined ? "–" : figure(kind, value[kind])}</td>`)}
    </tr>`)}</tbody>
  </table></div>`;
}

/**
 * A plain table of few rows: columns are [heading, cell(row), isNumber]. Below a heading that says the same, its caption
 * is only for screen readers. `label` is its name among others with the same caption.
 */
export function PlainTable({ caption, columns, rows, keyOf, empty = "None.", isBelowHeading = false, label = caption }) {
  if (!rows.length) return html`<p class="quiet">${empty}</p>`;
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${label}><table>
    <caption class=${isBelowHeading ? "hidden" : ""}>${caption}</caption>
    <thead><tr>${columns.map(([name, , isNumber]) => html`<th scope="col" class=${isNumber ? "number" : ""}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row, index) => html`<tr key=${keyOf ? keyOf(row) : index}>
      ${columns.map(([, cell, isNumber]) => html`<td class=${isNumber ? "number" : ""}>${cell(row)}</td>`)}
    </tr>`)}</tbody>
  </table></div>`;
}

const POLL_HINTS = {
  0: "The page asks again by itself.",
  401: "Sign in with a token.",
  403: "Your user lacks the permission for this page.",
  503: "The page asks again by itself.",
};
const REQUEST_HINTS = { ...POLL_HINTS, 0: "Try again.", 503: "Try again in a moment." };

/**
 * Why there is nothing to show, or why it is old; with the next step where there is one. `isOnce` is for a request that
 * the page does not repeat, and `hints` are next steps by status.
 */
export function Problem({ error, isOnce = false, hints = {} }) {
  if (!error) return null;
  const hint = hints[error.status] ?? (isOnce ? REQUEST_HINTS : POLL_HINTS)[error.status] ?? "";
  return html`<p class="problem" role="status">${error.message}. ${hint}</p>`;
}

/** What a poll answered: `children` is called with the data as soon as there is some. */
export function Loaded({ poll, children }) {
  return html`
    <${Problem} error=${poll.error} />
    ${poll.data !== undefined ? children(poll.data) : poll.isLoading && html`<p class="quiet" role="status">Loading …</p>`}
  `;
}

/** A field with a label that reports its value shortly after the last key, or without a delay with each key; `options` are offered while typing. */
export function Search({ label, value = "", onChange, delayMs = 250, options }) {
  const id = useId();
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value || !delayMs) return undefined;
    const timer = setTimeout(() => onChange(text.trim()), delayMs);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<label class="field"><span>${label}</span>
    <input type="search" value=${text} onInput=${(event) => { setText(event.target.value); if (!delayMs) onChange(event.target.value.trim()); }} autocomplete="off" spellcheck="false" list=${options ? id : undefined} />
    ${options && html`<datalist id=${id}>${options.map((one) => html`<option key=${one} value=${one} />`)}</datalist>`}
  </label>`;
}

const OPTIONS_MAX = 2000; // queues that are offered

/** A field for the path of a queue, with all paths to choose from. */
export function QueueSearch({ partition, label = "Queue", value, onChange, delayMs = 600 }) {
  const poll = usePoll(`partition/${segment(partition)}/table/queues`, { limit: OPTIONS_MAX }, 60_000);
  return html`<${Search} label=${label} value=${value} onChange=${onChange} delayMs=${delayMs} options=${rowsOf(poll.data).map((row) => row.queue)} />`;
}

export function Choice({ label, value, options, onChange }) {
  return html`<label class="field"><span>${label}</span>
    <select onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([key, text]) => html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`)}
    </select>
  </label>`;
}

/** A heading and its figures, as short pairs. */
export function Facts({ rows }) {
  const shown = rows.filter(([, value]) => value !== undefined && value !== "" && value !== null);
  if (!shown.length) return null;
  return html`<dl class="facts">${shown.map(
    ([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`,
  )}</dl>`;
}
