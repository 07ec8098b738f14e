"""What the broker knows: who is registered, which versions there were, and which queues the core itself offers.

Shared by everything that decides about registrations and configurations. Not here: those decisions (`registration.py`,
`update.py`), and what is on its way (`changes.py`).
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from broker.announcements import Announcements
from broker.judgement import Judgement, understood
from broker.roster import NUMBERS_PER_INCARNATION, Roster
from broker.tally import Tally
from broker.versions import Versions
from common.config.check import DEFAULT_TEXT
from common.config.checksum import checksum_of
from common.config.model import Configuration
from common.config.problems import Problem
from common.rm_ids import matching

SameHierarchy = Literal["off", "warn", "enforce"]

DOUBTS_LOGGED_MAX: Final = 20
"""Lines about what is doubtful in one configuration; of more, only how many there are is told."""

WARNINGS_MAX: Final = 100
"""Warnings in the answer to a change; further ones are counted in one more."""

PARTITIONS_MAX: Final = 500
"""Partitions of all RMs together, if nothing else is said: the processes of their workers take about 12 GiB."""

BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
CHANGED: Final = 412
OUT_OF_ORDER: Final = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What whoever runs the core has decided."""

    allowed_rms: tuple[str, ...] = ("*",)
    """Ids of RMs that may register; `*` in one stands for any characters."""
    same_hierarchy: SameHierarchy = "warn"
    """What to do about a queue that has another parent in another partition."""
    partitions_max: int = PARTITIONS_MAX
    """Of all RMs together, those that leave included: each has a worker, which is a process."""
    silence_s: float = 3.0
    """An RM or proxy that has said nothing for so long counts as away."""
    lease_s: float = 10.0
    """A worker that has said nothing for so long is replaced."""
    pause_s: float = 900.0
    """An RM that is away for so long has to begin anew: its partitions end."""


class Refused(Exception):
    """A configuration that is not carried out: the text says why, `status` is that of HTTP."""

    def __init__(self, status: int, reason: str, *, code: str = "configuration", problems: Iterable[Problem] = ()):
        super().__init__(reason)
        self.status = status
        self.code = code
        """For programs; `busy` is worth another attempt."""
        self.problems = tuple(problems)

    @property
    def in_one_line(self) -> str:
        """For the log."""
        return "; ".join(str(self).splitlines())


class Books:
    """All that the broker's parts share. `notes` and `warnings` are for the log, from where the shell takes them."""

    def __init__(
        self,
        *,
        core_text: str = "",
        watched: str = "",
        versions: Versions | None = None,
        policy: Policy,
        incarnation: int = 0,
    ) -> None:
        self.roster = Roster(incarnation)
        self.versions = versions or Versions()
        self.announcements = Announcements()
        self.policy = policy
        self.core_text = core_text if core_text.strip() else DEFAULT_TEXT
        """The queues for RMs that send none."""
        self.watched = watched
        """The file that has that text, which may change and be changed, by its path; empty for none."""
        self.file_checksum = checksum_of(core_text)
        """Of what that file said last, whether or not it can be used."""
        self.file_empty = bool(watched) and not core_text.strip()
        """Whether it has said nothing yet, so that the core's text is not from there."""
        self.tally = Tally()
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self._numbers = incarnation * NUMBERS_PER_INCARNATION

    def next_number(self) -> int:
        """The number of a roll-out."""
        self._numbers += 1
        return self._numbers

    def admits(self, rm: str) -> bool:
        """Whether an RM of this id may register at all."""
        return matching(self.policy.allowed_rms).fullmatch(rm) is not None

    def checked(self, rm: str, text: str, live: Container[str] = ()) -> Configuration:
        """The configuration that a text says, if this RM may have it.

        Partitions that are `live`, by full name, keep the placement rules they have if the new ones cannot be built, so
        then the text is refused; a partition that begins without rules rejects every application and says why.

        Raises Refused with every problem.
        """
        judgement = understood(text)
        _refuse_any(judgement.problems)
        _refuse_any(judgement.naming)
        configuration = judgement.configuration
        assert configuration is not None, "a text without a configuration has problems"
        problem = self.roster.name_problem(rm, [one.name for one in configuration.partitions])
        if problem:
            raise Refused(BAD_REQUEST, problem, problems=[Problem(message=problem, kind="partition-name")])
        going_on = {one.name for one in configuration.partitions if self.roster.full_name(rm, one.name) in live}
        self._check_room(rm, configuration)
        _refuse_any(list(_building_problems(going_on, configuration, judgement)))
        self._check_hierarchy(rm, judgement.hierarchy)
        self._note_doubts(rm, judgement.doubts)
        return configuration

    def warnings_about(self, text: str) -> list[Problem]:
        """What is allowed in a configuration in force and probably not meant, as `yunishard validate` lists it."""
        judgement = understood(text)
        hierarchy = judgement.hierarchy if self.policy.same_hierarchy == "warn" else ()
        found = [*hierarchy, *judgement.doubts]
        listed = found[:WARNINGS_MAX]
        if len(found) > len(listed):
            text = f"{len(found) - len(listed)} more such warnings: `yunishard validate` shows them"
            listed.append(Problem(message=text, kind="more"))
        return listed

    def _check_room(self, rm: str, configuration: Configuration) -> None:
        """Whether there may be so many partitions."""
        others = sum(seat.rm != rm for seat in self.roster.seats.values())
        wanted, most = len(configuration.partitions), self.policy.partitions_max
        if others + wanted > most:
            raise Refused(
                CONFLICT,
                f"{wanted} partitions are too many now: all RMs together may have {most}, as the setting "
                "partitions-max says",
            )

    def _check_hierarchy(self, rm: str, problems: Sequence[Problem]) -> None:
        if self.policy.same_hierarchy == "enforce":
            _refuse_any(problems)
        if self.policy.same_hierarchy != "off":
            self.warnings += [f"configuration of RM {rm}: {problem}" for problem in problems]

    def _note_doubts(self, rm: str, found: Sequence[Problem]) -> None:
        told = [str(problem) for problem in found[:DOUBTS_LOGGED_MAX]]
        if len(found) > len(told):
            told.append(f"{len(found) - len(told)} more such warnings: `yunishard validate` shows them")
        self.warnings += [f"configuration of RM {rm}: {line}" for line in told]


def _refuse_any(problems: Sequence[Problem]) -> None:
    if problems:
        raise Refused(BAD_REQUEST, "\n".join(map(str, problems)), problems=problems)


def _building_problems(live: Container[str], configuration: Configuration, judgement: Judgement) -> Iterator[Problem]:
    """What keeps partitions from being built; told with the places of the text as it was written. `live` are the plain
    names of those that go on.
    """
    for one, building, rules in zip(configuration.partitions, judgement.building, judgement.rules, strict=True):
        yield from building
        if one.name in live:
            yield from rules
