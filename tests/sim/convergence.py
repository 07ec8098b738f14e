"""What must be so once the faults are over: everything has come to rest, and everybody says the same.

    the RM's books == the books of its worker == the books that its journal leads to
    every partition of an RM runs the configuration that the RM believes in, and the broker
    nothing waits for an acknowledgement; `check` finds nothing; what fits has been placed

Not here: what may be heard on the way there (`auditor.py`).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from common.journal_messages import Append
from common.resources import drop_zeros, fits
from common.wire import decode_body
from partition_worker.engine.application import ACTIVE, Application, AppState
from partition_worker.engine.partition import Partition
from partition_worker.worker import Worker
from tests.invariants import find_violations
from tests.recorded import snapshot
from tests.sim.auditor import Violation
from tests.sim.rm import ResourceManager
from tests.sim.roles import recovered
from tests.sim.site import HOLDING, Phase, Site

if TYPE_CHECKING:
    from tests.sim.world import World


def unrest(world: "World") -> list[str]:
    """What is still under way; nothing, if the world is at rest."""
    return list(_unrest(world))


def who(world: "World") -> tuple[str, ...]:
    """Whom the unrest is about, for the story."""
    return tuple(rm.rm_id for rm in world.rms.values() if not rm.quiet)


def _unrest(world: "World") -> Iterator[str]:
    if world.keeper is None or not world.keeper.ready:
        yield "the supervisor has not started everybody"
    for process in world.processes:
        if process.stopped or (process.machine is None and not process.name.startswith("partition_worker spare")):
            yield f"{process.name} does not run"
    for rm in world.rms.values():
        if not rm.quiet:
            yield f"{rm.rm_id} is {rm.session.state} and has something to do"
            continue
        repeated = rm.session.retransmissions()
        for site in rm.cluster.sites.values():
            if site.dying:
                continue
            if site.syncing or any(pod.phase in (Phase.LEAVING, Phase.RELEASING) for pod in site.pods.values()):
                yield f"{site.partition} is changing"
            if any(one.header.partition == site.partition for one in repeated):
                yield f"{site.partition} has commands without an acknowledgement"
            worker = worker_of(world, site.partition)
            if worker is None or worker.partition is None:
                yield f"{site.partition} has no worker"
            elif len(worker.host.channel.outbox) or not worker.partition.idle:
                waiting = len(worker.host.channel.outbox)
                yield f"{site.partition}: {waiting} news on their way, idle: {worker.partition.idle}"


def worker_of(world: "World", partition: str) -> Worker | None:
    """The worker that has the lease, if it runs."""
    switch = world.switch
    seat = switch.registry.slots.get(partition) if switch is not None else None
    if seat is None:
        return None
    process = next((one for one in world.workers() if one.peer == seat.worker), None)
    return world.roles.workers.get(seat.worker) if process is not None else None


def check(world: "World") -> None:
    """Raises Violation for what is not as it should be."""
    for rm in world.rms.values():
        for site in rm.cluster.sites.values():
            if site.dying:
                continue
            worker = worker_of(world, site.partition)
            assert worker is not None
            for problem in _problems(world, rm, site, worker):
                raise Violation("the books differ", f"{site.partition}: {problem}", _names(site.partition, problem))


def _names(partition: str, problem: str) -> tuple[str, ...]:
    return (partition, *(word for word in problem.replace(":", " ").split() if word[-1:].isdigit()))


def _problems(world: "World", rm: ResourceManager, site: Site, worker: Worker) -> Iterator[str]:
    partition = worker.partition
    assert partition is not None
    yield from find_violations(partition)
    yield from _configuration(world, rm, site, partition)
    yield from _nodes(site, partition)
    yield from _applications(site, partition)
    yield from _pods(site, partition)
    yield from _placed(rm, site, partition)
    yield from _journal(world, site, worker)


def _configuration(world: "World", rm: ResourceManager, site: Site, partition: Partition) -> Iterator[str]:
    assert world.switch is not None
    registration = world.switch.registry.sessions.get(rm.rm_id)
    if registration is None or registration.session != rm.session.session:
        yield "the broker has another session"
        return
    recorded = world.record.ever_recorded()
    for checksum in world.auditor.configurations.get(rm.rm_id, {}):
        if checksum not in recorded:
            yield f"the RM was told of configuration {checksum[:8]}, which is not in the record"
    if registration.checksum != rm.checksum:
        yield f"the RM believes in configuration {rm.checksum[:8]}, the broker in {registration.checksum[:8]}"
    if registration.configs.get(site.partition) != partition.config:
        yield "it does not run the configuration that the broker has"
    if sorted(registration.configs) != sorted(rm.session.partitions):
        yield f"the RM has the partitions {rm.session.partitions}, the broker {sorted(registration.configs)}"


def _nodes(site: Site, partition: Partition) -> Iterator[str]:
    ours = {name: node for name, node in site.nodes.items() if not node.gone}
    theirs = {node.node_id: node for node in partition.nodes}
    if sorted(ours) != sorted(theirs):
        yield f"nodes {sorted(ours)} and {sorted(theirs)}"
        return
    for name, node in ours.items():
        if drop_zeros(node.capacity) != drop_zeros(theirs[name].capacity):
            yield f"node {name} has {node.capacity} and {theirs[name].capacity}"
        if node.schedulable != theirs[name].schedulable:
            yield f"node {name} is schedulable: {node.schedulable} and {theirs[name].schedulable}"
        if sorted(node.foreign) != sorted(theirs[name].foreign):
            yield f"node {name} has foreign {sorted(node.foreign)} and {sorted(theirs[name].foreign)}"


def _applications(site: Site, partition: Partition) -> Iterator[str]:
    ours = {name for name, one in site.applications.items() if one.state not in ("Failing",)}
    theirs = {name for name, one in partition.applications.items() if one.state is not AppState.FAILING}
    if ours != theirs:
        yield f"applications: only the RM has {sorted(ours - theirs)}, only the worker {sorted(theirs - ours)}"
    for name in sorted(ours & theirs):
        told, state = site.applications[name].state, partition.applications[name].state
        if told not in ("sent", "accepted", "reported") and told != state:
            yield f"application {name} is {told} and {state}"


def _pods(site: Site, partition: Partition) -> Iterator[str]:
    placed: dict[str, str] = {}
    asked: list[str] = []
    for application in partition.applications.values():
        placed.update((key, one.node_id) for key, one in application.allocations.items())
        asked += [*application.requests, *application.swapping]
    ours = {pod.key: pod.node for pod in site.pods.values() if pod.phase in HOLDING}
    if ours != placed:
        only = {key: node for key, node in ours.items() if placed.get(key) != node}
        other = {key: node for key, node in placed.items() if ours.get(key) != node}
        yield f"allocations: the RM has {only}, the worker {other}"
    waiting = sorted(pod.key for pod in site.pods.values() if pod.phase is Phase.ASKED)
    if waiting != sorted(asked):
        only_ours = sorted(set(waiting) - set(asked))
        yield f"asks: only the RM has {only_ours}, only the worker {sorted(set(asked) - set(waiting))}"


def _placed(rm: ResourceManager, site: Site, partition: Partition) -> Iterator[str]:
    """What fits somewhere, and into its queues, has been placed."""
    if rm.cluster.predicates:
        return
    for application in partition.applications.values():
        if application.state in (AppState.ACCEPTED, *ACTIVE):
            yield from _waiting(application, partition)


def _waiting(application: Application, partition: Partition) -> Iterator[str]:
    for key, ask in application.requests.items():
        if (ask.task_group and not ask.placeholder) or not application.queue.has_room(ask.shape.amounts):
            continue
        for node in partition.nodes:
            if node.schedulable and not node.reservations and fits(node.available, ask.resources):
                yield f"ask {key} waits although node {node.node_id} has room"


def _journal(world: "World", site: Site, worker: Worker) -> Iterator[str]:
    """What the journal leads to is what the worker has."""
    assert worker.barrier is not None
    appended = [decode_body(Append, one.body) for one in worker.barrier.flush()]
    lazy = [step for one in appended for step in one.steps]
    again = recovered(world, site.partition, worker.host.epoch, lazy)
    if again.partition is None or worker.partition is None:
        yield "the journal leads to nothing"
        return
    for problem in find_violations(again.partition):
        yield f"after a recovery: {problem}"
    host, other = worker.host, again.host
    for name in ("rollout", "prepared", "retiring", "settings", "capabilities"):
        if getattr(host, name) != getattr(other, name):
            yield f"after a recovery, {name} is {getattr(other, name)} and was {getattr(host, name)}"
    lanes = [(one.session, one.life, one.received, one.outbox.last) for one in (host.channel, other.channel)]
    if lanes[0] != lanes[1]:
        yield f"the journal leads to other numbers: {lanes}"
    mine, its = snapshot(worker.partition), snapshot(again.partition)
    for key in {**mine, **its}:
        if mine.get(key) != its.get(key):
            yield f"after a recovery, {key} is {its.get(key)} and was {mine.get(key)}"
