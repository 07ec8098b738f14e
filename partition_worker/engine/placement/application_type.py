"""The rule `applicationtype`: a queue for each kind of application, as its resource manager names it (`spark`)."""

from typing import Final

from partition_worker.engine.placement.rule import Places, Rule, dotless
from partition_worker.engine.users import Submission, tag_value

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
