"""Changes of configurations that are under way: at most one for each RM, from the call to the last answer.

A *change* is a registration or an update. It asks the workers (`rollout.py`), has the new version recorded, and only
then takes effect: a broker that dies before has changed nothing, one that dies after finds the decision in its record.

Not here: what a registration or an update means (`registration.py`, `update.py`), and routing (`switch.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from broker.books import CONFLICT, OUT_OF_ORDER, Books, Refused
from broker.revival import recommit
from broker.rollout import ROLLOUT_MAX_S, Rollout
from broker.roster import Registration
from broker.said import retirement
from common.machine import NEVER, Send, send
from common.messages import ConfigVersion, ConfigVote, Header, Recorded
from common.names import RECORD


class Change(ABC):
    """One configuration on its way into force."""

    what: ClassVar[str]
    """In a sentence that ends with `of RM x`."""

    def __init__(self, rollout: Rollout, version: ConfigVersion | None) -> None:
        self.rollout = rollout
        self.version = version
        """What to record before anybody hears of it; None when the text in force stays the same."""
        self.recording = False
        """Whether the decision has been taken, and waits to be durable."""

    @abstractmethod
    def claim(self) -> Registration:
        """What the RM will have: its names are as good as taken."""

    @abstractmethod
    def carried_out(self, books: Books, now: float) -> list[Send]:
        """Everybody agrees and it is durable: what follows."""

    @abstractmethod
    def refused(self, books: Books, refusal: Refused) -> list[Send]:
        """It will not be: tell whoever asked, and put back what was prepared."""


class Changes:
    """The changes under way, by RM id."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._under_way: dict[str, Change] = {}

    @property
    def deadline(self) -> float:
        """When the first roll-out has taken too long."""
        return min((one.rollout.deadline for one in self._under_way.values()), default=NEVER)

    def of(self, rm: str) -> Change | None:
        """What is under way for an RM."""
        return self._under_way.get(rm)

    def claims(self) -> Iterator[Registration]:
        """What RMs will have when these are carried out."""
        return (one.claim() for one in self._under_way.values())

    def concerning(self, partition: str) -> Change | None:
        """The change in which a partition takes part."""
        return next((one for one in self._under_way.values() if partition in one.rollout.configs), None)

    def begin(self, change: Change, now: float) -> list[Send]:
        """Ask every worker that is there; the others are asked when they come."""
        rollout = change.rollout
        self._under_way[rollout.rm] = change
        sends: list[Send] = []
        for partition in rollout.configs:
            if self._books.roster.seat(partition).present:
                sends += rollout.ask(partition)
        return sends or self._decide(change, now)

    def vote(self, partition: str, rm: str, vote: ConfigVote, now: float) -> list[Send]:
        """A worker has made up its mind."""
        change = self._under_way.get(rm)
        if change is None or change.rollout.number != vote.rollout or partition not in change.rollout.configs:
            return []
        if change.recording:
            return []  # a worker that was started again, after the decision
        if vote.reason:
            return self.abort(change, Refused(CONFLICT, f"partition {partition}: {vote.reason}"))
        change.rollout.accept(partition)
        return self._decide(change, now)

    def recorded(self, rm: str, recorded: Recorded, now: float) -> list[Send]:
        """The record has the version that was to be, or cannot take it."""
        change = self._under_way.get(rm)
        if change is None or change.version is None or change.version.number != recorded.number:
            return []
        if recorded.problem:
            reason = f"the configuration cannot be recorded: {recorded.problem}"
            return self.abort(change, Refused(OUT_OF_ORDER, reason))
        self._books.versions.add(rm, change.version)
        return self._carry_out(change, now)

    def expire(self, now: float) -> list[Send]:
        """Give up on roll-outs whose time is up."""
        sends: list[Send] = []
        for change in [one for one in self._under_way.values() if one.rollout.deadline <= now]:
            missing = ", ".join(change.rollout.missing())
            reason = f"no answer from the workers of {missing} within {ROLLOUT_MAX_S:.0f} s"
            sends += self.abort(change, Refused(OUT_OF_ORDER, reason))
        return sends

    def abort(self, change: Change, refusal: Refused) -> list[Send]:
        """Refuse; workers that were only wanted for this end, those that were restarted meanwhile run the old again."""
        rollout, roster = change.rollout, self._books.roster
        del self._under_way[rollout.rm]
        sends = rollout.abort()
        for partition in rollout.configs:
            leaving = roster.leaving.get(partition)
            if leaving is not None:  # as before, and asked again whether all is acknowledged
                sends.append(retirement(leaving.rm, leaving.session, partition))
            elif roster.owner(partition) is None:
                roster.vacate(partition)
            elif roster.seat(partition).present and not roster.seat(partition).committed:
                sends += recommit(self._books, partition)
        return [*sends, *change.refused(self._books, refusal)]

    def _decide(self, change: Change, now: float) -> list[Send]:
        if not change.rollout.unanimous:
            return []
        if change.version is None:
            return self._carry_out(change, now)
        change.recording, change.rollout.deadline = True, NEVER
        return [send(RECORD, change.version, Header(kind="ConfigVersion", rm=change.rollout.rm))]

    def _carry_out(self, change: Change, now: float) -> list[Send]:
        del self._under_way[change.rollout.rm]
        return change.carried_out(self._books, now)
