"""The rule `user`: a queue for each user, called after them."""

from partition_worker.engine.placement.rule import Places, Rule, dotless
from partition_worker.engine.users import Submission


class UserName(Rule):
    """The name is one queue, whatever it looks like: `root.bob` becomes `root_dot_bob`, `svc$` is an error."""

    name = "user"

    def path(self, submission: Submission, places: Places) -> str | None:
        if not self.filter.admits(submission.user, submission.work):
            return None
        return self.below_parent(dotless(submission.user.name), submission, places)
