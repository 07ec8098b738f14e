"""Several asks of one kind in one go, where the application or its queue wants that."""

import pytest

from tests.builders import apps, asks, nodes
from tests.trial import Trial


def trial(queues: str = "root.a", *applications: str, on: str = "n1 memory=100") -> Trial:
    """Applications that would get a node in turn: the queue is fair."""
    one = Trial(queues).takes(nodes(on, "n2 memory=3"), apps(*(applications or ("app-1 root.a", "app-2 root.a"))))
    one.takes(asks(*(f"app-{app} {key}{number} memory=1" for number in range(4) for app, key in ((1, "a"), (2, "b")))))
    one.told()
    return one


def order(one: Trial) -> str:
    """Whose asks got a node, one after the other."""
    one.settles()
    return "".join(line[0] for line in one.placed())


FAIR = "root.a application.sort.policy=fair"


@pytest.mark.parametrize(
    ("queue", "tag", "expected"),
    [
        ("", "", "abababab"),
        ("allocation.batch=2", "", "aabbaabb"),
        ("allocation.batch=9", "", "aaaabbbb"),
        ("allocation.batch=0", "", "abababab"),
        ("", "tag.allocation.batch=3", "aaabbbab"),
        ("allocation.batch=3", "tag.allocation.batch=1", "abbbaaab"),
        ("allocation.batch=2", "tag.allocation.batch=many", "aabbaabb"),
    ],
)
def test_an_application_gets_as_many_in_one_go_as_its_tag_says_else_its_queue(
    queue: str, tag: str, expected: str
) -> None:
    one = trial(f"{FAIR} {queue} guaranteed=memory:100", f"app-1 root.a {tag}", "app-2 root.a")
    assert order(one) == expected


def test_only_asks_of_one_kind_go_along() -> None:
    one = trial(f"{FAIR} allocation.batch=9")
    one.takes(asks("app-1 a8 memory=2", "app-1 a9 memory=1 priority=-1"))
    assert order(one) == "aaaabbbbaa"


def test_they_go_to_the_next_nodes_with_room_in_the_order_of_the_application() -> None:
    one = trial("root.a allocation.batch=4 node.sort.policy=binpacking", on="n1 memory=2")
    one.settles()
    assert one.placed()[:5] == ["a0 on n1", "a1 on n1", "a2 on n2", "a3 on n2", "b0 on n2"]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max=memory:3", "aaa"),
        ("limit.user.bob=memory:3", "aaa"),
        ("limit.user.bob=memory:9", "aaaabbbb"),
    ],
)
def test_no_more_go_along_than_there_is_room_for(limit: str, expected: str) -> None:
    assert order(trial(f"root.a allocation.batch=9 {limit}")) == expected


def test_each_counts_as_a_decision() -> None:
    one = trial(f"{FAIR} allocation.batch=9")
    assert one.decides() == ["a0 on n1"]
    one._step(one.partition.schedule(one.now, 3))
    assert [line[0] for line in one.placed()] == ["b", "b", "b"]


def test_asks_for_one_node_only_go_one_at_a_time() -> None:
    one = Trial(f"{FAIR} allocation.batch=9").takes(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.a"))
    one.takes(
        asks(*(f"app-{app} {key} memory=1 required=n1" for key, app in (("a1", 1), ("b1", 2), ("a2", 1), ("b2", 2))))
    )
    assert order(one) == "abab"
