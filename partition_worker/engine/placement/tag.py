"""The rule `tag`: the queue that a tag of the application names, such as the namespace it was submitted in."""

from common.config.model import PlacementRuleConfig
from common.config.rules import wrong_tag
from partition_worker.engine.placement.rule import Places, Rule, RuleError
from partition_worker.engine.users import Submission, tag_value


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
