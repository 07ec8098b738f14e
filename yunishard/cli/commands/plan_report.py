"""Draws the report of a plan: a summary first, then tables of what the change affects, then what was assumed.

Not here: requests (`plan.py`), making plans (`partition_worker/planning.py`).
"""

from collections.abc import Sequence
from typing import Final

from yunishard.cli.commands.display import (
    BAD,
    GOOD,
    QUIET,
    STRONG,
    WARNING,
    Cell,
    Screen,
    Text,
    draw_heading,
    draw_table,
)
from yunishard.cli.commands.explanation import draw_explanation, wrap
from yunishard.common.rest.plan import PlannedApplicationView, PlannedJobView, PlanView
from yunishard.common.text_formats import UNKNOWN, format_count, format_figure, format_percent, format_seconds

ROWS_SHOWN: Final = 15
"""Rows of each table without `--all`."""

_COLOURS: Final = {"now": GOOD, "later": GOOD, "partly": WARNING, "never": BAD, "rejected": BAD}


def draw_plan(screen: Screen, view: PlanView, *, with_all: bool = False) -> list[str]:
    """Return the lines of a report; `with_all` shows all rows of each table."""
    rows_max = len(view.asks) + len(view.applications) + len(view.evictions) if with_all else ROWS_SHOWN
    facts = [*(view.changes or ["no change"]), f"partition {view.partition}"]
    facts += [f"{format_seconds(view.horizon)} ahead", "nothing was changed"]
    lines = wrap(screen, f"plan: {' · '.join(facts)}", colour=QUIET)
    lines.append("")
    for text in view.summary:
        lines += wrap(screen, text, colour=STRONG)
    for job in view.jobs:
        lines += _draw_job(screen, view, job)
    lines += _draw_evictions(screen, view, rows_max)
    lines += _draw_applications(screen, view, rows_max)
    lines += _draw_starts(screen, view, rows_max)
    lines += _draw_excesses(screen, view, rows_max)
    lines += _draw_use(screen, view)
    lines += draw_heading(screen, "Taken for granted")
    for text in view.assumptions:
        lines += wrap(screen, text, first="  - ")
    if view.incomplete or view.hidden:
        lines += draw_heading(screen, "Left out")
        for text in view.incomplete:
            lines += wrap(screen, text, first="  - ")
        if view.hidden:
            lines += wrap(screen, f"{format_count(view.hidden, 'application')} that you may not see", first="  - ")
    return lines


# A planned job --------------------------------------------------------------------------------------------------------


def _draw_job(screen: Screen, view: PlanView, job: PlannedJobView) -> list[str]:
    facts = [f"job {job.application}", job.queue, f"{job.started} of {format_count(job.tasks, 'task')} started"]
    lines = draw_heading(screen, "The job")
    lines += wrap(screen, " · ".join(filter(None, facts)) + f" · {job.verdict}", colour=_COLOURS[job.verdict])
    if job.after:
        lines += wrap(screen, "It waits for the end of:", first="  ")
        for one in job.after:
            what = f"{one.allocation} of {one.application}" if one.application else "an allocation of others"
            lines += wrap(screen, f"{what} on {one.node}, {_after(view, one.at)}", first="    ")
    if job.explanation is not None:
        lines += draw_heading(screen, "Why it does not start at once")
        lines += draw_explanation(screen, job.explanation, view.at)
    return lines


# Tables ---------------------------------------------------------------------------------------------------------------


def _draw(
    screen: Screen, title: str, headings: Sequence[str], rows: list[list[Text]], rows_max: int, right: range | set[int]
) -> list[str]:
    if not rows:
        return []
    lines = draw_heading(screen, title)
    lines += draw_table(screen, headings, rows[:rows_max], right=right)
    if len(rows) > rows_max:
        lines.append(f"{len(rows) - rows_max:,} more; --all shows them")
    return lines


def _after(view: PlanView, at: int) -> str:
    """A time of the plan: `at once`, `in 5 min`; `-` for never."""
    if not at:
        return UNKNOWN
    seconds = (at - view.at) / 1e9
    return "at once" if seconds < 0.5 else f"in {format_seconds(seconds)}"


def _draw_evictions(screen: Screen, view: PlanView, rows_max: int) -> list[str]:
    rows: list[list[Text]] = [
        [
            Cell(one.allocation, "" if one.in_baseline else BAD),
            one.application,
            one.user,
            one.queue,
            one.node,
            _after(view, one.at),
            f"{one.again_node} {_after(view, one.again_at)}" if one.again_at else "waits",
            one.by_queue or UNKNOWN,
            "also without" if one.in_baseline else "new",
        ]
        for one in view.evictions
    ]
    headings = ("ALLOCATION", "APPLICATION", "USER", "QUEUE", "NODE", "EVICTED", "AGAIN ON", "FOR QUEUE", "CHANGE")
    return _draw(screen, "Evicted", headings, rows, rows_max, set())


def _is_affected(one: PlannedApplicationView) -> bool:
    with_change = (one.started, one.waiting, one.evicted, one.first_start)
    return with_change != (one.started_baseline, one.waiting_baseline, one.evicted_baseline, one.first_start_baseline)


def _draw_applications(screen: Screen, view: PlanView, rows_max: int) -> list[str]:
    affected = [one for one in view.applications if _is_affected(one) or not view.changes]
    rows: list[list[Text]] = [
        [
            one.application,
            one.queue,
            one.user,
            f"{one.waiting_before:,}",
            f"{one.started_baseline:,}",
            Cell(f"{one.started:,}", GOOD if one.started > one.started_baseline else ""),
            _after(view, one.first_start),
            f"{one.waiting_baseline:,}",
            Cell(f"{one.waiting:,}", WARNING if one.waiting > one.waiting_baseline else ""),
            f"{one.evicted:,}",
            (one.rejected and "rejected") or ", ".join(one.reasons) or UNKNOWN,
        ]
        for one in affected
    ]
    headings = ("APPLICATION", "QUEUE", "USER", "WAIT NOW", "START", "PLANNED", "FIRST", "WAIT", "PLANNED", "EVICTED")
    title = "Applications that the change affects" if view.changes else "Applications"
    lines = _draw(screen, title, (*headings, "WHY"), rows, rows_max, {3, 4, 5, 7, 8, 9})
    others = sum(bool(one.waiting) for one in view.applications) - sum(bool(one.waiting) for one in affected)
    if others:
        verb = "waits" if others == 1 else "wait"
        lines += ["", f"{format_count(others, 'other application')} {verb} as without the change."]
    return lines


def _draw_starts(screen: Screen, view: PlanView, rows_max: int) -> list[str]:
    differing = [one for one in view.asks if one.at != one.at_baseline or not view.changes]
    rows: list[list[Text]] = [
        [
            one.ask,
            one.application,
            one.user,
            _after(view, one.at_baseline),
            Cell(_after(view, one.at), GOOD if one.at and (not one.at_baseline or one.at < one.at_baseline) else BAD),
            one.node or UNKNOWN,
        ]
        for one in differing
    ]
    title = "Expected starts that the change affects" if view.changes else "Expected starts"
    headings = ("ASK", "APPLICATION", "USER", "WITHOUT", "PLANNED", "NODE")
    return _draw(screen, title, headings, rows, rows_max, set())


def _draw_excesses(screen: Screen, view: PlanView, rows_max: int) -> list[str]:
    rows: list[list[Text]] = []
    for one in view.excesses:
        kind = one.resource
        figures = [format_figure(kind, amount) if kind else f"{amount:,}" for amount in (one.maximum, one.used)]
        at_end = "within" if not one.used_at_end else format_figure(kind, one.used_at_end) if kind else one.used_at_end
        who = f"user {one.user}" if one.user else f"group {one.group}" if one.group else "queue"
        rows.append(
            [
                one.queue,
                who,
                kind or "applications",
                *figures,
                str(at_end),
                Cell("new", BAD) if one.is_new else "also without",
            ]
        )
    headings = ("QUEUE", "WHOSE", "RESOURCE", "MAXIMUM", "USED", "AT THE END", "CHANGE")
    return _draw(screen, "Above a maximum", headings, rows, rows_max, {3, 4, 5})


def _draw_use(screen: Screen, view: PlanView) -> list[str]:
    rows: list[list[Text]] = [
        [
            one.resource,
            _share(one.resource, one.used_before, one.capacity_before),
            _share(one.resource, one.used_baseline, one.capacity_before),
            _share(one.resource, one.used, one.capacity),
        ]
        for one in view.utilisation
    ]
    headings = ("RESOURCE", "NOW", f"IN {format_seconds(view.horizon).upper()}", "PLANNED")
    return _draw(screen, "Use of the nodes", headings, rows, len(rows), {1, 2, 3})


def _share(kind: str, used: int, capacity: int) -> str:
    return f"{format_figure(kind, used)} of {format_figure(kind, capacity)} ({format_percent(used, capacity)})"
