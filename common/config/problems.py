"""What is wrong with a configuration, and where: told to people, so each problem names its line and its place.

Not here: deciding that something is wrong (`parse.py`, `check.py` and what they call).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

PROBLEMS_MAX: Final = 100  # more would not be read, and a hostile text could ask for millions
UNKNOWN_LINE: Final = 0

WARNING: Final = "doubt"
"""The kind of what is allowed and hardly meant."""

Lines = Mapping[str, int]
"""Path, such as `partitions[0].queues[2].name`, to the 1-based line of its value in the text."""

NO_LINES: Final[Lines] = {}


def under(path: str, key: str) -> str:
    """Return the path of a key of what stands at `path`."""
    return f"{path}.{key}" if path else key


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to mend. `kind` is the stable class of the error, `message` the sentence a YuniKorn operator knows."""

    line: int = UNKNOWN_LINE  # 1-based
    path: str = ""  # empty for the document as a whole
    message: str
    kind: str
    hint: str = ""  # what would be right, where the message does not say

    def __str__(self) -> str:
        """Return it in one line, place first."""
        place = [f"line {self.line}"] if self.line != UNKNOWN_LINE else []
        place += [self.path] if self.path else []
        told = f"{self.message} ({self.hint})" if self.hint else self.message
        return f"{', '.join(place)}: {told}" if place else told


class ConfigError(ValueError):
    """A configuration that was refused, with every problem that was found; the first is the one that decides."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        assert self.problems, "a configuration was refused without a reason"
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Report:
    """Collects problems in the order they are found, each once, up to PROBLEMS_MAX; later ones are not kept."""

    def __init__(self, lines: Lines = NO_LINES) -> None:
        self.problems: list[Problem] = []
        self._lines = lines

    def add(self, kind: str, path: str, message: str, *, hint: str = "") -> None:
        """Note a problem with what was written at `path`."""
        self.note(Problem(line=self._line_of(path), path=path, message=message, kind=kind, hint=hint))

    def note(self, problem: Problem) -> None:
        """Note a problem that knows its line."""
        if len(self.problems) < PROBLEMS_MAX and problem not in self.problems:
            self.problems.append(problem)

    def _line_of(self, path: str) -> int:
        """Return the line of the path, or else of the nearest thing around it that was written down."""
        while path and path not in self._lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._lines.get(path, UNKNOWN_LINE)
