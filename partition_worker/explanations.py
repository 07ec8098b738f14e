"""Answers the queries that explain why something waits, redacted for the viewer.

    explain-application, explain-ask, explain-queue, explain-node

The engine explains (`engine/explain/`); this module finds the object, and removes what its viewer may not see
(`redaction.py`): amounts of queues without a right, usage and limits of other users and groups, and the names of other
applications. A shortage stays, because the headroom of a visible queue, which is not redacted, has it as well.

An application that waits for the groups of its user, was rejected or has ended is explained here, as the engine has no
queue for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.reasons import MEANINGS, REMEDY_MEANINGS, Reason, Remedy
from yunishard.common.messages.rm_messages import AddApplicationRequest, UserGroupInformation
from yunishard.common.rest.explain import AheadView, ChangeView, CheckView, ExplanationView, RemedyView, ReservationView
from yunishard.common.rest.views import encode_view
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.durable_records import RejectionRecord
from yunishard.partition_worker.engine.explain.causes import DescribeCause, describe_cause
from yunishard.partition_worker.engine.explain.explanations import (
    explain_application,
    explain_ask,
    explain_node,
    explain_queue,
)
from yunishard.partition_worker.engine.explain.node_checks import describe_ask
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.placement import NO_RULE_MATCHED
from yunishard.partition_worker.engine.placement_explanation import explain_placement
from yunishard.partition_worker.placement_views import build_placement_view
from yunishard.partition_worker.redaction import Right, Visibility

OK: Final = 200


def answer_explanation(partition: Partition, query: Query, now: float, stalls: Sequence[Reason] = ()) -> Answer:
    """Answer a query of `QUERIES`; `stalls` are the reasons of the worker why nothing is decided now."""
    visible = Visibility(partition, query.viewer)
    now = max(now, partition.now)
    try:
        found = QUERIES[query.what](partition, query.args, visible, now, stalls)
    except NotDone as error:
        return Answer(status=error.status, body=str(error).encode())
    return Answer(status=OK, body=encode_view(Redactor(partition, visible).redact(found)))


# The four queries -----------------------------------------------------------------------------------------------------

_Answer = Callable[[Partition, Mapping[str, str], Visibility, float, Sequence[Reason]], ExplanationView]


def _explain_application(
    partition: Partition, args: Mapping[str, str], visible: Visibility, now: float, stalls: Sequence[Reason]
) -> ExplanationView:
    name = args.get("application", "")
    found = partition.applications.get(name)
    if found is not None and visible.shows_application(found):
        return explain_application(partition, found, now, stalls)
    earlier = _explain_absent(partition, name, visible, now)
    if earlier is None:
        raise NotDone(404, "Application not found")
    return earlier


def _explain_absent(partition: Partition, name: str, visible: Visibility, now: float) -> ExplanationView | None:
    """Explain an application that is not in a queue: it waits for groups, ended or was rejected; None if it is unknown
    or hidden.
    """
    submission = partition.pending_submissions.submissions.get(name)
    if submission is not None and visible.shows_of(submission.ugi.user, submission.queue_name):
        user = submission.ugi.user
        text = f"the groups of user {user} are being looked up, on which its placement depends"
        check = CheckView(code=Reason.GROUPS_RESOLVING, passed=False, text=text, user=user)
        summary = f"Waits because {text}."
        return ExplanationView(
            kind="application", name=name, state="new", summary=summary, stopped_by=check.code, checks=[check]
        )
    rejection = partition.rejections.get(name)
    if rejection is not None and visible.shows_of(rejection.user, rejection.queue_name):
        return _explain_rejection(partition, rejection, visible)
    ended = [one for one in partition.ended.values() if one.application_id == name and visible.shows_application(one)]
    return explain_application(partition, ended[-1], now) if ended else None


def _explain_rejection(partition: Partition, rejection: RejectionRecord, visible: Visibility) -> ExplanationView:
    """Explain a rejection by what the placement rules would do with the submission now. Its tags are not kept."""
    checks = [CheckView(code=Reason.PLACEMENT_REJECTED, passed=False, text=rejection.reason)]
    is_unmatched = rejection.reason.endswith(NO_RULE_MATCHED)
    why = "no placement rule found a queue for it" if is_unmatched else rejection.reason
    summary = f"The application was rejected: {why}."
    if rejection.user:
        user = UserGroupInformation(user=rejection.user, groups=list(rejection.groups))
        new = AddApplicationRequest(
            application_id=rejection.application_id, queue_name=rejection.requested_queue, ugi=user
        )
        now = build_placement_view(partition, explain_placement(partition, new), visible)
        refusals = [
            CheckView(code=check.code, passed=False, text=f"rule {number} ({rule.name}): {check.text}")
            for number, rule in enumerate(now.rules, start=1)
            for check in rule.checks
            if not check.passed
        ]
        checks += refusals
        if now.state == "accepted":
            summary += f" Now it would be placed in {now.queue}: submit it again."
        elif refusals:
            summary += f" It would be rejected now, too: {'; '.join(one.text for one in refusals)}."
            if is_unmatched:
                summary += " Submit it again to a queue that exists and takes it."
    return ExplanationView(
        kind="application",
        name=rejection.application_id,
        state="rejected",
        summary=summary,
        stopped_by=Reason.PLACEMENT_REJECTED,
        checks=checks,
    )


def _explain_ask(
    partition: Partition, args: Mapping[str, str], visible: Visibility, now: float, stalls: Sequence[Reason]
) -> ExplanationView:
    application = partition.applications.get(args.get("application", ""))
    if application is None or not visible.shows_application(application):
        raise NotDone(404, "Application not found")
    ask = application.find(args.get("ask", ""))
    if ask is None:
        raise NotDone(404, "Ask not found")
    return explain_ask(partition, application, ask, now, stalls)


def _explain_queue(
    partition: Partition, args: Mapping[str, str], visible: Visibility, now: float, stalls: Sequence[Reason]
) -> ExplanationView:
    queue = partition.tree.find(args.get("queue", ""))
    if queue is None or not visible.shows_queue(queue):
        raise NotDone(404, "Queue not found")
    right = visible.find_right(queue)
    if right is Right.NOTHING:
        raise NotDone(403, f"who has no right in queue {queue.path} sees only its name")
    found = explain_queue(partition, queue, now, stalls)
    shown = [one for one in found.asks if _shows_ask(partition, one, visible)]
    if len(shown) == len(found.asks):
        return found
    summary = f"{found.count} asks wait below {queue.path}. {MEANINGS[Reason(found.stopped_by)]}"
    return replace(found, asks=shown, summary=summary)


def _shows_ask(partition: Partition, one: ExplanationView, visible: Visibility) -> bool:
    ask = partition.allocations.get(one.name)
    return ask is not None and visible.shows_application_id(ask.application_id)


def _explain_node(
    partition: Partition, args: Mapping[str, str], visible: Visibility, now: float, stalls: Sequence[Reason]
) -> ExplanationView:
    node = partition.nodes.get(args.get("node", ""))
    if node is None:
        raise NotDone(404, "Node not found")
    return explain_node(partition, node, now, stalls)


QUERIES: Final[dict[str, _Answer]] = {
    "explain-application": _explain_application,
    "explain-ask": _explain_ask,
    "explain-queue": _explain_queue,
    "explain-node": _explain_node,
}
"""The queries by name; their answers depend on the time, so none is cached."""


# Redaction ------------------------------------------------------------------------------------------------------------


class Redactor:
    """Removes what a viewer may not see from an explanation of an object that the viewer may see."""

    def __init__(self, partition: Partition, visible: Visibility) -> None:
        self._partition = partition
        self._visible = visible

    def redact(self, one: ExplanationView) -> ExplanationView:
        """Return the explanation as its viewer may see it."""
        if self._visible.everything:
            return one
        checks = [_replace_check_text(self.redact_check(check), self._hidden_asks) for check in one.checks]
        hidden = {
            before.text: after.text for before, after in zip(one.checks, checks, strict=True) if before is not after
        }
        asks = [self.redact(ask) for ask in one.asks]
        hidden |= {before.summary: after.summary for before, after in zip(one.asks, asks, strict=True)}
        hidden |= self._hidden_asks
        return replace(
            one,
            summary=_replace_texts(one.summary, hidden),
            checks=checks,
            ahead=self._redact_ahead(one.ahead),
            nearest=[replace(miss, text=_replace_texts(miss.text, self._hidden_asks)) for miss in one.nearest],
            reservations=[self._redact_reservation(reservation) for reservation in one.reservations],
            remedies=[self._redact_remedy(remedy) for remedy in one.remedies if self._shows_remedy(remedy)],
            asks=asks,
        )

    @cached_property
    def _hidden_asks(self) -> dict[str, str]:
        """The words for each hidden ask that holds a node, and others for them: any text may name such an ask."""
        asks = (reservation.ask for reservation in self._partition.reservation_index.by_rank.values())
        return {
            f"{describe_ask(ask.key, ask.application_id)},": "an ask that you may not see,"
            for ask in asks
            if not self._visible.shows_application_id(ask.application_id)
        }

    def _shows_amounts(self, queue: str, user: str, group: str) -> bool:
        """Whether the usage and the maximum that a check compared are visible."""
        right = self._visible.find_right_at(queue) if queue else Right.ADMINISTER
        if user or group:
            shown = self._visible.shows_user(user) if user else self._visible.shows_group(group)
            return shown or right is Right.ADMINISTER
        return right is not Right.NOTHING

    def redact_check(self, check: CheckView) -> CheckView:
        """Return a check as its viewer may see it."""
        if self._shows_amounts(check.queue, check.user, check.group) or check.code == Reason.CLUSTER_FULL:
            return check
        text = MEANINGS[Reason(check.code)].rstrip(".")
        text = f"{check.queue}: {text[0].lower()}{text[1:]}"
        return replace(check, text=text if not check.passed else f"{check.queue} has room", used=0, maximum=None)

    def _redact_reservation(self, one: ReservationView) -> ReservationView:
        """Remove the names of the ask and its application, if that is hidden."""
        if self._visible.shows_application_id(one.application):
            return one
        return replace(one, application="", ask="", text=_replace_texts(one.text, self._hidden_asks))

    def _redact_ahead(self, ahead: Iterable[AheadView]) -> list[AheadView]:
        """Keep queues and applications that are visible; count the others."""
        shown: list[AheadView] = []
        hidden = 0
        for one in ahead:
            is_shown = (
                self._visible.shows_application_id(one.application)
                if one.application
                else self._visible.find_right_at(one.queue) is not Right.NOTHING
            )
            if is_shown:
                shown.append(one)
            else:
                hidden += 1
        return (
            [*shown, AheadView(text=f"{hidden} other{'s' if hidden > 1 else ''}, which you may not see")]
            if hidden
            else shown
        )

    def _shows_remedy(self, remedy: RemedyView) -> bool:
        """Whether a remedy can be shown without the name of an application that is hidden."""
        named = (Remedy.RELEASE_ALLOCATION, Remedy.END_APPLICATION)
        return all(one.code not in named or self._shows_change(one) for one in remedy.changes)

    def _shows_change(self, one: ChangeView) -> bool:
        return not one.application or self._visible.shows_application_id(one.application)

    def _redact_remedy(self, remedy: RemedyView) -> RemedyView:
        """Remove the name of a hidden application for which one has to wait."""
        if all(map(self._shows_change, remedy.changes)):
            return remedy
        changes = [one if self._shows_change(one) else replace(one, application="") for one in remedy.changes]
        text = REMEDY_MEANINGS[Remedy(remedy.code)] if len(changes) == 1 else "wait, and make the other changes"
        return replace(remedy, text=text, changes=changes, application="")


def make_describer(partition: Partition, visible: Visibility) -> DescribeCause:
    """Return the function that describes the causes in the allocation log for a viewer."""
    if visible.everything:
        return describe_cause
    redactor = Redactor(partition, visible)
    return lambda group, cause: redactor.redact_check(describe_cause(group, cause))


def _replace_check_text(check: CheckView, hidden: Mapping[str, str]) -> CheckView:
    """Return a check without the hidden texts; the same one if there are none."""
    text = _replace_texts(check.text, hidden)
    return check if text == check.text else replace(check, text=text)


def _replace_texts(text: str, hidden: Mapping[str, str]) -> str:
    for before, after in hidden.items():
        text = text.replace(before, after)
    return text
