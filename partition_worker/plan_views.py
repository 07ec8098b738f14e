"""Builds the report of a plan: compares the course of events with the changes and the one without, and removes what
the viewer may not see.

Totals and the use of nodes are those of the whole partition, as elsewhere. Applications, asks and evictions are shown
to viewers of the application; queues above their maximum to those with a right in the queue; users and groups
above a limit to the user, the group's members and administrators of the queue.

Not here: the courses (`planning.py`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from yunishard.common.messages.query_messages import Actor
from yunishard.common.messages.reasons import MEANINGS, Reason
from yunishard.common.rest.explain import ExplanationView
from yunishard.common.rest.plan import (
    RUN_TIME_TAG,
    AwaitedReleaseView,
    ConfigChange,
    CourseView,
    NewJob,
    NewNodes,
    NodeDrain,
    NodeRemoval,
    PlannedApplicationView,
    PlannedAskView,
    PlannedChange,
    PlannedEvictionView,
    PlannedExcessView,
    PlannedJobView,
    PlannedUseView,
    PlanOrder,
    PlanView,
    Verdict,
)
from yunishard.common.rm_player import task_name
from yunishard.common.text_formats import format_count, format_resources, format_seconds, list_kinds
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.planning import (
    DECISIONS_MAX,
    QUIET_S,
    Course,
    End,
    Evicted,
    Excess,
    Owner,
    Start,
    Waiting,
)
from yunishard.partition_worker.redaction import Right, Visibility

SHOWN_MAX: Final = 1000
"""Applications, asks, evictions, and maxima that are exceeded in one report; `incomplete` counts the others."""

AFTER_MAX: Final = 5
"""Releases that a planned job waits for, in its answer."""

NODES_SHOWN_MAX: Final = 5
"""Names of nodes in the text about a planned job."""

NAMES_SHOWN_MAX: Final = 5
"""Users, or those above a maximum, in one sentence of the summary."""

_T = TypeVar("_T")
_TaskName = tuple[str, str]
"""An application, and the name of a task in it."""


def check_rights(order: PlanOrder, visible: Visibility) -> None:
    """Raises NotDone: 403 if the viewer may not plan these changes: only administrators may plan for others."""
    if visible.everything:
        return
    for change in order.changes:
        if not isinstance(change, NewJob):
            raise NotDone(403, "only administrators may plan changes of the configuration and of nodes")
        others = [f"user {change.user}"] if not visible.shows_user(change.user) else []
        others += [f"group {group}" for group in change.groups if not visible.shows_group(group)]
        if others:
            raise NotDone(403, f"only administrators may plan jobs for others: {others[0]} is not you or yours")


def build_plan_view(
    state: PartitionState,
    order: PlanOrder,
    baseline: Course,
    planned: Course,
    *,
    name: str,
    viewer: Actor | None = None,
    notes: Sequence[str] = (),
) -> PlanView:
    """Build the report; `notes` are further assumptions."""
    view = _Report(state, order, baseline, planned, Visibility(state, viewer)).build(name, notes)
    return replace(view, summary=list(_summarize(view)))


class _Report:
    """The two courses, and what their viewer may see."""

    def __init__(
        self, state: PartitionState, order: PlanOrder, baseline: Course, planned: Course, visible: Visibility
    ) -> None:
        self._visible = visible
        self._order, self._baseline, self._planned = order, baseline, planned
        self._owners: dict[str, Owner] = {**baseline.owners, **planned.owners}
        self._shown: dict[str, bool] = {}
        """By application: whether the viewer may see it."""
        self._incomplete: list[str] = []
        self._first_starts = _index_starts(planned.starts)
        self._first_starts_baseline = _index_starts(baseline.starts)

    def build(self, name: str, notes: Sequence[str]) -> PlanView:
        applications = self._build_applications()
        self._note_cuts()
        return PlanView(
            partition=name,
            changes=[describe_change(change) for change in self._order.changes],
            at=_ns(self._planned.began),
            horizon=self._order.horizon_s,
            baseline=_count_course(self._baseline),
            planned=_count_course(self._planned),
            jobs=self._build_jobs(),
            evictions=self._build_evictions(),
            applications=self._limit(applications, "applications"),
            asks=self._build_asks(),
            excesses=self._build_excesses(),
            utilisation=_build_uses(self._baseline, self._planned),
            hidden=sum(not shown for shown in self._shown.values()),
            assumptions=[*_list_assumptions(self._order, self._baseline, self._planned), *notes],
            incomplete=self._incomplete,
        )

    def _note_cuts(self) -> None:
        for course, what in ((self._baseline, "without the change"), (self._planned, "with the change")):
            if course.is_cut:
                after = format_seconds(course.until - course.began)
                text = f"the course {what} ends after {after}, as it has {DECISIONS_MAX:,} decisions until then"
                self._incomplete.append(f"{text}: plan with a nearer horizon")

    def _limit(self, rows: list[_T], what: str) -> list[_T]:
        if len(rows) > SHOWN_MAX:
            self._incomplete.append(f"only the first {SHOWN_MAX:,} of {len(rows):,} {what} are shown")
        return rows[:SHOWN_MAX]

    def _shows(self, application: str) -> bool:
        found = self._shown.get(application)
        if found is None:
            owner = self._owners.get(application)
            is_mine = owner is not None and self._visible.shows_of(owner.user, owner.queue)
            found = self._shown[application] = self._visible.everything or is_mine
        return found

    def _find_owner(self, application: str) -> Owner:
        return self._owners.get(application, Owner("", ""))

    # Applications and asks ------------------------------------------------------------------------------------------

    def _build_applications(self) -> list[PlannedApplicationView]:
        planned, baseline = self._planned, self._baseline
        rejected = {one.application: one.reason for one in reversed(planned.rejections)}
        started = Counter(application for application, _ in self._first_starts)
        started_baseline = Counter(application for application, _ in self._first_starts_baseline)
        evicted = Counter(one.application for one in planned.evictions)
        evicted_baseline = Counter(one.application for one in baseline.evictions)
        first = _index_first(self._first_starts)
        first_baseline = _index_first(self._first_starts_baseline)
        nothing = Waiting({})
        names = dict.fromkeys(
            (
                *planned.jobs,
                *evicted,
                *evicted_baseline,
                *planned.waiting_before,
                *started,
                *started_baseline,
                *planned.waiting,
                *baseline.waiting,
                *rejected,
            )
        )
        found: list[PlannedApplicationView] = []
        for name in names:
            if not self._shows(name):
                continue
            owner, waiting = self._find_owner(name), planned.waiting.get(name, nothing)
            found.append(
                PlannedApplicationView(
                    application=name,
                    queue=owner.queue,
                    user=owner.user,
                    waiting_before=planned.waiting_before.get(name, 0),
                    started=started[name],
                    started_baseline=started_baseline[name],
                    waiting=sum(waiting.reasons.values()),
                    waiting_baseline=sum(baseline.waiting.get(name, nothing).reasons.values()),
                    evicted=evicted[name],
                    evicted_baseline=evicted_baseline[name],
                    first_start=first.get(name, 0),
                    first_start_baseline=first_baseline.get(name, 0),
                    reasons=waiting.reasons,
                    text=waiting.text,
                    rejected=rejected.get(name, ""),
                )
            )
        found.sort(key=_rank_application)
        return found

    def _build_asks(self) -> list[PlannedAskView]:
        found: list[PlannedAskView] = []
        for task in self._first_starts | self._first_starts_baseline:
            application, key = task
            if not self._shows(application):
                continue
            owner = self._find_owner(application)
            start, before = self._first_starts.get(task), self._first_starts_baseline.get(task)
            found.append(
                PlannedAskView(
                    ask=key,
                    application=application,
                    queue=owner.queue,
                    user=owner.user,
                    at=0 if start is None else _ns(start.at),
                    node="" if start is None else start.node,
                    at_baseline=0 if before is None else _ns(before.at),
                    node_baseline="" if before is None else before.node,
                )
            )
        found.sort(key=lambda one: (one.at == one.at_baseline, one.at or one.at_baseline))
        return self._limit(found, "asks")

    def _build_evictions(self) -> list[PlannedEvictionView]:
        before = {(one.application, one.key) for one in self._baseline.evictions}
        again: dict[_TaskName, list[Start]] = {}
        for start in self._planned.starts:
            again.setdefault((start.application, task_name(start.key)), []).append(start)
        rows = [
            self._build_eviction(one, before, again) for one in self._planned.evictions if self._shows(one.application)
        ]
        rows.sort(key=lambda one: one.in_baseline)
        return self._limit(rows, "evictions")

    def _build_eviction(
        self, one: Evicted, before: set[_TaskName], again: Mapping[_TaskName, list[Start]]
    ) -> PlannedEvictionView:
        owner, name = self._find_owner(one.application), task_name(one.key)
        later = next(
            (each for each in again.get((one.application, name), ()) if each.key != one.key and each.at >= one.at),
            None,
        )
        shows_by = self._visible.find_right_at(one.by_queue) is not Right.NOTHING if one.by_queue else False
        return PlannedEvictionView(
            allocation=one.key,
            application=one.application,
            queue=owner.queue,
            user=owner.user,
            node=one.node,
            at=_ns(one.at),
            reason=one.reason if self._visible.everything else "",
            by_queue=one.by_queue if shows_by else "",
            in_baseline=(one.application, one.key) in before,
            again_at=0 if later is None else _ns(later.at),
            again_node="" if later is None else later.node,
        )

    # Maxima ---------------------------------------------------------------------------------------------------------

    def _build_excesses(self) -> list[PlannedExcessView]:
        at_end = {one.place: one for one in self._planned.excesses_at_end}
        before = {one.place for one in (*self._baseline.excesses, *self._baseline.excesses_at_end)}
        at_once = {one.place for one in self._planned.excesses}
        later = [one for one in self._planned.excesses_at_end if one.place not in at_once]
        rows = [
            PlannedExcessView(
                queue=one.queue,
                user=one.user,
                group=one.group,
                resource=one.resource,
                maximum=one.maximum,
                used=one.used if one.place in at_once else 0,
                used_at_end=at_end[one.place].used if one.place in at_end else 0,
                is_new=one.place not in before,
            )
            for one in (*self._planned.excesses, *later)
            if self._shows_excess(one)
        ]
        rows.sort(key=lambda one: not one.is_new)
        return self._limit(rows, "maxima that are exceeded")

    def _shows_excess(self, one: Excess) -> bool:
        right = self._visible.find_right_at(one.queue)
        if one.user or one.group:
            is_mine = self._visible.shows_user(one.user) if one.user else self._visible.shows_group(one.group)
            return is_mine or right is Right.ADMINISTER
        return right is not Right.NOTHING

    # Jobs -----------------------------------------------------------------------------------------------------------

    def _build_jobs(self) -> list[PlannedJobView]:
        wanted = [change for change in self._order.changes if isinstance(change, NewJob)]
        return [
            self._build_job(name, job.tasks, explanation)
            for (name, explanation), job in zip(self._planned.jobs.items(), wanted, strict=True)
        ]

    def _build_job(self, name: str, tasks: int, explanation: ExplanationView | None) -> PlannedJobView:
        planned = self._planned
        starts = sorted(
            (one for (application, _), one in self._first_starts.items() if application == name), key=lambda one: one.at
        )
        rejection = next((one.reason for one in planned.rejections if one.application == name), "")
        late = next((one for one in starts if one.at > planned.began), None)
        verdict = _judge(tasks, starts, late, rejection)
        after = [] if late is None else self._find_releases(late)
        waiting = planned.waiting.get(name, Waiting({}))
        return PlannedJobView(
            application=name,
            verdict=verdict,
            text=self._describe_job(verdict, tasks, starts, after, rejection, waiting),
            queue=self._find_owner(name).queue,
            tasks=tasks,
            started=len(starts),
            first_start=_ns(starts[0].at) if starts else 0,
            last_start=_ns(starts[-1].at) if starts else 0,
            after=after,
            explanation=None if verdict == "now" else explanation,
        )

    def _find_releases(self, start: Start) -> list[AwaitedReleaseView]:
        """The releases that a later start waits for: those of that moment, and the last ones on its node before."""
        everything: list[End | Evicted] = [*self._planned.ends, *self._planned.evictions]
        released = [one for one in everything if one.at <= start.at]
        at_once = [one for one in released if one.at == start.at]
        found = [one for one in at_once if one.node == start.node] or at_once
        earlier = [one for one in released if one.node == start.node and one.at < start.at]
        earlier.sort(key=lambda one: one.at)
        found = sorted((found + earlier[::-1])[:AFTER_MAX], key=lambda one: one.at)
        return [
            AwaitedReleaseView(
                allocation=one.key if self._shows(one.application) else "",
                application=one.application if self._shows(one.application) else "",
                node=one.node,
                at=_ns(one.at),
            )
            for one in found
        ]

    def _describe_job(
        self,
        verdict: Verdict,
        tasks: int,
        starts: Sequence[Start],
        after: Sequence[AwaitedReleaseView],
        rejection: str,
        waiting: Waiting,
    ) -> str:
        began, horizon = self._planned.began, format_seconds(self._order.horizon_s)
        whole = "It starts" if tasks == 1 else f"All {tasks} tasks start"
        if verdict == "rejected":
            return f"It is refused: {rejection}."
        if verdict == "now":
            return f"{whole} at once, on {_describe_nodes(starts)}."
        if verdict == "later":
            first, last = starts[0].at - began, starts[-1].at - began
            when = f"in {format_seconds(last)}" if first == last else f"within {format_seconds(last)}"
            return f"{whole} {when}{_describe_releases(after)}."
        why = waiting.text or (MEANINGS[Reason(min(waiting.reasons))] if waiting.reasons else "")
        nothing_ends = (
            "" if self._planned.estimated else " Nothing ends, as no allocation has an estimate of its run time."
        )
        if verdict == "partly":
            return (
                f"{len(starts)} of {tasks} tasks start within {horizon}; then {why[:1].lower()}{why[1:]}{nothing_ends}"
            )
        return f"It does not start within {horizon}. {why}{nothing_ends}"


def _judge(tasks: int, starts: Sequence[Start], late: Start | None, rejection: str) -> Verdict:
    if rejection and not starts:
        return "rejected"
    if not starts:
        return "never"
    if len(starts) < tasks:
        return "partly"
    return "now" if late is None else "later"


def _describe_nodes(starts: Sequence[Start]) -> str:
    counts = Counter(one.node for one in starts)
    shown = [f"{node} ({number})" if number > 1 else node for node, number in counts.most_common(NODES_SHOWN_MAX)]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {format_count(more, 'other node')}" if more else "")


def _describe_releases(after: Sequence[AwaitedReleaseView]) -> str:
    if not after:
        return ""
    last = after[-1]
    what = f"{last.allocation} of {last.application}" if last.application else "an allocation of another application"
    more = f" and {format_count(len(after) - 1, 'earlier release')}" if len(after) > 1 else ""
    return f", after the end of {what} on {last.node}{more}"


# The summary ----------------------------------------------------------------------------------------------------------


def _summarize(view: PlanView) -> Iterator[str]:
    """Yield sentences about what the change does."""
    yield from (job.text for job in view.jobs)
    new = [one for one in view.evictions if not one.in_baseline]
    if new:
        users = Counter(one.user for one in new)
        of = ", ".join(f"{user} {number}" for user, number in users.most_common(NAMES_SHOWN_MAX))
        more = len(users) - NAMES_SHOWN_MAX
        of += f" and {format_count(more, 'other user')}" if more > 0 else ""
        applications = len({one.application for one in new})
        again = sum(bool(one.again_at) for one in new)
        yield (
            f"{format_count(len(new), 'allocation')} of {format_count(applications, 'application')} "
            f"{'is' if len(new) == 1 else 'are'} evicted ({of}); {again} of them {'gets' if again == 1 else 'get'} "
            "another node."
        )
    planned = {one.application for one in view.jobs}
    own = sum(one.started for one in view.applications if one.application in planned)
    more = view.planned.started - own - view.baseline.started
    if more:
        yield f"{format_count(abs(more), 'ask')} {'more' if more > 0 else 'fewer'} than without the change start."
    own_waiting = sum(one.waiting for one in view.applications if one.application in planned)
    more = view.planned.waiting - own_waiting - view.baseline.waiting
    if more:
        yield f"{format_count(abs(more), 'ask')} {'more' if more > 0 else 'fewer'} than without the change wait then."
    later = sum(bool(one.at and one.at_baseline and one.at > one.at_baseline) for one in view.asks)
    if later:
        yield f"{format_count(later, 'ask')} start later than without the change."
    over = [one for one in view.excesses if one.is_new]
    if over:
        names = list(dict.fromkeys(one.user or one.group or one.queue for one in over))
        shown = ", ".join(names[:NAMES_SHOWN_MAX]) + (" and others" if len(names) > NAMES_SHOWN_MAX else "")
        yield f"Above a maximum: {shown}."
    if view.changes and not view.jobs and view.planned == view.baseline and not new and not over and not later:
        yield "The change makes no difference to what runs and waits."


# Parts ----------------------------------------------------------------------------------------------------------------


def _ns(at: float) -> int:
    return round(at * 1e9)


def _index_starts(starts: Iterable[Start]) -> dict[_TaskName, Start]:
    """The first start of each task, in order."""
    found: dict[_TaskName, Start] = {}
    for start in starts:
        if not start.is_again:
            found.setdefault((start.application, start.key), start)
    return found


def _index_first(starts: Mapping[_TaskName, Start]) -> dict[str, int]:
    found: dict[str, int] = {}
    for (application, _), start in starts.items():
        found.setdefault(application, _ns(start.at))
    return found


def _rank_application(one: PlannedApplicationView) -> tuple[bool, bool, int]:
    """Those that lose something first, then others that the change affects, then those with most to wait for."""
    is_same = (one.started, one.waiting, one.first_start) == (
        one.started_baseline,
        one.waiting_baseline,
        one.first_start_baseline,
    )
    return one.evicted <= one.evicted_baseline, is_same, -one.waiting


def _count_course(course: Course) -> CourseView:
    return CourseView(
        started=len(_index_starts(course.starts)),
        ended=len(course.ends),
        evicted=len(course.evictions),
        rejected=len(course.rejections),
        waiting=sum(sum(one.reasons.values()) for one in course.waiting.values()),
        running=course.running,
    )


def _build_uses(baseline: Course, planned: Course) -> list[PlannedUseView]:
    kinds = list_kinds(planned.capacity_before, planned.capacity, planned.used_before, planned.used, baseline.used)
    return [
        PlannedUseView(
            resource=kind,
            capacity_before=planned.capacity_before.get(kind, 0),
            used_before=planned.used_before.get(kind, 0),
            used_baseline=baseline.used.get(kind, 0),
            capacity=planned.capacity.get(kind, 0),
            used=planned.used.get(kind, 0),
        )
        for kind in kinds
    ]


def describe_change(change: PlannedChange) -> str:
    """Describe a change in words."""
    match change:
        case ConfigChange(text=text):
            return text
        case NodeDrain(node=node):
            return f"drain node {node}"
        case NodeRemoval(node=node):
            return f"remove node {node}"
        case NewNodes(count=count, resources=resources):
            return f"add {format_count(count, 'node')} with {format_resources(resources)}"
        case NewJob(tasks=tasks, resources=resources, queue=queue, user=user):
            where = f" to {queue}" if queue else ""
            return f"submit {format_count(tasks, 'task')} of {format_resources(resources)}{where} as user {user}"


def _list_assumptions(order: PlanOrder, baseline: Course, course: Course) -> list[str]:
    found = ["Nothing else arrives: no application, ask or node, and no other change."]
    total = course.estimated + course.unestimated
    if course.unestimated:
        which = (
            "No allocation has" if not course.estimated else f"{course.unestimated} of {total} allocations do not have"
        )
        found.append(f"{which} an estimate of its run time (tag {RUN_TIME_TAG}), so they do not end.")
    if course.overdue:
        verbs = "runs longer than estimated, and does" if course.overdue == 1 else "run longer than estimated, and do"
        found.append(f"{format_count(course.overdue, 'allocation')} {verbs} not end either.")
    if course.evictions:
        found.append("The resource manager releases at once what is evicted, and asks for it again.")
    for one, what in ((baseline, "without the change"), (course, "with the change")):
        if one.quiet_from:
            after, quiet = format_seconds(one.quiet_from - one.began), format_seconds(QUIET_S)
            found.append(
                f"Nothing more is expected {what}: after {after} nothing starts or ends for {quiet}, and a preemption "
                "delay or a timeout that is longer is missed."
            )
    if course.held_back:
        found.append(f"{format_count(course.held_back, 'application')} wait for groups of a user, and are left out.")
    if any(isinstance(change, NewJob) and not change.groups for change in order.changes):
        found.append(
            "The user of the planned job is in the groups of earlier applications, else in one of the same name."
        )
    return found
