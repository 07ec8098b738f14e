"""An RM reports everything anew: what is known stays, what is not mentioned goes, and nothing is placed meanwhile."""

import pytest

from tests.builders import apps, asks, both, foreign, nodes, released
from tests.trial import Trial
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.rm_messages import NODE_CREATE_DRAIN, SyncBegin, SyncEnd
from yunishard.partition_worker.engine.resync import REPORT_MAX_S

NODES = nodes("n1 memory=10", "n2 memory=10")
BEGIN = SyncBegin(reason="a test")


@pytest.fixture
def trial() -> Trial:
    trial = Trial("root.a; root.b").does(NODES, apps("app-1 root.a", "app-2 root.b"), foreign("f1 n1 memory=1"))
    trial.does(asks("app-1 a1 memory=3", "app-1 a2 memory=30", "app-2 b1 memory=4"))
    trial.told()
    return trial


def told(trial: Trial, *commands: Command) -> list[str]:
    """What is told because of these, without what only people hear."""
    trial.told()
    trial.does(*commands)
    return [line for line in trial.told() if not line.startswith("note: ")]


def end(of_nodes: int, of_applications: int, of_allocations: int) -> SyncEnd:
    return SyncEnd(nodes=of_nodes, applications=of_applications, allocations=of_allocations)


def everything() -> tuple[Command, ...]:
    running = asks("app-1 a1 memory=3 on=n1", "app-1 a2 memory=30", "app-2 b1 memory=4 on=n2")
    return NODES, apps("app-1 root.a", "app-2 root.b"), both(running, foreign("f1 n1 memory=1"))


def test_a_report_of_what_is_there_changes_nothing(trial: Trial) -> None:
    before = trial.running
    lines = told(trial, BEGIN, *everything(), end(2, 2, 4))
    assert lines == [
        "node n1 accepted",
        "node n2 accepted",
        "app-1 accepted",
        "app-2 accepted",
        "in sync without loss",
    ]
    assert trial.running == before == ["a1 on n1", "b1 on n2"]


def test_nothing_is_placed_before_the_report_is_complete(trial: Trial) -> None:
    assert told(trial, BEGIN, *everything(), asks("app-1 a3 memory=1"))[-1] == "app-2 accepted"
    trial.waits(60)
    assert "a3 on n2" not in trial.told()
    assert [one for one in told(trial, end(2, 2, 5)) if " on " in one] == ["a3 on n1"]


def test_a_report_without_updates_is_given_up(trial: Trial) -> None:
    told(trial, BEGIN, NODES)
    trial.waits(REPORT_MAX_S - 1)
    told(trial, apps("app-1 root.a"), asks("app-1 a3 memory=1"))
    trial.waits(REPORT_MAX_S - 1)
    assert not [line for line in trial.told() if " on " in line or "sync" in line]
    trial.waits(2)
    lines = [line for line in trial.told() if not line.startswith("note: ")]
    assert lines == ["not in sync: the report is given up, as it had no update for 600 s", "a3 on n1"]
    assert told(trial, end(2, 1, 1)) == ["not in sync: there was no SyncBegin"]
    assert trial.running == ["a1 on n1", "a3 on n1", "b1 on n2"]


def test_an_empty_partition_takes_the_whole_report() -> None:
    trial = Trial("root.a; root.b")
    lines = told(trial, BEGIN, *everything(), end(2, 2, 4))
    assert lines[-1] == "in sync without loss"
    assert trial.running == ["a1 on n1", "b1 on n2"]


def test_an_allocation_that_is_not_mentioned_is_gone_and_only_the_list_says_so(trial: Trial) -> None:
    lines = told(trial, BEGIN, NODES, apps("app-1 root.a", "app-2 root.b"), asks("app-1 a2 memory=30"), end(2, 2, 1))
    assert "in sync without f1 a1 b1" in lines
    assert not [line for line in lines if "released" in line]
    assert trial.running == []
    assert "app-2 Completing" in lines


def test_an_application_that_is_not_mentioned_goes_with_all_it_had(trial: Trial) -> None:
    running = asks("app-1 a1 memory=3 on=n1", "app-1 a2 memory=30")
    lines = told(trial, BEGIN, NODES, apps("app-1 root.a"), both(running, foreign("f1 n1 memory=1")), end(2, 1, 3))
    assert lines[-1] == "in sync without app-2 b1"
    assert not [line for line in lines if line.startswith("app-2")]
    assert list(trial.partition.applications) == ["app-1"]


def test_a_node_that_is_not_mentioned_goes(trial: Trial) -> None:
    running = both(asks("app-1 a1 memory=3 on=n1", "app-1 a2 memory=30"), foreign("f1 n1 memory=1"))
    lines = told(trial, BEGIN, nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.b"), running, end(1, 2, 3))
    assert "in sync without n2 b1" in lines
    assert [node.node_id for node in trial.partition.nodes] == ["n1"]


def test_what_runs_on_a_node_that_is_not_mentioned_is_released_as_if_the_node_went(trial: Trial) -> None:
    reported = both(
        asks("app-1 a1 memory=3 on=n1", "app-1 a2 memory=30", "app-2 b1 memory=4 on=n2"), foreign("f1 n1 memory=1")
    )
    lines = told(trial, BEGIN, nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.b"), reported, end(1, 2, 4))
    assert "b1 released (STOPPED_BY_RM: Node n2 Removed)" in lines


def test_nothing_goes_when_the_numbers_do_not_agree(trial: Trial) -> None:
    before = trial.running
    lines = told(trial, BEGIN, NODES, apps("app-1 root.a"), end(2, 2, 0))
    assert lines[-1] == "not in sync: 1 of 2 applications came"
    assert trial.running == before
    assert told(trial, asks("app-2 b2 memory=1")) == []  # still nothing is placed
    assert told(trial, BEGIN, *everything(), asks("app-2 b2 memory=1"), end(2, 2, 5))[-2:] == [
        "in sync without loss",
        "b2 on n1",
    ]


def test_an_end_without_a_beginning_removes_nothing(trial: Trial) -> None:
    assert told(trial, end(0, 0, 0)) == ["not in sync: there was no SyncBegin"]
    assert trial.running == ["a1 on n1", "b1 on n2"]


def test_a_node_is_as_it_is_reported(trial: Trial) -> None:
    trial.does(BEGIN, nodes("n1 memory=20", action=NODE_CREATE_DRAIN))
    assert trial.node("n1").capacity == {"memory": 20}
    assert not trial.node("n1").schedulable


def test_an_application_of_another_user_is_another_application(trial: Trial) -> None:
    lines = told(trial, BEGIN, apps("app-1 root.a user=eve"))
    assert lines[0].startswith("app-1 rejected: adding application app-1")


def test_what_the_rm_still_asks_for_is_told_its_node_again(trial: Trial) -> None:
    assert told(trial, BEGIN, asks("app-1 a1 memory=3")) == ["a1 on n1"]


def test_what_runs_elsewhere_runs_where_the_rm_says(trial: Trial) -> None:
    assert told(trial, BEGIN, asks("app-1 a1 memory=3 on=n2"))[-1] == "a1 on n2"
    assert "a1 on n2" in trial.running
    assert trial.node("n1").allocated == {}


def test_a_release_during_the_report_counts(trial: Trial) -> None:
    lines = told(trial, BEGIN, *everything(), released("app-1 a1"), end(2, 2, 4))
    assert lines[-1] == "in sync without loss"
    assert trial.running == ["b1 on n2"]


def test_a_second_beginning_forgets_the_first(trial: Trial) -> None:
    lines = told(trial, BEGIN, nodes("n1 memory=10"), BEGIN, *everything(), end(2, 2, 4))
    assert lines[-1] == "in sync without loss"


def test_the_reported_attributes_of_a_node_replace_those_it_had() -> None:
    one = Trial().does(nodes("n1 memory=10 tag.zone=a", "n2 memory=10 tag.zone=a"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=3 tag.yunishard/nodeSelector=zone=b"))
    waiting = asks("app-1 a1 memory=3 tag.yunishard/nodeSelector=zone=b")
    one.does(BEGIN, nodes("n1 memory=10 tag.zone=b", "n2 memory=10"), apps("app-1 root.a"), waiting, end(2, 1, 1))
    assert one.running == ["a1 on n1"]
    assert "zone" not in one.node("n2").attributes, "it was reported without attributes"
