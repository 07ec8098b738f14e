// Draws the charts of a report with uPlot, from the JSON document in the page. It is a part of the page, after uPlot and
// the units of the dashboard, whose functions it uses.

const DATA = JSON.parse(document.getElementById("data").textContent);
const HEIGHT_PX = 260;
const ROWS_OF_TABLE = 24; // of the data of a chart
const COLOURS = { // with a contrast of 3 and more with the background
  light: ["#1f6fb8", "#b35900", "#1c7a43", "#a2237f", "#5b4bb5", "#6b5a00", "#007a87", "#b3261e"],
  dark: ["#6db3f2", "#f0a04b", "#6fcf8f", "#ee8fd0", "#ab9df2", "#d6c25a", "#5cc8d6", "#ff8a80"],
};
const DASHES = [[], [10, 4], [3, 3], [12, 4, 3, 4], [6, 2], [2, 5], [16, 4], [8, 3, 2, 3, 2, 3]];
const SECONDS = [1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400];
const STEPS_OF_TIME = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400, 7 * 86_400, 30 * 86_400, 90 * 86_400, 365 * 86_400];
const RUN_PREFIX = "run:"; // of a choice that is a run, not a queue

const scheme = matchMedia("(prefers-color-scheme: dark)");
const hidden = new Set(); // numbers of runs
const charts = [];

const asPercent = (value) => `${(value * 100).toFixed(1).replace(/\.0$/, "")} %`;
const asNumber = (value) => (value >= 1000 ? Math.round(value).toLocaleString("en") : decimal(value));
const asTime = (value) => (value ? duration(value) : "0");
const colourOf = (number) => COLOURS[scheme.matches ? "dark" : "light"][number % COLOURS.light.length];

/** Whether a line is drawn: those of hidden runs are not, except in a chart of one run. */
const isShown = (one) => one.isAlone || !hidden.has(one.run);

/** A curve as long as the axis; a constant is stored as one value. */
function stretch(curve, length) {
  if (!curve) return Array(length).fill(null);
  return curve.length === 1 && length > 1 ? Array(length).fill(curve[0]) : curve;
}

/** The series of a chart for a choice: a queue in all runs, or the most important queues of one run. */
function pick(choice, ofRun) {
  if (choice.startsWith(RUN_PREFIX)) {
    const run = Number(choice.slice(RUN_PREFIX.length));
    return DATA.compared.map((queue, number) => ({ label: queue, colour: number, run, isAlone: true, ...ofRun(run, queue) }));
  }
  return DATA.runs.map((label, run) => ({ label, colour: run, run, ...ofRun(run, choice) }));
}

function usageOf(run, queue, resource) {
  return DATA.usage[run][queue]?.[resource] ?? {};
}

/** Amounts as shares of the capacity of the run. */
function toShares(curve, run, resource) {
  const capacity = DATA.capacity[run][resource];
  return stretch(curve, DATA.times.length).map((value) => (value === null || !capacity ? null : value / capacity));
}

const OVER_TIME = { axis: "time", x: DATA.times };

const SPECS = {
  utilisation: ({ resource }) => ({
    ...OVER_TIME,
    title: `Utilisation of ${resource} over time`,
    format: asPercent,
    top: 1,
    series: DATA.runs.map((label, run) => ({ label, colour: run, run, values: toShares(usageOf(run, "root", resource).used, run, resource) })),
  }),
  share: ({ resource, choice }) => {
    const made = pick(choice, (run, queue) => ({ queue }));
    return {
      ...OVER_TIME,
      title: `Share of ${resource} over time, with guaranteed shares dashed`,
      format: asPercent,
      series: made.flatMap((one) => {
        const usage = usageOf(one.run, one.queue, resource);
        const used = { ...one, values: toShares(usage.used, one.run, resource) };
        const guaranteed = { ...one, label: `${one.label}, guaranteed`, dash: [6, 5], width: 1.5, values: toShares(usage.guaranteed, one.run, resource) };
        return usage.guaranteed ? [used, guaranteed] : [used];
      }),
    };
  },
  running: () => ({
    ...OVER_TIME,
    title: "Jobs that run, over time",
    format: asNumber,
    series: DATA.runs.map((label, run) => ({ label, colour: run, run, values: DATA.jobs[run].running })),
  }),
  waiting: () => ({
    ...OVER_TIME,
    title: "Jobs that wait, over time",
    format: asNumber,
    series: DATA.runs.map((label, run) => ({ label, colour: run, run, values: DATA.jobs[run].waiting })),
  }),
  waits: ({ choice }) => describeDistribution(DATA.waits, choice, { title: "Share of jobs that waited at most this long", axis: "seconds", heading: "wait" }),
  slowdowns: ({ choice }) => describeDistribution(DATA.slowdowns, choice, { title: "Share of jobs with at most this bounded slowdown", axis: "factor", heading: "slowdown" }),
  slowdown: () => ({
    axis: "time",
    x: DATA.slowdown.times,
    title: "Mean bounded slowdown, by the time of submission",
    format: asNumber,
    logarithmic: true,
    series: DATA.runs.map((label, run) => ({ label, colour: run, run, values: DATA.slowdown.runs[run] })),
  }),
};

function describeDistribution(data, choice, more) {
  const series = pick(choice, (run, queue) => ({ values: stretch(data.runs[run][queue], data.values.length) }));
  return {
    ...more,
    x: data.values,
    format: asPercent,
    top: 1,
    series: series.map((one) => ({ ...one, dash: DASHES[one.colour % DASHES.length] })),
  };
}

const AXES = {
  time: { heading: "time", format: asTime, options: { incrs: STEPS_OF_TIME, space: 90 }, scale: { time: false } },
  seconds: { heading: "wait", format: asTime, options: { splits: (plot) => within(plot, SECONDS), filter: (_, values) => values }, scale: { time: false, distr: 3 } },
  factor: { heading: "slowdown", format: asNumber, options: { splits: (plot) => within(plot, powers()), filter: (_, values) => values }, scale: { time: false, distr: 3 } },
};

const within = (plot, values) => values.filter((value) => value >= plot.scales.x.min * 0.999 && value <= plot.scales.x.max * 1.001);
const powers = () => Array.from({ length: 10 }, (_, power) => 10 ** power);

/** A chart in its figure, with the fields that choose its content and a table of its data. */
class Chart {
  constructor(figure) {
    this.figure = figure;
    this.box = figure.querySelector(".plot");
    this.fields = [...figure.closest("section").querySelectorAll(`select[data-for~="${figure.dataset.chart}"]`)];
    for (const field of this.fields) field.addEventListener("change", () => this.draw());
    this.details = figure.querySelector("details");
    this.details.addEventListener("toggle", () => this.fillTable());
  }

  get spec() {
    return SPECS[this.figure.dataset.chart](Object.fromEntries(this.fields.map((field) => [field.name, field.value])));
  }

  draw() {
    this.plot?.destroy();
    const { title, axis, x, format, series, top, logarithmic } = this.spec;
    this.series = series;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const about = AXES[axis];
    const line = { stroke: colour("--quiet"), font: "12px system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const shown = (_, value) => (value === null || value === undefined ? "–" : format(value));
    const width = this.width;
    this.plot = new uPlot({
      width,
      height: HEIGHT_PX,
      cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: about.scale, y: logarithmic ? { distr: 3 } : { range: (_, low, high) => [0, Math.max(top ?? 0, high * 1.05) || 1] } },
      axes: [
        { ...line, ...about.options, values: (_, values) => values.map((value) => (value === null ? "" : about.format(value))) },
        { ...line, size: 62, values: (_, values) => values.map((value) => (value === null ? "" : format(value))) },
      ],
      series: [
        { label: about.heading, value: (_, value) => (value === null || value === undefined ? "–" : about.format(value)) },
        ...series.map((one) => ({ label: one.label, value: shown, stroke: colourOf(one.colour), width: one.width ?? 2, dash: one.dash, spanGaps: true, show: isShown(one), points: { show: false } })),
      ],
    }, [x, ...series.map((one) => one.values)], this.box);
    this.figure.querySelector("figcaption").textContent = title;
    const canvas = this.box.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${title}. Its data is in the table below.`);
    this.fillTable();
  }

  get width() {
    return Math.max(240, this.box.clientWidth);
  }

  showRuns() {
    this.series.forEach((one, number) => this.plot.setSeries(number + 1, { show: isShown(one) }));
  }

  /** The data at equal distances; only while it is open, as it is long. */
  fillTable() {
    const place = this.details.querySelector(".scroll");
    if (!this.details.open) return;
    const { axis, x, format, series, title } = this.spec;
    const step = Math.max(1, Math.ceil(x.length / ROWS_OF_TABLE));
    const table = document.createElement("table");
    table.append(make("caption", title));
    const head = table.createTHead().insertRow();
    for (const name of [AXES[axis].heading, ...series.map((one) => one.label)]) head.append(make("th", name, { scope: "col", class: "number" }));
    const body = table.createTBody();
    for (let at = 0; at < x.length; at += step) {
      const row = body.insertRow();
      row.append(make("th", AXES[axis].format(x[at]), { scope: "row", class: "number" }));
      for (const one of series) row.append(make("td", one.values[at] === null || one.values[at] === undefined ? "–" : format(one.values[at]), { class: "number" }));
    }
    place.replaceChildren(table);
  }
}

function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function colourRuns() {
  document.querySelectorAll("[data-run]").forEach((field) => {
    field.parentElement.querySelector(".colour").style.borderTopColor = colourOf(Number(field.dataset.run));
  });
}

function start() {
  document.querySelectorAll("figure[data-chart]").forEach((figure) => charts.push(new Chart(figure)));
  document.querySelectorAll("[data-run]").forEach((field) => {
    field.addEventListener("change", () => {
      hidden[field.checked ? "delete" : "add"](Number(field.dataset.run));
      for (const chart of charts) chart.showRuns();
    });
  });
  const draw = () => {
    colourRuns();
    for (const chart of charts) chart.draw();
  };
  scheme.addEventListener("change", draw);
  new ResizeObserver(() => {
    for (const chart of charts) if (chart.plot && chart.plot.width !== chart.width) chart.plot.setSize({ width: chart.width, height: HEIGHT_PX });
  }).observe(document.querySelector("main"));
  draw();
}

start();
