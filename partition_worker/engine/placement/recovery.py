"""The rule that ends every list: where an application goes that no configured rule placed.

Applications that ran before the scheduler restarted are submitted again by force. When the configuration changed in
between and no longer has a queue for them, they are kept in the recovery queue rather than killed.
"""

from typing import Final

from common.config.model import PlacementRuleConfig
from common.names import RECOVERY_QUEUE
from partition_worker.engine.placement.rule import Places, Rule
from partition_worker.engine.users import Submission

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
