"""Runs the proxy: opens the native port, the gRPC port and the connection to the broker, and drives the machine. With
several hosts, it closes the ports while it has no connection to the leading broker.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from yunishard.common.messages.control_messages import Figures
from yunishard.common.messages.wire import make_outgoing
from yunishard.common.names import BROKER, OFF, RMPROXY, peer_name, process_label
from yunishard.common.process.limits import DescriptorGuard, Listener, MemoryLimit
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
from yunishard.rmproxy.metrics import collect_proxy_metrics
from yunishard.rmproxy.proxy import GRPC, Proxy

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
        ports: list[Listener] = [port]
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
        link = BrokerConnection(arguments.broker, name=name, wake=wake, keys=settings.cluster_keys)
        stack.callback(link.close)
        transport.add(BROKER, link)
        life.on_leader(link.move)
        grpc_address = OFF if settings.grpc == OFF else await port.start(settings.grpc, credentials)
        life.ready(native=native_address, grpc=grpc_address)
        life.on_stop(transport.wake)
        instance, label = f"{secrets.token_hex(4)}.", process_label(name)
        machine = Proxy(instance, heartbeat_s=settings.heartbeat_s, silence_s=settings.silence_s)
        dismiss = partial(_dismiss_rms, machine, transport)
        if settings.cluster_keys is not None:
            gate = PortGate(lambda: link.is_up, ports, patience_s=settings.lease_timeout_s, on_close=dismiss)
            stack.callback(gate.close)
        transport.send(machine.hello())

        def report() -> None:
            families = encode_families([*list_families(process.registry), *collect_proxy_metrics(machine, label)])
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


# Closing the ports ----------------------------------------------------------------------------------------------------

CHECK_EVERY_S: Final = 0.5
"""Seconds between two checks of the connection."""

NO_BROKER: Final = "this host has no connection to the leading broker"


class PortGate:
    """Pauses the ports when the connection has been down for `patience_s`, and resumes them when it is up again. So RMs
    with several addresses, clients of gRPC and load balancers turn to another host while this one is cut off. It calls
    `on_close` with the reason one check earlier: ZeroMQ ends the connections of a paused port, and an RM may lose
    what it has not read yet. Made and closed in a running event loop.
    """

    def __init__(
        self,
        is_up: Callable[[], bool],
        ports: Sequence[Listener],
        *,
        patience_s: float,
        on_close: Callable[[str], None],
    ) -> None:
        self._is_up = is_up
        self._ports = ports
        self._patience_s = patience_s
        self._on_close = on_close
        self._is_open = True
        self._has_dismissed = False
        """Whether `on_close` was called, and the connection has been down since."""
        self._loop = asyncio.get_running_loop()
        self._up_at = self._loop.time()
        """When the connection was last up, or the start."""
        self._timer = self._loop.call_later(CHECK_EVERY_S, self._check)

    def close(self) -> None:
        """Check no more."""
        self._timer.cancel()

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_EVERY_S, self._check)
        now = self._loop.time()
        down_s = now - self._up_at
        if self._is_up():
            self._up_at, self._has_dismissed = now, False
            if not self._is_open:
                self._try_to_open(down_s)
        elif self._is_open and self._has_dismissed:
            self._is_open = False
            _log.warning("%s for %.0f s: the ports for RMs are closed until there is one", NO_BROKER, down_s)
            for port in self._ports:
                port.pause()
        elif self._is_open and down_s >= self._patience_s:
            self._has_dismissed = True
            self._on_close(NO_BROKER)

    def _try_to_open(self, down_s: float) -> None:
        try:
            for port in self._ports:
                port.resume()
        except OSError as error:
            _log.warning("the ports for RMs cannot be opened yet: %s", error)
            return
        self._is_open = True
        _log.info("connected to the leading broker: the ports for RMs are open again, after %.0f s", down_s)
