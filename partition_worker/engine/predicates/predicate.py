"""What a predicate is: a rule, of ours or of a plug-in, that says on which nodes an ask may run.

It reads the tags of an ask once, and is asked about nodes as often as the engine likes. Both must be pure and quick:
they run in the thread that decides, the same answer is expected for the same question, and answers are remembered.
How to write one: `docs/predicates.md`.

Not here: asking them (`predicates.py`), rules that only the resource manager knows (`verdicts.py`).
"""

from collections.abc import Hashable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable


class NodeView(NamedTuple):
    """A node as a predicate sees it: what does not change as allocations come and go. All of it is read-only."""

    node_id: str
    attributes: Mapping[str, str]
    capacity: Mapping[str, int]
    """By resource type, in base units."""


@runtime_checkable
class Predicate(Protocol):
    """A rule. Asks whose tags are read as equal demands are the same to it."""

    name: str
    """By which it is chosen and reported; unique among those in use."""

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        """What an ask with these tags demands; None if nothing.

        Raises:
            ValueError: the tags are wrong; the text says which and what would be right. The ask is refused with it.
        """

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        """Why an ask with this demand cannot run on the node; empty if it can."""
