// The form for other limits of one queue: first the changed lines of the configuration, then the change itself.

import { address, refreshPolls, send } from "../api.js";
import { html, useState } from "../html.js";
import { Problem } from "../parts.js";
import { Plan } from "../plan.js";
import { figure, isBytes, kindsOf } from "../units.js";

/** A button that opens the form. path: that of the queue; one: the queue as the API answers it. */
export function QueueLimits({ partition, path, one }) {
  const [isOpen, setOpen] = useState(false);
  const [outcome, setOutcome] = useState("");
  return html`<section class="actions" aria-label="Limits">
    <div class="filters"><button aria-expanded=${String(isOpen)} onClick=${() => { setOutcome(""); setOpen(!isOpen); }}>Change the limits</button></div>
    ${isOpen && html`<${Form} partition=${partition} path=${path} one=${one} onDone=${(text) => { setOpen(false); setOutcome(text); }} />`}
    ${outcome && html`<p class="state good" role="status">${outcome}</p>`}
  </section>`;
}

function Form({ partition, path, one, onDone }) {
  const [wanted, setWanted] = useState({}); // text by field, such as "max vcore"
  const [draft, setDraft] = useState(null); // what the API answered to the dry run
  const [error, setError] = useState(null);
  const [isSending, setSending] = useState(false);
  const kinds = kindsOf({ vcore: 0, memory: 0 }, one.maxResource, one.guaranteedResource, one.allocatedResource);
  const body = bodyOf(wanted);
  const change = (name, value) => {
    setDraft(null); // the shown lines are those of another change
    setWanted({ ...wanted, [name]: value });
  };
  const request = async (query, headers = {}) => {
    setSending(true);
    setError(null);
    try {
      const json = { "Content-Type": "application/json" };
      return await (await send(address(`${path}/limit`, query), { method: "POST", headers: { ...json, ...headers }, body: JSON.stringify(body) })).json();
    } catch (failure) {
      setDraft(null);
      setError(failure.status === 412 ? Object.assign(failure, { message: "Another version of the configuration was applied meanwhile: show the change again" }) : failure);
      return null;
    } finally {
      setSending(false);
    }
  };
  const submit = async (event) => {
    event.preventDefault();
    if (isSending) return;
    if (!draft) {
      setDraft(await request({ dryRun: "true" }));
      return;
    }
    const answer = await request({}, { "If-Match": `"${draft.base}"` });
    if (!answer) return;
    refreshPolls();
    onDone(`Applied as version ${answer.version}.`);
  };
  const field = (name, label, present) => html`<input aria-label=${label} value=${wanted[name] ?? ""} placeholder=${present} onInput=${(event) => change(name, event.target.value)} maxlength="64" size="12" autocomplete="off" spellcheck="false" />`;
  return html`<form class="card confirm" aria-label="Change the limits" onSubmit=${submit}>
    <p>Amounts as in the configuration: 40 or 500m cores, 64Gi of memory. An empty field leaves a limit as it is; <code>none</code> removes it.</p>
    <div class="scroll" tabindex="0" role="group" aria-label="New limits"><table>
      <caption class="hidden">New limits</caption>
      <thead><tr><th scope="col">resource</th><th scope="col">maximum</th><th scope="col">guaranteed</th></tr></thead>
      <tbody>${kinds.map((kind) => html`<tr key=${kind}><th scope="row">${kind}</th>
        <td>${field(`max ${kind}`, `maximum ${kind}`, present(kind, one.maxResource))}</td>
        <td>${field(`guaranteed ${kind}`, `guaranteed ${kind}`, present(kind, one.guaranteedResource))}</td>
      </tr>`)}</tbody>
    </table></div>
    <label class="field"><span>Running applications at most (0: no limit)</span><input value=${wanted.applications ?? ""} placeholder=${one.maxRunningApps ? String(one.maxRunningApps) : "none"} inputmode="numeric" pattern="[0-9]*" maxlength="10" onInput=${(event) => change("applications", event.target.value)} autocomplete="off" /></label>
    <${Problem} error=${error} isOnce=${true} />
    ${error?.problems?.length > 1 && html`<ul>${error.problems.map((each, index) => html`<li key=${index}>${each.path}: ${each.message}</li>`)}</ul>`}
    ${draft && html`<${ChangedLines} text=${draft.diff} /><${Plan} key=${draft.diff} level="h2" partition=${partition} changes=${[{ kind: "limit-queue", queue: one.queuename, ...body }]} />`}
    ${draft && html`<p>Applying it changes the running system at once.</p>`}
    <div class="filters">
      <button class="main" disabled=${isSending || !Object.keys(body).length}>${draft ? "Apply" : "Show the change"}</button>
      <button type="button" onClick=${() => onDone("")}>Cancel</button>
    </div>
  </form>`;
}

/** The present amount, in a form that the field takes. */
function present(kind, amounts) {
  const value = amounts?.[kind];
  if (value === undefined) return "none";
  return isBytes(kind) ? figure(kind, value).replace(/ ([KMGTP]i)?B$/, (_, unit = "") => unit) : figure(kind, value);
}

/** The body of the request: only what has a new value. */
function bodyOf(wanted) {
  const body = {};
  for (const [name, text] of Object.entries(wanted)) {
    const value = text.trim();
    if (!value) continue;
    const [group, kind] = name.split(/ (.*)/);
    if (group === "applications") body.maxApplications = Number(value);
    else body[group] = { ...body[group], [kind]: value === "none" ? null : value };
  }
  return body;
}

function ChangedLines({ text }) {
  const lines = text.split("\n").filter((line) => line && !/^(---|\+\+\+|@@)/.test(line));
  if (!lines.length) return html`<p role="status">Nothing changes: these are the limits in force.</p>`;
  return html`<div class="scroll diff" tabindex="0" role="region" aria-label="Changed lines">${lines.map((line, index) => html`<div key=${index} class=${line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : ""}>${line}</div>`)}</div>`;
}
