"""An update that mentions several partitions becomes one update for each.

Done once: by the RM's SDK, or by the proxy for an RM that does not. Everything behind the proxy sees updates for one
partition.

Not here: whether the partitions exist.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from common.messages import Command
from common.names import NODE_PARTITION, normalised
from common.rm_messages import AllocationReleasesRequest, AllocationRequest, ApplicationRequest, NodeRequest

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
    nodes = _grouped(rm_id, command.nodes, lambda node: node.attributes.get(NODE_PARTITION, ""))
    if len(nodes) == 1:
        return dict.fromkeys(nodes, command)
    return {name: replace(command, nodes=part) for name, part in nodes.items()}


def _split_applications(rm_id: str, command: ApplicationRequest) -> dict[str, Command]:
    new = _grouped(rm_id, command.new, lambda item: item.partition_name)
    remove = _grouped(rm_id, command.remove, lambda item: item.partition_name)
    names = dict.fromkeys([*new, *remove])
    if len(names) == 1:
        return dict.fromkeys(names, command)
    return {name: replace(command, new=new.get(name, []), remove=remove.get(name, [])) for name in names}


def _split_allocations(rm_id: str, command: AllocationRequest) -> dict[str, Command]:
    allocations = _grouped(rm_id, command.allocations, lambda item: item.partition_name)
    releases = _grouped(rm_id, command.releases.allocations_to_release, lambda item: item.partition_name)
    names = dict.fromkeys([*allocations, *releases])
    if len(names) == 1:
        return dict.fromkeys(names, command)
    return {
        name: replace(
            command,
            allocations=allocations.get(name, []),
            releases=AllocationReleasesRequest(allocations_to_release=releases.get(name, [])),
        )
        for name in names
    }


def _grouped(rm_id: str, items: Iterable[_T], written: Callable[[_T], str]) -> dict[str, list[_T]]:
    """Items by the normalised name of the partition that they name, each spelling normalised once."""
    groups: dict[str, list[_T]] = {}
    spellings: dict[str, list[_T]] = {}
    for item in items:
        name = written(item)
        group = spellings.get(name)
        if group is None:
            group = spellings[name] = groups.setdefault(normalised(rm_id, name), [])
        group.append(item)
    return groups
