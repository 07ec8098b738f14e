"""The web service as a process: listening port, TLS, connection to the broker, history recorder, orderly stop."""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from typing import Final

import h11
import uvicorn

from yunishard.common.config.acl import parse_acl
from yunishard.common.names import WEBSERVICE, peer_name, process_label
from yunishard.common.process.limits import Acceptor, DescriptorGuard, MemoryLimit
from yunishard.common.process.main import Arguments, Life
from yunishard.common.process.process_metrics import ProcessMetrics
from yunishard.common.retries import LogLimit
from yunishard.common.settings import CERTIFICATE, PROXY, TOKEN, Settings, TlsPaths, host_and_port
from yunishard.common.transport.token_keys import TokenKeyError
from yunishard.webservice.api import Api
from yunishard.webservice.audit import AUDIT, AuditFile, AuditLog
from yunishard.webservice.authn_authz import AccessControl, KeyFile, LoopbackUsers
from yunishard.webservice.broker_client import BrokerClient
from yunishard.webservice.history.queries import HistoryReader
from yunishard.webservice.history.recorder import HistoryRecorder
from yunishard.webservice.history.sqlite_store import SqliteHistory
from yunishard.webservice.history.store import HistoryStore
from yunishard.webservice.http1 import MALFORMED_LINE, BoundedHttpProtocol

LINES_MAX: Final = 10
"""Lines per minute; further ones are counted, and the next line has their number."""


class ClientErrorFilter(logging.Filter):
    """Limits the log lines about client errors, so that no client can fill the log.

    uvicorn logs a line for each malformed request, and a traceback when a client disconnects during an answer. Other
    exceptions are defects of this service, and always logged in full.
    """

    def __init__(self) -> None:
        super().__init__()
        self._limit = LogLimit(LINES_MAX)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg == MALFORMED_LINE:  # `BoundedHttpProtocol` logs it with the address of the client
            return False
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            if not isinstance(error, h11.ProtocolError):
                return True
            record.exc_info, record.msg, record.args = None, "%s", (f"the answer was aborted: {error}",)
        more = self._limit.admit(record.created)
        record.msg, record.args = "%s%s", (record.getMessage(), more)
        return more is not None


STOP_MAX_S: Final = 5
"""Seconds for running requests to finish when the service stops."""

BACKLOG: Final = 256

MEMORY_MAX_BYTES: Final = 2 << 30
"""Memory of the process; beyond it the process ends and the supervisor restarts it. It holds no state."""

MEMORY_MESSAGE: Final = "the web service uses %d MiB of memory and may use %d MiB: it restarts"


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers. An `Acceptor` accepts connections: uvloop silently closes a
    listener when file descriptors run out.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._handshakes: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def serve_connection(self, connection: socket.socket) -> None:
        """Serve an accepted connection."""
        handshake = asyncio.get_running_loop().create_task(self._handshake(connection))
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def _handshake(self, connection: socket.socket) -> None:
        make_protocol = partial(BoundedHttpProtocol, self.config, self.server_state, self.lifespan.state)
        connection.settimeout(0)
        with contextlib.suppress(OSError):  # the client disconnected, or its TLS handshake failed
            await asyncio.get_running_loop().connect_accepted_socket(make_protocol, connection, ssl=self.config.ssl)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; no host means all interfaces, port 0 any free port.

    Raises:
        OSError: in one line, with the reason.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # do not wait for closed connections
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {format_endpoint(host, port)}: {error.strerror or error}") from error
    return listener


def format_endpoint(host: str, port: int) -> str:
    """The text of a host and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def make_access_control(settings: Settings) -> AccessControl:
    """Make authentication, authorization and the audit log from the settings.

    Raises:
        OSError: in one line, with the reason.
    """
    keys = None
    if TOKEN in settings.auth:
        if settings.auth_keys is None:
            raise OSError("--auth-keys is missing")
        try:
            keys = KeyFile(settings.auth_keys)
        except TokenKeyError as error:
            raise OSError(f"{settings.auth_keys}: {error}") from None
    admins = parse_acl(settings.scheduler_admins)
    return AccessControl(
        LoopbackUsers(admins),
        keys=keys,
        issuer=settings.auth_issuer,
        audience=settings.auth_audience,
        certificates=CERTIFICATE in settings.auth,
        proxies=tuple(map(ipaddress.ip_network, settings.auth_proxy)) if PROXY in settings.auth else (),
        admins=admins,
        origins=settings.cors,
        hosts=(*settings.rest_hosts, host_and_port(settings.rest)[0].lower()),
        audit=_open_audit_log(settings),
    )


def _open_audit_log(settings: Settings) -> AuditLog | None:
    if settings.store:
        from yunishard.webservice.postgres_audit import PostgresAudit  # needs a library that other systems do not have

        return AuditLog(PostgresAudit(settings.store), host=settings.host_name)
    return AuditLog(AuditFile(settings.state / AUDIT)) if settings.state else None


def _make_history(settings: Settings, peer: str) -> HistoryStore | None:
    if settings.store and settings.history:
        from yunishard.webservice.history.postgres_store import PostgresHistory  # as above

        return PostgresHistory(settings.store, peer)
    return SqliteHistory(settings.history_file) if settings.history_file is not None else None


async def serve(arguments: Arguments, life: Life) -> None:
    """Serve requests until the process stops, over TLS if there are files for it. A defect in the connection to the
    broker ends the process.

    Raises:
        OSError: it cannot start; in one line, with the reason.
    """
    settings, peer = arguments.settings, peer_name(WEBSERVICE, arguments.instance)
    control = make_access_control(settings)
    listener = listen(*host_and_port(settings.rest))
    client_errors = ClientErrorFilter()
    for name in ("uvicorn.error", "yunishard.webservice.http1"):
        logging.getLogger(name).addFilter(client_errors)
    tls = settings.rest_tls
    heartbeat_s, keys = settings.heartbeat_s, settings.cluster_keys
    client = BrokerClient(arguments.broker, name=peer, heartbeat_s=heartbeat_s, keys=keys)
    life.on_leader(client.move)
    api = Api(client, settings, control)
    services, recorder = api.services, None
    if (history := _make_history(settings, peer)) is not None:
        bytes_max, age_max_s = settings.history_max_bytes, settings.history_age_s
        recorder = HistoryRecorder(history, bytes_max=bytes_max, age_max_s=age_max_s)
        services.history = HistoryReader(recorder)
        services.metrics.registry.register(recorder)
    server = _Server(_make_uvicorn_config(api, tls))
    process = ProcessMetrics(
        process_label(peer),
        wire=client.wire,
        memory_max_bytes=MEMORY_MAX_BYTES,
        registry=services.metrics.registry,
    )
    if recorder is not None:
        process.watch_writes("history", recorder.writes)
    services.report_health = process.report_health
    if (audit := control.audit) is not None:
        process.watch_writes("audit", audit.writes)
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(client.run())]
        if recorder is not None:
            background.append(tasks.create_task(recorder.run(client)))
        serving = tasks.create_task(server.serve(sockets=[]))
        descriptors = DescriptorGuard()
        acceptor = Acceptor(listener, server.serve_connection, descriptors)
        host, port, *_ = listener.getsockname()
        life.ready(rest=f"{'https' if tls else 'http'}://{format_endpoint(host, port)}")
        limit = MemoryLimit(MEMORY_MAX_BYTES, life.stop, MEMORY_MESSAGE)
        await life.stopping.wait()
        for one in (limit, process, services.streams, descriptors, acceptor, listener):
            one.close()
        server.should_exit = True
        await serving
        control.users.close()
        if control.audit is not None:
            control.audit.close()
        if services.history is not None:
            services.history.close()
        for task in background:
            task.cancel()


def _make_uvicorn_config(api: Api, tls: TlsPaths | None) -> uvicorn.Config:
    return uvicorn.Config(
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
