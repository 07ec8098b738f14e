"""Results of predicates: classes of nodes, bounds, and the work of a turn."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.builders import apps, asks, nodes, released
from tests.trial import Trial
from yunishard.common.messages.rm_messages import NODE_DECOMMISSION, NODE_UPDATE
from yunishard.partition_worker.engine import queue_traversal
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.predicates import predicate, results
from yunishard.partition_worker.engine.predicates.evaluation import Predicates
from yunishard.partition_worker.engine.predicates.predicate import NODE_SELECTOR, NodeSelector, NodeView
from yunishard.partition_worker.engine.predicates.results import ACCEPTS, Results, WorkSpent

SELECTOR = "tag.yunishard/nodeSelector"


class Counting(NodeSelector):
    """The node selector as a plug-in, with a tag of its own, that counts its evaluations."""

    name = "counting"

    def __init__(self) -> None:
        super().__init__()
        self.evaluations = 0

    def read(self, tags: dict[str, str]) -> object | None:  # type: ignore[override]
        return super().read({NODE_SELECTOR: tags["where"]}) if "where" in tags else None

    def refuses(self, demand: object | None, node: NodeView) -> str:  # type: ignore[override]
        self.evaluations += demand is not None
        return super().refuses(demand, node)  # type: ignore[arg-type]


def a_node(rank: int, **attributes: str) -> Node:
    return Node(f"n{rank}", rank, {"memory": 10}, attributes)


def results_of(predicates: Predicates, where: str) -> Results:
    constraint = predicates.read_constraint({"where": where}, "")
    assert constraint is not None
    return predicates.table.find(constraint.demands)


# Classes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "evaluations"),
    [("zone=z1", 3), ("zone=z1,!gone", 3), ("gone=x", 1), ("zone=z1||host=h7", 50)],
)
def test_nodes_that_are_equal_in_what_a_selector_reads_are_evaluated_once(where: str, evaluations: int) -> None:
    counting = Counting()
    predicates = Predicates([counting])
    table, found = predicates.table, results_of(predicates, where)
    for rank in range(50):
        table.code(found, a_node(rank, zone=f"z{rank % 3}", host=f"h{rank}"))
    assert counting.evaluations == evaluations
    assert len(found.codes) == 50
    assert all(found.codes)


def test_results_do_not_depend_on_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = [a_node(rank, zone=f"z{rank % 3}", host=f"h{rank}") for rank in range(50)]

    def judge() -> list[int]:
        predicates = Predicates([Counting()])
        return [predicates.table.code(results_of(predicates, "zone=z1,host!=h4"), node) == ACCEPTS for node in fleet]

    with_classes = judge()
    monkeypatch.setattr(results, "CLASSES_MAX", 2)
    assert judge() == with_classes == [rank % 3 == 1 and rank != 4 for rank in range(50)]


def test_a_changed_node_is_evaluated_again_by_all_that_use_it() -> None:
    predicates = Predicates([Counting()])
    table, node = predicates.table, a_node(0, zone="a")
    assert [table.code(results_of(predicates, where), node) == ACCEPTS for where in ("zone=a", "zone=b")] == [
        True,
        False,
    ]
    node.attributes = {"zone": "b"}
    node.resize(node.capacity)
    assert [table.code(results_of(predicates, where), node) == ACCEPTS for where in ("zone=b", "zone=a")] == [
        True,
        False,
    ]


def test_the_places_of_removed_nodes_serve_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "STALE_MAX", 4)
    predicates = Predicates([Counting()])
    table, found = predicates.table, results_of(predicates, "zone=a")
    for rank in range(100):
        node = a_node(rank, zone="ab"[rank % 2])
        assert table.code(results_of(predicates, "zone=a"), node) == ACCEPTS or rank % 2
        table.remove(node)
    assert len(found.codes) <= 6


# Bounds -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["RESULTS_MAX", "RESULTS_BYTES_MAX", "STALE_MAX"])
def test_results_are_bounded_and_evaluated_again(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, limit, {"RESULTS_MAX": 3, "RESULTS_BYTES_MAX": 5_000, "STALE_MAX": 4}[limit])
    predicates = Predicates([Counting()])
    table, node = predicates.table, a_node(0, zone="z7")
    for number in range(20):
        node.resize({"memory": 10 + number})
        assert (table.code(results_of(predicates, f"zone=z{number}"), node) == ACCEPTS) == (number == 7)
    assert len(table._nodes if limit == "STALE_MAX" else table._results) <= 6
    assert table.code(results_of(predicates, "zone=z7"), node) == ACCEPTS


def test_reasons_beyond_the_limit_become_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "REASONS_MAX", 3)

    class Naming(Counting):
        def refuses(self, demand: object | None, node: NodeView) -> str:
            return f"not {node.node_id}" if demand is not None else ""

        list_attributes = None  # type: ignore[assignment]

    predicates = Predicates([Naming()])
    found = results_of(predicates, "a")
    texts = [found.reasons[predicates.table.code(found, a_node(rank))][1] for rank in range(4)]
    assert texts == ["not n0", "not n1", "not n1", "not n1"]


@pytest.mark.parametrize(("limit", "value"), [("PARSED_MAX", 4), ("PARSED_CHARS_MAX", 40)])
def test_parsed_selectors_are_kept_once_and_bounded(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicate, limit, value)
    selector = NodeSelector()
    first = selector.read({NODE_SELECTOR: "zone=a0000"})
    assert selector.read({NODE_SELECTOR: "zone=a0000"}) is first
    for number in range(20):
        selector.read({NODE_SELECTOR: f"zone=b{number:04}"})
    assert len(selector.parsed) == 4
    assert selector.parsed_chars == 40
    assert selector.read({NODE_SELECTOR: "zone=a0000"}) == first


# The work of a turn -------------------------------------------------------------------------------------------------


def test_outside_of_turns_a_search_has_no_limit() -> None:
    predicates = Predicates([Counting()])
    found = results_of(predicates, "host=h1")
    predicates.table.spent = 10**9
    limit = predicates.table.begin_search(found)
    assert [predicates.table.code(found, a_node(rank), limit) for rank in range(3)]


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in {"TURN_WORK": 240, "BACKLOG_WORK": 240, "SEARCH_WORK": 80, "SLICE_WORK": 80}.items():
        monkeypatch.setattr(results, limit, value)


def heavy(number: int, alternatives: int = 12) -> str:
    return "||".join(f"host=x{number}y{one}" for one in range(alternatives))


def cluster(count: int = 30, queues: str = "root.a; root.b") -> Trial:
    trial = Trial(queues)
    trial.does(nodes(*(f"n{one:02} memory=10 tag.host=h{one}" for one in range(count))))
    trial.does(apps("cheap root.b", *(f"heavy{one} root.a" for one in range(8))))
    trial.told()
    return trial


def test_a_search_that_is_too_much_continues_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    trial = cluster().takes(asks(f"heavy0 k memory=1 {SELECTOR}={heavy(0)}||host=h29"))
    turns = 0
    while not trial.partition.idle:
        spent = trial.partition.nodes.predicates.table.spent
        trial.partition.step(trial.now, 512)
        assert trial.partition.nodes.predicates.table.spent - spent < 800
        turns += 1
    assert turns > 3
    assert trial.partition.allocations["k"].node_id == "n29"


def test_a_swap_whose_search_is_too_much_continues_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    trial = cluster().does(apps("gang root.a taskgroups=g:memory=4 placeholder=memory:4"))
    trial.does(asks("gang p memory=4 group=g placeholder"))
    trial.does(asks(f"gang r memory=4 group=g {SELECTOR}={heavy(0)}||host=h29"))
    assert trial.told()[-1] == "p released (PLACEHOLDER_REPLACED: replacing allocationKey: r)"
    assert trial.does(released("gang p type=PLACEHOLDER_REPLACED")).told()[-1] == "r on n29"


def test_cheap_asks_are_placed_in_the_turn_in_which_expensive_ones_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    trial = cluster()
    trial.takes(asks(*(f"heavy{one} k{one} memory=1 {SELECTOR}={heavy(one)}" for one in range(8))))
    trial.takes(asks("cheap c1 memory=1", f"cheap c2 memory=1 {SELECTOR}=!gone"))
    trial.partition.step(trial.now, 512)
    assert trial.partition.allocations["c1"].node_id
    while not trial.partition.allocations["c2"].node_id:
        trial.partition.step(trial.now, 512)
    assert len(trial.partition.nodes.predicates.table.backlog) == 8


def test_counts_of_refusing_nodes_for_events_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_traversal, "ATTEMPTS_PER_TURN", 10)
    trial = cluster()
    trial.takes(asks(*(f"heavy{number} k{number} memory=1 {SELECTOR}=zone={number}" for number in range(8))))
    told = []
    while not trial.partition.idle:
        trial.partition.step(trial.now, 512)
        told.append(sum(one.unschedulable_told_at > 0 for one in trial.partition.allocations.values()))
    assert told[-1] == 8
    assert all(after - before <= 4 for before, after in pairwise([0, *told]))


def test_an_expensive_ask_that_is_withdrawn_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    trial = cluster().takes(asks(*(f"heavy{one} k{one} memory=1 {SELECTOR}={heavy(one)}" for one in range(8))))
    trial.partition.step(trial.now, 512)
    table = trial.partition.nodes.predicates.table
    assert len(table.backlog)
    trial.takes(released(*(f"heavy{one} k{one}" for one in range(8))))
    spent = table.spent
    trial.partition.step(trial.now, 512)
    assert table.spent == spent
    assert trial.partition.idle


Story = Callable[[Trial], object]


def heavy_asks(trial: Trial) -> None:
    trial.does(asks(*(f"heavy{one} k{one} memory=4 {SELECTOR}={heavy(one)}||host=h{one * 3}" for one in range(8))))
    trial.does(asks(*(f"heavy{one} m{one} memory=4 {SELECTOR}={heavy(one)}||host=h{one}" for one in range(8))))


def gangs(trial: Trial) -> None:
    trial.does(apps("gang root.a taskgroups=g:memory=4 placeholder=memory:40"))
    trial.does(asks(*(f"gang p{one} memory=4 group=g placeholder" for one in range(6))))
    trial.does(asks(*(f"gang r{one} memory=4 group=g {SELECTOR}={heavy(one)}||host=h{one}" for one in range(6))))


def reservations(trial: Trial) -> None:
    trial.does(asks(*(f"heavy0 full{one} memory=9" for one in range(30))))
    trial.does(asks(*(f"heavy1 r{one} memory=8 {SELECTOR}={heavy(one)}||host=h{one}" for one in range(4))))
    trial.waits(3)
    trial.does(released(*(f"heavy0 full{one}" for one in range(30))))


def changing_nodes(trial: Trial) -> None:
    trial.does(asks(*(f"heavy{one} k{one} memory=4 {SELECTOR}={heavy(one)}" for one in range(8))))
    for one in range(8):
        trial.does(nodes(f"n{one:02} tag.host=x{one}y{one}", action=NODE_UPDATE))
    trial.does(nodes("n00", action=NODE_DECOMMISSION))


@pytest.mark.parametrize("story", [heavy_asks, gangs, reservations, changing_nodes])
def test_the_outcome_is_the_same_as_without_a_limit(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    def play() -> dict[str, str]:
        trial = cluster()
        story(trial)
        trial.waits(5)
        assert trial.partition.idle
        return {key: one.node_id for key, one in trial.partition.allocations.items()}

    unlimited = play()
    assert any(unlimited.values())
    small(monkeypatch)
    assert play() == unlimited


def test_the_backlog_continues_with_what_has_cost_least(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    trial = cluster(60)
    trial.takes(asks(*(f"heavy{one} k{one} memory=1 {SELECTOR}={heavy(one)}" for one in range(8))))
    for _ in range(6):
        trial.partition.step(trial.now, 512)
    table = trial.partition.nodes.predicates.table
    costs = [one.spent for one in table.backlog]
    assert all(left <= right for left, right in pairwise(costs))
    assert max(costs) - min(costs) <= 3 * results.SLICE_WORK


def test_a_turn_without_work_left_postpones_even_known_searches() -> None:
    predicates = Predicates([Counting()])
    found = results_of(predicates, "host=h1")
    predicates.table.begin_turn()
    predicates.table.spent += results.TURN_WORK
    with pytest.raises(WorkSpent):
        predicates.table.begin_search(found)
    predicates.table.end_turn()
    predicates.table.begin_search(found)
