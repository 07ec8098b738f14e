"""A native port with keys, and nothing behind it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

from yunishard.common.messages.wire import Incoming
from yunishard.common.transport import zap
from yunishard.common.transport.curve_keys import KeyPair
from yunishard.common.transport.event_loop import NativePort, Transport
from yunishard.rmproxy.authentication import RmAuthenticator

PATIENCE_S = 20
SERVER = KeyPair.new()
ONE = KeyPair.new()
OTHER = KeyPair.new()


class Port:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.wire = Transport()
        self.doorkeeper = RmAuthenticator(SERVER, file)
        self.router = NativePort(
            "tcp://127.0.0.1:0", prefix="native:", wake=self.wire.wake, authenticator=self.doorkeeper
        )
        self.wire.add("native:", self.router)

    def allows(self, *lines: tuple[KeyPair, str]) -> None:
        self.writes("".join(f"{pair.public} {ids}\n" for pair, ids in lines))

    def writes(self, text: str) -> None:
        other = self.file.with_name("other")
        other.write_text(text)
        other.replace(self.file)

    def admits(self, pair: KeyPair) -> bool:
        return not self.doorkeeper.find_objection(pair.public, "rm-1")

    async def hears(self) -> Incoming:
        while True:
            for incoming in await self.wire.receive(float("inf")):
                return incoming


def play(tmp_path: Path, story: Callable[[Port], Awaitable[None]]) -> None:
    (tmp_path / "allowed").write_text(f"{ONE.public} rm-1,test-*\n")

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S), port(tmp_path / "allowed") as opened:
            await story(opened)

    asyncio.run(bounded())


@asynccontextmanager
async def port(file: Path) -> AsyncIterator[Port]:
    with patch.object(zap, "CHECK_EVERY_S", 0.01):
        opened = Port(file)
        try:
            yield opened
        finally:
            opened.router.close()
            opened.doorkeeper.close()
