"""REST objects of explanations: why an ask, an application, a queue or a node waits, and what would help.

Codes are those of `common/messages/reasons.py`. Amounts are base units, times Unix nanoseconds. Texts are for users, in
the units of `common/units.py`. A key that is left out has its default here.

Not here: making explanations (`partition_worker/engine/explain/`), hiding what a viewer may not see
(`partition_worker/explanations.py`).
"""

from typing import Literal

from msgspec import field

from yunishard.common.messages.kinds import Resources
from yunishard.common.rest.views import View

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
