"""What placement rules share: the seam to the queue tree, the names of queues, and the way from a name to a path.

Each rule is a file of its own beside this one. Which rules are tried, and in which order, is decided in `chain.py`.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Final, NamedTuple, Protocol

from common.config.model import PlacementRuleConfig
from common.names import ILLEGAL_QUEUE, QUEUE, ROOT
from partition_worker.engine.placement.filter import Filter, FilterDescription
from partition_worker.engine.users import Submission, User

ROOT_PREFIX: Final = f"{ROOT}."
DOT: Final = "_dot_"
"""What stands for a dot in a queue that is named after something with dots in it."""


class Place(Protocol):
    """A queue, as placement sees it."""

    @property
    def path(self) -> str:
        """From the root, dotted, in lower case."""

    @property
    def leaf(self) -> bool: ...

    @property
    def draining(self) -> bool: ...

    def admits_submission(self, user: User) -> bool:
        """Whether the access control lists of the queue, or of one above it, let the user submit; never to recovery."""


class Places(Protocol):
    """The queue tree, as placement sees it."""

    def find(self, path: str) -> Place | None:
        """Return the queue of this path, ignoring case."""


class RuleError(ValueError):
    """A configured rule that cannot be built; the text says why."""


class PlacementRejected(Exception):
    """An application that gets no queue; the text is the reason for the resource manager."""


class Description(NamedTuple):
    """A rule for people to read: its name, what it was told, whom it looks at, and the rule of its parent queue."""

    name: str
    parameters: dict[str, str]
    filter: FilterDescription | None
    parent: "Description | None"


class Rule(ABC):
    """One placement rule: from a submission to the path of a queue, existing or to be created."""

    name: ClassVar[str]
    """As a configuration writes it, in lower case."""

    def __init__(self, config: PlacementRuleConfig, parent: "Rule | None") -> None:
        self.create = config.create
        self.parent = parent
        self.filter = Filter(config.filter)

    @abstractmethod
    def path(self, submission: Submission, places: Places) -> str | None:
        """Return the path, in the case of its source, or None when the rule does not match.

        Raises PlacementRejected when the rule matches something that no queue can be: then no other rule is asked.
        """

    def parameters(self) -> dict[str, str]:
        """Return what the rule was told, by the names that the REST API has for it."""
        return {"create": truth(self.create)}

    def described(self) -> Description:
        """Return the rule as a plain value."""
        parent = None if self.parent is None else self.parent.described()
        return Description(self.name, self.parameters(), self.filter.described(), parent)

    def named(self, name: str, submission: Submission, places: Places) -> str | None:
        """Return the path that a name from outside means: a full path from the root, or one name below the parent."""
        if not self.filter.admits(submission.user, submission.work):
            return None
        if not name.startswith(ROOT_PREFIX):
            return self.below_parent(dotless(name), submission, places)
        submission.work.spend(20 * (1 + name.count(".")))
        for part in name.split("."):
            checked(part)
        return self.finished(name, places)

    def below_parent(self, name: str, submission: Submission, places: Places) -> str | None:
        """Return the path of a queue below the one that the parent rule yields, or below root."""
        above = self.parent_path(submission, places)
        return None if above is None else self.finished(f"{above}.{name}", places)

    def finished(self, path: str, places: Places) -> str | None:
        """Return the path if its queue exists or may be created."""
        return path if self.create or places.find(path) is not None else None

    def parent_path(self, submission: Submission, places: Places) -> str | None:
        """Return the path of the queue that the parent rule yields, without one that of root; None if it has none."""
        if self.parent is None:
            return ROOT
        path = self.parent.path(submission, places)
        if path is None:
            return None
        if not path.startswith(ROOT_PREFIX):
            path = ROOT_PREFIX + path  # even `root` itself, which becomes `root.root`: so does YuniKorn
        above = places.find(path)
        if above is not None and above.leaf:
            raise PlacementRejected(f"parent rule returned a leaf queue: {path}")
        return path


def admits_submission(place: Place, submission: Submission) -> bool:
    """Whether the user of a submission may submit to a queue: each level's lists are compared with each group."""
    submission.work.spend((1 + len(submission.user.groups)) * (1 + place.path.count(".")))
    return place.admits_submission(submission.user)


def checked(name: str) -> str:
    """Return the name of a queue. Raises PlacementRejected if no queue can have it."""
    if not QUEUE.fullmatch(name):
        raise PlacementRejected(ILLEGAL_QUEUE)
    return name


def dotless(name: str) -> str:
    """Return the name of the one queue that is called after `name`, whose dots would otherwise make it a path."""
    return checked(name.replace(".", DOT))


def nearest(path: str, places: Places) -> Place | None:
    """Return the lowest existing queue above the path, looked for from the root down: a path may have many parts."""
    lowest: Place | None = None
    end = path.find(".")
    while end >= 0 and (place := places.find(path[:end])) is not None:
        lowest = place
        end = path.find(".", end + 1)
    return lowest


def truth(value: object) -> str:
    """Return `true` or `false`, as the REST API writes it in parameters."""
    return "true" if value else "false"
