"""The parts of an update, built with the words a program would use for them.

The structs of `common/messages.py` have every field of the scheduler interface; these functions have those that a
resource manager needs every day. Amounts are integers in base units (`memory` in bytes, `vcore` in thousandths) or text
as in `queues.yaml`: `{"vcore": "500m", "memory": "2Gi"}`.

Not here: what an update goes with and how it is sent (`manager.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from common.messages import (
    NODE_CREATE,
    STOPPED_BY_RM,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    NodeInfo,
    PreemptionPolicy,
    Resources,
    UserGroupInformation,
)
from common.names import NODE_PARTITION
from common.quantity import QuantityError, parse_quantity


def node(
    node_id: str,
    resources: Mapping[str, int | str] | None = None,
    *,
    partition: str = "",
    attributes: Mapping[str, str] | None = None,
    action: int = NODE_CREATE,
) -> NodeInfo:
    """A node that joins; with another `action` (the `NODE_` numbers of `common.messages`) one that changes or goes."""
    own = {NODE_PARTITION: partition} if partition else {}
    return NodeInfo(
        node_id=node_id,
        action=action,
        attributes={**(attributes or {}), **own},
        schedulable_resource=None if resources is None else amounts(resources),
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
    return AddApplicationRequest(
        application_id=application_id,
        queue_name=queue,
        partition_name=partition,
        ugi=UserGroupInformation(user=user, groups=list(groups)),
        tags=dict(tags or {}),
        placeholder_ask=amounts(gang or {}),
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
    return Allocation(
        allocation_key=allocation_key,
        application_id=application_id,
        partition_name=partition,
        resource_per_alloc=amounts(resources),
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
    return {kind: _amount(kind, value) for kind, value in resources.items()}


def _amount(kind: str, value: int | str) -> int:
    if isinstance(value, int):
        return value
    try:
        return parse_quantity(value, resource_type=kind)
    except QuantityError as error:
        raise QuantityError(f"{kind}: {value!r}: {error}") from None
