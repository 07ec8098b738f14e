"""The database of the simulation: a primary, its synchronous standby, and the connections of clients.

    client --request--> primary: the transaction is carried out --to the standby--> answer --> client

A transaction takes effect on the primary at one moment, and is answered once the standby has it, too. When the primary
crashes, the standby takes its place with a first part of what was not answered yet; another standby joins later, and
until then no commit is answered. A server can also hang, and go on with what it was sent meanwhile, be slow, or be
full. A client that receives no answer for ANSWER_MAX_S, or whose connection breaks, does not know the outcome.

A transaction sees the time of the server, and the clocks of the two may differ. Each host reaches the primary in each
direction, or not.

Not here: what clients do with it (`database_journal.py`, `database_record.py`), when it fails (`faults.py`).
"""

import random
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace as replace_struct

from tests.sim.disk import JournalFile
from tests.sim.timeline import Timeline
from yunishard.broker.hosts import HostRow
from yunishard.broker.sqlite_store import SqliteStore
from yunishard.common.messages.control_messages import HostChange
from yunishard.common.messages.wire import BrokerAddress
from yunishard.common.sqlite_file import IN_MEMORY

if TYPE_CHECKING:
    from tests.sim.process import Process

TRAVEL_MAX_S: Final = 0.002
"""From a client to the primary, or back."""

STANDBY_MAX_S: Final = 0.003
"""From the primary to the standby and back, with the disks of both."""

SLOW_MAX_S: Final = 0.4
ANSWER_MAX_S: Final = 3.0
"""How long most clients wait for an answer; then the outcome is unknown."""

CONNECT_MAX_S: Final = 1.0
"""How long an attempt to connect takes to fail."""

FAILOVER_MAX_S: Final = 2.0
"""How long there is no primary after a crash."""

REJOIN_MAX_S: Final = 2.0
"""How long there is no standby after a failover."""

SKEW_MAX_S: Final = 20.0
"""How far the clock of a server may be from the right time at first."""

JUMP_S: Final = 3600.0
"""By how much the clock of a server jumps, forwards or backwards."""

LATE: Final = 0.5
"""The share of requests of a host that is cut off which the server receives when the cut ends."""

T = TypeVar("T")


class OutcomeUnknown(OSError):
    """The connection was lost: the transaction may have been carried out, or be carried out later."""


@dataclass(slots=True)
class LeaseRow:
    """Who leads, by the clock of the database."""

    holder: str = ""
    epoch: int = 0
    expires_at: float = 0.0
    address: BrokerAddress = field(default_factory=partial(BrokerAddress, ""))
    writes: int = 0
    """Of the record under this epoch."""


class ClusterRecord(SqliteStore):
    """The record of several hosts, beside the journals."""

    def __init__(self, journals: dict[str, JournalFile]) -> None:
        super().__init__(IN_MEMORY)
        self._journals = journals
        self.hosts: dict[str, tuple[HostRow, float]] = {}
        """Each with its heartbeat."""

    def change_host(self, host: str, change: HostChange) -> None:
        if change == "remove":
            self.hosts.pop(host, None)
            return
        if host not in self.hosts:
            raise OSError(f"the store has no host {host}")
        row, heartbeat = self.hosts[host]
        self.hosts[host] = replace_struct(row, is_draining=change == "drain"), heartbeat

    def remove_journal(self, partition: str, epoch: int) -> None:
        if partition in self._journals and self._journals[partition].epoch <= epoch:
            del self._journals[partition]

    def copy(self, journals: dict[str, JournalFile]) -> "ClusterRecord":
        other = ClusterRecord(journals)
        other._file.deserialize(self._file.serialize())
        other.hosts = dict(self.hosts)
        return other


class Tables:
    """What a server has."""

    def __init__(self) -> None:
        self.journals: dict[str, JournalFile] = {}
        self.record = ClusterRecord(self.journals)
        self.leases: dict[str, LeaseRow] = {}

    def journal(self, partition: str) -> JournalFile:
        return self.journals.setdefault(partition, JournalFile())

    def lease(self, name: str) -> LeaseRow:
        return self.leases.setdefault(name, LeaseRow())

    def copy(self) -> "Tables":
        """A base backup."""
        other = Tables()
        other.journals.update((name, one.copy()) for name, one in self.journals.items())
        other.record = self.record.copy(other.journals)
        other.leases.update((name, replace(one)) for name, one in self.leases.items())
        return other


Transaction = Callable[[Tables, float], object]
"""What is done at one moment: to these tables, at this time of the database. It raises before it changes anything, and
does the same whenever it is repeated on the same tables, as the standby repeats it."""

Work = Generator[Transaction | float, object, T]
"""What a client does in several transactions, with pauses of so many seconds. An OSError is thrown into it."""


def once(transaction: Transaction) -> Work[object]:
    """One transaction; its result."""
    return (yield transaction)


class Database:
    """Both servers, and whoever waits for them."""

    def __init__(self, timeline: Timeline, rng: random.Random) -> None:
        self.primary = Tables()
        self.full = self.slow = self.hung = False
        self.blocked: set[tuple[str, bool]] = set()
        """A host, and whether what it sends is cut off (else what it is sent)."""
        self._stuck: list[_Request] = []
        """Requests of hosts that are cut off."""
        self.skew_s = 0.0
        """How far the clock of the primary is ahead."""
        self._standby: Tables | None = Tables()
        self._is_up = True
        self._timeline, self._rng = timeline, rng
        self._unreplicated: deque[tuple[Transaction, float]] = deque()
        """Transactions that the standby does not have."""
        self._waiting: deque[_Request] = deque()
        """Those of them, in the same order, with their results."""
        self._received: deque[_Request] = deque()
        """What a server that hangs has been sent."""
        self._replicated_at = 0.0

    @property
    def is_well(self) -> bool:
        return self._is_up and self._standby is not None

    # What happens to it ---------------------------------------------------------------------------------------------

    def crash(self) -> bool:
        """The primary is gone; whether a standby can take its place."""
        if not self.is_well:
            return False
        assert self._standby is not None
        kept = self._rng.randint(0, len(self._unreplicated))
        for transaction, now in list(self._unreplicated)[:kept]:
            transaction(self._standby, now)
        self.primary, self._standby = self._standby, None
        self._is_up = self.hung = False
        lost, self._waiting, self._received = [*self._waiting, *self._received], deque(), deque()
        self._unreplicated.clear()
        for request in lost:
            self._timeline.after(self._rng.uniform(0, TRAVEL_MAX_S), request.lose)
        self._timeline.after(self._rng.uniform(0.2, FAILOVER_MAX_S), self._promote)
        return True

    def _promote(self) -> None:
        self._is_up = True
        self.skew_s = self._rng.uniform(-SKEW_MAX_S, SKEW_MAX_S)
        self._timeline.after(self._rng.uniform(0.1, REJOIN_MAX_S), self._rejoin)

    def _rejoin(self) -> None:
        """Another standby has a copy of everything: what waited for it is answered."""
        self._standby = self.primary.copy()
        self._unreplicated.clear()
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.answer()

    def go_on(self) -> None:
        """A server that hung continues with what it was sent, even if nobody waits for it any more."""
        self.hung = False
        received, self._received = self._received, deque()
        for request in received:
            self._execute(request)

    def jump(self) -> None:
        """The clock of the primary jumps."""
        self.skew_s += self._rng.choice((-JUMP_S, JUMP_S))

    def break_connections(self) -> None:
        """All connections break. What was carried out stays, whether or not the standby has it."""
        for request in self._waiting:
            self._timeline.after(self._rng.uniform(0, TRAVEL_MAX_S), request.lose)

    def heal(self) -> None:
        """Nothing is wrong any more, except that a failover may be under way."""
        self.full = self.slow = False
        for host, sends in tuple(sorted(self.blocked)):
            self.unblock(host, sends=sends)
        self.go_on()

    # Requests -------------------------------------------------------------------------------------------------------

    def send(self, request: "_Request") -> None:
        """A client sends a request; it knows an outcome, or that it is unknown, some time later."""
        timeline, rng, host = self._timeline, self._rng, request.host
        is_cut = (host, True) in self.blocked or (host, False) in self.blocked
        if not self._is_up or (is_cut and not request.is_connected):
            timeline.after(rng.uniform(0.001, CONNECT_MAX_S), partial(request.fail, "the database is unreachable"))
            return
        timeline.after(request.answer_max_s, request.lose)
        if (host, True) in self.blocked:
            self._stuck.append(request)
        else:
            timeline.after(rng.uniform(0, SLOW_MAX_S if self.slow else TRAVEL_MAX_S), partial(self._arrive, request))

    def block(self, host: str, *, sends: bool) -> None:
        """Cut a host off, in one direction. Its connections stay until it notices."""
        self.blocked.add((host, sends))

    def unblock(self, host: str, *, sends: bool) -> None:
        """What the host has sent meanwhile may arrive after all."""
        self.blocked.discard((host, sends))
        stuck, self._stuck = self._stuck, []
        for request in stuck:
            if (request.host, True) in self.blocked:
                self._stuck.append(request)
            elif self._rng.random() < LATE:
                self._timeline.after(self._rng.uniform(0, TRAVEL_MAX_S), partial(self._arrive, request))

    def _arrive(self, request: "_Request") -> None:
        if not self._is_up:
            request.lose()
        elif self.hung:
            self._received.append(request)
        else:
            self._execute(request)

    def _execute(self, request: "_Request") -> None:
        now = self._timeline.now + self.skew_s
        try:
            if self.full:
                raise OSError("the disk of the database is full")
            request.result = request.transaction(self.primary, now)
        except OSError as error:
            request.result = error
            self._timeline.after(self._rng.uniform(0, TRAVEL_MAX_S), request.answer)
            return
        self._unreplicated.append((request.transaction, now))
        self._waiting.append(request)
        seconds = self._rng.uniform(0, SLOW_MAX_S if self.slow else STANDBY_MAX_S)
        self._replicated_at = max(self._replicated_at, self._timeline.now + seconds)
        self._timeline.at(self._replicated_at, partial(self._replicate, request))

    def _replicate(self, request: "_Request") -> None:
        """The standby has everything up to this, unless there is none or the primary has crashed since."""
        while self._standby is not None and request in self._waiting:
            transaction, now = self._unreplicated.popleft()
            transaction(self._standby, now)
            self._waiting.popleft().answer()

    # At once, for tests of what clients do --------------------------------------------------------------------------

    def run(self, work: Work[T], *, loses_answer: bool = False) -> T:
        """Carry out all transactions of a client at once; the outcome of the first one may stay unknown to it."""
        outcome: object = None
        error: OSError | None = None
        while True:
            try:
                transaction = work.throw(error) if error is not None else work.send(outcome)
            except StopIteration as end:
                found: T = end.value
                return found
            assert callable(transaction)
            try:
                if self.full:
                    raise OSError("the disk of the database is full")
                outcome, error = transaction(self.primary, self._timeline.now), None
                if loses_answer:
                    loses_answer = False
                    raise OutcomeUnknown("the connection is lost")
            except OSError as problem:
                error = problem


class _Request:
    """A transaction on its way, and the client's continuation."""

    def __init__(self, client: "Client", transaction: Transaction, done: Callable[[object], None]) -> None:
        self.transaction = transaction
        self.host = client.owner.host
        self.is_connected = client.is_connected
        self.answer_max_s = client.answer_max_s
        self.result: object = None
        self._client, self._done = client, done
        self._is_over = False

    def answer(self) -> None:
        """The server answers. The answer may not reach the client."""
        if (self.host, False) not in self._client.database.blocked:
            self._end(self.result, is_connected=True)

    def lose(self) -> None:
        """The connection is lost, or the client has waited for too long."""
        self._end(OutcomeUnknown("the connection to the database is lost"), is_connected=False)

    def fail(self, problem: str) -> None:
        """The request was never sent."""
        self._end(OSError(problem), is_connected=False)

    def _end(self, outcome: object, *, is_connected: bool) -> None:
        if self._is_over:
            return
        self._is_over, self._client.is_connected = True, is_connected
        self._client.resume(partial(self._done, outcome))


class Client:
    """A thread of a process with a connection to the database: one transaction at a time."""

    def __init__(
        self, database: Database, owner: "Process", timeline: Timeline, answer_max_s: float = ANSWER_MAX_S
    ) -> None:
        self.database = database
        self.owner = owner
        self.answer_max_s = answer_max_s
        self.is_connected = True
        self._timeline = timeline

    def drive(self, work: Work[T], done: Callable[[T | OSError], None]) -> None:
        """Do this work, and tell its result, or the OSError with which it ended."""
        self._step(work, done, None)

    def _step(self, work: Work[T], done: Callable[[T | OSError], None], outcome: object) -> None:
        try:
            transaction = work.throw(outcome) if isinstance(outcome, OSError) else work.send(outcome)
        except StopIteration as end:
            done(end.value)
        except OSError as error:
            done(error)
        else:
            step = partial(self._step, work, done)
            if isinstance(transaction, float):
                self._timeline.after(transaction, partial(self.resume, partial(step, None)))
            else:
                self.database.send(_Request(self, transaction, step))

    def resume(self, step: Callable[[], None]) -> None:
        """Go on, unless the process is dead; later, if it is stopped."""
        if self.owner.alive and self.owner.stopped:
            self._timeline.after(0.05, partial(self.resume, step))
        elif self.owner.alive:
            step()
