"""Explains where an application would be placed, without submitting it.

The functions are those of a submission (`application_updates.py`): they resolve the user, try the placement rules and
plan the queue. Here they run with a trace, and the queue is only previewed, so nothing of the partition changes.
"""

from dataclasses import dataclass, field

from yunishard.common.messages.rm_messages import AddApplicationRequest
from yunishard.common.names import RECOVERY_QUEUE
from yunishard.partition_worker.engine.application_updates import Refusal, plan_queue, resolve_user
from yunishard.partition_worker.engine.placement import PlacementWork
from yunishard.partition_worker.engine.placement_trace import PlacementTrace
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.queues.tree import CreationPlan, apply_namespace_quota
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.user_resolution import GroupsUnknown, User, Users
from yunishard.partition_worker.placement_reasons import PlacementReason


@dataclass(slots=True)
class ExplainedPlacement:
    """The outcome of a submission, without its effects."""

    user: User
    """With the groups that count."""
    trace: PlacementTrace
    code: PlacementReason | None = None
    """Why it would be rejected, or cannot be explained; None if it would be accepted."""
    message: str = ""
    """The reason that the RM would receive; empty if it would be accepted or cannot be explained."""
    leaf: Queue | None = None
    """The queue of the application, with its settings after the submission. It is not part of the tree if it is
    created, or changed by the namespace quota of the submission.
    """
    created: list[str] = field(default_factory=list)
    """Paths of the queues that would be created, the highest first."""
    problems: list[str] = field(default_factory=list)
    """Tags that cannot be parsed and set nothing."""


def explain_placement(state: PartitionState, new: AddApplicationRequest) -> ExplainedPlacement:
    """Explain a submission without placeholders. Changes nothing."""
    found = ExplainedPlacement(User(new.ugi.user, tuple(new.ugi.groups)), PlacementTrace())
    try:
        found.user = resolve_user(state, new, _copy_users(state.users, new.ugi.user))
        plan = plan_queue(state, new, found.user, PlacementWork(), found.trace)
    except GroupsUnknown:
        found.code = PlacementReason.USER_GROUPS_UNKNOWN
        return found
    except Refusal as refusal:
        found.code, found.message = refusal.code, str(refusal)
        return found
    found.leaf = leaf = _preview(plan)
    found.created = [level.path for level in reversed(leaf.ancestry()[: len(plan.missing)])]
    if not leaf.managed and leaf.path != RECOVERY_QUEUE:
        found.problems = apply_namespace_quota(leaf, new.tags)
    return found


def _copy_users(users: Users, name: str) -> Users:
    """Return a resolver with the cached groups of this user, whose cache may change."""
    copy = Users(users.resolver)
    if name in users.learned:
        copy.learned[name] = users.learned[name]
    return copy


def _preview(plan: CreationPlan) -> Queue:
    """Return the leaf of a plan; a dynamic one as a copy, as the namespace quota may change it."""
    leaf = plan.preview()
    if plan.missing or leaf.managed:
        return leaf
    copy = Queue(leaf.path, leaf.parent, leaf.rank, leaf=True, managed=False)
    copy.policies, copy.max_applications = leaf.policies, leaf.max_applications
    copy.running, copy.allocating, copy.allocated_sum = leaf.running, leaf.allocating, leaf.allocated_sum
    copy.maximum, copy.guaranteed = leaf.maximum, leaf.guaranteed
    return copy
