"""The placement rules of a partition, tried in order until one yields a queue that takes the application.

Not here: what each rule does (a file each), and creating the queue of the path that was found (`engine/queues`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from common.config.expressions import ExpressionError, NameTooLongError
from common.config.model import PlacementRuleConfig
from common.config.rules import unusable_filter, wrong_name
from common.names import RECOVERY_QUEUE
from partition_worker.engine.placement_rules import (
    ApplicationType,
    Description,
    Fixed,
    PlacementRejected,
    Places,
    PrimaryGroup,
    Provided,
    Recovery,
    Rule,
    RuleError,
    SecondaryGroup,
    Tag,
    UserName,
    admits_submission,
    nearest,
)
from partition_worker.engine.user_resolution import Submission
from partition_worker.engine.work import TooMuchWorkError

RULES: Final[Mapping[str, Callable[[PlacementRuleConfig, Rule | None], Rule]]] = {
    "applicationtype": ApplicationType,
    "fixed": Fixed,
    "primarygroup": PrimaryGroup,
    "provided": Provided,
    "secondarygroup": SecondaryGroup,
    "tag": Tag,
    "user": UserName,
}
"""Every rule that a configuration may name, in any case."""

IMPLICIT: Final = (PlacementRuleConfig(name="provided"),)
"""What a configuration without rules means."""


class Placement:
    """The rules of a partition. It never changes: a new configuration makes a new one, or fails and leaves the old."""

    def __init__(self, rules: Sequence[PlacementRuleConfig]) -> None:
        """Build the rules. Raises RuleError for the first that cannot be built."""
        self._rules: tuple[Rule, ...] = (*(_built(rule) for rule in rules or IMPLICIT), Recovery())

    @classmethod
    def none(cls) -> "Placement":
        """Return the rules of a partition whose first ones could not be built: it places nothing, not even by force."""
        placement = cls.__new__(cls)
        placement._rules = ()
        return placement

    def described(self) -> list[Description]:
        """Return every rule as a plain value in the order in which they are tried, the one for recovery included."""
        return [rule.described() for rule in self._rules]

    def place(self, submission: Submission, places: Places) -> str:
        """Return the path of the queue for an application, in the case its source had; the queue may not exist yet.

        Raises PlacementRejected with the whole text that the resource manager gets.
        """
        submission.work.begin_application()
        try:
            return self._first_open(submission, places)
        except (PlacementRejected, NameTooLongError, TooMuchWorkError) as error:
            raise PlacementRejected(f"failed to place application {submission.application_id}: {error}") from error

    def _first_open(self, submission: Submission, places: Places) -> str:
        for rule in self._rules:
            path = rule.path(submission, places)
            if path is None:
                continue
            if path == RECOVERY_QUEUE and submission.forced:
                return path
            if _takes(path, submission, places):
                return path
        raise PlacementRejected("application rejected: no placement rule matched")


def _built(config: PlacementRuleConfig) -> Rule:
    """Return the rule with its parents. Raises RuleError."""
    if wrong := wrong_name(config):
        raise RuleError(wrong)
    parent = None if config.parent is None else _built(config.parent)
    try:
        return RULES[config.name.lower()](config, parent)
    except ExpressionError as error:
        raise RuleError(unusable_filter(config.name, error)) from error


def _takes(path: str, submission: Submission, places: Places) -> bool:
    """Whether the queue takes the application, or could be created for it.

    For a queue to be created, the nearest that exists decides, and only by its access control lists: that it is a leaf
    or draining is found out when the queue is created, and then rejects the application, as it does in YuniKorn.
    """
    place = places.find(path)
    if place is None:
        above = nearest(path, places)
        return above is not None and admits_submission(above, submission)
    return place.leaf and not place.draining and admits_submission(place, submission)
