"""The web service as a process: its port, its link to the broker, an ordered stop. It holds no state of its own."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import msgspec
import uvicorn

from common.memory import MemoryLimit
from webservice.api import Api
from webservice.broker_link import HEARTBEAT_S, BrokerLink
from webservice.calls import Startup
from webservice.client_faults import ClientFaults
from webservice.http1 import ImpatientHttp
from webservice.people import People
from webservice.views import SettingView

STOP_MAX_S: Final = 5
"""How long requests that are running at the stop may still take."""

CONNECTIONS_MAX: Final = 1000
"""More are answered with 503."""

BACKLOG: Final = 256

MEMORY_MAX_BYTES: Final = 2 << 30
"""What all requests together may take; of more the process ends and is started again, as it holds no state."""

_log = logging.getLogger("core.rest")


class Life(Protocol):
    """What the process needs of its own beginning and end (`common/process.py`)."""

    stopping: asyncio.Event

    def ready(self, **endpoints: str) -> None: ...


class _Server(uvicorn.Server):
    """uvicorn's server, but the signals stay with `Life`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; no host means all interfaces, port 0 means any.

    Raises:
        OSError: in one line, with the reason.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port of a connection that just ended is free
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {endpoint(host, port)}: {error.strerror or error}") from error
    return listener


def endpoint(host: str, port: int) -> str:
    """A host and a port as people write them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_settings(path: str) -> tuple[SettingView, ...]:
    """The settings that the supervisor wrote down; none without a path.

    Raises:
        OSError: in one line, with the reason.
    """
    if not path:
        return ()
    try:
        return tuple(msgspec.json.decode(Path(path).read_bytes(), type=list[SettingView]))
    except msgspec.MsgspecError as error:
        raise OSError(f"cannot read the settings in {path}: {error}") from error


async def serve(
    life: Life,
    *,
    broker: str,
    listener: socket.socket,
    people: People,
    startup: Startup,
    tls: tuple[str, str] | None = None,
    heartbeat_s: float = HEARTBEAT_S,
) -> None:
    """Answer requests at the listener until it is time to stop, over TLS if there are a certificate and its key. A
    defect in the link to the broker ends the process.
    """
    logging.getLogger("uvicorn.error").addFilter(ClientFaults())
    link = BrokerLink(broker, heartbeat_s=heartbeat_s)
    server = _Server(
        uvicorn.Config(
            Api(link, people, startup),
            http=ImpatientHttp,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=STOP_MAX_S,
            ssl_certfile=tls[0] if tls else None,
            ssl_keyfile=tls[1] if tls else None,
        )
    )
    async with asyncio.TaskGroup() as tasks:
        answering = tasks.create_task(link.run())
        serving = tasks.create_task(server.serve(sockets=[listener]))
        host, port, *_ = listener.getsockname()
        life.ready(rest=f"{'https' if tls else 'http'}://{endpoint(host, port)}")
        limit = MemoryLimit(MEMORY_MAX_BYTES, lambda used: _too_much(used, life))
        await life.stopping.wait()
        limit.close()
        server.should_exit = True
        await serving
        people.close()
        answering.cancel()


def _too_much(used_bytes: int, life: Life) -> None:
    _log.error(
        "requests take %d MiB of memory, %d MiB are allowed: begin anew", used_bytes >> 20, MEMORY_MAX_BYTES >> 20
    )
    life.stopping.set()
