"""A fake broker on a real socket, which answers for itself and for all workers."""

import asyncio
import contextlib
import math
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tests.webservice.fakes import partition
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.query_messages import Answer, ListPartitions, PartitionList
from yunishard.common.messages.rm_messages import Heartbeat
from yunishard.common.messages.wire import Incoming, Outgoing, encode_body
from yunishard.common.transport.event_loop import BrokerPort, Transport

Behaviour = Callable[[Incoming], list[Outgoing]]


def reply(incoming: Incoming, message: Message) -> Outgoing:
    return Outgoing(incoming.source, Header(kind=type(message).__name__, ref=incoming.header.ref), encode_body(message))


def helpful(incoming: Incoming) -> list[Outgoing]:
    """One partition, whose worker answers every question with the same body."""
    if incoming.header.kind == ListPartitions.__name__:
        return [reply(incoming, PartitionList(partitions=[partition()], build_information={}, started_ns=1))]
    if incoming.header.kind == "Query":
        return [reply(incoming, Answer(status=200, body=f'["{incoming.header.partition}"]\n'.encode()))]
    return []


class FakeBroker:
    def __init__(self, address: str, behaviour: Behaviour) -> None:
        self.address = address
        self.heard: list[Incoming] = []
        self.incarnations = ["1"]
        """What it says that it is, one after the other, when somebody says that they live; the last for good."""
        self._behaviour = behaviour
        self._wire = Transport()
        self._links = BrokerPort(address, wake=self._wire.wake)
        self._wire.add("", self._links)

    async def run(self) -> None:
        try:
            while True:
                for incoming in await self._wire.receive(math.inf):
                    if incoming.header.kind == Heartbeat.__name__:
                        now = self.incarnations.pop(0) if len(self.incarnations) > 1 else self.incarnations[0]
                        self._wire.send(reply(incoming, Heartbeat(incarnation=now)))
                        continue
                    self.heard.append(incoming)
                    for message in self._behaviour(incoming):
                        self._wire.send(message)
        finally:
            self._links.close()


@contextlib.asynccontextmanager
async def broker(behaviour: Behaviour = helpful) -> AsyncIterator[FakeBroker]:
    """A broker that listens in a directory of its own; a short one, for socket paths are short."""
    with tempfile.TemporaryDirectory(prefix="ysh-") as directory:
        fake = FakeBroker(f"ipc://{Path(directory) / 'broker'}", behaviour)
        task = asyncio.create_task(fake.run())
        try:
            yield fake
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
