"""Somebody mad, at one port: `python -m tests.fuzz.senders PORT ADDRESS COUNT SEED [FOLDER OF KEYS]`.

A process of its own, so that it slows nobody but the core. It prints how much it has sent, in lines. Answers are read
and thrown away. Not here: what is sent (`streams.py`).
"""

import contextlib
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc
import zmq

from tests.fuzz.streams import CONNECTIONS, STREAMS, Item
from yunishard.common.transport.curve_keys import read_pair, read_public

WAITING_MAX: Final = 1_000
"""Messages that wait in one connection, here."""

TELL_EVERY: Final = 500
RAW_S: Final = 1.0
"""How long the end of a raw connection is waited for."""

CALL_S: Final = 5.0
THREADS: Final = 4

Send = Callable[[Item], None]


def items(port: str, seed: int) -> Iterator[Item]:
    """What is sent to a port."""
    return STREAMS[port](random.Random(seed))


def send_all(port: str, address: str, some: Iterator[Item], count: int, keys: Path | None = None) -> None:
    """Send so many messages."""
    sent = told = 0
    with sender(port, address, keys) as send:
        for item in some:
            if sent >= count:
                break
            send(item)
            sent += item.count
            if sent - told >= TELL_EVERY:
                told = sent
                sys.stdout.write(f"{sent}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{sent}\n")


@contextlib.contextmanager
def sender(port: str, address: str, keys: Path | None) -> Iterator[Send]:
    """What sends to this port."""
    if port == "grpc":
        with _calls(address) as call:
            yield call
    elif port == "rest":
        with _threads(lambda item: raw(address, item.raw)) as each:
            yield each
    else:
        identity = b"mad-inner" if port == "inner" else b""
        with _sockets(address, keys, identity) as each:
            yield each


@contextlib.contextmanager
def _sockets(address: str, keys: Path | None, identity: bytes) -> Iterator[Send]:
    """A few connections of ZeroMQ, in turn."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = []
    for number in range(1 if identity else CONNECTIONS):
        one = context.socket(zmq.DEALER)
        one.setsockopt(zmq.LINGER, 20_000)
        one.setsockopt(zmq.SNDHWM, WAITING_MAX)
        one.setsockopt(zmq.RCVHWM, WAITING_MAX)
        if identity:
            one.setsockopt(zmq.ROUTING_ID, identity + str(number).encode())
        if keys is not None:
            pair = read_pair(keys / "mad.key_secret")
            one.curve_serverkey = read_public(keys / "server.key").encode()
            one.curve_publickey, one.curve_secretkey = pair.public.encode(), pair.secret.encode()
        one.connect(address)
        sockets.append(one)

    def send(item: Item) -> None:
        if item.raw:
            raw(address.removeprefix("tcp://"), item.raw)
            return
        sockets[item.connection].send_multipart(item.frames)
        for heard in sockets:
            with contextlib.suppress(zmq.Again):
                for _ in range(20):
                    heard.recv_multipart(zmq.NOBLOCK)

    yield send
    for one in sockets:
        one.close()
    context.term()


def raw(address: str, data: bytes) -> None:
    """One connection with these bytes, to its end."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=RAW_S) as one:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        while one.recv(65_536):
            pass


@contextlib.contextmanager
def _threads(do: Send) -> Iterator[Send]:
    """Do it in a few threads; whoever has the next one waits for a free one."""
    free = threading.Semaphore(THREADS)

    def done(item: Item) -> None:
        try:
            do(item)
        finally:
            free.release()

    with ThreadPoolExecutor(THREADS) as pool:

        def send(item: Item) -> None:
            free.acquire()
            pool.submit(done, item)

        yield send


@contextlib.contextmanager
def _calls(address: str) -> Iterator[Send]:
    with grpc.insecure_channel(address) as channel, _threads(lambda item: _call(channel, address, item)) as send:
        yield send


def _call(channel: grpc.Channel, address: str, item: Item) -> None:
    if item.raw:
        raw(address, item.raw)
        return
    metadata = (("yk-rm-id", "mad-g"),)
    path = item.path if item.path.isascii() else item.path.encode(errors="replace").decode("latin-1")
    with contextlib.suppress(grpc.RpcError):
        if path.endswith(("UpdateNode", "UpdateApplication", "UpdateAllocation")):
            for _ in channel.stream_stream(path)(iter(item.requests), timeout=CALL_S, metadata=metadata):
                pass
        elif path.endswith("Events"):
            call = channel.unary_stream(path)(item.requests[0], timeout=CALL_S / 10, metadata=metadata)
            for _ in call:
                call.cancel()
        else:
            channel.unary_unary(path)(item.requests[0], timeout=CALL_S, metadata=metadata)


if __name__ == "__main__":
    port, address, count, seed, *folder = sys.argv[1:]
    keys = Path(folder[0]) if folder else None
    send_all(port, address, items(port, int(seed)), int(count), keys)
