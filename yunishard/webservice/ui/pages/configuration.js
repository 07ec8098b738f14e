// The configuration of the partition's resource manager: edited as text, validated while typing, compared, applied.

import { RequestFailed, address, send, usePoll } from "../api.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { Problem, QueueLink } from "../parts.js";
import { Plan } from "../plan.js";
import { count } from "../units.js";

const VALIDATE_AFTER_MS = 500; // without a key
const DIFF_LINES_MAX = 3000; // changed lines of both texts that are compared; more are shown as removed and added
const CONTEXT = 3; // equal lines around a change

export function Configuration({ partition }) {
  const partitions = usePoll("partitions", {}, 0);
  const rm = partitions.data?.find((one) => one.name === partition)?.clusterId;
  return html`<${Problem} error=${partitions.error} />${rm && html`<${Editor} key=${rm} rm=${rm} partition=${partition} />`}`;
}

async function load(rm) {
  const answer = await send(address("config", { rm }), { headers: { Accept: "application/x-yaml" } });
  return { text: await answer.text(), etag: answer.headers.get("ETag") ?? "" };
}

function Editor({ rm, partition }) {
  const [current, setCurrent] = useState(null); // {text, etag}: in force when it was loaded
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const [outcome, setOutcome] = useState("");
  const [isReview, setReview] = useState(false);
  const reload = async () => {
    try {
      const found = await load(rm);
      setCurrent(found);
      setText(found.text);
      setError(null);
      setReview(false);
    } catch (failure) {
      setError(failure);
    }
  };
  useEffect(() => { reload(); }, [rm]);
  const verdict = useVerdict(text, current !== null);
  if (current === null) return html`<${Problem} error=${error} />${!error && html`<p class="quiet" role="status">Loading …</p>`}`;
  const isChanged = text !== current.text;
  const apply = async () => {
    setOutcome("");
    setError(null);
    try {
      const headers = { "Content-Type": "application/x-yaml", ...(current.etag ? { "If-Match": current.etag } : {}) };
      const answer = await (await send(address("config", { rm }), { method: "PUT", headers, body: text })).json();
      await reload();
      setOutcome(`Applied${answer.version ? ` as version ${answer.version}` : ""}.`);
    } catch (failure) {
      setError(explain(failure));
    }
  };
  return html`
    <p>Of the resource manager <strong>${rm}</strong>. A change applies to all its partitions or to none.</p>
    <label class="hidden" for="config-text">Configuration as YAML</label>
    <textarea id="config-text" class="editor" spellcheck="false" autocomplete="off" value=${text} onInput=${(event) => { setText(event.target.value); setReview(false); setOutcome(""); }} onKeyDown=${indent}></textarea>
    <p role="status">${!isChanged ? html`<span class="quiet">No changes.</span>` : verdict.isPending ? html`<span class="quiet">Checking …</span>` : verdict.reason ? html`<span class="state bad">${verdict.reason}</span>` : html`<span class="state good">valid</span>`}</p>
    <${Problem} error=${error} isOnce=${true} />
    ${error?.problems?.length > 1 && html`<ul>${error.problems.map((one, index) => html`<li key=${index}>${problemText(one)}</li>`)}</ul>`}
    ${outcome && html`<p class="state good" role="status">${outcome}</p>`}
    <div class="filters">
      <button class="main" disabled=${!isChanged || Boolean(verdict.reason) || verdict.isPending} onClick=${() => setReview(true)}>Review the change</button>
      <button disabled=${!isChanged} onClick=${() => setText(current.text)}>Undo all</button>
      <button onClick=${reload}>Load again</button>
    </div>
    ${isReview && html`<section aria-label="Review"><h2>Change</h2><${Diff} from=${current.text} to=${text} />
      <${Impact} rm=${rm} text=${text} />
      <${Plan} key=${text} partition=${partition} changes=${[{ kind: "config", config: text }]} />
      <p>Applying it changes the running system at once.</p>
      <button class="main" onClick=${apply}>Apply</button></section>`}
  `;
}

function explain(failure) {
  if (failure.status !== 412) return failure;
  return new RequestFailed(412, "Another version was applied meanwhile: copy your text, load again, and repeat your change");
}

/** Tab would leave the field, so it only indents with text selected or after blanks at the start of a line. */
function indent(event) {
  if (event.key !== "Tab" || event.shiftKey) return;
  const { selectionStart: at, value } = event.target;
  const line = value.slice(value.lastIndexOf("\n", at - 1) + 1, at);
  if (!line || line.trim()) return;
  event.preventDefault();
  event.target.setRangeText("  ", at, event.target.selectionEnd, "end");
  event.target.dispatchEvent(new Event("input", { bubbles: true }));
}

/** Whether the API accepts a text, asked after the last key. */
function useVerdict(text, isLoaded) {
  const [verdict, setVerdict] = useState({ of: "", reason: "" });
  const latest = useRef(text);
  latest.current = text;
  useEffect(() => {
    if (!isLoaded) return undefined;
    const timer = setTimeout(async () => {
      let reason;
      try {
        const answer = await (await send(address("validate-conf", { problems: "true" }), { method: "POST", body: text, headers: { "Content-Type": "application/x-yaml" } })).json();
        reason = answer.allowed ? "" : (answer.problems ?? []).map(problemText).join("; ") || answer.reason;
      } catch (failure) {
        reason = failure.message;
      }
      if (latest.current === text) setVerdict({ of: text, reason });
    }, VALIDATE_AFTER_MS);
    return () => clearTimeout(timer);
  }, [text, isLoaded]);
  return { isPending: verdict.of !== text, reason: verdict.of === text ? verdict.reason : "" };
}

// Impact --------------------------------------------------------------------------------------------------------------

/** What the change means, in words: what differs, and which work that runs now is concerned. */
function Impact({ rm, text }) {
  const [impact, setImpact] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    let isCurrent = true;
    const measure = async () => {
      try {
        const headers = { "Content-Type": "application/x-yaml" };
        const found = await (await send(address("config/impact", { rm }), { method: "POST", headers, body: text })).json();
        if (isCurrent) setImpact(found);
      } catch (failure) {
        if (isCurrent) setError(failure);
      }
    };
    measure();
    return () => { isCurrent = false; };
  }, [rm, text]);
  if (error) return html`<${Problem} error=${error} isOnce=${true} />`;
  if (!impact) return html`<p class="quiet" role="status">Comparing with what runs …</p>`;
  const more = (shown, number) => number > shown.length && html`<li>and ${count(number - shown.length)} more</li>`;
  return html`
    <h3>In words</h3>
    ${impact.differences.length ? html`<ul class="impact">${impact.differences.map((one, index) => html`<li key=${index}>${one.text}</li>`)}${more(impact.differences, impact.differenceCount)}</ul>` : html`<p>Nothing but the spelling: no setting has another value.</p>`}
    <h3>What it means for the work that runs now</h3>
    ${impact.effects.length ? html`<ul class="impact">${impact.effects.map((one, index) => html`<li key=${index} class="attention">${one.text}${one.queue && html` (<${QueueLink} name=${one.queue} />)`}</li>`)}${more(impact.effects, impact.effectCount)}</ul>` : html`<p role="status">Nothing exceeds a new limit, and no queue with applications is removed.</p>`}
    ${impact.incomplete.length > 0 && html`<ul class="impact">${impact.incomplete.map((one, index) => html`<li key=${index}>Not compared: ${one}</li>`)}</ul>`}
  `;
}

const PROBLEMS_SHOWN = 200; // characters of a place

function problemText({ line, path, message, hint }) {
  const place = [line ? `line ${line}` : "", (path ?? "").slice(0, PROBLEMS_SHOWN)].filter(Boolean).join(", ");
  return `${place ? `${place}: ` : ""}${message}${hint ? ` (${hint})` : ""}`;
}

// Diff ----------------------------------------------------------------------------------------------------------------

function Diff({ from, to }) {
  const lines = useMemo(() => shorten(diff(from.split("\n"), to.split("\n"))), [from, to]);
  const added = lines.filter(([mark]) => mark === "+").length;
  const removed = lines.filter(([mark]) => mark === "-").length;
  return html`<p class="quiet">${count(added)} ${added === 1 ? "line" : "lines"} added, ${count(removed)} removed</p>
    <div class="scroll diff" tabindex="0" role="region" aria-label="Changed lines">${lines.map(([mark, text], index) => html`<div key=${index} class=${mark === "+" ? "plus" : mark === "-" ? "minus" : ""}>${mark} ${text}</div>`)}</div>`;
}

/** The lines of both texts as [mark, line]: " " in both, "-" only in the first, "+" only in the second. */
export function diff(from, to) {
  let start = 0;
  while (start < from.length && start < to.length && from[start] === to[start]) start += 1;
  let end = 0;
  while (end < from.length - start && end < to.length - start && from[from.length - 1 - end] === to[to.length - 1 - end]) end += 1;
  const left = from.slice(start, from.length - end);
  const right = to.slice(start, to.length - end);
  const same = (lines) => lines.map((line) => [" ", line]);
  return [...same(from.slice(0, start)), ...compare(left, right), ...same(from.slice(from.length - end))];
}

/** By the longest common subsequence. */
function compare(left, right) {
  if (left.length + right.length > DIFF_LINES_MAX) return [...left.map((line) => ["-", line]), ...right.map((line) => ["+", line])];
  const width = right.length + 1;
  const length = new Uint16Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      length[i * width + j] = left[i] === right[j] ? length[(i + 1) * width + j + 1] + 1 : Math.max(length[(i + 1) * width + j], length[i * width + j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      found.push([" ", left[i]]);
      i += 1;
      j += 1;
    } else if (i < left.length && (j === right.length || length[(i + 1) * width + j] >= length[i * width + j + 1])) {
      found.push(["-", left[i]]);
      i += 1;
    } else {
      found.push(["+", right[j]]);
      j += 1;
    }
  }
  return found;
}

function shorten(lines) {
  const near = new Set();
  lines.forEach(([mark], index) => {
    if (mark !== " ") for (let at = index - CONTEXT; at <= index + CONTEXT; at += 1) near.add(at);
  });
  const found = [];
  lines.forEach((line, index) => {
    if (near.has(index)) found.push(line);
    else if (near.has(index - 1)) found.push([" ", "…"]);
  });
  return found;
}
