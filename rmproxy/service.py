"""Runs the proxy: opens the native port, the gRPC port and the connection to the broker, and drives the machine."""

import logging
import secrets
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Final

from common.control_messages import Figures
from common.curve_keys import ALLOWED, read_pair, server_file
from common.metrics import encode_families
from common.names import BROKER, OFF, RMPROXY
from common.process import Arguments, Life
from common.process_limits import DescriptorGuard, MemoryLimit
from common.process_metrics import ProcessMetrics
from common.transport import BrokerConnection, Inbox, NativePort, Transport, drive
from common.wire import make_outgoing
from rmproxy.authentication import Authorizer, ZapAuthenticator, make_credentials
from rmproxy.grpc_admin_service import AdminService
from rmproxy.grpc_manager import GrpcRegistry
from rmproxy.grpc_scheduler_service import GrpcServer
from rmproxy.proxy import Proxy
from rmproxy.rm_sessions import GRPC

NATIVE: Final = "native:"
STOP_GRACE_S: Final = 2.0
"""Seconds that gRPC calls may take to end when the proxy stops."""

MEMORY_MESSAGE: Final = (
    "the proxy uses %d MiB of memory and may use %d MiB (`proxy-memory-max`): it restarts, and all RMs reconnect; "
    "clients send more than can be processed, or a message without end"
)

_log = logging.getLogger("core.rmproxy")


async def serve(arguments: Arguments, life: Life) -> None:
    """Run the proxy until `life` stops it.

    Raises:
        OSError: a port or file cannot be opened.
    """
    settings = arguments.settings
    credentials = make_credentials(*settings.grpc_tls) if settings.grpc_tls else None
    transport = Transport()
    inbox = Inbox(wake=partial(transport.arrived, GRPC))
    registry = GrpcRegistry(inbox.put)
    inbox.deliver = registry.receive
    stack = ExitStack()
    authenticator = _authenticator(settings.native_keys, settings.native_allowed, stack)
    authorizer = Authorizer(authenticator.has_key_for) if authenticator else Authorizer()
    port = GrpcServer(registry, AdminService(registry, authorizer), authorizer)
    if authenticator is not None:
        authenticator.on_change = port.authorize_again
    native = _native(settings.native, transport, authenticator)
    link = BrokerConnection(arguments.broker, peer=BROKER, name=RMPROXY, wake=partial(transport.arrived, BROKER))
    stack.callback(MemoryLimit(settings.proxy_memory_max_bytes, life.stop, MEMORY_MESSAGE).close)
    guard = DescriptorGuard()
    stack.callback(guard.close)
    if native is not None:
        guard.add(native)
    transport.add(GRPC, inbox)
    transport.add(BROKER, link)
    try:
        grpc_address = OFF if settings.grpc == OFF else await port.start(settings.grpc, credentials)
        life.ready(native=native.address if native else OFF, grpc=grpc_address)
        life.on_stop(transport.wake)
        instance = f"{secrets.token_hex(4)}."
        machine = Proxy(instance, heartbeat_s=settings.heartbeat_s, silence_s=settings.silence_s)
        transport.send(machine.hello())
        with closing(_report_metrics(machine, transport)):
            lines = machine.rate_limiter.log_lines
            await drive(machine, transport, life.stopping, notes=[lines], write_notes=partial(_write_notes, lines))
        for message in machine.goodbye():
            transport.send(message)
    finally:
        for socket in (native, link):
            if socket is not None:
                socket.close()
        await port.stop(STOP_GRACE_S)
        stack.close()


def _native(address: str, transport: Transport, authenticator: ZapAuthenticator | None) -> NativePort | None:
    """Open the native port; None if it is off."""
    if address == OFF:
        return None
    native = NativePort(address, prefix=NATIVE, wake=partial(transport.wake, NATIVE), authenticator=authenticator)
    transport.add(NATIVE, native)
    return native


def _report_metrics(machine: Proxy, transport: Transport) -> ProcessMetrics:
    """Send the metrics of this process to the broker regularly, until the result is closed."""

    def report() -> None:
        families = encode_families([*process.collect(), *machine.metrics.families()])
        transport.send(make_outgoing(BROKER, Figures(process=RMPROXY, families=families)))

    process = ProcessMetrics(RMPROXY, wire=transport, send=report)
    return process


def _write_notes(lines: list[str]) -> None:
    for line in lines:
        _log.warning("%s", line)
    lines.clear()


def _authenticator(keys: Path | None, allowed: Path | None, stack: ExitStack) -> ZapAuthenticator | None:
    """Make the authenticator of the native port; None for a port without keys."""
    if keys is None:
        return None
    secret = server_file(keys)
    authenticator = ZapAuthenticator(read_pair(secret), allowed or secret.with_name(ALLOWED))
    stack.callback(authenticator.close)
    return authenticator
