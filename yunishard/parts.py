"""The parts of an update, built with the words a program would use for them.

The structs of `common/rm_messages.py` have every field of the scheduler interface; these functions have those that a
resource manager needs every day. Amounts are integers in base units (`memory` in bytes, `vcore` in thousandths) or text
as in `queues.yaml`: `{"vcore": "500m", "memory": "2Gi"}`.

Not here: what an update goes with and how it is sent (`manager.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from common.messages import INT64_MAX, Resources
from common.names import NODE_PARTITION
from common.quantity import QuantityError, parse_quantity
from common.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    STOPPED_BY_RM,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    NodeInfo,
    PreemptionPolicy,
    UserGroupInformation,
)
from yunishard.arguments import (
    check_choice,
    check_flag,
    check_one_of,
    check_text,
    check_text_map,
    check_texts,
    check_whole,
    wrong_type,
)

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def node(
    node_id: str,
    resources: Mapping[str, int | str] | None = None,
    *,
    partition: str = "",
    attributes: Mapping[str, str] | None = None,
    action: int = NODE_CREATE,
) -> NodeInfo:
    """A node that joins; with another `action` (the `NODE_` numbers of `common.messages`) one that changes or goes.

    Raises:
        TypeError, ValueError: (every function of this file) names the argument that is wrong, and what would be right.
    """
    check_text("node()", "node_id", node_id)
    check_text("node()", "partition", partition)
    check_text_map("node()", "attributes", attributes)
    check_whole("node()", "action", action, low=NODE_CREATE, high=NODE_CREATE_DRAIN)
    own = {NODE_PARTITION: partition} if partition else {}
    return NodeInfo(
        node_id=node_id,
        action=action,
        attributes={**(attributes or {}), **own},
        schedulable_resource=None if resources is None else _amounts("node()", "resources", resources),
    )


def application(
    application_id: str,
    queue: str = "",
    *,
    user: str,
    groups: Sequence[str] = (),
    partition: str = "",
    tags: Mapping[str, str] | None = None,
    gang: Mapping[str, int | str] | None = None,
    gang_style: Literal["Soft", "Hard"] = "Soft",
    gang_timeout_s: int = 0,
) -> AddApplicationRequest:
    """A new application of a user, with the queue it would like; the partition's placement rules decide.

    `gang` is what its placeholders need in all. After `gang_timeout_s` (0: a quarter of an hour) those whose places no
    real ask has taken go; if not all had a node by then, all it asked for goes, and it asks anew (`Soft`) or has failed
    (`Hard`).
    """
    function = "application()"
    check_text(function, "application_id", application_id)
    check_text(function, "queue", queue)
    check_text(function, "user", user)
    check_texts(function, "groups", groups)
    check_text(function, "partition", partition)
    check_text_map(function, "tags", tags)
    check_choice(function, "gang_style", gang_style, ("Soft", "Hard"))
    check_whole(function, "gang_timeout_s", gang_timeout_s, low=0, high=INT64_MAX // 1000, unit="seconds")
    return AddApplicationRequest(
        application_id=application_id,
        queue_name=queue,
        partition_name=partition,
        ugi=UserGroupInformation(user=user, groups=list(groups)),
        tags=dict(tags or {}),
        placeholder_ask={} if gang is None else _amounts(function, "gang", gang),
        gang_scheduling_style="" if gang is None else gang_style,
        execution_timeout_milli_seconds=gang_timeout_s * 1000,
    )


def ask(
    allocation_key: str,
    application_id: str,
    resources: Mapping[str, int | str],
    *,
    partition: str = "",
    priority: int = 0,
    node_id: str = "",
    tags: Mapping[str, str] | None = None,
    preemption: PreemptionPolicy | None = None,
    task_group: str = "",
    placeholder: bool = False,
) -> Allocation:
    """An ask for one allocation, with a key unique in its partition; with a node, one that already runs there.

    With a task group it takes the place of one of the placeholders of that group, or is one.
    """
    function = "ask()"
    check_text(function, "allocation_key", allocation_key)
    check_text(function, "application_id", application_id)
    check_text(function, "partition", partition)
    check_whole(function, "priority", priority, low=INT32_MIN, high=INT32_MAX)
    check_text(function, "node_id", node_id)
    check_text_map(function, "tags", tags)
    check_one_of(function, "preemption", preemption, PreemptionPolicy)
    check_text(function, "task_group", task_group)
    check_flag(function, "placeholder", placeholder)
    return Allocation(
        allocation_key=allocation_key,
        application_id=application_id,
        partition_name=partition,
        resource_per_alloc=_amounts(function, "resources", resources),
        node_id=node_id,
        priority=priority,
        allocation_tags=dict(tags or {}),
        preemption_policy=preemption,
        task_group_name=task_group,
        placeholder=placeholder,
    )


def release(
    application_id: str, allocation_key: str = "", *, partition: str = "", termination_type: int = STOPPED_BY_RM
) -> AllocationRelease:
    """The end of an allocation or ask; without a key, of all that the application has."""
    check_text("release()", "application_id", application_id)
    check_text("release()", "allocation_key", allocation_key)
    check_text("release()", "partition", partition)
    check_whole("release()", "termination_type", termination_type, low=0, high=INT32_MAX)
    return AllocationRelease(
        partition_name=partition,
        application_id=application_id,
        allocation_key=allocation_key,
        termination_type=termination_type,
    )


def amounts(resources: Mapping[str, int | str]) -> Resources:
    """Resources in base units.

    Raises:
        QuantityError: a text is no quantity; names the resource and the text.
    """
    return _amounts("amounts()", "resources", resources)


def _amounts(function: str, argument: str, resources: Mapping[str, int | str]) -> Resources:
    if not isinstance(resources, Mapping):
        raise wrong_type(function, argument, resources, 'a dict such as {"vcore": "500m", "memory": "2Gi"}')
    return {kind: _amount(function, argument, kind, value) for kind, value in resources.items()}


def _amount(function: str, argument: str, kind: str, value: int | str) -> int:
    check_text(function, f"a key of {argument}", kind)
    place = f"{argument}[{kind!r}]"
    if not isinstance(value, str):
        if not isinstance(value, int) or isinstance(value, bool):
            wanted = 'a whole number in base units (int), or text such as "1500m" or "2Gi"'
            raise wrong_type(function, place, value, wanted)
        check_whole(function, place, value)
        return value
    try:
        return parse_quantity(value, resource_type=kind)
    except QuantityError as error:
        raise QuantityError(f"{kind}: {value!r}: {error}") from None
