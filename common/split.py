"""An update that mentions several partitions becomes one update for each.

Done once: by the RM's SDK, or by the proxy for an RM that does not. Everything behind the proxy sees updates for one
partition.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from common.messages import (
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    Command,
    NodeRequest,
)
from common.names import NODE_PARTITION, normalised

_T = TypeVar("_T")


def split(rm_id: str, command: Command) -> dict[str, Command]:
    """The command's parts by normalised partition name, in order of first appearance; items keep their order.

    Raises:
        TypeError: for a command that carries no items.
    """
    match command:
        case NodeRequest():
            return _split_nodes(rm_id, command)
        case ApplicationRequest():
            return _split_applications(rm_id, command)
        case AllocationRequest():
            return _split_allocations(rm_id, command)
    raise TypeError(command)


def _split_nodes(rm_id: str, command: NodeRequest) -> dict[str, Command]:
    nodes = _grouped(command.nodes, lambda node: normalised(rm_id, node.attributes.get(NODE_PARTITION, "")))
    return {name: replace(command, nodes=part) for name, part in nodes.items()}


def _split_applications(rm_id: str, command: ApplicationRequest) -> dict[str, Command]:
    new = _grouped(command.new, lambda item: normalised(rm_id, item.partition_name))
    remove = _grouped(command.remove, lambda item: normalised(rm_id, item.partition_name))
    return {
        name: replace(command, new=new.get(name, []), remove=remove.get(name, []))
        for name in dict.fromkeys([*new, *remove])
    }


def _split_allocations(rm_id: str, command: AllocationRequest) -> dict[str, Command]:
    allocations = _grouped(command.allocations, lambda item: normalised(rm_id, item.partition_name))
    releases = _grouped(command.releases.allocations_to_release, lambda item: normalised(rm_id, item.partition_name))
    return {
        name: replace(
            command,
            allocations=allocations.get(name, []),
            releases=AllocationReleasesRequest(allocations_to_release=releases.get(name, [])),
        )
        for name in dict.fromkeys([*allocations, *releases])
    }


def _grouped(items: Iterable[_T], name: Callable[[_T], str]) -> dict[str, list[_T]]:
    groups: dict[str, list[_T]] = {}
    for item in items:
        groups.setdefault(name(item), []).append(item)
    return groups
