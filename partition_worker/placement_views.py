"""Answers `explain placement`: builds the view of an explained placement, redacted for the viewer.

A user may explain placements for the own name and groups; an administrator of the root queue or of the scheduler for
anyone. Users see which rules were tried. For a rule whose queue they may not see, they see only that it does not take
the application, not whether the queue exists. Figures of queues above a visible one are left out, as elsewhere.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import DecodeError, convert
from msgspec.json import decode

from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.rm_messages import AddApplicationRequest, UserGroupInformation
from yunishard.common.resources import saturate
from yunishard.common.rest.explain import (
    PlacementAccessView,
    PlacementCheckView,
    PlacementExplanationView,
    PlacementLimitView,
    PlacementOutcome,
    PlacementRuleView,
    PlacementTemplateView,
    RuleOutcome,
)
from yunishard.common.rest.views import RuleView
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.explain.causes import describe_running
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.placement_explanation import ExplainedPlacement, explain_placement
from yunishard.partition_worker.engine.placement_trace import PlacementCheck, RuleTrace, find_failed_check
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.user_resolution import User
from yunishard.partition_worker.placement_reasons import MEANINGS, PlacementReason
from yunishard.partition_worker.redaction import Right, Visibility

APPLICATION: Final = "explained"
"""The ID of the application in messages."""

_TEXTS: Final[Mapping[PlacementReason, tuple[str, str]]] = {
    PlacementReason.RULE_NO_VALUE: ("The {source} is {subject}", "There is no {source}"),
    PlacementReason.RULE_FILTERED: ("The filter selects user {subject}", "The filter excludes user {subject}"),
    PlacementReason.RULE_PARENT_UNMATCHED: ("The parent rule gives {subject}", "The parent rule gives no queue"),
    PlacementReason.RULE_PARENT_LEAF: ("", "{subject} is a leaf queue, below which there can be no queue"),
    PlacementReason.QUEUE_NAME_ILLEGAL: ("", "{subject} is not a valid queue name"),
    PlacementReason.QUEUE_MISSING: ("", "{subject} does not exist, and the rule may not create it"),
    PlacementReason.QUEUE_OUTSIDE_ROOT: ("", "{subject} is not below the root queue"),
    PlacementReason.QUEUE_PARENT: (
        "{subject} is a leaf queue",
        "{subject} is a parent queue, and applications run in leaf queues",
    ),
    PlacementReason.QUEUE_STOPPED: ("", "{subject} is stopped by an operator, and takes no new applications"),
    PlacementReason.QUEUE_ENDING: ("{subject} is not draining", "{subject} is draining, and takes no new applications"),
    PlacementReason.QUEUE_ACL: ("", "No access control list of {subject} or above lets user {user} submit"),
    PlacementReason.QUEUE_HIDDEN: (
        "",
        "The queue does not exist, or does not take applications of user {user}",
    ),
}
"""The texts of a check that passed, and of one that did not. Texts that depend on more are in `_describe_check`."""

_ABOUT_QUEUES: Final = frozenset(
    {
        PlacementReason.RULE_PARENT_UNMATCHED,
        PlacementReason.QUEUE_MISSING,
        PlacementReason.QUEUE_OUTSIDE_ROOT,
        PlacementReason.QUEUE_STOPPED,
        PlacementReason.QUEUE_PARENT,
        PlacementReason.QUEUE_ENDING,
        PlacementReason.QUEUE_ACL,
    }
)
"""Checks that reveal whether a queue exists."""


def answer_placement(partition: Partition, args: Mapping[str, str], visible: Visibility) -> PlacementExplanationView:
    """Explain the submission in the arguments of a query. Raises NotDone."""
    new = read_submission(args)
    others = [f"user {new.ugi.user}"] if not visible.shows_user(new.ugi.user) else []
    others += [f"group {group}" for group in new.ugi.groups if not visible.shows_group(group)]
    if others:
        text = f"only administrators may explain placements for others: {others[0]} is not you or a group of yours"
        raise NotDone(403, text)
    return build_placement_view(partition, explain_placement(partition, new), visible)


def read_submission(args: Mapping[str, str]) -> AddApplicationRequest:
    """Return the submission of a query: `user`, `groups` with commas between, `queue`, and `tags` as a JSON object.

    Raises NotDone.
    """
    try:
        tags = convert(decode(args.get("tags") or "{}"), dict[str, str])
    except (DecodeError, ValueError, RecursionError) as error:
        raise NotDone(400, f"tags are not a JSON object with texts: {error}") from error
    groups = [group for group in args.get("groups", "").split(",") if group]
    user = UserGroupInformation(user=args.get("user", ""), groups=groups)
    return AddApplicationRequest(
        application_id=APPLICATION, queue_name=args.get("queue", ""), ugi=user, tags=dict(tags)
    )


# The view -------------------------------------------------------------------------------------------------------------


def build_placement_view(
    partition: Partition, found: ExplainedPlacement, visible: Visibility
) -> PlacementExplanationView:
    """Build the view of an explained placement for a viewer."""
    tried = [_RuleViews(partition, found, visible).build(rule) for rule in found.trace.rules]
    others = partition.placement.describe()[len(tried) :] if found.code is not PlacementReason.USER_INVALID else []
    deciding = next((number for number, rule in enumerate(tried, start=1) if rule.outcome == "placed"), 0)
    leaf = found.leaf
    limits = [] if leaf is None else list(_build_limits(partition, leaf, found.user, visible))
    checks = [_check_start(limit) for limit in limits if limit.max_applications]
    return PlacementExplanationView(
        kind="placement",
        name=found.user.name,
        state=_find_outcome(found),
        summary=_summarize(partition, found, tried, deciding, checks),
        stopped_by=found.code or "",
        message=found.message,
        groups=list(found.user.groups),
        queue="" if leaf is None else leaf.path,
        rule=deciding,
        rules=[*tried, *(_build_untried(rule) for rule in others)],
        created=found.created,
        access=None if leaf is None else _build_access(leaf, found.user),
        template=None if leaf is None else _build_template(leaf),
        limits=limits,
        checks=checks,
        problems=found.problems,
    )


def _find_outcome(found: ExplainedPlacement) -> PlacementOutcome:
    if found.code is None:
        return "accepted"
    return "unknown" if found.code is PlacementReason.USER_GROUPS_UNKNOWN else "rejected"


def _summarize(
    partition: Partition,
    found: ExplainedPlacement,
    rules: list[PlacementRuleView],
    deciding: int,
    checks: list[PlacementCheckView],
) -> str:
    if found.leaf is not None:
        created = ", which is created" if found.created else ""
        by = f"rule {deciding} ({rules[deciding - 1].name}) decides"
        waits = next((f" It waits there, because {one.text}." for one in checks if not one.passed), "")
        return f"The application is placed in {found.leaf.path}{created}: {by}.{waits}"
    assert found.code is not None, "no queue and no reason"
    if found.code is PlacementReason.RULES_INVALID:
        return f"The application is rejected, because no placement rule is active: {partition.placement.problem}."
    if not found.message:
        return MEANINGS[found.code].meaning
    return f"The application is rejected: {found.message}."


def _build_untried(rule: RuleView) -> PlacementRuleView:
    return PlacementRuleView(name=rule.name, parameters=rule.parameters, filter=rule.filter, outcome="not-tried")


class _RuleViews:
    """Builds the views of the rules of one explained placement."""

    def __init__(self, partition: Partition, found: ExplainedPlacement, visible: Visibility) -> None:
        self._partition = partition
        self._found = found
        self._visible = visible

    def build(self, rule: RuleTrace) -> PlacementRuleView:
        """Build the view of a rule, without queues that the viewer may not see."""
        if rule.decides or not self._reveals_hidden(rule):
            return self._build(rule)
        shown = [one for one in rule.checks if one.code not in _ABOUT_QUEUES and one.passed]
        hidden = PlacementCheck(PlacementReason.QUEUE_HIDDEN, "", passed=False)
        only = RuleTrace(rule.view, rule.source, [*shown, hidden], error=rule.error)
        return self._build(only)

    def _build(self, rule: RuleTrace, *, is_parent: bool = False) -> PlacementRuleView:
        failed = find_failed_check(rule.checks)
        return PlacementRuleView(
            name=rule.view.name,
            parameters=rule.view.parameters,
            filter=rule.view.filter,
            outcome=_outcome_of(rule, is_parent=is_parent),
            queue=rule.path,
            stopped_by="" if failed is None else failed.code,
            checks=[self._build_check(rule, one) for one in rule.checks],
            more_checks=rule.left_out,
            parent_rule=None if rule.parent is None else self._build(rule.parent, is_parent=True),
        )

    def _reveals_hidden(self, rule: RuleTrace) -> bool:
        """Whether the checks of a rule, or of its parent rules, are about a queue in which the viewer has no right."""
        if self._visible.everything:
            return False
        paths = [one.subject for one in rule.checks if one.code in _ABOUT_QUEUES and one.subject]
        if any(self._visible.find_right_at(path) is Right.NOTHING for path in paths):
            return True
        return rule.parent is not None and self._reveals_hidden(rule.parent)

    def _build_check(self, rule: RuleTrace, check: PlacementCheck) -> PlacementCheckView:
        queue = check.subject.lower() if check.code in _ABOUT_QUEUES else ""
        return PlacementCheckView(
            code=check.code, passed=check.passed, text=self._describe_check(rule, check), queue=queue
        )

    def _describe_check(self, rule: RuleTrace, check: PlacementCheck) -> str:
        tree, user = self._partition.tree, self._found.user
        if check.passed and check.code is PlacementReason.QUEUE_MISSING:
            exists = tree.find(check.subject) is not None
            return (
                f"{check.subject} exists" if exists else f"{check.subject} does not exist, and the rule may create it"
            )
        if check.passed and check.code is PlacementReason.QUEUE_ACL:
            queue = tree.find(check.subject)
            access = None if queue is None else _build_access(queue, user)
            if access is not None:
                return f"The {access.acl} of {access.queue} lets {_entry(access.entry)} submit"
        text = _TEXTS[check.code][0 if check.passed else 1]
        return text.format(subject=check.subject, source=rule.source, user=user.name)


def _outcome_of(rule: RuleTrace, *, is_parent: bool) -> RuleOutcome:
    if rule.decides:
        return "placed"
    if rule.error:
        return "rejected"
    if not rule.path:
        return "no-match"
    return "matched" if is_parent else "refused"


# After placement ------------------------------------------------------------------------------------------------------


def _build_access(leaf: Queue, user: User) -> PlacementAccessView | None:
    """The access control list that lets the user submit; none for the recovery queue."""
    grant = leaf.find_grant(user)
    if grant is None:
        return None
    entry = grant.acl.describe_entry(user.name, user.groups)
    return PlacementAccessView(
        queue=grant.queue.path, acl="submitacl" if grant.kind == "submit" else "adminacl", entry=entry
    )


def _entry(entry: str) -> str:
    return "every user" if entry == "*" else entry


def _build_template(leaf: Queue) -> PlacementTemplateView | None:
    """The template of a dynamic leaf."""
    parent = leaf.parent
    template = None if parent is None else parent.template
    if leaf.managed or parent is None or template is None:
        return None
    while parent.parent is not None and parent.parent.template == template:
        parent = parent.parent
    return PlacementTemplateView(
        queue=parent.path,
        max_applications=template.max_applications,
        max_resource=template.maximum or {},
        guaranteed_resource=template.guaranteed or {},
        properties=template.properties,
    )


def _check_start(limit: PlacementLimitView) -> PlacementCheckView:
    """The check whether a limit of running applications lets one more start."""
    running, most = limit.running_applications, limit.max_applications
    who = f"user {limit.user}" if limit.user else f"group {limit.group}" if limit.group else ""
    code = Reason.QUEUE_APPLICATION_LIMIT
    if who:
        code = Reason.USER_APPLICATION_LIMIT if limit.user else Reason.GROUP_APPLICATION_LIMIT
    text = describe_running(who or limit.queue, f" in {limit.queue}" if who else "", running=running, most=most)
    return PlacementCheckView(code=code, passed=running < most, text=text, queue=limit.queue)


def _build_limits(partition: Partition, leaf: Queue, user: User, visible: Visibility) -> Iterator[PlacementLimitView]:
    """The limits that would apply, from the leaf up: of queues in which the viewer has a right, the user, the group."""
    for level in leaf.ancestry():
        known = partition.tree.find(level.path)
        has_right = visible.everything or visible.find_right_at(level.path) is not Right.NOTHING
        if has_right and (level.maximum is not None or level.guaranteed or level.max_applications):
            yield PlacementLimitView(
                queue=level.path,
                maximum=None if level.maximum is None else saturate(level.maximum),
                guaranteed=level.guaranteed or {},
                used={} if known is None else saturate(known.allocated),
                max_applications=level.max_applications,
                running_applications=level.running + len(level.allocating),
            )
    for who, name, usage in partition.usage.find_limits(user, leaf):
        assert usage.allowance is not None, usage.path
        yield PlacementLimitView(
            queue=usage.path,
            user=name if who == "user" else "",
            group=name if who == "group" else "",
            maximum=saturate(usage.allowance.resources),
            used=saturate(usage.used),
            max_applications=usage.allowance.applications,
            running_applications=len(usage.applications),
        )
