"""The end of a partition that left the configuration."""

from common.rm_messages import NodeRequest, RejectedNode
from partition_worker.engine.auditor import check
from partition_worker.engine.state import Effect
from tests.builders import PARTITION, apps, asks, config, foreign, nodes, released
from tests.trial import Trial, line


def retired(trial: Trial) -> list[str]:
    effects: list[Effect] = trial.partition.retire(trial.now)
    check(trial.partition)
    return [line(effect.part) for effect in effects]


def busy() -> Trial:
    trial = Trial("root.p.a max=memory:4; root.b").does(nodes("n1 memory=10", "n2 memory=10"))
    trial.does(apps("app-1 root.p.a", "app-2 root.b", "app-3 root.b"), foreign("f1 n1 memory=1"))
    return trial.does(asks("app-1 a1 memory=3", "app-1 a2 memory=3"), asks("app-2 b1 memory=1", "app-2 b2 memory=1"))


def test_every_application_fails_and_what_it_had_is_released() -> None:
    trial = busy()
    effects = trial.partition.retire(trial.now)
    assert [line(effect.part) for effect in effects] == [
        "app-1 Failing",
        "app-2 Failing",
        "app-3 Failing",
        *(f"{key} released (STOPPED_BY_RM: Partition {PARTITION} Removed)" for key in ("a1", "b1", "b2")),
    ]
    assert [effect.part.message for effect in effects[:3]] == ["PartitionRemoved"] * 3
    assert {effect.part.partition_name for effect in effects[3:]} == {PARTITION}


def test_nothing_is_left() -> None:
    trial = busy()
    retired(trial)
    partition = trial.partition
    assert not partition.applications
    assert not partition.allocations
    assert not partition.foreign
    assert not partition.running_allocations
    assert (len(partition.nodes), partition.nodes.total) == (0, {})
    assert all(queue.draining for queue in partition.tree)
    trial.waits(60)
    assert [queue.path for queue in partition.tree] == ["root"]


def test_an_application_that_completes_has_completed() -> None:
    trial = busy().does(released("app-1"))
    assert trial.app("app-1").state == "Completing"
    assert "app-1 Completed" in retired(trial)
    assert not trial.partition.applications


def test_nothing_comes_in_any_more_and_who_tries_is_told_why() -> None:
    trial = busy()
    retired(trial)
    trial.told()
    trial.does(apps("app-9 root.b"), nodes("n9 memory=10"), asks("app-1 a9 memory=1"))
    assert trial.told() == [
        f"app-9 rejected: partition {PARTITION} was removed: it cannot add a new application app-9",
        f"node n9 rejected: partition {PARTITION} was removed: it cannot add a new node n9",
        "a9 rejected: failed to find application app-1",
    ]
    assert trial.partition.objections(config()) == [f"partition {PARTITION} was removed"]


def test_a_partition_with_nothing_in_it_goes_without_a_word() -> None:
    assert retired(Trial("root.a")) == []


def test_submissions_whose_user_is_being_looked_up_are_refused() -> None:
    trial = Trial("root.a")
    trial.partition.pending_submissions.put(apps("app-1 root.a user=kim").new[0])
    reason = f"partition {PARTITION} was removed: it cannot add a new application app-1"
    assert retired(trial) == [f"app-1 rejected: {reason}"]
    assert not len(trial.partition.pending_submissions)


def test_a_refused_node_is_a_rejection() -> None:
    trial = Trial("root.a")
    retired(trial)
    (effect,) = trial.partition.apply(NodeRequest(nodes=nodes("n1 memory=1").nodes), trial.now)
    assert isinstance(effect.part, RejectedNode)
