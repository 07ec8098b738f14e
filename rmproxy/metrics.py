"""Metrics of the proxy: messages of each RM, refusals by code, sessions and flow control windows.

The proxy does not open the bodies of messages that it routes, so it counts messages, not their items. Only registered
RMs have counters , because any client can name any RM; the counters go when the RM goes.

Not here: metrics that every process has (`common/process/process_metrics.py`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from yunishard.common.messages.rm_messages import Refused
from yunishard.common.messages.session import WINDOW_MESSAGES
from yunishard.common.messages.wire import WireError, decode_body
from yunishard.common.process.metrics import Family, counter, gauge
from yunishard.rmproxy.rm_sessions import GRPC, RmSession

CODES: Final = ("flood", "forbidden", "malformed", "no-partition", "unknown-kind", "unknown-session", "window")
"""Codes of the proxy's own refusals, which are reported from the start; other codes are reported once they occur."""


class ProxyMetrics:
    """Counters since the start of the process; `sessions` are the registered RMs by id, `process` is the value of that
    label.
    """

    def __init__(self, sessions: Mapping[str, RmSession], process: str) -> None:
        self._sessions = sessions
        self._process = process
        self._refused: Counter[str] = Counter(dict.fromkeys(CODES, 0))

    def count_refusal(self, body: bytes) -> None:
        """Count a `Refused` message to an RM."""
        with suppress(WireError):  # the body is a worker's, which the proxy passes on unread
            self._refused[decode_body(Refused, body).code] += 1

    def families(self) -> Iterator[Family]:
        """Return all metric families."""
        grpc = sum(session.peer.startswith(GRPC) for session in self._sessions.values())
        what = "Resource managers that are registered, by the port that they connect to."
        own = self._process
        counts = [(("native", own), len(self._sessions) - grpc), (("grpc", own), grpc)]
        yield gauge("yunishard_rmproxy_sessions", what, ("port", "process"), counts)
        sessions = self._sessions.items()
        received = [((rm, "in", own), one.messages_in) for rm, one in sessions]
        sent = [((rm, "out", own), one.messages_out) for rm, one in sessions]
        yield counter(
            "yunishard_rmproxy_messages_total",
            "Messages of resource managers (in) and to them (out), whatever they carry.",
            ("rm", "direction", "process"),
            [*received, *sent],
        )
        yield counter(
            "yunishard_rmproxy_refusals_total",
            "Messages that were refused, by code (docs/protocol.md). Investigate a rate that stays up: a resource "
            "manager does something wrong again and again, or (window, flood) sends more than it may.",
            ("code", "process"),
            [((code, own), count) for code, count in self._refused.items()],
        )
        yield gauge(
            "yunishard_rmproxy_window_messages",
            f"Commands on their way to the partition that it has not acknowledged; at {WINDOW_MESSAGES} more are "
            "refused. Investigate if it stays up: the partition does not process them.",
            ("rm", "partition", "process"),
            [
                ((rm, partition, own), window.in_flight)
                for rm, one in sessions
                for partition, window in one.windows.items()
            ],
        )
