"""A resource manager of the simulation: it behaves as a correct one does, with the session of the SDK.

    connection --> register, or Resume; again after a while without an answer
    news       --> its books (`hearing.py`), then an acknowledgement, some of them later
    a release that the core wants --> some time later the pod is gone, and it says so
    a partition that began anew, or a report that did not arrive whole --> everything again, from SyncBegin to SyncEnd
    a session that is over --> another one, with everything that it has

It may also be slow: then news wait in it as in the SDK's buffer, unacknowledged. Not here: what it wants
(`workload.py`), what it may hear (`auditor.py`).
"""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.sim.hearing import confirmed, hear, pieces
from tests.sim.site import Site
from yunishard.common.messages.kinds import Command, Header, News
from yunishard.common.messages.rm_messages import (
    PREDICATES,
    STATE_DUMP,
    AllocationRequest,
    ConfigurationUpdated,
    Goodbye,
    Left,
    NodeRequest,
    PartitionRestarted,
    PredicatesAnswered,
    PredicatesAsked,
    Refused,
    Registered,
    RegisterResourceManager,
    ResumeWanted,
    StateDumpAnswered,
    StateDumpAsked,
    SyncBegin,
    SyncDone,
    SyncEnd,
    UpdateConfiguration,
    Verdict,
)
from yunishard.common.messages.session import EncodedMessage, Session, SessionState
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, WireError
from yunishard.sdk.session import Liveness

if TYPE_CHECKING:
    from tests.sim.auditor import Auditor

PROXY: Final = "rmproxy/"
"""With what the name of each proxy begins."""

ANEW_MAX_S: Final = 2.0
"""How long until a session that is over is followed by another one."""


@dataclass
class Cluster:
    """What an RM has that outlives its process: its partitions, its configuration, and names that never come again."""

    rm_id: str
    config: str
    rng: random.Random
    predicates: bool = False
    sites: dict[str, Site] = field(default_factory=dict)
    sessions: int = 0
    numbers: int = 0

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def refuses(self, key: str, node: str) -> bool:
        """Whether the RM would not let this ask run there. Always the same answer."""
        return self.predicates and (hash_of(key) + hash_of(node)) % 4 == 0


def hash_of(text: str) -> int:
    """The same in each process."""
    return sum(position * byte for position, byte in enumerate(text.encode(), 7))


class ResourceManager:
    """One life of an RM's process."""

    def __init__(self, cluster: Cluster, auditor: "Auditor", now: float, addresses: int = 1) -> None:
        self.cluster = cluster
        self.auditor = auditor
        self.rng = cluster.rng
        self.session = self._new_session()
        self.slow_until = 0.0
        """Until then it takes no news."""
        self.wanted_config = ""
        """What it has asked for and not heard about yet."""
        self.checksum = ""
        self.entered = False
        """Whether its registration has been answered."""
        self.leaving = False
        """Whether it goes for good."""
        self.reconnects = False
        """Whether it has had enough of its connection; whoever has the socket sees to it."""
        self._buffer: deque[tuple[Header, bytes]] = deque()
        self._heartbeat = (0, 0)
        self._has_several = addresses > 1
        self._liveness = Liveness(self.rng.random, addresses=addresses)
        self._begin_at = NEVER
        """When a session that is over is followed by another one."""
        self._ack_at = NEVER
        self._later: list[tuple[float, Site, str]] = []
        """Keys of pods that are being deleted, and when they are."""
        self._now = now

    def _new_session(self) -> Session:
        self.cluster.sessions += 1
        return Session(rm_id=self.cluster.rm_id, session=f"s{self.cluster.sessions}")

    @property
    def rm_id(self) -> str:
        return self.cluster.rm_id

    @property
    def session_number(self) -> int:
        return int(self.session.session.removeprefix("s"))

    @property
    def open(self) -> bool:
        return self.session.state == "open"

    @property
    def quiet(self) -> bool:
        """Whether nothing is left for it to say or take."""
        return self.open and not self._buffer and not self._later and self._ack_at == NEVER

    # Time -----------------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        later = min((at for at, _, _ in self._later), default=NEVER)
        reads = self.slow_until if self._buffer else NEVER
        return min(later, reads, self._liveness.deadline, self._begin_at, self._ack_at)

    def tick(self, now: float) -> list[Outgoing]:
        self._now = now
        out: list[EncodedMessage] = []
        if self._begin_at <= now:
            out += self._anew()
        match self._liveness.next_action(now):
            case "reconnect":
                self.reconnects = True
                self._start_attempt()
            case "retry":
                out += self._call()
            case "heartbeat":
                out.append(self.session.heartbeat())
        while self._buffer and self.slow_until <= now:
            out += self._take(*self._buffer.popleft())
        due = [one for one in self._later if one[0] <= now]
        self._later = [one for one in self._later if one[0] > now]
        for _, site, key in due:
            command = confirmed(site, key)
            out += self.update(site, command) if command is not None else []
        if self._ack_at <= now:
            self._ack_at = NEVER
            out += self.session.acknowledgements() if self.open else []
        return self.sends(out)

    def sends(self, outgoing: list[EncodedMessage]) -> list[Outgoing]:
        if outgoing:
            self._liveness.sent_at = self._now
        # messages to a partition that resumes alone are repeated after that
        return [
            Outgoing(PROXY, one.header, one.body)
            for one in outgoing
            if one.header.kind == "Resume" or one.header.partition != (self.session.resuming or None)
        ]

    # The connection -------------------------------------------------------------------------------------------------

    def connected(self, now: float) -> list[Outgoing]:
        """On a new connection the first message says who speaks; what waits in the buffer will come again."""
        self._now = now
        self._buffer.clear()
        is_paused = self._has_several and self._liveness.state == "paused"
        return self.sends([] if is_paused or self._begin_at != NEVER else self._call())

    def moved(self, now: float) -> None:
        """It turns to the next of several addresses."""
        self._liveness.start_move(now)

    def failed(self, now: float) -> None:
        """A connection to one of several addresses broke, or could not be made."""
        if self._begin_at == NEVER:
            self._liveness.fail(now)

    def _start_attempt(self) -> None:
        """Of several addresses, each has its attempt when the RM turns to it."""
        if not (self._has_several and self._liveness.state == "attempting"):
            self._liveness.start_attempt(self._now)

    def _call(self) -> list[EncodedMessage]:
        self._start_attempt()
        if self.leaving:
            return [self.session.leave()]
        if not self.entered:
            return [self.session.register(self._registration())]
        return [self.session.resume()]

    def _registration(self) -> RegisterResourceManager:
        capabilities = [STATE_DUMP, *([PREDICATES] if self.cluster.predicates else [])]
        extra = {"event.trackingEnabled": "false"} if self.cluster.sessions % 2 else {}
        return RegisterResourceManager(
            rm_id=self.rm_id, config=self.cluster.config, capabilities=capabilities, extra_config=extra
        )

    def leave(self) -> list[EncodedMessage]:
        """Go for good."""
        self.leaving = True
        self._start_attempt()
        return [self.session.leave("the simulation wants it")]

    def reconfigure(self, text: str) -> list[EncodedMessage]:
        """Ask for another configuration."""
        self.wanted_config = text
        number = self.cluster.number()
        return [self.session.update_configuration(UpdateConfiguration(config=text), ref=f"configuration-{number}")]

    def _over(self, why: str) -> None:
        """The session is over: another one follows."""
        self.auditor.story.note(self.rm_id, f"session {self.session.session} is over: {why}")
        self._begin_at = self._now + self.rng.uniform(0.05, ANEW_MAX_S)
        self._ack_at = NEVER
        self._liveness.suspend()
        self._buffer.clear()
        self._later.clear()

    def _anew(self) -> list[EncodedMessage]:
        self._begin_at = NEVER
        self.session = self._new_session()
        self.wanted_config, self.leaving, self.entered = "", False, False
        return self._call()

    # Saying ---------------------------------------------------------------------------------------------------------

    def update(self, site: Site, command: Command) -> list[EncodedMessage]:
        """Say it now, or once the session goes on."""
        if site.dying or site is not self.cluster.sites.get(site.partition):
            return []
        outgoing = self.session.update(command)
        return outgoing if self.open else []

    def confirm_later(self, site: Site, key: str, seconds: float) -> None:
        """A pod is being deleted, which takes time."""
        self._later.append((self._now + seconds, site, key))

    def report(self, site: Site, why: str) -> list[EncodedMessage]:
        """Everything again, between SyncBegin and SyncEnd."""
        site.forget_transitions()
        self._later = [one for one in self._later if one[1] is not site]
        commands = site.report()
        site.syncing = True
        out = [self.session.number(site.partition, SyncBegin(reason=why))]
        for command in commands:
            out += self.session.update(command)
        nodes = sum(len(one.nodes) for one in commands if isinstance(one, NodeRequest))
        allocations = sum(len(one.allocations) for one in commands if isinstance(one, AllocationRequest))
        counts = SyncEnd(nodes=nodes, applications=len(site.applications), allocations=allocations)
        out.append(self.session.number(site.partition, counts))
        return out if self.open else []

    # Hearing --------------------------------------------------------------------------------------------------------

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        self._now = now
        self._liveness.received_at = now
        header = incoming.header
        if header.session == self.session.session and header.seq:
            self.auditor.arrived(self, header, incoming.body)
            if self.slow_until > now or self._buffer:
                self._buffer.append((header, incoming.body))
                self.session.receive_acknowledgement(header)
                return []
        return self.sends(self._take(header, incoming.body))

    def _take(self, header: Header, body: bytes) -> list[EncodedMessage]:
        before = self.session.state
        try:
            message = self.session.receive(header, body)
        except WireError:
            return self._resume("a gap") if self.open else []
        if message is None:
            return self._acknowledge()
        if isinstance(message, News):
            return self._news(header, message)
        match message:
            case Registered() if header.partition:
                self._liveness.open(*self._heartbeat, self._now)
                return self.session.retransmissions(header.partition)
            case Registered():
                return self._registered(message)
            case ConfigurationUpdated():
                return self._reconfigured(message)
            case ResumeWanted():
                if self.session.state == "away" or self.session.is_open(header.partition):
                    return self._resume("the core wants it", header.partition)
            case Goodbye():
                self._liveness.pause(message.retry_after_milli_seconds / 1000, self._now)
            case Left():
                self._left() if self.leaving else self._over("it was away for too long")
            case Refused():
                return self._refused(header, message, before)
        return []

    def _acknowledge(self) -> list[EncodedMessage]:
        """Now, or a little later with others."""
        if self.open and self.rng.random() < 0.5:
            return self.session.acknowledgements()
        self._ack_at = min(self._ack_at, self._now + self.rng.uniform(0, 0.05))
        return []

    def _resume(self, why: str, partition: str = "") -> list[EncodedMessage]:
        call = self.session.resume(partition, ref=f"resume {partition}" if partition else "resume")
        partition = call.header.partition
        self.auditor.story.note(self.rm_id, f"resumes {partition or 'all'}: {why}")
        self._buffer = deque(one for one in self._buffer if partition not in ("", one[0].partition))
        self._start_attempt()
        return [call]

    def _registered(self, message: Registered) -> list[EncodedMessage]:
        self.entered = True
        self._heartbeat = message.heartbeat_milli_seconds, message.silence_milli_seconds
        self._liveness.open(*self._heartbeat, self._now)
        self._adopt(message.partitions, message.lives, message.checksum)
        begins = self.auditor.begun(self)
        out = self.session.retransmissions()
        if begins:
            for site in self.cluster.sites.values():
                if site.nodes and not site.dying:
                    out += self.report(site, "a new session")
                else:
                    site.syncing = False
                    site.forget_transitions()
        return out

    def _reconfigured(self, message: ConfigurationUpdated) -> list[EncodedMessage]:
        self._adopt(message.partitions, message.lives, message.checksum)
        if not message.author and self.wanted_config:
            self.cluster.config, self.wanted_config = self.wanted_config, ""
        return []

    def _adopt(self, partitions: list[str], lives: dict[str, int], checksum: str) -> None:
        """These are its partitions now: new ones begin empty, those that are gone take everything with them."""
        self.checksum = checksum
        self.auditor.configured(self.rm_id, checksum)
        sites = self.cluster.sites
        for name in partitions:
            if name not in sites or sites[name].dying:
                sites[name] = Site(name, born=(self.session.session, lives.get(name, 0)))
        for name, site in sites.items():
            site.dying = name not in partitions

    def _left(self) -> None:
        for site in self.cluster.sites.values():
            site.clear("the RM has left")
        self.cluster.sites.clear()
        self._over("it has left")

    def _refused(self, header: Header, message: Refused, before: SessionState) -> list[EncodedMessage]:
        self.auditor.refused(self, header, message)
        if self.session.state != before:
            self._turned_away(message, before)
            return []
        if header.ref.startswith("configuration"):
            self.wanted_config = ""
            return []
        match message.code:
            case "superseded" | "forbidden":
                self._over(f"{message.code}: {message.reason}")
            case "gap" if self.session.is_open(header.partition):
                return self._resume(f"{message.code}: {message.reason}", header.partition)
            case "unknown-session" if self.open:
                return self._resume(f"{message.code}: {message.reason}")
            case "window":
                self._ack_at = min(self._ack_at, self._now)
                return self._resume("its window was full") if self.open else []
        return []

    def _turned_away(self, message: Refused, before: SessionState) -> None:
        """The core did not do what the session as a whole wanted: for now, or at all."""
        if message.code in ("busy", "flood"):
            self._liveness.pause(0.0, self._now)
        elif before == "leaving" and message.code == "unknown-session":
            self._left()
        else:
            self._over(f"{message.code}: {message.reason}")

    def _news(self, header: Header, message: News) -> list[EncodedMessage]:
        site = self.cluster.sites.get(header.partition)
        self.auditor.heard(self, header, message)
        if site is None:
            return self._acknowledge()
        out: list[EncodedMessage] = []
        match message:
            case PredicatesAsked():
                return [self.session.encode_unnumbered(header.partition, self._verdicts(message))] if self.open else []
            case StateDumpAsked():
                told = StateDumpAnswered(question=message.question, text="{}")
                return [self.session.encode_unnumbered(header.partition, told)] if self.open else []
            case PartitionRestarted():
                return self.report(site, "it began anew")
            case _ if not header.seq:
                pass  # the proxy refuses what was said to a partition that has gone, and may be there again by now
            case SyncDone():
                self.auditor.judge(site, message)
                site.syncing = False
                if message.problem:
                    out += self.report(site, message.problem)
            case _:
                for piece in pieces(message):
                    self.auditor.judge(site, piece)
                    out += hear(self, site, piece)
        return [*out, *self._acknowledge()]

    def _verdicts(self, asked: PredicatesAsked) -> PredicatesAnswered:
        verdicts = [
            Verdict(
                allocation_key=one.allocation_key,
                node_id=one.node_id,
                allocate=one.allocate,
                refusal="not there" if self.cluster.refuses(one.allocation_key, one.node_id) else "",
            )
            for one in asked.asked
        ]
        return PredicatesAnswered(question=asked.question, verdicts=verdicts)
