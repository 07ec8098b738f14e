"""What clients do wrong, in the log: a few lines a minute, so that nobody can fill it.

uvicorn writes a line for each request that is none, and a traceback where a client has gone in the middle. Defects of
ours are other exceptions, and always logged whole. Not here: what the client is told (`http1.py`).
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import h11
import msgspec
import uvicorn

from common.descriptors import Acceptor, DescriptorGuard
from common.memory import MemoryLimit
from common.names import WEBSERVICE
from common.process import HEARTBEAT_S
from common.process_figures import ProcessFigures
from webservice.api import Api
from webservice.authn import LoopbackUsers
from webservice.authz import AccessControl
from webservice.broker_client import BrokerClient
from webservice.calls import Startup
from webservice.history.queries import HistoryReader
from webservice.history.recorder import HistoryRecorder
from webservice.http1 import BoundedHttpProtocol
from webservice.views import SettingView

LINES_MAX: Final = 10
"""Lines in a minute; how many there were beside them is said with the next one."""

_MINUTE_S: Final = 60.0


class ClientErrorFilter(logging.Filter):
    """For the logger of uvicorn."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = 0.0
        self._said = 0
        self._unsaid = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            if not isinstance(error, h11.ProtocolError):
                return True
            record.exc_info, record.msg, record.args = None, "%s", (f"an answer cannot be given: {error}",)
        if record.created - self._begun >= _MINUTE_S:
            self._begun, self._said = record.created, 0
        self._said += 1
        if self._said > LINES_MAX:
            self._unsaid += 1
            return False
        if self._unsaid:
            record.msg, record.args = "%s (and %d more)", (record.getMessage(), self._unsaid)
            self._unsaid = 0
        return True


STOP_MAX_S: Final = 5
"""How long requests that are running at the stop may still take."""

BACKLOG: Final = 256

MEMORY_MAX_BYTES: Final = 2 << 30
"""What all requests together may take; of more the process ends and is started again, as it holds no state."""

_log = logging.getLogger("core.rest")


class Life(Protocol):
    """What the process needs of its own beginning and end (`common/process.py`)."""

    stopping: asyncio.Event

    def ready(self, **endpoints: str) -> None: ...


class _Server(uvicorn.Server):
    """uvicorn's server, but the signals stay with `Life`, and connections are accepted by an `Acceptor`: uvloop closes
    a listener of its own without a word when a descriptor is missing.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._handshakes: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def accepted(self, connection: socket.socket) -> None:
        """Serve a connection."""
        handshake = asyncio.get_running_loop().create_task(self._begin(connection))
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _begin(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        connection.settimeout(0)
        with contextlib.suppress(OSError):  # the client has gone, or its TLS handshake failed
            await loop.connect_accepted_socket(self._protocol, connection, ssl=self.config.ssl)

    def _protocol(self) -> asyncio.Protocol:
        return BoundedHttpProtocol(self.config, self.server_state, self.lifespan.state)


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a port that speaks TLS."""

    cert: str
    key: str
    client_ca: str | None = None
    """Who signs certificates of people, which are asked for then and may be left out; None if there are none."""


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
    users: LoopbackUsers,
    startup: Startup,
    control: AccessControl | None = None,
    tls: Tls | None = None,
    heartbeat_s: float = HEARTBEAT_S,
) -> None:
    """Answer requests at the listener until it is time to stop, over TLS if there are files for it. A defect in the
    link to the broker ends the process.
    """
    logging.getLogger("uvicorn.error").addFilter(ClientErrorFilter())
    client = BrokerClient(broker, heartbeat_s=heartbeat_s)
    api = Api(client, users, startup, control)
    recorder = HistoryRecorder(startup.history) if startup.history is not None else None
    if recorder is not None:
        api.history, api.storage.recorder = HistoryReader(recorder), recorder
        api.metrics.sources.append(recorder.families)
    server = _server(api, tls)
    process = ProcessFigures(WEBSERVICE, wire=client.wire)
    api.metrics.sources.append(process.families)
    async with asyncio.TaskGroup() as tasks:
        answering = tasks.create_task(client.run())
        serving = tasks.create_task(server.serve(sockets=[]))
        recording = [tasks.create_task(recorder.run(client))] if recorder is not None else []
        descriptors = DescriptorGuard()
        acceptor = Acceptor(listener, server.accepted, descriptors)
        host, port, *_ = listener.getsockname()
        life.ready(rest=f"{'https' if tls else 'http'}://{endpoint(host, port)}")
        limit = MemoryLimit(MEMORY_MAX_BYTES, lambda used: _too_much(used, life))
        await life.stopping.wait()
        limit.close()
        process.close()
        api.streams.close()
        descriptors.close()
        acceptor.close()
        listener.close()
        server.should_exit = True
        await serving
        users.close()
        for task in recording:
            task.cancel()
        if api.history is not None:
            api.history.close()
        answering.cancel()


def _server(api: Api, tls: Tls | None) -> _Server:
    return _Server(
        uvicorn.Config(
            api,
            http=BoundedHttpProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_MAX_S,
            ssl_certfile=tls.cert if tls else None,
            ssl_keyfile=tls.key if tls else None,
            ssl_ca_certs=tls.client_ca if tls else None,
            ssl_cert_reqs=ssl.CERT_OPTIONAL if tls and tls.client_ca else ssl.CERT_NONE,
        )
    )


def _too_much(used_bytes: int, life: Life) -> None:
    _log.error(
        "the web service uses %d MiB of memory and may use %d MiB: it starts again",
        used_bytes >> 20,
        MEMORY_MAX_BYTES >> 20,
    )
    life.stopping.set()
