"""TLS in front of a PostgreSQL server, as the binaries from PyPI have none."""

import socket
import ssl
import struct
import threading
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Final

from tests.postgres import SOCKET, Server

REQUEST: Final = struct.pack("!II", 8, 80877103)
"""A client's question whether the server has TLS."""


class TlsFront:
    """Accepts connections with TLS on a port of this machine, and forwards them to a server."""

    def __init__(self, place: Server, certificate: Path, key: Path, *, clients: Path | None = None) -> None:
        """With `clients`, a client has to present this certificate."""
        self._server = str(place.folder / SOCKET)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=clients)
        self._context.load_cert_chain(certificate, key)
        if clients is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._port = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._port.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def through(self, store: str, host: str = "localhost") -> str:
        """The connection string of a store by way of this port, under this name of the server."""
        folder = str(Path(self._server).parent)
        return store.replace(f"host={folder}", f"host={host}&hostaddr=127.0.0.1&port={self.port}")

    def close(self) -> None:
        with suppress(OSError):
            self._port.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for one in self._connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._port.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._port.accept()
                self._connections.append(client)
                self._threads.append(threading.Thread(target=self._forward, args=(client,)))
                self._threads[-1].start()

    def _forward(self, plain: socket.socket) -> None:
        with plain, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            if plain.recv(len(REQUEST), socket.MSG_WAITALL) != REQUEST:
                return  # a client that would go on without TLS
            plain.sendall(b"S")
            with self._context.wrap_socket(plain, server_side=True) as client:
                self._connections.append(client)
                server.connect(self._server)
                while True:
                    readable = [client] if client.pending() else select([client, server], [], [])[0]
                    for source in readable:
                        if not (data := source.recv(1 << 16)):
                            return
                        (server if source is client else client).sendall(data)
