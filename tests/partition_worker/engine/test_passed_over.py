"""Large asks that smaller ones pass over: when they reserve a node, and when they do not."""

import pytest

from tests.builders import apps, asks, nodes, released
from tests.trial import Trial
from yunishard.partition_worker.engine.nodes.nodes import Nodes
from yunishard.partition_worker.engine.predicates.results import Results, WorkSpent

WAITS_S = 61


def full(queues: str = "root.a; root.b", *, number: int = 20) -> Trial:
    """A cluster of nodes of 8 that allocations of the application `small`, in the last queue, fill. The application
    `large`, in the first queue, asks for 6.
    """
    trial = Trial(queues)
    trial.does(nodes(*(f"n{one} memory=8" for one in range(number))))
    leaves = [words.split()[0] for words in queues.split("; ") if " parent" not in words]
    trial.does(apps(f"large {leaves[0]} user=ann", f"small {leaves[-1]} user=bob"))
    trial.does(asks(*(f"small s{one} memory=1" for one in range(8 * number))))
    trial.does(asks("large whole memory=6"))
    return trial


def passes_over(trial: Trial, ended: str = "s1", asked: str = "new", more: str = "") -> str:
    """End a small allocation while another ask of its size waits; return where the large ask has a node reserved."""
    trial.does(asks(f"small {asked} memory=1 {more}"), released(f"small {ended}"))
    reservation = trial.app("large").reservations.get("whole")
    return "" if reservation is None else reservation.node.node_id


def test_an_ask_that_has_waited_for_less_than_the_delay_reserves_nothing() -> None:
    trial = full()
    trial.waits(58)
    assert passes_over(trial) == ""
    trial.waits(11)
    assert passes_over(trial, "s2", "newer") != ""


def test_an_ask_that_deserves_less_than_the_placed_one_reserves_nothing() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=8"), apps("small root.a", "large root.a"))
    trial.does(asks(*(f"small s{one} memory=1" for one in range(8))), asks("large whole memory=6"))
    trial.waits(WAITS_S)
    assert passes_over(trial) == "", "the application that came first is served first"


def test_an_ask_for_which_its_user_has_no_room_reserves_nothing() -> None:
    trial = full("root.a limit.user.ann=memory:5; root.b")
    trial.waits(WAITS_S)
    assert passes_over(trial) == ""


def test_an_ask_that_its_queue_can_never_hold_reserves_nothing() -> None:
    trial = full("root.p parent max=memory:5; root.p.a; root.b")
    trial.waits(WAITS_S)
    assert passes_over(trial) == ""


def test_with_few_nodes_there_is_a_pause_before_the_next_reservation() -> None:
    trial = full(number=2).does(asks("large second memory=6"))
    trial.waits(WAITS_S)
    node = passes_over(trial)
    on_node = [key for key, one in trial.app("small").allocations.items() if one.node_id == node]
    elsewhere = [key for key, one in trial.app("small").allocations.items() if one.node_id != node]
    trial.waits(10)
    trial.does(*(released(f"small {key}") for key in on_node[:6]))
    assert trial.partition.allocations["whole"].node_id == node
    trial.waits(80)
    passes_over(trial, elsewhere[0], "during")
    assert trial.app("large").reservations == {}, "after 10 s on one of two nodes, the pause is 90 s"
    trial.waits(11)
    passes_over(trial, elsewhere[1], "after")
    assert list(trial.app("large").reservations) == ["second"]


def test_an_ask_of_higher_priority_gets_the_node_all_the_same() -> None:
    trial = full()
    trial.waits(WAITS_S)
    node = passes_over(trial)
    freed = next(key for key, one in trial.app("small").allocations.items() if one.node_id == node)
    trial.does(asks("small urgent memory=1 priority=5"), released(f"small {freed}"))
    assert trial.partition.allocations["urgent"].node_id == node


def test_a_search_for_which_the_turn_has_no_work_left_is_made_at_a_later_check(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = full()
    trial.waits(WAITS_S)

    def spent(*_: object) -> None:
        raise WorkSpent(Results.__new__(Results))

    with monkeypatch.context() as patched:
        patched.setattr(Nodes, "best_to_reserve", spent)
        assert passes_over(trial) == ""
    assert trial.partition.allocations["new"].node_id, "the small ask is placed"
    trial.waits(11)
    assert passes_over(trial, "s2", "newer") != ""
