// Usage and limits of users and groups, queue by queue.

import { segment } from "../api.js";
import { Filters, columnsOf, queryOf, sortOf } from "../catalogue.js";
import { html } from "../html.js";
import { setParams } from "../route.js";
import { ApiTable } from "../table.js";

export function Users({ partition, params }) {
  const { of = "users" } = params;
  const tab = (name, heading) => html`<button aria-pressed=${String(of === name)} onClick=${() => setParams({ of: name })}>${heading}</button>`;
  return html`
    <div class="tabs">${tab("users", "Users")}${tab("groups", "Groups")}</div>
    <${Filters} name=${of} partition=${partition} params=${params} />
    <${ApiTable} key=${of} caption=${of === "users" ? "Users" : "Groups"} path=${`partition/${segment(partition)}/table/${of}`} query=${queryOf(of, params)} columns=${columnsOf(of)}
      ...${sortOf(of, params)} empty="No usage or limit matches." />
  `;
}
