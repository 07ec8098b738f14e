"""Read the nodes of a simulation: a CSV file, own or of Alibaba's openb trace.

    name,count,vcore,memory,attribute:zone
    big,10,64,256Gi,a
    small,2,500m,16Gi,b

Each further column is a resource type, with quantities as in `queues.yaml`; an empty value is none. `count` makes nodes
`name-1` to `name-N`; a column `attribute:KEY` is a node attribute. `openb_node_list*.csv` (`sn,cpu_milli,memory_mib,
gpu,model`) is recognized by its columns.
"""

import csv
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from yunishard.cli.main import CommandUnusable
from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import total_of
from yunishard.workloads.replay.workload import unpack
from yunishard.workloads.simulator.traces import GPU, GPU_MODEL, MEBIBYTE, iterate_csv, parse_amount

NODES_MAX: Final = 100_000
"""Nodes of a simulation. A file with more is refused."""

_ATTRIBUTE: Final = "attribute:"


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A node of a simulation."""

    name: str
    capacity: Resources
    attributes: Mapping[str, str] = field(default_factory=dict)


def load_nodes(path: Path) -> list[SimulatedNode]:
    """Load the nodes of a file.

    Raises:
        CommandUnusable: it cannot be read, is malformed, or has no node or too many.
    """
    nodes: list[SimulatedNode] = []
    try:
        with path.open("rb") as file, closing(unpack(file)) as stream:
            for number, row in iterate_csv(stream, ()):
                try:
                    nodes += _read_row(row)
                except ValueError as error:
                    raise CommandUnusable(f"line {number}: {error}") from None
                if len(nodes) > NODES_MAX:
                    raise CommandUnusable(f"more than {NODES_MAX:,} nodes")
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise CommandUnusable(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    except CommandUnusable as error:
        raise CommandUnusable(f"{path}: {error}") from None
    names = dict.fromkeys(node.name for node in nodes)
    if not nodes:
        raise CommandUnusable(f"{path}: no node in it")
    if len(names) < len(nodes):
        seen: set[str] = set()
        twice = next(node.name for node in nodes if node.name in seen or seen.add(node.name))  # type: ignore[func-returns-value]
        raise CommandUnusable(f"{path}: node {twice} appears twice: names of nodes must be unique")
    return nodes


def sum_capacity(nodes: list[SimulatedNode]) -> Resources:
    """Return the capacity of all nodes, by type in the order of the alphabet."""
    return dict(sorted(total_of(node.capacity for node in nodes).items()))


def _read_row(row: Mapping[str, str]) -> list[SimulatedNode]:
    """Return the nodes of a line. Raises ValueError with the column and what would be right."""
    if "sn" in row and "cpu_milli" in row:
        return [_read_openb(row)]
    name = row.get("name", "")
    if not name:
        raise ValueError("name: there must be a column 'name' with a value")
    attributes = {
        column.removeprefix(_ATTRIBUTE): value
        for column, value in row.items()
        if column.startswith(_ATTRIBUTE) and value
    }
    types = [column for column in row if column not in ("name", "count") and not column.startswith(_ATTRIBUTE)]
    capacity = {kind: parse_amount(kind, row[kind]) for kind in types if row[kind]}
    if not any(capacity.values()):
        raise ValueError(f"node {name} has no resources: columns such as vcore and memory have them")
    if not row.get("count"):
        return [SimulatedNode(name, capacity, attributes)]
    text = row["count"]
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= NODES_MAX):
        raise ValueError(f"count: expected a whole number from 1 to {NODES_MAX}, got {text[:40]!r}")
    return [SimulatedNode(f"{name}-{number}", capacity, attributes) for number in range(1, int(text) + 1)]


def _read_openb(row: Mapping[str, str]) -> SimulatedNode:
    amounts = {}
    for column, kind, factor in (("cpu_milli", "vcore", 1), ("memory_mib", "memory", MEBIBYTE), ("gpu", GPU, 1000)):
        text = row.get(column) or "0"
        if not (text.isascii() and text.isdecimal() and len(text) < 13):
            raise ValueError(f"{column}: expected a whole number, got {text[:40]!r}")
        if int(text):
            amounts[kind] = int(text) * factor
    model = row.get("model") or ""
    return SimulatedNode(row["sn"], amounts, {GPU_MODEL: model} if model else {})
