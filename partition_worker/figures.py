"""The partition's metrics as samples: the reference's names, labels and meanings.

A document is a JSON list of families; the front end sums those of all partitions and renders them. Not here: figures of
processes.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

from msgspec import Struct
from msgspec.json import Encoder

from partition_worker.engine.applications.states import AppState
from partition_worker.engine.partition import Partition

Sample = tuple[tuple[str, ...], float]
"""Label values, in the order of the family's labels, and the number."""

_encoder: Final = Encoder()
_LIVE: Final = (
    AppState.NEW,
    AppState.ACCEPTED,
    AppState.RUNNING,
    AppState.RESUMING,
    AppState.FAILING,
    AppState.COMPLETING,
)


class Family(Struct, frozen=True):
    """Samples of one name."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...]
    samples: list[Sample]


def document(partition: Partition) -> bytes:
    """All families of the partition, as JSON."""
    return _encoder.encode([*_scheduler(partition), *_queues(partition)])


def _scheduler(partition: Partition) -> Iterable[Family]:
    counters = partition.counters
    yield Family(
        "yunikorn_scheduler_container_allocation_attempt_total",
        "counter",
        "Allocations announced to and releases confirmed for resource managers, asks refused, and internal errors.",
        ("state",),
        [
            (("allocated",), counters.allocated),
            (("released",), counters.released),
            (("rejected",), counters.rejected),
            (("error",), counters.errors),
        ],
    )
    yield Family(
        "yunikorn_scheduler_application_submission_total",
        "counter",
        "Applications put into a queue (new), that got their first ask (accepted), or were refused (rejected).",
        ("result",),
        [
            (("new",), counters.submitted - counters.refused),
            (("accepted",), counters.accepted),
            (("rejected",), counters.refused),
        ],
    )
    states = Counter(application.state for application in partition.applications.values())
    live = (AppState.RUNNING, AppState.RESUMING, AppState.FAILING, AppState.COMPLETING)
    yield Family(
        "yunikorn_scheduler_application_total",
        "gauge",
        "Applications in this state now; completed and failed ones only ever add up.",
        ("state",),
        [
            *(((state.lower(),), states[state]) for state in live),
            (("completed",), counters.completed),
            (("failed",), counters.failed),
        ],
    )
    yield Family(
        "yunikorn_scheduler_node",
        "gauge",
        "Registered nodes (active), those that take nothing new (draining), and how many have left (decommissioned).",
        ("state",),
        [
            (("active",), len(partition.fleet)),
            (("draining",), sum(not node.schedulable for node in partition.fleet)),
            (("decommissioned",), counters.decommissioned),
        ],
    )


def _queues(partition: Partition) -> Iterable[Family]:
    applications: list[Sample] = []
    resources: list[Sample] = []
    for queue in partition.tree:
        states = Counter(application.state for application in queue.applications.values())
        applications += [((queue.path, state.lower()), states[state]) for state in _LIVE if states[state]]
        for state, amounts in (
            ("guaranteed", queue.guaranteed or {}),
            ("max", queue.maximum or {}),
            ("allocated", queue.allocated),
            ("pending", queue.pending),
        ):
            resources += [((queue.path, state, kind), amount) for kind, amount in sorted(amounts.items())]
        if queue.max_applications:
            resources.append(((queue.path, "maxRunningApps", "apps"), queue.max_applications))
    yield Family(
        "yunikorn_queue_app", "gauge", "Applications of the queue itself, by state.", ("queue", "state"), applications
    )
    yield Family(
        "yunikorn_queue_resource",
        "gauge",
        "What the queue is guaranteed, may use at most, uses and waits for; quantities in base units.",
        ("queue", "state", "resource"),
        resources,
    )
