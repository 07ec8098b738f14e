"""A gRPC server that stays open.

gRPC's library (grpcio 1.85) decodes the name of a call where nobody looks after what may go wrong, so a single call
with a name that is not UTF-8 ends the server, for everybody and for good. Therefore ours looks whether that has
happened, and if so another one listens at the same address. Streams that are open go on at the old one until they end.

Not here: what is served (`grpc_port.py`).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import grpc

LOOK_EVERY_S: Final = 0.05
"""How often to look; also the pause between two attempts to listen where the old one may not have ended yet."""

OLD_MAX: Final = 8
"""Servers that may wait for the end of their streams. Of more, the streams of the oldest are cut off."""

STREAMS_MAX_S: Final = 30 * 86_400.0
"""How long they may wait."""

LOG_EVERY_S: Final = 60.0
"""How often it is logged that this has happened."""

_COMPLAINERS: Final = ("asyncio", "grpc._cython.cygrpc")
"""Loggers that tell of it each time, with tracebacks."""

_log = logging.getLogger("core.rmproxy")


class OpenServer:
    """A server at an address, whatever becomes of gRPC's. `make` makes one of gRPC's that is not open yet."""

    def __init__(self, make: Callable[[], grpc.aio.Server]) -> None:
        self._make = make
        self._server: grpc.aio.Server | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._old: dict[grpc.aio.Server, asyncio.Task[None]] = {}
        """Those that take no more calls, as they wait for their last ones; the oldest first."""
        self._cuts: set[asyncio.Task[None]] = set()
        """They cut off streams of old ones."""
        self._logged_at = -LOG_EVERY_S

    async def start(self, address: str, credentials: grpc.ServerCredentials | None) -> str:
        """Listen, and serve from now on; the address with the port that was bound.

        Raises:
            OSError: the address cannot be bound.
        """
        bound = await self._open(address, credentials)
        for name in _COMPLAINERS:
            logging.getLogger(name).addFilter(_is_about_something_else)
        self._keeper = asyncio.create_task(self._keep(bound, credentials))
        return bound

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, and cut off what is left after the grace."""
        if self._keeper is not None:
            self._keeper.cancel()
        for server in (*self._old, *([self._server] if self._server is not None else ())):
            await server.stop(grace_s)
        if waiting := {*self._old.values(), *self._cuts}:
            await asyncio.wait(waiting)

    async def _open(self, address: str, credentials: grpc.ServerCredentials | None) -> str:
        server = self._make()
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError:  # grpc's text says no more than ours
            raise OSError(f"cannot listen for gRPC on {address}: it is in use, or no address of this machine") from None
        await server.start()
        self._server = server
        host, colon, _ = address.rpartition(":")
        return address if address.startswith("unix:") else f"{host}{colon}{port}"

    async def _keep(self, address: str, credentials: grpc.ServerCredentials | None) -> None:
        while True:
            assert self._server is not None
            try:
                await self._server.wait_for_termination(LOOK_EVERY_S)
            except UnicodeDecodeError:
                self._retire(self._server)
                await self._open_again(address, credentials)

    def _retire(self, server: grpc.aio.Server) -> None:
        self._server = None
        task = self._old[server] = asyncio.create_task(server.stop(STREAMS_MAX_S))
        task.add_done_callback(lambda _: self._old.pop(server, None))
        if len(self._old) > OLD_MAX:
            oldest = next(iter(self._old))
            cut = asyncio.create_task(oldest.stop(None))
            self._cuts.add(cut)
            cut.add_done_callback(self._cuts.discard)

    async def _open_again(self, address: str, credentials: grpc.ServerCredentials | None) -> None:
        while self._server is None:
            try:
                await self._open(address, credentials)
            except OSError:
                await asyncio.sleep(LOOK_EVERY_S)
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            _log.warning("a call with a name that is not UTF-8 ended the gRPC server; a new one listens at %s", address)


def _is_about_something_else(record: logging.LogRecord) -> bool:
    """Whether this is not a complaint about how such a server ended."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error or record.msg, UnicodeDecodeError)
