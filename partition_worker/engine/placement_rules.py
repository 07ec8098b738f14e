"""What placement rules share: the seam to the queue tree, the names of queues, and the way from a name to a path.

Each rule is a file of its own beside this one. Which rules are tried, and in which order, is decided in `chain.py`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

from common.config.expressions import Expression, looks_like_expression
from common.config.model import DENY, FilterConfig, PlacementRuleConfig
from common.config.rules import wrong_queue, wrong_tag
from common.names import GROUP, ILLEGAL_QUEUE, QUEUE, RECOVERY_QUEUE, ROOT, USER
from partition_worker.engine.user_resolution import Submission, User, tag_value
from partition_worker.engine.work import Work


class FilterDescription(NamedTuple):
    """What a filter does, for people: each list is either names or one expression, the other is empty."""

    allows: bool
    users: tuple[str, ...]
    groups: tuple[str, ...]
    user_expression: str
    group_expression: str


class Filter:
    """Admits those who are on one of its lists, or those who are on none, or without lists everybody or nobody."""

    def __init__(self, config: FilterConfig) -> None:
        """Read the lists. Raises ExpressionError for an only entry that is meant as an expression and is none."""
        self._allows = config.type != DENY
        self._for_all = not config.users and not config.groups
        self._users = _Names(config.users, USER)
        self._groups = _Names(config.groups, GROUP)

    def admits(self, user: User, work: Work) -> bool:
        """Whether the rule looks at applications of the user. Raises NameTooLongError and TooMuchWorkError if that
        cannot be said.
        """
        listed = self._for_all or self._users.have_any((user.name,), work) or self._groups.have_any(user.groups, work)
        return listed == self._allows

    def described(self) -> FilterDescription | None:
        """What is filtered, or None if nothing is."""
        if self._for_all and self._allows:
            return None
        users, groups = self._users, self._groups
        return FilterDescription(self._allows, users.listed, groups.listed, users.expression, groups.expression)


class _Names:
    """One list of a filter. Entries of a longer list that cannot be names are left out, and may leave nothing."""

    def __init__(self, entries: Sequence[str], legal: re.Pattern[str]) -> None:
        self._expression: Expression | None = None
        self.expression = ""
        """The text of the expression, empty for a list of names."""
        self.listed: tuple[str, ...] = ()
        """The names as they were written, once each."""
        if len(entries) == 1 and looks_like_expression(entries[0]):
            self.expression = entries[0]
            self._expression = Expression(entries[0])
        else:
            self.listed = tuple(dict.fromkeys(entry for entry in entries if legal.fullmatch(entry)))
        self._names = frozenset(self.listed)

    def have_any(self, names: Sequence[str], work: Work) -> bool:
        if self._expression is None:
            work.spend(1 + len(names))
            return not self._names.isdisjoint(names)
        return work.any_matches(self._expression, names)


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


class Fixed(Rule):
    """Dots in the value separate queues. A value that starts with `root` is the whole path.

    That goes for `rooted`, too, where no queue can be: such a rule never matches, it is useful at most as a parent.
    """

    name = "fixed"

    def __init__(self, config: PlacementRuleConfig, parent: Rule | None) -> None:
        super().__init__(config, parent)
        self.queue = config.value.lower()
        self.whole = self.queue.startswith(ROOT)
        if wrong := wrong_queue(self.queue, has_parent=parent is not None):
            raise RuleError(wrong)

    def path(self, submission: Submission, places: Places) -> str | None:
        if not self.filter.admits(submission.user, submission.work):
            return None
        if self.whole:
            return self.finished(self.queue, places)
        return self.below_parent(self.queue, submission, places)

    def parameters(self) -> dict[str, str]:
        return {**super().parameters(), "qualified": truth(self.whole), "queue": self.queue}


class UserName(Rule):
    """The name is one queue, whatever it looks like: `root.bob` becomes `root_dot_bob`, `svc$` is an error."""

    name = "user"

    def path(self, submission: Submission, places: Places) -> str | None:
        if not self.filter.admits(submission.user, submission.work):
            return None
        return self.below_parent(dotless(submission.user.name), submission, places)


GROUP_WORK: Final = 60
"""Units of work to look for the queue of a group."""


class PrimaryGroup(Rule):
    """The name is one queue, as with the rule `user`. A user without groups is no match."""

    name = "primarygroup"

    def path(self, submission: Submission, places: Places) -> str | None:
        user = submission.user
        if not user.groups or not self.filter.admits(user, submission.work):
            return None
        return self.below_parent(dotless(user.groups[0]), submission, places)


class SecondaryGroup(Rule):
    """The first secondary group that has a queue or, when the rule may create, for which the user may create one.

    So a group that no queue can be called after is passed over rather than an error, and so is one that has no queue
    where the user may not submit; whether the user may submit to a queue that exists is asked afterwards, as of every
    rule.
    """

    name = "secondarygroup"

    def path(self, submission: Submission, places: Places) -> str | None:
        groups = submission.user.groups[1:]
        if not groups or not self.filter.admits(submission.user, submission.work):
            return None
        above = self.parent_path(submission, places)
        if above is None:
            return None
        submission.work.spend(GROUP_WORK * len(groups))
        may_create = self.create and self._may_create_below(above, submission, places)
        for group in groups:
            try:
                path = f"{above}.{dotless(group)}"
            except PlacementRejected:
                continue
            if may_create or places.find(path) is not None:
                return path
        return None

    def _may_create_below(self, above: str, submission: Submission, places: Places) -> bool:
        """Whether the user may create queues there; the same for all groups, none of which has a queue yet."""
        existing = nearest(f"{above}.", places)
        return existing is not None and admits_submission(existing, submission)


class Tag(Rule):
    """The value of the tag is understood as the rule `provided` understands the queue of a submission."""

    name = "tag"

    def __init__(self, config: PlacementRuleConfig, parent: Rule | None) -> None:
        super().__init__(config, parent)
        if wrong := wrong_tag(config.value):
            raise RuleError(wrong)
        self.tag = config.value.lower()

    def path(self, submission: Submission, places: Places) -> str | None:
        name = tag_value(submission.tags, self.tag)
        return self.named(name, submission, places) if name else None

    def parameters(self) -> dict[str, str]:
        return {**super().parameters(), "tagName": self.tag}


class Provided(Rule):
    """A name that starts with `root.` is the whole path and needs no parent rule; any other is one queue below it."""

    name = "provided"

    def path(self, submission: Submission, places: Places) -> str | None:
        if not submission.queue_name:
            return None
        return self.named(submission.queue_name, submission, places)


TYPE_TAG: Final = "application.type"
"""The tag that says what kind of application it is; as with every tag its name may be written in any case."""


class ApplicationType(Rule):
    """The type is one name, whatever it looks like: unlike the value of a `tag` rule it is never a whole path, because
    who names a type does not mean a queue. Without a type the rule does not match.
    """

    name = "applicationtype"

    def path(self, submission: Submission, places: Places) -> str | None:
        kind = tag_value(submission.tags, TYPE_TAG)
        if not kind or not self.filter.admits(submission.user, submission.work):
            return None
        return self.below_parent(dotless(kind), submission, places)


DEFAULT_QUEUE: Final = "root.default"


class Recovery(Rule):
    """The recovery queue for what is forced, the default queue for the rest, if there is one."""

    name = "recovery"

    def __init__(self) -> None:
        super().__init__(PlacementRuleConfig(name="recovery", create=True), None)

    def path(self, submission: Submission, places: Places) -> str | None:
        if submission.forced:
            return RECOVERY_QUEUE
        return DEFAULT_QUEUE if places.find(DEFAULT_QUEUE) is not None else None

    def parameters(self) -> dict[str, str]:
        return {"queue": RECOVERY_QUEUE}
