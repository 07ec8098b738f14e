// A table of any length: only the rows that can be seen exist in the page, and only their pages are requested.
//
// The API filters, sorts and cuts (`/table/...`), so that scrolling through 20,000 applications requests a few hundred.

import { address, read, rowsOf, usePoll } from "./api.js";
import { html, useCallback, useEffect, useRef, useState } from "./html.js";
import { Problem } from "./parts.js";
import { count } from "./units.js";

export const ROW_PX = 33; // as in style.css
const PAGE_ROWS = 200; // rows of a request
export const SPARE_ROWS = 20; // rows above and below the visible ones
const STEP_ROWS = 10; // rows by which the window moves, so that not each pixel draws all of them again
const REFRESH_MS = 3000;

/** The rows that a scrolled element shows: [first, last], with spare ones, in steps. */
export function windowOf({ scrollTop, clientHeight }) {
  const top = Math.floor(scrollTop / ROW_PX / STEP_ROWS) * STEP_ROWS;
  const shown = Math.ceil(clientHeight / ROW_PX) + STEP_ROWS;
  return [Math.max(0, top - SPARE_ROWS), top + shown + SPARE_ROWS];
}

/** The same of the element that is shown, up to a total; with a reference for it, and a function to measure again. */
function useWindow(total) {
  const box = useRef(null);
  const [seen, setSeen] = useState([0, 2 * SPARE_ROWS]);
  const measure = useCallback(() => {
    const element = box.current;
    if (!element) return;
    const seen = windowOf(element);
    setSeen((old) => (old[0] === seen[0] && old[1] === seen[1] ? old : seen));
  }, []);
  useEffect(() => {
    measure();
    addEventListener("resize", measure);
    return () => removeEventListener("resize", measure);
  }, [total]);
  return [box, [Math.min(seen[0], Math.max(0, total - 1)), Math.min(seen[1], total)], measure];
}

/** The rows of a table of the API around the visible ones: {rowAt, total, resources, error, isLoading}. */
function useRows(path, query, [first, last]) {
  const page = Math.floor(first / PAGE_ROWS);
  const lastPage = Math.floor(Math.max(first, last - 1) / PAGE_ROWS);
  const limit = PAGE_ROWS * (lastPage - page + 1);
  const poll = usePoll(path, { ...query, limit, offset: page * PAGE_ROWS }, REFRESH_MS);
  const kept = useRef({ of: "", rows: new Map(), total: 0, resources: [] });
  const of = address(path, query);
  if (kept.current.of !== of) kept.current = { of, rows: new Map(), total: kept.current.total, resources: kept.current.resources };
  const table = poll.data;
  if (table && kept.current.table !== table) {
    const rows = rowsOf(table);
    const offset = page * PAGE_ROWS;
    kept.current.table = table;
    kept.current.total = table.total;
    kept.current.resources = table.resources;
    if (kept.current.rows.size > 20 * PAGE_ROWS) kept.current.rows.clear();
    rows.forEach((row, index) => kept.current.rows.set(offset + index, row));
  }
  return { ...kept.current, error: poll.error, isLoading: poll.isLoading };
}

/**
 * A table of the API.
 *
 * columns: [{name, heading, cell(row, resources), isNumber, sort}]; `sort` is the column to sort by, if it has one.
 */
export function ApiTable({ caption, path, query, columns, sort, onSort, keyOf, empty = "None match." }) {
  const [total, setTotal] = useState(0);
  const [box, visible, measure] = useWindow(total);
  const rows = useRows(path, { ...query, sort }, visible);
  useEffect(() => setTotal(rows.total), [rows.total]);
  const filters = JSON.stringify(query) + sort;
  useEffect(() => {
    if (box.current) box.current.scrollTop = 0;
  }, [filters]);
  const numbers = [];
  for (let index = visible[0]; index < Math.min(visible[1], rows.total); index += 1) numbers.push(index);
  return html`
    <${Problem} error=${rows.error} />
    <p class="quiet" role="status">${rows.isLoading && !rows.total ? "Loading …" : `${count(rows.total)} ${rows.total === 1 ? "row" : "rows"}`}</p>
    <div class="scroll tall" tabindex="0" role="region" aria-label=${caption} ref=${box} onScroll=${measure}>
      <table aria-rowcount=${rows.total + 1} class="windowed">
        <caption class="hidden">${caption}</caption>
        <thead><tr aria-rowindex="1">${columns.map((one) => html`<${Heading} key=${one.name} column=${one} sort=${sort} onSort=${onSort} />`)}</tr></thead>
        <tbody>
          ${visible[0] > 0 && html`<tr key="above" class="spacer" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${visible[0] * ROW_PX}px` }}></td></tr>`}
          ${numbers.map((index) => html`<${Row} key=${index} index=${index} row=${rows.rows.get(index)} columns=${columns} resources=${rows.resources} />`)}
          ${visible[1] < rows.total && html`<tr key="below" class="spacer" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${(rows.total - visible[1]) * ROW_PX}px` }}></td></tr>`}
        </tbody>
      </table>
      ${!rows.total && !rows.isLoading && !rows.error && html`<p class="quiet">${empty}</p>`}
    </div>
    <p class="key"><a href=${address(path, { ...query, sort, limit: 10000 })} download>the first 10,000 rows as JSON</a></p>
  `;
}

function Heading({ column, sort = "", onSort }) {
  const isUp = sort === column.sort;
  const isDown = sort === `-${column.sort}`;
  const direction = column.sort && (isUp ? "ascending" : isDown ? "descending" : undefined);
  const change = () => onSort(isDown ? column.sort : isUp ? "" : `-${column.sort}`);
  return html`<th scope="col" class=${column.isNumber ? "number" : ""} title=${column.title} aria-sort=${direction}>
    ${column.sort && onSort ? html`<button class="heading" onClick=${change}>${column.heading}<span aria-hidden="true">${isUp ? " ▲" : isDown ? " ▼" : ""}</span></button>` : column.heading}
  </th>`;
}

function Row({ index, row, columns, resources }) {
  return html`<tr aria-rowindex=${index + 2}>${columns.map((one) => html`<td key=${one.name} class=${one.isNumber ? "number" : ""}>
    ${row ? one.cell(row, resources) : html`<span class="quiet">…</span>`}
  </td>`)}</tr>`;
}

/** All rows of a table of the API, up to its limit, as objects. */
export function useAll(path, query, periodMs = REFRESH_MS) {
  const poll = usePoll(path, { ...query, limit: 10000 }, periodMs);
  return { ...poll, data: poll.data && { rows: rowsOf(poll.data), total: poll.data.total, resources: poll.data.resources } };
}

export { read };
