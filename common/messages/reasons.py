"""Reason codes: why an ask, an application, a queue or a node waits, and what would help.

The codes are stable: explanations (`GET .../explain`), tables, metrics, the allocation log and alerts use the same
ones. Each has a one-line meaning here, which the documentation lists (`docs/operating/reasons.md`). A code names one
check of the scheduler; its texts name the object and the amounts.

Not here: evaluating the checks (`partition_worker/engine/explain/`).
"""

from enum import StrEnum, unique
from typing import Final


@unique
class Reason(StrEnum):
    """A check of the scheduler that an ask may not pass, or a state in which it waits."""

    # the partition decides nothing
    PARTITION_REMOVED = "partition-removed"
    RM_AWAY = "rm-away"
    RM_REPORTING = "rm-reporting"
    RUNNING_GROUPS_RESOLVING = "running-groups-resolving"
    RESULTS_UNACKNOWLEDGED = "results-unacknowledged"
    JOURNAL_BEHIND = "journal-behind"
    MANUAL_SCHEDULING = "manual-scheduling"
    NO_NODES = "no-nodes"

    # the application
    GROUPS_RESOLVING = "groups-resolving"
    PLACEMENT_REJECTED = "placement-rejected"
    APPLICATION_ENDED = "application-ended"
    QUEUE_NOT_LEAF = "queue-not-leaf"
    QUEUE_STOPPED = "queue-stopped"
    QUEUE_DRAINING = "queue-draining"
    STATE_AWARE_TURN = "state-aware-turn"
    QUEUE_APPLICATION_LIMIT = "queue-application-limit"
    USER_APPLICATION_LIMIT = "user-application-limit"
    GROUP_APPLICATION_LIMIT = "group-application-limit"
    BACK_OFF = "back-off"

    # the ask, its user and its queues
    GANG_PLACEHOLDER = "gang-placeholder"
    PLACEHOLDER_LEAVING = "placeholder-leaving"
    VICTIMS_LEAVING = "victims-leaving"
    USER_LIMIT = "user-limit"
    GROUP_LIMIT = "group-limit"
    QUEUE_MAXIMUM = "queue-maximum"
    QUEUE_ROOM_KEPT = "queue-room-kept"
    CLUSTER_FULL = "cluster-full"

    # nodes
    NO_NODE_FITS = "no-node-fits"
    REQUIRED_NODE_MISSING = "required-node-missing"
    REQUIRED_NODE_TOO_SMALL = "required-node-too-small"
    REQUIRED_NODE_FULL = "required-node-full"
    REQUIRED_NODE_KEPT = "required-node-kept"
    REQUIRED_NODE_REFUSES = "required-node-refuses"
    RESERVED_NODE_FULL = "reserved-node-full"
    VERDICT_PENDING = "verdict-pending"
    NODE_TOO_SMALL = "node-too-small"
    NODE_FULL = "node-full"
    NODE_UNSCHEDULABLE = "node-unschedulable"
    NODE_CORDONED = "node-cordoned"
    NODE_RESERVED = "node-reserved"
    NODE_SELECTOR = "node-selector"
    NODE_FORBIDDEN = "node-forbidden"
    NODE_TAINT = "node-taint"
    NODE_PREDICATE = "node-predicate"
    NODE_REFUSED_BY_RM = "node-refused-by-rm"
    NODE_FITS = "node-fits"

    # its turn
    BEHIND_OTHERS = "behind-others"
    NOT_TRIED = "not-tried"

    # preemption for it
    PREEMPTION_OFF = "preemption-off"
    PREEMPTION_NOT_ALLOWED = "preemption-not-allowed"
    PREEMPTION_TRIGGERED = "preemption-triggered"
    PREEMPTION_GUARANTEE_USED = "preemption-guarantee-used"
    PREEMPTION_DELAY = "preemption-delay"
    PREEMPTION_PAUSE = "preemption-pause"
    PREEMPTION_CLUSTER_UNUSED = "preemption-cluster-unused"
    PREEMPTION_ATTEMPTS = "preemption-attempts"
    PREEMPTION_FENCE = "preemption-fence"
    PREEMPTION_DISABLED = "preemption-disabled"
    PREEMPTION_COOLDOWN = "preemption-cooldown"
    PREEMPTION_PRIORITY = "preemption-priority"
    PREEMPTION_WITHIN_GUARANTEE = "preemption-within-guarantee"
    PREEMPTION_NO_VICTIM = "preemption-no-victim"
    PREEMPTION_TOO_LITTLE = "preemption-too-little"


MEANINGS: Final[dict[Reason, str]] = {
    Reason.PARTITION_REMOVED: "The partition left the configuration; it ends what it has and takes nothing new.",
    Reason.RM_AWAY: "The RM has not resumed its session with this worker; nothing is decided until it has.",
    Reason.RM_REPORTING: "The RM is reporting all its objects; nothing is decided until the report is complete.",
    Reason.RUNNING_GROUPS_RESOLVING: "Running allocations wait for the groups of a user; nothing is decided before.",
    Reason.RESULTS_UNACKNOWLEDGED: "The RM has not acknowledged earlier results; nothing is decided until it has.",
    Reason.JOURNAL_BEHIND: "The journal has not stored earlier decisions yet; nothing is decided until it has.",
    Reason.MANUAL_SCHEDULING: "The system schedules only on request, step by step.",
    Reason.NO_NODES: "The partition has no node with resources.",
    Reason.GROUPS_RESOLVING: "The groups of the user are being looked up.",
    Reason.PLACEMENT_REJECTED: "The application was rejected when it was submitted.",
    Reason.APPLICATION_ENDED: "The application has ended.",
    Reason.QUEUE_NOT_LEAF: "The queue of the application has become a parent queue, which places nothing new.",
    Reason.QUEUE_STOPPED: "An operator stopped a queue on the path; it gets nothing new.",
    Reason.QUEUE_DRAINING: "The queue is draining and takes no new applications.",
    Reason.STATE_AWARE_TURN: "The queue starts one application at a time, and it is the turn of another one.",
    Reason.QUEUE_APPLICATION_LIMIT: "A queue on the path runs as many applications as it may.",
    Reason.USER_APPLICATION_LIMIT: "The user runs as many applications as a limit allows.",
    Reason.GROUP_APPLICATION_LIMIT: "The group runs as many applications as a limit allows.",
    Reason.BACK_OFF: "Too many asks of the application fitted no node; it is skipped for a while.",
    Reason.GANG_PLACEHOLDER: "The ask waits for a placeholder of its task group.",
    Reason.PLACEHOLDER_LEAVING: "The ask has its node; it waits until the RM confirms the release of its placeholder.",
    Reason.VICTIMS_LEAVING: "Victims were preempted for the ask; it waits until the RM confirms their release.",
    Reason.USER_LIMIT: "The user uses as many resources as a limit allows.",
    Reason.GROUP_LIMIT: "The group uses as many resources as a limit allows.",
    Reason.QUEUE_MAXIMUM: "A queue on the path uses as much as its maximum allows.",
    Reason.QUEUE_ROOM_KEPT: "A queue on the path keeps what is left for asks that preempted or waited too long.",
    Reason.CLUSTER_FULL: "The nodes of the partition together do not have this much left.",
    Reason.NO_NODE_FITS: "No node takes the ask.",
    Reason.REQUIRED_NODE_MISSING: "The node that the ask requires does not exist.",
    Reason.REQUIRED_NODE_TOO_SMALL: "The node that the ask requires is too small, even when it is empty.",
    Reason.REQUIRED_NODE_FULL: "The node that the ask requires has no room.",
    Reason.REQUIRED_NODE_KEPT: "The node that the ask requires is kept for an ask that preempted there.",
    Reason.REQUIRED_NODE_REFUSES: "The node that the ask requires refuses it.",
    Reason.RESERVED_NODE_FULL: "The node that is reserved for the ask has no room yet.",
    Reason.VERDICT_PENDING: "The RM has not yet answered whether the ask may run on nodes with room.",
    Reason.NODE_TOO_SMALL: "The node is too small, even when it is empty.",
    Reason.NODE_FULL: "The node has no room.",
    Reason.NODE_UNSCHEDULABLE: "The node is drained by the RM and takes nothing new.",
    Reason.NODE_CORDONED: "An operator has cordoned the node; it takes nothing new.",
    Reason.NODE_RESERVED: "The node is reserved for another ask.",
    Reason.NODE_SELECTOR: "The attributes of the node do not match the node selector of the ask.",
    Reason.NODE_FORBIDDEN: "The ask forbids this node.",
    Reason.NODE_TAINT: "The node has a taint that the ask does not tolerate.",
    Reason.NODE_PREDICATE: "A predicate of a plug-in refuses the node.",
    Reason.NODE_REFUSED_BY_RM: "The RM refuses the node for the ask.",
    Reason.NODE_FITS: "The node has room and takes the ask.",
    Reason.BEHIND_OTHERS: "Others come first.",
    Reason.NOT_TRIED: "The ask passes all checks; the scheduler has not come to it yet.",
    Reason.PREEMPTION_OFF: "Preemption is off in the partition.",
    Reason.PREEMPTION_NOT_ALLOWED: "The ask may not preempt others, by its preemption policy.",
    Reason.PREEMPTION_TRIGGERED: "Victims were preempted for the ask, and their room is kept for it.",
    Reason.PREEMPTION_GUARANTEE_USED: "The ask does not fit the remaining guarantee of its queue.",
    Reason.PREEMPTION_DELAY: "The ask has not waited for the preemption delay of its queue.",
    Reason.PREEMPTION_PAUSE: "A search for victims failed or succeeded a moment ago; the next one has to wait.",
    Reason.PREEMPTION_CLUSTER_UNUSED: "Less of the cluster is used than the preemption threshold.",
    Reason.PREEMPTION_ATTEMPTS: "The queue has made as many searches for victims as it may in one cycle.",
    Reason.PREEMPTION_FENCE: "Victims beyond the fence of the queue are out of reach.",
    Reason.PREEMPTION_DISABLED: "The queue of the victims has preemption disabled.",
    Reason.PREEMPTION_COOLDOWN: "The queue of the victims preempted from this queue a short while ago.",
    Reason.PREEMPTION_PRIORITY: "The allocations within reach have a higher priority.",
    Reason.PREEMPTION_WITHIN_GUARANTEE: "The queue of the victims uses no more than its guarantee.",
    Reason.PREEMPTION_NO_VICTIM: "No allocation within reach may be preempted for the ask.",
    Reason.PREEMPTION_TOO_LITTLE: "All victims together would not free enough.",
}
"""The meaning of each code, in one line."""


@unique
class Remedy(StrEnum):
    """A change after which an ask would run, or a time after which it does."""

    RAISE_QUEUE_MAXIMUM = "raise-queue-maximum"
    RAISE_QUEUE_APPLICATIONS = "raise-queue-applications"
    RAISE_USER_LIMIT = "raise-user-limit"
    RAISE_USER_APPLICATIONS = "raise-user-applications"
    RAISE_GROUP_LIMIT = "raise-group-limit"
    RAISE_GROUP_APPLICATIONS = "raise-group-applications"
    ADD_NODE = "add-node"
    GROW_NODE = "grow-node"
    UNCORDON_NODE = "uncordon-node"
    MAKE_NODE_SCHEDULABLE = "make-node-schedulable"
    START_QUEUE = "start-queue"
    RELEASE_ALLOCATION = "release-allocation"
    END_APPLICATION = "end-application"
    WAIT = "wait"


REMEDY_MEANINGS: Final[dict[Remedy, str]] = {
    Remedy.RAISE_QUEUE_MAXIMUM: "Raise the maximum of a queue by an amount.",
    Remedy.RAISE_QUEUE_APPLICATIONS: "Raise the number of applications that a queue may run.",
    Remedy.RAISE_USER_LIMIT: "Raise the limit of a user in a queue by an amount.",
    Remedy.RAISE_USER_APPLICATIONS: "Raise the number of applications that a user may run in a queue.",
    Remedy.RAISE_GROUP_LIMIT: "Raise the limit of a group in a queue by an amount.",
    Remedy.RAISE_GROUP_APPLICATIONS: "Raise the number of applications that a group may run in a queue.",
    Remedy.ADD_NODE: "Add a node of this size.",
    Remedy.GROW_NODE: "Grow a node by an amount.",
    Remedy.UNCORDON_NODE: "Take back the cordon of a node.",
    Remedy.MAKE_NODE_SCHEDULABLE: "Let the RM end the drain of a node.",
    Remedy.START_QUEUE: "Start a queue that an operator stopped.",
    Remedy.RELEASE_ALLOCATION: "Wait for the end of an allocation, or release it.",
    Remedy.END_APPLICATION: "Wait for the end of an application, or end it.",
    Remedy.WAIT: "Wait; nothing needs to be changed.",
}
"""The meaning of each remedy, in one line."""
