"""REST objects of explanations: why an ask, an application, a queue or a node waits, and what would help;
and where a submission would be placed.

Codes are those of `common/messages/reasons.py`. Amounts are base units, times Unix nanoseconds. Texts are for users, in
the units of `common/text_formats.py`. A key that is left out has its default here.

Not here: making explanations (`partition_worker/engine/explain/`, `engine/placement_explanation.py`), hiding what a
viewer may not see (`partition_worker/explanations.py`, `placement_views.py`).
"""

from typing import Literal

from msgspec import field

from yunishard.common.messages.kinds import Resources
from yunishard.common.rest.views import FilterView, TemplateView, View

ExplainedKind = Literal["application", "ask", "queue", "node"]


class CheckView(View, frozen=True, kw_only=True):
    """One check, in the order of the scheduler."""

    code: str
    passed: bool
    text: str
    queue: str = ""
    """The queue at which it was checked."""
    user: str = ""
    group: str = ""
    node: str = ""
    resource: str = ""
    used: int = 0
    maximum: int | None = None
    asked: int = 0
    shortfall: int = 0
    """How much of the resource, or how many applications, are missing; 0 if it passed."""


class AheadView(View, frozen=True, kw_only=True):
    """A queue or an application whose asks are tried before."""

    application: str = ""
    queue: str = ""
    user: str = ""
    text: str


class NearMissView(View, frozen=True, kw_only=True):
    """A node that almost takes the ask."""

    node: str
    code: str
    text: str
    resource: str = ""
    """The type that it lacks most of; empty if it has room and refuses for another reason."""
    shortfall: int = 0


class ReservationView(View, frozen=True, kw_only=True):
    """A node that is reserved for an ask."""

    node: str
    application: str = ""
    """The application of the ask; empty if the viewer may not see it."""
    ask: str = ""
    """The key of the ask; empty as above."""
    until: int = 0
    """When the reservation ends at the latest."""
    text: str


class ChangeView(View, frozen=True, kw_only=True):
    """One change of a remedy."""

    code: str
    queue: str = ""
    user: str = ""
    group: str = ""
    node: str = ""
    application: str = ""
    allocation: str = ""
    amounts: Resources = field(default_factory=dict)
    """The amounts to add, or the size of a new node."""
    attributes: dict[str, str] = field(default_factory=dict)
    """The attributes that a new node needs."""
    applications: int = 0
    """The number of running applications to add."""
    seconds: float = 0.0
    """How long to wait."""


class RemedyView(View, frozen=True, kw_only=True):
    """Changes after which the ask would run. Those that are alone are also in the remedy itself."""

    code: str
    text: str
    changes: list[ChangeView] = field(default_factory=list)
    queue: str = ""
    user: str = ""
    group: str = ""
    node: str = ""
    resource: str = ""
    amount: int = 0
    application: str = ""
    seconds: float = 0.0


class ExplanationView(View, frozen=True, kw_only=True):
    """Why an object waits, or what it takes."""

    kind: ExplainedKind
    name: str
    state: str
    summary: str
    """One sentence for users."""
    since: int = 0
    """Since when it waits; 0 if it does not."""
    stopped_by: str = ""
    """The code of the check that stops it; empty if none does."""
    count: int = 0
    """The number of equal asks, for an ask."""
    checks: list[CheckView] = field(default_factory=list)
    ahead: list[AheadView] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)
    """The number of nodes by code."""
    nearest: list[NearMissView] = field(default_factory=list)
    reservations: list[ReservationView] = field(default_factory=list)
    """For an ask its own, or those of other asks that keep it from a node; for a node those of this node."""
    remedies: list[RemedyView] = field(default_factory=list)
    """The smallest first."""
    asks: list["ExplanationView"] = field(default_factory=list)
    """One for each group of equal asks, for an application."""
    reasons: dict[str, int] = field(default_factory=dict)
    """The number of waiting asks by code, for an application, a queue or a node."""


# Explained placement --------------------------------------------------------------------------------------------------
#
# The effect of a submission, rule by rule. Codes are those of `partition_worker/placement_reasons.py`.

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
