"""The whole engine with predicates, its own, those of plug-ins, and those of the resource manager."""

import pytest

from common.rm_messages import Allocation, AllocationRequest
from partition_worker.engine.predicates.rm_verdicts import COOL_DOWN_S, DEADLINE_S, FRESH_S
from tests.builders import apps, asks, nodes, released
from tests.partition_worker.engine.predicates.plugins import Broken, Rack
from tests.trial import Trial

SELECTOR = "yunishard/nodeSelector"


def tagged(key: str, memory: int = 1, **tags: str) -> AllocationRequest:
    """An ask whose tags have blanks in them."""
    one = Allocation(
        allocation_key=key, application_id="app-1", resource_per_alloc={"memory": memory}, allocation_tags=tags
    )
    return AllocationRequest(allocations=[one])


def trial(*texts: str, asks_manager: bool = False) -> Trial:
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
    one = trial().does(tagged("a1", **{SELECTOR: "zone in (a, c)"}), tagged("a2", **{SELECTOR: "zone=b"}))
    assert one.running == ["a1 on n1", "a2 on n2"]


def test_wrong_tags_refuse_the_ask_and_nothing_else() -> None:
    one = trial().does(tagged("a1", **{SELECTOR: "zone in a"}), asks("app-1 a2 memory=1"))
    assert one.told()[0].startswith("a1 rejected: tag yunishard/nodeSelector: cannot read 'zone in a': write key=value")
    assert one.running == ["a2 on n1"]


def test_what_runs_is_not_refused_for_its_tags() -> None:
    one = trial().does(
        asks(f"app-1 a1 memory=1 on=n2 tag.{SELECTOR}=,", f"app-1 a2 memory=1 on=n1 tag.{SELECTOR}=zone=b")
    )
    assert one.running == ["a1 on n2", "a2 on n1"]


def test_an_ask_that_no_node_admits_waits_until_one_comes_and_holds_up_nobody() -> None:
    one = trial().does(tagged("a1", **{SELECTOR: "zone=c"}), asks("app-1 a2 memory=1"))
    assert one.running == ["a2 on n1"]
    one.waits(10).does(nodes("n3 memory=5 tag.zone=c"))
    assert one.running == ["a1 on n3", "a2 on n1"]


def test_a_full_node_that_is_the_only_one_admitted_is_waited_for() -> None:
    one = trial("n1 memory=10 tag.zone=a", "n2 memory=10").does(asks("app-1 big memory=8 required=n1"))
    one.does(tagged("a1", 5, **{SELECTOR: "zone=a"}))
    assert one.running == ["big on n1"]
    one.does(released("app-1 big"))
    assert one.running == ["a1 on n1"]


def test_taints_keep_everybody_out_who_does_not_tolerate_them() -> None:
    one = trial("n1 memory=10", "n2 memory=100 tag.yunishard/taints=gpu:NoSchedule")
    one.does(asks("app-1 a1 memory=6", "app-1 a2 memory=6", "app-1 a3 memory=6 tag.yunishard/tolerations=gpu"))
    assert one.running == ["a1 on n1", "a3 on n2"]
    one.does(asks("app-1 a4 memory=1 required=n2", "app-1 a5 memory=1"))
    assert one.running == ["a1 on n1", "a3 on n2", "a5 on n1"]


def test_a_plug_in_has_its_say() -> None:
    one = trial("n1 memory=10 tag.rack=r1", "n2 memory=10 tag.rack=private", "n3 memory=10 tag.rack=r3")
    one.does(tagged("a1", rack="r3"), tagged("a2", rack="private"), *(tagged(f"b{number}", 5) for number in range(4)))
    assert [text for text in one.running if text.endswith("n2")] == ["a2 on n2"]
    assert "a1 on n3" in one.running


def test_a_plug_in_that_breaks_refuses_and_the_worker_goes_on() -> None:
    one = Trial("root.a", plugins=[Broken()]).does(nodes("n1 memory=10"), apps("app-1 root.a"))
    one.does(tagged("a1", broken="yes"), tagged("a2"))
    assert one.running == ["a2 on n1"]
    assert len(one.partition.nodes.predicates.taken_complaints()) == 1


def test_the_best_of_the_nodes_that_admit_an_ask_is_kept_for_it() -> None:
    one = trial("n1 memory=10 tag.zone=a", "n2 memory=10 tag.zone=b", "n3 memory=10 tag.yunishard/taints=x:NoSchedule")
    one.does(asks("app-1 x1 memory=8 required=n1", "app-1 x2 memory=6 required=n2"))
    one.does(tagged("a1", 9, **{SELECTOR: "zone=c"}), tagged("a2", 9, **{SELECTOR: "zone=a"})).waits(5)
    assert [list(one.node(name).reservations) for name in ("n1", "n2", "n3")] == [["a2"], [], []]
    one.does(asks("app-1 a3 memory=9")).waits(5)
    assert [list(one.node(name).reservations) for name in ("n1", "n2", "n3")] == [["a2"], ["a3"], []]


def test_no_node_is_kept_where_none_admits_the_ask_until_one_comes_that_does() -> None:
    one = trial("n1 memory=10 tag.zone=a", "n2 memory=50 tag.yunishard/taints=x:NoSchedule")
    one.does(asks("app-1 x1 memory=8 required=n1"), tagged("a1", 9, **{SELECTOR: "zone=b"})).waits(5)
    assert not any(one.node(name).reservations for name in ("n1", "n2"))
    one.does(nodes("n3 memory=10 tag.zone=b"))
    assert one.running == ["a1 on n3", "x1 on n1"]


def test_why_an_ask_waits_is_counted_over_the_nodes_with_room() -> None:
    one = trial("n1 memory=10 tag.zone=a", "n2 memory=10 tag.zone=b", "n3 memory=1 tag.zone=b", "n4 memory=10")
    one.takes(tagged("a1", 5, **{SELECTOR: "zone=a", "yunishard/forbiddenNodes": "n1"}), asks("app-1 a2 memory=5"))
    fleet, waiting = one.partition.nodes, one.app("app-1").requests
    assert fleet.refusals(waiting["a1"].shape) == {"node does not match zone=a": 2, "node is forbidden": 1}
    assert fleet.refusals(waiting["a2"].shape) == {}
    one.does(nodes("n5 memory=10 tag.yunishard/taints=x:NoExecute"))
    assert fleet.refusals(waiting["a1"].shape)["node does not match zone=a"] == 3


# The resource manager -----------------------------------------------------------------------------------------------


def test_the_manager_is_asked_and_its_answer_counts() -> None:
    one = trial(asks_manager=True).does(asks("app-1 a1 memory=1")).waits(0)
    assert one.told() == ["app-1 Accepted", "may a1 run on n1, a1 run on n2?"]
    assert one.running == []
    one.answers("a1 on n1: no disk")
    assert one.running == ["a1 on n2"]


def test_asks_behind_one_that_waits_go_first() -> None:
    one = trial(asks_manager=True).does(asks("app-1 a1 memory=1")).waits(0)
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
    one = trial(asks_manager=True).does(asks("app-1 a1 memory=1")).waits(0)
    assert len(one.asked) == 1
    one.does(asks("app-1 r1 memory=1 on=n1"))  # it runs, whatever anybody says
    one.waits(100)
    assert one.running == ["r1 on n1"]
    assert 4 <= len(one.asked) <= 8  # ever more seldom
    one.answers()
    assert one.running == ["a1 on n2", "r1 on n1"]


def test_a_slow_manager_is_heard_all_the_same() -> None:
    one = trial(asks_manager=True).does(asks("app-1 a1 memory=1")).waits(DEADLINE_S + 0.1)
    assert one.running == []
    one.answers()
    assert one.running == ["a1 on n1"]


def test_what_changes_on_a_node_makes_its_verdicts_old() -> None:
    one = trial("n1 memory=10", asks_manager=True).does(asks("app-1 a1 memory=1", "app-1 a2 memory=1")).waits(0)
    one.answers()
    assert one.running == ["a1 on n1"]  # the verdict on a2 was about a node without a1
    one.waits(0).answers()
    assert one.running == ["a1 on n1", "a2 on n1"]


def test_a_refusal_is_asked_about_again_later() -> None:
    one = trial("n1 memory=10", asks_manager=True).does(asks("app-1 a1 memory=1")).waits(0)
    one.answers("a1 on n1: not yet").waits(2)
    one.answers("a1 on n1: not yet").waits(FRESH_S - 3)
    assert [asked.asked[0].allocate for asked in one.asked] == [True, False]  # may the node be kept for it, at least?
    one.waits(2)
    assert len(one.asked) == 3
    one.answers()
    assert one.running == ["a1 on n1"]


def test_many_asks_get_their_nodes_in_several_questions() -> None:
    one = trial(*(f"n{number} memory=10" for number in range(40)), asks_manager=True)
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
    one = trial(asks_manager=True).does(asks("app-1 a1 memory=1"), released("app-1 a1")).waits(1)
    assert one.asked == []


def test_a_node_on_which_the_manager_could_not_start_it_cools_down() -> None:
    one = trial(asks_manager=True).does(asks("app-1 a1 memory=1")).waits(0)
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


def test_without_a_say_a_failed_start_is_tried_again_at_once() -> None:
    one = trial("n1 memory=10").does(asks("app-1 a1 memory=1"), released("app-1 a1 type=SCHEDULING_FAILED_ON_RM"))
    assert one.running == ["a1 on n1"]


@pytest.mark.parametrize("refused", [True, False])
def test_an_ask_for_a_required_node_is_asked_about_that_one(refused: bool) -> None:
    one = trial(asks_manager=True).does(asks("app-1 a1 memory=1 required=n1")).waits(0)
    assert [pair.node_id for pair in one.asked[-1].asked] == ["n1"]
    one.answers(*(["a1 on n1: no"] if refused else []))
    assert one.running == ([] if refused else ["a1 on n1"])


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
