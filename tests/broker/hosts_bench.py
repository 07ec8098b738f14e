"""A leader with several hosts: supervisors that keep as many workers running as they are told, and RMs."""

import random
from typing import Final

import msgspec

from tests.analyses import answer_text
from yunishard.broker.config_versions import ConfigVersions, VersionHistory
from yunishard.broker.hosts import HostRow
from yunishard.broker.registry import RmRecord, WorkerSlot
from yunishard.broker.rm_records import decode_record
from yunishard.broker.routing import BrokerMachine
from yunishard.broker.state import BrokerState
from yunishard.common.messages.control_messages import (
    ConfigVersion,
    ConfigVote,
    Hello,
    HostRecorded,
    ManagerRecord,
    PrepareConfig,
    ReadVersion,
    Recorded,
    RecordHost,
    VersionRead,
    WorkerEnded,
    WorkersWanted,
)
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.query_messages import Answer, ChangeHosts, HostAction, ReadHosts
from yunishard.common.messages.rm_messages import Heartbeat, RegisterResourceManager
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, encode_body
from yunishard.common.names import RECORD, SUPERVISOR, WORKER_PREFIX, peer_name
from yunishard.common.rest.records import HostsView
from yunishard.common.settings import Settings

SETTINGS: Final = Settings(
    store="postgresql://db/y", cluster_address="tcp://10.0.0.1:9094", host_name="a", lease_timeout_s=10.0
)
STEP_S: Final = 1.0
PROXY: Final = "rmproxy/a"
WEB: Final = "webservice/a"


class FakeHost:
    """A supervisor, and the workers of its host by name: the partition and epoch of each, if it has one."""

    def __init__(self, name: str, cores: int = 4, memory_bytes: int = 0) -> None:
        self.name, self.cores, self.memory_bytes = name, cores, memory_bytes
        self.supervisor = peer_name(SUPERVISOR, name)
        self.workers: dict[str, tuple[str, int]] = {}
        self.wanted: list[str] = []
        self.elsewhere: set[str] = set()
        self.is_up = True
        self.is_cut = False
        """Whether no message reaches it or comes from it."""
        self.starts_workers = True
        self.is_supervisor_silent = False
        self.numbers = 0


class HostsBench:
    """The leader's machine, and a network in which each link keeps its order."""

    def __init__(self, *hosts: FakeHost, rows: tuple[HostRow, ...] = (), seed: int = 0) -> None:
        self.hosts = {one.name: one for one in hosts}
        self.now = 1.0
        self.rng = random.Random(seed)
        self.records: dict[str, RmRecord] = {}
        self.versions: dict[str, list[ConfigVersion]] = {}
        self.draining: dict[str, bool] = {}
        self.links: dict[tuple[str, str], list[tuple[Header, bytes]]] = {}
        self.answers: list[Answer] = []
        self.incarnation = 0
        self.disk_problem = ""
        self.is_rebalance_requested = False
        self._placed: dict[str, str] = {}
        """Partition to its host at the latest check."""
        self._rebalanced = 0
        self.granted: dict[str, int] = {}
        """Partition to the epoch of its latest grant."""
        self.broker = self._lead(rows)
        for one in hosts:
            self._greet(one)
        self.settle()

    def _lead(self, rows: tuple[HostRow, ...]) -> BrokerMachine:
        self.incarnation += 1
        histories = {rm: VersionHistory([*versions]) for rm, versions in self.versions.items()}
        self.state = BrokerState(settings=SETTINGS, incarnation=self.incarnation, versions=ConfigVersions(histories))
        self.registry = self.state.registry
        return BrokerMachine(self.state, now=self.now, records=list(self.records.values()), hosts=rows)

    def change_leader(self, *silent: str, rows: tuple[HostRow, ...] = ()) -> None:
        """Another broker leads. It knows the hosts from the store: as `rows`, or these have been silent for 6 s."""
        rows = rows or tuple(
            HostRow(
                name=one.name,
                cores=one.cores,
                age_s=6.0 if one.name in silent else 1.0,
                is_draining=self.draining.get(one.name, False),
            )
            for one in self.hosts.values()
        )
        self.links.clear()
        self._placed, self._rebalanced, self.is_rebalance_requested = {}, 0, False
        self.broker = self._lead(rows)
        for host in self.hosts.values():
            if host.is_up:
                self._greet(host)

    # What happens ---------------------------------------------------------------------------------------------------

    def register(self, rm: str, partitions: int) -> None:
        """An RM registers with so many partitions."""
        names = [f"p{number}" for number in range(partitions)]
        queues = "".join(f"  - name: {name}\n    queues:\n      - name: root\n" for name in names)
        call = RegisterResourceManager(rm_id=rm, version="1", policy_group="", config=f"partitions:\n{queues}")
        self.send(PROXY, call, rm=rm, session="s")

    def kill_host(self, name: str) -> None:
        """A host is gone with all that ran on it."""
        host = self.hosts[name]
        host.is_up, host.workers, host.wanted = False, {}, []
        for link in [one for one in self.links if self._host_of(one[0]) == name or self._host_of(one[1]) == name]:
            del self.links[link]

    def start_host(self, name: str) -> None:
        """A host that was gone is back."""
        self.hosts[name].is_up = True
        self._greet(self.hosts[name])

    def reconnect(self, name: str) -> None:
        """The links of a host break, and its processes send Hello again."""
        self._greet(self.hosts[name])

    def end_worker(self, name: str) -> None:
        """A worker ends, and its supervisor reports that."""
        host = self.hosts[self._host_of(name)]
        partition, epoch = host.workers.pop(name)
        ended = WorkerEnded(worker=name, reason="")
        self.send(host.supervisor, ended, partition=partition, epoch=epoch)
        self.keep_workers(host.name)

    def ask(self, message: Message) -> tuple[int, str]:
        """The status and text of the answer to an operator."""
        self.send(WEB, message, ref="1")
        self.is_rebalance_requested |= isinstance(message, ChangeHosts) and message.action == "rebalance"
        self.settle()
        answer = self.answers.pop()
        return answer.status, answer.body.decode()

    def act(self, action: HostAction, host: str = "") -> None:
        """An operator's request is carried out."""
        status, text = self.ask(ChangeHosts(action=action, host=host))
        assert status == 200, text

    def view(self) -> HostsView:
        """All hosts, as an operator sees them."""
        return msgspec.json.decode(self.ask(ReadHosts())[1], type=HostsView)

    def send(self, source: str, message: Message, **fields: str | int) -> None:
        """Put a message for the leader on its way."""
        header = Header(kind=type(message).__name__, **fields)  # type: ignore[arg-type]
        self.links.setdefault((source, ""), []).append((header, encode_body(message)))

    def wait(self, seconds: float) -> None:
        """Let time pass; all processes that are up send heartbeats."""
        until = self.now + seconds
        while self.now < until:
            self.now += STEP_S
            for host in self.hosts.values():
                if host.is_up:
                    if not host.is_supervisor_silent:
                        self.send(host.supervisor, Heartbeat())
                    for worker, (partition, epoch) in host.workers.items():
                        self.send(worker, Heartbeat(), partition=partition, epoch=epoch)
            self.send(PROXY, Heartbeat())
            if self.broker.deadline <= self.now:
                self._carry(self.broker.tick(self.now))
                self.check()
            self.settle()

    def settle(self) -> None:
        """Deliver what is on its way, in any order of the links."""
        for _ in range(100_000):
            links = [link for link, queue in self.links.items() if queue and not self._is_cut(link)]
            if not links:
                return
            self.deliver(self.rng.choice(links))
        raise AssertionError("it never settles")

    def deliver_some(self, most: int) -> None:
        """Deliver at most so many messages."""
        for _ in range(most):
            if links := [link for link, queue in self.links.items() if queue and not self._is_cut(link)]:
                self.deliver(self.rng.choice(links))

    def deliver(self, link: tuple[str, str]) -> None:
        """Deliver the next message of a link."""
        source, to = link
        header, body = self.links[link].pop(0)
        if to == "":
            self._carry(self.broker.handle(Incoming(source, header, body), self.now))
            self.check()
        elif (host := self.hosts.get(self._host_of(to))) is not None and host.is_up:
            self._receive(host, to, header, body)

    def _is_cut(self, link: tuple[str, str]) -> bool:
        host = self.hosts.get(self._host_of(link[0]) or self._host_of(link[1]))
        return host is not None and host.is_cut

    # Invariants -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """No worker has two leases, each worker is where its slot says, and no partition has moved without a reason."""
        leases = [slot.worker for slot in self.slots.values() if slot.worker]
        assert len(leases) == len(set(leases))
        rebalanced = self.state.counters.moves["rebalance"] + self.state.counters.moves["unserved"]
        for name, slot in self.slots.items():
            assert not slot.worker or self._host_of(slot.worker) == slot.worker_host
            before = self.state.hosts.find(self._placed.get(name, ""))
            if before is None or before.name == slot.host or not before.is_available:
                continue
            must_leave = bool(slot.worker) and not self.state.hosts.is_available(slot.worker_host)
            is_explained = must_leave or slot.worker_host == slot.host or rebalanced > self._rebalanced
            assert is_explained, (name, before.name, slot.host)
        self._placed, self._rebalanced = {name: slot.host for name, slot in self.slots.items()}, rebalanced
        assert not self.state.counters.moves["rebalance"] or self.is_rebalance_requested

    @property
    def slots(self) -> dict[str, WorkerSlot]:
        return self.registry.slots

    def placed(self) -> dict[str, int]:
        """Partitions that each host serves."""
        found = dict.fromkeys(self.hosts, 0)
        for slot in self.slots.values():
            if slot.is_present and not slot.is_moving:
                found[slot.host] += 1
        return found

    # The other side -------------------------------------------------------------------------------------------------

    def _host_of(self, peer: str) -> str:
        role, _, instance = peer.partition("/")
        return {"supervisor": instance, "worker": instance.rpartition(".")[0]}.get(role, "")

    def _greet(self, host: FakeHost) -> None:
        workers = {name: partition for name, (partition, _) in host.workers.items()}
        hello = Hello(
            role=SUPERVISOR, host=host.name, cores=host.cores, memory_bytes=host.memory_bytes, workers=workers
        )
        self.send(host.supervisor, hello)
        for name in host.workers:
            self._register_worker(host, name)

    def _register_worker(self, host: FakeHost, name: str) -> None:
        partition, epoch = host.workers[name]
        self.send(name, Hello(role="worker", host=host.name), partition=partition, epoch=epoch)

    def _carry(self, sends: list[Outgoing]) -> None:
        for one in sends:
            if one.to == RECORD:
                self._record(one)
            elif one.header.kind == "ReadText":
                self._carry(self.broker.handle(answer_text(one), self.now))
            elif one.header.kind == "Answer":
                self.answers.append(decode_body(Answer, one.body))
            else:
                if one.header.kind == "Grant":
                    last = self.granted.get(one.header.partition, 0)
                    assert one.header.epoch >= last, "epochs grow"
                    self.granted[one.header.partition] = one.header.epoch
                self.links.setdefault(("", one.to), []).append((one.header, one.body))

    def _record(self, one: Outgoing) -> None:
        match one.header.kind:
            case "ManagerRecord":
                record = decode_body(ManagerRecord, one.body)
                self.records.pop(one.header.rm, None)
                if record.facts:
                    self.records[one.header.rm] = decode_record(record.facts)
                if record.version is not None:
                    self.versions.setdefault(one.header.rm, []).append(record.version)
                self.send(RECORD, Recorded(number=record.number), rm=one.header.rm)
            case "ReadVersion":
                number = decode_body(ReadVersion, one.body).version
                [text] = {each.config for each in self.versions[one.header.rm] if each.number == number}
                found = VersionRead(version=number, text=text)
                self.send(RECORD, found, rm=one.header.rm)
            case "RecordHost":
                wanted = decode_body(RecordHost, one.body)
                if not self.disk_problem:
                    self.draining[wanted.host] = wanted.change == "drain"
                done = HostRecorded(host=wanted.host, change=wanted.change, problem=self.disk_problem)
                self.send(RECORD, done, ref=one.header.ref)

    def _receive(self, host: FakeHost, to: str, header: Header, body: bytes) -> None:
        match header.kind:
            case "WorkersWanted":
                wanted = decode_body(WorkersWanted, body)
                for name in wanted.dismissed.keys() & host.workers.keys():
                    del host.workers[name]
                host.wanted, host.elsewhere = wanted.partitions, set(wanted.elsewhere)
                self.keep_workers(host.name)
            case "Grant" if to in host.workers and not host.workers[to][0]:
                host.workers[to] = header.partition, header.epoch
                self._register_worker(host, to)
            case "Heartbeat" if not decode_body(Heartbeat, body).incarnation:
                if to in host.workers:
                    self._register_worker(host, to)
                elif to == host.supervisor:
                    self._greet(host)
            case "PrepareConfig":
                vote = ConfigVote(rollout=decode_body(PrepareConfig, body).rollout)
                self.send(to, vote, partition=header.partition, rm=header.rm, session=header.session)

    def keep_workers(self, name: str) -> None:
        """Start the workers that a host needs, and stop idle ones that it does not need."""
        host = self.hosts[name]
        idle = [worker for worker, (partition, _) in host.workers.items() if not partition]
        for worker in idle[: max(0, len(host.workers) - len(host.wanted))]:
            del host.workers[worker]
            self.send(host.supervisor, WorkerEnded(worker=worker, reason=""))
        for _ in range(len(host.wanted) - len(host.workers) if host.starts_workers else 0):
            host.numbers += 1
            worker = f"{WORKER_PREFIX}{host.name}.{self.incarnation}-{host.numbers}"
            host.workers[worker] = "", 0
            self._register_worker(host, worker)
