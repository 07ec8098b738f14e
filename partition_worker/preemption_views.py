"""Preemptions as the REST API shows them, and how they are filled from the ledger. YuniKorn shows none, so the keys are
ours, in its manner: nanoseconds since the epoch, base units.

Not here: what an entry means (`engine/preemptions.py`), and the other views (`views.py`, `sights.py`).
"""

from msgspec import field

from common.messages import Resources
from common.resources import saturated
from common.rest.partition import View
from partition_worker.engine.preemptions import Preemption, Victim


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


def preemption(entry: Preemption) -> PreemptionView:
    """An entry with its victims."""
    return PreemptionView(
        time=int(entry.at * 1e9),
        kind=entry.kind,
        queue_name=entry.queue,
        application_id=entry.application_id,
        allocation_key=entry.ask_key,
        node_id=entry.node_id,
        victim_count=entry.victim_count,
        victims=[_victim(one) for one in entry.victims],
        resource=saturated(entry.resources),
        lost=saturated(entry.lost),
    )


def _victim(victim: Victim) -> VictimView:
    return VictimView(
        allocation_key=victim.key,
        application_id=victim.application_id,
        queue_name=victim.queue,
        node_id=victim.node_id,
        resource=saturated(victim.resources),
        ran_seconds=victim.ran_s,
    )
