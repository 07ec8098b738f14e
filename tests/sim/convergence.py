"""What must be so once the faults are over: everything has come to rest, and everybody says the same.

    the RM's books == the books of its worker == the books that its journal leads to
    every partition of an RM runs the configuration that the RM believes in, and the broker
    nothing waits for an acknowledgement; `check` finds nothing; what fits has been placed

Not here: what may be heard on the way there (`auditor.py`).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from tests.invariants import find_violations
from tests.properties.searching import missed
from tests.sim.auditor import Violation
from tests.sim.record import read_latest_text
from tests.sim.records import WatchedWorker, compare
from tests.sim.rm import ResourceManager
from tests.sim.roles import empty_worker
from tests.sim.site import FORCED_TAG, HOLDING, Phase, Pod, Site
from yunishard.broker.config_analysis import analyze
from yunishard.common.config.model import PartitionConfig
from yunishard.common.messages.journal_messages import Append
from yunishard.common.messages.wire import decode_body
from yunishard.common.names import NODE_PARTITION
from yunishard.common.resources import drop_zeros
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.application import AppState
from yunishard.partition_worker.engine.partition import Partition

if TYPE_CHECKING:
    from tests.sim.world import World


def unrest(world: "World") -> list[str]:
    """What is still under way; nothing, if the world is at rest."""
    return list(_unrest(world))


def who(world: "World") -> tuple[str, ...]:
    """Whom the unrest is about, for the story."""
    return tuple(rm.rm_id for rm in world.rms.values() if not rm.quiet)


def _unrest(world: "World") -> Iterator[str]:
    for host in world.hosts.values():
        if host.keeper is None or not host.keeper.ready:
            yield f"the supervisor of {host.name} has not started everybody"
    if world.database is not None and not world.database.is_well:
        yield "the database fails over"
    for process in world.processes:
        if process.stopped or process.machine is None:
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
            elif worker.partition.pending_submissions.submissions:
                yield f"{site.partition} waits for groups of users"
            elif problem := _misplaced(world, site.partition):
                yield problem
            elif len(worker.host.channel.outbox) or not worker.partition.idle:
                waiting = len(worker.host.channel.outbox)
                yield f"{site.partition}: {waiting} news on their way, idle: {worker.partition.idle}"


def _misplaced(world: "World", partition: str) -> str:
    """Whether a partition is to move, or has to."""
    assert world.switch is not None
    slot, hosts = world.switch.registry.slots[partition], world.switch.state.hosts
    if slot.is_moving:
        return f"{partition} moves to {slot.host}"
    host = hosts.find(slot.host)
    if host is not None and not host.is_available and hosts.list_available():
        return f"{partition} stays on {slot.host}, which is {host.state}"
    return ""


def worker_of(world: "World", partition: str) -> WatchedWorker | None:
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


def _problems(world: "World", rm: ResourceManager, site: Site, worker: WatchedWorker) -> Iterator[str]:
    partition = worker.partition
    assert partition is not None
    yield from find_violations(partition)
    yield from _configuration(world, rm, site, partition)
    yield from _nodes(site, partition)
    yield from _applications(site, partition)
    yield from _pods(site, partition)
    yield from _placed(rm, partition)
    yield from world.changes.find_problems(site.partition, partition)
    yield from _drains(world, rm, site, partition)
    yield from _recovery(world, worker)


def _configuration(world: "World", rm: ResourceManager, site: Site, partition: Partition) -> Iterator[str]:
    assert world.switch is not None
    registration = world.switch.registry.sessions.get(rm.rm_id)
    if registration is None or registration.session != rm.session.session:
        yield "the broker has another session"
        return
    yield from world.changes.find_resurrected(rm.rm_id, rm.session_number)
    recorded = world.record.ever_recorded()
    for checksum in world.auditor.configurations.get(rm.rm_id, {}):
        if checksum not in recorded:
            yield f"the RM was told of configuration {checksum[:8]}, which is not in the record"
    if registration.checksum != rm.checksum:
        yield f"the RM believes in configuration {rm.checksum[:8]}, the broker in {registration.checksum[:8]}"
    analysis = analyze(read_latest_text(world.record.store, rm.rm_id))
    configs = world.switch.registry.by_full_name(rm.rm_id, analysis.partitions)
    config = (
        msgspec.msgpack.decode(configs[site.partition], type=PartitionConfig) if site.partition in configs else None
    )
    if config != partition.config:
        yield "it does not run the configuration that the broker has"
    if configs.keys() != registration.configs.keys():
        yield "its configuration in the record has other partitions"
    if sorted(registration.configs) != sorted(rm.session.partitions):
        yield f"the RM has the partitions {rm.session.partitions}, the broker {sorted(registration.configs)}"


def _nodes(site: Site, partition: Partition) -> Iterator[str]:
    ours = {name: node for name, node in site.nodes.items() if not node.gone}
    theirs = {node.node_id: node for node in partition.nodes}
    if sorted(ours) != sorted(theirs):
        yield f"nodes {sorted(ours)} and {sorted(theirs)}"
        return
    for name, node in ours.items():
        known = theirs[name]
        foreign = {key: one.resources for key, one in known.foreign.items()}
        yield from _compare(f"node {name}", "capacity", drop_zeros(node.capacity), drop_zeros(known.capacity))
        yield from _compare(f"node {name}", "schedulable", node.schedulable, known.schedulable)
        yield from _compare(
            f"node {name}", "attributes", {NODE_PARTITION: site.partition, **node.attributes}, known.attributes
        )
        yield from _compare(f"node {name}", "foreign", node.foreign, foreign)


def _compare(whose: str, what: str, ours: object, theirs: object) -> Iterator[str]:
    if ours != theirs:
        yield f"{whose}, {what}: {ours} and {theirs}"


def _applications(site: Site, partition: Partition) -> Iterator[str]:
    ours = {name for name, one in site.applications.items() if one.state not in ("Failing",)}
    theirs = {name for name, one in partition.applications.items() if one.state is not AppState.FAILING}
    if ours != theirs:
        yield f"applications: only the RM has {sorted(ours - theirs)}, only the worker {sorted(theirs - ours)}"
    for name in sorted(ours & theirs):
        mine, its = site.applications[name], partition.applications[name]
        if mine.state not in ("sent", "accepted", "reported"):
            yield from _compare(f"application {name}", "state", mine.state, its.state)
        wanted = mine.submission
        tags = [{key: value for key, value in one.items() if key != FORCED_TAG} for one in (wanted.tags, its.tags)]
        submitted = wanted.ugi.user, tags[0], wanted.placeholder_ask
        yield from _compare(
            f"application {name}", "submission", submitted, (its.user.name, tags[1], its.placeholder_ask)
        )
        if mine.gang:
            timeout_s = wanted.execution_timeout_milli_seconds / 1000
            yield from _compare(f"application {name}", "timeout", timeout_s, its.placeholder_timeout_s)


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
    for key in [key for key in (*placed, *asked) if key in site.pods]:
        yield from _compare(f"ask {key}", "content", _wanted(site, site.pods[key]), _known(partition.allocations[key]))


def _wanted(site: Site, pod: Pod) -> tuple[object, ...]:
    one = pod.message(site.partition)
    return (
        pod.application,
        one.resource_per_alloc,
        one.priority,
        one.placeholder,
        one.task_group_name,
        one.preemption_policy,
    )


def _known(one: Allocation) -> tuple[object, ...]:
    return one.application_id, one.resources, one.priority, one.placeholder, one.task_group, one.preemption_policy


def _placed(rm: ResourceManager, partition: Partition) -> Iterator[str]:
    """What fits somewhere, into its queues and its limits, has been placed."""
    return iter(() if rm.cluster.predicates else missed(partition))


def _drains(world: "World", rm: ResourceManager, site: Site, partition: Partition) -> Iterator[str]:
    """What ran on a node when an operator drained it has left it, unless the session has ended since."""
    marks = {mark.reason: node for node, mark in partition.nodes.cordons.items()}
    for drain in world.changes.drains.values():
        if (drain.partition, drain.session) == (site.partition, rm.session.session) and drain.ref in marks:
            for key in drain.keys:
                pod = site.pods.get(key)
                if pod is not None and pod.node == drain.node:
                    yield f"{key} is {pod.phase} on node {drain.node}, which was drained"


def _recovery(world: "World", worker: WatchedWorker) -> Iterator[str]:
    """What the journal leads to is what the worker has."""
    if world.compares:
        content, steps = world.journal(worker.name).read()
        lazy = [step for one in worker.barrier.flush() for step in decode_body(Append, one.body).steps]
        yield from compare(worker, empty_worker(worker.name, worker.host.epoch), content, [*steps, *lazy])
