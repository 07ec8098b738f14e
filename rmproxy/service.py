"""The proxy's shell: the native port, the gRPC port, and the connection to the broker."""

import argparse
import logging
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import grpc

from common.control_messages import Figures
from common.descriptors import DescriptorGuard
from common.driver import Inbox, Transport, drive
from common.families import encoded
from common.keys import read_pair, server_file
from common.machine import send
from common.memory import MemoryLimit
from common.names import BROKER, OFF, RMPROXY
from common.process import Life
from common.process_figures import ProcessFigures, Teller
from common.transport import BrokerConnection, NativePort
from rmproxy.counting import Counting
from rmproxy.doorkeeper import Doorkeeper
from rmproxy.front import Front
from rmproxy.grpc_admin import Admin
from rmproxy.grpc_authz import Authorizer
from rmproxy.grpc_port import GrpcPort
from rmproxy.grpc_registry import Registry
from rmproxy.grpc_tls import TlsFiles

NATIVE: Final = "native:"
GRPC: Final = "grpc:"
STOP_GRACE_S: Final = 2.0
"""How long gRPC calls may take to end when the proxy stops."""

_log = logging.getLogger("core.rmproxy")


async def serve(args: argparse.Namespace, life: Life) -> None:
    """Run the proxy until told to stop. A port or file that cannot be opened is an OSError."""
    credentials = _credentials(args.tls_cert, args.tls_key, args.tls_client_ca)
    wire = Transport()
    inbox = Inbox(wake=wire.arrived)
    registry = Registry(inbox.put)
    inbox.deliver = registry.receive
    stack = ExitStack()
    doorkeeper = _doorkeeper(args.keys, args.allowed_keys, stack)
    authorizer = Authorizer(doorkeeper.has_key_for) if doorkeeper else Authorizer()
    port = GrpcPort(registry, Admin(registry, authorizer), authorizer)
    if doorkeeper is not None:
        doorkeeper.on_change = port.authorize_again
    native = _native(args.native, wire, doorkeeper)
    link = BrokerConnection(args.broker, peer=BROKER, name=RMPROXY, wake=wire.arrived)
    stack.callback(_memory_limit(args.memory_max, life).close)
    guard = DescriptorGuard()
    stack.callback(guard.close)
    if native is not None:
        guard.add(native.listener)
    wire.add(GRPC, inbox)
    wire.add(BROKER, link)
    try:
        grpc_address = OFF if args.grpc == OFF else await port.start(args.grpc, credentials)
        life.ready(native=native.address if native else OFF, grpc=grpc_address)
        life.on_stop(wire.wake)
        front = Front(instance=f"{secrets.token_hex(4)}.", heartbeat_s=args.heartbeat, silence_s=args.silence)
        counting = Counting(front)
        wire.send(front.hello())
        with _telling(counting, wire):
            await drive(counting, wire, life.stopping, write_notes=lambda: _write_notes(front))
        for message in front.goodbye():
            wire.send(message)
    finally:
        for socket in (native, link):
            if socket is not None:
                socket.close()
        await port.stop(STOP_GRACE_S)
        stack.close()


def _native(address: str, wire: Transport, doorkeeper: Doorkeeper | None) -> NativePort | None:
    """Open the native port; None if it is off."""
    if address == OFF:
        return None
    native = NativePort(address, prefix=NATIVE, wake=wire.wake, authenticator=doorkeeper)
    wire.add(NATIVE, native)
    return native


def _telling(counting: Counting, wire: Transport) -> ExitStack:
    """The broker is told this process's figures, until this is closed."""
    stack = ExitStack()
    process = ProcessFigures(RMPROXY, wire=wire)
    stack.callback(process.close)

    def tell() -> None:
        told = encoded([*process.families(), *counting.families()])
        wire.send(send(BROKER, Figures(process=RMPROXY, families=told)))

    stack.callback(Teller(tell).close)
    return stack


def _write_notes(front: Front) -> None:
    for line in front.patience.complaints:
        _log.warning("%s", line)
    front.patience.complaints.clear()


def _memory_limit(most_bytes: int, life: Life) -> MemoryLimit:
    """What ends the process before it takes too much memory; then it is started again, and everybody resumes."""

    def exceeded(used_bytes: int) -> None:
        _log.error(
            "the proxy uses %d MiB of memory and may use %d MiB (`proxy-memory-max`): it starts again, and all RMs "
            "connect anew; clients send more than can be processed, or a message without end",
            used_bytes >> 20,
            most_bytes >> 20,
        )
        life.stop()

    return MemoryLimit(most_bytes, exceeded)


def _doorkeeper(keys: str | None, allowed: str | None, stack: ExitStack) -> Doorkeeper | None:
    """Who looks after the native port; None for a port without keys."""
    if keys is None or allowed is None:
        return None
    doorkeeper = Doorkeeper(read_pair(server_file(Path(keys))), Path(allowed))
    stack.callback(doorkeeper.close)
    return doorkeeper


def _credentials(cert: str | None, key: str | None, client_ca: str | None) -> grpc.ServerCredentials | None:
    """What the gRPC port shows of itself, and whom it lets in; None for no TLS."""
    if cert is None or key is None:
        return None
    return TlsFiles(Path(cert), Path(key), Path(client_ca) if client_ca else None).credentials()
