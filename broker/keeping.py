"""What of each RM is durable, and what waits for the record.

    as recorded --something changed--> handed over --Recorded--> as recorded, and what waited is said
                                          | the disk is full
                                          +--> tried again after RETRY_S: all about that RM waits, no other RM does

A decision about a configuration (`changes.py`) is recorded before it takes effect, so one that cannot be is refused;
everything else has happened already when it is handed over. Not here: the file (`record.py`).
"""

from dataclasses import dataclass
from typing import Final

from broker.books import Books
from broker.facts import Facts, encoded, facts_of
from broker.gate import Gate
from broker.roster import Registration
from common.control_messages import ConfigVersion, ManagerRecord, ProbeRecord, Recorded
from common.machine import NEVER, Send, send
from common.messages import Header
from common.names import RECORD
from common.rm_messages import Refused

RETRY_S: Final = 1.0
"""Between two attempts to have something recorded."""

PROBE_S: Final = 2.0
"""Seconds after a failed write until the record is asked whether it can be written again, if nothing else is written
meanwhile."""


@dataclass(frozen=True, slots=True)
class _Handed:
    number: int
    facts: Facts | None


class Keeping:
    """The durable facts, by RM id, those on their way to the disk, and what is to be said then."""

    def __init__(self, books: Books, durable: dict[str, Facts], *, problem: str, now: float) -> None:
        """`problem` says why the record could not be written when the broker began, if it could not."""
        self.problem = ""
        """Why the latest write of the record failed; empty if it did not."""
        self._probe_at = NEVER
        self._books = books
        self._durable = durable
        self._handed: dict[str, _Handed] = {}
        """What the record has not answered."""
        self._again: dict[str, float] = {}
        """RM id to when the next attempt is due."""
        self._gate = Gate(_about)
        self._numbers = 0
        if problem:
            self._count(problem, now)

    @property
    def deadline(self) -> float:
        return min((self._probe_at, *self._again.values()))

    def decided(self, outcome: Registration, version: ConfigVersion | None) -> tuple[int, Send]:
        """Have recorded what an RM is to have, before it takes effect: under which number, and the message that does
        so.
        """
        return self._hand_over(outcome.rm, facts_of(outcome, self._books.roster), version)

    def settled(self, rm: str) -> list[Send]:
        """Something has changed about an RM: have that recorded; or if it is, what waited for it."""
        registration = self._books.roster.registrations.get(rm)
        facts = facts_of(registration, self._books.roster) if registration is not None else None
        if rm in self._handed or rm in self._again:
            self._gate.shut(rm)
            return []
        if facts == self._durable.get(rm):
            self._books.roster.rearranged |= self._gate.is_shut(rm)
            return self._gate.opened(rm)
        self._gate.shut(rm)
        return [self._hand_over(rm, facts)[1]]

    def passed(self, sends: list[Send]) -> list[Send]:
        """What of these may be said now."""
        return self._gate.passed(sends)

    def heard(self, rm: str, recorded: Recorded, now: float) -> bool:
        """The record has answered; whether that was what it was given last. Somebody has to see what follows
        (`settled`).
        """
        if not recorded.number:
            self._count(recorded.problem, now)
            return False
        handed = self._handed.get(rm)
        if handed is None or handed.number != recorded.number:
            return False
        del self._handed[rm]
        self._books.roster.changed[rm] = None
        self._count(recorded.problem, now)
        if recorded.problem:
            return True
        if handed.facts is None:
            self._durable.pop(rm, None)
        else:
            self._durable[rm] = handed.facts
        return True

    def failed(self, rm: str, problem: str, now: float) -> None:
        """What has happened already could not be recorded: that is tried again."""
        self._books.warnings.append(f"changes of RM {rm} cannot be recorded now, and are tried again: {problem}")
        self._again[rm] = now + RETRY_S

    def _count(self, problem: str, now: float) -> None:
        """The record has been written, or could not be."""
        self.problem, self._probe_at = problem, now + PROBE_S if problem else NEVER
        if problem:
            self._books.tally.unwritten += 1
        else:
            self._books.tally.written += 1

    def try_again(self, now: float) -> list[Send]:
        """Do so where it is time, and ask the record whether it can be written again."""
        for rm in [rm for rm, at in self._again.items() if at <= now]:
            del self._again[rm]
            self._books.roster.changed[rm] = None
        if self._probe_at > now:
            return []
        self._probe_at = NEVER  # until it has answered
        return [send(RECORD, ProbeRecord(), Header(kind="ProbeRecord"))]

    def leases(self) -> dict[str, int]:
        """The workers that are wanted: a lease that is not durable yet is still the one before."""
        leases: dict[str, int] = {}
        for partition, seat in self._books.roster.seats.items():
            durable = self._durable.get(seat.rm) if self._gate.is_shut(seat.rm) else None
            leases[partition] = durable.leases.get(partition, seat.epoch) if durable else seat.epoch
        return leases

    def _hand_over(self, rm: str, facts: Facts | None, version: ConfigVersion | None = None) -> tuple[int, Send]:
        self._numbers += 1
        self._handed[rm] = _Handed(self._numbers, facts)
        self._again.pop(rm, None)
        message = ManagerRecord(number=self._numbers, facts=encoded(facts), version=version)
        return self._numbers, send(RECORD, message, Header(kind="ManagerRecord", rm=rm))


def _about(message: Send) -> str:
    """The RM of which something has to be durable before this is said; none if it may be said anyway."""
    return "" if message.to == RECORD or message.header.kind == Refused.__name__ else message.header.rm
