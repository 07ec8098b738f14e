"""How much work placement may do for one update, so that no update keeps a worker silent until it is replaced.

Who submits chooses how many groups a submission names and how long they are, and whoever configures the partition
chooses how many rules look at them and with what. Neither is too much by itself, so the product is bounded: rules count
what they do in units of about 25 ns, the same for the same input whatever the machine, as journals must replay exactly.

Not here: what is counted (`placement/`).
"""

from collections.abc import Iterable
from typing import Final

from common.config.expressions import Expression

UPDATE_WORK_MAX: Final = 100_000_000
"""Units for all applications of one update, two to three seconds at worst. The applications beyond it are rejected."""

APPLICATION_WORK_MAX: Final = 30_000_000
"""Units for one application, which alone is rejected beyond it. 1,000 groups of 30 characters and ten rules with an
expression of ordinary size take 5,000,000."""

_LOOKUP: Final = 3
"""Units for a name that was matched before in the same update."""

_MATCH: Final = 120
"""Units to call RE2, besides those for the name."""


class TooMuchWorkError(Exception):
    """A submission that is not placed because of the work that it takes; the text is the reason for the RM."""


class Work:
    """What is left of the work for one update, and the matches that were found in it."""

    def __init__(self, most: int = UPDATE_WORK_MAX) -> None:
        self._left = most
        self._left_for_one = APPLICATION_WORK_MAX
        self._found: dict[Expression, dict[str, bool]] = {}

    def begin_application(self) -> None:
        """The next application has its own share."""
        self._left_for_one = APPLICATION_WORK_MAX

    def spend(self, units: int) -> None:
        """Count work that is about to be done. Raises TooMuchWorkError."""
        if units > self._left_for_one:
            raise TooMuchWorkError(
                f"its groups take the placement rules more than {APPLICATION_WORK_MAX} units of work: "
                "submit it with fewer or shorter groups"
            )
        if units > self._left:
            self._left = 0
            raise TooMuchWorkError(
                f"the applications of this update take the placement rules more than {UPDATE_WORK_MAX} units of work: "
                "submit fewer applications in one update, or with fewer groups"
            )
        self._left -= units
        self._left_for_one -= units

    def any_matches(self, expression: Expression, names: Iterable[str]) -> bool:
        """Whether the expression is found in any of the names. Raises TooMuchWorkError, NameTooLongError."""
        found = self._found.setdefault(expression, {})
        for name in names:
            matches = found.get(name)
            if matches is None:
                # RE2 takes at most one step for each instruction and byte, 10 ns each where it cannot cache its states
                self.spend(_MATCH + len(name.encode(errors="replace")) * expression.size // 2)
                matches = found[name] = expression.found_in(name)
            else:
                self.spend(_LOOKUP)
            if matches:
                return True
        return False
