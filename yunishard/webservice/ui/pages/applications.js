// All applications: filtered and sorted by the API, windowed.

import { segment } from "../api.js";
import { Filters, columnsOf, queryOf, sortOf } from "../catalogue.js";
import { html } from "../html.js";
import { ApiTable } from "../table.js";

export function Applications({ partition, params }) {
  return html`
    <${Filters} name="applications" partition=${partition} params=${params} />
    <${ApiTable} caption="Applications" path=${`partition/${segment(partition)}/table/applications`} query=${queryOf("applications", params)} columns=${columnsOf("applications")}
      ...${sortOf("applications", params)} empty="No application matches." />
  `;
}
