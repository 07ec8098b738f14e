"""What a process of each role is in the simulation: its machine, its endpoints, and what it does when it starts.

It does what the shells do (`*/service.py`): open sockets and files, recover from the journal, say hello, be ready.

Not here: when they start (`supervision.py`), the machines.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from broker.routing import BrokerMachine
from broker.state import BrokerState, ConfigVersions
from common.control_messages import GroupsFound, GroupsWanted
from common.journal_messages import Step
from common.names import BROKER, FILE, JOURNAL, RECORD, RMPROXY, SUPERVISED, WEBSERVICE, peer_name, worker_name
from common.settings import Settings
from common.wire import Incoming, Outgoing, decode_body, make_outgoing
from deploy.children import Assign, Start
from partition_worker.engine.state import Tuning
from partition_worker.partition_host import GROUPS, PartitionHost
from partition_worker.recovery import JournalDamaged
from partition_worker.worker import Worker
from rmproxy.proxy import Proxy
from tests.sim.asker import Asker
from tests.sim.auditor import Violation
from tests.sim.disk import Writer
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.supervision import Keeper
    from tests.sim.world import World

START_MAX_S: Final = 0.3
"""How long a process takes to start."""

LOOKUP_MAX_S: Final = 0.3
HEARTBEAT_S: Final = 1.0
SETTINGS: Final = Settings(lease_timeout_s=5.0, pause_timeout_s=12.0)
TUNING: Final = Tuning(preemption_pause_s=2.0, reservation_delay_s=1.0)
WATCHED: Final = "queues.yaml"
NATIVE: Final = "native:"
_STEP: Final = msgspec.msgpack.Decoder(Step)


class Roles:
    """Starts processes."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._fronts = 0
        self._askers = 0
        self.workers: dict[str, Worker] = {}
        """By the name of the peer, also of those that are gone."""

    # Starting and ending --------------------------------------------------------------------------------------------

    def start(self, start: Start, keeper: "Keeper") -> Process:
        """A process begins; it is ready a while later."""
        world = self._world
        process = Process(world, start.name, start.role)
        world.began(process)
        process.on_end.append(partial(keeper.ended, process))
        after = world.rng.uniform(0.02, START_MAX_S)
        if "--spare" in start.arguments:
            world.timeline.after(after, partial(keeper.ready_is, process, start.name))
            return process
        world.timeline.after(after, partial(self._ready, process, start, keeper))
        return process

    def start_proxy(self, instance: str) -> None:
        """A proxy begins that no supervisor knows; its port is open a while later."""
        process = Process(self._world, peer_name(RMPROXY, instance), RMPROXY)
        self._world.began(process)
        self._world.timeline.after(self._world.rng.uniform(0.02, START_MAX_S), partial(self._open, process, instance))

    def _open(self, process: Process, instance: str) -> None:
        if process.stopped:
            self._world.timeline.after(0.1, partial(self._open, process, instance))
        elif process.alive:
            self._proxy(process, instance)

    def assign(self, process: Process, assign: Assign, keeper: "Keeper") -> None:
        """A spare worker gets its partition."""
        self._world.timeline.after(0.005, partial(self._assigned, process, assign, keeper))

    def terminate(self, process: Process) -> None:
        """SIGTERM: it ends in order, unless it stands still."""
        if process.stopped or not process.alive:
            return
        match process.machine:
            case Worker() as worker:
                process.say(worker.stop(self._world.timeline.now), "SIGTERM")
            case Proxy() as front:
                process.say(front.goodbye(), "SIGTERM")
        self._world.timeline.after(0.02, partial(self._world.kill, process, "it was asked to stop"))

    def _assigned(self, process: Process, assign: Assign, keeper: "Keeper") -> None:
        if process.alive:
            self._worker(process, assign.partition, assign.epoch, keeper)
            keeper.ready_is(process, assign.name)

    def _ready(self, process: Process, start: Start, keeper: "Keeper") -> None:
        if not process.alive:
            return
        if process.stopped:
            self._world.timeline.after(0.1, partial(self._ready, process, start, keeper))
            return
        match start.role:
            case "broker":
                self._broker(process)
            case "rmproxy":
                self._proxy(process, SUPERVISED)
            case "webservice":
                self._webservice(process)
            case _:
                partition = next(one for one in start.arguments if one.startswith("--partition=")).partition("=")[2]
                epoch = int(start.arguments[start.arguments.index("--epoch") + 1])
                self._worker(process, partition, epoch, keeper)
        if process.alive:
            keeper.ready_is(process, start.name)

    # Roles ----------------------------------------------------------------------------------------------------------

    def _broker(self, process: Process) -> None:
        world = self._world
        give = world.record.open(process.take)
        store = world.record.record
        incarnation, problem = store.begin(int(world.now))
        state = BrokerState(
            default_text=world.file.text,
            watched=WATCHED if world.options.watched else "",
            versions=ConfigVersions(store.read_histories()),
            settings=SETTINGS,
            incarnation=incarnation,
        )
        switch = BrokerMachine(state, now=world.now, records=store.read_records(), record_problem=problem)
        world.switch = switch
        process.peer = BROKER
        router = world.network.listen(process, BROKER)
        process.route(RECORD, give)
        process.route(FILE, world.file.open(process.take))
        process.route("", lambda one: world.network.down(router, one.to, process.frames(one)))
        process.run(switch)

    def _proxy(self, process: Process, instance: str) -> None:
        world = self._world
        self._fronts += 1
        front = Proxy(instance=f"{self._fronts}.", heartbeat_s=HEARTBEAT_S, silence_s=SETTINGS.silence_s)
        process.peer = peer_name(RMPROXY, instance)
        dealer = world.dealer(process, process.peer, BROKER)
        router = world.network.listen(process, process.peer)
        process.route(BROKER, lambda one: world.network.up(dealer, process.frames(one)))
        process.route(NATIVE, lambda one: world.network.down(router, one.to, process.frames(one)))
        process.say([front.hello()], "its start")
        if process.alive:
            process.run(front)

    def _webservice(self, process: Process) -> None:
        world = self._world
        self._askers += 1
        asker = Asker(world, self._askers)
        process.peer = peer_name(WEBSERVICE, SUPERVISED)
        dealer = world.dealer(process, process.peer, BROKER)
        process.route(BROKER, lambda one: world.network.up(dealer, process.frames(one)))
        process.run(asker)

    def _worker(self, process: Process, partition: str, epoch: int, keeper: "Keeper") -> None:
        world = self._world
        peer = process.peer = worker_name(partition, epoch)
        file = world.disk.journal(partition)
        if file.epoch > epoch:
            keeper.failed(process, "another worker has the partition")
            world.kill(process, "another worker has the partition")
            return
        worker = recovered(world, partition, epoch)
        worker.attempts = world.disk.attempts_of(partition)
        writer = Writer(
            world.disk,
            file,
            epoch,
            world.timeline,
            world.rng,
            answer=process.take,
            snapshot=worker.snapshot,
            stopped=lambda: process.stopped,
        )
        self.workers[peer] = worker
        dealer = world.dealer(process, peer, BROKER)
        process.route(BROKER, lambda one: world.network.up(dealer, process.frames(one)))
        process.route(JOURNAL, writer.give)
        process.route(GROUPS, partial(self._look_up, process))
        process.on_end.append(writer.crash)
        process.after_turn = partial(self._over, process, worker)
        process.say([worker.make_hello()], "its start")
        if process.alive:
            process.run(worker)

    def _over(self, process: Process, worker: Worker) -> None:
        """A worker that is fenced ends."""
        worker.host.notes.clear()
        worker.host.announcements.clear()
        worker.host.warnings.clear()
        if worker.fatal_error:
            self._world.timeline.after(0, partial(self._world.kill, process, worker.fatal_error))

    def _look_up(self, process: Process, wanted: Outgoing) -> None:
        """Some time later the groups of a user are known, or not."""
        user = decode_body(GroupsWanted, wanted.body).user
        found = GroupsFound(user=user, groups=[f"{user}-group"])
        if self._world.rng.random() < 0.1:
            found = GroupsFound(user=user, problem="the directory does not answer")
        message = make_outgoing("", found)
        after = self._world.rng.uniform(0.01, LOOKUP_MAX_S)
        self._world.timeline.after(after, lambda: process.take(Incoming(GROUPS, message.header, message.body)))


class WatchedWorker(Worker):
    """A worker that is seen to place nothing while its RM is away."""

    away = False

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        match incoming.header.kind:
            case "Pause":
                self.away = True
            case "Repeat" | "CommitConfig":
                self.away = False
        return super().handle(incoming, now)

    def tick(self, now: float) -> list[Outgoing]:
        before = self._placed
        sends = super().tick(now)
        if self.away and self._placed > before:
            raise Violation("something is placed for an RM that is away", self.name, (self.name,))
        return sends

    @property
    def _placed(self) -> int:
        return self.partition.counters.allocated if self.partition is not None else 0


def recovered(world: "World", partition: str, epoch: int, lazy: Sequence[bytes] = ()) -> Worker:
    """A worker as the journal has it (and these steps after it); an empty one with a problem if it is damaged."""
    file = world.disk.journal(partition)
    worker = _worker(partition, epoch)
    try:
        snapshot, steps = file.read()
        worker.recover(None if snapshot is None else [snapshot], [_STEP.decode(step) for step in (*steps, *lazy)])
        return worker
    except JournalDamaged as problem:
        if partition not in world.auditor.damages:
            world.diverged(partition, str(problem))
        file.clear()
        worker = _worker(partition, epoch)
        worker.problem = str(problem)
        return worker


def _worker(partition: str, epoch: int) -> Worker:
    return WatchedWorker(
        PartitionHost(partition=partition, epoch=epoch, tuning=TUNING), journalled=True, heartbeat_s=HEARTBEAT_S
    )
