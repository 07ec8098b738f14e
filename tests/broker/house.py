"""A broker with workers and RMs around it, so that a test of the switch begins where it matters."""

from typing import Final

import msgspec

from broker.books import Policy
from broker.switch import Switch
from broker.versions import Versions
from common.machine import Send
from common.messages import (
    Answer,
    ChangeConfig,
    ChangedFile,
    ConfigurationUpdated,
    ConfigVersion,
    ConfigVote,
    Echo,
    Hello,
    Message,
    PrepareConfig,
    ReadConfig,
    Recorded,
    RegisterResourceManager,
    Retired,
    UpdateConfiguration,
    WorkersWanted,
)
from common.names import FILE, RECORD
from common.wire import decoded
from tests.machines import ONE_QUEUE, RM, SESSION, arrives

PROXY: Final = "rmproxy"
WEB: Final = "webservice"
GPU: Final = "rm-1_gpu"


class House:
    """The switch, its record and the time; workers come when they are called and vote when they are told."""

    def __init__(
        self,
        default_config: str = "",
        *,
        watched: str = "",
        policy: Policy | None = None,
        versions: Versions | None = None,
    ) -> None:
        self.switch = Switch(default_config=default_config, watched=watched, now=1.0, policy=policy, versions=versions)
        self.now = 1.0
        self.record: list[ConfigVersion] = []
        self.echoes = True
        """Whether proxies send back what they are asked to."""
        self.disk_problem = ""
        """With which every version is refused by the record; empty while it takes them."""

    def hear(self, source: str, message: Message, **fields: str | int) -> list[Send]:
        return self.recorded(self.switch.handle(arrives(source, message, **fields), self.now))

    def recorded(self, sends: list[Send]) -> list[Send]:
        """What is sent to others, once the record has taken or refused what was sent to it."""
        others: list[Send] = []
        for one in sends:
            if one.header.kind == "Echo" and self.echoes:
                others += self.hear(one.to, Echo(), rm="", session="", ref=one.header.ref)
                continue
            if one.header.kind != "ConfigVersion":
                others.append(one)
                continue
            assert one.to == RECORD
            version = decoded(ConfigVersion, one.body)
            if not self.disk_problem:
                self.record.append(version)
            answer = Recorded(number=version.number, problem=self.disk_problem)
            others += self.hear(RECORD, answer, rm=one.header.rm, session="")
        return others

    def call(
        self, config: str = ONE_QUEUE, *, rm: str = RM, session: str = SESSION, proxy: str = PROXY, ref: str = "call"
    ) -> list[Send]:
        request = RegisterResourceManager(rm_id=rm, config=config, build_info={"v": "1"})
        return self.hear(proxy, request, rm=rm, session=session, ref=ref)

    def epoch(self, partition: str) -> int:
        return self.switch.roster.seats[partition].epoch

    def hello(self, partition: str, *, epoch: int | None = None) -> list[Send]:
        lease = self.epoch(partition) if epoch is None else epoch
        return self.hear(partition, Hello(role="worker"), rm="", session="", epoch=lease)

    def vote(self, asked: Send, reason: str = "") -> list[Send]:
        """The worker that was asked votes."""
        number = decoded(PrepareConfig, asked.body).rollout
        partition = asked.to
        vote = ConfigVote(rollout=number, reason=reason)
        return self.hear(
            partition, vote, rm=asked.header.rm, session="", partition=partition, epoch=self.epoch(partition)
        )

    def register(
        self, config: str = ONE_QUEUE, *, rm: str = RM, session: str = SESSION, proxy: str = PROXY
    ) -> list[Send]:
        """Everything up to the answer, with workers that are willing; what is sent at the last vote."""
        asked = [one for one in self.call(config, rm=rm, session=session, proxy=proxy) if is_prepare(one)]
        for partition, seat in self.switch.roster.seats.items():
            if not seat.present:
                asked += [one for one in self.hello(partition) if is_prepare(one)]
        last: list[Send] = []
        for one in asked:
            last = self.vote(one)
        return last

    def agree(self, sends: list[Send]) -> list[Send]:
        """Every worker that is asked in these sends votes yes; all that was sent meanwhile."""
        everything = list(sends)
        for one in sends:
            if is_prepare(one):
                everything += self.vote(one)
        return everything

    # Other configurations -------------------------------------------------------------------------------------------

    def update(
        self, config: str, *, rm: str = RM, session: str = SESSION, proxy: str = PROXY, **extra: str
    ) -> list[Send]:
        """The RM's own call, with its settings."""
        request = UpdateConfiguration(rm_id=rm, config=config, extra_config=extra)
        return self.hear(proxy, request, rm=rm, session=session, ref="update")

    def change(self, config: str, *, rm: str = RM, expected: str = "", origin: str = "api") -> list[Send]:
        """Somebody at a front end."""
        request = ChangeConfig(config=config, author="alice", expected=expected, origin=origin)
        return self.hear(WEB, request, rm=rm, session="", ref="web 1")

    def edit(self, text: str) -> list[Send]:
        """The watched file has another text."""
        return self.hear(FILE, ChangedFile(text=text), rm="", session="")

    def retired(self, partition: str) -> list[Send]:
        """The worker has nothing left."""
        return self.hear(partition, Retired(), rm="", session="", partition=partition, epoch=self.epoch(partition))

    def text(self, rm: str = RM) -> str:
        """What an RM runs, as a front end is told."""
        [answer] = self.hear(WEB, ReadConfig(what="current"), rm=rm, session="", ref="web 2")
        text = msgspec.json.decode(decoded(Answer, answer.body).body)["config"]
        assert isinstance(text, str)
        return text


def kinds(sends: list[Send]) -> list[tuple[str, str]]:
    """To whom, and what."""
    return [(one.to, one.header.kind) for one in sends]


def answers(sends: list[Send]) -> list[tuple[int, str]]:
    """What front ends are told: status and text."""
    found = [decoded(Answer, one.body) for one in sends if one.header.kind == "Answer"]
    return [(one.status, one.body.decode()) for one in found]


def news(sends: list[Send]) -> list[tuple[str, str, ConfigurationUpdated]]:
    """What RMs hear of another configuration: by which proxy, for which call, what."""
    return [
        (one.to, one.header.ref, decoded(ConfigurationUpdated, one.body))
        for one in sends
        if one.header.kind == "ConfigurationUpdated"
    ]


def is_prepare(send: Send) -> bool:
    return send.header.kind == "PrepareConfig"


def wanted(sends: list[Send]) -> list[dict[str, int]]:
    """What the supervisor is told to run."""
    return [decoded(WorkersWanted, one.body).partitions for one in sends if one.to == "supervisor"]


def registered(config: str = ONE_QUEUE) -> House:
    """One RM with a partition, and its worker."""
    house = House()
    house.register(config)
    return house
