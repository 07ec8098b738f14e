"""Metrics of the proxy: messages and bytes of each RM, refusals by code, sessions and flow control windows.

The proxy does not open the bodies of messages that it routes, so it counts messages, not their items. Only registered
RMs have counters, because any client can name any RM; the counters go when the RM goes.

Not here: metrics that every process has (`common/process_metrics.py`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from common.metrics import Family, counter, gauge
from common.names import BROKER
from common.rm_messages import Refused
from common.session import WINDOW_MESSAGES
from common.wire import Outgoing, WireError, decode_body
from rmproxy.rm_sessions import GRPC, RmSession

CODES: Final = ("flood", "forbidden", "malformed", "no-partition", "unknown-kind", "unknown-session", "window")
"""Codes of the proxy's own refusals, which are reported from the start; other codes are reported once they occur."""


class ProxyMetrics:
    """Counters since the start of the process; `sessions` are the registered RMs by id."""

    def __init__(self, sessions: Mapping[str, RmSession]) -> None:
        self._sessions = sessions
        self._messages: Counter[tuple[str, str]] = Counter()
        """By RM and direction."""
        self._bytes: Counter[tuple[str, str]] = Counter()
        """Of bodies, likewise."""
        self._refused: Counter[str] = Counter(dict.fromkeys(CODES, 0))

    def count_incoming(self, rm: str, body: bytes) -> None:
        """Count a message of an RM."""
        self._count(rm, "in", body)

    def count_outgoing(self, sends: list[Outgoing]) -> list[Outgoing]:
        """Count those messages that go to RMs; return all of them."""
        for one in sends:
            if one.to != BROKER:
                self._count(one.header.rm, "out", one.body)
                if one.header.kind == Refused.__name__:
                    with suppress(WireError):  # the body is a worker's, which the proxy passes on unread
                        self._refused[decode_body(Refused, one.body).code] += 1
        return sends

    def families(self) -> Iterator[Family]:
        """Return all metric families."""
        for counted in (self._messages, self._bytes):
            for key in [key for key in counted if key[0] not in self._sessions]:
                del counted[key]
        yield self._session_counts()
        labels = ("rm", "direction")
        what = "Messages of resource managers (in) and to them (out), whatever they carry."
        yield counter("yunishard_rmproxy_messages_total", what, labels, self._messages.items())
        what = "Bytes of the bodies of these messages."
        yield counter("yunishard_rmproxy_bytes_total", what, labels, self._bytes.items())
        yield counter(
            "yunishard_rmproxy_refusals_total",
            "Messages that were refused, by code (docs/protocol.md). Investigate a rate that stays up: a resource "
            "manager does something wrong again and again, or (window, flood) sends more than it may.",
            ("code",),
            [((code,), count) for code, count in self._refused.items()],
        )
        yield from self._windows()

    def _session_counts(self) -> Family:
        grpc = sum(session.peer.startswith(GRPC) for session in self._sessions.values())
        what = "Resource managers that are registered, by the port that they connect to."
        counts = [(("native",), len(self._sessions) - grpc), (("grpc",), grpc)]
        return gauge("yunishard_rmproxy_sessions", what, ("port",), counts)

    def _windows(self) -> Iterator[Family]:
        in_flight = [
            ((rm, partition), window.in_flight)
            for rm, session in self._sessions.items()
            for partition, window in session.windows.items()
        ]
        yield gauge(
            "yunishard_rmproxy_window_messages",
            f"Commands on their way to the partition that it has not acknowledged; at {WINDOW_MESSAGES} more are "
            "refused. Investigate if it stays up: the partition does not process them.",
            ("rm", "partition"),
            [(labels, messages) for labels, (messages, _) in in_flight],
        )
        what = "The same in bytes of their bodies, with updates that have no number; at 16 MiB more are refused."
        samples = [(labels, float(size)) for labels, (_, size) in in_flight]
        yield gauge("yunishard_rmproxy_window_bytes", what, ("rm", "partition"), samples)

    def _count(self, rm: str, direction: str, body: bytes) -> None:
        if rm in self._sessions:
            self._messages[rm, direction] += 1
            self._bytes[rm, direction] += len(body)
