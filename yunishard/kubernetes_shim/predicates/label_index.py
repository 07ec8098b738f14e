"""An index of things that require labels: of thousands, only few concern one pod or node."""

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from yunishard.kubernetes_shim.predicates.selectors import Labels, Pair

_T = TypeVar("_T")

_ANYWHERE: Final[Pair] = ("", "")
"""In place of a label, for things that do not require one."""


class LabelIndex(Generic[_T]):
    """Things by labels of which each requires at least one."""

    def __init__(self) -> None:
        self._by_pair: dict[Pair, dict[_T, None]] = {}

    def add(self, thing: _T, pairs: Sequence[Pair]) -> None:
        for pair in pairs or (_ANYWHERE,):
            self._by_pair.setdefault(pair, {})[thing] = None

    def remove(self, thing: _T, pairs: Sequence[Pair]) -> None:
        for pair in pairs or (_ANYWHERE,):
            del self._by_pair[pair][thing]
            if not self._by_pair[pair]:
                del self._by_pair[pair]

    def find(self, labels: Labels) -> list[_T]:
        """Return all things whose requirement these labels may meet."""
        found = list(self._by_pair.get(_ANYWHERE, ()))
        for pair in labels.items():
            found += self._by_pair.get(pair, ())
        return found
