"""The whole system in one process on a virtual clock: real machines, and a simulation of everything else.

First a time of *safety*: faults happen, and nothing wrong may ever be heard. Then *liveness*: the faults end, and
within CONVERGE_MAX_S everything must be as it should (`convergence.py`). The seed is the only source of chance, and
`digest` proves that the same seed tells the same story.

Not here: the parts (`network.py`, `disk.py`, `process.py`, `roles.py`, `rm.py`), and who judges (`auditor.py`).
"""

import hashlib
import random
from dataclasses import replace
from functools import partial
from typing import Final

from tests.sim import convergence
from tests.sim.auditor import Auditor, Violation
from tests.sim.configurations import variants
from tests.sim.database import Database
from tests.sim.database_record import DatabaseRecord
from tests.sim.disk import Disk, JournalFile
from tests.sim.faults import ANY, CLUSTER_KINDS, KINDS, Faults, Options, Traits
from tests.sim.file import QueuesFile
from tests.sim.host import SKEW_MAX_S, Host
from tests.sim.network import Connection, Dealer, Network
from tests.sim.operator_changes import OperatorChanges
from tests.sim.process import Process
from tests.sim.record import DurableRecord
from tests.sim.rm import PROXY, Cluster, ResourceManager
from tests.sim.roles import Roles
from tests.sim.story import Story
from tests.sim.supervision import ANEW_S, Keeper
from tests.sim.timeline import Timeline
from tests.sim.workload import Appetite, Workload
from yunishard.broker.routing import BrokerMachine
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.session import EncodedMessage
from yunishard.common.messages.wire import LINK_LOST, Incoming
from yunishard.common.names import BROKER, LOCAL_HOST, RMPROXY, SUPERVISED, peer_name
from yunishard.deploy.children import Leave
from yunishard.partition_worker.worker import Worker

SAFETY_S: Final = 25.0
"""How long faults happen."""

CONVERGE_MAX_S: Final = 150.0
LOOK_S: Final = 0.5
STEPS_MAX: Final = 400_000
"""A world that has not ended by then never will."""

RM_ANEW_MAX_S: Final = 2.0
HOST_ANEW_MAX_S: Final = 12.0
"""How long a host that crashed is away: shorter than a lease, or longer."""

CORES: Final = (1, 1, 2, 4)
TWO_PROXIES: Final = 3
"""One of so many seeds has a second proxy."""

RESTARTED: Final = 0.5
"""The share of worlds in which every worker is recovered at the end of the faults."""


class World:
    """One seed's world."""

    def __init__(
        self,
        seed: int,
        *,
        compares: bool = True,
        cluster: bool = False,
        options: Options | None = None,
        traits: Traits = ANY,
    ) -> None:
        """In a `cluster`, the state is in a database. The seed chooses options that are not given, but no traits."""
        self.seed = seed
        self.compares = compares
        """Whether workers are compared with what their records lead to (`records.py`)."""
        self.rng = random.Random(seed)
        self.options = replace(options or Options.chosen(self.rng, CLUSTER_KINDS if cluster else KINDS), **traits)
        self.hosts = self._make_hosts(self.options.hosts)
        self.proxies: tuple[str, ...] = (SUPERVISED,)
        if len(self.hosts) > 1:
            self.proxies = tuple(self.hosts)
        elif seed % TWO_PROXIES == 0:
            self.proxies = (SUPERVISED, "b")
        self.timeline = Timeline()
        self.story = Story()
        self.story.began = self.story.now = self.timeline.now
        self.changes = OperatorChanges(lambda: self.timeline.now)
        self.auditor = Auditor(self.story, self.changes)
        self.network = Network(self.timeline, self.rng)
        self.disk = Disk()
        self.database = Database(self.timeline, self.rng) if cluster else None
        self.record = DurableRecord(self.timeline, self.rng) if self.database is None else DatabaseRecord(self.database)
        self.faults = Faults(self, self.options, self.rng)
        self.roles = Roles(self)
        self.texts = variants(self.options.resolver)
        self.file = QueuesFile(self.texts[0] if self.options.watched else "", self.timeline, self.rng)
        appetite = Appetite(pause_max_s=self.options.act_max_s, rare=() if self.options.calm else Appetite.rare)
        self.workload = Workload(self.rng, appetite, self.texts)
        self.kinds: dict[str, int] = {}
        """How many messages of each kind were delivered."""
        self.processes: list[Process] = []
        """All that run."""
        self.switch: BrokerMachine | None = None
        """The broker's machine, the latest."""
        self.clusters: dict[str, Cluster] = {}
        self.rms: dict[str, ResourceManager] = {}
        """The latest life of each."""
        others = self.proxies[1:] if len(self.hosts) == 1 else ()
        self._others = {peer_name(RMPROXY, instance): instance for instance in others}
        """The proxies that no supervisor knows."""
        self._digest = hashlib.sha256()
        self._supervisors = 0

    @property
    def now(self) -> float:
        return self.timeline.now

    @property
    def digest(self) -> str:
        """Of everything that was delivered, when and to whom."""
        return self._digest.hexdigest()

    # A run ----------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Safety, then liveness. Raises Violation."""
        self.start()
        self.timeline.after(2.0, self.faults.begin)
        self.advance(SAFETY_S)
        self._heal()
        end = self.now + CONVERGE_MAX_S
        quiet = 0
        while quiet < 2:
            if self.now >= end:
                raise Violation("it does not come to rest", "; ".join(convergence.unrest(self)), convergence.who(self))
            self.advance(LOOK_S)
            quiet = quiet + 1 if not convergence.unrest(self) else 0
        convergence.check(self)

    def start(self) -> None:
        """Supervisors start, and RMs soon after."""
        for host in self.hosts.values():
            self._supervisor(host)
        for instance in self._others.values():
            self.roles.start_proxy(instance)
        for number in range(self.options.rms):
            rm_id = f"rm-{number + 1}"
            text = "" if self.options.watched and number % 2 == 0 else self.rng.choice(self.texts)
            predicates = self.options.predicates and number == 0
            self.clusters[rm_id] = Cluster(rm_id, text, self.rng, predicates)
            self.timeline.after(self.rng.uniform(0.1, 2.0), partial(self._begin_rm, rm_id))

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        when = self.now + seconds
        while self.timeline.now < when:
            if self.timeline.steps > STEPS_MAX:
                raise Violation("it never ends", f"{self.timeline.steps} steps", ())
            self.timeline.step()
            self.story.now = self.timeline.now

    def _heal(self) -> None:
        self.story.note("world", "the faults end")
        if self.rng.random() < RESTARTED:
            self.kill_role("partition_worker", "the faults end")
        self.faults.heal()
        if self.database is not None:
            self.database.heal()
            for source, target in tuple(self.network.blocked):
                self.network.unblock(source, target)
        else:
            self.disk.full = self.disk.slow = self.record.full = self.record.late = False
        for process in list(self.processes):
            process.go_on()
        for rm in self.rms.values():
            rm.slow_until = 0.0

    def journal(self, partition: str) -> JournalFile:
        """What is stored of a partition."""
        return self.disk.journal(partition) if self.database is None else self.database.primary.journal(partition)

    def _make_hosts(self, count: int) -> dict[str, Host]:
        """One, or several of which each has another clock."""
        if count == 1:
            return {LOCAL_HOST: Host()}
        skews = (self.rng.uniform(-SKEW_MAX_S, SKEW_MAX_S) for _ in range(count))
        return {name: Host(name, skew_s, self.rng.choice(CORES)) for name, skew_s in zip("abc", skews, strict=False)}

    # Processes ------------------------------------------------------------------------------------------------------

    def began(self, process: Process) -> None:
        self.processes.append(process)

    def workers(self) -> list[Process]:
        """Those that serve a partition."""
        return [one for one in self.processes if isinstance(one.machine, Worker)]

    def partition_of(self, process: Process) -> str:
        """What a worker serves."""
        return self.roles.workers[process.peer].name

    def number_supervisor(self) -> int:
        """Another one for each supervisor."""
        self._supervisors += 1
        return self._supervisors

    def kill(self, process: Process, why: str, *, silently: bool = False) -> None:
        """SIGKILL, or the end of a process by itself, or of its whole host."""
        if not process.alive:
            return
        self.note(process, "dies", why)
        self.processes.remove(process)
        process.end(silently=silently)
        if silently:
            return
        if process.role == "supervisor":
            self._supervisor_died(process)
        elif process.role == "rm":
            rm_id = process.name
            self.timeline.after(self.rng.uniform(0.2, RM_ANEW_MAX_S), partial(self._begin_rm, rm_id))
        elif process.name in self._others:
            self.timeline.after(ANEW_S, partial(self.roles.start_proxy, self._others[process.name]))

    def crash_host(self, host: Host, *, for_good: bool = False) -> bool:
        """All of its processes die at once, and it starts again after a while, if ever; whether it was there."""
        if not host.is_up:
            return False
        host.is_up = False
        for one in [one for one in self.processes if one.host == host.name]:
            self.kill(one, "its host crashes", silently=True)
        if not for_good:
            self.timeline.after(self.rng.uniform(0.5, HOST_ANEW_MAX_S), partial(self._restart_host, host))
        return True

    def _restart_host(self, host: Host) -> None:
        host.is_up = True
        self._supervisor(host)

    def connect_to_broker(self, process: Process) -> None:
        """A connection of one of our own processes to the broker that leads, as far as it knows."""
        link = Dealer(process, process.peer, process.leader.address, keeps=True, connected=lambda: None, peer=BROKER)
        if len(self.hosts) > 1:
            link.keeps = False
            link.connected = partial(process.take, Incoming(BROKER, Header(kind=LINK_LOST), b""))
        process.link = link
        process.route(BROKER, lambda one: self.network.up(link, process.frames(one)))
        self.network.connect(link)

    def cut_off(self) -> bool:
        """The connection of an RM breaks. Those of our own processes do not while both ends live: they are pipes of one
        machine.
        """
        found = [one for one in self.network.connections if one.dealer.to.startswith(PROXY)]
        if not found:
            return False
        connection = self.rng.choice(found)
        self.story.note(connection.dealer.name, "its connection breaks")
        self.network.cut(connection)
        return True

    def take_snapshot(self) -> bool:
        """A worker has written so much that it takes a snapshot."""
        workers = [one for one in self.workers() if not one.stopped and one.alive]
        if not workers:
            return False
        process = self.rng.choice(workers)
        worker = self.roles.workers[process.peer]
        if worker.barrier is None or worker.partition is None or worker.fatal_error or not worker.barrier.last:
            return False
        process.say([*worker.barrier.flush(), *worker.barrier.request_snapshot(process.now)], "a snapshot")
        return True

    def lose_record(self) -> bool:
        """The broker's record is gone, and the broker with it."""
        broker = next((one for one in self.processes if one.role == "broker"), None)
        if broker is None or broker.machine is None:
            return False
        self.kill(broker, "its record is lost")
        self.changes.lose_ends()
        self.record.lose()
        return True

    def journal_goes_back(self, partition: str) -> None:
        """The journal of a partition is an earlier copy, and whoever had it open is dead."""
        for one in self.workers():
            if self.partition_of(one) == partition:
                self.kill(one, "its journal goes back")
        if self.disk.journal(partition).go_back(self.rng):
            self.story.note("disk", f"the journal of {partition} goes back")
            self.auditor.damaged(partition, went_back=True)

    def record_goes_back(self, *, with_journals: bool) -> bool:
        """The broker's record is an earlier copy, and everything is dead; the journals may be from yet another time."""
        if not self.kill_all("the record goes back") or not self.record.go_back():
            return False
        self.story.note("disk", "the record goes back")
        self.changes.lose_ends()
        for partition in self.disk.journals:
            self.auditor.damaged(partition, went_back=True)
            if with_journals and self.rng.random() < 0.5:
                self.journal_goes_back(partition)
        return True

    def kill_role(self, role: str, why: str) -> None:
        """Whoever has this role dies."""
        for one in [one for one in self.processes if one.role == role]:
            self.kill(one, why)

    def kill_all(self, why: str) -> bool:
        """Every process of the core dies at once; whether there was a supervisor."""
        supervisor = next((one for one in self.processes if one.role == "supervisor"), None)
        if supervisor is None:
            return False
        for one in [one for one in self.processes if one.role not in ("supervisor", "rm")]:
            self.kill(one, why)
        self.kill(supervisor, why)
        return True

    def stop_in_order(self) -> bool:
        """Somebody asks a supervisor to stop everything on its host; another one follows."""
        supervisor = next((one for one in self.processes if one.role == "supervisor"), None)
        if len(self.hosts) > 1 and supervisor is not None:
            supervisor = self.rng.choice([one for one in self.processes if one.role == "supervisor"])
        keeper = self.hosts[supervisor.host].keeper if supervisor is not None else None
        if supervisor is None or supervisor.stopped or keeper is None or not keeper.ready:
            return False
        keeper.report(Leave())
        return True

    def diverged(self, partition: str, problem: str) -> None:
        """A whole journal does not lead to what it says."""
        raise Violation("a journal that is whole cannot be played again", f"{partition}: {problem}", (partition,))

    def _supervisor(self, host: Host) -> None:
        if not host.is_up or any(one.role == "supervisor" and one.host == host.name for one in self.processes):
            return  # it crashed while a supervisor was to be started
        process = Process(self, "supervisor", "supervisor", host.name)
        self.began(process)
        host.keeper = Keeper(self, process, host, spares=self.options.spares)
        process.run(host.keeper)

    def _supervisor_died(self, process: Process) -> None:
        """Lifelines close; those that stand still notice when they go on."""
        others = {"supervisor", "rm"}
        children = [one for one in self.processes if one.role not in others and one.name not in self._others]
        for child in [one for one in children if one.host == process.host]:
            self._orphan(child)
        self.timeline.after(ANEW_S, partial(self._supervisor, self.hosts[process.host]))

    def _orphan(self, child: Process) -> None:
        if not child.alive:
            return
        if child.stopped:
            self.timeline.after(0.01, partial(self._orphan, child))
        else:
            self.timeline.after(self.rng.uniform(0, 0.02), partial(self.kill, child, "its supervisor is gone"))

    # RMs ------------------------------------------------------------------------------------------------------------

    def _begin_rm(self, rm_id: str) -> None:
        cluster = self.clusters[rm_id]
        addresses = len(self.proxies) if len(self.hosts) > 1 else 1
        rm = self.rms[rm_id] = ResourceManager(cluster, self.auditor, self.now, addresses)
        process = Process(self, rm_id, "rm")
        process.peer = rm_id
        self.began(process)
        dealer = Dealer(process, "", peer_name(RMPROXY, self.proxies[0]), keeps=False, connected=lambda: None)
        if addresses > 1:
            dealer.to = peer_name(RMPROXY, self.rng.choice(self.proxies))
            dealer.failed = partial(self._address_failed, process, rm)
        elif len(self.proxies) > 1:
            dealer.targets = lambda: peer_name(RMPROXY, self.rng.choice(self.proxies))
        process.route(PROXY, lambda one: self.network.up(dealer, process.frames(one)))
        process.after_turn = partial(self._reconnect, rm, dealer)
        self._name_again(process, rm, dealer)
        process.run(rm)
        if addresses > 1:
            rm.moved(self.now)
        self.network.connect(dealer)
        self._act(process, rm)

    def _address_failed(self, process: Process, rm: ResourceManager) -> None:
        rm.failed(self.now)
        process.look()

    def _name_again(self, process: Process, rm: ResourceManager, dealer: Dealer) -> None:
        """Each connection of an RM has another name at the proxy."""

        def connected() -> None:
            process.say(rm.connected(self.now), "a connection")
            process.look()

        dealer.connected = connected
        dealer.names = lambda: f"native:{rm.rm_id}.{rm.cluster.number()}"

    def _reconnect(self, rm: ResourceManager, dealer: Dealer) -> None:
        """An RM has had enough of its connection."""
        if rm.reconnects and dealer.failed is not None:
            rm.reconnects = False
            self.timeline.after(0, partial(self._turn_to_next, rm, dealer))
        elif rm.reconnects:
            rm.reconnects = False
            if dealer.connection is not None:
                self.story.note(rm.rm_id, "hears nothing, and connects again")
                self.timeline.after(0, partial(self._cut_if_there, dealer.connection))

    def _turn_to_next(self, rm: ResourceManager, dealer: Dealer) -> None:
        """An RM with several addresses connects to the next one."""
        names = [peer_name(RMPROXY, one) for one in self.proxies]
        self.story.note(rm.rm_id, "turns to the next address")
        rm.moved(self.now)
        self.network.move(dealer, names[(names.index(dealer.to) + 1) % len(names)])

    def _cut_if_there(self, connection: Connection) -> None:
        if connection.dealer.connection is connection:
            self.network.cut(connection)

    def _act(self, process: Process, rm: ResourceManager) -> None:
        if not process.alive or not self.faults.on:
            return
        if not process.stopped:
            outgoing: list[EncodedMessage] = self.workload.act(rm)
            if outgoing:
                for one in outgoing:
                    self.story.note(rm.rm_id, _Said(one))
                process.say(rm.sends(outgoing), "a wish")
                process.look()
        self.timeline.after(self.workload.pause_s(), partial(self._act, process, rm))

    # What happened --------------------------------------------------------------------------------------------------

    def delivered(self, process: Process, incoming: Incoming) -> None:
        """Before a message has its effect."""
        header = incoming.header
        if isinstance(process.machine, Worker):
            self.faults.choose_poison(process.machine, incoming)
            if header.kind == "RetirePartition":
                self.auditor.retired(header)
        self.kinds[header.kind] = self.kinds.get(header.kind, 0) + 1
        if header.kind not in ("Heartbeat", "lifeline"):
            self.story.note(process.name, _Heard(incoming.source, header))

    def mark(self, name: str, what: str, *parts: bytes) -> None:
        """Something that another run of the same seed has to have, too."""
        self._digest.update(b" ".join((repr((self.now, name, what)).encode(), *parts)))

    def note(self, process: Process, what: str, detail: str) -> None:
        self.mark(process.name, what)
        if what != "tick":
            self.story.note(process.name, f"{what}: {detail}")


class _Heard:
    """A message in the story."""

    def __init__(self, source: str, header: Header) -> None:
        self._source, self._header = source, header

    def __str__(self) -> str:
        return f"<- {self._source}: {_shown(self._header)}"


class _Said:
    def __init__(self, outgoing: EncodedMessage) -> None:
        self._outgoing = outgoing

    def __str__(self) -> str:
        return f"says {_shown(self._outgoing.header)} {self._outgoing.body!r}"


def _shown(header: Header) -> str:
    fields = ("partition", "session", "seq", "ack", "epoch", "life", "ref")
    return " ".join([header.kind, *(f"{name}={getattr(header, name)}" for name in fields if getattr(header, name))])
