"""Filling the views of preemptions from the ledger.

Not here: what an entry means (`engine/preemptions.py`), and the other views (`common/rest/`, `sights.py`).
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from common.resources import saturated
from common.rest_views import PreemptionView, VictimView
from partition_worker.engine.preemption_log import ENTRIES_MAX, Preemption, Victim

_LAST_NS: Final = 2**63 - 1
_LAST_NUMBER: Final = ENTRIES_MAX
"""Of the entries of one moment."""


def by_moment(entries: Iterable[Preemption]) -> dict[str, Preemption]:
    """The entries, the newest first, each by a key that sorts so: the newest have the smallest.

    Those of one moment are numbered from the oldest, so that newer ones change no key.
    """
    numbers = Counter[int]()
    keyed: list[tuple[str, Preemption]] = []
    for entry in reversed(tuple(entries)):
        at_ns = int(entry.at * 1e9)
        keyed.append((f"{_LAST_NS - at_ns:019d}-{_LAST_NUMBER - numbers[at_ns]:04d}", entry))
        numbers[at_ns] += 1
    return dict(reversed(keyed))


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
