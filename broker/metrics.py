"""Metrics of the broker, and those that the proxy and the supervisor report to it, as no scraper reaches those.

A report counts as long as its process renews it. Not here: counting (`state.Counters`), metrics of workers.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from yunishard.broker.hosts import HOST_STATES
from yunishard.broker.leases import RecoveryState
from yunishard.broker.registry import build_answer
from yunishard.broker.state import MOVE_REASONS, ROLLOUT_OUTCOMES, BrokerState
from yunishard.common.messages.control_messages import Figures, NodesAstray
from yunishard.common.messages.query_messages import Query
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body
from yunishard.common.names import OFF, RMPROXY, SUPERVISOR, WEBSERVICE, instance_of, role_of
from yunishard.common.process.metrics import (
    Family,
    counter,
    decode_families,
    distribution,
    encode_families,
    gauge,
    report_process_up,
)

REPORT_MAX_AGE_S: Final = 15.0
"""A report expires after so long; processes send one every five seconds."""

REPORTERS: Final = (RMPROXY, SUPERVISOR)
"""Roles of the processes that report their metrics."""


class BrokerMetrics:
    """The metrics of all processes but workers. The shell sets `process_families`, the metrics of the broker's
    process.
    """

    def __init__(self, state: BrokerState) -> None:
        self.process_families: Callable[[], list[Family]] = list
        self._state = state
        self._reports: dict[str, tuple[float, list[Family]]] = {}
        """Peer to the time of its report and the report."""

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Store a report or answer a query. A peer that may do neither gets no answer.

        Raises:
            WireError: the message cannot be decoded.
        """
        header, source = incoming.header, incoming.source
        match header.kind:
            case "Figures" if role_of(source) in REPORTERS:
                report, self._reports = decode_body(Figures, incoming.body), self._recent_reports(now)
                try:
                    self._reports[source] = now, decode_families(report.families)
                except ValueError as error:
                    self._state.warnings.append(f"the metrics of {source} cannot be read: {error}")
            case "NodesAstray" if header.rm in self._state.registry.sessions:
                self._state.counters.failed_nodes[header.rm] += decode_body(NodesAstray, incoming.body).count
            case "Query" if role_of(source) == WEBSERVICE and decode_body(Query, incoming.body).what == "metrics":
                return [build_answer(source, header.ref, 200, encode_families(self._collect(now)))]
            case "Query":
                return [build_answer(source, header.ref, 404, b"Partition not found")]
        return []

    def _collect(self, now: float) -> Iterator[Family]:
        yield from self.process_families()
        yield from _rollouts(self._state)
        yield from _managers(self._state)
        yield from _workers(self._state)
        yield from _hosts(self._state)
        reports = self._recent_reports(now)
        for role in REPORTERS:
            if role not in map(role_of, reports):
                yield report_process_up(role, is_up=False)
        for peer, (_, families) in reports.items():
            yield from self._name_host(peer, families)

    def _name_host(self, peer: str, families: list[Family]) -> list[Family]:
        """In a cluster, add the label `host` to the supervisor's families that do not name their process."""
        if role_of(peer) != SUPERVISOR or self._state.settings.cluster_address == OFF:
            return families
        host = instance_of(peer)
        return [
            one
            if "process" in one.labels
            else replace(
                one,
                labels=(*one.labels, "host"),
                samples=[((*values, host), value) for values, value in one.samples],
            )
            for one in families
        ]

    def _recent_reports(self, now: float) -> dict[str, tuple[float, list[Family]]]:
        return {peer: report for peer, report in self._reports.items() if now - report[0] < REPORT_MAX_AGE_S}


def _rollouts(state: BrokerState) -> Iterator[Family]:
    counters = state.counters
    yield counter(
        "yunishard_broker_rollouts_total",
        "Configuration roll-outs by outcome: in force in all partitions of a resource manager (committed), or in none: "
        "a worker voted no (objected), a vote was missing (expired), a worker cannot start (unstartable), the record "
        "could not be written (unrecorded), the resource manager was gone (ended). Investigate expired, unstartable "
        "and unrecorded ones.",
        ("outcome",),
        [((outcome,), counters.rollouts[outcome]) for outcome in ROLLOUT_OUTCOMES],
    )
    what = "Seconds from a configuration's arrival until it was in force everywhere. The timeout is 20."
    yield distribution("yunishard_broker_rollout_seconds", what, (), [((), counters.rollout_s)])
    yield counter(
        "yunishard_broker_record_writes_total",
        "Writes of the broker's record that became durable (durable) or failed (refused), including probes after a "
        "failure. Investigate any that is refused: the disk is full or broken, and changes wait.",
        ("outcome",),
        [((outcome,), counters.record_writes[outcome]) for outcome in ("durable", "refused")],
    )


def _managers(state: BrokerState) -> Iterator[Family]:
    registry, counters = state.registry, state.counters
    away = sum(rm in registry.away for rm in registry.sessions)
    yield gauge(
        "yunishard_broker_managers",
        "Registered resource managers: connected ones (there), and silent ones (away), which get no new allocations. "
        "Investigate one that is away for minutes: its session ends after the setting pause-timeout.",
        ("state",),
        [(("there",), len(registry.sessions) - away), (("away",), away)],
    )
    yield counter(
        "yunishard_rm_failed_nodes_total",
        "Nodes that the resource manager registered for a partition that it does not have; they get no allocations. "
        "Investigate any: the node's partition attribute or the configuration is wrong.",
        ("rm",),
        [((rm,), counters.failed_nodes[rm]) for rm in registry.sessions],
    )


def _workers(state: BrokerState) -> Iterator[Family]:
    registry, counters = state.registry, state.counters
    slots = [(name, slot) for name, slot in registry.slots.items() if name not in registry.leaving]
    running = sum(slot.is_present for _, slot in slots)
    states = {"running": running, "starting": len(slots) - running, "leaving": len(registry.leaving)}
    yield gauge(
        "yunishard_broker_partitions",
        "Partitions with a worker (running), without one yet (starting), and removed from the configuration (leaving). "
        "Investigate one that is starting for a minute.",
        ("state",),
        [((name,), count) for name, count in states.items()],
    )
    what = (
        "Leases granted to another worker because the worker was silent for too long. Investigate any: it hung, or the "
        "machine is overloaded."
    )
    yield counter("yunishard_broker_leases_renewed_total", what, (), [((), counters.leases_renewed)])
    yield counter(
        "yunishard_broker_recoveries_total",
        "Workers that rejoined, by what their journal had: everything (goes_on), all but the latest configuration "
        "(behind), nothing, as the partition had sent nothing (unbegun), or less than the resource "
        "manager has seen (lost); then it reports everything again. Investigate any that is lost.",
        ("found",),
        [((one.value,), counters.recoveries[one.value]) for one in RecoveryState],
    )


def _hosts(state: BrokerState) -> Iterator[Family]:
    hosts, slots = state.hosts.all(), state.registry.slots.values()
    found = Counter(one.state for one in hosts)
    what = (
        "Hosts that can get partitions (ready), that get none (draining), and that have been silent for too long or "
        "have stopped (lost). Investigate any that is lost; `yunishard hosts remove` discards one that does not return."
    )
    yield gauge("yunishard_hosts", what, ("state",), [((name,), found[name]) for name in HOST_STATES])
    what = (
        "Partitions that each host has or is to have. Investigate a host that has far more than others of its size: "
        "`yunishard hosts rebalance` spreads them."
    )
    placed = Counter(one.host for one in slots)
    yield gauge("yunishard_host_partitions", what, ("host",), [((one.name,), placed[one.name]) for one in hosts])
    what = (
        "Partitions that were placed on another host: theirs was silent for too long or stopped (lost), is draining "
        "(drain), an operator requested a rebalancing (rebalance), or no worker of it was ready in time (unserved). "
        "Investigate any of a lost host, and any unserved one."
    )
    samples = [((reason,), state.counters.moves[reason]) for reason in MOVE_REASONS]
    yield counter("yunishard_partition_moves_total", what, ("reason",), samples)
    what = (
        "Number of the start of the broker that leads; each later one has a higher number. Investigate several changes "
        "an hour: brokers end, or cannot renew their lease in the store."
    )
    yield gauge("yunishard_broker_incarnation", what, (), [((), state.incarnation)])
