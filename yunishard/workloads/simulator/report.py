"""Write the report of some runs: one HTML file with figures, charts and tables that loads nothing from elsewhere.

The page contains the style sheet of the dashboard and uPlot, which the web service brings along (decision 20), so that
a report can be sent by mail and opened in ten years. Its Content-Security-Policy forbids every request. All figures are
in tables, which need no script; each chart has a table of its data.

The same runs make the same bytes: the page has no time of its creation.

Not here: the data of the charts (`report_data.py`), how they are drawn (`report.js`).
"""

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Final

from yunishard.common.process.terminal import write
from yunishard.common.text_formats import format_amount, format_resources, format_seconds
from yunishard.workloads.simulator.compare import Comparison, compare_summaries, format_change
from yunishard.workloads.simulator.report_data import ReportData, build_data
from yunishard.workloads.simulator.run_folder import Run, load_runs
from yunishard.workloads.simulator.summary import Figure, JobFigures, Summary, format_value, list_figures, summarize

GROUPS_MAX: Final = 50
"""Queues and users in each table of the page: those with most jobs. The others are counted, and in the files."""

ABSENT: Final = "-"


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard simulate report`."""
    parser.add_argument(
        "runs", metavar="DIR", nargs="+", type=Path, help="directory of a run, or one that contains runs"
    )
    parser.add_argument("--output", metavar="FILE", type=Path, default=Path("report.html"), help="default: %(default)s")
    parser.add_argument("--title", metavar="TEXT", default="Simulation report", help="heading of the page")


def run_report(args: argparse.Namespace) -> int:
    """Write a report of simulated runs as one HTML file with charts and tables.

    The runs are drawn over each other, and the first one is the baseline of differences. A directory that contains
    runs stands for all of them, by name. The file loads nothing from elsewhere.

    yunishard simulate report results --output report.html
    """
    runs = load_runs(args.runs)
    args.output.write_text(build_report(runs, title=args.title), encoding="utf-8")
    write(f"{args.output}: {len(runs)} {'run' if len(runs) == 1 else 'runs'}")
    return 0


def build_report(runs: Sequence[Run], *, title: str) -> str:
    """Return the page."""
    summaries = [summarize(run) for run in runs]
    comparisons = [
        compare_summaries(runs[0], summaries[0], run, summary)
        for run, summary in zip(runs[1:], summaries[1:], strict=True)
    ]
    data = build_data(runs)
    body = "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            _build_lead(summaries),
            _build_contents(),
            "<noscript><p>The charts need JavaScript. All figures are also in the tables.</p></noscript>",
            _build_run_fields(runs),
            _build_figures(summaries, comparisons),
            *_build_charts(runs, data),
            _build_groups("queues", "Queues", "queue", [one.queues for one in summaries], summaries),
            _build_guarantees(summaries),
            _build_groups("users", "Users", "user", [one.users for one in summaries], summaries),
            _build_preemptions(runs),
            _build_runs(runs, summaries),
            _DEFINITIONS,
        ]
    )
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return _PAGE.format(title=escape(title), style=_read_styles(), body=body, data=text, script=_read_scripts())


_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<main class="report">
{body}
</main>
<script type="application/json" id="data">{data}</script>
<script type="module">
{script}
</script>
</body>
</html>
"""


def _read_styles() -> str:
    ui = files("yunishard.webservice") / "ui"
    parts = (ui / "style.css", ui / "vendor" / "uplot.css", files("yunishard.workloads.simulator") / "report.css")
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


def _read_scripts() -> str:
    """Return all scripts as one module, as a page without a server cannot import any, after the licence of uPlot."""
    ui = files("yunishard.webservice") / "ui"
    licence = (ui / "vendor" / "LICENSE.uplot").read_text(encoding="utf-8")
    parts = (ui / "vendor" / "uplot.js", ui / "units.js", files("yunishard.workloads.simulator") / "report.js")
    text = "\n".join(part.read_text(encoding="utf-8") for part in parts)
    return f"/*\n{licence}*/\n" + re.sub(r"^export (?:\{[^}]*\};$)?", "", text, flags=re.MULTILINE)


# Parts of the page ----------------------------------------------------------------------------------------------------


def _build_lead(summaries: Sequence[Summary]) -> str:
    traces = list(dict.fromkeys(name for one in summaries for name in one.traces))
    jobs = list(dict.fromkeys(one.total.jobs for one in summaries))
    span = max(one.span for one in summaries)
    runs = "One run" if len(summaries) == 1 else f"{len(summaries)} runs"
    amount = " or ".join(f"{number:,}" for number in jobs)
    lead = f"{runs} of {amount} jobs from {escape(', '.join(traces))} over {format_seconds(span)} of virtual time."
    for one in summaries:
        if one.replay_speed:
            name, speed = escape(one.name), f"{one.replay_speed:g} times the speed of the log"
            lead += f" {name} is a replay in real time, at {speed}: its waits depend on the speed and the machine."
    return f"<p>{lead}</p>"


_SECTIONS: Final = (
    *(("figures", "Figures"), ("utilisation", "Utilisation"), ("shares", "Shares"), ("waits", "Waits")),
    *(("jobs", "Jobs over time"), ("slowdown", "Slowdown"), ("queues", "Queues"), ("guarantees", "Guarantees")),
    *(("users", "Users"), ("preemptions", "Preemptions"), ("runs", "Runs"), ("definitions", "Definitions")),
)


def _build_contents() -> str:
    links = "".join(f'<li><a href="#{anchor}">{name}</a></li>' for anchor, name in _SECTIONS)
    return f'<nav class="contents" aria-label="Sections"><ul>{links}</ul></nav>'


def _build_run_fields(runs: Sequence[Run]) -> str:
    """Return the fields that hide and show runs in all charts, which are also the key of their colours."""
    fields = "".join(
        f'<label><input type="checkbox" data-run="{number}" checked autocomplete="off"><span class="colour"></span>'
        f"{escape(run.name)}</label>"
        for number, run in enumerate(runs)
    )
    return f'<fieldset class="shown"><legend>Runs in the charts</legend>{fields}</fieldset>'


def _build_section(anchor: str, heading: str, *parts: str) -> str:
    return f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{heading}</h2>\n{"".join(parts)}</section>'


def _build_table(caption: str, headings: Sequence[tuple[str, bool]], rows: Iterable[str]) -> str:
    """Return a table that scrolls sideways on narrow screens. A heading comes with whether its column has numbers."""
    head = "".join(
        f'<th scope="col"{" class=number" if is_number else ""}>{escape(name)}</th>' for name, is_number in headings
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}"><table>'
        f'<caption class="hidden">{escape(caption)}</caption><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _build_figures(summaries: Sequence[Summary], comparisons: Sequence[Comparison]) -> str:
    rows = []
    for figure in list_figures(summaries):
        values = [figure.read(one) for one in summaries]
        cells = [_build_figure(figure, values[0], values)]
        for value, comparison in zip(values[1:], comparisons, strict=True):
            change = next((one for one in comparison.figures if one.figure == figure.key), None)
            cells.append(_build_figure(figure, value, values, format_change(figure, change)))
        rows.append(f'<tr><th scope="row">{escape(figure.label)}</th>{"".join(cells)}</tr>')
    notes = [f"{one.run}: {note}" for one in comparisons for note in one.notes]
    key = "<p class=quiet>★ marks the best value of a line, and below a value is its difference from the first run.</p>"
    return _build_section(
        "figures",
        "Figures",
        *(f'<p class="attention">{escape(note)}</p>' for note in notes),
        key if comparisons else "",
        _build_table("Figures of all runs", [("figure", False), *((one.name, True) for one in summaries)], rows),
    )


def _build_figure(figure: Figure, value: float | None, values: Sequence[float | None], difference: str = "") -> str:
    known = [one for one in values if one is not None]
    is_best = figure.better and len(set(known)) > 1 and value == (min if figure.better == "less" else max)(known)
    below = f'<span class="difference">{escape(difference)}</span>' if difference not in ("", "=", "-") else ""
    text = ABSENT if value is None else format_value(figure.unit, value)
    shown = f"<strong>{text} ★</strong>" if is_best else text
    return f'<td class="number">{shown}{below}</td>'


def _build_charts(runs: Sequence[Run], data: ReportData) -> list[str]:
    resources, queues, compared = data["resources"], data["queues"], data["compared"]
    first = next(iter(compared), "root")
    by_run = [(f"run:{number}", f"queues of {run.name}") for number, run in enumerate(runs)] if compared else []

    def choose_resource(charts: str) -> str:
        return _build_field("Resource", "resource", charts, [("", [(kind, kind) for kind in resources])])

    def choose_queue(charts: str, more: Sequence[tuple[str, str]], chosen: str) -> str:
        offered = [("One queue, all runs", [*more, *((queue, queue) for queue in queues)]), ("One run", by_run)]
        return _build_field("Queue", "choice", charts, offered, chosen)

    every = [("", "all jobs")]
    return [
        _build_section("utilisation", "Utilisation", choose_resource("utilisation"), _build_chart("utilisation")),
        _build_section(
            "shares",
            "Queue shares against guaranteed",
            choose_queue("share", [], first),
            choose_resource("share"),
            _build_chart("share"),
        ),
        _build_section("waits", "Waits", choose_queue("waits", every, ""), _build_chart("waits")),
        _build_section("jobs", "Jobs over time", _build_chart("running"), _build_chart("waiting")),
        _build_section(
            "slowdown",
            "Slowdown",
            _build_chart("slowdown"),
            choose_queue("slowdowns", every, ""),
            _build_chart("slowdowns"),
        ),
    ]


def _build_chart(name: str) -> str:
    return (
        f'<figure data-chart="{name}"><figcaption></figcaption><div class="plot"></div><details>'
        f'<summary>Data as a table</summary><div class="scroll" tabindex="0" role="group" '
        f'aria-label="Data of the chart: {name}"></div></details></figure>\n'
    )


def _build_field(
    label: str, name: str, charts: str, groups: Sequence[tuple[str, Sequence[tuple[str, str]]]], chosen: str = ""
) -> str:
    """Return a field that chooses what these charts show: groups of values with their texts."""
    parts = []
    for heading, options in groups:
        inside = "".join(
            f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>{escape(text)}</option>'
            for value, text in options
        )
        if options:
            parts.append(f'<optgroup label="{escape(heading)}">{inside}</optgroup>' if heading else inside)
    return (
        f'<label class="field"><span>{label}</span><select name="{name}" data-for="{charts}" autocomplete="off">'
        f"{''.join(parts)}</select></label>\n"
    )


_GROUP_COLUMNS: Final[tuple[tuple[str, Callable[[JobFigures], str]], ...]] = (
    ("jobs", lambda one: format_value("count", one.jobs)),
    ("not completed", lambda one: format_value("count", one.unfinished + one.rejected)),
    ("mean wait", lambda one: format_value("seconds", one.wait_mean)),
    ("median wait", lambda one: format_value("seconds", one.wait_median)),
    ("95 % wait", lambda one: format_value("seconds", one.wait_p95)),
    ("mean slowdown", lambda one: format_value("factor", one.slowdown_mean)),
    ("service", lambda one: format_value("ratio", one.service)),
    ("preemptions", lambda one: format_value("count", one.preemptions)),
    ("work lost", lambda one: format_value("seconds", one.lost)),
)


def _build_groups(
    anchor: str, heading: str, kind: str, groups: Sequence[Sequence[JobFigures]], summaries: Sequence[Summary]
) -> str:
    """Return the table of queues or users, with a line for each run below each other."""
    sizes: Counter[str] = Counter()
    for figures in groups:
        for one in figures:
            sizes[one.name] = max(sizes[one.name], one.jobs)
    chosen = sorted(sorted(sizes, key=lambda name: (-sizes[name], name))[:GROUPS_MAX])
    found = [{one.name: one for one in figures} for figures in groups]
    rows = []
    for name in chosen:
        lines = [
            (summary.name, by_name[name]) for summary, by_name in zip(summaries, found, strict=True) if name in by_name
        ]
        rows += _build_lines(
            name, [(run, [read(figures) for _, read in _GROUP_COLUMNS]) for run, figures in lines], len(summaries)
        )
    left = len(sizes) - len(chosen)
    return _build_section(
        anchor,
        heading,
        _build_table(
            f"Jobs of each {kind}",
            [
                (kind, False),
                *([("run", False)] if len(summaries) > 1 else []),
                *((name, True) for name, _ in _GROUP_COLUMNS),
            ],
            rows,
        ),
        f"<p class=quiet>{left:,} more with fewer jobs are in the files of the runs.</p>" if left else "",
    )


def _build_lines(name: str, lines: Sequence[tuple[str, Sequence[str]]], runs: int) -> list[str]:
    """Return the lines of a queue or user: one for each run, below one heading."""
    rows = []
    for number, (run, cells) in enumerate(lines):
        heading = f'<th scope="rowgroup" class="group" rowspan="{len(lines)}">{escape(name)}</th>' if not number else ""
        named = f"<td>{escape(run)}</td>" if runs > 1 else ""
        numbers = "".join(f'<td class="number">{escape(cell)}</td>' for cell in cells)
        rows.append(f"<tr>{heading}{named}{numbers}</tr>")
    return rows


def _build_guarantees(summaries: Sequence[Summary]) -> str:
    lines: defaultdict[tuple[str, str], list[tuple[str, list[str]]]] = defaultdict(list)
    for summary in summaries:
        for one in summary.shares:
            if one.guaranteed is not None:
                kind = one.resource
                cells = [
                    format_amount(kind, round(one.guaranteed)),
                    format_amount(kind, round(one.used)),
                    format_value("ratio", one.guarantee_kept),
                    format_value("ratio", one.below_guaranteed),
                ]
                lines[one.queue, kind].append((summary.name, cells))
    rows = [
        row
        for (queue, _), found in sorted(lines.items())[: GROUPS_MAX * 2]
        for row in _build_lines(queue, found, len(summaries))
    ]
    columns = ("guaranteed", "mean use", "guarantee kept", "time below it")
    run = [("run", False)] if len(summaries) > 1 else []
    table = _build_table(
        "Queues with guaranteed amounts", [("queue", False), *run, *((one, True) for one in columns)], rows
    )
    return _build_section("guarantees", "Guarantees", table if rows else "<p>No queue has a guaranteed amount.</p>")


def _build_preemptions(runs: Sequence[Run]) -> str:
    counts: Counter[tuple[str, str, str]] = Counter()
    lost: Counter[tuple[str, str, str]] = Counter()
    for run in runs:
        for one in run.preemptions:
            key = run.name, one.queue, one.by_queue
            counts[key] += 1
            lost[key] += round(one.lost)
    rows = [
        f'<tr><th scope="row">{escape(run)}</th><td>{escape(queue)}</td><td>{escape(by_queue or ABSENT)}</td>'
        f'<td class="number">{count:,}</td><td class="number">{format_seconds(lost[run, queue, by_queue])}</td></tr>'
        for (run, queue, by_queue), count in counts.most_common(GROUPS_MAX)
    ]
    headings = [("run", False), ("from queue", False), ("for queue", False), ("preemptions", True), ("work lost", True)]
    table = _build_table("Preemptions by queue", headings, rows)
    return _build_section("preemptions", "Preemptions", table if rows else "<p>Nothing was preempted.</p>")


def _build_runs(runs: Sequence[Run], summaries: Sequence[Summary]) -> str:
    left_out = [", ".join(f"{count:,} {reason}" for reason, count in run.info.left_out.items()) for run in runs]
    rows = [
        f'<tr><th scope="row">{escape(one.name)}</th><td>{escape(one.configuration)}</td>'
        f"<td>{escape(one.node_sort_policy)}</td><td>{escape(', '.join(one.traces))}</td>"
        f'<td class="number">{one.nodes:,}</td><td>{escape(format_resources(one.capacity))}</td>'
        f'<td class="number">{format_seconds(one.span)}</td><td>{escape(left or "none")}</td></tr>'
        for one, left in zip(summaries, left_out, strict=True)
    ]
    headings = [
        "run",
        "configuration",
        "node sort policy",
        "traces",
        "nodes",
        "capacity",
        "span",
        "left out of the traces",
    ]
    return _build_section(
        "runs", "Runs", _build_table("Runs", [(name, name in ("nodes", "span")) for name in headings], rows)
    )


_DEFINITIONS: Final = """<section aria-labelledby="definitions"><h2 id="definitions">Definitions</h2>
<dl class="definitions">
<dt>wait</dt>
<dd>From the submission of a job until all of its tasks run. Jobs that never started have none. 95 % of the waits are at
most as long as the 95 % wait.</dd>
<dt>bounded slowdown</dt>
<dd>(wait + run time) / run time of completed jobs, where a run time below 10 s counts as 10 s, and at least 1.</dd>
<dt>utilisation, share</dt>
<dd>The used part of the capacity, as a mean over the span of the run.</dd>
<dt>service</dt>
<dd>The part of the time between submission and end in which the jobs of a queue or user ran, without work that was
lost: 1 if they never wait.</dd>
<dt>fairness (Jain)</dt>
<dd>Jain's index over the service of all users or queues: 1 if all have the same, 1/n if one of n has all.</dd>
<dt>guarantee kept</dt>
<dd>The part of the amount that a queue was entitled to and used. It is entitled to its guaranteed amount, or to its
demand where that is smaller. The time below it is the share of the span with less than that.</dd>
<dt>work lost</dt>
<dd>The run time of preempted tasks, which starts again from the beginning.</dd>
<dt>makespan</dt>
<dd>From the first submission to the last end.</dd>
</dl></section>"""
