"""The rule `provided`: the queue that the submission asks for. A partition that configures no rule has this one."""

from partition_worker.engine.placement.rule import Places, Rule
from partition_worker.engine.users import Submission


class Provided(Rule):
    """A name that starts with `root.` is the whole path and needs no parent rule; any other is one queue below it."""

    name = "provided"

    def path(self, submission: Submission, places: Places) -> str | None:
        if not submission.queue_name:
            return None
        return self.named(submission.queue_name, submission, places)
