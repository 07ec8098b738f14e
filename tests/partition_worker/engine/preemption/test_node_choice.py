"""Which node is freed for an ask if the RM decides whether the ask would run there without the victims."""

from tests.builders import apps, asks, nodes, released
from tests.trial import Trial
from yunishard.common.messages.rm_messages import NODE_DRAIN, NODE_UPDATE
from yunishard.partition_worker.engine.attempt_log import NO_HELP, WAITING, list_messages
from yunishard.partition_worker.engine.predicates.verdicts import COOL_DOWN_S, DEADLINE_S, PAUSE_S
from yunishard.partition_worker.engine.preemption.node_choice import NODES_MORE, NODES_PER_BATCH, VICTIMS_MAX

QUEUES = "root.owner guaranteed=memory:1000; root.borrower"


def deciding(*on: str, decides: bool = True, wanted: str = "memory=4") -> Trial:
    """Nodes of 10 that root.borrower has all of, in parts of 2, and an ask of root.owner that has waited long enough to
    preempt, and that the RM does not admit to any node as it is.
    """
    names = on or ("n1", "n2")
    one = Trial(QUEUES).does(
        nodes(*(f"{name} memory=10" for name in names)), apps("owner root.owner", "b root.borrower")
    )
    one.does(asks(*(f"b {name}-{part} memory=2 victim on={name}" for name in names for part in range(5))))
    one.partition.nodes.predicates.asks_manager = True
    one.partition.nodes.predicates.asks_about_victims = decides
    one.does(asks(f"owner o1 {wanted} preemptor"))
    one.told()
    return one.waits(30.1)


def lines(one: Trial) -> list[str]:
    """Everything that was told since this was asked last, in short."""
    return [line.split(" (PREEMPTED")[0] for line in one.told() if not line.startswith("note")]


def test_the_rm_is_asked_about_all_candidates_of_each_node_and_those_that_have_to_go_for_the_room() -> None:
    one = deciding()
    first, second = "n1-4 n1-3 n1-2 n1-1 n1-0", "n2-4 n2-3 n2-2 n2-1 n2-0"
    assert lines(one) == [f"may o1 run on n1 without {first} from 1, o1 run on n2 without {second} from 1?"]
    assert lines(one.answers()) == ["n1-4 released", "n1-3 released"]
    assert one.app("owner").reservations["o1"].node.node_id == "n1"


def test_a_node_that_the_rm_refuses_is_left_alone() -> None:
    one = deciding().answers("o1 on n1: its host port is taken by a system pod")
    assert lines(one)[1:] == ["n2-4 released", "n2-3 released"]


def test_more_victims_go_if_the_rm_needs_them_and_the_node_with_fewer_is_taken() -> None:
    assert lines(deciding("n1").answers(needed={"n1": 3}))[1:] == [f"n1-{part} released" for part in (4, 3, 2, 1)]
    assert lines(deciding().answers(needed={"n1": 3, "n2": 2}))[1:] == [f"n2-{part} released" for part in (4, 3, 2)]


def test_nobody_goes_if_all_nodes_are_refused_and_after_the_pause_the_rm_is_asked_again() -> None:
    one = deciding("n1")
    assert lines(one.answers("o1 on n1: no"))[1:] == []
    group = one.app("owner").requests["o1"].group
    assert group is not None
    assert {WAITING, NO_HELP} <= set(list_messages(group.log))
    assert lines(one.waits(14)) == []
    assert len(one.asked) == 1
    one.waits(COOL_DOWN_S)
    assert len(one.asked) > 1


def test_the_search_waits_for_the_answer_without_trying_again() -> None:
    one = deciding()
    attempts = one.app("owner").queue.preemption_attempts
    assert one.partition.next_change == one.partition.nodes.predicates.verdicts.deadline
    one.waits(DEADLINE_S / 2)
    assert one.app("owner").queue.preemption_attempts == attempts == 1


def test_a_silent_rm_lets_nobody_go_and_is_asked_ever_more_seldom() -> None:
    one = deciding("n1")
    one.waits(DEADLINE_S + PAUSE_S + 20)
    assert len(one.asked) < 6
    assert not [line for line in lines(one) if "released" in line]
    assert lines(one.answers().waits(16))[-2:] == ["n1-4 released", "n1-3 released"], "a late answer counts"


def test_an_answer_about_a_node_that_has_changed_is_worth_nothing() -> None:
    one = deciding("n1")
    one.takes(nodes("n1 tag.zone=b", action=NODE_UPDATE))
    assert not [line for line in lines(one.answers().waits(0)) if "released" in line]
    assert len(one.asked) == 2
    assert lines(one.answers()) == ["n1-4 released", "n1-3 released"]


def test_one_of_the_victims_that_ended_meanwhile_is_not_released() -> None:
    one = deciding("n1")
    one.does(released("b n1-4"))
    one.answers().waits(0)
    assert "without n1-3 n1-2 n1-1 n1-0 from 0?" in lines(one)[-1]


def test_an_index_that_cannot_be_is_a_refusal() -> None:
    assert not [line for line in lines(deciding("n1").answers(needed={"n1": 0})) if "released" in line]
    assert not [line for line in lines(deciding("n1").answers(needed={"n1": 5})) if "released" in line]


def test_a_node_that_the_rm_admits_the_ask_to_without_victims_needs_none_if_only_the_queue_is_full() -> None:
    one = Trial("root.p max=memory:20; root.p.owner guaranteed=memory:10; root.p.borrower")
    one.does(nodes("n1 memory=30"), apps("owner root.p.owner", "b root.p.borrower"))
    one.does(asks(*(f"b b{part} memory=4 victim on=n1" for part in range(5))))
    one.partition.nodes.predicates.asks_manager = one.partition.nodes.predicates.asks_about_victims = True
    one.does(asks("owner o1 memory=4 preemptor"))
    one.told()
    one.waits(30.1)
    assert lines(one) == ["may o1 run on n1?"]
    assert lines(one.answers()) == ["b4 released"]


def test_if_only_larger_victims_make_room_the_rm_is_asked_about_these_alone() -> None:
    one = Trial("root.owner guaranteed=memory:5; root.borrower")
    one.does(nodes("n1 memory=10", "n2 memory=12"), apps("owner root.owner", "b root.borrower"))
    one.does(asks("b k1 memory=4 victim on=n1", "b k2 memory=6 victim on=n1", "b k3 memory=12 victim on=n2"))
    one.partition.nodes.predicates.asks_manager = one.partition.nodes.predicates.asks_about_victims = True
    one.does(asks("owner o1 memory=5 preemptor"))
    one.told()
    one.waits(30.1)
    assert lines(one) == ["may o1 run on n1 without k2 from 0, o1 run on n2 without k3 from 0?"]
    assert lines(one.answers("o1 on n1: no")) == ["k3 released"]


def test_without_the_capability_a_node_is_taken_if_the_rm_lets_it_be_reserved() -> None:
    one = deciding("n1", decides=False)
    assert lines(one) == ["may o1 run on n1?"]
    one.answers().waits(16)
    assert lines(one) == ["n1-4 released", "n1-3 released"]


def test_a_selector_and_a_drain_exclude_nodes_before_the_rm_is_asked() -> None:
    one = deciding("n1", "n2", "n3", wanted="memory=4 tag.yunishard/forbiddenNodes=n1")
    one.answers("o1 on n2: no", "o1 on n3: no").does(nodes("n2", action=NODE_DRAIN)).waits(31)
    assert {two.node_id for asked in one.asked for two in asked.preemptions} == {"n2", "n3"}
    assert [two.node_id for two in one.asked[-1].preemptions] == ["n3"]


def refuse_all(one: Trial) -> None:
    """Let the RM refuse every node in its last question."""
    one.answers(*(f"{two.allocation_key} on {two.node_id}: no" for two in one.asked[-1].preemptions)).waits(0)


def test_ten_nodes_are_compared_and_more_are_asked_about_the_more_are_refused() -> None:
    names = [f"n{number:02}" for number in range(60)]
    one = deciding(*names)
    sizes = []
    while len(one.asked) > len(sizes):
        sizes.append(len(one.asked[-1].preemptions))
        refuse_all(one)
    assert sizes == [NODES_PER_BATCH, NODES_PER_BATCH + NODES_MORE * NODES_PER_BATCH, 60 - 50]
    asked = [two.node_id for question in one.asked for two in question.preemptions]
    assert asked == names


def test_a_question_goes_beyond_nodes_whose_verdicts_are_known() -> None:
    one = deciding(*(f"n{number:02}" for number in range(51)))
    refuse_all(one)
    one.takes(nodes("n20 tag.zone=b", action=NODE_UPDATE))
    refuse_all(one)
    assert [two.node_id for two in one.asked[-1].preemptions] == ["n20", "n50"]


def test_the_candidates_of_a_node_are_bounded() -> None:
    one = Trial(QUEUES).does(nodes("n1 memory=2000"), apps("owner root.owner", "b root.borrower"))
    one.does(asks(*(f"b k{part} memory=1 victim on=n1" for part in range(2000))))
    one.partition.nodes.predicates.asks_manager = one.partition.nodes.predicates.asks_about_victims = True
    one.does(asks("owner o1 memory=4 preemptor")).waits(30.1)
    [asked] = one.asked[-1].preemptions
    assert (len(asked.preempt_allocation_keys), asked.start_index) == (VICTIMS_MAX, 3)


def test_the_rm_is_asked_once_about_few_reluctant_victims_and_once_about_larger_ones_on_a_node() -> None:
    """Both verdicts are needed for the choice, as an RM may refuse the larger ones."""
    for refusals, gone in (((), ["k1"]), (("o1 on n1: no",), ["k2", "k3"])):
        one = Trial("root.owner guaranteed=memory:4; root.borrower")
        one.does(nodes("n1 memory=9"), apps("owner root.owner", "b root.borrower"))
        one.does(asks("b k1 memory=5 victim on=n1", "b k2 memory=2 victim on=n1", "b k3 memory=2 on=n1"))
        one.partition.nodes.predicates.asks_manager = one.partition.nodes.predicates.asks_about_victims = True
        one.does(asks("owner o1 memory=4 preemptor"))
        one.told()
        one.waits(30.1)
        assert lines(one) == ["may o1 run on n1 without k2 k3 from 1?"]
        assert lines(one.answers().waits(0)) == ["may o1 run on n1 without k1 from 0?"]
        assert lines(one.answers(*refusals).waits(0)) == [f"{key} released" for key in gone]
