// The map of all nodes, their list, and one node.

import { segment, usePoll } from "../api.js";
import { markText } from "../actions.js";
import { Filters, ObjectActions, amountsOf, chooseKinds, columnsOf, factsOf, queryOf, sortOf, useRow } from "../catalogue.js";
import { Explained } from "../explanation.js";
import { html, useEffect, useRef } from "../html.js";
import { Ago, AmountTable, AppLink, Bar, Choice, Facts, Link, Loaded, PlainTable } from "../parts.js";
import { go, setParams, to } from "../route.js";
import { ApiTable, useAll } from "../table.js";
import { count, kindsOf } from "../units.js";

const LEVELS = [0, 25, 50, 75, 95]; // percentages from which a cell has the next colour
const COLOURS = { light: ["#e8eef5", "#b7d3ee", "#7db0e2", "#3d83c9", "#0b4f94"], dark: ["#232c36", "#27456a", "#2f66a3", "#4d93dd", "#a8d1fb"] };
const CLOSED = { light: "#b3261e", dark: "#ff8a80" };
const CELLS_MAX = 10_000; // nodes on the map

export function Nodes({ partition, params }) {
  const { kind = "" } = params;
  const path = `partition/${segment(partition)}/table/nodes`;
  const query = queryOf("nodes", params);
  const all = useAll(path, query, 5000);
  const kinds = all.data?.resources ?? [];
  return html`
    <${Filters} name="nodes" partition=${partition} params=${params}>
      <${Choice} label="Colour by" value=${kind} options=${[["", "most used resource"], ...kinds.map((one) => [one, one])]} onChange=${(value) => setParams({ kind: value })} />
    <//>
    <${Loaded} poll=${all}>${(data) => html`<${Map} rows=${data.rows} kind=${kind} />`}<//>
    <${ApiTable} caption="Nodes" path=${path} query=${query} columns=${columnsOf("nodes", chooseKinds("", kinds))} ...${sortOf("nodes", params)} empty="No node matches." />
  `;
}

function usage(row, kind) {
  if (!kind) return row.utilization;
  const total = row.capacity[kind] ?? 0;
  return total ? (((row.used[kind] ?? 0) + (row.foreign[kind] ?? 0)) / total) * 100 : 0;
}

function levelOf(value) {
  return LEVELS.filter((one) => value >= one).length - 1;
}

const theme = () => document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

/** A cell for each node: a canvas, as thousands of elements would be slow. The list below has the same for a keyboard. */
function Map({ rows, kind }) {
  const canvas = useRef(null);
  const shown = rows.slice(0, CELLS_MAX);
  const grid = useRef({ columns: 1, cell: 1 });
  useEffect(() => {
    const draw = () => {
      const element = canvas.current;
      const width = element.clientWidth;
      const cell = shown.length > 2000 ? 12 : shown.length > 300 ? 16 : 24;
      const columns = Math.max(1, Math.floor(width / cell));
      const scale = devicePixelRatio || 1;
      grid.current = { columns, cell };
      element.width = width * scale;
      element.height = Math.ceil(shown.length / columns) * cell * scale;
      element.style.height = `${element.height / scale}px`;
      const context = element.getContext("2d");
      context.scale(scale, scale);
      const colours = COLOURS[theme()];
      shown.forEach((row, index) => {
        const [x, y] = [(index % columns) * cell, Math.floor(index / columns) * cell];
        context.fillStyle = colours[levelOf(usage(row, kind))];
        context.fillRect(x + 1, y + 1, cell - 2, cell - 2);
        if (row.state.toLowerCase() !== "schedulable") {
          context.strokeStyle = CLOSED[theme()];
          context.lineWidth = 2;
          context.strokeRect(x + 2, y + 2, cell - 4, cell - 4);
        }
      });
    };
    draw();
    addEventListener("resize", draw);
    return () => removeEventListener("resize", draw);
  });
  const find = (event) => {
    const { columns, cell } = grid.current;
    const column = Math.floor(event.offsetX / cell);
    return column < columns ? shown[Math.floor(event.offsetY / cell) * columns + column] : undefined;
  };
  const open = (event) => {
    const row = find(event);
    if (row) go(to("node", [row.node]));
  };
  const name = (event) => {
    const row = find(event);
    canvas.current.title = row ? `${row.node}: ${Math.round(usage(row, kind))} %` : "";
  };
  const numbers = LEVELS.map((_, level) => shown.filter((row) => levelOf(usage(row, kind)) === level).length);
  const label = LEVELS.map((from, level) => `${count(numbers[level])} from ${from} %`).join(", ");
  return html`<figure>
    <canvas class="map" ref=${canvas} role="img" aria-label=${`Nodes by usage: ${label}`} onClick=${open} onMouseMove=${name}></canvas>
    <figcaption class="legend">${LEVELS.map((from, level) => html`<span key=${from}><svg class="swatch" width="14" height="14" aria-hidden="true"><rect width="14" height="14" fill=${COLOURS[theme()][level]} /></svg>${from === 95 ? "95 % and more" : `${from}–${LEVELS[level + 1]} %`}: ${count(numbers[level])}</span>`)}</figcaption>
  </figure>`;
}

// One node ------------------------------------------------------------------------------------------------------------

export function Node({ partition, args: [name] }) {
  const path = `partition/${segment(partition)}/node/${segment(name)}`;
  const poll = usePoll(path);
  const row = useRow("nodes", partition, name);
  return html`<${Loaded} poll=${poll}>${(one) => html`
    <${Facts} rows=${[
      ...factsOf("nodes", row),
      ["cordoned", markText(one.cordoned)],
      ["reserved by", one.reservations?.join(", ")],
      ...Object.entries(one.attributes ?? {}).filter(([key]) => !/^si(\.io)?\//.test(key)),
    ]} />
    ${row && html`<${AmountTable} caption="Amounts" rows=${amountsOf("nodes", row)} />`}
    <p><${Link} page="applications" params=${{ node: name }}>Applications on it<//></p>
    <${ObjectActions} name="nodes" row=${row} path=${path} />
    <h2>Allocations</h2>
    <${PlainTable} caption=${`${count(one.allocations?.length ?? 0)} in all`} rows=${one.allocations ?? []} keyOf=${(row) => row.allocationKey} columns=${[
      ["allocation", (row) => html`<span class="mono">${row.allocationKey}</span>`],
      ["application", (row) => html`<${AppLink} name=${row.applicationId} />`],
      ...kindsOf(one.capacity).slice(0, 3).map((kind) => [kind, (row) => html`<${Bar} kind=${kind} label=${kind} used=${row.resource?.[kind] ?? 0} total=${one.capacity[kind]} isShort=${true} />`]),
      ["since", (row) => html`<${Ago} ns=${row.allocationTime} />`],
    ]} />
    ${one.foreignAllocations?.length > 0 && html`<p class="quiet">${count(one.foreignAllocations.length)} allocations of other schedulers.</p>`}
  `}<//>
  <${Explained} path=${`${path}/explain`} heading="What it takes" />`;
}
