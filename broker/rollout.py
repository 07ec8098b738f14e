"""One configuration, carried to every partition of an RM or to none.

    voting --every worker yes--> recording --it is durable--> committed    (CommitConfig to all, RetirePartition to
      |                              |                                      those that left the configuration)
      +--any no, or time is up-------+--it cannot be made durable--> aborted    (AbortConfig to all)

A worker that is not there yet is asked when it says hello. Not here: routing, who asked for the configuration and what
it means to the RM (`changes.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.roster import Roster
from common.config.model import PartitionConfig
from common.control_messages import AbortConfig, CommitConfig, PrepareConfig
from common.machine import Send, send
from common.messages import Control, Header

ROLLOUT_MAX_S: Final = 20.0
"""How long the workers may take to start and to vote; then the configuration is refused and nothing has changed. Less
than callers wait, so that they hear why."""


REGISTRATION_MAX_S: Final = 600.0
"""How long a registration may take in all. Each worker that votes gives the others another ROLLOUT_MAX_S, because the
workers of hundreds of partitions take turns to start; a registration without progress for so long is refused."""


@dataclass(slots=True, kw_only=True)
class Rollout:
    """The vote on one configuration."""

    number: int
    rm: str
    session: str
    configs: Mapping[str, PartitionConfig]
    """By normalised partition name."""
    deadline: float
    extensible_until: float = 0.0
    """Up to when votes move the deadline; 0 if they never do."""
    lives: dict[str, int] = field(default_factory=dict)
    """Of the partitions, within the session; those left out are in their first, 0."""
    live: frozenset[str] = frozenset()
    """Partitions that run and shall go on from what they have; the others begin empty. Only asked for membership."""
    endings: dict[str, str] = field(default_factory=dict)
    """Partitions whose worker has ended since, without being able to say why, to how."""
    accepted: set[str] = field(default_factory=set)
    """Partitions whose workers voted yes; only asked for membership and size."""

    def ask(self, roster: Roster, partition: str) -> Send:
        """Ask a worker that is there."""
        config = self.configs[partition]
        message = PrepareConfig(rollout=self.number, config=config, live=partition in self.live)
        return self._tell(roster, partition, message)

    def restarted(self, partition: str) -> None:
        """The worker lost what it had prepared."""
        self.accepted.discard(partition)

    def accept(self, partition: str, now: float) -> None:
        """Note a vote of yes."""
        self.accepted.add(partition)
        self.deadline = max(self.deadline, min(now + ROLLOUT_MAX_S, self.extensible_until))

    @property
    def unanimous(self) -> bool:
        """Whether no vote is missing."""
        return len(self.accepted) == len(self.configs)

    def commit(self, roster: Roster) -> list[Send]:
        return [self._tell(roster, partition, CommitConfig(rollout=self.number)) for partition in self.configs]

    def abort(self, roster: Roster) -> list[Send]:
        return [self._tell(roster, partition, AbortConfig(rollout=self.number)) for partition in self.configs]

    def missing(self) -> list[str]:
        """Partitions that have not voted."""
        return [partition for partition in self.configs if partition not in self.accepted]

    def _tell(self, roster: Roster, partition: str, message: Control) -> Send:
        kind, life = type(message).__name__, self.lives.get(partition, 0)
        header = Header(kind=kind, rm=self.rm, partition=partition, session=self.session, life=life)
        return send(roster.seats[partition].worker, message, header)
