"""For each port of a running system: what somebody mad sends there, one item after the other, without end.

An item follows from the seed alone and not from any answer, so what was sent can be made again (`--replay`). Not here:
how it is sent (`senders.py`).
"""

import random
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.fuzz.examples import CONFIG, Frames, Voice
from tests.fuzz.frames import Mad, said
from tests.fuzz.protobuf import mutated, requests
from tests.fuzz.words import TEXTS, bitten

GOOD: Final = "good"
"""The resource manager that is to notice nothing."""

PLAIN_MAD: Final = (Voice("mad-0", "s-mad-0", "mad-0_default"), Voice("mad-1", "s-mad-1", "mad-1_default"))
GRPC_MAD: Final = Voice("mad-g", "", "mad-g_default")
INNER_MAD: Final = Voice("mad-0", "s-mad-0", "mad-0_default")
STRANGER: Final = Voice(GOOD, "s-mad", "good_default")
"""As the good one, with a session that is not theirs."""
THIEF: Final = Voice(GOOD, "session-of-good", "good_default")
"""As the good one, in their own session: where there are keys that is of no use."""
NEIGHBOUR: Final = Voice("mad-1", "s-mad-1", "good_default")

CONNECTIONS: Final = 3
RAW_EVERY: Final = 400
"""Items of the native port and of gRPC between two connections of which the first byte is wrong already."""

REGISTER_EVERY: Final = 1_500
"""Items between two registrations over gRPC."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something to send: frames, or bytes for one connection, or requests for one call."""

    frames: Frames = field(default_factory=list)
    raw: bytes = b""
    path: str = ""
    """Of a gRPC call."""
    requests: list[bytes] = field(default_factory=list)
    connection: int = 0
    """Which one, of frames: each mad one has its own, and uses others at times."""

    @property
    def count(self) -> int:
        """How many messages it is."""
        return max(len(self.requests), 1)


def native(rng: random.Random, *, keys: bool = False) -> Iterator[Item]:
    """Two mad resource managers, and connections that speak something else."""
    others = (*PLAIN_MAD, THIEF if keys else STRANGER)
    mads = [Mad(random.Random(rng.random()), voice, others=others) for voice in PLAIN_MAD[: 1 if keys else 2]]
    streams = [mad.stream() for mad in mads]
    for mad in mads:
        connection = mads.index(mad)
        yield from (Item(frames, connection=connection) for frames in mad.furnishings())
    while True:
        for _ in range(RAW_EVERY):
            number = rng.randrange(len(streams))
            frames, _ = next(streams[number])
            if keys or not takes_over(frames):
                yield Item(frames, connection=number if rng.random() < 0.98 else CONNECTIONS - 1)
        yield Item(
            raw=rng.choice((_http(rng, "/"), rng.randbytes(300), ZMTP + rng.randbytes(500), ZMTP[:30], _http2(rng)))
        )


def curve(rng: random.Random) -> Iterator[Item]:
    """Somebody whose key is for another resource manager."""
    return native(rng, keys=True)


def inner(rng: random.Random) -> Iterator[Item]:
    """A process of ours that the broker knows nothing of."""
    mad = Mad(rng, INNER_MAD, others=(NEIGHBOUR,))
    for frames, right in mad.stream():
        if not right and not takes_over(frames) and not _registers(frames):
            yield Item(frames)


def takes_over(frames: Frames) -> bool:
    """Whether this is a registration in place of the good one, to which everybody has a right where there are no
    keys.
    """
    header = said(frames)
    return header is not None and header.rm == GOOD and header.kind == "RegisterResourceManager"


def _registers(frames: Frames) -> bool:
    """Whether this is a registration, which is for proxies to say: its answers are theirs."""
    header = said(frames)
    return header is not None and header.kind == "RegisterResourceManager"


# gRPC -----------------------------------------------------------------------------------------------------------------

NAMELESS_EVERY: Final = 501
"""Items between two calls whose name is not UTF-8, over which gRPC's library falls."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ZMTP: Final = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_HEADERS: Final = b"\x83\x86\x44\x0a/si.v1/abc\x41\x01h\x40\x02te\x08trailers"
"""POST, http, a path, and so on, as HPACK has it."""


def grpc(rng: random.Random) -> Iterator[Item]:
    """Calls with spoiled requests, in streams and alone, and connections with spoiled frames of HTTP/2."""
    good = requests(GRPC_MAD)
    register, *others = good
    every = [one for path in others for one in good[path]]
    yield Item(path=register, requests=good[register])
    number = 0
    while True:
        number += 1
        if number % REGISTER_EVERY == 0:
            yield Item(path=register, requests=good[register])
        elif number % 20 == 0:
            yield Item(raw=PREFACE[: rng.choice((24, 24, 24, 9))] + _http2(rng))
        elif number % NAMELESS_EVERY == 0:
            yield Item(raw=NAMELESS)
        else:
            path = rng.choice((*others, *others, register, "/si.v1.Scheduler/Nothing", "/yunishard.v1.Admin/\xff"))
            count = rng.choice((1, 2, 20, 50)) if path.startswith("/si.v1.Scheduler/Update") else 1
            some = good.get(path, every)
            bodies = [
                mutated(rng, rng.choice(some), every) if rng.random() < 0.8 else rng.choice(some) for _ in range(count)
            ]
            yield Item(path=path, requests=bodies)


NAMELESS: Final = (
    PREFACE
    + b"\0\0\0\4\0\0\0\0\0"
    + (len(_HEADERS) - 6).to_bytes(3, "big")
    + b"\x01\x05\0\0\0\1"
    + _HEADERS.replace(b"\x0a/si.v1/abc", b"\x04/\xae\xff\xfe")
)


def _http2(rng: random.Random) -> bytes:
    """Frames in an order that makes no sense."""
    found = bytearray(b"\0\0\0\4\0\0\0\0\0")
    for _ in range(rng.randrange(1, 12)):
        kind, flags = rng.choice((0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255)), rng.choice((0, 1, 4, 5, 8, 0x24, 255))
        payload = bitten(rng, _HEADERS) if kind in (1, 9) else rng.randbytes(rng.choice((0, 4, 5, 6, 8, 30)))
        length = len(payload) if rng.random() < 0.8 else rng.choice((0, 1, 16_384, 2**24 - 1))
        stream = rng.choice((0, 1, 1, 3, 2, 5, 2**31 - 1, 2**32 - 1))
        found += length.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    return bytes(found)


# REST -----------------------------------------------------------------------------------------------------------------

PLACES: Final = (
    "/ws/v1/clusters", "/ws/v1/metrics", "/ws/v1/scheduler/healthcheck", "/ws/v1/events/batch", "/ws/v1/validate-conf",
    "/ws/v1/partitions", "/ws/v1/partition/{p}/placementrules", "/ws/v1/partition/{p}/queues",
    "/ws/v1/partition/{p}/queue/root.batch", "/ws/v1/partition/{p}/queue/root.batch/applications",
    "/ws/v1/partition/{p}/queue/root.batch/applications/active", "/ws/v1/partition/{p}/applications/completed",
    "/ws/v1/partition/{p}/application/app", "/ws/v1/partition/{p}/nodes", "/ws/v1/partition/{p}/node/n1",
    "/ws/v1/partition/{p}/preemptions", "/ws/v1/partition/{p}/usage/users", "/ws/v1/partition/{p}/usage/user/alice",
    "/ws/v1/partition/{p}/usage/groups", "/ws/v1/partition/{p}/application/app/kill",
    "/ws/v1/partition/{p}/application/app/move", "/ws/v1/partition/{p}/schedule", "/ws/v1/config",
    "/ws/v1/config/history", "/ws/v1/config/version/1", "/ws/v1/config/rollback", "/ws/v1/settings",
    "/ws/v1/fullstatedump", "/ws/v1/stack", "/ws/v1/history/apps", "/", "/ws/v1/../v1/partitions", "//ws//v1",
)  # fmt: skip
METHODS: Final = (
    "GET",
    "GET",
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "CONNECT",
    "get",
    "G\0T",
    "X" * 300,
)
VERSIONS: Final = ("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2", "HTTP/9.9", "", "\0")
QUERIES: Final = (
    "rm=mad-0",
    "count=5",
    "start=0",
    "dryrun=1",
    "user=alice",
    "format=json",
    "",
    "&&&",
    "a" * 9_000,
    "%zz=%",
    "count=-1",
)


def rest(rng: random.Random) -> Iterator[Item]:
    """Requests, a few to a connection."""
    while True:
        place = rng.choice(PLACES)
        yield Item(raw=b"".join(_http(rng, place) for _ in range(rng.choice((1, 1, 2, 3)))))


def _http(rng: random.Random, place: str) -> bytes:
    """One request. About the partitions of the mad ones only: a front end may change those of the good one."""
    partition = urllib.parse.quote(rng.choice(("mad-0_default", "[mad-0]default", "mad-g_default", *TEXTS[:40]))[:500])
    path = place.replace("{p}", partition if partition != "default" else "nothing")
    if rng.random() < 0.5:
        path += "?" + "&".join(
            rng.choice((*QUERIES, f"count={urllib.parse.quote(rng.choice(TEXTS))}")) for _ in range(3)
        )
    body = rng.choice((b"", b"{}", CONFIG.encode(), b'{"queue": "root.small"}', b"[" * 9_000, rng.randbytes(60)))
    headers = [f"Host: {rng.choice(('localhost', '', 'x' * 300))}", *_lengths(rng, body), *_odd_headers(rng)]
    rng.shuffle(headers)
    head = f"{rng.choice(METHODS)} {path} {rng.choice(VERSIONS)}\r\n" + "\r\n".join(headers) + "\r\n\r\n"
    data = head.encode("latin-1", errors="replace") + body
    return bitten(rng, data) if rng.random() < 0.3 else data


def _lengths(rng: random.Random, body: bytes) -> list[str]:
    """How long the body says it is."""
    return rng.choice(
        (
            [f"Content-Length: {len(body)}"],
            [f"Content-Length: {len(body)}"],
            [f"Content-Length: {rng.choice((0, 1, -1, 10**9, 2**64, 'x'))}"],
            ["Content-Length: 5", "Content-Length: 6"],
            ["Transfer-Encoding: chunked"],
            ["Transfer-Encoding: chunked", "Content-Length: 3"],
            ["Transfer-Encoding: gzip, chunked"],
            [],
        )
    )


def _odd_headers(rng: random.Random) -> list[str]:
    """Some of which nobody needs."""
    return [
        one
        for one in (
            "Connection: keep-alive, upgrade", "Upgrade: h2c", "Expect: 100-continue", "Accept: application/json",
            "Range: bytes=0-99999999999", "If-Match: " + "x" * 400, "Cookie: " + "c=" * 2_000, "Origin: http://evil",
            "X:\0", ": none", "A" * 5_000 + ": b", "X-Forwarded-For: ::::", "Accept-Encoding: gzip;q=nan", " folded: x",
        )
        if rng.random() < 0.12
    ]  # fmt: skip


STREAMS: Final[dict[str, Callable[[random.Random], Iterator[Item]]]] = {
    "native": native,
    "curve": curve,
    "inner": inner,
    "grpc": grpc,
    "rest": rest,
}
"""By the name of the port."""
