import pytest

from partition_worker.engine.predicates.forbidden import FORBIDDEN_NODES, ForbiddenNodes
from partition_worker.engine.predicates.predicate import NodeView

FORBIDDEN = ForbiddenNodes()


def test_only_the_named_nodes_are_refused() -> None:
    demand = FORBIDDEN.read({FORBIDDEN_NODES: "n1, n2"})
    refusals = [FORBIDDEN.refuses(demand, NodeView(name, {}, {})) for name in ("n1", "n2", "n3", "n")]
    assert refusals == ["node is forbidden", "node is forbidden", "", ""]


@pytest.mark.parametrize("text", ["", "n1,,n2", "n1,", " "])
def test_a_missing_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="tag yunishard/forbiddenNodes: a node id is missing: write ids with commas"):
        FORBIDDEN.read({FORBIDDEN_NODES: text})


def test_no_tag_demands_nothing() -> None:
    assert FORBIDDEN.read({}) is None
    assert FORBIDDEN.refuses(None, NodeView("n1", {}, {})) == ""
