"""Where two documents differ: each place by its path, with what stands there in either.

A member of a list is known by what names it, where something does, so that one that is missing does not make all after
it differ. Not here: what may differ (`deliberate.py`).
"""

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final, NamedTuple

from tests.captures.canon import Document

ABSENT: Final = "<absent>"
NAMES: Final = ("allocationKey", "applicationID", "nodeID", "queuename", "queuePath", "userName", "groupName")
"""The keys that name a member of a list."""


class Difference(NamedTuple):
    """A place where two documents are not the same."""

    path: str
    recorded: Document
    given: Document


def differences(recorded: Document, given: Document, path: str = "") -> Iterator[Difference]:
    """Every such place."""
    match recorded, given:
        case dict(), dict():
            for key in dict.fromkeys([*recorded, *given]):
                yield from differences(recorded.get(key, ABSENT), given.get(key, ABSENT), f"{path}/{key}")
        case list(), list() if (ours := _named(given)) and (theirs := _named(recorded)):
            yield from differences(theirs, ours, path)
        case list(), list():
            yield from _in_order(recorded, given, path)
        case _ if recorded != given:
            yield Difference(path, recorded, given)


def _in_order(recorded: list[Document], given: list[Document], path: str) -> Iterator[Difference]:
    """Of lists whose members have no name, each with its number in the first; what was put in has that before which it
    stands.
    """
    matcher = SequenceMatcher(None, [json.dumps(one) for one in recorded], [json.dumps(one) for one in given])
    for what, begin, end, first, last in matcher.get_opcodes():
        if what != "equal":
            for number, (theirs, ours) in enumerate(
                zip_longest(recorded[begin:end], given[first:last], fillvalue=ABSENT), begin
            ):
                yield from differences(theirs, ours, f"{path}/{number}")


def _named(members: list[Document]) -> dict[str, Document]:
    """The members by name, if each has one of its own."""
    for name in NAMES:
        named = {str(one[name]): one for one in members if isinstance(one, dict) and name in one}
        if len(named) == len(members):
            return named
    return {}
