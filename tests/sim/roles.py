"""What a process of each role is in the simulation: its machine, its endpoints, and what it does when it starts.

It does what the shells do (`*/service.py`): open sockets and files, recover from the journal, say hello, be ready.

Not here: when they start (`supervision.py`), the machines.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from tests.analyses import answer_text
from tests.invariants import find_violations
from tests.sim.asker import Asker
from tests.sim.auditor import Violation
from tests.sim.candidate import Candidate
from tests.sim.database import Client
from tests.sim.database_journal import DatabaseWriter, JournalClient
from tests.sim.database_record import DatabaseRecord
from tests.sim.disk import JournalFile, Writer
from tests.sim.network import Router
from tests.sim.operator_changes import WatchedRegistry
from tests.sim.process import Process
from tests.sim.records import WatchedWorker, compare
from yunishard.broker.config_versions import ConfigVersions, VersionHistory
from yunishard.broker.election import ElectedBroker
from yunishard.broker.hosts import HostRow
from yunishard.broker.registry import RmRecord
from yunishard.broker.routing import BrokerMachine
from yunishard.broker.state import BrokerState
from yunishard.common.messages.control_messages import GroupsFound, GroupsWanted, Hello
from yunishard.common.messages.journal_messages import Step
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Heartbeat
from yunishard.common.messages.wire import BrokerAddress, Incoming, Outgoing, decode_body, make_outgoing
from yunishard.common.names import (
    BROKER,
    FILE,
    JOURNAL,
    LOCAL_HOST,
    OFF,
    READER,
    RECORD,
    RMPROXY,
    WEBSERVICE,
    peer_name,
)
from yunishard.common.settings import Settings
from yunishard.deploy.children import Granted, LeaderFound, Start
from yunishard.partition_worker.engine.state import Tuning
from yunishard.partition_worker.partition_host import GROUPS, PartitionHost
from yunishard.partition_worker.recovery import JournalDamaged
from yunishard.partition_worker.worker import IdleWorker, Worker
from yunishard.rmproxy.proxy import Proxy

if TYPE_CHECKING:
    from tests.sim.supervision import Keeper
    from tests.sim.world import World

START_MAX_S: Final = 0.3
"""How long a process takes to start."""

RECOVERY_MAX_S: Final = 0.1
LOOKUP_MAX_S: Final = 1.0
ANALYSIS_MAX_S: Final = 0.5
HEARTBEAT_S: Final = 1.0
SETTINGS: Final = Settings(lease_timeout_s=5.0, pause_timeout_s=12.0)
TUNING: Final = Tuning(preemption_pause_s=2.0, reservation_delay_s=1.0)
WATCHED: Final = "queues.yaml"
GATE_PATIENCE_S: Final = SETTINGS.lease_timeout_s
"""How long a proxy keeps its port open without a broker that leads."""

STORE: Final = "postgresql://db"
NATIVE: Final = "native:"
_STEP: Final = msgspec.msgpack.Decoder(Step)


class Roles:
    """Starts processes."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._fronts = 0
        self._askers = 0
        self._candidates: dict[tuple[str, str], Candidate] = {}
        """By the name of the process and its host, the latest."""
        self._writers: dict[str, DatabaseWriter] = {}
        """Those of workers, by the name of the peer."""
        self.workers: dict[str, WatchedWorker] = {}
        """With a partition, by the name of the peer, also of those that are gone."""

    # Starting and ending --------------------------------------------------------------------------------------------

    def start(self, start: Start, keeper: "Keeper") -> Process:
        """A process begins; it is ready a while later."""
        world = self._world
        process = Process(world, start.name, start.role, keeper.host.name)
        process.leader = BrokerAddress(_option(start, "--broker"))
        world.began(process)
        process.on_end.append(partial(keeper.ended, process))
        after = world.rng.uniform(0.02, START_MAX_S)
        world.timeline.after(after, partial(self._ready, process, start, keeper))
        return process

    def start_proxy(self, instance: str) -> None:
        """A proxy begins that no supervisor knows; its port is open a while later."""
        process = Process(self._world, peer_name(RMPROXY, instance), RMPROXY, LOCAL_HOST)
        process.leader = self._world.hosts[LOCAL_HOST].own
        self._world.began(process)
        self._world.timeline.after(self._world.rng.uniform(0.02, START_MAX_S), partial(self._open, process, instance))

    def _open(self, process: Process, instance: str) -> None:
        if process.stopped:
            self._world.timeline.after(0.1, partial(self._open, process, instance))
        elif process.alive:
            self._proxy(process, instance)

    def terminate(self, process: Process) -> None:
        """SIGTERM: it ends in order, unless it stands still."""
        if process.stopped or not process.alive:
            return
        match process.machine:
            case Worker() as worker:
                process.say(worker.stop(process.now), "SIGTERM")
                if worker.is_removed and process.peer in self._writers:
                    self._writers[process.peer].delete()
            case Proxy() as front:
                process.say(front.goodbye(), "SIGTERM")
            case ElectedBroker():
                self._candidates[process.name, process.host].release()
        self._world.timeline.after(0.02, partial(self._world.kill, process, "it was asked to stop"))

    def _ready(self, process: Process, start: Start, keeper: "Keeper") -> None:
        if not process.alive:
            return
        if process.stopped:
            self._world.timeline.after(0.1, partial(self._ready, process, start, keeper))
            return
        match start.role:
            case "broker":
                self._broker(process, keeper)
            case "rmproxy":
                self._proxy(process, _option(start, "--instance"))
            case "webservice":
                self._webservice(process, _option(start, "--instance"))
            case _:
                self._idle_worker(process, keeper)
        if process.alive:
            keeper.ready_is(process, start.name)

    # Roles ----------------------------------------------------------------------------------------------------------

    def _broker(self, process: Process, keeper: "Keeper") -> None:
        world, own = self._world, keeper.host.own
        if isinstance(world.record, DatabaseRecord):
            candidate = Candidate(world, process, keeper.host, keeper, SETTINGS.lease_timeout_s)
            self._candidates[process.name, process.host] = candidate
            return
        give = world.record.open(process.take)
        store = world.record.record
        incarnation, problem = store.begin(int(world.now))
        switch = self.make_broker(process, give, incarnation, store.read_records(), store.read_histories(), problem)
        router = world.network.listen(process, own.address)
        process.route("", lambda one: world.network.down(router, one.to, process.frames(one)))
        process.run(switch)
        keeper.report(LeaderFound(own))

    def make_broker(
        self,
        process: Process,
        give: Callable[[Outgoing], None],
        incarnation: int,
        records: list[RmRecord],
        histories: dict[str, VersionHistory],
        problem: str = "",
        hosts: Sequence[HostRow] = (),
    ) -> BrokerMachine:
        """The machine of a broker that may answer from now on, and what it needs in its process."""
        world = self._world
        state = BrokerState(
            default_text=world.file.text,
            watched=WATCHED if world.options.watched else "",
            versions=ConfigVersions(histories),
            settings=self._settings(process.host),
            incarnation=incarnation,
        )
        state.registry = WatchedRegistry(incarnation, state.registry._has_store, world.changes.lose_partition)
        world.switch = BrokerMachine(state, now=process.now, records=records, record_problem=problem, hosts=hosts)
        process.peer = BROKER
        process.route(RECORD, give)
        process.route(FILE, world.file.open(process.take))
        process.route(READER, partial(self._analyze, process))
        return world.switch

    def _analyze(self, process: Process, request: Outgoing) -> None:
        """A child process of the broker analyses a text, which takes a while."""
        answer = answer_text(request)
        self._world.timeline.after(self._world.rng.uniform(0, ANALYSIS_MAX_S), partial(process.take, answer))

    def _settings(self, host: str) -> Settings:
        """Of a broker."""
        if self._world.database is None:
            return SETTINGS
        address = self._world.hosts[host].remote.address if len(self._world.hosts) > 1 else OFF
        return replace(SETTINGS, store=STORE, cluster_address=address)

    def _proxy(self, process: Process, instance: str) -> None:
        world = self._world
        self._fronts += 1
        front = Proxy(instance=f"{self._fronts}.", heartbeat_s=HEARTBEAT_S, silence_s=SETTINGS.silence_s)
        process.peer = peer_name(RMPROXY, instance)
        world.connect_to_broker(process)
        router = world.network.listen(process, process.peer)
        process.route(NATIVE, lambda one: world.network.down(router, one.to, process.frames(one)))
        process.say([front.hello()], "its start")
        if process.alive:
            process.run(front)
            if len(world.hosts) > 1:
                self._check_gate(process, front, router, world.now, is_open=True)

    def _check_gate(self, process: Process, front: Proxy, router: Router, up_at: float, *, is_open: bool) -> None:
        """Close the port while there is no connection to a broker that leads (`rmproxy/service.py`)."""
        world = self._world
        if not process.alive:
            return
        if process.link is not None and process.link.connection is not None:
            up_at = world.now
            if not is_open:
                world.network.resume(process.peer, router)
            is_open = True
        elif is_open and not process.stopped and world.now >= up_at + GATE_PATIENCE_S:
            world.network.pause(process.peer)
            process.say(front.goodbye(), "a closed port")
            is_open = False
        world.timeline.after(0.5, partial(self._check_gate, process, front, router, up_at, is_open=is_open))

    def _webservice(self, process: Process, instance: str) -> None:
        world = self._world
        self._askers += 1
        asker = Asker(world, process, self._askers)
        process.peer = peer_name(WEBSERVICE, instance)
        world.connect_to_broker(process)
        process.run(asker)

    def _idle_worker(self, process: Process, keeper: "Keeper") -> None:
        world = self._world
        idle = IdleWorker(Hello(role="worker", host=process.host), heartbeat_s=HEARTBEAT_S)
        world.connect_to_broker(process)
        process.after_turn = partial(self._granted, process, idle, keeper)
        process.run(idle)

    def _granted(self, process: Process, idle: IdleWorker, keeper: "Keeper") -> None:
        """The broker has granted it a partition: it recovers, and what comes meanwhile waits."""
        if idle.granted and process.machine is idle:
            process.machine = None
            partition, epoch = idle.granted[0].partition, idle.granted[0].epoch
            self._world.note(process, "is granted", f"{partition} {epoch}")
            keeper.report(Granted(process.name, partition, epoch))
            after = self._world.rng.uniform(0.005, RECOVERY_MAX_S)
            self._world.timeline.after(after, partial(self._recover, process, partition, epoch, keeper))

    def _recover(self, process: Process, partition: str, epoch: int, keeper: "Keeper") -> None:
        if not process.alive:
            return
        if process.stopped:
            self._world.timeline.after(0.1, partial(self._recover, process, partition, epoch, keeper))
            return
        if self._world.database is None:
            self._worker_with_file(process, partition, epoch, keeper)
            return
        journal = JournalClient(partition, epoch)
        client = Client(self._world.database, process, self._world.timeline)
        client.drive(journal.claim(), partial(self._worker_with_database, process, client, journal, keeper))
        self._beat_while_recovering(process, partition, epoch)

    def _beat_while_recovering(self, process: Process, partition: str, epoch: int) -> None:
        """The broker hears from a worker also while that waits for the database."""
        if process.machine is None and process.alive:
            if not process.stopped:
                header = Header(kind="Heartbeat", partition=partition, epoch=epoch)
                process.say([make_outgoing(BROKER, Heartbeat(), header)], "its recovery")
            again = partial(self._beat_while_recovering, process, partition, epoch)
            self._world.timeline.after(HEARTBEAT_S, again)

    def _worker_with_file(self, process: Process, partition: str, epoch: int, keeper: "Keeper") -> None:
        world = self._world
        file = world.disk.journal(partition)
        if file.epoch > epoch:
            self._fail(process, keeper, "another worker has the partition")
            return
        worker = recovered(world, process.host, partition, epoch, file)
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
        process.on_end.append(writer.crash)
        self._worker(process, worker, writer.give, keeper)

    def _worker_with_database(
        self,
        process: Process,
        client: Client,
        journal: JournalClient,
        keeper: "Keeper",
        opened: JournalFile | OSError,
    ) -> None:
        """The journal is open, or cannot be opened."""
        if isinstance(opened, OSError):
            self._fail(process, keeper, str(opened))
            return
        worker = recovered(self._world, process.host, journal.partition, journal.epoch, opened)
        writer = DatabaseWriter(client, journal, self._world.timeline, answer=process.take, snapshot=worker.snapshot)
        self._writers[process.peer] = writer
        self._worker(process, worker, writer.give, keeper)

    def _fail(self, process: Process, keeper: "Keeper", reason: str) -> None:
        keeper.failed(process, reason)
        self._world.kill(process, reason)

    def _worker(
        self, process: Process, worker: WatchedWorker, give: Callable[[Outgoing], None], keeper: "Keeper"
    ) -> None:
        world, journal = self._world, self._world.journal(worker.name)
        opening = journal.openings
        worker.changes = world.changes
        worker.is_latest = lambda: (
            journal is world.journal(worker.name) and (journal.epoch, journal.openings) == (worker.host.epoch, opening)
        )
        worker.attempts = self._world.disk.attempts_of(f"{process.host} {worker.name}")
        self.workers[process.peer] = worker
        process.route(JOURNAL, give)
        process.route(GROUPS, partial(self._look_up, process))
        process.on_end.append(partial(self._compare, worker))
        process.after_turn = partial(self._over, process, worker)
        process.say([worker.make_hello()], "its start")
        if process.alive:
            process.run(worker)
            keeper.ready_is(process, process.name)

    def _over(self, process: Process, worker: Worker) -> None:
        """A worker that is fenced ends."""
        worker.host.notes.clear()
        worker.host.announcements.clear()
        worker.host.warnings.clear()
        if worker.fatal_error:
            self._world.timeline.after(0, partial(self._world.kill, process, worker.fatal_error))

    def _compare(self, worker: WatchedWorker) -> None:
        """A worker has ended: what would be recovered if the journal had everything."""
        if self._world.compares:
            again = empty_worker(worker.name, worker.host.epoch)
            for problem in compare(worker, again, worker.content, worker.steps):
                raise Violation("a recovered partition differs", f"{worker.name}: {problem}", (worker.name,))

    def _look_up(self, process: Process, wanted: Outgoing) -> None:
        """Some time later the groups of a user are known, or not."""
        user = decode_body(GroupsWanted, wanted.body).user
        found = GroupsFound(user=user, groups=[f"{user}-group"])
        if self._world.rng.random() < 0.1:
            found = GroupsFound(user=user, problem="the directory does not answer")
        message = make_outgoing("", found)
        after = self._world.rng.uniform(0.01, LOOKUP_MAX_S)
        self._world.timeline.after(after, lambda: process.take(Incoming(GROUPS, message.header, message.body)))


def _option(start: Start, name: str) -> str:
    """What follows this on the command line of a process."""
    return start.arguments[start.arguments.index(name) + 1]


def recovered(world: "World", host: str, partition: str, epoch: int, file: JournalFile) -> WatchedWorker:
    """A worker as the journal has it; an empty one with a problem if it is damaged."""
    worker = empty_worker(partition, epoch, host)
    try:
        worker.recover_from(*file.read())
    except JournalDamaged as problem:
        if partition not in world.auditor.damages:
            world.diverged(partition, str(problem))
        file.clear()
        worker = empty_worker(partition, epoch, host)
        worker.problem = str(problem)
    for violation in find_violations(worker.partition) if worker.partition is not None else ():
        raise Violation("a recovered partition contradicts itself", f"{partition}: {violation}", (partition,))
    for problem in world.changes.find_problems(partition, worker.partition):
        raise Violation("a recovered partition has other marks", f"{partition}: {problem}", (partition,))
    return worker


def empty_worker(partition: str, epoch: int, host: str = LOCAL_HOST) -> WatchedWorker:
    return WatchedWorker(
        PartitionHost(partition=partition, epoch=epoch, tuning=TUNING),
        journalled=True,
        heartbeat_s=HEARTBEAT_S,
        host_name=host,
    )
