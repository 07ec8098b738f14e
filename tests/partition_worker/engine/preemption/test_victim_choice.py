"""Who has to go for an ask whose queue has less than is guaranteed to it; vectors are examples of the specification."""

import pytest

from tests.builders import asks, foreign, nodes
from tests.partition_worker.engine.preemption.clusters import cluster, plan, question, victims
from tests.trial import Trial
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.rm_messages import NODE_DRAIN, NODE_UPDATE
from yunishard.partition_worker.engine import ledger, reservations
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.preemption import victim_choice
from yunishard.partition_worker.engine.preemption.victim_choice import NODES_MAX, may_ever_help
from yunishard.partition_worker.engine.state import Preempt

TWO = "root.a; root.b guaranteed=memory:10"
TEN = tuple(f"root.a r{number} n1 memory=1" for number in range(10))
TEN_OF_P = tuple(f"root.p.a r{number} n1 memory=1" for number in range(10))


def test_victims_cover_the_whole_ask_even_if_the_node_has_some_room() -> None:
    """Vector 4: 3 are free and 5 are asked for, and yet 7 go."""
    trial = cluster(TWO, "n1 memory=10", "root.a r3 n1 memory=3", "root.a r2 n1 memory=2", "root.a r1 n1 memory=2")
    assert victims(trial, "root.b ask memory=5") == ["r1", "r2", "r3"]


def test_no_more_go_than_make_room_if_all_that_may_go_do_not_cover_the_whole_ask() -> None:
    """As above, but the queue is within its guarantee as soon as one has gone."""
    queues, parts = "root.a guaranteed=memory:5; root.b guaranteed=memory:10", ("root.a r3 n1 memory=3",)
    trial = cluster(queues, "n1 memory=10", *parts, "root.a r2 n1 memory=2", "root.a r1 n1 memory=2")
    assert victims(trial, "root.b ask memory=4") == ["r1"]
    trial = cluster(TWO, "n1 memory=7", "root.a r1 n1 memory=3")
    assert victims(trial, "root.b ask memory=5") == ["r1"]


def test_the_last_victim_may_leave_its_queue_with_less_than_its_guarantee() -> None:
    """Vector 5."""
    trial = cluster("root.a guaranteed=memory:9; root.b guaranteed=memory:10", "n1 memory=10", "root.a r1 n1 memory=10")
    assert victims(trial, "root.b ask memory=1") == ["r1"]


def test_a_queue_that_has_no_more_than_its_guarantee_loses_nothing_more() -> None:
    """Vector 6."""
    queues = "root.a guaranteed=memory:9; root.b guaranteed=memory:10"
    trial = cluster(queues, "n1 memory=10", "root.a r1 n1 memory=5", "root.a r2 n1 memory=5")
    assert victims(trial, "root.b ask memory=1") == ["r2"]


def test_the_newest_go_and_no_more_than_needed() -> None:
    """Vector 7."""
    assert victims(cluster(TWO, "n1 memory=10", *TEN), "root.b ask memory=3") == ["r9", "r8", "r7"]


def test_without_a_guarantee_nobody_goes() -> None:
    """Vector 8."""
    trial = cluster("root.a; root.p.b", "n1 memory=10", *TEN)
    assert plan(trial, "root.p.b ask memory=3") == Reason.PREEMPTION_GUARANTEE_USED
    assert not may_ever_help(trial.queue("root.p.b"))


def test_a_guarantee_above_the_queue_is_as_good() -> None:
    trial = cluster("root.a; root.p guaranteed=memory:5; root.p.b", "n1 memory=10", *TEN)
    assert may_ever_help(trial.queue("root.p.b"))
    assert victims(trial, "root.p.b ask memory=2") == ["r9", "r8"]


def test_an_ask_beyond_the_guarantee_makes_nobody_go() -> None:
    trial = cluster("root.a; root.b guaranteed=memory:2", "n1 memory=10", *TEN)
    assert plan(trial, "root.b big memory=3") == Reason.PREEMPTION_GUARANTEE_USED
    assert victims(trial, "root.b small memory=2") == ["r9", "r8"]


def test_an_ask_that_fits_the_guarantee_once_candidates_are_gone_may_preempt() -> None:
    """What is guaranteed to the parent is used up, by a sibling that has more than its own part of it."""
    queues = "root.p guaranteed=memory:10; root.p.a guaranteed=memory:2; root.p.b"
    trial = cluster(queues, "n1 memory=10", *TEN_OF_P)
    assert victims(trial, "root.p.b ask memory=2") == ["r9", "r8"]
    assert plan(trial, "root.p.b large memory=11") == Reason.PREEMPTION_GUARANTEE_USED


def test_candidates_that_are_larger_than_the_rest_of_the_guarantee_are_skipped() -> None:
    """10 of the guarantee are left; the newest candidate has 20."""
    running = ("root.a small n1 memory=10", "root.a mid n1 memory=10", "root.a big n1 memory=20")
    assert victims(cluster(TWO, "n1 memory=40", *running), "root.b ask memory=10") == ["mid"]


def test_only_types_that_the_ask_lacks_on_the_node_are_compared() -> None:
    queues = "root.a; root.b guaranteed=memory:10,gpu:1,vcore:2"
    trial = cluster(queues, "n1 memory=4 gpu=9 vcore=9", "root.a r1 n1 memory=4 gpu=5 vcore=5")
    assert victims(trial, "root.b ask memory=4 gpu=1") == ["r1"]


def test_if_only_larger_ones_make_room_the_smallest_goes() -> None:
    trial = cluster(
        "root.a; root.b guaranteed=memory:8",
        *("n1 memory=24", "root.a r1 n1 memory=10", "root.a r2 n1 memory=11", "root.a r3 n1 memory=3"),
        *("n2 memory=12", "root.a r4 n2 memory=12"),
    )
    assert chosen(plan(trial, "root.b ask memory=4")) == ("n1", ["r1"]), "without the small one that is not enough"
    trial = cluster(
        "root.a; root.b guaranteed=memory:4", "n1 memory=6", "root.a r1 n1 memory=3", "root.a r2 n1 memory=3"
    )
    assert victims(trial, "root.b ask memory=4") == ["r2", "r1"], "both are larger than the guarantee together"


def test_of_several_nodes_the_one_with_the_smallest_larger_victim() -> None:
    parts = [part for n in range(4) for part in (f"n{n} memory=9", f"root.a r{n} n{n} memory={(8, 7, 7, 9)[n]}")]
    assert chosen(plan(cluster("root.a; root.b guaranteed=memory:4", *parts), "root.b ask memory=4")) == ("n1", ["r1"])
    for flag in ("unwilling", "originator"):
        trial = cluster("root.a; root.b guaranteed=memory:4", *parts[:3], f"{parts[3]} {flag}")
        assert chosen(plan(trial, "root.b ask memory=4")) == ("n0", ["r0"])


@pytest.mark.parametrize("flag", ["unwilling", "originator", "unwilling originator"])
def test_a_larger_one_that_agreed_goes_before_small_ones_that_did_not_and_originators(flag: str) -> None:
    queues = "root.a; root.b guaranteed=memory:5"
    trial = cluster(queues, "n1 memory=9", "root.a r1 n1 memory=6", f"root.a r2 n1 memory=3 {flag}")
    assert victims(trial, "root.b ask memory=3") == ["r1"]
    trial = cluster(
        *(queues, "n1 memory=3", f"root.a r2 n1 memory=3 {flag}", "n2 memory=6", "root.a r1 n2 memory=6"),
    )
    assert chosen(plan(trial, "root.b ask memory=3")) == ("n2", ["r1"])
    trial = cluster(queues, "n1 memory=9", "root.a r1 n1 memory=3", f"root.a r2 n1 memory=6 {flag}")
    assert victims(trial, "root.b ask memory=5") == ["r2"], "alone it is enough"


def test_a_larger_one_goes_that_may_not_once_a_small_one_has() -> None:
    """Its queue exceeds its guarantee by 1 only."""
    trial = cluster(
        "root.a guaranteed=memory:10; root.b guaranteed=memory:5",
        *("n1 memory=11", "root.a r1 n1 memory=9", "root.a r2 n1 memory=2"),
    )
    assert victims(trial, "root.b ask memory=5") == ["r1"]


def test_an_ask_that_is_not_within_its_guarantee_takes_none_that_are_larger() -> None:
    """What its parent is guaranteed is used up by another queue, so that it would be once some have gone."""
    queues = "root.p guaranteed=memory:10; root.p.q guaranteed=memory:4; root.p.q.b; root.p.a guaranteed=memory:2"
    running = ("root.p.a r1 n1 memory=5", "root.p.a r2 n1 memory=5")
    assert plan(cluster(queues, "n1 memory=10", *running), "root.p.q.b ask memory=2") == Reason.PREEMPTION_NO_VICTIM
    assert victims(cluster(queues.replace("memory:4", "memory:5"), "n1 memory=10", *running), "root.p.q.b ask memory=2")


def test_a_candidate_stays_if_its_queue_is_within_a_guarantee_of_both_queues_once_others_have_left() -> None:
    """The guarantee is of memory, of which r2 frees the excess; both are needed, for their gpu."""
    queues = "root.p guaranteed=memory:4; root.p.a; root.p.b"
    running = ["n1 memory=8 gpu=2", "root.p.a r1 n1 gpu=1", "root.p.a r2 n1 memory=5 gpu=1"]
    assert plan(cluster(queues, *running), "root.p.b ask memory=1 gpu=2") == Reason.PREEMPTION_NO_VICTIM
    running[2:] = ["root.p.a r2 n1 memory=2 gpu=1", "root.p.a r3 n1 memory=5"]
    assert victims(cluster(queues, *running), "root.p.b ask memory=1 gpu=2") == ["r2", "r1"]


FULL_PARENT = "root.p max=memory:20; root.p.a; root.p.b guaranteed=memory:8"


def test_nor_do_larger_ones_hide_others_if_a_parent_is_full_and_the_nodes_are_not() -> None:
    trial = cluster(FULL_PARENT, "n1 memory=40", "root.p.a r1 n1 memory=5", "root.p.a r2 n1 memory=15")
    assert victims(trial, "root.p.b ask memory=4", tried=False) == ["r1"]
    trial = cluster(FULL_PARENT, "n1 memory=40", "root.p.a r1 n1 memory=11", "root.p.a r2 n1 memory=9")
    assert victims(trial, "root.p.b ask memory=4", tried=False) == ["r2"], "the smallest of those that are larger"
    trial = cluster(FULL_PARENT, "n1 memory=40", "root.p.a r1 n1 memory=11", "root.p.a r2 n1 memory=13")
    assert victims(trial, "root.p.b ask memory=4", tried=False) == ["r1"], "although the parent exceeds its maximum"


def on_one_of_many(count: int, gpus: int = 1, sizes: tuple[int, ...] = (2, 2)) -> Trial:
    """Nodes on which one victim with gpus makes room, so that its queue is within its guarantee and loses no memory to
    make room in the full parent, and a last one where victims of these sizes make room in both.
    """
    full = f"memory={sum(sizes)}"
    queues = f"root.p max={full.replace('=', ':')}; root.p.a guaranteed=gpu:{gpus * count}"
    names = [f"n{number}" for number in range(count)]
    few = [part for name in names for part in (f"{name} memory=4 gpu={gpus}", f"root.p.a {name}-1 {name} gpu={gpus}")]
    last = ["root.p.a r0 n99 gpu=1", *(f"root.p.a r{at} n99 memory={size}" for at, size in enumerate(sizes, 1))]
    return cluster(f"{queues}; root.p.b guaranteed=memory:4,gpu:1", *few, f"n99 {full} gpu=2", *last)


@pytest.mark.parametrize(
    ("gpus", "sizes", "expected"),
    [(1, (2, 2), ["r2", "r1"]), pytest.param(2, (8,), ["r1"], id="larger than the guarantee")],
)
def test_other_nodes_are_tried_if_the_fewest_victims_leave_the_queues_without_room(
    gpus: int, sizes: tuple[int, ...], expected: list[str]
) -> None:
    for count in (1, NODES_MAX - 1):
        trial = on_one_of_many(count, gpus, sizes)
        assert chosen(plan(trial, "root.p.b ask memory=4 gpu=1")) == ("n99", expected)
    trial = on_one_of_many(NODES_MAX, gpus, sizes)
    assert plan(trial, "root.p.b ask memory=4 gpu=1") == Reason.PREEMPTION_TOO_LITTLE


def test_victims_make_room_on_the_node_and_in_a_full_parent() -> None:
    """A little is missing on the node, and 4 in the parent."""
    queues = "root.p max=memory:20; root.p.a; root.p.b guaranteed=memory:4"
    trial = cluster(
        queues,
        *("n1 memory=8", "root.p.a r1 n1 memory=2", "root.p.a r2 n1 memory=4"),
        *("n2 memory=20", "root.p.a r3 n2 memory=3", "root.p.a r4 n2 memory=11"),
    )
    trial.takes(nodes("n2", action=NODE_DRAIN))
    assert chosen(plan(trial, "root.p.b ask memory=4", tried=False)) == ("n1", ["r2"])
    running = ("root.p.a r3 n2 memory=3", "root.p.a r4 n2 memory=15")
    trial = cluster(queues, "n1 memory=5", "root.p.a r1 n1 memory=2", "n2 memory=20", *running)
    trial.takes(nodes("n2", action=NODE_DRAIN))
    assert chosen(plan(trial, "root.p.b ask memory=4", tried=False)) == ("n1", ["r1", "r3"])


def test_nobody_goes_where_that_makes_no_room_in_the_queues() -> None:
    """The nodes together are smaller than what runs there, as one has shrunk."""
    queues = "root.b guaranteed=memory:4; root.a; root.c preemption.policy=disabled"
    trial = cluster(queues, "n1 memory=4", "root.a r1 n1 memory=4", "n2 memory=9", "root.c r2 n2 memory=9")
    trial.takes(nodes("n2 memory=1", action=NODE_UPDATE))
    assert plan(trial, "root.b ask memory=4") == Reason.PREEMPTION_TOO_LITTLE
    trial.takes(nodes("n2 memory=9", action=NODE_UPDATE))
    assert victims(trial, "root.b again memory=4") == ["r1"]


def test_of_several_nodes_the_one_where_the_fewest_go() -> None:
    trial = cluster(
        "root.a; root.b guaranteed=memory:4",
        *("n1 memory=4", "n2 memory=4", "n3 memory=4"),
        *("root.a r1 n1 memory=2", "root.a r2 n1 memory=2", "root.a r3 n2 memory=4", "root.a r4 n3 memory=4"),
    )
    found = plan(trial, "root.b ask memory=4")
    assert isinstance(found, Preempt)
    assert (found.node.node_id, [one.key for one in found.victims]) == ("n2", ["r3"])


def test_victims_that_cover_two_types_together() -> None:
    two = ("root.a r1 n1 memory=1 gpu=1", "root.a r2 n1 memory=3 gpu=1")
    trial = cluster("root.a; root.b guaranteed=memory:4,gpu:2", "n1 memory=4 gpu=2", *two)
    assert victims(trial, "root.b ask memory=4 gpu=2") == ["r2", "r1"]


def test_one_type_that_is_covered_exactly_does_not_end_the_collection() -> None:
    trial = cluster(
        "root.a; root.b guaranteed=memory:4,gpu:1", "n1 memory=4 gpu=1", "root.a r1 n1 gpu=1", "root.a r2 n1 memory=4"
    )
    assert victims(trial, "root.b ask memory=4 gpu=1") == ["r2", "r1"]


def test_one_type_in_excess_does_not_end_the_collection_while_another_is_missing_on_the_node() -> None:
    trial = cluster(
        "root.a; root.b guaranteed=memory:9,gpu:1",
        *("n1 memory=10 gpu=1", "root.a r1 n1 gpu=1", "root.a r2 n1 memory=8"),
    )
    assert victims(trial, "root.b ask memory=4 gpu=1") == ["r2", "r1"]


def test_others_on_the_node_go_until_the_whole_ask_is_covered() -> None:
    """4 are free there and 8 are asked for: the first of them frees what is missing, and the second covers the ask."""
    trial = cluster(
        "root.a; root.b guaranteed=memory:20",
        *("n1 memory=12", "root.a r1 n1 memory=4", "root.a r2 n1 memory=4", "n2 memory=6", "root.a x n2 memory=6"),
    )
    assert victims(trial, "root.b ask memory=8") == ["r2", "r1"]


def test_who_comes_before_them_elsewhere_uses_up_the_guarantee_first() -> None:
    """As above, but what the newest one on the other node leaves is enough for the queue of the ask."""
    trial = cluster(
        "root.a; root.b guaranteed=memory:10",
        *("n1 memory=12", "n2 memory=7", "root.a r1 n1 memory=4", "root.a x n2 memory=7", "root.a r2 n1 memory=4"),
    )
    assert victims(trial, "root.b ask memory=8") == ["r2"]


def test_nobody_goes_if_others_would_and_the_queue_of_the_ask_had_too_much_of_something_still() -> None:
    """The guarantee above it is exceeded in gpu, which is not what is missing on the node."""
    queues = "root.c; root.p guaranteed=memory:20,gpu:1; root.p.a; root.p.b"
    parts = ("root.p.a g n1 gpu=2", "root.c r1 n1 memory=4")
    assert victims(cluster(queues, "n1 memory=4 gpu=5", *parts), "root.p.b ask memory=4 gpu=1") == ["r1"]
    two = cluster(queues, "n1 memory=8 gpu=5", *parts, "root.c r2 n1 memory=4")
    assert plan(two, "root.p.b ask memory=4 gpu=1") == Reason.PREEMPTION_NO_VICTIM


def test_with_room_on_a_node_victims_may_be_anywhere() -> None:
    """The queue of the ask has no room, so nodes were not tried: the parent is full of what its other queue has."""
    queues = "root.p max=memory:4; root.p.a; root.p.b guaranteed=memory:2"
    rest = ("root.p.a r1 n1 memory=1", "root.p.a r2 n2 memory=1", "root.p.a r3 n2 memory=2")
    trial = cluster(queues, "n1 memory=4", "n2 memory=3", *rest)
    found = plan(trial, "root.p.b ask memory=2", tried=False)
    assert isinstance(found, Preempt)
    assert (found.node.node_id, [one.key for one in found.victims]) == ("n1", ["r3"])
    found = plan(trial, "root.p.b again memory=2", tried=True)
    assert isinstance(found, Preempt)
    assert found.node.node_id == "n2"  # n1 did not take it although it has room


def test_a_type_of_which_nothing_is_asked_does_not_count() -> None:
    trial = cluster("root.a; root.b guaranteed=memory:10", "n1 memory=10 gpu=1", *TEN, "root.a g n1 gpu=1")
    assert victims(trial, "root.b ask memory=2 gpu=0") == ["r9", "r8"]


def test_nobody_goes_of_the_queue_of_the_ask() -> None:
    trial = cluster(TWO, "n1 memory=10", "root.b mine n1 memory=5", "root.a r1 n1 memory=5")
    assert victims(trial, "root.b ask memory=5") == ["r1"]


def test_who_is_gone_already_counts_as_gone() -> None:
    """What was asked back is no victim again, and neither the guarantee nor the excess of its queue counts it."""
    trial = cluster("root.a guaranteed=memory:8; root.b guaranteed=memory:10", "n1 memory=10", *TEN)
    first = plan(trial, "root.b ask memory=2")
    assert isinstance(first, Preempt)
    for victim in first.victims:
        ledger.mark_preempted(trial.partition, trial.app(victim.application_id), victim)
    assert plan(trial, "root.b again memory=2") == Reason.PREEMPTION_NO_VICTIM


def test_nothing_is_changed_by_a_plan() -> None:
    trial = cluster("root.a; root.p guaranteed=memory:9; root.p.b guaranteed=memory:4", "n1 memory=10", *TEN)
    assert victims(trial, "root.p.b ask memory=3") == victims(trial, "root.p.b again memory=3") == ["r9", "r8", "r7"]
    assert trial.queue("root.a").allocated == {"memory": 10}
    assert not trial.queue("root.a").preempting


@pytest.mark.tampers
def test_a_queue_that_lost_takes_nothing_back_while_the_cooldown_lasts() -> None:
    trial = cluster(
        "root.a guaranteed=memory:4; root.b guaranteed=memory:2; root.c",
        *("n1 memory=6", "root.c r1 n1 memory=1", "root.c r2 n1 memory=1", "root.b r3 n1 memory=4"),
    )
    trial.partition.preemptions.cooldowns.record_win("root.b", "root.a", trial.now, first_s=300.0, again_s=300.0)
    assert victims(trial, "root.a ask memory=2") == ["r2", "r1"]
    trial.now += 300
    trial.partition.step(trial.now, 0)
    assert victims(trial, "root.a again memory=2") == ["r3"]


QUEUES = "root.a; root.b guaranteed=memory:100; root.c"


def chosen(found: Preempt | str) -> tuple[str, list[str]]:
    assert isinstance(found, Preempt), found
    return found.node.node_id, [one.key for one in found.victims]


def kept(text: str, *more: str, queues: str = QUEUES) -> Trial:
    """A node whose only allocation may go, reserved for an ask of these words."""
    trial = cluster(queues, "n1 memory=4", "root.a r1 n1 memory=4", *more)
    trial.takes(asks(f"root.c kept memory=1 created={int(trial.now) - 60} {text}"))
    application = trial.app("root.c")
    reservations.reserve(trial.partition, application, application.requests["kept"], trial.node("n1"))
    return trial


def test_of_equal_nodes_the_first_by_id() -> None:
    parts = ("n2 memory=4", "n1 memory=4", "root.a r2 n2 memory=4", "root.a r1 n1 memory=4")
    assert chosen(plan(cluster(QUEUES, *parts), "root.b ask memory=4")) == ("n1", ["r1"])


def test_a_node_with_one_large_victim_comes_before_one_with_two_small_ones() -> None:
    """Extra victims apart: the queue of the ask is guaranteed no more than this."""
    trial = cluster(
        QUEUES.replace("100", "4"),
        *("n1 memory=4", "n2 memory=4", "root.a r1 n1 memory=2", "root.a r2 n1 memory=2", "root.a r3 n2 memory=4"),
    )
    assert chosen(plan(trial, "root.b ask memory=4")) == ("n2", ["r3"])


def test_those_who_gain_what_is_missing_go_before_newer_ones() -> None:
    trial = cluster(QUEUES, "n1 memory=4 gpu=5", "root.a r1 n1 memory=4", "root.a r2 n1 gpu=1")
    assert chosen(plan(trial, "root.b ask memory=4 gpu=1")) == ("n1", ["r1"])


def test_a_draining_node_is_no_place_for_the_ask() -> None:
    trial = cluster(QUEUES, "n1 memory=4", "root.a r1 n1 memory=4")
    trial.takes(nodes("n1", action=NODE_DRAIN))
    assert plan(trial, "root.b ask memory=4") == Reason.PREEMPTION_NO_VICTIM


def test_nor_is_one_that_is_too_small() -> None:
    trial = cluster(QUEUES, "n1 memory=4", "root.a r1 n1 memory=4")
    assert plan(trial, "root.b ask memory=5") == Reason.PREEMPTION_NO_VICTIM


def test_nor_is_one_where_all_candidates_together_are_too_small() -> None:
    trial = cluster(QUEUES, "n1 memory=4", "root.a r1 n1 memory=2", "root.b mine n1 memory=2")
    assert plan(trial, "root.b ask memory=3") == Reason.PREEMPTION_NO_VICTIM


def test_nodes_that_are_kept_for_the_ask_itself_are_like_others() -> None:
    trial = cluster(QUEUES, "n1 memory=4", "root.a r1 n1 memory=4")
    ask = question(trial, "root.b ask memory=4")
    reservations.reserve(trial.partition, trial.app("root.b"), ask, trial.node("n1"))
    found = victim_choice.plan_victims(trial.partition, trial.app("root.b"), ask, nodes_tried=True)
    assert chosen(found) == ("n1", ["r1"])


GUARANTEED_QUEUES = QUEUES.replace("root.c", "root.c guaranteed=memory:1")


@pytest.mark.parametrize(
    ("queues", "words"), [(QUEUES, ""), (QUEUES, "priority=1"), (GUARANTEED_QUEUES, "priority=-1")]
)
def test_a_reservation_ends_for_an_ask_that_is_more_important_or_if_its_own_is_beyond_its_guarantee(
    queues: str, words: str
) -> None:
    trial = kept(words, queues=queues)
    found = plan(trial, "root.b ask memory=4")
    assert chosen(found) == ("n1", ["r1"])
    assert isinstance(found, Preempt)
    assert [one.ask.key for one in found.cancels] == ["kept"]
    assert list(trial.node("n1").reservations) == ["kept"]  # a plan changes nothing


@pytest.mark.parametrize(("queues", "words"), [(GUARANTEED_QUEUES, ""), (QUEUES, "required=n1")])
def test_it_does_not_if_its_ask_is_as_important_and_within_its_guarantee_or_can_run_nowhere_else(
    queues: str, words: str
) -> None:
    assert plan(kept(words, queues=queues), "root.b ask memory=4") == Reason.PREEMPTION_NO_VICTIM


def test_it_does_not_if_another_node_can_be_freed_though_with_more_victims() -> None:
    trial = kept("", "n2 memory=4", "root.a r2 n2 memory=2", "root.a r3 n2 memory=2")
    found = plan(trial, "root.b ask memory=4")
    assert isinstance(found, Preempt)
    assert (found.node.node_id, found.cancels) == ("n2", ())


def test_without_victims_only_the_reservation_ends_and_the_ask_runs() -> None:
    """No preemption is logged."""
    trial = kept("memory=6").takes(nodes("n1 memory=8", action=NODE_UPDATE), nodes("n2 memory=4"))
    trial.takes(foreign("f n2 memory=4"), asks("root.b ask memory=4 preemptor created=1")).settles()
    assert trial.running == ["ask on n1", "r1 on n1"]
    assert not trial.partition.preemptions.entries


@pytest.mark.tampers
def test_it_does_not_if_somebody_had_to_go_for_its_ask() -> None:
    trial = kept("")
    trial.takes(nodes("n1 memory=5", action=NODE_UPDATE))
    reservations.keep_victims_room(trial.partition, trial.app("root.c").reservations["kept"])
    assert plan(trial, "root.b ask memory=4 priority=1") == Reason.PREEMPTION_NO_VICTIM


# Where somebody else has a say --------------------------------------------------------------------------------------

FULL_QUEUE = "root.p max=memory:8; root.p.a; root.p.b guaranteed=memory:8"
ROOM = ("n1 memory=9", "n2 memory=9", "root.p.a r1 n1 memory=4", "root.p.a r2 n2 memory=4")


def test_a_node_that_does_not_admit_the_ask_is_passed_by() -> None:
    def admits(ask: Allocation, node: Node) -> bool:
        return node.node_id != "n1"

    assert chosen(plan(cluster(FULL_QUEUE, *ROOM), "root.p.b ask memory=4", tried=False))[0] == "n1"
    assert chosen(plan(cluster(FULL_QUEUE, *ROOM), "root.p.b ask memory=4", tried=False, admits=admits))[0] == "n2"


def test_if_none_does_nobody_goes() -> None:
    trial = cluster(FULL_QUEUE, *ROOM)
    assert (
        plan(trial, "root.p.b ask memory=4", tried=False, admits=lambda ask, node: False) == Reason.PREEMPTION_NO_VICTIM
    )


def test_originators_and_unwilling_ones_count_more_than_numbers() -> None:
    parts = (
        *("n1 memory=4", "n2 memory=4", "n3 memory=4"),
        *("root.a r1 n1 memory=4 originator", "root.a r2 n2 memory=4 unwilling"),
        *("root.a r3 n3 memory=2", "root.a r4 n3 memory=2"),
    )
    trial, ask = cluster(QUEUES.replace("100", "4"), *parts), "root.b ask memory=4"
    assert chosen(plan(trial, ask))[0] == "n3"
    two = cluster(QUEUES.replace("100", "4"), *parts[1:2], parts[0], *parts[3:5])
    assert chosen(plan(two, ask))[0] == "n1"


def test_a_node_where_more_go_is_better_than_any_number_of_nodes_with_originators() -> None:
    def best_of(first: str) -> str:
        ten = [part for n in range(10) for part in (f"n{n} memory=4", f"root.a r{n} n{n} memory=4 {first}")]
        last = ("nx memory=4", "root.a x1 nx memory=2", "root.a x2 nx memory=2")
        return chosen(plan(cluster(QUEUES.replace("100", "4"), *ten, *last), "root.b ask memory=4"))[0]

    assert best_of("") == "n0"
    assert best_of("originator") == "nx"


def test_many_small_ones_count_as_many_although_somebody_elsewhere_is_large() -> None:
    """The largest makes each node look as if one would do; of three and two that go, the two are fewer."""
    parts = (
        *("n1 memory=6", *(f"root.a a{n} n1 memory=2" for n in range(3))),
        *("n2 memory=6", "root.a b1 n2 memory=3", "root.a b2 n2 memory=3"),
        *("n3 memory=6", "root.c c1 n3 memory=6 priority=1"),
        *("n4 memory=9 gpu=1", "root.a d1 n4 memory=9"),
    )
    assert chosen(plan(cluster(QUEUES.replace("100", "6"), *parts), "root.b ask memory=6")) == ("n2", ["b2", "b1"])


@pytest.mark.parametrize("sort", ["", "unwilling", "originator", "unwilling originator"])
def test_fewer_of_the_same_sort_are_better_and_of_as_many_the_first_by_id(sort: str) -> None:
    parts: list[str] = []
    for name, sizes in (("n1", "112"), ("n3", "22"), ("n2", "22"), ("n0", "121")):
        parts.append(f"{name} memory=4")
        parts += (f"root.a {name}-{number} {name} memory={size} {sort}" for number, size in enumerate(sizes))
    trial = cluster(QUEUES.replace("100", "4"), *parts, "big memory=9", "root.a b big memory=5 " + sort)
    assert chosen(plan(trial, "root.b ask memory=4")) == ("n2", ["n2-1", "n2-0"])


def test_who_has_a_say_is_asked_only_as_far_as_it_matters() -> None:
    asked: list[str] = []

    def admits(ask: Allocation, node: Node) -> bool:
        asked.append(node.node_id)
        return node.node_id != "n10"

    room = [part for n in range(10, 22) for part in (f"n{n} memory=9", f"root.p.a r{n} n{n} memory=1")]
    trial = cluster(FULL_QUEUE.replace("8", "12"), *room)
    assert chosen(plan(trial, "root.p.b ask memory=1", tried=False, admits=admits))[0] == "n11"
    assert asked == ["n10", "n11"]


def test_a_node_without_any_candidate_counts_as_the_worst() -> None:
    """As in YuniKorn: the victims are then taken from where the ask is not going to run."""
    trial = cluster(FULL_QUEUE, "n0 memory=9", *ROOM)
    assert chosen(plan(trial, "root.p.b ask memory=4", tried=False))[0] == "n1"
