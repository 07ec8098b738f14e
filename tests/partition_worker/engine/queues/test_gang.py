import pytest

from partition_worker.engine.queues.headroom import gang_objection
from tests.trial import Trial


def objections(queues: str, **gang: int) -> str:
    return gang_objection(Trial(queues).queue("root.a.b"), "app-1", gang)


def test_without_placeholders_any_leaf_will_do() -> None:
    fair = "root.a.b application.sort.policy=fair max=memory:1"
    assert objections(fair) == ""
    assert objections(fair, memory=0) == ""
    assert objections(fair, memory=10, vcore=-1) == ""


def test_the_leaf_is_sorted_first_in_first_out() -> None:
    assert objections("root.a.b", memory=10) == ""
    assert objections("root.a.b application.sort.policy=stateaware", memory=10) == ""
    assert objections("root.a.b application.sort.policy=fair", memory=10) == (
        "queue root.a.b cannot run application app-1 with task group request: unsupported sort type"
    )


@pytest.mark.parametrize(
    ("queues", "most"),
    [
        ("root.a.b max=memory:9", "map[memory:9]"),
        ("root.a max=memory:9; root.a.b", "map[memory:9]"),
        ("root.a max=memory:9,gpu:4; root.a.b max=memory:20,gpu:5", "map[gpu:4 memory:9]"),
    ],
)
def test_it_fits_what_the_queues_of_the_path_may_ever_have(queues: str, most: str) -> None:
    assert objections(queues, memory=9, vcore=100) == ""
    assert objections(queues, memory=10, vcore=100) == (
        "queue root.a.b cannot fit application app-1: "
        f"task group request map[memory:10 vcore:100] larger than max queue allocation {most}"
    )
