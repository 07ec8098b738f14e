"""A core of a few lines: a real ROUTER socket that hears a resource manager and answers what the test wants."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Self

import zmq
import zmq.asyncio

from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.rm_messages import Allocation, AllocationResponse, Left, PartitionRestarted, Registered
from yunishard.common.messages.wire import decode_body, decode_header, encode_body, encode_frames
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import Result

PARTITION: Final = "rm-1_default"
PATIENCE_S: Final = 30.0
"""After this a test has failed; no test waits for it to pass."""


class Kept(ResourceManager):
    """One that only closes at the end of its block: who would let it leave?"""

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class FakeCore:
    """For `async with`; hears and says one message at a time, to the resource manager that spoke last."""

    def __init__(self, address: str = "tcp://127.0.0.1:*") -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.set(zmq.LINGER, 1_000)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.bind(address)
        bound = self._socket.get(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        self.address = bound.rstrip(b"\0").decode()
        self.peer = b""
        self.session = ""
        self.lives: dict[str, int] = {}
        """Partition to how often it was said to have started anew."""

    async def hears(self, kind: type[Message] | None = None) -> tuple[Header, Message]:
        """The next message, of this kind or the test fails; acknowledgements and heartbeats count only if they are
        asked for.
        """
        while True:
            self.peer, *frames = await self._socket.recv_multipart()
            header = decode_header(frames)
            if header.kind not in ("Ack", "Heartbeat") or (kind is not None and header.kind == kind.__name__):
                break
        assert kind is None or header.kind == kind.__name__, header
        self.session = header.session
        return header, decode_body(Message.kinds[header.kind], frames[2])

    async def says(
        self,
        message: Message,
        *,
        partition: str = PARTITION,
        seq: int = 0,
        ack: int = 0,
        session: str | None = None,
        ref: str = "",
    ) -> None:
        kind = type(message).__name__
        session = self.session if session is None else session
        if isinstance(message, PartitionRestarted):
            self.lives[partition] = self.lives.get(partition, 0) + 1
        life = self.lives.get(partition, 0)
        header = Header(
            kind=kind, rm="rm-1", partition=partition, session=session, seq=seq, ack=ack, life=life, ref=ref
        )
        await self.sends(encode_frames(header, encode_body(message)))

    async def sends(self, frames: list[bytes]) -> None:
        await self._socket.send_multipart([self.peer, *frames])

    async def welcomes(self, *partitions: str, heartbeat_ms: int = 0, silence_ms: int = 0) -> Header:
        """Hear a registration or a resumption and say yes."""
        header, _ = await self.hears()
        assert header.kind in ("RegisterResourceManager", "Resume"), header
        registered = Registered(
            partitions=list(partitions or (PARTITION,)),
            heartbeat_milli_seconds=heartbeat_ms,
            silence_milli_seconds=silence_ms,
        )
        await self.says(registered, partition=header.partition, ref=header.ref)
        return header

    async def lets_go(self) -> None:
        """Hear whatever it is until the resource manager leaves, and say that it has."""
        while (await self.hears())[0].kind != "Leave":
            pass
        await self.says(Left(), partition="", ref="leave")

    async def registers(self, *partitions: str, heartbeat_ms: int = 0, silence_ms: int = 0) -> ResourceManager:
        """A resource manager that is connected to this core."""
        welcome = self.welcomes(*partitions, heartbeat_ms=heartbeat_ms, silence_ms=silence_ms)
        rm, _ = await asyncio.gather(Kept.connect(self.address, rm_id="rm-1"), welcome)
        return rm

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run a test's story; it cannot last."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await story()

    asyncio.run(bounded())


def allocated(number: int) -> AllocationResponse:
    one = Allocation(allocation_key=f"k{number}", application_id="app", node_id="n1", partition_name=PARTITION)
    return AllocationResponse(new=[one])


async def taken(results: AsyncIterator[Result]) -> Result:
    return await anext(results)


async def until(condition: Callable[[], bool]) -> None:
    """Give the event loop its turns until it has got there."""
    while not condition():  # noqa: ASYNC110 - what is waited for has no event, and a turn takes no time
        await asyncio.sleep(0)


async def is_waiting(task: asyncio.Task[None]) -> bool:
    """Whether a task is stuck although the event loop had plenty of turns."""
    for _ in range(20):
        await asyncio.sleep(0)
    return not task.done()
