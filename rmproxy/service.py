"""The proxy's shell: the native port, the gRPC port, and the connection to the broker."""

import argparse
import secrets
from pathlib import Path
from typing import Final

import grpc

from common.driver import drive
from common.names import BROKER, RMPROXY
from common.process import Life
from common.sockets import Dealer, Inbox, Router, Wire
from rmproxy.front import Front
from rmproxy.grpc_port import GrpcPort

NATIVE: Final = "native:"
GRPC: Final = "grpc:"
STOP_GRACE_S: Final = 2.0
"""How long gRPC calls may take to end when the proxy stops."""


async def serve(args: argparse.Namespace, life: Life) -> None:
    """Run the proxy until told to stop. A port or file that cannot be opened is an OSError."""
    credentials = _credentials(args.tls_cert, args.tls_key, args.tls_client_ca)
    wire = Wire()
    inbox = Inbox(wake=wire.wake)
    port = GrpcPort(inbox.put)
    inbox.receive = port.receive
    native = Router(args.native, prefix=NATIVE, named=False, wake=wire.wake)
    link = Dealer(args.broker, peer=BROKER, name=RMPROXY, wake=wire.wake)
    wire.add(NATIVE, native)
    wire.add(GRPC, inbox)
    wire.add(BROKER, link)
    for socket in (native, link):
        socket.watch()
    try:
        grpc_address = await port.start(args.grpc, credentials)
        life.ready(native=native.address, grpc=grpc_address)
        life.on_stop(wire.wake)
        await drive(Front(instance=f"{secrets.token_hex(4)}."), wire, life.stopping)
    finally:
        await port.stop(STOP_GRACE_S)
        for socket in (native, link):
            socket.close()


def _credentials(cert: str | None, key: str | None, client_ca: str | None) -> grpc.ServerCredentials | None:
    """What the gRPC port shows of itself, and whom it lets in; None for no TLS."""
    if cert is None or key is None:
        return None
    authorities = Path(client_ca).read_bytes() if client_ca else None
    pair = (Path(key).read_bytes(), Path(cert).read_bytes())
    return grpc.ssl_server_credentials([pair], authorities, require_client_auth=authorities is not None)
