"""The shapes of work that are measured, as data: a configuration, a cluster, and what is asked of it.

Every path is given the same shape: the engine alone, the native protocol, the scheduler interface, and the reference. A
shape is made for any number of nodes and asks, always the same for the same numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    STOPPED_BY_RM,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    NodeInfo,
    UserGroupInformation,
)

BATCH: Final = 5_000
"""Asks in one message."""

RELEASED_AT_ONCE: Final = 500
"""Allocations that end together where the cluster is full and others wait."""

ONE: Final[Resources] = {"memory": 10, "vcore": 1000}
"""Resources of an ask where all asks are equal."""

HUGE: Final[Resources] = {"memory": 10**9, "vcore": 10**9}
"""More than any node has."""

LOAD: Final = "load"
"""The application that keeps the scheduler busy while latencies are measured."""

FREE_SHARE: Final = 50
"""A nearly full cluster has one part in so many free: 2 %."""

OPEN_NODES: Final = 10
"""Of a nearly full cluster one node in so many has room; all others are full but for crumbs."""

OPEN_ROOM: Final = 100
"""For so many asks on average, at least."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload: its cluster, the asks before the measurement, and the timed asks."""

    config: str
    nodes: list[NodeInfo]
    applications: list[AddApplicationRequest]
    before: list[Allocation] = field(default_factory=list)
    """Asks that come before the clock starts; with a node, what runs there already."""
    running: int = 0
    """How many of those run; the others stay pending, permanently or until a release."""
    asks: list[Allocation] = field(default_factory=list)
    """The timed asks: all of them run in the end."""
    released: int = 0
    """Without timed asks: the number of allocations to release; each release lets a pending ask run."""

    @property
    def timed(self) -> int:
        """Allocations that are made while the clock runs."""
        return len(self.asks) or self.released


def batches(items: Sequence[T], size: int = BATCH) -> Iterator[Sequence[T]]:
    """Pieces of at most this many."""
    return (items[first : first + size] for first in range(0, len(items), size))


# The shapes -----------------------------------------------------------------------------------------------------------


def two_queues(nodes: int, asks: int, *, sorting: str = "fair") -> Workload:
    """Two queues with an application each, which ask for the same; the nodes have room for all."""
    queues = "".join(_leaf(name, {"memory": memory, "vcore": 10_000}) for name, memory in (("a", 10**5), ("b", 10**6)))
    half = asks // 2
    return Workload(
        config=configuration(queues, sorting=sorting),
        nodes=cluster(nodes, [_room(ONE, nodes, asks)]),
        applications=[application("app-a", "root.a"), application("app-b", "root.b")],
        asks=[
            Allocation(f"{'ab'[n >= half]}-{n}", f"app-{'ab'[n >= half]}", resource_per_alloc=ONE) for n in range(asks)
        ],
    )


def many_queues(nodes: int, asks: int) -> Workload:
    """500 leaves below 50 parents, with an application each."""
    text = ""
    for parent in range(50):
        text += f"      - name: p{parent}\n        queues:\n"
        text += "".join(_leaf(f"q{leaf}", {"memory": 100 + leaf, "vcore": 10 + leaf}, depth=1) for leaf in range(10))
    return Workload(
        config=configuration(text),
        nodes=cluster(nodes, [_room(ONE, nodes, asks)]),
        applications=[application(f"app-{n}", f"root.p{n % 50}.q{n // 50}", user=f"u{n % 50}") for n in range(500)],
        asks=[Allocation(f"k-{n}", f"app-{n % 500}", resource_per_alloc=ONE) for n in range(asks)],
    )


def many_apps(nodes: int, asks: int) -> Workload:
    """A thousand applications in one leaf, of which the one with the smallest share is next."""
    return Workload(
        config=configuration("      - name: a\n        properties: {application.sort.policy: fair}\n"),
        nodes=cluster(nodes, [_room(ONE, nodes, asks)]),
        applications=[application(f"app-{n}", "root.a", user=f"u{n % 20}") for n in range(1000)],
        asks=[Allocation(f"k-{n}", f"app-{n % 1000}", resource_per_alloc=ONE) for n in range(asks)],
    )


def mixed(nodes: int, asks: int) -> Workload:
    """200 applications of 30 users in 20 queues, asks of twelve sizes and five priorities, nodes of three sizes, which
    are filled one after the other.
    """
    middle = {"memory": 30, "vcore": 3000}
    sizes = [_room(_times(middle, factor), nodes, asks, spare=4) for factor in (1, 2, 3)]
    needs = [{"memory": 5 * (1 + n % 4), "vcore": 1000 * (1 + n // 4)} for n in range(12)]
    queues = "".join(_leaf(f"q{n}", {"memory": 1000 * (n + 1), "vcore": 100 * (n + 1)}) for n in range(20))
    return Workload(
        config=configuration(queues, sorting="binpacking"),
        nodes=cluster(nodes, sizes),
        applications=[application(f"app-{n}", f"root.q{n % 20}", user=f"u{n % 30}") for n in range(200)],
        asks=[
            Allocation(f"k-{n}", f"app-{n % 200}", resource_per_alloc=needs[n * 7 % 12], priority=n % 5)
            for n in range(asks)
        ],
    )


def backlog(nodes: int, asks: int) -> Workload:
    """As many asks that fit nowhere wait already, those of 50 applications."""
    return Workload(
        config=configuration("      - name: a\n      - name: b\n"),
        nodes=cluster(nodes, [_room(ONE, nodes, asks)]),
        applications=[*(application(f"huge-{n}", "root.a") for n in range(50)), application("app", "root.b")],
        before=[Allocation(f"h-{n}", f"huge-{n % 50}", resource_per_alloc=HUGE) for n in range(asks)],
        asks=[Allocation(f"k-{n}", "app", resource_per_alloc=ONE) for n in range(asks)],
    )


def churn(nodes: int, asks: int) -> Workload:
    """A full cluster of five allocations for each node, and asks that wait; what ends lets them in."""
    slots = 5 * nodes
    return Workload(
        config=configuration("      - name: a\n      - name: b\n"),
        nodes=cluster(nodes, [_times(ONE, 5)]),
        applications=[application(f"app-{leaf}-{n}", f"root.{leaf}") for leaf in "ab" for n in range(20)],
        before=[
            Allocation(f"k-{n}", f"app-{'ab'[n % 2]}-{n // 2 % 20}", resource_per_alloc=ONE)
            for n in range(slots + asks)
        ],
        running=slots,
        released=asks,
    )


def latency(nodes: int, asks: int) -> Workload:
    """An application that asks for one at a time, and another one with the load beside it."""
    return Workload(
        config=configuration("      - name: a\n      - name: b\n"),
        nodes=cluster(nodes, [_room(ONE, nodes, asks)]),
        applications=[application("app", "root.a"), application(LOAD, "root.b", user="bob")],
        asks=[Allocation(f"k-{n}", "app", resource_per_alloc=ONE) for n in range(asks)],
    )


def nearly_full(nodes: int, asks: int, *, sorting: str = "fair") -> Workload:
    """Two queues as above in a cluster that is 98 % full, with nodes of three sizes.

    One node in ten has room, for different numbers of asks. All others are full but for crumbs: memory for many asks
    but cores for none, or the other way round. So a linear search examines many nodes without success.

    Nodes are the same however many there are: where they are many there is room for more asks than come.
    """
    opened = list(range(0, nodes, OPEN_NODES))
    shares = [1 + n % 3 for n in range(len(opened))]
    room = max(asks, OPEN_ROOM * len(opened))
    free = [share * room // sum(shares) + 1 for share in shares]
    size = max(FREE_SHARE * sum(free) // nodes, 2 * max(free) + 2)
    base = two_queues(nodes, asks, sorting=sorting)
    sizes = [size * factor // 2 for factor in (1, 2, 3)]
    fillers = []
    for n in range(nodes):
        whole = sizes[n % 3]
        left = _times(ONE, free[n // OPEN_NODES]) if n % OPEN_NODES == 0 else _crumbs(n, whole)
        need = {kind: whole * amount - left[kind] for kind, amount in ONE.items()}
        fillers.append(Allocation(f"filler-{n}", "filler", resource_per_alloc=need, node_id=_node(n)))
    return Workload(
        config=base.config,
        nodes=cluster(nodes, [_times(ONE, whole) for whole in sizes]),
        applications=[*base.applications, application("filler", "root.a")],
        before=fillers,
        running=nodes,
        asks=base.asks,
    )


def _crumbs(number: int, whole: int) -> Resources:
    """Free resources of a full node: too little of one type, some of the other."""
    some, little = whole // 400 + number % 7, number % 5 / 5
    if number % 2:
        return {"memory": some * ONE["memory"], "vcore": int(little * ONE["vcore"])}
    return {"memory": int(little * ONE["memory"]), "vcore": some * ONE["vcore"]}


SHAPES: Final[Mapping[str, Callable[[int, int], Workload]]] = {
    "two-queues": two_queues,
    "many-queues": many_queues,
    "many-apps": many_apps,
    "mixed": mixed,
    "backlog": backlog,
    "churn": churn,
}
"""Those of which the rate is measured, by name. `latency` has none."""

SORTINGS: Final = ("fair", "binpacking")


# Their parts ----------------------------------------------------------------------------------------------------------


def configuration(queues: str, *, sorting: str = "fair", names: Sequence[str] = ("default",)) -> str:
    """Partitions of these names with these queues below their roots."""
    lines = ["partitions:"]
    for name in names:
        lines += [f"  - name: {name}", f"    nodesortpolicy: {{type: {sorting}}}", "    queues:", "    - name: root"]
        lines += ['      submitacl: "*"', "      queues:", queues.rstrip("\n")]
    return "\n".join(lines) + "\n"


def cluster(nodes: int, sizes: Sequence[Resources]) -> list[NodeInfo]:
    """So many nodes, of these sizes in turn."""
    return [NodeInfo(_node(n), action=NODE_CREATE, schedulable_resource=sizes[n % len(sizes)]) for n in range(nodes)]


def _node(number: int) -> str:
    return f"node-{number}"


def _leaf(name: str, guaranteed: Resources, *, depth: int = 0) -> str:
    amounts = ", ".join(f"{kind}: {amount}" for kind, amount in guaranteed.items())
    return f"{' ' * (6 + 4 * depth)}- name: {name}\n{' ' * (8 + 4 * depth)}resources: {{guaranteed: {{{amounts}}}}}\n"


def application(application_id: str, queue: str, *, user: str = "ann") -> AddApplicationRequest:
    """An application of a user, who is the only member of a group."""
    return AddApplicationRequest(application_id, queue, ugi=UserGroupInformation(user=user, groups=[user]))


def release(application_id: str, key: str) -> AllocationRelease:
    """The end of an allocation, as the resource manager reports it."""
    return AllocationRelease(application_id=application_id, allocation_key=key, termination_type=STOPPED_BY_RM)


def _room(need: Resources, nodes: int, asks: int, *, spare: int = 1) -> Resources:
    """Of a node, so that all asks fit and some room is left."""
    return _times(need, asks // nodes + spare)


def _times(need: Resources, factor: int) -> Resources:
    return {kind: amount * factor for kind, amount in need.items()}
