r"""Regular expressions that a name can be matched against in bounded time, whatever the name.

Who may submit chooses a name, and Python's `re` backtracks: `(a+)+$` keeps it busy for minutes over forty characters
while the partition waits. So here `re` judges single characters and positions only, and the ways through an expression
are followed all at once, as RE2 does after Ken Thompson (1968): a name is read once, in all states that the expression
can be in, at a cost of at most states times characters. Rejected: forbidding shapes that may be slow. That refuses
expressions that are in use and harmless, and with a few `.*` in a row the ones it lets pass are still slow.

What RE2 accepts, and what it means, is known to `expressions.py`, whose translation is read here. It is among what is
shared because an expression can be too large for this, which `rules.py` must know before any engine does.

Not here: filters, and what they let through (the engine's placement).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from common.config.expressions import ExpressionError, compile_expression

NAME_LENGTH_MAX: Final = 1024
"""Characters of a name that is matched. A longer one is answered with NameTooLongError, which rejects the application:
a no would open a filter that denies."""
STATES_MAX: Final = 2000
"""States of an expression; one that needs more, as `(a{100}){100}` would, is refused."""
DEPTH_MAX: Final = 50
"""Groups within groups."""

_TOKEN: Final = re.compile(
    r"""(?P<group>\(\?:) | (?P<end>\)) | (?P<bar>\|) | (?P<repeat>[*+?]|\{[0-9]+(?:,[0-9]*)?\})
    | (?P<atom>\(\?(?:[a-z]+:|!)(?:\\.|[^\\)])*\) | \[(?:\\.|[^\\\]])+\] | \\. | [^\\])""",
    re.VERBOSE | re.DOTALL,
)
_END: Final = 0
"""The state in which the whole expression was found."""


class NameTooLongError(ValueError):
    """A name that is not matched because of its length."""


@dataclass(frozen=True, slots=True)
class _State:
    """What must come next, one character or a property of the position, or nothing; and where it leads."""

    atom: re.Pattern[str] | None
    ways: tuple[int, ...]


_Piece = Callable[[int], int]
"""Adds the states of a piece of an expression that leads on to the given state; returns the first of them."""


class Expression:
    """One regular expression. It never changes."""

    def __init__(self, text: str) -> None:
        """Read the expression. Raises ExpressionError."""
        self._states = [_State(None, ())]
        pattern = compile_expression(text).pattern
        self._tokens = [(match.lastgroup, match.group()) for match in _TOKEN.finditer(pattern)]
        self._tokens.append(("end", ""))
        self._tokens.reverse()
        self._start = self._either(DEPTH_MAX)(_END)
        assert not self._tokens, f"the translation of {text} is not understood: {pattern}"

    def found_in(self, name: str) -> bool:
        """Whether any part of the name is what the expression describes. Raises NameTooLongError."""
        if len(name) > NAME_LENGTH_MAX:
            raise NameTooLongError(f"a name of {len(name)} characters is not matched, the limit is {NAME_LENGTH_MAX}")
        reached: list[int] = []
        for position in range(len(name) + 1):
            todo, seen = [*reached, self._start], set[int]()
            reached = []
            while todo:
                number = todo.pop()
                if number == _END:
                    return True
                if number in seen:
                    continue
                seen.add(number)
                state = self._states[number]
                if state.atom is None:
                    todo.extend(state.ways)
                elif match := state.atom.match(name, position):
                    (todo if match.end() == position else reached).extend(state.ways)
        return False

    # Reading: each method takes tokens from the end of the list and returns what they describe ---------------------

    def _either(self, depth: int) -> _Piece:
        """Read alternatives up to the end of their group."""
        if not depth:
            raise ExpressionError(f"an expression may have at most {DEPTH_MAX} groups within groups")
        options = [self._sequence(depth)]
        while self._tokens.pop()[0] == "bar":
            options.append(self._sequence(depth))
        return lambda then: self._add(None, *(option(then) for option in options))

    def _sequence(self, depth: int) -> _Piece:
        pieces: list[_Piece] = []
        while self._tokens[-1][0] not in ("bar", "end"):
            kind, text = self._tokens.pop()
            piece = self._either(depth - 1) if kind == "group" else self._atom(text)
            if self._tokens[-1][0] == "repeat":
                piece = self._repeat(piece, self._tokens.pop()[1])
            pieces.append(piece)

        def build(then: int) -> int:
            for piece in reversed(pieces):
                then = piece(then)
            return then

        return build

    def _atom(self, text: str) -> _Piece:
        atom = re.compile(text)
        return lambda then: self._add(atom, then)

    def _repeat(self, piece: _Piece, count: str) -> _Piece:
        """Make the copies that must be there, then a loop, or those that may be there."""
        low, _, high = {"*": "0,", "+": "1,", "?": "0,1"}.get(count, count.strip("{}")).partition(",")
        endless = count in ("*", "+") or count.endswith(",}")
        may = int(high or low) - int(low)

        def build(then: int) -> int:
            first = self._add(None, then)
            if endless:
                body = piece(first)
                self._states[first] = _State(None, (body, then))
            for _ in range(0 if endless else may):
                first = self._add(None, piece(first), then)
            for _ in range(int(low)):
                first = piece(first)
            return first

        return build

    def _add(self, atom: re.Pattern[str] | None, *ways: int) -> int:
        """Add a state. Every group and every repeat adds one, so that their number bounds the work of building, too."""
        if len(self._states) == STATES_MAX:
            raise ExpressionError(f"an expression may have at most {STATES_MAX} states")
        self._states.append(_State(atom, ways))
        return len(self._states) - 1
