"""Questions that workers have not answered, so that nobody waits for a worker that died with them.

Not here: what is asked (the web service, the proxy), the answers, which go by unopened, and what the broker is asked
itself (`figures.py`).
"""

from collections.abc import Container
from typing import Final

from broker.roster import Roster
from broker.said import answer
from common.machine import Delivery, Send
from common.messages import Header

QUESTIONS_MAX: Final = 1_024
"""Questions to one partition that are remembered. Beyond it the oldest is forgotten: should its worker die, whoever
asked it waits as long as they have the patience to."""


class Questions:
    """By partition: who asked under which reference, the oldest first."""

    def __init__(self) -> None:
        self._open: dict[str, dict[tuple[str, str], None]] = {}

    @property
    def waiting(self) -> int:
        """How many there are."""
        return sum(len(open_) for open_ in self._open.values())

    def put(self, roster: Roster, delivery: Delivery) -> list[Send]:
        """Somebody asks a partition: pass it on to its worker, or say why nobody can answer."""
        header = delivery.header
        partition = _partition_of(roster, header)
        if roster.owner(partition) is None:
            return [answer(delivery.source, header.ref, 404, b"Partition not found")]
        seat = roster.seats[partition]
        if not seat.present:
            return [answer(delivery.source, header.ref, 503, b"the partition is starting")]
        self.asked(partition, delivery.source, header.ref)
        asked = Header(kind=header.kind, partition=partition, ref=f"{delivery.source} {header.ref}")
        return [Send(seat.worker, asked, delivery.body)]

    def asked(self, partition: str, asker: str, ref: str) -> None:
        """A question is on its way."""
        open_ = self._open.setdefault(partition, {})
        open_[asker, ref] = None
        if len(open_) > QUESTIONS_MAX:
            del open_[next(iter(open_))]

    def answered(self, partition: str, asker: str, ref: str) -> None:
        """Its answer goes by."""
        open_ = self._open.get(partition)
        if open_ is not None:
            open_.pop((asker, ref), None)
            if not open_:
                del self._open[partition]

    def lost(self, partition: str) -> list[Send]:
        """The worker has begun anew, or is gone: what those are answered who still wait."""
        text = b"the worker of this partition began anew before it could answer: ask again"
        return [answer(asker, ref, 503, text) for asker, ref in self._open.pop(partition, {})]

    def ended(self, there: Container[str]) -> list[Send]:
        """The same of all partitions that are not there any more."""
        return [one for partition in [name for name in self._open if name not in there] for one in self.lost(partition)]


def _partition_of(roster: Roster, header: Header) -> str:
    """The full name of the partition in question; empty where the RM that asks has none of that name.

    An RM asks about its own partitions, by the names that it knows; a front end names no session, and has full names.
    """
    if not header.session:
        return header.partition
    registration = roster.registration(header.rm, header.session)
    partition = registration.full_name(header.partition) if registration is not None else ""
    return partition if registration is not None and registration.has(partition) else ""
