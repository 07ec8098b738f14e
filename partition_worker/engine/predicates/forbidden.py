"""Forbidden nodes: ids of nodes on which an ask must not run, `n1,n2`. The resource manager knows why.

Not here: nodes that are closed to everybody (a node that drains).
"""

from collections.abc import Hashable, Mapping
from typing import Final

from partition_worker.engine.predicates.names import check_length
from partition_worker.engine.predicates.predicate import NodeView

FORBIDDEN_NODES: Final = "yunishard/forbiddenNodes"


class ForbiddenNodes:
    """The demand is the set of ids."""

    name = "forbidden-nodes"

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        text = tags.get(FORBIDDEN_NODES)
        if text is None:
            return None
        check_length(FORBIDDEN_NODES, text)
        ids = [one.strip() for one in text.split(",")]
        if not all(ids):
            raise ValueError(f"tag {FORBIDDEN_NODES}: a node id is missing: write ids with commas between, as in n1,n2")
        return frozenset(ids)

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        return "node is forbidden" if isinstance(demand, frozenset) and node.node_id in demand else ""
