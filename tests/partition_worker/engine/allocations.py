"""Asks and allocations without a partition."""

from yunishard.common.messages import rm_messages
from yunishard.partition_worker.engine.allocation import Allocation, find_creation_time, make_shape
from yunishard.partition_worker.engine.amounts import amounts_of


def received(message: rm_messages.Allocation, stamp_ns: int) -> Allocation:
    """What a message of the RM asks for, without a constraint; it came at this time."""
    tags = message.allocation_tags
    return Allocation(
        message.allocation_key,
        message.application_id,
        make_shape(amounts_of(message.resource_per_alloc), tags, None),
        find_creation_time(tags, stamp_ns),
        message.priority,
        tags=tags,
        task_group=message.task_group_name,
        placeholder=message.placeholder,
    )
