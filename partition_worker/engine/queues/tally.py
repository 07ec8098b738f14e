"""How often each number occurs, to know the largest one while numbers come and go."""


class Tally:
    """A bag of integers. Few distinct values are expected: to lose the largest costs one look at each."""

    __slots__ = ("_counts", "highest")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.highest: int | None = None
        """The largest number in the bag, or None when it is empty."""

    def exchange(self, old: int | None, new: int | None) -> None:
        """Take one `old` out and put one `new` in; None stands for none."""
        if old is not None:
            left = self._counts[old] - 1
            if left:
                self._counts[old] = left
            else:
                del self._counts[old]
        if new is not None:
            self._counts[new] = self._counts.get(new, 0) + 1
        self.highest = max(self._counts) if self._counts else None
