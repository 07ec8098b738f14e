"""What a trace writes, as the messages of the scheduler interface that say the same.

Pure: nothing here is sent. What a trace leaves out has the value that a plain test wants, such as partition `default`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from yunishard.rmproxy.si import scheduler_pb2 as pb

Item: TypeAlias = dict[str, Any]
"""A mapping as YAML has it; the keys are those of the message, shortened."""

_PARTITION: Final = "default"


def expanded(items: Sequence[Item]) -> Iterator[Item]:
    """Each item; one with a `count` that many times, with {i} in its texts replaced by 1, 2, 3..."""
    for item in items:
        if "count" not in item:
            yield item
            continue
        repeated = {key: value for key, value in item.items() if key != "count"}
        for number in range(1, item["count"] + 1):
            yield _numbered(repeated, number)


def _numbered(value: Any, number: int) -> Any:
    match value:
        case str():
            return value.replace("{i}", str(number))
        case dict():
            return {key: _numbered(inner, number) for key, inner in value.items()}
        case list():
            return [_numbered(inner, number) for inner in value]
        case _:
            return value


def resource(amounts: dict[str, int] | None) -> pb.Resource | None:
    if amounts is None:
        return None
    return pb.Resource(resources={name: pb.Quantity(value=value) for name, value in amounts.items()})


def node(item: Item) -> pb.NodeInfo:
    return pb.NodeInfo(
        nodeID=item["id"],
        action=pb.NodeInfo.ActionFromRM.Value(item.get("action", "CREATE")),
        attributes={"si/node-partition": item.get("partition", _PARTITION), **item.get("attributes", {})},
        schedulableResource=resource(item.get("resources")),
    )


def new_application(item: Item) -> pb.AddApplicationRequest:
    return pb.AddApplicationRequest(
        applicationID=item["id"],
        queueName=item.get("queue", ""),
        partitionName=item.get("partition", _PARTITION),
        ugi=pb.UserGroupInformation(user=item.get("user", "nobody"), groups=item.get("groups", [])),
        tags=item.get("tags", {}),
        executionTimeoutMilliSeconds=item.get("timeout", 0),
        placeholderAsk=resource(item.get("placeholderAsk")),
        gangSchedulingStyle=item.get("gangStyle", ""),
    )


def gone_application(item: Item) -> pb.RemoveApplicationRequest:
    return pb.RemoveApplicationRequest(applicationID=item["id"], partitionName=item.get("partition", _PARTITION))


def ask(item: Item) -> pb.Allocation:
    """An ask; with a `node` it is an allocation that runs there already."""
    return pb.Allocation(
        allocationKey=item["key"],
        applicationID=item["app"],
        partitionName=item.get("partition", _PARTITION),
        resourcePerAlloc=resource(item["resources"]),
        priority=item.get("priority", 0),
        nodeID=item.get("node", ""),
        taskGroupName=item.get("group", ""),
        placeholder=item.get("placeholder", False),
        originator=item.get("originator", False),
        preemptionPolicy=_preemption_policy(item),
        allocationTags=item.get("tags", {}),
    )


def _preemption_policy(item: Item) -> pb.PreemptionPolicy | None:
    if "preemptSelf" not in item and "preemptOther" not in item:
        return None
    return pb.PreemptionPolicy(
        allowPreemptSelf=item.get("preemptSelf", False), allowPreemptOther=item.get("preemptOther", False)
    )


def release(item: Item, kind: str) -> pb.AllocationRelease:
    """Without a `key` it is for all of the application."""
    return pb.AllocationRelease(
        partitionName=item.get("partition", _PARTITION),
        applicationID=item["app"],
        allocationKey=item.get("key", ""),
        terminationType=pb.TerminationType.Value(kind),
    )
