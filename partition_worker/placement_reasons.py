"""Reason codes of placement: why a placement rule, or the partition, does not take a new application.

The codes are stable: `GET /ws/v1/partition/{partition}/explain/placement` names the check that decides with them. Each
has a one-line meaning here and an action, which the documentation lists (`docs/operating/reasons.md`).

Not here: the reasons why an accepted application or an ask waits (`common/messages/reasons.py`), the checks themselves
(`partition_worker/engine/placement.py`).
"""

from enum import StrEnum, unique
from typing import Final, NamedTuple


@unique
class PlacementReason(StrEnum):
    """A check that a new application may not pass."""

    # one rule
    RULE_NO_VALUE = "rule-no-value"
    RULE_FILTERED = "rule-filtered"
    RULE_PARENT_UNMATCHED = "rule-parent-unmatched"
    RULE_PARENT_LEAF = "rule-parent-leaf"
    QUEUE_NAME_ILLEGAL = "queue-name-illegal"
    QUEUE_MISSING = "queue-missing"
    QUEUE_OUTSIDE_ROOT = "queue-outside-root"
    QUEUE_PARENT = "queue-parent"
    QUEUE_ENDING = "queue-ending"
    QUEUE_STOPPED = "queue-stopped"
    QUEUE_ACL = "queue-acl"
    QUEUE_HIDDEN = "queue-hidden"

    # all rules
    RULES_INVALID = "rules-invalid"
    RULES_UNMATCHED = "rules-unmatched"
    RULES_REFUSED = "rules-refused"

    # the partition
    QUEUE_NOT_CREATED = "queue-not-created"
    USER_INVALID = "user-invalid"
    USER_GROUPS_UNKNOWN = "user-groups-unknown"
    SUBMISSION_REFUSED = "submission-refused"


class PlacementMeaning(NamedTuple):
    """The meaning of a code, and the action of an operator."""

    meaning: str
    action: str


MEANINGS: Final[dict[PlacementReason, PlacementMeaning]] = {
    PlacementReason.RULE_NO_VALUE: PlacementMeaning(
        "The application has no value for the rule: it names no queue, has no such tag, or its user has no such group.",
        "Submit it with the queue, tag or group; or add a rule that needs none.",
    ),
    PlacementReason.RULE_FILTERED: PlacementMeaning(
        "The filter of the rule excludes the user.",
        "Change the users or groups of the filter, or its type.",
    ),
    PlacementReason.RULE_PARENT_UNMATCHED: PlacementMeaning(
        "The parent rule gives no queue, so the rule gives none either.",
        "Read the checks of the parent rule.",
    ),
    PlacementReason.RULE_PARENT_LEAF: PlacementMeaning(
        "The parent rule gives a leaf queue, below which there can be no queue. The application is rejected.",
        "Set `parent: true` for the queue, or change the parent rule.",
    ),
    PlacementReason.QUEUE_NAME_ILLEGAL: PlacementMeaning(
        "The value is not a valid queue name. The application is rejected; a secondarygroup rule only skips the group.",
        "Change the name, or let an earlier rule place the application.",
    ),
    PlacementReason.QUEUE_MISSING: PlacementMeaning(
        "The queue does not exist, and the rule may not create it.",
        "Add the queue to the configuration, or set `create: true` for the rule.",
    ),
    PlacementReason.QUEUE_OUTSIDE_ROOT: PlacementMeaning(
        "The path is not below the root queue.",
        "Begin the value of the rule with `root.`.",
    ),
    PlacementReason.QUEUE_PARENT: PlacementMeaning(
        "The queue is a parent queue; applications run in leaf queues.",
        "Name a leaf queue, or add a parent rule.",
    ),
    PlacementReason.QUEUE_ENDING: PlacementMeaning(
        "The queue left the configuration and is draining.",
        "Add it to the configuration again, or change the rule.",
    ),
    PlacementReason.QUEUE_STOPPED: PlacementMeaning(
        "An operator stopped the queue, or a queue above it.",
        "Start it again, or submit to another queue.",
    ),
    PlacementReason.QUEUE_ACL: PlacementMeaning(
        "No access control list of the queue, or of a queue above it, lets the user submit.",
        "Add the user or one of the groups to `submitacl` of the queue.",
    ),
    PlacementReason.QUEUE_HIDDEN: PlacementMeaning(
        "The queue does not exist, or does not take applications of the user. Users see no more of such queues.",
        "Ask an administrator, who sees which it is.",
    ),
    PlacementReason.RULES_INVALID: PlacementMeaning(
        "A placement rule cannot be used, so no rule is active and every application is rejected.",
        "Correct the rule that the message names.",
    ),
    PlacementReason.RULES_UNMATCHED: PlacementMeaning(
        "No placement rule gives a queue that takes the application.",
        "Read the first failed check of each rule.",
    ),
    PlacementReason.RULES_REFUSED: PlacementMeaning(
        "A rule cannot decide within its limits: a name is too long for its expressions, or there are too many groups.",
        "Submit the application with shorter names or fewer groups.",
    ),
    PlacementReason.QUEUE_NOT_CREATED: PlacementMeaning(
        "The rule may create the queue, but it cannot be created: a queue above it is a leaf, drains or denies access, "
        "or the path is not valid.",
        "Change the queue that the message names, or the rule.",
    ),
    PlacementReason.USER_INVALID: PlacementMeaning(
        "The user or the groups cannot be resolved.",
        "Correct the name, or name the groups with the submission.",
    ),
    PlacementReason.USER_GROUPS_UNKNOWN: PlacementMeaning(
        "The groups of the user are looked up in the operating system when the application is submitted.",
        "Name the groups in the request for the explanation.",
    ),
    PlacementReason.SUBMISSION_REFUSED: PlacementMeaning(
        "The partition does not take the application, whatever its queue.",
        "Read the message: it names the bound that is reached.",
    ),
}
"""Each code, explained."""
