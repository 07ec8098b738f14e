import doctest
from dataclasses import replace

import pytest

from tests.builders import apps, asks, nodes
from tests.builders import released as releases
from tests.properties.fingerprint import fingerprint
from tests.trial import Trial
from yunishard.common.messages.reasons import Reason
from yunishard.common.rest.explain import CheckView, ExplanationView
from yunishard.partition_worker.engine.explain import causes
from yunishard.partition_worker.engine.explain.explanations import (
    explain_application,
    explain_ask,
    explain_node,
    explain_queue,
)
from yunishard.partition_worker.engine.explain.preemption_checks import check_preemption
from yunishard.partition_worker.engine.state import Tuning

TEN = nodes("n1 memory=10")
A1_ENDS = "wait for a1 of app-1 on n1 to end, or release it: that frees 4 B"


def why(trial: Trial, key: str, stalls: tuple[Reason, ...] = ()) -> ExplanationView:
    ask = trial.partition.allocations[key]
    return explain_ask(trial.partition, trial.app(ask.application_id), ask, trial.now, stalls)


def remedies_of(trial: Trial, key: str) -> list[str]:
    return [one.text for one in why(trial, key).remedies]


def failed(found: ExplanationView) -> list[str]:
    return [one.code for one in found.checks if not one.passed and not one.code.startswith("preemption")]


def test_the_examples_hold() -> None:
    assert doctest.testmod(causes).failed == 0


# The causes -----------------------------------------------------------------------------------------------------------


def test_the_maximum_of_a_queue() -> None:
    trial = Trial("root.a max=vcore:40000").does(nodes("n1 vcore=100000"), apps("app-1 root.a"))
    trial.does(asks("app-1 a1 vcore=38000", "app-1 a2 vcore=4000"))
    found = why(trial, "a2")
    assert found.stopped_by == "queue-maximum"
    assert found.summary == (
        "Waits because root.a may use 40 vcore at most: 38 vcore are used, this ask needs 4 vcore, "
        "so it is short by 2 vcore."
    )
    assert remedies_of(trial, "a2") == [
        "raise the maximum of root.a by 2 vcore",
        "wait for a1 of app-1 on n1 to end, or release it: that frees 38 vcore",
    ]
    assert (found.remedies[0].queue, found.remedies[0].resource, found.remedies[0].amount) == ("root.a", "vcore", 2000)


def test_maximums_of_two_levels_are_raised_together() -> None:
    trial = Trial("root.p max=memory:8; root.p.a max=memory:7").does(TEN, apps("app-1 root.p.a"))
    trial.does(asks("app-1 a1 memory=6", "app-1 a2 memory=4"))
    assert failed(why(trial, "a2")) == ["queue-maximum", "queue-maximum"]
    release, first = why(trial, "a2").remedies
    assert release.code == "release-allocation"
    assert first.text == "raise the maximum of root.p.a by 3 B, and raise the maximum of root.p by 2 B"
    assert [(one.queue, one.amounts) for one in first.changes] == [
        ("root.p.a", {"memory": 3}),
        ("root.p", {"memory": 2}),
    ]


def test_the_limit_of_a_user() -> None:
    trial = Trial("root limit.user.bob=memory:5; root.a").does(TEN, apps("app-1 root.a user=bob"))
    trial.does(asks("app-1 a1 memory=4", "app-1 a2 memory=3"))
    found = why(trial, "a2")
    assert found.stopped_by == "user-limit"
    text = "user bob may use 5 B at most in root: 4 B are used, this ask needs 3 B, so it is short by 2 B"
    assert text in found.summary
    assert remedies_of(trial, "a2") == ["raise the limit of user bob in root by 2 B", A1_ENDS]


def test_the_limit_of_each_user_is_named_as_such() -> None:
    trial = Trial("root limit.user.*=memory:5; root.a").does(TEN, apps("app-1 root.a user=bob"))
    trial.does(asks("app-1 a1 memory=4", "app-1 a2 memory=3"))
    assert remedies_of(trial, "a2") == ["raise the limit of each user in root by 2 B", A1_ENDS]


def test_the_limit_of_a_group() -> None:
    trial = Trial("root.a limit.group.dev=memory:5").does(TEN, apps("app-1 root.a user=bob groups=dev"))
    trial.does(asks("app-1 a1 memory=4", "app-1 a2 memory=3"))
    assert why(trial, "a2").stopped_by == "group-limit"
    assert remedies_of(trial, "a2") == ["raise the limit of group dev in root.a by 2 B", A1_ENDS]


def test_the_application_limit_of_a_queue() -> None:
    trial = Trial("root.a maxapps=1").does(TEN, apps("app-1 root.a", "app-2 root.a"))
    trial.does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    found = why(trial, "b1")
    assert found.stopped_by == "queue-application-limit"
    text = "root.a may run 1 application at a time: 1 is running, so this one has to wait"
    assert found.summary == f"Waits because {text}."
    assert remedies_of(trial, "b1") == [
        "raise the application limit of root.a by 1",
        "wait for app-1 to end, or end it",
    ]


def test_the_application_limit_of_a_user() -> None:
    trial = Trial("root limit.user.*=apps:1; root.a").does(TEN, apps("app-1 root.a", "app-2 root.a"))
    trial.does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    assert why(trial, "b1").stopped_by == "user-application-limit"
    assert remedies_of(trial, "b1") == [
        "raise the application limit of each user in root by 1",
        "wait for app-1 to end, or end it",
    ]


def test_the_application_limit_of_a_group_counts_no_application_of_others() -> None:
    trial = Trial("root.a limit.group.dev=apps:1").does(TEN, apps("app-0 root.a user=eve"))
    trial.does(apps("app-1 root.a groups=dev", "app-2 root.a groups=dev"))
    trial.does(asks("app-0 k1 memory=1"), asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    assert why(trial, "b1").stopped_by == "group-application-limit"
    assert remedies_of(trial, "b1") == [
        "raise the application limit of group dev in root.a by 1",
        "wait for app-1 to end, or end it",
    ]


def test_an_application_that_has_no_account_yet_gets_none() -> None:
    trial = Trial("root limit.user.*=memory:2; root.a").does(TEN, apps("app-1 root.a"))
    trial.takes(asks("app-1 a1 memory=3"))
    assert why(trial, "a1").stopped_by == "user-limit"
    assert trial.partition.usage.accounts == {}


def test_a_cluster_that_is_full() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a", "app-2 root.a"))
    trial.does(asks("app-1 a1 memory=8"), asks("app-2 b1 memory=4"))
    found = why(trial, "b1")
    assert found.stopped_by == "cluster-full"
    assert found.summary.startswith(
        "Waits because the nodes together have 10 B: 8 B are used, this ask needs 4 B, so it is short by 2 B."
    )
    assert remedies_of(trial, "b1") == [
        "wait for a1 of app-1 on n1 to end, or release it: that frees 8 B",
        "enlarge node n1 by 2 B",
        "add a node with 4 B",
    ]


def test_nodes_of_which_none_has_room() -> None:
    trial = Trial().does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a", "app-2 root.a"))
    trial.does(asks("app-1 a1 memory=7", "app-1 a2 memory=6"), asks("app-2 b1 memory=5"))
    found = why(trial, "b1")
    assert found.stopped_by == "no-node-fits"
    assert found.nodes == {"node-full": 2}
    assert [one.shortfall for one in found.nearest] == [1, 2]
    assert "short by 1 B" in found.summary


def test_a_node_that_is_just_large_enough_is_short_by_what_is_used() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a"), asks("app-1 a1 memory=3", "app-1 a2 memory=10"))
    assert [one.text for one in why(trial, "a2").nearest] == ["short by 3 B"]


def test_a_node_that_is_too_small_is_compared_with_its_size() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a", "app-2 root.a"), asks("app-1 a1 memory=3"))
    trial.does(nodes("n2 memory=9"), asks("app-2 b1 memory=14"))
    found = why(trial, "b1")
    assert found.summary == (
        "Waits because no node takes it: both nodes are too small even when empty; "
        "this ask needs 14 B, the nearest, n2, has 9 B in total, short by 5 B even when it is empty."
    )
    assert [one.text for one in found.nearest] == [
        "short by 5 B even when it is empty",
        "short by 4 B even when it is empty, by 7 B now",
    ]
    assert remedies_of(trial, "b1")[:2] == [
        "enlarge node n2 by 5 B",
        "enlarge node n1 by 7 B, or by 4 B once nothing runs there",
    ]


def test_the_only_node_is_named() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a"), asks("app-1 a1 memory=14"))
    texts = [one.text for one in why(trial, "a1").checks]
    assert any("no node takes it: the only node, n1, is too small even when empty" in text for text in texts)


def test_a_drained_node_is_counted_and_named() -> None:
    trial = Trial().does(TEN, nodes("n2 memory=10", action=2), apps("app-1 root.a"))
    trial.does(nodes("n1", action=3), asks("app-1 a1 memory=5"))
    assert why(trial, "a1").nodes.get("node-unschedulable", 0) >= 1


def test_predicates_are_told_apart() -> None:
    trial = Trial().does(
        nodes("n1 memory=10 tag.x=1") if False else nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a")
    )
    trial.does(
        asks(
            "app-1 a1 memory=1 tag.yunishard/nodeSelector=zone=a",
            "app-1 a2 memory=1 tag.yunishard/forbiddenNodes=n1,n2",
        )
    )
    found = why(trial, "a1")
    assert found.nodes == {"node-selector": 2}
    assert found.summary == (
        "Waits because no node takes it: both nodes are without what its node selector demands; "
        "it needs zone=a: n1 has no zone, n2 has no zone."
    )
    assert why(trial, "a2").nodes == {"node-forbidden": 2}
    assert [one.code for one in why(trial, "a2").remedies] == ["add-node"]


def test_an_explanation_of_a_required_node_caches_no_result() -> None:
    trial = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"))
    trial.takes(asks("app-1 a1 memory=1 required=n1 tag.yunishard/nodeSelector=zone=a"))  # not tried yet
    _ = trial.queue("root").entitlements, trial.queue("root.a").entitlements  # computed when they are first read
    before = fingerprint(trial.partition)
    assert why(trial, "a1").stopped_by == "required-node-refuses"
    assert fingerprint(trial.partition) == before


def test_changed_attributes_of_a_node_count_at_once() -> None:
    trial = Trial().does(nodes("n1 memory=10 tag.zone=a", "n2 memory=10"), apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=1 tag.yunishard/nodeSelector=zone=c"))
    assert why(trial, "a1").nodes == {"node-selector": 2}
    trial.does(nodes("n1 tag.zone=c tag.yunishard/taints=gpu:NoSchedule", action=2))
    assert why(trial, "a1").nodes == {"node-selector": 1, "node-taint": 1}


def test_a_required_node_that_is_missing_too_small_or_full() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a", "app-2 root.a"), asks("app-1 a1 memory=8"))
    trial.does(asks("app-2 b1 memory=5 required=n9", "app-2 b2 memory=15 required=n1"))
    assert "required-node-missing" in failed(why(trial, "b1"))
    assert "required-node-too-small" in failed(why(trial, "b2"))
    trial.does(asks("app-2 b3 memory=2 required=n1"))
    trial = Trial().does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=8 required=n1", "app-1 a2 memory=5 required=n1"))
    found = why(trial, "a2")
    assert found.stopped_by == "required-node-full"
    assert "it requires the node n1, which has 2 B left" in found.summary


def test_a_missing_node_that_would_refuse_the_ask_is_not_suggested() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=1 required=n9", "app-1 a2 memory=1 required=n9 tag.yunishard/forbiddenNodes=n9"))
    assert [one.code for one in why(trial, "a1").remedies] == ["add-node"]
    assert why(trial, "a2").stopped_by == "required-node-missing"
    assert why(trial, "a2").remedies == []


def test_a_required_node_that_is_too_small_and_refuses_the_ask_is_not_enlarged() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=11 required=n1", "app-1 a2 memory=11 required=n1 tag.yunishard/forbiddenNodes=n1"))
    assert "grow-node" in [one.code for one in why(trial, "a1").remedies]
    assert {"required-node-too-small", "required-node-refuses"} <= set(failed(why(trial, "a2")))
    assert why(trial, "a2").remedies == []


def test_a_node_that_is_reserved_for_another_ask() -> None:
    trial = Trial().does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a", "app-2 root.a"))
    trial.does(asks("app-1 a1 memory=8", "app-1 a2 memory=8", "app-1 a3 memory=4")).waits(3)
    assert why(trial, "a3").stopped_by == "reserved-node-full"
    assert why(trial, "a3").state == "reserved"
    trial.does(asks("app-2 b1 memory=2"), asks("app-2 b2 memory=2"))
    found = why(trial, "b2")
    assert found.stopped_by == "no-node-fits"
    assert found.nodes == {"node-full": 1, "node-reserved": 1}


def reserving() -> Trial:
    """Two nodes with 4 left, of which one is reserved for an ask; the other one has been filled since."""
    trial = Trial("root.a; root.b").does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a", "app-2 root.b"))
    trial.does(asks("app-1 a1 memory=6 on=n1", "app-1 a2 memory=6 on=n2", "app-2 b1 memory=8")).waits(60)
    return trial.does(asks("app-1 a3 memory=4"))


NAMED = "reserved for ask b1 of app-2, for another 1 h 59 min at most"


def test_an_ask_with_a_reservation_names_the_node_and_when_that_ends() -> None:
    trial = reserving()
    found = why(trial, "b1")
    assert (found.state, found.stopped_by) == ("reserved", "cluster-full")
    assert found.summary.endswith(" n1 is reserved for it, for another 1 h 59 min at most.")
    text = "n1 is reserved for it, for another 1 h 59 min at most, and has 4 B left: this ask needs 8 B"
    assert f"{text}, so it is short by 4 B" in [check.text for check in found.checks]
    [view] = found.reservations
    reservation = trial.app("app-2").reservations["b1"]
    assert (view.node, view.application, view.ask) == ("n1", "app-2", "b1")
    assert view.until == int((reservation.created + 7200) * 1e9)


def test_a_type_of_which_an_ask_wants_nothing_is_not_compared() -> None:
    trial = Trial("root.a max=memory:5,gpu:1").does(TEN, apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=4"), asks("app-1 a2 gpu=0 memory=4"))
    assert [one.resource for one in why(trial, "a2").checks if one.code == "queue-maximum"] == ["memory"]


@pytest.mark.tampers
def test_an_ask_with_a_reservation_may_be_in_a_queue_that_has_become_a_parent() -> None:
    trial = reserving()
    trial.app("app-2").queue.leaf = False
    assert why(trial, "b1").stopped_by == "cluster-full"


def test_of_equal_asks_with_reservations_each_is_told_of_its_own_node() -> None:
    trial = Trial("root.a; root.b").does(nodes(*(f"n{number} memory=10" for number in range(8))))
    trial.does(apps("app-1 root.a", "app-2 root.b"), asks(*(f"app-1 a{number} memory=6" for number in range(8))))
    trial.does(asks("app-2 b1 memory=5", "app-2 b2 memory=5")).waits(3)
    for key in ("b1", "b2"):
        found, node = why(trial, key), trial.app("app-2").reservations[key].node.node_id
        assert found.stopped_by == "reserved-node-full"
        assert found.summary.startswith(f"Waits because {node} is reserved for it")
        assert found.nodes == {"node-full": 7, "node-reserved": 1}


def test_an_ask_that_a_reservation_keeps_from_a_node_names_the_node_the_ask_and_when_that_ends() -> None:
    found = why(reserving().does(asks("app-1 a4 memory=3")), "a4")
    assert found.nodes == {"node-full": 1, "node-reserved": 1}
    assert f"n1 would take it, and is {NAMED}" in found.summary
    assert [(one.node, one.ask, one.text) for one in found.reservations] == [("n1", "b1", NAMED)]
    assert [miss.text for miss in found.nearest if miss.code == "node-reserved"] == [f"it is {NAMED}"]


def test_an_ask_of_higher_priority_is_not_kept_from_a_reserved_node() -> None:
    found = why(reserving().takes(asks("app-1 a4 memory=3 priority=1")), "a4")
    assert (found.stopped_by, found.nodes, found.reservations) == ("not-tried", {"node-fits": 1, "node-full": 1}, [])


def test_an_ask_whose_application_may_reserve_no_more_is_told_so() -> None:
    found = why(reserving().does(asks("app-2 b2 memory=4")).waits(3), "b2")
    assert "its application has 1 node reserved for other asks, as many as it may" in found.summary


def test_a_reserved_node_names_the_ask_and_when_that_ends() -> None:
    trial = reserving()
    found = explain_node(trial.partition, trial.node("n1"), trial.now)
    assert found.stopped_by == "node-reserved"
    assert f"it is {NAMED}" in found.summary
    assert [(one.node, one.ask) for one in found.reservations] == [("n1", "b1")]
    trial.does(releases("app-1 a3"), asks("app-1 d1 memory=5 required=n2 priority=-1"))
    trial.does(asks("app-1 d2 memory=5 required=n2 priority=-1"))
    found = explain_node(trial.partition, trial.node("n2"), trial.now)
    assert "for another 2 h at most, and for 1 other ask that require it" in found.summary
    assert [one.ask for one in found.reservations] == ["d1", "d2"]


def test_the_end_of_a_reservation_follows_from_the_setting() -> None:
    trial = reserving()
    trial.partition.tuning = Tuning(reservation_max_s=600.0)
    assert "for another 9 min" in why(trial, "b1").summary
    assert not trial.waits(600).app("app-2").reservations


def test_a_back_off_with_the_time_left() -> None:
    trial = Trial("root.a application.unschedasks.backoff=1").does(TEN, apps("app-1 root.a", "app-2 root.a"))
    trial.does(nodes("n2 memory=10"), asks("app-1 a1 memory=7", "app-1 a2 memory=7"))
    trial.does(asks("app-1 a3 memory=6", "app-1 a4 memory=1")).waits(1)
    found = why(trial, "a4")
    assert found.stopped_by == "back-off"
    assert "1 ask of the application fitted no node, so it is skipped for 29 s" in found.summary
    assert found.remedies == []  # the ask before it would make the application back off again
    assert why(trial, "a3").remedies[0].text.startswith("wait 29 s, and enlarge node n1")


@pytest.mark.tampers
def test_an_ask_with_a_reservation_waits_for_no_back_off_and_no_turn() -> None:
    trial = reserving()
    application = trial.app("app-2")
    application.back_off_until = trial.now + 9
    application.queue.policies = replace(application.queue.policies, application_sort="stateaware")
    trial.partition.readiness.turns.leaves.clear()
    assert why(trial, "b1").stopped_by == "cluster-full"
    assert not {"back-off", "state-aware-turn"} & {one.code for one in why(trial, "b1").checks}


def test_an_application_with_a_placeholder_counts_already() -> None:
    trial = Trial("root.a maxapps=1").does(TEN, apps("app-1 root.a"))
    trial.does(asks("app-1 p1 memory=5 placeholder group=g", "app-1 p2 memory=50 placeholder group=g"))
    check = next(one for one in why(trial, "p2").checks if one.code == "queue-application-limit")
    assert (check.passed, check.asked, check.shortfall) == (True, 0, 0)
    assert check.text.endswith("1 is running, and this one counts already")


def test_a_back_off_continues_in_a_queue_without() -> None:
    trial = Trial("root.a application.unschedasks.backoff=1; root.b").does(TEN, apps("app-1 root.a"))
    trial.does(nodes("n2 memory=10"), asks("app-1 a1 memory=7", "app-1 a2 memory=7"))
    trial.does(asks("app-1 a3 memory=6", "app-1 a4 memory=1")).moves("app-1", "root.b")
    assert why(trial, "a4").stopped_by == "back-off"


def test_the_turn_in_a_state_aware_queue() -> None:
    trial = Trial("root.a application.sort.policy=stateaware").does(TEN, apps("app-1 root.a", "app-2 root.a"))
    trial.does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    found = why(trial, "b1")
    assert found.stopped_by == "state-aware-turn"
    assert found.remedies[0].text == "wait for app-1 to finish its start, 5 min at the latest"
    trial.does(apps("app-3 root.a"), asks("app-3 c1 memory=1"))
    assert not [text for text in remedies_of(trial, "c1") if text.startswith("wait for app-1")], "app-2 comes first"
    trial.waits(found.remedies[0].seconds)
    assert "b1 on n1" in trial.running


def test_a_gang_that_waits_for_its_placeholders() -> None:
    trial = Trial("root.a max=memory:4").does(TEN, apps("app-1 root.a gang=memory:4"))
    trial.reconfigures("root.a max=memory:3")
    trial.does(asks("app-1 p1 memory=4 group=g placeholder"), asks("app-1 a1 memory=4 group=g"))
    found = why(trial, "a1")
    assert found.stopped_by == "gang-placeholder"
    assert [one.text for one in found.remedies] == ["raise the maximum of root.a by 1 B"]


def test_an_ask_may_wait_for_the_placeholders_of_a_running_gang_to_time_out() -> None:
    trial = Trial("root.a; root.b").does(TEN, apps("gang root.a gang=memory:8", "app-1 root.b"))
    trial.does(asks("gang p1 memory=4 group=g placeholder"), asks("app-1 b1 memory=8"))
    assert [one.code for one in why(trial, "b1").remedies] == ["grow-node", "add-node"]
    trial.does(asks("gang p2 memory=4 group=g placeholder"))
    remedy = why(trial, "b1").remedies[0]
    assert remedy.text == "wait for gang to give up its placeholders, 15 min at the latest"
    trial.waits(remedy.seconds).does(releases("gang p1 type=TIMEOUT", "gang p2 type=TIMEOUT"))
    assert trial.running == ["b1 on n1"]


def test_an_ask_whose_placeholder_leaves() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a gang=memory:4"))
    trial.does(asks("app-1 p1 memory=4 group=g placeholder"), asks("app-1 a1 memory=4 group=g"))
    assert why(trial, "a1").stopped_by == "placeholder-leaving"


def test_a_partition_that_decides_nothing() -> None:
    trial = Trial().takes(TEN, apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    found = why(trial, "a1", (Reason.RM_AWAY,))
    assert found.stopped_by == "rm-away"
    assert found.remedies == []
    assert Trial().takes(apps("app-1 root.a"), asks("app-1 a1 memory=4")).partition.tree.root.maximum is None


def test_an_ask_that_was_not_tried_yet() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a")).takes(asks("app-1 a1 memory=4"))
    found = why(trial, "a1")
    assert (found.stopped_by, found.remedies) == ("not-tried", [])
    assert found.summary == "Passes all checks: it is tried in the next scheduling cycle."


def test_an_ask_that_runs() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    assert why(trial, "a1").summary.startswith("Runs on node n1 since")


# Preemption -----------------------------------------------------------------------------------------------------------


def preemption_of(trial: Trial, key: str) -> tuple[str, str]:
    check = next(one for one in why(trial, key).checks if one.code.startswith("preemption"))
    return check.code, check.text


def preemption_check(trial: Trial, name: str) -> CheckView:
    app = trial.app(name)
    return check_preemption(trial.partition, app, app.asks.first_group, trial.now, nodes_tried=True).check


def test_preemption_without_a_guarantee() -> None:
    trial = Trial("root.a; root.b").does(TEN, apps("app-1 root.a", "app-2 root.b"), asks("app-1 a1 memory=8 victim"))
    trial.does(asks("app-2 b1 memory=5 preemptor"))
    assert not any(one.code.startswith("preemption") for one in why(trial, "b1").checks)  # it is no way out


def test_preemption_that_cannot_help_where_all_nodes_are_too_small() -> None:
    trial = Trial("root.a; root.b guaranteed=memory:6").does(TEN, apps("app-2 root.b"))
    trial.does(asks("app-2 b1 memory=11 preemptor"))
    assert not any(one.code.startswith("preemption") for one in why(trial, "b1").checks)


def test_preemption_that_is_not_tried_because_of_a_limit_of_the_user() -> None:
    trial = Trial("root.a; root.b guaranteed=memory:6 limit.user.bob=memory:4")
    trial.does(TEN, apps("app-1 root.a", "app-2 root.b user=bob"), asks("app-1 a1 memory=8 victim"))
    trial.does(asks("app-2 b1 memory=5 preemptor"))
    assert failed(why(trial, "b1")) == ["user-limit", "cluster-full", "no-node-fits"]
    assert not any(one.code.startswith("preemption") for one in why(trial, "b1").checks)


def test_preemption_that_has_to_wait_for_its_delay() -> None:
    trial = Trial("root.a; root.b guaranteed=memory:6 preemption.delay=20s")
    trial.does(TEN, apps("app-1 root.a", "app-2 root.b"), asks("app-1 a1 memory=4 victim"))
    trial.does(asks("app-1 a2 memory=4 victim"), asks("app-2 b1 memory=5 preemptor"))
    code, text = preemption_of(trial, "b1")
    assert code == "preemption-delay"
    assert "may preempt others after 20 s" in text
    waits = next(one for one in why(trial, "b1").remedies if one.code == "wait")
    assert waits.text == "wait 20 s: then it may preempt 2 allocations on n1"
    trial.waits(waits.seconds)
    assert any("a1 released (PREEMPTED_BY_SCHEDULER" in text for text in trial.told())
    assert why(trial, "b1").stopped_by in ("victims-leaving", "cluster-full")


def test_an_ask_whose_victims_leave_says_until_when_it_waits_for_them() -> None:
    trial = Trial("root.p max=memory:10; root.p.a; root.p.b guaranteed=memory:6 preemption.delay=1s")
    trial.does(nodes("n1 memory=12"), apps("app-1 root.p.a", "app-2 root.p.b"))
    trial.does(asks("app-1 a1 memory=4 victim", "app-1 a2 memory=6 victim"))
    trial.does(asks("app-2 b1 memory=5 preemptor")).waits(101)
    found = why(trial, "b1")
    texts = [one.text for one in found.checks if one.code == "victims-leaving"]
    assert texts == [
        "the RM has not released 1 allocation on n1, preempted for it; in 8 min 20 s it may preempt others"
    ]
    outlook = preemption_check(trial, "app-2")
    assert outlook.code == "preemption-triggered"
    assert outlook.text.endswith("if their room is lost, or not free in 8 min 20 s, it may again")


def test_preemption_where_all_victims_are_within_their_guarantee() -> None:
    trial = Trial("root.a guaranteed=memory:9; root.b guaranteed=memory:6 preemption.delay=1s")
    trial.does(TEN, apps("app-1 root.a", "app-2 root.b"), asks("app-1 a1 memory=8 victim"))
    trial.does(asks("app-2 b1 memory=5 preemptor")).waits(2)
    code, text = preemption_of(trial, "b1")
    assert code == "preemption-within-guarantee"
    assert text == "none of 1 allocations may be preempted for it: 1 are in queues within their guarantee"


def test_preemption_beyond_a_fence() -> None:
    trial = Trial("root.a; root.p preemption.policy=fence; root.p.b guaranteed=memory:6 preemption.delay=1s")
    trial.does(TEN, apps("app-1 root.a", "app-2 root.p.b"), asks("app-1 a1 memory=8 victim"))
    trial.does(asks("app-2 b1 memory=5 preemptor")).waits(2)
    assert preemption_of(trial, "b1")[0] == "preemption-fence"


def test_preemption_names_the_candidates_that_are_too_large() -> None:
    """What its parent is guaranteed is used up by another queue, which has more than its own part of it."""
    queues = "root.p guaranteed=memory:10; root.p.q guaranteed=memory:1; root.p.q.b preemption.delay=1s"
    trial = Trial(f"{queues}; root.p.a guaranteed=memory:2")
    trial.does(TEN, apps("app-1 root.p.a", "app-2 root.p.q.b"))
    trial.does(asks(*(f"app-1 a{number} memory=2 victim" for number in range(5))))
    trial.does(asks("app-2 b1 memory=1 preemptor")).waits(2)
    code, text = preemption_of(trial, "b1")
    assert code == "preemption-too-little"
    assert text.endswith(
        "might be preempted, but those of one node free too little without those that are larger than the remaining "
        "guarantee of root.p.q.b (a4, a3, a2 and 2 more)"
    )


@pytest.mark.tampers
def test_preemption_from_a_queue_that_a_cooldown_protects() -> None:
    trial = Trial("root.a; root.b guaranteed=memory:6 preemption.delay=1s")
    trial.does(TEN, apps("app-1 root.a", "app-2 root.b"), asks("app-1 a1 memory=8 victim"))
    trial.partition.preemptions.cooldowns.record_win("root.a", "root.b", trial.now, first_s=90.0, again_s=300.0)
    trial.does(asks("app-2 b1 memory=5 preemptor")).waits(2)
    code, text = preemption_of(trial, "b1")
    assert code == "preemption-cooldown"
    assert text.endswith("preempted from this one a short while ago; the first cooldown ends in 1 min 28 s")


def test_preemption_of_higher_priorities_and_disabled_queues() -> None:
    for queue, ask, code in (
        ("root.a", "app-1 a1 memory=8 victim priority=5", "preemption-priority"),
        ("root.a preemption.policy=disabled", "app-1 a1 memory=8 victim", "preemption-disabled"),
    ):
        trial = Trial(f"{queue}; root.b guaranteed=memory:6 preemption.delay=1s priority.offset=0")
        trial.does(TEN, apps("app-1 root.a", "app-2 root.b"), asks(ask))
        trial.does(asks("app-2 b1 memory=5 preemptor")).waits(2)
        assert preemption_of(trial, "b1")[0] == code


# Order ----------------------------------------------------------------------------------------------------------------


def test_queues_applications_and_asks_that_come_first_are_listed() -> None:
    trial = Trial("root.a max=memory:1; root.b max=memory:1").takes(
        TEN, apps("app-1 root.a", "app-2 root.a", "app-3 root.b")
    )
    trial.does(asks("app-1 a1 memory=2"), asks("app-2 b1 memory=2", "app-2 b2 memory=3"), asks("app-3 c1 memory=9"))
    texts = [one.text for one in why(trial, "b2").ahead]
    assert any("app-1 has 1 ask for" in text and "it also waits" in text for text in texts)
    assert any("1 earlier or more important ask of the application itself" in text for text in texts)


@pytest.mark.parametrize(
    ("policy", "priority", "reason"),
    [
        ("", 3, " of priority 3;"),
        ("", 0, ", and was submitted before;"),
        ("application.sort.policy=fair", 0, ", and uses less;"),
        ("application.sort.priority=disabled", 3, ", and was submitted before;"),
    ],
)
def test_an_application_ahead_is_named_with_the_reason(policy: str, priority: int, reason: str) -> None:
    trial = Trial(f"root.a max=memory:1 {policy}").takes(TEN, apps("app-1 root.a", "app-2 root.a"))
    trial.does(asks(f"app-1 a1 memory=2 priority={priority}"), asks("app-2 b1 memory=2"))
    assert reason in why(trial, "b1").ahead[0].text


# Applications, queues and nodes ---------------------------------------------------------------------------------------


def waiting() -> Trial:
    trial = Trial("root.a max=memory:6; root.b").does(TEN, apps("app-1 root.a", "app-2 root.a", "app-3 root.b"))
    trial.does(asks("app-1 a1 memory=5", "app-1 a2 memory=2", "app-1 a3 memory=2"), asks("app-2 b1 memory=3"))
    return trial.does(asks("app-3 c1 memory=6")).waits(10)


def test_only_those_who_compete_for_what_is_missing_are_ahead() -> None:
    trial = Trial("root.a limit.user.bob=memory:3; root.b").takes(TEN, apps("app-1 root.a user=ann"))
    trial.takes(apps("app-2 root.a user=bob", "app-3 root.a user=bob"))
    trial.takes(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=4"), asks("app-3 c1 memory=5"))
    found = why(trial, "c1")
    assert found.stopped_by == "user-limit"
    assert [one.application for one in found.ahead] == ["app-2"]


def test_an_application_explains_each_group_of_equal_asks() -> None:
    trial = waiting()
    found = explain_application(trial.partition, trial.app("app-1"), trial.now)
    assert found.reasons == {"queue-maximum": 2}
    assert [(one.name, one.count) for one in found.asks] == [("a2", 2)]
    assert found.summary.startswith("2 asks wait. The first, a2, waits because root.a may use 6 B at most")


def test_an_application_without_asks_waits_for_nothing() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a"), asks("app-1 a1 memory=5"))
    found = explain_application(trial.partition, trial.app("app-1"), trial.now)
    assert (found.stopped_by, found.summary) == ("", "Nothing waits: 1 allocations, and no ask is pending.")


def test_a_queue_counts_reasons_and_names_the_longest_wait() -> None:
    trial = waiting()
    found = explain_queue(trial.partition, trial.queue("root"), trial.now)
    assert found.reasons == {"cluster-full": 1, "queue-maximum": 3}
    assert found.stopped_by == "queue-maximum"
    assert found.summary.startswith("4 asks of 3 applications wait below root. 3 of them: ")
    assert "a2, for 10 s" in found.summary


def test_a_node_names_what_it_has_left_and_why_asks_do_not_fit() -> None:
    trial = waiting()
    found = explain_node(trial.partition, trial.node("n1"), trial.now)
    assert found.summary.startswith("n1 has 5 B left. Of the asks that wait, 3 of 4: ")
    assert found.reasons == {"node-full": 1, "queue-maximum": 3}


def test_a_node_on_which_all_asks_wait_for_the_same_counts_them_once() -> None:
    trial = Trial().does(TEN, apps("app-1 root.a"), asks("app-1 a1 memory=6", "app-1 a2 memory=6", "app-1 a3 memory=6"))
    found = explain_node(trial.partition, trial.node("n1"), trial.now)
    assert found.summary.startswith("n1 has 4 B left. Of the asks that wait, 2: ")


def test_a_node_on_which_nothing_waits() -> None:
    trial = Trial().does(TEN)
    found = explain_node(trial.partition, trial.node("n1"), trial.now)
    assert found.summary == "n1 has 10 B left. No ask waits that might run on it."


def test_an_explanation_follows_the_state() -> None:
    trial = Trial("root.a max=memory:6").does(TEN, apps("app-1 root.a"), asks("app-1 a1 memory=5", "app-1 a2 memory=2"))
    assert why(trial, "a2").stopped_by == "queue-maximum"
    trial.does(releases("app-1 a1"))
    assert why(trial, "a2").state == "allocated"
