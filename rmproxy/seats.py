"""Who speaks for an RM, with which partitions, and since when nothing has been heard of it.

Not here: what is said (`front.py`), how much may be said (`credit.py`).
"""

from dataclasses import dataclass, field
from typing import Final

from common.messages import Header
from common.rm_messages import ConfigurationUpdated, Registered
from rmproxy.credit import Credit

GRPC: Final = "grpc:"
"""How peers of the gRPC port are called. They are in this process, and the port itself says when an RM is away."""

LEAVING_MAX: Final = 256
"""Partitions of an RM that it does not have any more and whose last words came by; beyond it the oldest is forgotten,
and ends without its RM's acknowledgement."""


@dataclass(slots=True)
class Seat:
    """The place of one RM's session."""

    peer: str
    session: str
    heard: float
    """When it last said anything, in Unix seconds."""
    lanes: dict[str, Credit]
    """All and only its partitions, by normalised name."""
    leaving: dict[str, Credit] = field(default_factory=dict)
    away: bool = False
    """Whether the broker was told that nothing is heard of it; until the session is resumed."""
    wanted: bool = False
    """Whether it was told to resume since it is away."""
    answered: float = 0.0
    """When its `Heartbeat` was last answered."""

    @property
    def watched(self) -> bool:
        """Whether its silence says anything."""
        return not self.peer.startswith(GRPC)

    def lane(self, partition: str) -> Credit:
        """Of a partition that says something: one that is not the RM's (any more) may have last words for it."""
        lane = self.lanes.get(partition) or self.leaving.get(partition)
        if lane is None:
            lane = self.leaving[partition] = Credit()
            if len(self.leaving) > LEAVING_MAX:
                del self.leaving[next(iter(self.leaving))]
        return lane

    def restarted(self, header: Header) -> None:
        """A partition begins anew, in the life of the header; nothing of what it was told before counts."""
        before = self.lanes.get(header.partition)
        if before is not None and header.life > before.life:
            self.lanes[header.partition] = Credit(life=header.life, born=before.born)

    def rearrange(self, updated: ConfigurationUpdated) -> None:
        """Other partitions: those that stay keep their accounts, those that go are heard to their end."""
        before = self.lanes
        self.lanes = {name: _kept(before.get(name), updated.lives.get(name, 0)) for name in updated.partitions}
        for name, lane in before.items():
            if name not in self.lanes:
                self.leaving[name] = lane
        for name in [*(name for name in self.leaving if name in self.lanes), *list(self.leaving)[:-LEAVING_MAX]]:
            self.leaving.pop(name, None)


def seated(peer: str, session: str, registered: Registered, before: Seat | None, now: float) -> Seat:
    """A session is in, or in again: what was under way comes again."""
    known = before.lanes if before is not None and before.session == session else {}
    lanes = {name: _kept(known.get(name), registered.lives.get(name, 0)) for name in registered.partitions}
    for lane in lanes.values():
        lane.resume()
    return Seat(peer=peer, session=session, heard=now, lanes=lanes)


def _kept(before: Credit | None, life: int) -> Credit:
    if before is None:
        return Credit(life=life, born=life)
    return before if before.life == life else Credit(life=life, born=before.born)
