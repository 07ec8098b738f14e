"""Allocation updates: asks, allocations, releases, removal, and predicate answers."""

import pytest

from tests.builders import apps, asks, both, foreign, nodes, released
from tests.partition_worker.engine.predicates.plugins import Broken, Rack
from tests.trial import Trial
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.rm_messages import Allocation, AllocationRequest, RejectedAllocation
from yunishard.partition_worker.engine import amounts
from yunishard.partition_worker.engine.allocation_updates import end_allocation, remove_everything, withdraw_ask
from yunishard.partition_worker.engine.application import AppState
from yunishard.partition_worker.engine.predicates.verdicts import COOL_DOWN_S, DEADLINE_S, FRESH_S
from yunishard.partition_worker.engine.state import Tuning


def trial(queues: str = "root.a max=memory:10") -> Trial:
    one = Trial(queues).does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a", "app-2 root.a"))
    one.told()
    return one


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "reason", "cause"),
    [
        ("app-9 a1 memory=1", "failed to find application app-9", "unknown-application"),
        ("app-1 a1 memory=1 on=n9", "failed to find node n9", "unknown-node"),
        ("app-1 a1", "allocation contains no resources", "no-resources"),
        ("app-1 a1 memory=0", "allocation contains no resources", "no-resources"),
        ("app-1 a1 memory=1 gpu=-1", "allocation contains negative resources", "negative-resources"),
    ],
)
def test_what_cannot_be_is_refused_and_counted(words: str, reason: str, cause: str) -> None:
    one = trial().does(asks(words))
    assert one.told() == [f"a1 rejected: {reason}"]
    assert (one.partition.counters.errors.total, one.partition.counters.rejected) == (1, 1)
    assert one.partition.counters.errors.count_recent(one.now) == {cause: 1}
    assert one.partition.allocations == {}


def test_a_placeholder_needs_a_task_group() -> None:
    told = trial().does(asks("app-1 a1 memory=1 placeholder")).told()
    assert told == ["a1 rejected: placeholder allocation a1 has no task group"]


def test_an_ask_that_names_one_resource_type_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trial()
    one.told()
    monkeypatch.setattr(amounts, "TYPES_MAX", len(amounts._NAMES))
    (refusal,) = one.does(asks("app-1 a1 memory=1 never-seen=1")).told()
    assert refusal.startswith("a1 rejected: the resource type 'never-seen' would be one too many")
    assert one.does(asks("app-1 a1 memory=1")).placed() == ["a1 on n1"]


def test_an_ask_needs_a_key() -> None:
    assert trial().does(asks("app-1 memory=1")).told() == [" rejected: allocation has no key"]


def test_a_key_belongs_to_one_application() -> None:
    one = trial().does(asks("app-1 a1 memory=1"))
    one.told()
    assert one.does(asks("app-2 a1 memory=1")).told() == [
        "a1 rejected: allocation key a1 is in use by application app-1"
    ]
    one.does(released("app-1 a1"))
    one.told()
    assert one.does(asks("app-2 a1 memory=1")).placed() == ["a1 on n1"]


def test_a_refusal_names_the_application_and_leaves_the_others_of_the_request_alone() -> None:
    """Spec 8.1: rejections are collected and come after the allocations part."""
    one = trial().takes(asks("app-1 a1", "app-1 a2 memory=1 on=n1"), asks("app-1 a3 memory=1"))
    assert one.told()[-2:] == ["a2 on n1", "a1 rejected: allocation contains no resources"]
    refusals = [effect.part for effect in one.effects if isinstance(effect.part, RejectedAllocation)]
    assert [refusal.application_id for refusal in refusals] == ["app-1"]


def test_allocations_are_handled_before_releases() -> None:
    one = trial().takes(both(released("app-1 a1"), asks("app-1 a1 memory=1 on=n1")))
    assert one.told() == [
        "app-1 Accepted",
        "app-1 Running",
        "a1 on n1",
        "app-1 Completing",
        "a1 released (STOPPED_BY_RM: allocation remove as per RM request)",
    ]


# Known and running ones -----------------------------------------------------------------------------------------------


def test_a_repeated_message_changes_nothing() -> None:
    one = trial().does(asks("app-1 a1 memory=4"), asks("app-1 a2 memory=40"))
    one.told()
    one.does(asks("app-1 a1 memory=4", "app-1 a1 memory=4 on=n1", "app-1 a2 memory=40 priority=7"))
    assert one.told() == []
    assert one.app("app-1").priority == 0


def test_what_runs_stays_where_it_is_whatever_another_message_says() -> None:
    one = trial().does(asks("app-1 a1 memory=4 on=n1"), asks("app-1 a1 memory=4 on=n2"))
    assert one.running == ["a1 on n1"]


def test_a_running_allocation_is_taken_over_limits_and_announced() -> None:
    one = trial("root.a max=memory:1 maxapps=1").does(asks("app-1 a1 memory=40 on=n1", "app-2 b1 memory=1 on=n1"))
    assert one.told() == ["app-1 Accepted", "app-1 Running", "a1 on n1", "app-2 Accepted", "app-2 Running", "b1 on n1"]
    assert one.node("n1").available == {"memory": -31}


def test_an_ask_that_the_rm_places_itself_is_an_ask_no_longer() -> None:
    one = trial().takes(asks("app-1 a1 memory=4"))
    one.told()
    assert one.does(asks("app-1 a1 memory=5 on=n2")).told() == ["app-1 Running", "a1 on n2"]
    assert (one.app("app-1").pending, one.app("app-1").allocated) == ({}, {"memory": 5})


def test_an_application_is_as_old_as_the_oldest_of_what_is_reported_of_it() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=1 on=n1"))
    one.does(asks("app-1 a2 memory=1 created=100 on=n1"))
    assert one.app("app-1").submitted_ns == 100 * 10**9


def test_a_completing_application_runs_again_by_what_is_reported_of_it() -> None:
    one = trial().does(asks("app-1 a1 memory=4"), released("app-1 a1"), asks("app-1 a2 memory=1 on=n1")).waits(60)
    assert one.app("app-1").state is AppState.RUNNING


def test_a_resize_to_nothing_is_refused() -> None:
    one = trial().does(asks("app-1 a1 memory=4"))
    one.told()
    assert one.does(asks("app-1 a1 memory=0")).told() == ["a1 rejected: allocation contains no resources"]
    assert one.app("app-1").allocated == {"memory": 4}


# Releases -------------------------------------------------------------------------------------------------------------

ECHO = "a1 released (STOPPED_BY_RM: allocation remove as per RM request)"


@pytest.mark.parametrize(
    ("kind", "echo"),
    [
        ("UNKNOWN_TERMINATION", [ECHO]),
        ("STOPPED_BY_RM", [ECHO]),
        ("TIMEOUT", []),
        ("PREEMPTED_BY_SCHEDULER", []),
    ],
)
def test_only_what_the_rm_wished_is_echoed(kind: str, echo: list[str]) -> None:
    """The other types confirm what the core asked for."""
    one = trial().does(asks("app-1 a1 memory=4"))
    one.told()
    assert one.does(released(f"app-1 a1 type={kind}")).told() == ["app-1 Completing", *echo]
    assert one.partition.allocations == {}
    assert one.partition.counters.released == len(echo)


def test_releasing_an_ask_is_not_echoed() -> None:
    one = trial().takes(asks("app-1 a1 memory=4"))
    one.told()
    assert one.does(released("app-1 a1")).told() == ["app-1 Completing"]


def test_a_confirmed_timeout_leaves_asks_alone() -> None:
    """Spec 8.3.4: unless the type is TIMEOUT the ask with that key is removed."""
    one = trial().does(asks("app-1 a1 memory=40"), released("app-1 a1 type=TIMEOUT"))
    assert list(one.app("app-1").requests) == ["a1"]


def test_without_a_key_everything_of_the_application_is_released() -> None:
    one = trial().does(asks("app-1 a1 memory=4", "app-1 a2 memory=40", "app-1 a3 memory=1"), released("app-1"))
    assert one.app("app-1").state is AppState.COMPLETING
    assert [line.split()[0] for line in one.told() if "released" in line] == ["a1", "a3"]


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("app-9 a1", "release of a1: application app-9 is unknown"),
        ("app-1 a9", "release of a9: unknown to application app-1"),
        ("app-2 a1", "release of a1: unknown to application app-2"),
        ("- f9", "release of f9: no foreign allocation has this key"),
    ],
)
def test_releasing_what_is_unknown_is_only_noted(words: str, note: str) -> None:
    one = trial().does(asks("app-1 a1 memory=4"))
    one.told()
    assert one.does(released(words)).told() == [f"note: {note}"]


# Foreign allocations --------------------------------------------------------------------------------------------------


def test_a_foreign_allocation_takes_room_on_its_node_and_nowhere_else() -> None:
    one = trial().does(foreign("f1 n1 memory=4"))
    assert one.told() == []
    assert (one.node("n1").occupied, one.queue("root").allocated) == ({"memory": 4}, {})


def test_a_foreign_allocation_may_change_and_move() -> None:
    one = trial().does(foreign("f1 n1 memory=4"), foreign("f1 n1 memory=2"))
    assert one.node("n1").available == {"memory": 8}
    one.does(foreign("f1 n2 memory=3"))
    assert [one.node(name).available for name in ("n1", "n2")] == [{"memory": 10}, {"memory": 7}]
    one.does(released("- f1"))
    assert one.node("n2").available == {"memory": 10}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("f1 memory=1", "trying to add a foreign request (non-allocation) f1"),
        ("f1 n9 memory=1", "failed to find node n9 for allocation f1"),
    ],
)
def test_a_foreign_allocation_needs_a_known_node(words: str, reason: str) -> None:
    assert trial().does(foreign(words)).told() == [f"f1 rejected: {reason}"]


def test_a_foreign_key_and_one_of_our_own_have_nothing_to_do_with_each_other() -> None:
    one = trial().does(foreign("k1 n1 memory=4"), asks("app-1 k1 memory=1"), released("app-1 k1"))
    assert one.node("n1").occupied == {"memory": 4}


def test_an_application_named_in_a_foreign_allocation_is_ignored() -> None:
    message = Allocation(
        allocation_key="f1", application_id="app-1", node_id="n1", allocation_tags={"foreign": "static"},
        resource_per_alloc={"memory": 1},
    )  # fmt: skip
    one = trial().does(AllocationRequest(allocations=[message]))
    assert one.app("app-1").allocations == {}
    assert list(one.partition.foreign) == ["f1"]


def test_what_the_rm_could_not_start_waits_for_a_node_again() -> None:
    one = trial().does(asks("app-1 a1 memory=10"))
    one.told()
    one.takes(released("app-1 a1 type=SCHEDULING_FAILED_ON_RM"))
    assert (one.told(), one.app("app-1").pending) == ([], {"memory": 10})
    one.settles()
    assert one.told() == ["a1 on n2"]


def test_a_roll_back_of_what_does_not_run_changes_nothing() -> None:
    one = trial().does(asks("app-1 a1 memory=99"), released("app-1 a1 type=SCHEDULING_FAILED_ON_RM"))
    assert list(one.app("app-1").requests) == ["a1"]


def test_a_foreign_allocation_cannot_make_room() -> None:
    one = trial()
    assert one.does(foreign("f1 n1 memory=-5")).told() == ["f1 rejected: allocation contains negative resources"]
    assert one.node("n1").available == {"memory": 10}


# Removal --------------------------------------------------------------------------------------------------------------


def removal_trial(*texts: str) -> Trial:
    one = Trial().does(nodes("n1 memory=100"), apps("app-1 root.a"), asks(*texts))
    one.told()
    one.partition.begin_step(one.now)
    return one


def test_what_ran_is_counted_as_released_and_an_empty_application_completes() -> None:
    one = removal_trial("app-1 a1 memory=1", "app-1 a2 memory=1")
    app = one.app("app-1")
    end_allocation(one.partition, app, app.allocations["a1"])
    assert (one.queue("root.a").released, app.state) == (1, AppState.RUNNING)
    end_allocation(one.partition, app, app.allocations["a2"])
    assert (one.queue("root.a").released, app.state) == (2, AppState.COMPLETING)


def test_an_ask_that_is_taken_back_may_be_the_last() -> None:
    one = removal_trial("app-1 a1 memory=500", "app-1 a2 memory=500")
    app = one.app("app-1")
    withdraw_ask(one.partition, app, app.requests["a1"])
    assert app.state is AppState.ACCEPTED
    withdraw_ask(one.partition, app, app.requests["a2"])
    assert app.state is AppState.COMPLETING


def test_a_placeholder_that_goes_lets_its_ask_wait_again() -> None:
    one = removal_trial("app-1 p1 memory=5 placeholder group=g", "app-1 r1 memory=5 group=g")
    app = one.app("app-1")
    assert app.swapping
    end_allocation(one.partition, app, app.allocations["p1"])
    assert (list(app.requests), app.swapping, app.allocations) == (["r1"], {}, {})


def test_everything_goes_at_once_and_what_follows_is_for_the_caller() -> None:
    one = removal_trial("app-1 p1 memory=5 placeholder group=g", "app-1 r1 memory=5 group=g", "app-1 a1 memory=500")
    app, state = one.app("app-1"), one.app("app-1").state
    assert [gone.key for gone in remove_everything(one.partition, app)] == ["p1"]
    assert (app.requests, app.swapping, app.allocations, app.state) == ({}, {}, {}, state)


def test_everything_that_runs_may_go_without_what_is_asked_for() -> None:
    one = removal_trial("app-1 p1 memory=5 placeholder group=g", "app-1 r1 memory=5 group=g", "app-1 a1 memory=500")
    app = one.app("app-1")
    remove_everything(one.partition, app, keeping_asks=True)
    assert sorted(app.requests) == ["a1", "r1"]


# Verdict updates ------------------------------------------------------------------------------------------------------


SELECTOR = "yunishard/nodeSelector"


def tagged(key: str, memory: int = 1, **tags: str) -> AllocationRequest:
    """An ask whose tags have blanks in them."""
    one = Allocation(
        allocation_key=key, application_id="app-1", resource_per_alloc={"memory": memory}, allocation_tags=tags
    )
    return AllocationRequest(allocations=[one])


def verdicts(*texts: str, asks_manager: bool = False) -> Trial:
    one = Trial("root.a", plugins=[Rack()])
    one.partition.nodes.predicates.asks_manager = asks_manager
    one.does(nodes(*(texts or ("n1 memory=10 tag.zone=a", "n2 memory=20 tag.zone=b"))), apps("app-1 root.a"))
    one.told()
    return one


def attended(one: Trial, seconds: float) -> None:
    """Let time pass with a manager that says yes to all that it is asked."""
    for _ in range(int(seconds)):
        before = len(one.asked)
        one.waits(1)
        if len(one.asked) > before:
            one.answers()


# Tags ---------------------------------------------------------------------------------------------------------------


def test_an_ask_goes_only_where_its_selector_matches() -> None:
    one = verdicts().does(tagged("a1", **{SELECTOR: "zone in (a, c)"}), tagged("a2", **{SELECTOR: "zone=b"}))
    assert one.running == ["a1 on n1", "a2 on n2"]


def test_wrong_tags_refuse_the_ask_and_nothing_else() -> None:
    one = verdicts().does(tagged("a1", **{SELECTOR: "zone in a"}), asks("app-1 a2 memory=1"))
    assert one.told()[0].startswith("a1 rejected: tag yunishard/nodeSelector: cannot read 'zone in a': write key=value")
    assert one.running == ["a2 on n1"]


def test_what_runs_is_not_refused_for_its_tags() -> None:
    one = verdicts().does(
        asks(f"app-1 a1 memory=1 on=n2 tag.{SELECTOR}=,", f"app-1 a2 memory=1 on=n1 tag.{SELECTOR}=zone=b")
    )
    assert one.running == ["a1 on n2", "a2 on n1"]


def test_an_ask_that_no_node_admits_waits_until_one_comes_and_holds_up_nobody() -> None:
    one = verdicts().does(tagged("a1", **{SELECTOR: "zone=c"}), asks("app-1 a2 memory=1"))
    assert one.running == ["a2 on n1"]
    one.waits(10).does(nodes("n3 memory=5 tag.zone=c"))
    assert one.running == ["a1 on n3", "a2 on n1"]


def test_a_full_node_that_is_the_only_one_admitted_is_waited_for() -> None:
    one = verdicts("n1 memory=10 tag.zone=a", "n2 memory=10").does(asks("app-1 big memory=8 required=n1"))
    one.does(tagged("a1", 5, **{SELECTOR: "zone=a"}))
    assert one.running == ["big on n1"]
    one.does(released("app-1 big"))
    assert one.running == ["a1 on n1"]


def test_taints_keep_everybody_out_who_does_not_tolerate_them() -> None:
    one = verdicts("n1 memory=10", "n2 memory=100 tag.yunishard/taints=gpu:NoSchedule")
    one.does(asks("app-1 a1 memory=6", "app-1 a2 memory=6", "app-1 a3 memory=6 tag.yunishard/tolerations=gpu"))
    assert one.running == ["a1 on n1", "a3 on n2"]
    one.does(asks("app-1 a4 memory=1 required=n2", "app-1 a5 memory=1"))
    assert one.running == ["a1 on n1", "a3 on n2", "a5 on n1"]


def test_a_plug_in_has_its_say() -> None:
    one = verdicts("n1 memory=10 tag.rack=r1", "n2 memory=10 tag.rack=private", "n3 memory=10 tag.rack=r3")
    one.does(tagged("a1", rack="r3"), tagged("a2", rack="private"), *(tagged(f"b{number}", 5) for number in range(4)))
    assert [text for text in one.running if text.endswith("n2")] == ["a2 on n2"]
    assert "a1 on n3" in one.running


def test_a_plug_in_that_breaks_refuses_and_the_worker_goes_on() -> None:
    one = Trial("root.a", plugins=[Broken()]).does(nodes("n1 memory=10"), apps("app-1 root.a"))
    one.does(tagged("a1", broken="yes"), tagged("a2"))
    assert one.running == ["a2 on n1"]
    assert len(one.partition.nodes.predicates.complaints) == 1


def test_the_reasons_of_nodes_that_refuse_an_ask_without_demands_are_counted() -> None:
    one = verdicts("n1 memory=10 tag.yunishard/taints=x:NoSchedule", "n2 memory=10")
    one.does(tagged("a1"))
    assert list(one.partition.nodes.refusals(one.partition.allocations["a1"].shape).values()) == [1]


def test_asks_without_demands_stay_when_one_with_demands_and_its_equals_are_set_aside() -> None:
    one = verdicts()
    one.does(tagged("a1", 90, **{SELECTOR: "zone=a"}), tagged("a2", 80, **{SELECTOR: "zone=a"}), tagged("a3", 90))
    one.does(tagged("a4", 90, **{SELECTOR: "zone=b"}))
    group = one.app("app-1").requests["a1"].group
    assert group is not None
    one.partition.set_aside_asks([group], "it ends workers", one.now)
    assert list(one.app("app-1").requests) == ["a3", "a4"]


def test_the_best_of_the_nodes_that_admit_an_ask_is_kept_for_it() -> None:
    one = verdicts(
        "n1 memory=10 tag.zone=a", "n2 memory=10 tag.zone=b", "n3 memory=10 tag.yunishard/taints=x:NoSchedule"
    )
    one.partition.tuning = Tuning(reservation_share_percent=100)
    one.does(asks("app-1 x1 memory=8 required=n1", "app-1 x2 memory=6 required=n2"))
    one.does(tagged("a1", 9, **{SELECTOR: "zone=c"}), tagged("a2", 9, **{SELECTOR: "zone=a"})).waits(5)
    assert [list(one.node(name).reservations) for name in ("n1", "n2", "n3")] == [["a2"], [], []]
    one.does(asks("app-1 a3 memory=9")).waits(5)
    assert [list(one.node(name).reservations) for name in ("n1", "n2", "n3")] == [["a2"], ["a3"], []]


def test_no_node_is_kept_where_none_admits_the_ask_until_one_comes_that_does() -> None:
    one = verdicts("n1 memory=10 tag.zone=a", "n2 memory=50 tag.yunishard/taints=x:NoSchedule")
    one.does(asks("app-1 x1 memory=8 required=n1"), tagged("a1", 9, **{SELECTOR: "zone=b"})).waits(5)
    assert not any(one.node(name).reservations for name in ("n1", "n2"))
    one.does(nodes("n3 memory=10 tag.zone=b"))
    assert one.running == ["a1 on n3", "x1 on n1"]


def test_why_an_ask_waits_is_counted_over_the_nodes_with_room() -> None:
    one = verdicts("n1 memory=10 tag.zone=a", "n2 memory=10 tag.zone=b", "n3 memory=1 tag.zone=b", "n4 memory=10")
    one.takes(tagged("a1", 5, **{SELECTOR: "zone=a", "yunishard/forbiddenNodes": "n1"}), asks("app-1 a2 memory=5"))
    all_nodes, waiting = one.partition.nodes, one.app("app-1").requests
    assert all_nodes.refusals(waiting["a1"].shape) == {"node does not match zone=a": 2, "node is forbidden": 1}
    assert all_nodes.refusals(waiting["a2"].shape) == {}
    one.does(nodes("n5 memory=10 tag.yunishard/taints=x:NoExecute"))
    assert all_nodes.refusals(waiting["a1"].shape)["node does not match zone=a"] == 3


# The resource manager -----------------------------------------------------------------------------------------------


def test_the_manager_is_asked_and_its_answer_counts() -> None:
    one = verdicts(asks_manager=True).does(asks("app-1 a1 memory=1")).waits(0)
    assert one.told() == ["app-1 Accepted", "may a1 run on n1, a1 run on n2?"]
    assert one.running == []
    one.answers("a1 on n1: no disk")
    assert one.running == ["a1 on n2"]


def test_asks_behind_one_that_waits_go_first() -> None:
    one = verdicts(asks_manager=True).does(asks("app-1 a1 memory=1")).waits(0)
    one.does(asks("app-1 a2 memory=1"))
    one.answers("a1 on n1: no", "a1 on n2: no").waits(0)
    one.answers()
    assert one.running == ["a2 on n1"]


def test_asks_whose_verdict_is_known_get_their_nodes_while_another_is_waited_for() -> None:
    one = Trial("root.a max=memory:1; root.b")
    one.partition.nodes.predicates.asks_manager = True
    one.does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a", "app-2 root.b"))
    one.does(asks("app-1 a1 memory=1")).waits(0).answers("a1 on n2: no")
    assert one.running == ["a1 on n1"]
    one.does(released("app-1 a1"), asks("app-1 a2 memory=1 priority=1")).waits(0)
    one.takes(asks("app-1 a3 memory=1 priority=2")).answers("a2 on n1: no")
    one.does(asks("app-2 b1 memory=1")).waits(0)
    assert len(one.asked) == 3  # about a3 and b1; nobody answers
    assert one.running == ["a2 on n2"]


def test_a_dead_manager_stalls_nobody_whom_it_was_not_asked_about() -> None:
    one = verdicts(asks_manager=True).does(asks("app-1 a1 memory=1")).waits(0)
    assert len(one.asked) == 1
    one.does(asks("app-1 r1 memory=1 on=n1"))  # it runs, whatever anybody says
    one.waits(100)
    assert one.running == ["r1 on n1"]
    assert 4 <= len(one.asked) <= 8  # ever more seldom
    one.answers()
    assert one.running == ["a1 on n2", "r1 on n1"]


def test_a_slow_manager_is_heard_all_the_same() -> None:
    one = verdicts(asks_manager=True).does(asks("app-1 a1 memory=1")).waits(DEADLINE_S + 0.1)
    assert one.running == []
    one.answers()
    assert one.running == ["a1 on n1"]


def test_what_changes_on_a_node_makes_its_verdicts_old() -> None:
    one = verdicts("n1 memory=10", asks_manager=True).does(asks("app-1 a1 memory=1", "app-1 a2 memory=1")).waits(0)
    one.answers()
    assert one.running == ["a1 on n1"]  # the verdict on a2 was about a node without a1
    one.waits(0).answers()
    assert one.running == ["a1 on n1", "a2 on n1"]


def test_a_refusal_is_asked_about_again_later() -> None:
    one = verdicts("n1 memory=10", asks_manager=True).does(asks("app-1 a1 memory=1")).waits(0)
    one.answers("a1 on n1: not yet").waits(2)
    one.answers("a1 on n1: not yet").waits(FRESH_S - 3)
    assert [asked.asked[0].allocate for asked in one.asked] == [True, False]  # may the node be kept for it, at least?
    one.waits(2)
    assert len(one.asked) == 3
    one.answers()
    assert one.running == ["a1 on n1"]


def test_many_asks_get_their_nodes_in_several_questions() -> None:
    one = verdicts(*(f"n{number} memory=10" for number in range(40)), asks_manager=True)
    one.does(asks(*(f"app-1 a{number} memory=1" for number in range(150))))
    for _ in range(60):
        one.waits(0)
        if len(one.running) == 150:
            break
        one.answers()
    assert len(one.running) == 150
    assert all(len(question.asked) <= 1024 for question in one.asked)
    assert len(one.asked) < 40


def test_an_ask_that_is_gone_is_not_asked_about() -> None:
    one = verdicts(asks_manager=True).does(asks("app-1 a1 memory=1"), released("app-1 a1")).waits(1)
    assert one.asked == []


def test_a_node_on_which_the_manager_could_not_start_it_cools_down() -> None:
    one = verdicts(asks_manager=True).does(asks("app-1 a1 memory=1")).waits(0)
    one.answers()
    assert one.running == ["a1 on n1"]
    one.does(released("app-1 a1 type=SCHEDULING_FAILED_ON_RM")).waits(0)
    one.answers()
    assert one.running == ["a1 on n2"]
    one.does(released("app-1 a1 type=SCHEDULING_FAILED_ON_RM"))
    attended(one, COOL_DOWN_S - 1)
    assert one.running == []
    attended(one, 2)
    assert one.running == ["a1 on n1"]


FAILED = released("app-1 a1 type=SCHEDULING_FAILED_ON_RM")


def test_without_predicates_of_the_rm_a_node_cools_down_as_well_and_others_get_it() -> None:
    one = verdicts("n1 memory=10", "n2 memory=10").does(asks("app-1 a1 memory=1"))
    assert one.running == ["a1 on n1"]
    assert one.does(FAILED).running == ["a1 on n2"]
    one.does(FAILED, asks("app-1 a2 memory=10"), asks("app-1 a3 memory=1"))
    assert one.running == ["a2 on n1", "a3 on n2"]
    one.does(released("app-1 a2", "app-1 a3")).waits(COOL_DOWN_S - 0.1)
    assert one.running == []
    assert one.partition.reservation_index.by_rank == {}, "the node would be kept from others for nothing"
    assert one.waits(0.2).running == ["a1 on n1"]


def test_an_ask_that_no_node_could_start_costs_no_decisions_until_a_node_has_cooled_down() -> None:
    one = verdicts("n1 memory=10").does(asks("app-1 a1 memory=1"))
    for number in range(1, 10):
        decided = one.partition.decided
        assert one.does(FAILED).running == []
        assert one.waits(COOL_DOWN_S - 0.1).running == []
        assert one.partition.decided == decided
        assert one.waits(0.2).running == ["a1 on n1"], number


def test_equal_asks_are_not_kept_from_the_node_and_tags_still_count() -> None:
    one = verdicts().does(tagged("a1", **{SELECTOR: "zone in (a, b)"}), tagged("a2", **{SELECTOR: "zone in (a, b)"}))
    assert one.running == ["a1 on n1", "a2 on n2"]
    one.does(nodes("n3 memory=90 tag.zone=c"), FAILED, tagged("a3", **{SELECTOR: "zone=a"}))
    assert one.running == ["a1 on n2", "a2 on n2", "a3 on n1"]


def test_a_required_node_on_which_an_ask_could_not_be_started_is_free_for_others_meanwhile() -> None:
    one = verdicts("n1 memory=10").does(asks("app-1 a1 memory=1 required=n1"))
    assert one.running == ["a1 on n1"]
    one.does(FAILED, asks("app-1 a2 memory=1"))
    assert one.running == ["a2 on n1"]
    group = one.app("app-1").requests["a1"].group
    assert group is not None
    assert list(group.log) == [Reason.REQUIRED_NODE_REFUSES]
    assert one.waits(COOL_DOWN_S).running == ["a1 on n1", "a2 on n1"]


def test_an_ask_that_failed_and_is_removed_leaves_nothing_behind() -> None:
    one = verdicts("n1 memory=10").does(asks("app-1 a1 memory=1"), FAILED, released("app-1 a1"))
    assert one.does(asks("app-1 a1 memory=1")).running == ["a1 on n1"]
    assert one.waits(COOL_DOWN_S).partition.nodes.predicates.verdicts.known == {}


@pytest.mark.parametrize("refused", [True, False])
def test_an_ask_for_a_required_node_is_asked_about_that_one(refused: bool) -> None:
    one = verdicts(asks_manager=True).does(asks("app-1 a1 memory=1 required=n1")).waits(0)
    assert [pair.node_id for pair in one.asked[-1].asked] == ["n1"]
    one.answers(*(["a1 on n1: no"] if refused else []))
    assert one.running == ([] if refused else ["a1 on n1"])


SCOPE = "yunishard/predicateScope"


def test_asks_without_a_scope_get_their_nodes_together_and_the_manager_is_not_asked() -> None:
    one = verdicts(asks_manager=True).does(tagged("a1", **{SCOPE: "none"}), tagged("a2", **{SCOPE: "none"})).waits(1)
    assert one.running == ["a1 on n1", "a2 on n2"]
    assert one.asked == []
    one.does(tagged("a3", **{SCOPE: "none", SELECTOR: "zone=b"}))
    assert one.running == ["a1 on n1", "a2 on n2", "a3 on n2"]
    one.told()
    assert one.does(tagged("a4", **{SCOPE: "node,none"})).told() == [
        "a4 rejected: yunishard/predicateScope: expected node, partition or none, got 'node,none'"
    ]


def test_the_manager_is_asked_about_an_ask_that_it_sends_again_with_a_scope() -> None:
    one = verdicts("n1 memory=10", asks_manager=True)
    one.does(asks("app-1 r1 memory=10 on=n1"), tagged("a1", 10, **{SCOPE: "none"}), tagged("a2", 10, **{SCOPE: "none"}))
    assert len(one.app("app-1").asks.groups_by_key) == 1
    one.does(tagged("a1", 10, **{SCOPE: "node"}))
    waiting = one.app("app-1").requests
    assert [ask.tags[SCOPE] for ask in waiting.values()] == ["node", "none"]
    assert list(waiting) == ["a1", "a2"], "it keeps its place"
    one.does(released("app-1 r1")).waits(0)
    assert one.running == ["a2 on n1"], "the answer about a1 is pending"
    one.answers().does(released("app-1 a2")).waits(0).answers()
    assert one.running == ["a1 on n1"]


def test_an_ask_that_is_sent_again_with_a_scope_is_asked_about_again_at_once() -> None:
    one = verdicts("n1 memory=10", asks_manager=True).does(tagged("a1", **{SCOPE: "partition"})).waits(0)
    one.answers("a1 on n1: no volume").waits(2)
    one.answers("a1 on n1: no volume").waits(1)
    asked = len(one.asked)
    one.does(asks("app-1 a1 memory=1")).waits(1)
    assert len(one.asked) == asked, "without the tag nothing changes"
    one.does(tagged("a1", **{SCOPE: "partition"})).waits(0)
    assert len(one.asked) == asked + 1
    one.answers()
    assert one.running == ["a1 on n1"]


def test_an_ask_that_is_sent_again_with_a_scope_gets_the_tags_of_the_message() -> None:
    one = verdicts("n1 memory=10 tag.zone=a", asks_manager=True)
    one.does(tagged("a1", **{SCOPE: "none", SELECTOR: "zone=b", "team": "red"})).waits(1)
    assert one.running == []
    for scope in ({}, {SCOPE: "none"}):
        one.does(tagged("a1", **{SELECTOR: "zone=a", **scope})).waits(1)
        assert one.running == [], "without a scope nothing changes"
    one.told()
    (refused,) = one.does(tagged("a1", **{SCOPE: "node", SELECTOR: "a b c"})).told()
    assert refused.startswith("a1 rejected: tag yunishard/nodeSelector: ")
    assert one.app("app-1").requests["a1"].tags["team"] == "red"
    one.does(tagged("a1", **{SCOPE: "node", SELECTOR: "zone=a"})).waits(0).answers()
    assert one.running == ["a1 on n1"]
    assert one.app("app-1").allocations["a1"].tags == {SCOPE: "node", SELECTOR: "zone=a"}


def test_each_ask_that_depends_on_other_nodes_costs_one_question() -> None:
    one = verdicts(*(f"n{number} memory=10" for number in range(20)), asks_manager=True)
    for number in range(50):
        one.does(tagged(f"a{number}", **{SCOPE: "partition"}))
    for _ in range(50):
        one.waits(0).answers()
    assert len(one.running) == 50
    assert len(one.asked) == 50
    assert {len(question.asked) for question in one.asked} == {16}


def test_a_question_is_sent_although_nothing_may_be_decided_now() -> None:
    one = verdicts("n1 memory=10", asks_manager=True)
    one.takes(tagged("a1", **{SCOPE: "partition"}), tagged("a2", **{SCOPE: "none"}))
    assert one.decides() == ["a2 on n1"]
    assert one.asked == [], "there is more to decide first"
    one.attends()
    assert [pair.allocation_key for pair in one.asked[-1].asked] == ["a1"]
    assert one.partition.next_change > one.now, "otherwise a worker that waits for its RM tries for ever"


def test_a_node_that_cools_down_stays_refused_for_an_ask_that_is_sent_again() -> None:
    one = verdicts("n1 memory=10", asks_manager=True).does(tagged("a1", **{SCOPE: "none"}))
    assert one.running == ["a1 on n1"]
    one.does(released("app-1 a1 type=SCHEDULING_FAILED_ON_RM"), tagged("a1", **{SCOPE: "node"}))
    attended(one, COOL_DOWN_S - 1)
    assert one.running == []
    attended(one, 2)
    assert one.running == ["a1 on n1"]


def test_a_scope_means_nothing_if_the_manager_evaluates_no_predicates() -> None:
    one = verdicts("n1 memory=10").does(asks("app-1 r1 memory=10 on=n1"), tagged("a1", 1, **{SCOPE: "any"}))
    one.does(tagged("a1", 1, **{SCOPE: "node"}))
    assert one.app("app-1").requests["a1"].constraint is None
    assert one.does(released("app-1 r1")).running == ["a1 on n1"]


def test_a_real_ask_takes_the_place_of_its_placeholder_once_it_may() -> None:
    one = Trial("root.a")
    one.partition.nodes.predicates.asks_manager = True
    one.does(nodes("n1 memory=10"), apps("app-1 root.a gang=memory:5"))
    one.does(asks("app-1 p1 memory=5 placeholder group=g")).waits(0).answers()
    one.does(asks("app-1 r1 memory=5 group=g")).waits(0)
    pair = one.asked[-1].asked[0]
    assert (pair.allocation_key, pair.node_id, pair.allocate) == ("r1", "n1", False)
    one.told()
    one.answers()
    assert one.told() == ["p1 released (PLACEHOLDER_REPLACED: replacing allocationKey: r1)"]
