"""A resource manager that decides nothing: it sends what a trace tells it to, and remembers all that it hears.

The one thing that it does by itself is what the scheduler relies on: it confirms the releases that it is asked for.

Threads: those of its wire write, and the trace's own thread reads, under `lock`.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.conformance.wires import Dial
from yunishard.rmproxy.si import scheduler_pb2 as pb

CONFIRMED: Final = ("PREEMPTED_BY_SCHEDULER", "TIMEOUT", "PLACEHOLDER_REPLACED")
"""Kinds of release with which the scheduler asks for something; the others tell what has happened already."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """An allocation that the scheduler made."""

    application: str
    node: str


class RecordingManager:
    """A registered resource manager, and what it has heard so far."""

    def __init__(self, dial: Dial, rm_id: str, config: str, extra: dict[str, str], now: Callable[[], float]) -> None:
        self.rm_id = rm_id
        self.lock = threading.Lock()
        self._now = now
        self.last_heard_s = now()
        self.running: dict[str, Running] = {}
        self.released: list[tuple[str, str, str]] = []
        """Key, application and kind of each."""
        self.rejected_asks: set[str] = set()
        self.accepted_applications: set[str] = set()
        self.rejected_applications: set[str] = set()
        self.application_states: dict[str, list[str]] = {}
        self.accepted_nodes: set[str] = set()
        self.rejected_nodes: set[str] = set()
        self.confirms = True
        self._withheld: list[pb.AllocationRelease] = []
        """All and only the releases that would have been confirmed, had `confirms` been on."""
        self._wire = dial(rm_id, config, extra, self._hear)

    @property
    def streams_failed(self) -> list[bool]:
        return self._wire.failed

    # What a trace tells it to do ------------------------------------------------------------------------------------

    def send_nodes(self, nodes: Sequence[pb.NodeInfo]) -> None:
        self._wire.send(pb.NodeRequest(rmID=self.rm_id, nodes=nodes))

    def send_applications(
        self, new: Sequence[pb.AddApplicationRequest], gone: Sequence[pb.RemoveApplicationRequest]
    ) -> None:
        self._wire.send(pb.ApplicationRequest(rmID=self.rm_id, new=new, remove=gone))

    def send_asks(self, asks: Sequence[pb.Allocation]) -> None:
        self._wire.send(pb.AllocationRequest(rmID=self.rm_id, allocations=asks))

    def release(self, releases: Sequence[pb.AllocationRelease]) -> None:
        """Release of its own accord: what it names by key runs no longer, whatever the scheduler says."""
        with self.lock:
            for one in releases:
                known = self.running.get(one.allocationKey)
                if known is not None and known.application == one.applicationID:
                    del self.running[one.allocationKey]
        self._send_releases(releases)

    def confirm_withheld(self) -> None:
        with self.lock:
            releases, self._withheld = self._withheld, []
        if releases:
            self._send_releases(releases)

    def keys_of(self, application: str) -> list[str]:
        """Keys of what runs of an application, in order."""
        with self.lock:
            return sorted(key for key, one in self.running.items() if one.application == application)

    def close(self) -> None:
        self._wire.close()

    # What it hears --------------------------------------------------------------------------------------------------

    def _hear(self, reply: Any) -> None:
        match reply:
            case pb.AllocationResponse():
                self._hear_of_allocations(reply)
            case pb.ApplicationResponse():
                self._hear_of_applications(reply)
            case pb.NodeResponse():
                self._hear_of_nodes(reply)

    def _hear_of_allocations(self, reply: pb.AllocationResponse) -> None:
        with self._noting():
            for one in reply.new:
                self.running[one.allocationKey] = Running(application=one.applicationID, node=one.nodeID)
            self.rejected_asks.update(one.allocationKey for one in reply.rejectedAllocations)
            asked = [one for one in reply.released if self._note_release(one)]
            if not self.confirms:
                self._withheld += asked
                return
        if asked:
            self._send_releases(asked)

    def _note_release(self, one: pb.AllocationRelease) -> bool:
        """Whether it is a question that wants a confirmation."""
        kind = pb.TerminationType.Name(one.terminationType)
        self.released.append((one.allocationKey, one.applicationID, kind))
        known = self.running.pop(one.allocationKey, None)
        return known is not None and kind in CONFIRMED

    def _hear_of_applications(self, reply: pb.ApplicationResponse) -> None:
        with self._noting():
            self.accepted_applications.update(one.applicationID for one in reply.accepted)
            self.rejected_applications.update(one.applicationID for one in reply.rejected)
            for one in reply.updated:
                self.application_states.setdefault(one.applicationID, []).append(one.state)

    def _hear_of_nodes(self, reply: pb.NodeResponse) -> None:
        with self._noting():
            self.accepted_nodes.update(one.nodeID for one in reply.accepted)
            self.rejected_nodes.update(one.nodeID for one in reply.rejected)

    # Private --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        with self.lock:
            self.last_heard_s = self._now()
            yield

    def _send_releases(self, releases: Sequence[pb.AllocationRelease]) -> None:
        bare = [
            pb.AllocationRelease(
                partitionName=one.partitionName,
                applicationID=one.applicationID,
                allocationKey=one.allocationKey,
                terminationType=one.terminationType,
            )
            for one in releases
        ]  # without the scheduler's message, which is not the resource manager's to say
        request = pb.AllocationReleasesRequest(allocationsToRelease=bare)
        self._wire.send(pb.AllocationRequest(rmID=self.rm_id, releases=request))
