"""Who asks the predicates, what is remembered, and what a plug-in cannot do to us."""

import pytest

from tests.builders import apps, asks, nodes
from tests.partition_worker.engine.predicates.plugins import Broken, Rack, Silent, Unhashable
from tests.trial import Trial
from yunishard.partition_worker.engine.allocation import AskShape, Constraint
from yunishard.partition_worker.engine.amounts import amounts_of
from yunishard.partition_worker.engine.attempt_log import WAITING
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.predicates.evaluation import REASON_LENGTH_MAX, Predicates
from yunishard.partition_worker.engine.predicates.predicate import Predicate

ONE = amounts_of({"memory": 1})


def a_node(name: str = "n1", rank: int = 0, **attributes: str) -> Node:
    return Node(name, rank, {"memory": 10}, attributes)


def need(predicates: Predicates, key: str = "a1", **tags: str) -> AskShape:
    return AskShape(ONE, constraint=predicates.read_constraint(tags, key))


def test_an_ask_that_demands_nothing_has_no_constraint() -> None:
    predicates = Predicates([Rack()])
    assert predicates.read_constraint({}, "a1") is None
    assert predicates.read_constraint({"podName": "x"}, "a1") is None
    assert (
        predicates.read_constraint({"rack": "r1"}, "a1")
        == predicates.read_constraint({"rack": "r1", "podName": "x"}, "a2")
        is not None
    )


def test_wrong_tags_are_told_as_the_predicate_says() -> None:
    with pytest.raises(ValueError, match=r"^tag rack: name one$"):
        Predicates([Rack()]).read_constraint({"rack": ""}, "a1")


def test_every_predicate_has_to_agree() -> None:
    predicates = Predicates([Rack()])
    both = need(predicates, **{"rack": "r1", "yunishard/forbiddenNodes": "n2"})
    nodes = [a_node(rack="r1"), a_node("n2", 1, rack="r1"), a_node("n3", 2, rack="r2")]
    assert [predicates.refusal(both, node) for node in nodes] == ["", "node is forbidden", "node is in rack r2"]


def test_a_pair_is_asked_about_once_until_the_node_has_another_size() -> None:
    rack, node = Rack(), a_node(rack="r1")
    predicates = Predicates([rack])
    for _ in range(3):
        assert predicates.is_accepted(need(predicates, rack="r1"), node)
    assert rack.looks == 1
    node.resize({"memory": 20})
    predicates.is_accepted(need(predicates, rack="r1"), node)
    assert rack.looks == 2


def test_a_guarded_node_refuses_asks_that_demand_nothing() -> None:
    predicates = Predicates([Rack()])
    private, tainted, open_one = (
        a_node(rack="private"),
        a_node("n2", 1, **{"yunishard/taints": "x:NoExecute"}),
        a_node(),
    )
    for node, guarded in ((private, True), (tainted, True), (open_one, False)):
        node.guarded = not predicates.meets(predicates.no_demands, node)
        assert node.guarded == guarded
        assert predicates.is_accepted(AskShape(ONE), node) == (not guarded)
    assert predicates.is_accepted(need(predicates, rack="private"), private)
    assert not predicates.is_accepted(need(predicates, rack="private"), tainted)


def test_a_plug_in_that_raises_has_refused_and_is_reported_once() -> None:
    predicates = Predicates([Broken()])
    wanted = need(predicates, broken="yes")
    reason = "predicate broken failed: KeyError: 'gpu'"
    assert [predicates.refusal(wanted, a_node(rank=rank)) for rank in range(3)] == [reason] * 3
    assert predicates.complaints == [f"{reason}; this counts as a refusal, and is reported once"]


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        (Broken(reading=True), "predicate broken failed: RuntimeError: it is Sunday"),
        (Unhashable(), "predicate broken failed: TypeError: unhashable type: 'list'"),
    ],
)
def test_tags_on_which_a_plug_in_breaks_are_refused(plugin: Predicate, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        Predicates([plugin]).read_constraint({"broken": "x"}, "a1")


def test_a_plug_in_that_answers_no_text_has_refused() -> None:
    predicates = Predicates([Silent()])
    problem = predicates.refusal(need(predicates, broken="x"), a_node())
    assert problem == "predicate broken failed: TypeError: its answer is NoneType, not text"


def test_reasons_are_cut_and_can_be_sent() -> None:
    predicates = Predicates([Broken(answer="\ud800" + "x" * 1000)])
    problem = predicates.refusal(need(predicates, broken="x"), a_node())
    assert problem == "?" + "x" * (REASON_LENGTH_MAX - 1)


def test_the_attributes_of_a_node_cannot_be_changed_by_a_plug_in() -> None:
    class Vandal(Rack):
        def refuses(self, demand: object, node: object) -> str:
            node.attributes["rack"] = "mine"  # type: ignore[attr-defined]
            return ""

    predicates, node = Predicates([Vandal()]), a_node(rack="r1")
    assert "does not support item assignment" in predicates.refusal(need(predicates, rack="mine"), node)
    assert node.attributes == {"rack": "r1"}


# The search ---------------------------------------------------------------------------------------------------------


def test_the_first_node_that_admits_is_found_and_vain_searches_are_cached() -> None:
    rack = Rack()
    predicates = Predicates([rack])
    nodes = [a_node(f"n{rank}", rank, rack=f"r{rank}") for rank in range(3)]
    assert predicates.first(need(predicates, rack="r2"), nodes, all_nodes=True) is nodes[2]
    vain = need(predicates, rack="r9")
    assert predicates.first(vain, nodes[:1], all_nodes=False) is None
    assert not predicates.in_vain
    assert predicates.first(vain, nodes, all_nodes=True) is None
    assert list(predicates.in_vain) == [(vain, True)]
    predicates.recheck_node(nodes[0])  # it refuses as before
    assert list(predicates.in_vain) == [(vain, True)]
    full = Node("n8", 8, {}, {"rack": "r9"})
    predicates.recheck_node(full)
    assert list(predicates.in_vain) == [(vain, True)]
    better = a_node("n9", 9, rack="r9")
    predicates.recheck_node(better)
    assert not predicates.in_vain
    assert predicates.meets(predicates.no_demands, better)  # as of each node that is added
    assert predicates.first(vain, [*nodes, better], all_nodes=True) is better


def test_asks_that_only_nodes_accept_that_are_too_small_search_for_one_to_reserve_once() -> None:
    trial = Trial("root.a; root.b")
    trial.does(nodes("small memory=1 tag.zone=a", *(f"n{one} memory=10 tag.zone=b" for one in range(50))))
    trial.does(apps("first root.a", "second root.b"))
    wanted = "memory=4 tag.yunishard/nodeSelector=zone=a"
    trial.does(asks(f"first a1 {wanted}", f"second a2 {wanted}")).waits(3)
    trial.does(asks(f"second a3 {wanted}")).waits(3)
    spent = trial.partition.nodes.predicates.table.spent
    trial.does(asks(f"second a4 {wanted}", f"first a5 {wanted}")).waits(3)
    assert trial.partition.nodes.predicates.table.spent == spent


def test_refusals_are_counted_by_reason_in_order() -> None:
    predicates = Predicates([Rack()])
    nodes = [a_node(f"n{rank}", rank, rack=rack) for rank, rack in enumerate(["z", "b", "b", "a"])]
    refusals = predicates.refusals(need(predicates, rack="a"), nodes)
    assert list(refusals.items()) == [("node is in rack b", 2), ("node is in rack z", 1)]


# Where the resource manager has a say -------------------------------------------------------------------------------


def asking() -> Predicates:
    predicates = Predicates()
    predicates.asks_manager = True
    return predicates


def test_each_ask_of_a_manager_that_has_a_say_is_one_of_a_kind() -> None:
    predicates = asking()
    assert predicates.read_constraint({}, "a1") == Constraint((None, None, None), "a1")
    assert need(predicates, "a1") != need(predicates, "a2")


def test_the_manager_is_asked_only_about_nodes_that_are_not_refused_here() -> None:
    predicates = asking()
    wanted = need(predicates, **{"yunishard/forbiddenNodes": "n1"})
    assert not predicates.is_accepted(wanted, a_node())
    assert predicates.verdicts.next_question(0.0) is None
    assert not predicates.is_accepted(wanted, a_node("n2", 1))
    question = predicates.verdicts.next_question(0.0)
    assert question is not None
    assert [pair.node_id for pair in question[0].pairs] == ["n2"]


def test_nodes_on_which_an_ask_waits_are_no_refusals() -> None:
    predicates = asking()
    node = a_node()
    assert predicates.refusal(need(predicates), node) == WAITING
    assert predicates.refusals(need(predicates), [node]) == {}


def test_refusals_are_not_looked_for_beyond_the_first_node_on_which_an_ask_waits() -> None:
    predicates = asking()
    looked_at = iter([a_node(f"n{rank}", rank) for rank in range(100)])
    assert predicates.refusals(need(predicates), looked_at) == {}
    assert len(list(looked_at)) == 99


def test_the_search_ends_where_no_more_can_be_asked() -> None:
    predicates = asking()
    nodes = [a_node(f"n{rank}", rank) for rank in range(100)]
    looked_at = iter(nodes)
    assert predicates.first(need(predicates), looked_at, all_nodes=True) is None
    assert next(looked_at) is nodes[16]
    assert not predicates.in_vain  # the rest has not been looked at


def test_whether_a_node_is_found_does_not_depend_on_the_order() -> None:
    predicates = asking()
    nodes = [a_node(f"n{rank}", rank) for rank in range(100)]
    wanted = need(predicates)
    predicates.is_accepted(wanted, nodes[99])
    question = predicates.verdicts.next_question(0.0)
    assert question is not None
    predicates.verdicts.apply_answer(question[0].number, dict.fromkeys(question[0].pairs, ""), 0.0)
    assert predicates.first(wanted, nodes, all_nodes=True) is nodes[99]
    assert predicates.first(wanted, reversed(nodes), all_nodes=True) is nodes[99]


def test_a_verdict_ends_a_vain_search() -> None:
    predicates = asking()
    wanted = need(predicates)
    assert predicates.first(wanted, [a_node()], all_nodes=True) is None
    assert predicates.in_vain
    predicates.recheck_asks({"a2": None})
    assert predicates.in_vain
    predicates.recheck_asks({"a1": None})
    assert not predicates.in_vain
