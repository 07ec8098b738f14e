"""A broker with workers and RMs around it, so that a test of the broker begins where it matters."""

from typing import Final

import msgspec

from tests.analyses import answer_text
from tests.machines import ONE_QUEUE, RM, SESSION, arrives, partition_of
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
    ConfigVote,
    Echo,
    Hello,
    ManagerAway,
    ManagerRecord,
    PrepareConfig,
    ReadVersion,
    Recorded,
    RemoveVersions,
    Retired,
    VersionRead,
    VersionsRemoved,
    WorkersWanted,
)
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.query_messages import Answer, ChangeConfig, ReadConfig
from yunishard.common.messages.rm_messages import (
    ConfigurationUpdated,
    Received,
    Registered,
    RegisterResourceManager,
    Resume,
    UpdateConfiguration,
)
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, decode_body
from yunishard.common.names import FILE, LOCAL_HOST, RECORD, SUPERVISOR, lease_name, peer_name
from yunishard.common.settings import Settings

PROXY: Final = "rmproxy"
WEB: Final = "webservice"
KEEPER: Final = peer_name(SUPERVISOR, LOCAL_HOST)
GPU: Final = "rm-1_gpu"
PATIENT: Final = Settings(lease_timeout_s=NEVER)
"""Nobody is looked after, so that time may pass without heartbeats."""


class BrokerBench:
    """The broker, its record and the time; workers come when they are called and vote when they are told."""

    def __init__(
        self,
        default_config: str = "",
        *,
        watched: str = "",
        settings: Settings | None = None,
        versions: ConfigVersions | None = None,
        texts: dict[tuple[str, int], ConfigVersion] | None = None,
    ) -> None:
        self._default_config, self._watched, self._settings = default_config, watched, settings or PATIENT
        state = BrokerState(default_text=default_config, watched=watched, settings=self._settings, versions=versions)
        self.broker = BrokerMachine(state, now=1.0)
        self.now = 1.0
        self.record: list[ConfigVersion] = []
        self.texts = texts if texts is not None else {}
        """What is on the disk of each version."""
        self.removed: list[tuple[str, int]] = []
        self.facts: dict[str, RmRecord] = {}
        """What is on the disk of each RM."""
        self.incarnation = 0
        self.echoes = True
        """Whether proxies send back what they are asked to."""
        self.disk_problem = ""
        """With which every version is refused by the record; empty while it takes them."""
        self.analyses = True
        """Whether child processes analyse texts at once."""
        self.analysed: list[str] = []
        """The texts that they have analysed."""
        self._is_new = True
        """Whether the broker has not had its first tick, in which it has the default configuration analysed."""
        self.hear(KEEPER, Hello(role="supervisor"), rm="", session="")
        state.notes.clear()

    def begin_again(self) -> None:
        """The broker dies, and another one begins with what is on the disk."""
        self.incarnation += 1
        state = BrokerState(
            default_text=self._default_config,
            watched=self._watched,
            settings=self._settings,
            versions=self.broker.state.versions,
            incarnation=self.incarnation,
        )
        self.broker = BrokerMachine(state, now=self.now, records=list(self.facts.values()))
        self._is_new = True

    def hear(self, source: str, message: Message, **fields: str | int) -> list[Outgoing]:
        """A partition as source stands for its worker, and in what is sent too."""
        seat = self.broker.registry.slots.get(source)
        peer = seat.worker or lease_name(source, seat.epoch) if seat is not None else source
        is_new, self._is_new = self._is_new, False
        first = self.recorded(self.broker.tick(self.now)) if is_new else []
        return first + self.recorded(self.broker.handle(arrives(peer, message, **fields), self.now))

    def wait(self, until: float) -> list[Outgoing]:
        """Time passes, and everything that is due by then is done in time."""
        sends: list[Outgoing] = []
        while self.broker.deadline <= until:
            self.now = max(self.now, self.broker.deadline)
            sends += self.recorded(self.broker.tick(self.now))
        self.now = until
        return sends

    def recorded(self, sends: list[Outgoing]) -> list[Outgoing]:
        """What is sent to others, once the record has taken or refused what was sent to it."""
        others: list[Outgoing] = []
        for one in sends:
            if one.header.kind == "Echo" and self.echoes:
                others += self.hear(one.to, Echo(), rm="", session="", ref=one.header.ref)
                continue
            if one.header.kind == "ReadText" and self.analyses:
                self.analysed.append(one.body.decode())
                others += self.recorded(self.broker.handle(answer_text(one), self.now))
                continue
            if one.header.kind == "ProbeRecord":
                others += self.hear(RECORD, Recorded(number=0, problem=self.disk_problem), rm="", session="")
                continue
            if one.header.kind in ("ReadVersion", "ReadConfig", "RemoveVersions"):
                others += self._read(one)
                continue
            if one.header.kind != "ManagerRecord":
                others.append(Outgoing(partition_of(one.to) or one.to, one.header, one.body))
                continue
            assert one.to == RECORD
            number = self._write(one.header.rm, decode_body(ManagerRecord, one.body))
            answer = Recorded(number=number, problem=self.disk_problem)
            others += self.hear(RECORD, answer, rm=one.header.rm, session="")
        return others

    def _write(self, rm: str, message: ManagerRecord) -> int:
        if not self.disk_problem:
            if message.facts:
                self.facts[rm] = decode_record(message.facts)
            else:
                del self.facts[rm]
            if message.version is not None:
                self.record.append(message.version)
                self.texts[rm, message.version.number] = message.version
        return message.number

    def _read(self, query: Outgoing) -> list[Outgoing]:
        """The record reads or removes a version."""
        rm, ref = query.header.rm, query.header.ref
        if query.header.kind == "RemoveVersions":
            up_to = decode_body(RemoveVersions, query.body).up_to
            self.removed.append((rm, up_to))
            return self.hear(RECORD, VersionsRemoved(problem=self.disk_problem), rm="", session="")
        if query.header.kind == "ReadVersion":
            number = decode_body(ReadVersion, query.body).version
            found = self.texts.get((rm, number))
            text, problem = (found.config, "") if found is not None else ("", "the text is damaged")
            return self.hear(RECORD, VersionRead(version=number, text=text, problem=problem), rm=rm, session="")
        wanted = decode_body(ReadConfig, query.body)
        answer = build_version_answer(rm, wanted, self.texts.get((rm, wanted.version)))
        return self.hear(RECORD, answer, rm="", session="", ref=ref)

    def call(
        self, config: str = ONE_QUEUE, *, rm: str = RM, session: str = SESSION, proxy: str = PROXY, ref: str = "call"
    ) -> list[Outgoing]:
        request = RegisterResourceManager(rm_id=rm, config=config, build_info={"v": "1"})
        return self.hear(proxy, request, rm=rm, session=session, ref=ref)

    def epoch(self, partition: str) -> int:
        return self.broker.registry.slots[partition].epoch

    def leases(self) -> dict[str, int]:
        """The epoch of each worker slot."""
        return {name: slot.epoch for name, slot in self.broker.registry.slots.items()}

    def hello(self, partition: str, *, epoch: int | None = None, problem: str = "") -> list[Outgoing]:
        """A worker comes that runs nothing, perhaps because of a problem with its journal."""
        lease = self.epoch(partition) if epoch is None else epoch
        hello = Hello(role="worker", problem=problem)
        return self.hear(lease_name(partition, lease), hello, rm="", session="", partition=partition, epoch=lease)

    def lost(self, partition: str) -> list[Outgoing]:
        """A worker comes that cannot read its journal, after something was heard of its partition."""
        self.speaks(partition)
        return self.hello(partition, problem="damaged")

    def speaks(self, partition: str) -> list[Outgoing]:
        """A partition acknowledges something."""
        owner = self.broker.registry.owner(partition)
        assert owner is not None
        told = {"rm": owner.rm, "session": owner.session, "life": owner.generation(partition)}
        return self.hear(partition, Received(), partition=partition, epoch=self.epoch(partition), **told)

    def returns(self, partition: str, *, rollout: int | None = None, **fields: str | int) -> list[Outgoing]:
        """A worker comes that runs what its journal says; what its RM registered, unless said otherwise."""
        owner = self.broker.registry.owner(partition)
        assert owner is not None
        lease = self.epoch(partition)
        runs = {"rm": owner.rm, "session": owner.session, "life": owner.generation(partition), "epoch": lease, **fields}
        hello = Hello(role="worker", rollout=owner.rollout if rollout is None else rollout)
        return self.hear(lease_name(partition, lease), hello, partition=partition, **runs)

    def from_peer(self, name: str, message: Message, **fields: str | int) -> Incoming:
        """From whoever is called so, which may be a worker that no longer counts."""
        return arrives(name, message, **fields)

    def away(self) -> list[Outgoing]:
        """The proxy hears nothing of the RM any more."""
        return self.hear(PROXY, ManagerAway())

    def resume(self, **received: dict[str, int]) -> list[Outgoing]:
        """The RM is back."""
        return self.hear(PROXY, Resume(**received), ref="again")

    def yes(self, asked: Outgoing) -> list[Outgoing]:
        """The worker that was asked votes yes; what is sent at once, before the record has taken anything."""
        seat = self.broker.registry.slots[asked.header.partition]
        vote = ConfigVote(rollout=decode_body(PrepareConfig, asked.body).rollout)
        told = {"session": "", "partition": asked.header.partition, "epoch": seat.epoch}
        return self.broker.handle(arrives(seat.worker, vote, **told), self.now)

    def vote(self, asked: Outgoing, reason: str = "") -> list[Outgoing]:
        """The worker that was asked votes."""
        number = decode_body(PrepareConfig, asked.body).rollout
        partition = asked.header.partition
        vote = ConfigVote(rollout=number, reason=reason)
        return self.hear(
            partition, vote, rm=asked.header.rm, session="", partition=partition, epoch=self.epoch(partition)
        )

    def register(
        self, config: str = ONE_QUEUE, *, rm: str = RM, session: str = SESSION, proxy: str = PROXY
    ) -> list[Outgoing]:
        """Everything up to the answer, with workers that are willing; what is sent at the last vote."""
        asked = [one for one in self.call(config, rm=rm, session=session, proxy=proxy) if is_prepare(one)]
        for partition, seat in tuple(self.broker.registry.slots.items()):
            if not seat.is_present:
                asked += [one for one in self.hello(partition) if is_prepare(one)]
        last: list[Outgoing] = []
        for one in asked:
            last = self.vote(one)
        return last

    def agree(self, sends: list[Outgoing]) -> list[Outgoing]:
        """Every worker that is asked in these sends votes yes; all that was sent meanwhile."""
        everything = list(sends)
        for one in sends:
            if is_prepare(one):
                everything += self.vote(one)
        return everything

    # Other configurations -------------------------------------------------------------------------------------------

    def update(
        self, config: str, *, rm: str = RM, session: str = SESSION, proxy: str = PROXY, **extra: str
    ) -> list[Outgoing]:
        """The RM's own call, with its settings."""
        request = UpdateConfiguration(rm_id=rm, config=config, extra_config=extra)
        return self.hear(proxy, request, rm=rm, session=session, ref="update")

    def change(
        self, config: str, *, rm: str = RM, expected: str = "", origin: str = "api", overwrite: bool = False
    ) -> list[Outgoing]:
        """Somebody at a front end."""
        request = ChangeConfig(config=config, author="alice", expected=expected, origin=origin, overwrite=overwrite)
        return self.hear(WEB, request, rm=rm, session="", ref="web 1")

    def edit(self, text: str) -> list[Outgoing]:
        """The watched file has another text."""
        return self.hear(FILE, ChangedFile(text=text), rm="", session="")

    def retired(self, partition: str) -> list[Outgoing]:
        """The worker has nothing left."""
        return self.hear(partition, Retired(), rm="", session="", partition=partition, epoch=self.epoch(partition))

    def text(self, rm: str = RM) -> str:
        """What an RM runs, as a front end is told."""
        [answer] = self.hear(WEB, ReadConfig(what="current"), rm=rm, session="", ref="web 2")
        text = msgspec.json.decode(decode_body(Answer, answer.body).body)["config"]
        assert isinstance(text, str)
        return text


def joined(partitions: list[str], config: str = ONE_QUEUE, number: int = 1, **lives: int) -> Registered:
    """The confirmation of a registration or resumption."""
    return Registered(
        partitions=partitions, checksum=compute_checksum(config), lives=lives, configuration_number=number
    )


def kinds(sends: list[Outgoing]) -> list[tuple[str, str]]:
    """To whom, and what."""
    return [(one.to, one.header.kind) for one in sends]


def answers(sends: list[Outgoing]) -> list[tuple[int, str]]:
    """What front ends are told: status and text."""
    found = [decode_body(Answer, one.body) for one in sends if one.header.kind == "Answer"]
    return [(one.status, one.body.decode()) for one in found]


def news(sends: list[Outgoing]) -> list[tuple[str, str, ConfigurationUpdated]]:
    """What RMs hear of another configuration: by which proxy, for which call, what."""
    return [
        (one.to, one.header.ref, decode_body(ConfigurationUpdated, one.body))
        for one in sends
        if one.header.kind == "ConfigurationUpdated"
    ]


def is_prepare(send: Outgoing) -> bool:
    return send.header.kind == "PrepareConfig"


def wanted(sends: list[Outgoing]) -> list[list[str]]:
    """What the supervisor is told to run."""
    return [decode_body(WorkersWanted, one.body).partitions for one in sends if one.to == KEEPER]


def registered(config: str = ONE_QUEUE) -> BrokerBench:
    """One RM with a partition, and its worker."""
    bench = BrokerBench()
    bench.register(config)
    return bench
