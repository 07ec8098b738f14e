"""One worker's restart resumes its partition only: the number of messages does not depend on that of partitions."""

from collections import deque
from typing import Final

import pytest

from tests.broker.bench import PROXY, BrokerBench
from tests.machines import PARTITION, RM, SESSION, partition_of
from yunishard.common.messages.control_messages import Repeat
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Received, RegisterResourceManager
from yunishard.common.messages.session import EncodedMessage, Session
from yunishard.common.messages.wire import Incoming, Outgoing, encode_body
from yunishard.common.names import BROKER
from yunishard.rmproxy.proxy import Proxy

PEER: Final = "native:rm"
HOPS: Final = 11
"""`Settings` 1, `ResumeWanted` 2, `Resume` 2, `Registered` 2, `Repeat` 1, the worker's acknowledgement 3."""


class Route:
    """An RM, the proxy and the broker of a bench; its workers answer `Repeat` with an acknowledgement."""

    def __init__(self, partitions: int) -> None:
        self.bench = BrokerBench()
        self.proxy = Proxy()
        self.session = Session(rm_id=RM, session=SESSION)
        self.hops = 0
        names = ["default", *(f"p{number}" for number in range(1, partitions))]
        self.config = "partitions:\n" + "".join(
            f"  - {{name: {name}, queues: [{{name: root, submitacl: '*'}}]}}\n" for name in names
        )

    def register(self) -> None:
        self.carry(PEER, [_to_proxy(self.session.register(RegisterResourceManager(rm_id=RM, config=self.config)))])
        for partition in tuple(self.bench.broker.registry.slots):
            asked = [one for one in self.bench.hello(partition) if one.header.kind == "PrepareConfig"]
            for one in asked:
                self.carry(BROKER, self.bench.vote(one))
        assert self.session.state == "open"

    def carry(self, source: str, sends: list[Outgoing]) -> None:
        """Deliver messages and all that follow from them, and count them."""
        waiting = deque((source, one) for one in sends)
        while waiting:
            origin, message = waiting.popleft()
            self.hops += 1
            waiting += [(message.to, one) for one in self._deliver(origin, message)]

    def _deliver(self, origin: str, message: Outgoing) -> list[Outgoing]:
        incoming, broker = Incoming(origin, message.header, message.body), self.bench.broker
        if message.to == BROKER:
            return self.bench.recorded(broker.handle(incoming, self.bench.now))
        if message.to == PROXY:
            return self.proxy.handle(incoming, self.bench.now)
        if message.to == PEER:
            return [_to_proxy(one) for one in self._answer(message.header, message.body)]
        if message.header.kind == Repeat.__name__:
            return self._acknowledge(message)
        return []

    def _answer(self, header: Header, body: bytes) -> list[EncodedMessage]:
        self.session.receive(header, body)
        match header.kind:
            case "ResumeWanted":
                return [self.session.resume(header.partition)]
            case "Registered":
                return self.session.retransmissions(header.partition)
        return []

    def _acknowledge(self, message: Outgoing) -> list[Outgoing]:
        slot = self.bench.broker.registry.slots[partition_of(message.to) or message.to]
        header = Header(kind="Received", rm=RM, partition=message.header.partition, session=SESSION, epoch=slot.epoch)
        self.hops += 1  # from the worker to the broker
        return self.bench.broker.handle(Incoming(slot.worker, header, encode_body(Received())), self.bench.now)


def _to_proxy(one: EncodedMessage) -> Outgoing:
    return Outgoing(PROXY, one.header, one.body)


@pytest.mark.parametrize("partitions", [1, 10, 100])
def test_the_restart_of_a_worker_costs_the_same_whatever_the_number_of_partitions(partitions: int) -> None:
    route = Route(partitions)
    route.register()
    before = route.hops
    route.carry(BROKER, route.bench.returns(PARTITION))
    assert route.session.state == "open"
    assert route.session.is_open(PARTITION)
    assert route.hops == before + HOPS
