"""What a partition keeps has an end, and the next one hears where it is."""

from dataclasses import replace
from types import ModuleType

import pytest

from tests.builders import apps, asks, nodes, released
from tests.partition_worker.bench import Bench
from tests.trial import Trial
from yunishard.common.messages.query_messages import TOO_LONG, Answer
from yunishard.common.messages.rm_messages import Allocation as Ask
from yunishard.common.messages.rm_messages import AllocationRequest, Refused
from yunishard.partition_worker import queries
from yunishard.partition_worker.engine import application_updates, node_updates, state
from yunishard.partition_worker.engine.queues import tree


@pytest.fixture
def trial() -> Trial:
    one = Trial("root.a")
    one.partition.tuning = replace(one.partition.tuning, asks_max=3)
    return one.does(nodes("n1 memory=10"), apps("app-1 root.a"))


def lowered(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, most: int) -> None:
    monkeypatch.setattr(module, name, most)


def test_one_ask_more_than_the_setting_says_is_rejected_and_a_release_makes_room(trial: Trial) -> None:
    trial.does(asks("app-1 a1 memory=1", "app-1 a2 memory=1", "app-1 a3 memory=100"))
    trial.told()
    trial.does(asks("app-1 a4 memory=1"))
    assert trial.told() == [
        "a4 rejected: the partition has 3 asks and allocations, the setting asks-max allows no more"
    ]
    trial.does(released("app-1 a1"), asks("app-1 a4 memory=1"))
    assert "a4 on n1" in trial.told()


def test_what_is_known_may_be_said_again_and_resized(trial: Trial) -> None:
    trial.does(asks("app-1 a1 memory=1", "app-1 a2 memory=1", "app-1 a3 memory=100"))
    trial.told()
    trial.does(asks("app-1 a3 memory=2"))
    assert trial.told() == ["a3 on n1"]


def test_what_runs_already_and_what_is_foreign_count_too(trial: Trial) -> None:
    foreign = {"allocation_tags": {"foreign": "default"}, "node_id": "n1", "resource_per_alloc": {"memory": 1}}
    trial.does(asks("app-1 a1 memory=1", "app-1 a2 memory=1 on=n1"))
    trial.does(AllocationRequest(allocations=[Ask(allocation_key="f1", **foreign)]))
    trial.told()
    trial.does(asks("app-1 a3 memory=1 on=n1"), AllocationRequest(allocations=[Ask(allocation_key="f2", **foreign)]))
    assert [line.partition(": ")[0] for line in trial.told()] == ["a3 rejected", "f2 rejected"]


def test_what_says_too_much_of_itself_is_rejected(trial: Trial) -> None:
    tags = {"note": "x" * state.TEXT_MAX}
    need = {"memory": 1}
    trial.told()
    trial.does(
        AllocationRequest(
            allocations=[Ask("a1", application_id="app-1", resource_per_alloc=need, allocation_tags=tags)]
        )
    )
    size = state.TEXT_MAX + len("a1" + "app-1" + "note" + "memory")
    told = f"its texts have {size} characters, at most {state.TEXT_MAX} are allowed"
    assert trial.told() == [f"a1 rejected: {told}"]


def test_applications_nodes_and_queues_of_placement_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(monkeypatch, application_updates, "APPLICATIONS_MAX", 1)
    lowered(monkeypatch, node_updates, "NODES_MAX", 1)
    one = Trial("root.a").does(nodes("n1 memory=1", "n2 memory=1"), apps("app-1 root.a", "app-2 root.a"))
    assert [line for line in one.told() if "rejected" in line] == [
        "node n2 rejected: the partition has 1 nodes, it takes no more",
        "app-2 rejected: the partition has 1 applications, it takes no more",
    ]
    lowered(monkeypatch, tree, "QUEUES_MAX", 3)
    with pytest.raises(tree.QueueError, match="there are 2 queues, placement creates none beyond 3"):
        one.partition.tree.create(
            one.partition.tree.plan_creation("root.p.q", one.partition.applications["app-1"].user)
        )


def test_an_update_with_too_many_items_is_refused_as_a_whole_and_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("yunishard.common.messages.rm_messages.UPDATE_ITEMS_MAX", 2)
    bench = Bench()
    bench.furnish()
    need = {"vcore": 1}
    asked = [Ask(key, application_id="a", resource_per_alloc=need) for key in ("k1", "k2", "k3")]
    sends = bench.tell(AllocationRequest(allocations=asked))
    assert [one.header.kind for one in sends] == [Refused.__name__, "Received"]
    assert sends[1].header.ack == bench.seq
    assert bench.worker.partition is not None
    assert not bench.worker.partition.allocations
    bench.tell(AllocationRequest(allocations=asked[:2]))
    assert len(bench.worker.partition.allocations) == 2


def test_a_list_that_would_take_too_long_is_not_begun(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(monkeypatch, queries, "LISTED_MAX", 2)
    lowered(monkeypatch, queries, "WEIGHT_MAX", 3)
    trial.does(asks("app-1 a1 memory=1", "app-1 a2 memory=100", "app-1 a3 memory=100"))
    one = answered(trial, "application", application="app-1")
    assert one.status == 503
    assert one.body.startswith(b"there are 3 asks and allocations, at most 2 are listed at once: ask for ")
    trial.does(apps("app-9 root.a"))
    for what, args in (("applications", {"state": "active"}), ("queue-applications", {"queue": "root.a"})):
        several = answered(trial, what, **args)
        assert several.status == TOO_LONG
        assert several.body.endswith(b"so many are listed at once at most: ask for pages of it with limit")


def answered(trial: Trial, what: str, **args: str) -> Answer:
    return queries.answer_partition_query(trial.partition, "rm-1", queries.Query(what=what, name="default", args=args))
