"""Records what placement checks for one submission, so that it can be explained.

The functions that place an application (`placement.py`) report each check to the trace of the submission, if it has
one. An explanation therefore shows what they did; there is no second model of the rules. A submission of the RM has no
trace and reports nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from yunishard.common.rest.views import RuleView
from yunishard.partition_worker.placement_reasons import PlacementReason

CHECKS_MAX: Final = 100
"""Checks that the trace of one rule keeps. Further ones, of a user in very many groups, are only counted."""


class PlacementCheck(NamedTuple):
    """One check; its code is the reason that applies if it did not pass."""

    code: PlacementReason
    subject: str
    """The path of a queue, a name, or a value."""
    passed: bool


@dataclass(slots=True)
class RuleTrace:
    """The checks of one rule, and its result."""

    view: RuleView
    source: str
    """Where the rule takes its value from, as a text for operators."""
    checks: list[PlacementCheck] = field(default_factory=list)
    left_out: int = 0
    """Checks beyond `CHECKS_MAX`."""
    path: str = ""
    """The queue that the rule gave; empty if it did not match."""
    error: str = ""
    """Why the rule rejects the application, whatever other rules say; empty if it does not."""
    parent: "RuleTrace | None" = None
    """The parent rule, if it was tried."""
    decides: bool = False
    """Whether the application is placed in the queue that this rule gave."""


class PlacementTrace:
    """The rules that were tried for one submission, in order."""

    def __init__(self) -> None:
        self.rules: list[RuleTrace] = []
        """Rules without their parent rules."""
        self._open: list[RuleTrace] = []
        """The rule that is being tried, and the rules whose parent it is, innermost last."""

    def begin_rule(self, view: RuleView, source: str) -> RuleTrace:
        """Begin a rule, or the parent rule of the one that is being tried."""
        rule = RuleTrace(view, source)
        if self._open:
            self._open[-1].parent = rule
        else:
            self.rules.append(rule)
        self._open.append(rule)
        return rule

    def end_rule(self) -> None:
        """End the rule that began last. Further checks are about its queue until the next rule begins."""
        self._open.pop()

    def add_check(self, code: PlacementReason, subject: str, *, passed: bool) -> None:
        """Add a check to the rule that is being tried, or to the one that ended last."""
        rule = self._open[-1] if self._open else self.rules[-1]
        if len(rule.checks) < CHECKS_MAX:
            rule.checks.append(PlacementCheck(code, subject, passed))
        else:
            rule.left_out += 1


def find_failed_check(checks: Sequence[PlacementCheck]) -> PlacementCheck | None:
    """Return the check that stopped a rule: the last one, if it did not pass."""
    return checks[-1] if checks and not checks[-1].passed else None
