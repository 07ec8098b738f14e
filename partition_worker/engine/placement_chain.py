"""The placement rules of a partition, tried in order until one finds a queue that takes the application.

The rules are in `placement_rules.py`. The queue tree creates the queue of a path that does not exist yet.
"""

from collections.abc import Sequence
from typing import Final

from common.config.model import PlacementRuleConfig
from common.config.placement_rules import ExpressionError, NameTooLongError, check_rule_name, describe_filter_error
from common.names import RECOVERY_QUEUE
from partition_worker.engine.bounds import TooMuchWorkError
from partition_worker.engine.placement_rules import (
    PlacementRejected,
    PlacementTree,
    Recovery,
    Rule,
    RuleDescription,
    RuleError,
    find_nearest,
    may_submit,
)
from partition_worker.engine.user_resolution import Submission

IMPLICIT: Final = (PlacementRuleConfig(name="provided"),)
"""The rules of a configuration that names none."""


class PlacementChain:
    """The rules of one configuration. Immutable: a new configuration makes a new chain."""

    def __init__(self, rules: Sequence[PlacementRuleConfig]) -> None:
        """Build the rules. Raises RuleError for the first rule that cannot be built."""
        self._rules: tuple[Rule, ...] = (*(_build(rule) for rule in rules or IMPLICIT), Recovery())

    @classmethod
    def without_rules(cls) -> "PlacementChain":
        """Return the chain of a partition whose rules could not be built: it rejects every application, forced too."""
        chain = cls.__new__(cls)
        chain._rules = ()
        return chain

    def describe(self) -> list[RuleDescription]:
        """Return every rule as a plain value, in order, the recovery rule included."""
        return [rule.describe() for rule in self._rules]

    def place(self, submission: Submission, tree: PlacementTree) -> str:
        """Return the path of the application's queue, in the case of its source. The queue may not exist yet.

        Raises PlacementRejected with the whole text that the RM receives.
        """
        submission.work.begin_application()
        try:
            return self._find_first(submission, tree)
        except (PlacementRejected, NameTooLongError, TooMuchWorkError) as error:
            raise PlacementRejected(f"failed to place application {submission.application_id}: {error}") from error

    def _find_first(self, submission: Submission, tree: PlacementTree) -> str:
        for rule in self._rules:
            path = rule.find_path(submission, tree)
            if path is None:
                continue
            if path == RECOVERY_QUEUE and submission.forced:
                return path
            if _takes(path, submission, tree):
                return path
        raise PlacementRejected("application rejected: no placement rule matched")


def _build(config: PlacementRuleConfig) -> Rule:
    """Return the rule with its parent rules. Raises RuleError."""
    if wrong := check_rule_name(config):
        raise RuleError(wrong)
    parent = None if config.parent is None else _build(config.parent)
    try:
        return Rule.registry[config.name.lower()](config, parent)
    except ExpressionError as error:
        raise RuleError(describe_filter_error(config.name, error)) from error


def _takes(path: str, submission: Submission, tree: PlacementTree) -> bool:
    """Whether the queue takes the application, or could be created for it.

    For a queue to be created, only the ACLs of the nearest existing queue count. If that queue is a leaf or drains,
    creating the queue fails later and rejects the application, as in YuniKorn.
    """
    queue = tree.find(path)
    if queue is None:
        above = find_nearest(path, tree)
        return above is not None and may_submit(above, submission)
    return queue.leaf and not queue.draining and may_submit(queue, submission)
