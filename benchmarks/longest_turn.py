"""The longest turn of a worker, whatever waits in its partition.

A turn is one piece of work of the worker's machine: while it lasts, no message is read and no heartbeat is sent. Each
scenario prepares a large partition with messages of at most MESSAGE items, and then measures all turns of an input.

The machine runs in this process, without a journal. The best of all rounds counts: other work of the machine makes a
turn longer, never shorter.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from benchmarks.calibration import as_in_a_worker, calibrated
from benchmarks.local_worker import LocalWorker
from benchmarks.results import Figure, Plan
from benchmarks.shapes import HUGE, ONE, application, batches, cluster, configuration, nearly_full, release
from yunishard.common.messages.query_messages import Query
from yunishard.common.messages.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
)

MESSAGE: Final = 200
"""Items of a message."""

APPLICATIONS: Final = 50_000
LEAVES: Final = 20
NODES: Final = 100_000
NEW_ASKS: Final = 5_000
"""Asks that come to a cluster of so many nodes."""

PENDING: Final = 1_000_000
"""Pending asks: one half of one application, the other of 50,000."""

RELEASED: Final = 100
"""Seconds of a round with so many asks; in each, an allocation ends and outstanding asks are reported."""

LISTED: Final = 100_000
"""Asks of an application that is queried."""

ALLOCATIONS: Final = 400_000


STEPS_MIN: Final = 1_500
"""Steps of the calibration loop, about 6 ms: shorter turns are short enough, and vary too much to be compared."""


class Turns(NamedTuple):
    """The turns of one round."""

    longest_s: float
    whole_s: float
    step_s: float
    """Processor time of a step of the calibration loop."""


Scenario = Callable[[Plan], Iterator[Turns]]


def figures(plan: Plan) -> Iterator[Figure]:
    """For each scenario the longest turn, and the processor time of all turns together."""
    for name, scenario in SCENARIOS.items():
        with as_in_a_worker():
            best = min(scenario(plan), key=lambda turns: turns.longest_s / turns.step_s)
        cost = max(best.longest_s / best.step_s, STEPS_MIN)
        yield Figure(f"longest-turn/{name}", best.longest_s * 1000, "ms", cost)
        yield Figure(f"longest-turn/{name}/all turns", best.whole_s * 1000, "ms")


def _measure(worker: LocalWorker, work: Callable[[], object]) -> Turns:
    """Measure the turns of this work."""
    worker.pieces.clear()
    _, step_s = calibrated(work)
    return Turns(max(worker.pieces), sum(worker.pieces), step_s)


# Scenarios ------------------------------------------------------------------------------------------------------------


def _reload(plan: Plan) -> Iterator[Turns]:
    """Give queues another maximum while many applications wait for room in the cluster."""
    worker = _start([{}])
    _submit(worker, plan.scaled(APPLICATIONS), {"memory": 2 * ONE["memory"], "vcore": ONE["vcore"]})
    for number in range(plan.rounds):
        yield _measure(worker, partial(worker.reconfigure, _configuration(10**6 + number)))


def _ask_elsewhere(plan: Plan) -> Iterator[Turns]:
    """The same, until an ask of another queue that came with it has its node."""
    worker = _start([ONE] * plan.rounds)
    _submit(worker, plan.scaled(APPLICATIONS), {"memory": 2 * ONE["memory"], "vcore": ONE["vcore"]})
    worker.order(ApplicationRequest(new=[application("elsewhere", "root.elsewhere")]))
    for number in range(plan.rounds):
        ask = Allocation(f"elsewhere-{number}", "elsewhere", resource_per_alloc=ONE)

        yield _measure(worker, partial(_change, worker, _configuration(10**6 + number), ask))
        assert worker.partition.running_allocations == number + 1
        worker.settle()


def _change(worker: LocalWorker, text: str, ask: Allocation) -> None:
    running = worker.partition.running_allocations
    worker.reconfigure(text, settles=False)
    worker.order(AllocationRequest(allocations=[ask]), settles=False)
    worker.settle(until=lambda: worker.partition.running_allocations > running)


def _reload_policies(plan: Plan) -> Iterator[Turns]:
    """Sort the applications of all queues by another policy while they wait."""
    worker = _start([{}])
    _submit(worker, plan.scaled(APPLICATIONS), {"memory": 2 * ONE["memory"], "vcore": ONE["vcore"]})
    for number in range(plan.rounds):
        text = _configuration(10**6, sort=("fair", "fifo")[number % 2])
        yield _measure(worker, partial(worker.reconfigure, text))


def _first_decision(plan: Plan) -> Iterator[Turns]:
    """Report the first node after many applications have come."""
    for _ in range(plan.rounds):
        worker = LocalWorker(_configuration(10**6))
        _submit(worker, plan.scaled(APPLICATIONS), ONE)
        yield _measure(worker, partial(worker.order, NodeRequest(nodes=cluster(1, [ONE]))))


def _full_nodes(plan: Plan) -> Iterator[Turns]:
    """Place asks in a large cluster that is 98 % full."""
    workload = nearly_full(plan.scaled(NODES), plan.scaled(NEW_ASKS))
    worker = LocalWorker(workload.config)
    _report(worker, workload.nodes)
    _apply(worker, workload.applications, iter(workload.before))
    yield _measure(worker, partial(_apply, worker, [], iter(workload.asks)))


def _pending(plan: Plan) -> Iterator[Turns]:
    """Release an allocation in each second while very many asks wait, and report them all as outstanding."""
    count, running = plan.scaled(PENDING), plan.rounds * RELEASED
    worker = _start([{kind: amount * running for kind, amount in ONE.items()}], maximum=10**9)
    names = [f"app-{n}" for n in range(max(1, count // 20))]
    applications = [application(name, f"root.q{n % LEAVES}") for n, name in enumerate(names)]
    asks = chain(
        (Allocation(f"k-{n}", names[n % len(names)], resource_per_alloc=ONE) for n in range(count // 2)),
        (Allocation(f"l-{n}", "large", resource_per_alloc=ONE) for n in range(count // 2)),
    )
    _apply(worker, [application("large", "root.q0"), *applications], asks)
    ends = [release(ask.application_id, key) for key, ask in worker.partition.allocations.items() if ask.node_id]

    for _ in range(plan.rounds):
        yield _measure(worker, partial(_release_each_second, worker, [ends.pop() for _ in range(RELEASED)]))


def _release_each_second(worker: LocalWorker, ends: list[AllocationRelease]) -> None:
    for end in ends:
        worker.order(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=[end])))
        for _ in range(2):
            worker.now += 0.5
            worker.settle()


def _query(plan: Plan) -> Iterator[Turns]:
    """Answer a query for an application with very many asks."""
    worker = _start([{}])
    asks = (Allocation(f"k-{n}", "large", resource_per_alloc=HUGE) for n in range(plan.scaled(LISTED)))
    _apply(worker, [application("large", "root.q0")], asks)
    query = Query(what="application", name="default", args={"application": "large"})
    for _ in range(plan.rounds):
        yield _measure(worker, lambda: worker.answer(query))


def _collect(plan: Plan) -> Iterator[Turns]:
    """Place so many asks that the garbage collector runs often."""
    count = plan.scaled(ALLOCATIONS)
    worker = _start([{kind: amount * count for kind, amount in ONE.items()}], maximum=10**9)
    applications = [application(f"app-{n}", f"root.q{n % LEAVES}") for n in range(100)]
    worker.order(ApplicationRequest(new=applications))
    asks = (Allocation(f"k-{n}", f"app-{n % 100}", resource_per_alloc=ONE) for n in range(count))

    def allocate() -> None:
        for some in _split(asks):
            worker.order(AllocationRequest(allocations=some))

    yield _measure(worker, allocate)
    assert worker.partition.running_allocations == count


SCENARIOS: Final[dict[str, Scenario]] = {
    "reload, 50,000 applications wait": _reload,
    "reload, an ask elsewhere": _ask_elsewhere,
    "reload of the sort policies, 50,000 applications wait": _reload_policies,
    "50,000 applications before the first decision": _first_decision,
    "100,000 nodes, 98 % full": _full_nodes,
    "1,000,000 pending asks": _pending,
    "GET of an application with 100,000 asks": _query,
    "400,000 allocations": _collect,
}


# Parts of them --------------------------------------------------------------------------------------------------------


def _configuration(maximum: int, *, sort: str = "fifo") -> str:
    """Queues of which each has this maximum and this sort policy."""
    leaves = "".join(
        f"      - name: q{n}\n"
        f"        properties: {{application.sort.policy: {sort}}}\n"
        f"        resources: {{max: {{memory: {maximum}}}}}\n"
        for n in range(LEAVES)
    )
    return configuration(leaves + "      - name: elsewhere\n")


def _start(sizes: list[dict[str, int]], *, maximum: int = 10**6) -> LocalWorker:
    """A worker with a node of each of these sizes."""
    worker = LocalWorker(_configuration(maximum))
    _report(worker, cluster(len(sizes), [size or ONE for size in sizes]))
    return worker


def _report(worker: LocalWorker, nodes: list[NodeInfo]) -> None:
    for some in batches(nodes, MESSAGE):
        worker.order(NodeRequest(nodes=list(some)))


def _submit(worker: LocalWorker, count: int, amounts: dict[str, int]) -> None:
    """Submit applications with an ask each."""
    applications = [application(f"app-{n}", f"root.q{n % LEAVES}") for n in range(count)]
    _apply(worker, applications, (Allocation(f"k-{n}", f"app-{n}", resource_per_alloc=amounts) for n in range(count)))


def _apply(worker: LocalWorker, applications: list[AddApplicationRequest], asks: Iterator[Allocation]) -> None:
    for some in batches(applications, MESSAGE):
        worker.order(ApplicationRequest(new=list(some)), settles=False)
    for asked in _split(asks):
        worker.order(AllocationRequest(allocations=asked), settles=False)
    worker.settle()


def _split(asks: Iterator[Allocation]) -> Iterator[list[Allocation]]:
    while some := [ask for _, ask in zip(range(MESSAGE), asks, strict=False)]:
        yield some
