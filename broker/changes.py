"""Changes of configurations that are under way: at most one for each RM, from the call to the last answer.

A *change* is a registration or an update. It asks the workers (`rollout.py`), has its outcome recorded, and only then
takes effect: a broker that dies before has changed nothing, one that dies after finds the decision in its record.

Not here: what a registration or an update means (`registration.py`, `update.py`), and routing (`switch.py`).
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from broker.books import CONFLICT, OUT_OF_ORDER, Books, Refused
from broker.keeping import Keeping
from broker.rollout import ROLLOUT_MAX_S, Rollout
from broker.roster import Registration
from broker.said import retirement
from broker.tally import Outcome
from common.control_messages import ConfigVersion, ConfigVote, Recorded, WorkerEnded
from common.machine import NEVER, Send
from common.names import usual_name

NAMES_MAX: Final = 10
"""Partitions that a refusal names; of more it tells the number."""


class Change(ABC):
    """One configuration on its way into force."""

    what: ClassVar[str]
    """In a sentence that ends with `of RM x`."""

    def __init__(self, rollout: Rollout, version: ConfigVersion | None) -> None:
        self.rollout = rollout
        self.version = version
        """What comes with it into the history; None when the text in force stays the same."""
        self.recording = 0
        """The number under which the decision waits to be durable, once it has been taken."""
        self.order = 0
        """Place in the order of registration of what this adds, once the decision has been taken."""
        self.begun = rollout.deadline - ROLLOUT_MAX_S
        """When, in Unix seconds."""

    @abstractmethod
    def outcome(self, books: Books) -> Registration:
        """What the RM has once this is in force."""

    @abstractmethod
    def carried_out(self, books: Books, now: float) -> list[Send]:
        """Everybody agrees and it is durable: what follows."""

    @abstractmethod
    def refused(self, books: Books, refusal: Refused) -> list[Send]:
        """It will not be: tell whoever asked, and put back what was prepared."""


class Changes:
    """The changes under way, by RM id."""

    def __init__(self, books: Books, keeping: Keeping) -> None:
        self._books = books
        self._keeping = keeping
        self._under_way: dict[str, Change] = {}

    @property
    def deadline(self) -> float:
        """When the first roll-out has taken too long."""
        return min((one.rollout.deadline for one in self._under_way.values()), default=NEVER)

    def of(self, rm: str) -> Change | None:
        """What is under way for an RM."""
        return self._under_way.get(rm)

    def concerning(self, partition: str) -> Change | None:
        """The change in which a partition takes part."""
        seat = self._books.roster.seats.get(partition)
        change = self._under_way.get(seat.rm) if seat else None
        return change if change is not None and partition in change.rollout.configs else None

    def extend(self, seconds: float) -> None:
        """For so long nobody could be heard: that counts for nothing."""
        for change in self._under_way.values():
            change.rollout.deadline += seconds
            change.rollout.extensible_until += seconds if change.rollout.extensible_until else 0.0

    def begin(self, change: Change) -> list[Send]:
        """Ask every worker that is there; the others are asked when they come."""
        rollout, roster = change.rollout, self._books.roster
        self._under_way[rollout.rm] = change
        there = [partition for partition in rollout.configs if roster.seat(rollout.rm, partition).present]
        return [rollout.ask(roster, partition) for partition in there] or self._decide(change)

    def vote(self, partition: str, vote: ConfigVote, now: float) -> list[Send]:
        """A worker has made up its mind."""
        change = self.concerning(partition)
        if change is None or change.rollout.number != vote.rollout:
            self._note_objection(partition, vote)
            return []
        if change.recording:
            return []  # a worker that was started again, after the decision
        if vote.reason:
            refusal = Refused(CONFLICT, f"partition {usual_name(partition)}: {vote.reason}")
            return self.abort(change, refusal, "objected")
        change.rollout.accept(partition, now)
        return self._decide(change)

    def _note_objection(self, partition: str, vote: ConfigVote) -> None:
        """A worker that came back may object to the configuration in force: then its partition cannot begin."""
        owner = self._books.roster.owner(partition)
        if owner is None or not vote.reason or vote.rollout != owner.rollout:
            return
        problem = f"its worker cannot run the configuration in force: {vote.reason}"
        self._books.roster.seats[partition].problem = problem
        self._books.warnings.append(f"partition {partition}: {problem}")

    def worker_ended(self, partition: str, ended: WorkerEnded) -> list[Send]:
        """A worker ended before it was ready. The first reason why one cannot start ends the change: callers hear it at
        once, and nothing is gained by further attempts within seconds. One that crashed may still come in time.
        """
        change = self.concerning(partition)
        if change is None or change.recording or partition in change.rollout.accepted:
            return []
        if not ended.cannot_start:
            change.rollout.endings[partition] = ended.reason
            return []
        name = usual_name(partition)
        reason = f"the worker of partition {name} cannot start: {ended.reason}; correct that, then try again"
        return self.abort(change, Refused(OUT_OF_ORDER, reason), "unstartable")

    def recorded(self, change: Change, recorded: Recorded, now: float) -> list[Send]:
        """The record has the decision, or cannot take it."""
        if recorded.problem:
            reason = f"the configuration cannot be recorded: {recorded.problem}"
            return self.abort(change, Refused(OUT_OF_ORDER, reason), "unrecorded")
        tally = self._books.tally
        tally.rollouts["committed"] += 1
        tally.rollout_s.observe(max(0.0, now - change.begun))
        rm = change.rollout.rm
        if change.version is not None:
            self._books.versions.add(rm, change.version)
        del self._under_way[rm]
        return change.carried_out(self._books, now)

    def expire(self, now: float) -> list[Send]:
        """Give up on roll-outs whose time is up."""
        sends: list[Send] = []
        for change in [one for one in self._under_way.values() if one.rollout.deadline <= now]:
            waited_s = change.rollout.deadline - change.begun
            sends += self.abort(change, Refused(OUT_OF_ORDER, self._why_expired(change.rollout, waited_s)), "expired")
        return sends

    def _why_expired(self, rollout: Rollout, waited_s: float) -> str:
        """Which workers did not answer and, if one of them is known to have ended, why."""
        missing, seats = rollout.missing(), self._books.roster.seats
        names = ", ".join(map(usual_name, missing[:NAMES_MAX]))
        if len(missing) > NAMES_MAX:
            names += f" and {len(missing) - NAMES_MAX} more (of {len(rollout.configs)} partitions)"
        reason = f"no answer from the workers of {names} within {waited_s:.0f} s"
        for partition in missing:
            if ending := rollout.endings.get(partition) or seats[partition].problem:
                return f"{reason}; that of {usual_name(partition)} ended before it was ready: {ending}"
        return reason

    def abort(self, change: Change, refusal: Refused, outcome: Outcome) -> list[Send]:
        """Refuse; workers that were only wanted for this end."""
        self._books.tally.rollouts[outcome] += 1
        rollout, roster = change.rollout, self._books.roster
        del self._under_way[rollout.rm]
        roster.changed[rollout.rm] = None  # for those who waited for the end of it
        registration = roster.registrations.get(rollout.rm)
        sends = rollout.abort(roster)
        for partition in rollout.configs:
            if registration is None or not registration.has(partition):
                roster.vacate(partition)
            elif partition in registration.leaving:  # as before, and asked again whether all is acknowledged
                sends.append(retirement(self._books, registration, partition))
        return [*sends, *change.refused(self._books, refusal)]

    def _decide(self, change: Change) -> list[Send]:
        if not change.rollout.unanimous:
            return []
        change.rollout.deadline = NEVER
        change.order = self._books.roster.next_order()
        change.recording, handed = self._keeping.decided(change.outcome(self._books), change.version)
        return [handed]
