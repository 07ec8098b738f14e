"""Whose word decides in which order nodes are tried for an application."""

import pytest

from partition_worker.engine.nodes.choice import choice_of
from tests.builders import apps, asks, nodes
from tests.trial import Trial


@pytest.mark.parametrize(
    ("queue", "tag", "expected"),
    [
        ("", "", None),
        ("node.sort.policy=pack", "", "pack"),
        ("node.sort.policy=pack", "tag.node.sort.policy=fair", "fair"),
        ("node.sort.policy=pack", "tag.node.sort.policy=BinPacking", "binpacking"),
        ("node.sort.policy=pack", "tag.node.sort.policy=packed", "pack"),
        ("node.sort.policy=packed", "", None),
    ],
)
def test_the_tag_counts_then_the_queue(queue: str, tag: str, expected: str | None) -> None:
    one = Trial(f"root.a {queue}").does(apps(f"app-1 root.a {tag}"))
    assert choice_of(one.app("app-1")) == expected


def test_applications_side_by_side_try_nodes_in_orders_of_their_own() -> None:
    """The partition's is fair. A second order begins when it is first asked for, and follows every change from then."""
    one = Trial("root.a; root.b node.sort.policy=binpacking").does(nodes("n1 memory=20", "n2 memory=20"))
    one.does(apps("fair root.a", "full root.b"), asks("fair a0 memory=1 on=n2"))
    one.told()
    assert one.does(asks("full b1 memory=1")).placed() == ["b1 on n2"]
    assert one.does(asks("fair a1 memory=5")).placed() == ["a1 on n1"]
    assert one.does(asks("full b2 memory=1"), asks("fair a2 memory=1")).placed() == ["b2 on n1", "a2 on n2"]


def test_a_queue_that_is_configured_anew_counts_at_once() -> None:
    one = Trial("root.a").does(nodes("n1 memory=20", "n2 memory=20"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=1"))
    one.reconfigures("root.a node.sort.policy=binpacking").told()
    assert one.does(asks("app-1 a2 memory=1")).placed() == ["a2 on n1"]
    one.reconfigures("root.a").told()
    assert one.does(asks("app-1 a3 memory=1")).placed() == ["a3 on n2"]
