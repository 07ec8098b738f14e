"""Nodes that exist only in the core, for tests and first steps: no machine is behind them, and nothing runs on them.

With the setting `simulated-nodes`, each partition begins with such nodes (`partition_worker/partition_host.py`), so
that an RM under development needs no code for nodes. `yunishard fake-rm` reports nodes of the same shape itself, as
other RMs do.
"""

import re
from collections.abc import Sequence
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import NODE_CREATE, NodeInfo
from yunishard.common.names import NODE_PARTITION
from yunishard.common.resources import QuantityError, parse_quantity

NODES_MAX: Final = 10_000
"""Simulated nodes of one partition; more are refused as a wrong setting."""

RESOURCE_TYPES_MAX: Final = 16
"""Resource types of a simulated node; more are refused as a wrong setting."""

NODE_RESOURCES: Final = "vcore=16,memory=64Gi"
"""The default size of a node."""

SIMULATED: Final = "yunishard/simulated"
"""The attribute of simulated nodes, with the value `true`."""

_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,62}")


def parse_node_resources(text: str) -> Resources:
    """Parse the size of a node, such as `vcore=16,memory=64Gi,nvidia.com/gpu=4`, into base units.

    Raises:
        ValueError: with the part that is wrong, and why.
    """
    found: Resources = {}
    for part in text.split(","):
        kind, _, amount = (word.strip() for word in part.partition("="))
        if not _TYPE.fullmatch(kind) or not amount:
            raise ValueError(f"expected TYPE=AMOUNT with commas between, as in {NODE_RESOURCES}, got {part.strip()!r}")
        if kind in found:
            raise ValueError(f"{kind} is there twice")
        try:
            found[kind] = parse_quantity(amount, resource_type=kind)
        except QuantityError as error:
            raise ValueError(f"{kind}: {amount!r} is not an amount such as 16, 500m or 64Gi ({error})") from None
        if not found[kind]:
            raise ValueError(f"{kind}: a node needs more than 0 of it, or leave it out")
    if len(found) > RESOURCE_TYPES_MAX:
        raise ValueError(f"{len(found)} resource types, at most {RESOURCE_TYPES_MAX} are allowed")
    return found


def name_simulated_nodes(count: int, prefix: str = "simulated") -> list[str]:
    """Return the names of simulated nodes, all of the same length, so that they sort by number.

    >>> name_simulated_nodes(10)[0]
    'simulated-01'
    """
    width = len(str(count))
    return [f"{prefix}-{number:0{width}}" for number in range(1, count + 1)]


def build_simulated_nodes(names: Sequence[str], resources: Resources, *, partition: str = "") -> list[NodeInfo]:
    """Build nodes that are all alike."""
    own = {NODE_PARTITION: partition} if partition else {}
    return [
        NodeInfo(
            node_id=name,
            action=NODE_CREATE,
            attributes={SIMULATED: "true", **own},
            schedulable_resource=dict(resources),
        )
        for name in names
    ]
