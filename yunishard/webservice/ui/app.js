// The frame of the dashboard: navigation, choice of the partition, sign-in, light and dark, and the page that is shown.

import { hasToken, setToken, usePoll, useSignIn } from "./api.js";
import { useCatalogue } from "./catalogue.js";
import { html, render, useEffect, useRef, useState } from "./html.js";
import { Choice, Problem } from "./parts.js";
import { Application } from "./pages/application.js";
import { Applications } from "./pages/applications.js";
import { Configuration } from "./pages/configuration.js";
import { Events } from "./pages/events.js";
import { History } from "./pages/history.js";
import { Node, Nodes } from "./pages/nodes.js";
import { Overview } from "./pages/overview.js";
import { Preemptions } from "./pages/preemptions.js";
import { Queue, Queues } from "./pages/queues.js";
import { System } from "./pages/system.js";
import { Users } from "./pages/users.js";
import { go, setParams, to, useRoute } from "./route.js";

// By name: [heading, component, key that opens it after "g", whether it is in the navigation].
const PAGES = {
  overview: ["Overview", Overview, "o", true],
  queues: ["Queues", Queues, "q", true],
  queue: ["Queue", Queue, "", false],
  applications: ["Applications", Applications, "a", true],
  application: ["Application", Application, "", false],
  nodes: ["Nodes", Nodes, "n", true],
  node: ["Node", Node, "", false],
  users: ["Users and groups", Users, "u", true],
  preemptions: ["Preemptions", Preemptions, "p", true],
  events: ["Events", Events, "e", true],
  history: ["History", History, "h", true],
  configuration: ["Configuration", Configuration, "c", true],
  system: ["System", System, "s", true],
};
const PARENTS = { queue: "queues", application: "applications", node: "nodes" };
const THEME = "yunishard-theme";
const CHORD_MS = 1500; // for the second key after "g"

function App() {
  const route = useRoute();
  const isSignIn = useSignIn();
  const partitions = usePoll("partitions", {}, 3000);
  const catalogue = useCatalogue();
  const names = (partitions.data ?? []).map((one) => one.name);
  const partition = route.params.partition ?? names[0];
  const isKnown = PAGES[route.page] !== undefined;
  const [heading, Page] = PAGES[route.page] ?? ["There is no such page", null];
  const main = useRef(null);
  const place = `${route.page}/${route.args.join("/")}`;
  const title = [route.args[0] ?? heading, "yunishard"].join(" · ");
  useEffect(() => {
    document.title = title;
  }, [title]);
  const isFirst = useRef(true);
  useEffect(() => {
    if (!isFirst.current) main.current?.focus(); // a screen reader continues at the new page
    isFirst.current = false;
    scrollTo(0, 0);
  }, [place]);
  useKeys();
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the page</a>
    <header class="top">
      <a class="brand" href=${to("overview")}><img src="icon.svg" alt="" width="20" height="20" /> yunishard</a>
      ${names.length > 1 && html`<${Choice} label="Partition" value=${partition} options=${names.map((one) => [one, one])} onChange=${(name) => setParams({ partition: name })} />`}
      <span class="grow"></span>
      <${Freshness} poll=${partitions} />
      ${hasToken() && html`<button onClick=${() => { setToken(""); location.reload(); }}>Sign out</button>`}
      <${Theme} />
    </header>
    <nav class="side" aria-label="Pages"><ul>${Object.entries(PAGES).filter(([, one]) => one[3]).map(
      ([name, [text, , key]]) => html`<li key=${name}><a href=${to(name)} aria-current=${name === route.page || PARENTS[route.page] === name ? "page" : undefined} title=${`key: g ${key}`}>${text}</a></li>`,
    )}</ul></nav>
    <main id="main" tabindex="-1" ref=${main}>
      ${isSignIn ? html`<${SignIn} />` : html`
        <h1>${heading}${route.args[0] ? html` <span class="name">${route.args[0]}</span>` : ""}</h1>
        ${!isKnown && html`<p>Choose a page from the navigation.</p>`}
        ${Page && catalogue.data && (partition || route.page === "system") ? html`<${Page} key=${`${partition} ${place}`} partition=${partition} args=${route.args} params=${route.params} />` : html`<${Waiting} poll=${catalogue.data ? partitions : catalogue} />`}
      `}
    </main>
  `;
}

function Waiting({ poll }) {
  if (poll.error) return html`<${Problem} error=${poll.error} />`;
  if (poll.isLoading) return html`<p class="quiet" role="status">Loading …</p>`;
  return html`<p>No partition yet: they appear as soon as a resource manager registers. <a href=${to("system")}>System</a> shows what runs.</p>`;
}

function Freshness({ poll }) {
  const isLost = Boolean(poll.error) && poll.error.status !== 401;
  return html`<span class="fresh ${isLost ? "bad" : ""}" role="status">${isLost ? "not reachable" : poll.at ? "live" : ""}</span>`;
}

function SignIn() {
  const [text, setText] = useState("");
  const submit = (event) => {
    event.preventDefault();
    setToken(text.trim());
  };
  return html`<h1>Sign in</h1>
    <form class="card" onSubmit=${submit}>
      <p>${hasToken() ? "The token was refused: it is not valid, or not valid any more." : "This system wants to know who you are."} Paste a token: <code>yunishard token</code> describes how an administrator makes one. It stays in this tab, until you close it or sign out.</p>
      <label class="field wide"><span>Token</span>
        <input type="password" autocomplete="off" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)} required />
      </label>
      <button class="main">Sign in</button>
    </form>`;
}

/** The colours: those of the system, unless the user has chosen others in this browser. */
function Theme() {
  const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const [dark, setDark] = useState(isDark);
  const change = () => {
    const name = dark ? "light" : "dark";
    document.documentElement.dataset.theme = name;
    localStorage.setItem(THEME, name);
    setDark(!dark);
  };
  return html`<button onClick=${change} aria-label=${dark ? "Light colours" : "Dark colours"} title=${dark ? "Light colours" : "Dark colours"}>${dark ? "☀" : "☾"}</button>`;
}

/** Keys: `g` and a letter opens a page, `/` goes to the first search field. */
function useKeys() {
  useEffect(() => {
    let since = 0;
    const listener = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
      if (event.key === "/") {
        const field = document.querySelector("main input[type=search]");
        if (field) {
          event.preventDefault();
          field.focus();
        }
      } else if (event.key === "g") {
        since = event.timeStamp;
      } else if (since && event.timeStamp - since < CHORD_MS) {
        since = 0;
        const found = Object.entries(PAGES).find(([, one]) => one[2] === event.key);
        if (found) go(to(found[0]));
      }
    };
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
}

const theme = localStorage.getItem(THEME);
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
render(html`<${App} />`, document.getElementById("app"));
