"""A broker with workers and RMs around it, so that a test of the switch begins where it matters."""

from typing import Final

from broker.switch import Switch
from common.machine import Send
from common.messages import ConfigVote, Hello, Message, PrepareConfig, RegisterResourceManager, WorkersWanted
from common.wire import decoded
from tests.machines import ONE_QUEUE, RM, SESSION, arrives

PROXY: Final = "rmproxy"
GPU: Final = "rm-1_gpu"


class House:
    """The switch and the time; workers come when they are called and vote when they are told."""

    def __init__(self, default_config: str = "") -> None:
        self.switch = Switch(default_config=default_config, now=1.0)
        self.now = 1.0

    def hear(self, source: str, message: Message, **fields: str | int) -> list[Send]:
        return self.switch.handle(arrives(source, message, **fields), self.now)

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


def is_prepare(send: Send) -> bool:
    return send.header.kind == "PrepareConfig"


def wanted(sends: list[Send]) -> list[dict[str, int]]:
    """What the supervisor is told to run."""
    return [decoded(WorkersWanted, one.body).partitions for one in sends if one.to == "supervisor"]


def registered() -> House:
    """One RM with a partition, and its worker."""
    house = House()
    house.register()
    return house
