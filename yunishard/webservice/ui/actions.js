// Changes that operators make to one object: each asks for confirmation, sends one request, and shows the outcome.
//
// The API decides who may do what, and audits it; a refusal is shown in its words.

import { address, refreshPolls, send } from "./api.js";
import { html, useRef, useState } from "./html.js";
import { Problem } from "./parts.js";

/**
 * Buttons for the changes of one object. actions: [{name, object, label, text, path, isDangerous, arguments, ask}]; `text` tells
 * what the change does, and `ask` is a component for the path of a queue. The answer has a sentence about the outcome.
 */
export function Actions({ actions }) {
  const [chosen, setChosen] = useState("");
  const [outcome, setOutcome] = useState("");
  const one = actions.find((each) => each.name === chosen);
  const close = (text) => {
    setChosen("");
    setOutcome(text);
  };
  return html`<section class="actions" aria-label="Changes">
    <div class="filters">${actions.map((each) => html`<button key=${each.name} aria-expanded=${String(each.name === chosen)} onClick=${() => { setOutcome(""); setChosen(each.name === chosen ? "" : each.name); }}>${each.label}</button>`)}</div>
    ${one && html`<${Confirm} key=${one.name} one=${one} onDone=${close} />`}
    ${outcome && html`<p class="state good" role="status">${outcome}</p>`}
  </section>`;
}

function Confirm({ one, onDone }) {
  const [values, setValues] = useState({});
  const [error, setError] = useState(null);
  const [isSent, setSent] = useState(false);
  const isSending = useRef(false); // two presses in one frame send one request
  const submit = async (event) => {
    event.preventDefault();
    if (isSending.current) return;
    isSending.current = true;
    setSent(true);
    setError(null);
    try {
      const answer = await (await send(address(one.path, values), { method: "POST" })).json();
      refreshPolls();
      onDone(answer.outcome || "Done.");
    } catch (failure) {
      setError(failure);
      setSent(false);
      isSending.current = false;
    }
  };
  const field = ({ name, label }) => {
    const onChange = (value) => setValues((old) => ({ ...old, [name]: value }));
    if (name === "queue") return html`<${one.ask} key=${name} label=${label} value=${values[name]} onChange=${onChange} />`;
    return html`<label key=${name} class="field wide"><span>${label}</span><input value=${values[name] ?? ""} onInput=${(event) => onChange(event.target.value)} maxlength="500" autocomplete="off" /></label>`;
  };
  return html`<form class="card confirm" aria-label=${one.label} onSubmit=${submit}>
    <p><strong>${one.object}</strong>: ${one.text}</p>
    ${one.arguments.map(field)}
    <${Problem} error=${error} isOnce=${true} />
    <div class="filters">
      <button class="main ${one.isDangerous ? "danger" : ""}" disabled=${isSent || one.arguments.some(({ name }) => name === "queue" && !values[name])}>${one.label}</button>
      <button type="button" onClick=${() => onDone("")}>Cancel</button>
    </div>
  </form>`;
}

/** Who stopped a queue or cordoned a node, and why. */
export function markText(mark) {
  return mark && `by ${mark.user}${mark.reason ? `: ${mark.reason}` : ""}`;
}
