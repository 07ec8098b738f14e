"""Preemptions as the REST API shows them. YuniKorn shows none, so the keys are ours, in its manner: nanoseconds since
the epoch, base units.

Not here: filling them (`partition_worker/answers/preemption_views.py`).
"""

from msgspec import field

from common.messages import Resources
from common.rest.partition import View


class VictimView(View, frozen=True, kw_only=True):
    """An allocation that had to go."""

    allocation_key: str
    application_id: str = field(name="applicationID")
    queue_name: str
    node_id: str = field(name="nodeID")
    resource: Resources
    ran_seconds: int


class PreemptionView(View, frozen=True, kw_only=True):
    """One entry of `/preemptions`."""

    time: int
    kind: str
    """`guaranteed`, `required-node` or `quota`."""
    queue_name: str
    application_id: str = field(name="applicationID", default="")
    allocation_key: str = ""
    """Of the ask for which it was done; this, its application and its node are left out for a quota."""
    node_id: str = field(name="nodeID", default="")
    victim_count: int
    victims: list[VictimView]
    """The first of them."""
    resource: Resources
    lost: Resources
    """Amount times seconds."""
