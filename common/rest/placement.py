"""REST objects of an explained placement: what a submission would do, rule by rule.

Codes are those of `partition_worker/placement_reasons.py`.
Amounts are base units. A key that is left out has its default here.

Not here: explaining (`partition_worker/engine/placement_explanation.py`), building these objects and hiding what a
viewer may not see (`partition_worker/placement_views.py`).
"""

from typing import Literal

from msgspec import field

from yunishard.common.messages.kinds import Resources
from yunishard.common.rest.views import FilterView, TemplateView, View

PlacementOutcome = Literal["accepted", "rejected", "unknown"]
RuleOutcome = Literal["placed", "matched", "refused", "rejected", "no-match", "not-tried"]


class PlacementCheckView(View, frozen=True, kw_only=True):
    """One check of a rule, in the order of the rule."""

    code: str
    """The reason that applies if it did not pass."""
    passed: bool
    text: str
    queue: str = ""
    """The queue that was checked."""


class PlacementRuleView(View, frozen=True, kw_only=True):
    """One placement rule, and what it does with the submission."""

    name: str
    parameters: dict[str, str] = field(default_factory=dict)
    filter: FilterView | None = None
    outcome: RuleOutcome
    """`placed`: it decides. `matched`: a parent rule that gives a queue. `refused`: the queue that it gives does not
    take the application, so the next rule is tried. `rejected`: it rejects the application, and no other rule is
    tried. `no-match`: it gives no queue.
    """
    queue: str = ""
    """The queue that it gives."""
    stopped_by: str = ""
    """The code of the check that stopped it."""
    checks: list[PlacementCheckView] = field(default_factory=list)
    more_checks: int = 0
    """Checks that are left out, of a user in very many groups."""
    parent_rule: "PlacementRuleView | None" = None
    """The parent rule, if it was tried."""


class PlacementAccessView(View, frozen=True, kw_only=True):
    """The access control list that lets the user submit."""

    queue: str
    """The queue that has it."""
    acl: Literal["submitacl", "adminacl"]
    entry: str
    """`*`, `user NAME` or `group NAME`."""


class PlacementTemplateView(TemplateView, frozen=True, kw_only=True):
    """The template from which the queue gets its settings."""

    queue: str
    """The highest queue that passes it on."""


class PlacementLimitView(View, frozen=True, kw_only=True):
    """A limit that would apply to the application: of a queue, or of its user or group in a queue."""

    queue: str
    user: str = ""
    group: str = ""
    maximum: Resources | None = None
    """A type that is missing is unlimited; none is no maximum."""
    guaranteed: Resources = field(default_factory=dict)
    used: Resources = field(default_factory=dict)
    max_applications: int = 0
    """Applications that may run at once; 0 is unlimited."""
    running_applications: int = 0


class PlacementExplanationView(View, frozen=True, kw_only=True):
    """Where an application would be placed, or why it would be rejected."""

    kind: Literal["placement"]
    name: str
    """The user."""
    state: PlacementOutcome
    """`unknown`: the groups of the user have to be looked up first."""
    summary: str
    """One sentence."""
    stopped_by: str = ""
    """The reason code of the rejection."""
    message: str = ""
    """The message that the RM would receive with the rejection."""
    groups: list[str] = field(default_factory=list)
    """The groups that count: those given, or those that were looked up."""
    queue: str = ""
    """The queue of the application."""
    rule: int = 0
    """The number of the rule that decides, from 1; 0 if none does."""
    rules: list[PlacementRuleView] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    """Queues that would be created, the highest first."""
    access: PlacementAccessView | None = None
    template: PlacementTemplateView | None = None
    """Of a queue that placement created or would create."""
    limits: list[PlacementLimitView] = field(default_factory=list)
    """From the leaf up; those of the user and the group after those of the queues."""
    checks: list[PlacementCheckView] = field(default_factory=list)
    """The limits of running applications, and whether they let the application start now. Codes are those of
    `common/messages/reasons.py`.
    """
    problems: list[str] = field(default_factory=list)
    """Tags that cannot be parsed and set nothing."""
