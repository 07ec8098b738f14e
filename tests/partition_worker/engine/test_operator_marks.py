"""Operators stop and start queues, and cordon, uncordon and drain nodes."""

import pytest

from tests.builders import PARTITION, PROVIDED_CREATE, apps, asks, config, nodes, released
from tests.trial import START_S, Trial
from yunishard.common.messages.query_messages import Actor
from yunishard.common.messages.rm_messages import NODE_DECOMMISSION, NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE
from yunishard.partition_worker.engine import operator_marks
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.nodes import nodes as nodes_module
from yunishard.partition_worker.engine.operator_marks import REASON_MAX, NodeCounts, count_on_node
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.state import DEFAULT

ANN = Actor(user="ann")


def trial(queues: str = "root.a; root.p.b; root.c", *, memory: int = 10) -> Trial:
    """app-1 in root.a, app-2 in root.p.b; nothing runs."""
    one = Trial(queues, rules=(PROVIDED_CREATE,))
    one.does(nodes(f"n1 memory={memory}"), apps("app-1 root.a", "app-2 root.p.b"))
    one.told()
    return one


def refused(one: Trial, status: int, action: str, name: str, **more: object) -> str:
    """The reason; nothing has changed."""
    stops, cordons = dict(one.partition.tree.stops), dict(one.partition.nodes.cordons)
    with pytest.raises(NotDone) as caught:
        getattr(one, action)(name, **more)
    assert caught.value.status == status
    assert (one.told(), one.partition.tree.stops, one.partition.nodes.cordons) == ([], stops, cordons)
    return str(caught.value)


# Queues -------------------------------------------------------------------------------------------------------------


def test_what_runs_in_a_stopped_queue_continues_and_its_asks_wait_until_it_is_started() -> None:
    one = trial().does(asks("app-1 a1 memory=1")).stops("root.a")
    one.does(asks("app-1 a2 memory=1"), asks("app-2 b1 memory=1"))
    assert one.running == ["a1 on n1", "b1 on n1"]
    assert (one.queue("root.a").status, one.queue("root.p.b").status) == ("Stopped", "Active")
    one.starts("root.a")
    assert one.running == ["a1 on n1", "a2 on n1", "b1 on n1"]
    assert one.queue("root.a").status == "Active"


@pytest.mark.parametrize("path", ["root", "root.p", "root.p.b"])
def test_a_stop_holds_for_all_queues_below(path: str) -> None:
    one = trial().stops(path).does(asks("app-2 b1 memory=1"), apps("app-3 root.p.b"))
    reason = f"application rejected: no placement rule matched: queue {path} is stopped by an operator"
    assert f"app-3 rejected: failed to place application app-3: {reason}" in one.told()
    assert one.running == []
    one.starts(path).does(apps("app-3 root.p.b"), asks("app-3 b2 memory=1"))
    assert one.running == ["b1 on n1", "b2 on n1"]


def test_a_queue_is_still_stopped_by_one_above_it() -> None:
    one = trial().stops("root.p").stops("root.p.b").starts("root.p.b").does(asks("app-2 b1 memory=1"))
    assert one.running == []
    stopped = one.queue("root.p.b").find_stopped()
    assert stopped is one.queue("root.p")


def test_a_queue_that_a_stop_would_create_or_receive_gets_nothing() -> None:
    one = trial().stops("root.p").does(apps("app-3 root.p.new"))
    assert one.partition.tree.find("root.p.new") is None
    with pytest.raises(NotDone, match=r"queue root\.p is stopped, only an active queue takes applications"):
        one.moves("app-1", "root.p.b")


def test_what_probably_runs_already_is_accepted_in_a_stopped_queue() -> None:
    one = trial().stops("root.a").does(apps("app-3 root.a tag.application.create.force=true"))
    assert one.app("app-3").queue.path == "root.a"
    one.does(asks("app-3 r1 memory=1 on=n1"), asks("app-3 r2 memory=1"))
    assert one.running == ["r1 on n1"]


def reserving() -> tuple[Trial, str]:
    """a1 and a2 fill two nodes so far that b1 of app-2 reserved one of them, the second value."""
    one = trial().does(nodes("n2 memory=10"), asks("app-1 a1 memory=6", "app-1 a2 memory=6"))
    one.does(asks("app-2 b1 memory=8")).waits(5)
    (kept,) = [name for name in ("n1", "n2") if "b1" in one.node(name).reservations]
    return one, kept


def test_the_nodes_that_a_stopped_queue_has_reserved_are_free_for_others() -> None:
    one, kept = reserving()
    one.stops("root.p.b")
    assert not one.node(kept).reservations
    one.does(released("app-1 a1"), released("app-1 a2")).waits(10)
    assert one.running == []
    one.starts("root.p.b")
    assert [text.split()[0] for text in one.running] == ["b1"]


def test_placeholders_in_a_stopped_queue_are_not_replaced() -> None:
    one = Trial("root.a").does(nodes("n1 memory=10"), apps("app-1 root.a gang=memory:3"))
    one.does(asks("app-1 p1 memory=3 placeholder group=g")).stops("root.a")
    one.told()
    one.does(asks("app-1 a1 memory=3 group=g"))
    assert one.told() == []
    one.starts("root.a")
    assert any("p1 released (PLACEHOLDER_REPLACED" in text for text in one.told())


def test_asks_in_a_stopped_queue_are_no_reason_for_a_larger_cluster() -> None:
    one = trial().does(asks("app-1 a1 memory=20")).stops("root.a").waits(5)
    assert one.scale_ups() == []
    one.starts("root.a").waits(5)
    assert one.scale_ups() == ["a1"]


def test_a_stop_outlasts_other_configurations_and_a_queue_that_was_left_out() -> None:
    one = trial().stops("root.c").reconfigures("root.a max=memory:5; root.p.b; root.c max=memory:3")
    assert one.queue("root.c").status == "Stopped"
    one.does(apps("app-3 root.a")).reconfigures("root.a; root.p.b").waits(30)
    assert one.partition.tree.find("root.c") is None
    one.reconfigures("root.a; root.p.b; root.c")
    assert one.queue("root.c").status == "Stopped"


def test_a_draining_queue_cannot_be_stopped_and_a_stopped_one_drains() -> None:
    one = trial().stops("root.a").reconfigures("root.p.b")
    assert one.queue("root.a").status == "Draining"
    one.does(asks("app-1 a1 memory=1"))
    assert one.running == []
    one.starts("root.a")
    one.told()
    assert one.running == ["a1 on n1"]
    assert refused(one, 409, "stops", "root.a") == (
        "queue root.a is draining: it takes no applications, and ends once it is empty"
    )


def test_a_dynamic_queue_stays_while_it_is_stopped() -> None:
    one = trial().does(apps("app-3 root.p.new")).stops("root.p.new")
    one.does(released("app-3")).waits(1)
    one.kills("app-3").waits(30)
    assert one.queue("root.p.new").status == "Stopped"
    one.starts("root.p.new").waits(30)
    assert one.partition.tree.find("root.p.new") is None


def test_who_stopped_a_queue_is_told_to_operators_and_the_rm() -> None:
    one = trial("root adminacl=ann; root.a; root.p.b").stops("ROOT.A", "migration", by=ANN)
    assert one.told() == [
        "note: queue root.a was stopped by ann: migration",
        "event about root.a: queue root.a was stopped by ann: migration",
    ]
    mark = one.queue("root.a").stop
    assert mark is not None
    assert (mark.user, mark.reason, mark.at_ns // 10**9) == ("ann", "migration", int(START_S))
    assert one.starts("root.a").told()[0] == "note: queue root.a was started by op"
    assert one.starts("root.a").told() == []


def test_a_stop_needs_an_existing_queue_that_the_user_administers() -> None:
    one = trial("root.a adminacl=ann; root.p.b")
    assert refused(one, 404, "stops", "root.x") == "queue root.x does not exist"
    assert "user ann does not administer queue root.p.b" in refused(one, 403, "stops", "root.p.b", by=ANN)
    assert "user ann does not administer queue root.p.b" in refused(one, 403, "starts", "root.p.b", by=ANN)
    one.stops("root.a", by=ANN)


def test_the_recovery_queue_cannot_be_stopped() -> None:
    one = Trial("root.a").does(apps("app-1 root.x tag.application.create.force=true"))
    one.told()
    assert "cannot be stopped" in refused(one, 400, "stops", "root.@recovery@")


def test_the_reason_and_the_number_of_marks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trial().does(nodes("n2 memory=10"))
    one.told()
    text = f"the reason has {REASON_MAX + 1} characters, at most {REASON_MAX} are allowed"
    assert refused(one, 400, "stops", "root.a", reason="x" * (REASON_MAX + 1)) == text
    assert refused(one, 400, "cordons", "n1", reason="x" * (REASON_MAX + 1)) == text
    one.stops("root.a", "x" * REASON_MAX).cordons("n1")
    one.told()
    monkeypatch.setattr(operator_marks, "STOPS_MAX", 1)
    monkeypatch.setattr(operator_marks, "CORDONS_MAX", 1)
    assert "has 1 stopped queues" in refused(one, 409, "stops", "root.c")
    assert "has 1 cordoned nodes" in refused(one, 409, "cordons", "n2")
    one.stops("root.a", "again").cordons("n1", "again")
    assert nodes_module.CORDONS_MAX > 1


# Nodes --------------------------------------------------------------------------------------------------------------


def test_a_cordoned_node_takes_nothing_new_until_it_is_uncordoned() -> None:
    one = trial().does(asks("app-1 a1 memory=1")).cordons("n1").does(asks("app-1 a2 memory=1"))
    assert one.running == ["a1 on n1"]
    assert one.uncordons("n1").running == ["a1 on n1", "a2 on n1"]


def test_a_node_is_open_if_neither_the_rm_nor_an_operator_says_no() -> None:
    one = trial().cordons("n1").does(nodes("n1", action=NODE_DRAIN)).uncordons("n1").does(asks("app-1 a1 memory=1"))
    assert one.running == []
    one.cordons("n1").does(nodes("n1", action=NODE_DRAIN_TO_SCHEDULABLE))
    assert one.running == []
    assert one.uncordons("n1").running == ["a1 on n1"]


def test_a_cordon_outlasts_the_node() -> None:
    one = trial().cordons("n1").does(nodes("n1", action=NODE_DECOMMISSION), nodes("n1 memory=10"))
    assert one.does(asks("app-1 a1 memory=1")).running == []
    one.does(nodes("n1", action=NODE_DECOMMISSION)).uncordons("n1").does(nodes("n1 memory=10"))
    assert one.running == ["a1 on n1"]


def test_a_reservation_of_a_cordoned_node_ends_unless_the_ask_requires_the_node() -> None:
    one, kept = reserving()
    other, running = "n2" if kept == "n1" else "n1", len(one.running)
    one.cordons(kept)
    assert not one.node(kept).reservations
    assert list(one.waits(5).node(other).reservations) == ["b1"], "the other node is reserved in its place"
    one.does(asks(f"app-1 d1 memory=1 required={kept}"), asks(f"app-1 d2 memory=7 required={kept}"))
    assert f"d1 on {kept}" in one.running
    assert list(one.node(kept).reservations) == ["d2"]
    assert len(one.running) == running + 1


def test_who_cordoned_a_node_is_told_to_operators_and_the_rm() -> None:
    one = trial().cordons("n1", "bad disk")
    assert one.told() == [
        "note: node n1 was cordoned by op: bad disk",
        "event about n1: node n1 was cordoned by op: bad disk",
    ]
    mark = one.node("n1").cordon
    assert mark is not None
    assert (mark.user, mark.reason) == ("op", "bad disk")
    assert one.uncordons("n1").told()[0] == "note: node n1 was uncordoned by op"
    assert one.uncordons("n1").told() == []


def test_an_unknown_node_is_neither_cordoned_nor_uncordoned() -> None:
    one = trial()
    for action in ("cordons", "uncordons", "drains"):
        assert refused(one, 404, action, "n9") == f"node n9 does not exist in partition {PARTITION}"


def test_a_drain_asks_the_rm_to_release_what_runs_there_but_not_what_requires_the_node() -> None:
    one = trial().does(nodes("n2 memory=10"), asks("app-1 a1 memory=8"), asks("app-2 b1 memory=8"))
    one.does(asks("app-1 d1 memory=1 required=n1"))
    one.told()
    on_n1 = next(text.split()[0] for text in one.running if text.endswith("n1") and not text.startswith("d1"))
    one.drains("n1", "new kernel")
    told = one.told()
    assert f"{on_n1} released (PREEMPTED_BY_SCHEDULER: node n1 is drained by op: new kernel)" in told
    assert not any(text.startswith("d1 released") for text in told)
    assert count_on_node(one.node("n1")) == NodeCounts(running=0, leaving=1, required=1, foreign=0)
    assert not any("released" in text for text in one.drains("n1").told())
    app = one.partition.allocations[on_n1].application_id
    one.does(released(f"{app} {on_n1} type=PREEMPTED_BY_SCHEDULER"))
    assert count_on_node(one.node("n1")) == NodeCounts(required=1)


def test_an_ask_that_would_replace_a_placeholder_on_a_drained_node_waits_again() -> None:
    one = Trial("root.a").does(nodes("n1 memory=10"), apps("app-1 root.a gang=memory:3"))
    one.does(asks("app-1 p1 memory=3 placeholder group=g"), asks("app-1 a1 memory=3 group=g"))
    assert "a1" in one.app("app-1").swapping
    one.drains("n1")
    assert not one.app("app-1").swapping
    one.does(released("app-1 p1 type=PLACEHOLDER_REPLACED"))
    assert one.running == []
    one.does(nodes("n2 memory=10"))
    assert one.running == ["a1 on n2"]


def test_a_repeated_drain_asks_for_what_came_since() -> None:
    one = trial().drains("n1").does(asks("app-1 a1 memory=1 on=n1"))
    assert count_on_node(one.node("n1")).running == 1
    one.told()
    assert any(text.startswith("a1 released") for text in one.drains("n1").told())


@pytest.mark.tampers
def test_a_new_session_inherits_the_marks() -> None:
    one = trial().stops("root.p").cordons("n1")
    new = Trial("root.a; root.p.b")
    new.partition = Partition(config("root.a; root.p.b"), name=PARTITION, now=START_S, tuning=DEFAULT)
    new.partition.inherit_marks(one.partition)
    new.does(nodes("n1 memory=10"), nodes("n2 memory=10"), apps("app-1 root.a", "app-2 root.p.b"))
    assert new.queue("root.p").status == "Stopped"
    assert new.does(asks("app-1 a1 memory=1")).running == ["a1 on n2"]


def test_the_stop_of_a_dynamic_queue_that_is_gone_can_be_ended() -> None:
    one = trial().does(apps("app-3 root.p.new")).stops("root.p.new")
    new = Trial("root.a; root.p.b")
    new.partition.inherit_marks(one.partition)
    new.stops("root.a")
    assert set(new.partition.tree.stops) == {"root.a", "root.p.new"}
    new.starts("root.p.new")
    assert set(new.partition.tree.stops) == {"root.a"}
