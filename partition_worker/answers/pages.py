"""A part of a list on request: so many entries, in the order of their keys, beginning after one of them.

Entries may come and go between two pages: those that are there all the time are on exactly one of them. A page that
would take long to make ends early, and so does its `limit`; a list of everything that would is not made at all.

Not here: what a list is of (`queries.py`), and what `limit` and `after` may be (`webservice/parameters.py`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

_T = TypeVar("_T")

WEIGHT_MAX: Final = 10_000
"""Objects in one answer that has several entries, asks and allocations in them too. It takes a tenth of a second to
list them, in which the partition does nothing else."""


class TooLong(Exception):
    """A list that has to be asked for page by page."""

    def __init__(self) -> None:
        super().__init__(
            f"the list has more than {WEIGHT_MAX} entries, asks and allocations, so many are listed at once at most: "
            "ask for pages of it with limit"
        )


class Wanted(NamedTuple):
    """The part that is asked for."""

    limit: int | None
    """At most so many entries; None is all there are."""
    after: str
    """The key after which it begins; empty for the first."""


def wanted(args: Mapping[str, str]) -> Wanted:
    """What the arguments of a question ask for."""
    return Wanted(int(args["limit"]) if "limit" in args else None, args.get("after", ""))


@dataclass(frozen=True, slots=True)
class Listing(Generic[_T]):
    """What is listed."""

    entries: Mapping[str, _T]
    """By key."""
    shows: Callable[[_T], bool] = lambda _: True
    """Whether an entry is in the list."""
    weight: Callable[[_T], int] = lambda _: 1
    """Objects in an entry."""


def page(listing: Listing[_T], part: Wanted) -> tuple[list[_T], str]:
    """The entries of the part that are shown, and the key to go on after; empty if there are no more.

    Entries come in the order of their keys, which are at most some ten thousand and mostly in order. Of a part it looks
    at no more entries than it takes until that is full.

    Raises:
        TooLong: everything is wanted, and that is too much.
    """
    entries, shows = listing.entries, listing.shows
    if part.limit is None:
        everything = {key: entry for key, entry in entries.items() if shows(entry)}
        if len(everything) > 1 and sum(map(listing.weight, everything.values())) > WEIGHT_MAX:
            raise TooLong
        return [everything[key] for key in sorted(everything)], ""
    found: list[_T] = []
    last, weight = "", 0
    for key in sorted(key for key in entries if key > part.after):
        entry = entries[key]
        if not shows(entry):
            continue
        weight += listing.weight(entry)
        if len(found) == part.limit or (found and weight > WEIGHT_MAX):
            return found, last
        found.append(entry)
        last = key
    return found, ""


def by(key: Callable[[_T], str], entries: Iterable[_T]) -> dict[str, _T]:
    """The entries by their keys."""
    return {key(entry): entry for entry in entries}
