"""Metrics of the proxy: messages of each RM, refusals by code, sessions and flow control windows.

The proxy does not open the bodies of messages that it routes, so it counts messages, not their items. Only registered
RMs have counters, because any client can name any RM; the counters go when the RM goes.

Not here: counting (`proxy.py`), metrics that every process has (`common/process/process_metrics.py`).
"""

from collections.abc import Iterator

from yunishard.common.messages.session import WINDOW_MESSAGES
from yunishard.common.process.metrics import Family, counter, gauge
from yunishard.rmproxy.proxy import GRPC, Proxy


def collect_proxy_metrics(proxy: Proxy, process: str) -> Iterator[Family]:
    """Yield all metric families; `process` is the value of that label."""
    own, sessions = process, proxy.sessions.items()
    grpc = sum(session.peer.startswith(GRPC) for _, session in sessions)
    what = "Resource managers that are registered, by the port that they connect to."
    counts = [(("native", own), len(sessions) - grpc), (("grpc", own), grpc)]
    yield gauge("yunishard_rmproxy_sessions", what, ("port", "process"), counts)
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
        [((code, own), count) for code, count in proxy.refused.items()],
    )
    yield gauge(
        "yunishard_rmproxy_window_messages",
        f"Commands on their way to the partition that it has not acknowledged; at {WINDOW_MESSAGES} more are "
        "refused. Investigate if it stays up: the partition does not process them.",
        ("rm", "partition", "process"),
        [((rm, partition, own), window.in_flight) for rm, one in sessions for partition, window in one.windows.items()],
    )
