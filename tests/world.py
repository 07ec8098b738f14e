"""The whole system in one process on a virtual clock: the proxy, the broker, the workers and the RMs, with a network
between them that does what ZeroMQ does.

A message takes a random time; on one link messages stay in order; what is on its way to somebody who is not there is
lost. The only source of chance is the seed, so the same seed tells the same story, and `digest` proves it. This is the
seed of the simulation: it has one sort of proxy, no supervisor that fails, and faults only where a test asks for them.
"""

import hashlib
import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.analyses import answer_text
from tests.invariants import check
from tests.properties.remedying import Copy
from tests.world_rm import RM
from yunishard.broker.config_versions import ConfigVersions
from yunishard.broker.queries import build_version_answer
from yunishard.broker.registry import RmRecord
from yunishard.broker.rm_records import decode_record
from yunishard.broker.routing import BrokerMachine
from yunishard.broker.state import BrokerState
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.control_messages import (
    ChangedFile,
    ConfigVersion,
    Hello,
    ManagerRecord,
    ReadVersion,
    RebaseVersion,
    Recorded,
    VersionRead,
    WorkerEnded,
    WorkersWanted,
    WriteFile,
)
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Answer, ReadConfig
from yunishard.common.messages.wire import (
    LINK_LOST,
    NEVER,
    Incoming,
    Machine,
    Outgoing,
    decode_body,
    decode_header,
    encode_body,
    encode_frames,
    make_outgoing,
)
from yunishard.common.names import FILE, LOCAL_HOST, PLANNER, RECORD, SUPERVISOR, WEBSERVICE, WORKER_PREFIX, peer_name
from yunishard.common.settings import Settings
from yunishard.partition_worker.engine.predicates.predicate import Predicate
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.plan_requests import PlanWanted, answer_plan
from yunishard.partition_worker.planning import play
from yunishard.partition_worker.worker import Worker
from yunishard.rmproxy.proxy import BROKER, Proxy

PROXY: Final = "rmproxy"
KEEPER: Final = peer_name(SUPERVISOR, LOCAL_HOST)
DELAY_MAX_S: Final = 0.010
STEPS_MAX: Final = 200_000
"""A world that is not quiet by then never will be."""


@dataclass(order=True)
class Packet:
    """A message on its way."""

    arrival: float
    number: int
    source: str = field(compare=False)
    to: str = field(compare=False)
    frames: list[bytes] = field(compare=False)


class World:
    """All machines and the messages between them. An RM called `x` is the peer `native:x` of the proxy."""

    def __init__(
        self,
        seed: int,
        *,
        file: str = "",
        now: float = 1_000_000.0,
        manual: bool = False,
        plugins: Sequence[Predicate] = (),
    ) -> None:
        self.now = now
        self._manual = manual
        self._plugins = plugins
        self.file = file
        """What the watched file says; empty if none is watched."""
        self.is_checked = True
        """Whether the sums of all partitions are checked each time that everything has settled."""
        self.rms: dict[str, RM] = {}
        self.workers: dict[str, Worker] = {}
        """By partition."""
        self.peers: dict[str, str] = {}
        """What they are called on the network."""
        self._idle: dict[str, None] = {}
        """What those without a partition are called."""
        self._processes = 0
        self.kinds: dict[str, int] = {}
        """How many of each kind were delivered."""
        self._rng = random.Random(seed)
        self._front = Proxy()
        self.record: list[tuple[str, ConfigVersion]] = []
        """RM id and version: what is on the broker's disk, which outlives the broker."""
        self.facts: dict[str, RmRecord] = {}
        """By RM id: what is on that disk too."""
        self._proxies = 1
        self._incarnation = 0
        self._switch = self._broker()
        self._problems: dict[str, str] = {}
        """What the next worker of a partition says of its journal."""
        self.answers: list[tuple[int, bytes]] = []
        """Status and body of what the broker answered the front end."""
        self._packets: list[Packet] = []
        self._last: dict[tuple[str, str], float] = {}
        self._numbers = 0
        self._story = hashlib.sha256()
        self.carry(KEEPER, [make_outgoing(BROKER, Hello(role="supervisor", host=LOCAL_HOST))])

    @property
    def digest(self) -> str:
        """Of everything that was delivered, when and to whom."""
        return self._story.hexdigest()

    @property
    def busy(self) -> bool:
        """Whether a message is on its way; if not, only time passes."""
        return bool(self._packets)

    # What tests do --------------------------------------------------------------------------------------------------

    def join(self, rm: RM) -> None:
        """A resource manager connects for the first time and registers."""
        self.rms[rm.rm_id] = rm
        self.carry(rm.peer, rm.register())

    def disconnect(self, rm: RM) -> None:
        """Its connection breaks: what is on its way, in both directions, is lost."""
        self._packets = [one for one in self._packets if rm.peer not in (one.source, one.to)]
        heapq.heapify(self._packets)
        rm.connected = False

    def reconnect(self, rm: RM) -> None:
        """It comes back on a new connection, under a new name, in the same session."""
        peer = rm.reconnected()
        self.carry(peer, rm.register() if rm.session.state == "registering" else rm.resume())

    def kill(self, partition: str) -> None:
        """A worker dies with what it knew, and the supervisor starts another."""
        epoch, name = self.workers.pop(partition).host.epoch, self.peers.pop(partition)
        self._packets = [one for one in self._packets if name not in (one.source, one.to)]
        heapq.heapify(self._packets)
        self._problems[partition] = "its journal is gone"
        slot = self._switch.registry.slots.get(partition)
        header = Header(kind="WorkerEnded")  # without its partition there is no delay, for which nothing waits here
        if slot is not None and slot.is_awaited:
            header = replace(header, partition=partition, epoch=epoch)
        self.carry(KEEPER, [make_outgoing(BROKER, WorkerEnded(worker=name, reason=""), header)])
        self._start_idle()

    def cut(self, name: str) -> None:
        """The connection between the broker and this machine breaks, and is made again: what is on its way in both
        directions is lost, and both live.
        """
        link = {BROKER, self._peer(name)}
        self._packets = [one for one in self._packets if {one.source, one.to} != link]
        heapq.heapify(self._packets)
        lost = Incoming(BROKER, Header(kind=LINK_LOST), b"")
        self.carry(self._peer(name), self.machine(name).handle(lost, self.now))

    def kill_broker(self) -> None:
        """The broker dies, and what is on its way to and from it is lost. Another one begins with what is on the disk:
        workers and the supervisor say hello, and the proxy has RMs ask again or resume.
        """
        self._packets = [one for one in self._packets if BROKER not in (one.source, one.to)]
        heapq.heapify(self._packets)
        self._incarnation += 1
        self._switch = self._broker()
        running = {peer: name for name, peer in self.peers.items()}
        hello = Hello(role="supervisor", host=LOCAL_HOST, workers=running | dict.fromkeys(self._idle, ""))
        self.carry(KEEPER, [make_outgoing(BROKER, hello)])
        for name, worker in self.workers.items():
            self.carry(self.peers[name], [worker.make_hello()])
        for peer in list(self._idle):
            self._register(peer)
        for rm in self.rms.values():
            self.carry(rm.peer, rm.ask_again())

    def kill_proxy(self) -> None:
        """The proxy dies and starts again: all connections break, and every RM comes back."""
        self._packets = [one for one in self._packets if self._outlives_proxy(one)]
        heapq.heapify(self._packets)
        self._proxies += 1
        self._front = Proxy(instance=f"{self._proxies}.")
        for rm in self.rms.values():
            if rm.session.state != "refused":
                self.reconnect(rm)

    def _outlives_proxy(self, packet: Packet) -> bool:
        """Whether neither end is the proxy, or an RM that hears from nobody else."""
        return not {packet.source, packet.to} & {PROXY, *(rm.peer for rm in self.rms.values())}

    def edit(self, text: str) -> None:
        """Somebody writes the watched file, and the broker's shell sees it."""
        self.file = text
        self.carry(FILE, [make_outgoing(BROKER, ChangedFile(text=text), Header(kind="ChangedFile"))])

    def _broker(self) -> BrokerMachine:
        state = BrokerState(
            default_text=self.file,
            watched="queues.yaml" if self.file else "",
            versions=self._recorded(),
            settings=Settings(lease_timeout_s=NEVER),
            incarnation=self._incarnation,
        )
        return BrokerMachine(state, now=self.now, records=list(self.facts.values()))

    def _recorded(self) -> ConfigVersions:
        versions = ConfigVersions()
        for rm, version in self.record:
            latest = versions.history(rm).latest
            if latest is not None and latest.number == version.number:
                versions.rebase(rm, version.base)
            else:
                versions.add_version(rm, version)
        return versions

    def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass until it holds."""
        for _ in range(STEPS_MAX):
            if holds():
                return
            assert self.step(), "nothing is left to happen, and it does not hold"
        raise AssertionError("it never holds")

    def settle(self) -> None:
        """Let everything happen that is on its way or due now; timers of the far future are left alone."""
        for _ in range(STEPS_MAX):
            if not self._packets and self._due()[0] > self.now:
                for worker in self.workers.values() if self.is_checked else ():
                    if worker.partition is not None:
                        check(worker.partition)
                return
            self.step()
        raise AssertionError("it never settles")

    # Time -----------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """The next delivery or deadline; False once nothing is left to happen."""
        due, name = self._due()
        if self._packets and self._packets[0].arrival <= max(due, self.now):
            self._deliver(heapq.heappop(self._packets))
        elif due < NEVER:
            self.now = max(self.now, due)
            self._note("tick", name)
            self.carry(self._peer(name), self.machine(name).tick(self.now))
        else:
            return False
        return True

    def machine(self, name: str) -> Machine:
        if name == BROKER:
            return self._switch
        return self._front if name == PROXY else self.workers[name]

    def carry(self, source: str, sends: list[Outgoing]) -> None:
        """Put messages on their way: each link keeps its order."""
        for one in sends:
            link = (source, one.to)
            arrival = max(self.now + self._rng.uniform(0, DELAY_MAX_S), self._last.get(link, 0.0))
            self._last[link] = arrival
            self._numbers += 1
            heapq.heappush(
                self._packets, Packet(arrival, self._numbers, source, one.to, encode_frames(one.header, one.body))
            )

    # Private --------------------------------------------------------------------------------------------------------

    def _due(self) -> tuple[float, str]:
        return min((self.machine(name).deadline, name) for name in (BROKER, PROXY, *self.workers))

    def _deliver(self, packet: Packet) -> None:
        self.now = max(self.now, packet.arrival)
        header, body = decode_header(packet.frames), packet.frames[2]
        self.kinds[header.kind] = self.kinds.get(header.kind, 0) + 1
        self._note(packet.source, packet.to, *packet.frames)
        if packet.to == KEEPER:
            if header.kind == "WorkersWanted":
                self._supervise(decode_body(WorkersWanted, body))
        elif packet.to == RECORD:
            self._write(header, body)
        elif header.kind == "ReadText":
            found = answer_text(Outgoing(packet.to, header, body))
            self.carry(packet.to, [Outgoing(BROKER, found.header, found.body)])
        elif packet.to == FILE:
            wanted = decode_body(WriteFile, body)
            if compute_checksum(self.file) == wanted.replaces:
                self.edit(wanted.text)
        elif packet.to == WEBSERVICE:
            self._to_front_end(header, body)
        elif packet.to == PLANNER:
            self._plan(packet.source, header, body)
        else:
            self._to_machine(packet, header, body)

    def _to_front_end(self, header: Header, body: bytes) -> None:
        answer = decode_body(Answer, body)
        self.answers.append((answer.status, answer.body))

    def _plan(self, peer: str, header: Header, body: bytes) -> None:
        """What the forked process of a worker answers; the copies are built from the records."""
        name = next(name for name in self.workers if self._peer(name) == peer)
        partition = self.workers[name].partition
        assert partition is not None, name
        wanted = msgspec.msgpack.decode(body, type=PlanWanted)
        answer = answer_plan(
            Copy(partition).partition, wanted, lambda order: play(Copy(partition).partition, order, now=self.now)
        )
        made = Incoming(PLANNER, Header(kind="PlanMade", ref=header.ref), encode_body(answer))
        self.carry(peer, self.machine(name).handle(made, self.now))

    def _to_machine(self, packet: Packet, header: Header, body: bytes) -> None:
        incoming = Incoming(packet.source, header, body)
        if header.kind == "Grant" and packet.to in self._idle:
            del self._idle[packet.to]
            self._start(packet.to, header.partition, header.epoch)
            return
        name = next((name for name, peer in self.peers.items() if peer == packet.to), packet.to)
        if name in (BROKER, PROXY) or (name in self.workers and packet.to == self._peer(name)):
            self.carry(packet.to, self.machine(name).handle(incoming, self.now))
        else:
            self._to_rm(packet.to, header, body)

    def _peer(self, name: str) -> str:
        """What a machine is called on the network."""
        return self.peers.get(name, name)

    def _to_rm(self, peer: str, header: Header, body: bytes) -> None:
        for rm in self.rms.values():
            if rm.peer == peer and rm.connected:
                self.carry(peer, rm.hear(header, body))

    def _supervise(self, wanted: WorkersWanted) -> None:
        """Keep as many workers running, as the supervisor does."""
        for peer, name in wanted.dismissed.items():
            if self.peers.get(name) == peer:
                del self.workers[name], self.peers[name]
        for _ in range(len(wanted.partitions) - len(self.workers) - len(self._idle)):
            self._start_idle()
        for peer in list(self._idle)[: max(0, len(self.workers) + len(self._idle) - len(wanted.partitions))]:
            del self._idle[peer]
            self.carry(KEEPER, [make_outgoing(BROKER, WorkerEnded(worker=peer, reason=""))])

    def _start_idle(self) -> None:
        self._processes += 1
        self._register(f"{WORKER_PREFIX}{self._processes}")

    def _register(self, peer: str) -> None:
        self._idle[peer] = None
        self.carry(peer, [make_outgoing(BROKER, Hello(role="worker"))])

    def _write(self, header: Header, body: bytes) -> None:
        """The disk takes what it is given; that it has is told afterwards, and a broker that died meanwhile never hears
        it.
        """
        if header.kind == "RebaseVersion":
            rm, latest = next(one for one in reversed(self.record) if one[0] == header.rm)
            self.record.append((rm, replace(latest, base=decode_body(RebaseVersion, body).base)))
            return
        if header.kind == "ReadConfig":
            asked = decode_body(ReadConfig, body)
            kept = [one for rm, one in self.record if (rm, one.number) == (header.rm, asked.version)]
            told = build_version_answer(header.rm, asked, kept[0] if kept else None)
            self.carry(RECORD, [make_outgoing(BROKER, told, Header(kind="Answer", ref=header.ref))])
            return
        if header.kind == "ReadVersion":
            number = decode_body(ReadVersion, body).version
            [text] = {one.config for rm, one in self.record if (rm, one.number) == (header.rm, number)}
            found = VersionRead(version=number, text=text)
            self.carry(RECORD, [make_outgoing(BROKER, found, Header(kind="VersionRead", rm=header.rm))])
            return
        wanted = decode_body(ManagerRecord, body)
        if wanted.facts:
            self.facts[header.rm] = decode_record(wanted.facts)
        else:
            self.facts.pop(header.rm, None)
        if wanted.version is not None:
            self.record.append((header.rm, wanted.version))
        to = Header(kind="Recorded", rm=header.rm)
        self.carry(RECORD, [make_outgoing(BROKER, Recorded(number=wanted.number), to)])

    def _start(self, peer: str, partition: str, epoch: int) -> None:
        worker = Worker(PartitionHost(partition=partition, epoch=epoch, manual=self._manual, plugins=self._plugins))
        self.workers[partition], self.peers[partition] = worker, peer
        worker.problem = self._problems.pop(partition, "")
        self.carry(peer, [worker.make_hello()])

    def _note(self, *parts: str | bytes) -> None:
        self._story.update(repr((self.now, parts)).encode())
