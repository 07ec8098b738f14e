"""Queries of front ends and RMs: forwarding to workers, and answers about RMs and configurations.

The broker records which forwarded queries are pending, so that their callers receive an error when the worker ends.
Answers pass through undecoded. Not here: texts of earlier versions (`store.py`), metrics (`metrics.py`).
"""

from collections.abc import Container
from http import HTTPStatus
from typing import Final

import msgspec

from yunishard.broker.registry import Registry, build_answer
from yunishard.broker.state import BrokerState
from yunishard.common.messages.control_messages import ConfigVersion
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import (
    Answer,
    ConfigText,
    ManagerEntry,
    PartitionList,
    ProcessHealth,
    ReadConfig,
)
from yunishard.common.messages.wire import Incoming, Outgoing, make_outgoing
from yunishard.common.names import RECORD
from yunishard.common.rest.records import VersionView

PENDING_MAX: Final = 1_024
"""Pending queries recorded for one partition. Beyond it the oldest is dropped: if its worker ends, its caller waits
for its own timeout."""


# Forwarding ---------------------------------------------------------------------------------------------------------


class PendingQueries:
    """The queries that workers have not answered: partition to (caller, reference), oldest first."""

    def __init__(self) -> None:
        self._pending: dict[str, dict[tuple[str, str], None]] = {}

    def forward(self, registry: Registry, incoming: Incoming) -> list[Outgoing]:
        """Forward a query to the worker of its partition, or answer why that is not possible."""
        header = incoming.header
        partition = _partition_of(registry, header)
        if registry.owner(partition) is None:
            return [build_answer(incoming.source, header.ref, 404, b"Partition not found")]
        slot = registry.slots[partition]
        if not slot.is_present:
            return [build_answer(incoming.source, header.ref, 503, b"the partition is starting")]
        pending = self._pending.setdefault(partition, {})
        pending[incoming.source, header.ref] = None
        if len(pending) > PENDING_MAX:
            del pending[next(iter(pending))]
        forwarded = Header(kind=header.kind, partition=partition, ref=f"{incoming.source} {header.ref}")
        return [Outgoing(slot.worker, forwarded, incoming.body)]

    def remove_query(self, partition: str, caller: str, ref: str) -> None:
        """Remove a query that has been answered."""
        pending = self._pending.get(partition, {})
        pending.pop((caller, ref), None)
        if not pending:
            self._pending.pop(partition, None)

    def fail_partition(self, partition: str) -> list[Outgoing]:
        """Answer the pending queries of a worker that restarted or ended."""
        text = b"the worker of this partition restarted before it could answer: ask again"
        return [build_answer(caller, ref, 503, text) for caller, ref in self._pending.pop(partition, {})]

    def fail_others(self, present: Container[str]) -> list[Outgoing]:
        """Answer the pending queries of all partitions that are not `present`."""
        gone = [name for name in self._pending if name not in present]
        return [one for partition in gone for one in self.fail_partition(partition)]


def _partition_of(registry: Registry, header: Header) -> str:
    """The full name of the queried partition; empty if the RM that asks has none of that name.

    An RM uses the names of its own partitions; a front end names no session and uses full names.
    """
    if not header.session:
        return header.partition
    session = registry.find_session(header.rm, header.session)
    partition = session.full_name(header.partition) if session is not None else ""
    return partition if session is not None and session.has(partition) else ""


# RMs and partitions -------------------------------------------------------------------------------------------------


def list_partitions(state: BrokerState, started_ns: int, record_problem: str, process: ProcessHealth) -> PartitionList:
    """All partitions and RMs in the order of registration."""
    registry, away, failed = state.registry, state.registry.away, state.counters.failed_nodes
    sessions = sorted(registry.sessions.values(), key=lambda one: one.order)
    managers = [
        ManagerEntry(rm_id=one.rm, away_since_ns=int(away.get(one.rm, 0) * 1e9), nodes_astray=failed[one.rm])
        for one in sessions
    ]
    return PartitionList(
        partitions=list(registry.partition_entries()),
        build_information={one.rm: one.build_info for one in sessions},
        started_ns=started_ns,
        managers=managers,
        record_problem=record_problem,
        process=process,
        refusals=state.refused.list_all(registry.sessions),
        refused={one.name: one.refused for one in state.hosts.all() if one.refused},
    )


# Configurations -----------------------------------------------------------------------------------------------------


def build_version_answer(rm: str, query: ReadConfig, version: ConfigVersion | None) -> Answer:
    """The answer to a query for a version."""
    if version is None:
        text = f"RM {rm} has no version {query.version} of its configuration, or no longer"
        return Answer(status=404, body=text.encode())
    found = ConfigText(checksum=version.checksum, config=version.config, extra=query.extra)
    return Answer(status=200, body=msgspec.json.encode(found))


def read_config(state: BrokerState, incoming: Incoming, query: ReadConfig) -> Outgoing:
    """Answer a query about configurations, or forward it to the record."""
    source, rm, ref = incoming.source, incoming.header.rm, incoming.header.ref
    session, history = state.registry.sessions.get(rm), state.versions.history(rm)
    view: ConfigText | list[VersionView]
    match query.what:
        case "current" if session is not None and history.latest is not None:
            asked = ReadConfig(what="version", version=history.latest.number, extra=session.extra)
            return make_outgoing(RECORD, asked, Header(kind="ReadConfig", rm=rm, ref=f"{source} {ref}"))
        case "history" if history.entries:  # also of an RM that is not registered now
            current = history.entries[-1].number if session is not None else 0
            view = [
                VersionView(
                    version=one.number,
                    checksum=one.checksum,
                    at=one.at_ns,
                    author=one.author,
                    origin=one.origin,
                    current=one.number == current,
                )
                for one in reversed(history.entries)
            ]
        case "current" | "history":
            return build_answer(source, ref, HTTPStatus.NOT_FOUND, f"RM {rm} is not registered".encode())
        case "default":
            view = ConfigText(checksum=state.analyses.compute_checksum(state.default_text), config=state.default_text)
        case "version":
            return Outgoing(RECORD, Header(kind="ReadConfig", rm=rm, ref=f"{source} {ref}"), incoming.body)
        case unknown:
            text = f"unknown question {unknown!r}, expected current, default, history or version"
            return build_answer(source, ref, 400, text.encode())
    return build_answer(source, ref, 200, msgspec.json.encode(view))
