"""Problems of a configuration, each with its line and its place in the text, and the report that collects them."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

PROBLEMS_MAX: Final = 100
"""Problems of one report. A hostile text could cause millions."""

PROBLEM_CHARS_MAX: Final = 2_000
"""Characters of the path and of the message of a problem, which may repeat values of the text. The rest is cut."""

UNKNOWN_LINE: Final = 0

WARNING: Final = "doubt"
"""The kind of a warning: valid, and probably unintended."""

Lines = Mapping[str, int]
"""Path, such as `partitions[0].queues[2].name`, to the 1-based line of its value in the text."""

NO_LINES: Final[Lines] = {}


def under(path: str, key: str) -> str:
    """Return the path of a key of the value at `path`."""
    return f"{path}.{key}" if path else key


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem to correct. `kind` is its stable class, `message` the sentence that YuniKorn has for it, if any."""

    line: int = UNKNOWN_LINE  # 1-based
    path: str = ""  # empty for the whole document
    message: str
    kind: str
    hint: str = ""  # what is correct, if the message does not say so

    def __str__(self) -> str:
        """Return it in one line, place first."""
        place = [f"line {self.line}"] if self.line != UNKNOWN_LINE else []
        place += [self.path] if self.path else []
        message = f"{self.message} ({self.hint})" if self.hint else self.message
        return f"{', '.join(place)}: {message}" if place else message


class ConfigError(ValueError):
    """A configuration was refused because of these problems; the first one decides."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        assert self.problems, "a configuration was refused without a reason"
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Report:
    """Collects the first PROBLEMS_MAX problems in the order in which they are found, each once."""

    def __init__(self, lines: Lines = NO_LINES) -> None:
        self.problems: list[Problem] = []
        self._lines = lines

    @property
    def is_full(self) -> bool:
        """Whether further problems are dropped, so that there is no need to look for them."""
        return len(self.problems) >= PROBLEMS_MAX

    def add(self, kind: str, path: str, message: str, *, hint: str = "") -> None:
        """Report a problem with the value at `path`. Its line is that of the nearest written value around it."""
        if self.is_full:
            return
        near = path if self._lines else ""
        while near and near not in self._lines:
            near = near[: max(near.rfind("."), near.rfind("["), 0)]
        line = self._lines.get(near, UNKNOWN_LINE)
        self.note(Problem(line=line, path=path, message=message, kind=kind, hint=hint))

    def warn(self, path: str, message: str, *, hint: str = "") -> None:
        """Report a warning about the value at `path`."""
        self.add(WARNING, path, message, hint=hint)

    def note(self, problem: Problem) -> None:
        """Report a problem with a known line."""
        if self.is_full:
            return
        if len(problem.message) > PROBLEM_CHARS_MAX or len(problem.path) > PROBLEM_CHARS_MAX:
            problem = replace(problem, path=_cut(problem.path), message=_cut(problem.message))
        if problem not in self.problems:
            self.problems.append(problem)


def _cut(text: str) -> str:
    return text if len(text) <= PROBLEM_CHARS_MAX else f"{text[:PROBLEM_CHARS_MAX]}..."
