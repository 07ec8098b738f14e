"""The rules `primarygroup` and `secondarygroup`: a queue for each group of users, called after it.

The first group of a user is the primary one, all others are secondary, in the order in which they were given.
"""

from typing import Final

from partition_worker.engine.placement.rule import (
    PlacementRejected,
    Places,
    Rule,
    admits_submission,
    dotless,
    nearest,
)
from partition_worker.engine.users import Submission

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
