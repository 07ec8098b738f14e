"""The rule `fixed`: one queue for all, written in the rule."""

from common.config.model import PlacementRuleConfig
from common.config.rules import wrong_queue
from common.names import ROOT
from partition_worker.engine.placement.rule import Places, Rule, RuleError, truth
from partition_worker.engine.users import Submission


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
