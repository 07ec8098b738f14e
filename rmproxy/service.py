"""Runs the proxy: opens the native port, the gRPC port and the connection to the broker, and drives the machine."""

import logging
import secrets
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from yunishard.common.messages.control_messages import Figures
from yunishard.common.messages.wire import make_outgoing
from yunishard.common.names import BROKER, OFF, RMPROXY, peer_name, process_label
from yunishard.common.process.limits import DescriptorGuard, MemoryLimit
from yunishard.common.process.logs import log_lines
from yunishard.common.process.main import Arguments, Life
from yunishard.common.process.metrics import encode_families
from yunishard.common.process.process_metrics import ProcessMetrics, list_families
from yunishard.common.settings import Settings
from yunishard.common.transport.curve_keys import ALLOWED, read_pair, server_file
from yunishard.common.transport.event_loop import BrokerConnection, NativePort, Transport, drive
from yunishard.common.transport.inbox import Inbox
from yunishard.rmproxy.authentication import Authorizer, RmAuthenticator, make_credentials
from yunishard.rmproxy.grpc_admin_service import AdminService
from yunishard.rmproxy.grpc_manager import GrpcRegistry
from yunishard.rmproxy.grpc_scheduler_service import GrpcServer
from yunishard.rmproxy.port_gate import Port, PortGate
from yunishard.rmproxy.proxy import Proxy
from yunishard.rmproxy.rm_sessions import GRPC

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
        OSError: a port or file cannot be opened, or the broker does not accept this proxy.
    """
    settings, name = arguments.settings, peer_name(RMPROXY, arguments.instance)
    credentials = make_credentials(*settings.grpc_tls) if settings.grpc_tls else None
    transport = Transport()
    inbox = Inbox(wake=partial(transport.arrived, GRPC))
    registry = GrpcRegistry(inbox.put)
    inbox.deliver = registry.receive
    transport.add(GRPC, inbox)
    async with AsyncExitStack() as stack:
        authenticator = _open_authenticator(settings, stack)
        authorizer = Authorizer(authenticator.has_key_for) if authenticator else Authorizer()
        port = GrpcServer(registry, AdminService(registry, authorizer), authorizer)
        stack.push_async_callback(port.stop, STOP_GRACE_S)
        if authenticator is not None:
            authenticator.on_change = port.authorize_again
        stack.callback(MemoryLimit(settings.proxy_memory_max_bytes, life.stop, MEMORY_MESSAGE).close)
        guard = DescriptorGuard()
        stack.callback(guard.close)
        ports: list[Port] = [port]
        native_address = OFF
        if settings.native != OFF:
            wake = partial(transport.wake, NATIVE)
            native = NativePort(settings.native, prefix=NATIVE, wake=wake, authenticator=authenticator)
            stack.callback(native.close)
            transport.add(NATIVE, native)
            guard.add(native)
            ports.append(native)
            native_address = native.address
        wake = partial(transport.arrived, BROKER)
        link = BrokerConnection(arguments.broker, peer=BROKER, name=name, wake=wake, keys=settings.cluster_keys)
        stack.callback(link.close)
        transport.add(BROKER, link)
        life.on_leader(link.move)
        grpc_address = OFF if settings.grpc == OFF else await port.start(settings.grpc, credentials)
        life.ready(native=native_address, grpc=grpc_address)
        life.on_stop(transport.wake)
        instance, label = f"{secrets.token_hex(4)}.", process_label(name)
        machine = Proxy(instance, heartbeat_s=settings.heartbeat_s, silence_s=settings.silence_s, label=label)
        dismiss = partial(_dismiss_rms, machine, transport)
        if settings.cluster_keys is not None:
            stack.callback(PortGate(link, ports, patience_s=settings.lease_timeout_s, on_close=dismiss).close)
        transport.send(machine.hello())

        def report() -> None:
            families = encode_families([*list_families(process.registry), *machine.metrics.families()])
            transport.send(make_outgoing(BROKER, Figures(families=families)))

        process = ProcessMetrics(label, wire=transport, send=report, memory_max_bytes=settings.proxy_memory_max_bytes)
        stack.callback(process.close)
        lines = {logging.WARNING: machine.rate_limiter.log_lines}
        write_notes = partial(log_lines, _log, lines)
        await drive(machine, transport, life.stopping, notes=lines.values(), write_notes=write_notes)
        dismiss("the core is stopping")


def _open_authenticator(settings: Settings, stack: AsyncExitStack) -> RmAuthenticator | None:
    """Read the keys of the native port; None if it has none."""
    if settings.native_keys is None:
        return None
    secret = server_file(settings.native_keys)
    authenticator = RmAuthenticator(read_pair(secret), settings.native_allowed or secret.with_name(ALLOWED))
    stack.callback(authenticator.close)
    return authenticator


def _dismiss_rms(machine: Proxy, transport: Transport, reason: str) -> None:
    for message in machine.goodbye(reason):
        transport.send(message)
