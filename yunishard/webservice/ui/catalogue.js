// Tables as the catalogue of the API declares them: columns, bars, filters, and the facts of one object.

import { Actions } from "./actions.js";
import { rowsOf, segment, usePoll } from "./api.js";
import { html } from "./html.js";
import { Ago, AppLink, Bar, Choice, Link, NodeLink, QueueLink, QueueSearch, Search, State } from "./parts.js";
import { setParams } from "./route.js";
import { amounts, bytes, count, kindsOf, words } from "./units.js";

const RELOAD_MS = 60_000; // a new release of the API may have other columns
const BARS_MAX = 3; // resource types that are shown at once, unless the user chooses one

// By name; the frame shows pages once they are known.
let tables = {};
let events = {};

/** Request the catalogue; {data, error, isLoading}. */
export function useCatalogue() {
  const poll = usePoll("catalogue", {}, RELOAD_MS);
  if (poll.data) ({ tables, events } = poll.data);
  return poll;
}

const NONE = html`<span class="quiet">–</span>`;
const number = (show) => (value) => (value === null || value === undefined ? "–" : show(value));
const CELLS = {
  text: (value) => value || "–",
  code: (value) => (value ? words(value) : "–"),
  state: (value) => html`<${State} name=${value} />`,
  number: number(count),
  percent: number((value) => `${value} %`),
  share: number((value) => `${value} %`),
  time: (value) => html`<${Ago} ns=${value} />`,
  flag: number((value) => (value ? "yes" : "no")),
  texts: (value) => value?.join(", ") || "–",
  pairs: (value) => Object.entries(value ?? {}).map(([name, text]) => `${name}=${text}`).join(" ") || "–",
  bytes: number(bytes),
  amounts: number(amounts),
  limits: (value) => (value ? amounts(value) : html`<span class="quiet">no limit</span>`),
};
const LINKS = {
  queue: (name) => html`<${QueueLink} name=${name} />`,
  application: (name) => html`<${AppLink} name=${name} />`,
  node: (name) => html`<${NodeLink} name=${name} />`,
  user: (name) => html`<${Link} page="applications" params=${{ user: name }}>${name}<//>`,
};
const NUMBERS = new Set(["number", "percent", "share", "bytes"]);

const hasAmounts = (column) => column.kind === "amounts" || column.kind === "limits";

/** What a cell shows of a row. */
function cellOf(table, column) {
  const show = LINKS[column.link] ? (value) => (value ? LINKS[column.link](value) : "–") : (CELLS[column.kind] ?? CELLS.text);
  const flag = table.columns.find((one) => one.name === column.also);
  return (row) => html`${show(row[column.name])}${column.of && row[column.of] ? ` / ${count(row[column.of])}` : ""}${flag && row[flag.name] ? ` ${flag.heading}` : ""}`;
}

/** Columns of a table: {name, heading, title, cell(row), isNumber, sort}; with bars of these resource types, if it has bars. */
export function columnsOf(name, kinds = [], rows = []) {
  const table = tables[name];
  const columns = table.columns.filter((one) => one.views.includes("board")).map((one) => ({
    name: one.name, heading: one.heading, title: one.meaning, cell: cellOf(table, one), isNumber: NUMBERS.has(one.kind), sort: one.isSortable ? one.name : undefined,
  }));
  if (table.bars) columns.splice(2, 0, ...barsOf(table, kinds, rows));
  return columns;
}

/** The same for `PlainTable`, whose columns are [heading, cell, isNumber]. */
export const plainColumnsOf = (name) => columnsOf(name).map((one) => [one.heading, one.cell, one.isNumber]);

/** The resource types to show: the one that the user chose, or the main ones. */
export function chooseKinds(kind, resources) {
  return kind ? [kind] : kindsOf(Object.fromEntries(resources.map((one) => [one, 0]))).slice(0, BARS_MAX);
}

function barsOf({ key, bars, isTree }, kinds, rows) {
  const totals = new Map(rows.map((row) => [row[key], row[bars.total]]));
  return kinds.map((kind) => {
    const amount = (row, name) => row[name]?.[kind] ?? 0;
    const isUnconcerned = (row) => row[bars.used[0]] === null || !([...bars.used, bars.guaranteed, bars.pending].some((name) => amount(row, name)) || row[bars.total]?.[kind] !== undefined);
    return {
      name: kind, heading: kind, sort: `${bars.sort}.${kind}`,
      cell: (row) => (isUnconcerned(row) ? NONE : html`<${Bar} kind=${kind} label=${`${row[key]} ${kind}`} used=${bars.used.reduce((sum, name) => sum + amount(row, name), 0)} total=${row[bars.total]?.[kind]} scale=${isTree ? scaleOf(totals, row[key], kind) : undefined} guaranteed=${amount(row, bars.guaranteed)} pending=${amount(row, bars.pending)} />`),
    };
  });
}

/** The total of the next queue above that has one. */
function scaleOf(totals, name, kind) {
  while (name.includes(".")) {
    name = name.slice(0, name.lastIndexOf("."));
    const found = totals.get(name)?.[kind];
    if (found !== undefined) return found;
  }
  return undefined;
}

// Filters -------------------------------------------------------------------------------------------------------------

/** The filters of a table as query parameters, from those of the page. */
export function queryOf(name, params) {
  const query = Object.fromEntries(tables[name].filters.map((one) => [one.name, params[one.name] ?? ""]));
  return { ...query, ...("subtree" in query ? { subtree: query.queue && (params.subtree ?? "") } : {}) };
}

/** The fields of the filters of a table; they change parameters of the page. */
export function Filters({ name, partition, params, children }) {
  const field = ({ name, label, choices, unset }) => {
    const given = { label, value: params[name] ?? "", onChange: (value) => setParams({ [name]: value }) };
    if (choices.length) return html`<${Choice} key=${name} options=${[["", unset], ...choices.filter((one) => one !== "false").map((one) => [one, one === "true" ? "yes" : one])]} ...${given} />`;
    return name === "queue" ? html`<${QueueSearch} key=${name} partition=${partition} ...${given} onChange=${(value) => setParams({ queue: value, subtree: value && "true" })} />` : html`<${Search} key=${name} ...${given} />`;
  };
  return html`<div class="filters">${tables[name].filters.filter((one) => one.label).map(field)}${children}</div>`;
}

/** The order of a table: that of the page, or the usual one; with what a heading calls. */
export function sortOf(name, params) {
  const [usual] = tables[name].sorts;
  return { sort: params.sort ?? usual, onSort: (value) => setParams({ sort: value || usual }) };
}

// One object ----------------------------------------------------------------------------------------------------------

/** The row of one object; undefined until it is known. */
export function useRow(name, partition, key) {
  const poll = usePoll(`partition/${segment(partition)}/table/${name}`, { [tables[name].key]: key });
  return rowsOf(poll.data).find((row) => row[tables[name].key] === key);
}

const detailsOf = (name, isAmount) => tables[name].columns.filter((one) => one.views.includes("detail") && hasAmounts(one) === isAmount && one.name !== tables[name].key);

/** Buttons for the changes of an object that its state permits, and that `path` takes. */
export function ObjectActions({ name, row, path, partition }) {
  const actions = tables[name].actions.filter((one) => row && (!one.states.length || one.states.includes(row.state)));
  return html`<${Actions} actions=${actions.map((one) => ({ ...one, object: row[tables[name].key], path: `${path}/${one.name}`, ask: (given) => html`<${QueueSearch} partition=${partition} delayMs=${0} ...${given} />` }))} />`;
}

/** What a row has besides amounts: [heading, value]. */
export function factsOf(name, row) {
  const table = tables[name];
  const isSaid = (one) => row[one.name] !== null && row[one.name] !== "" && !(one.kind === "time" && !row[one.name]) && !(one.kind === "texts" && !row[one.name].length);
  return row ? detailsOf(name, false).filter(isSaid).map((one) => [one.words, cellOf(table, one)(row)]) : [];
}

/** The amounts of a row: [heading, amounts]. */
export function amountsOf(name, row) {
  return row ? detailsOf(name, true).filter((one) => Object.keys(row[one.name] ?? {}).length).map((one) => [one.words, row[one.name]]) : [];
}

// Events --------------------------------------------------------------------------------------------------------------

/** The types of the objects of events: [number, word]. */
export const eventTypes = () => Object.entries(events.types);

/** The change in a few words, without the names of the objects, in the words of `yunishard event list`. */
export function describeEvent({ type, eventChangeType, eventChangeDetail: detail = 0 }) {
  if (events.details[detail]) return events.details[detail];
  const part = events.parts[detail] ?? (detail ? `detail ${detail}` : "");
  return [part, events.changes[eventChangeType]].filter(Boolean).join(" ") || (events.types[type] === "ask" ? "waits" : "–");
}
