"""The bounds of explanations: what is left out beyond them, and what the texts then state."""

import pytest

from tests.builders import apps, asks, nodes
from tests.trial import Trial
from yunishard.partition_worker.engine.explain import explanations, node_checks, preemption_checks, remedies, turn
from yunishard.partition_worker.engine.explain.explanations import explain_application, explain_ask, explain_queue


def crowded() -> Trial:
    """Three nodes that are full, and three applications that wait."""
    trial = Trial("root.a; root.b guaranteed=memory:20 preemption.delay=1s")
    trial.does(nodes("n1 memory=10", "n2 memory=10", "n3 memory=10"), apps(*(f"app-{n} root.a" for n in range(5))))
    trial.does(apps("app-b root.b"), asks("app-0 x1 memory=8"), asks("app-0 x2 memory=8"), asks("app-0 x3 memory=8"))
    for number in range(1, 5):
        trial.does(asks(*(f"app-{number} a{number}{each} memory={3 + each}" for each in range(3))))
    return trial


def test_only_so_many_nodes_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_checks, "NODES_MAX", 2)
    trial = crowded()
    found = explain_ask(trial.partition, trial.app("app-1"), trial.partition.allocations["a10"], trial.now)
    check = next(one for one in found.checks if one.code == "no-node-fits")
    assert sum(found.nodes.values()) == 2
    assert "no node of the first 2 takes it" in check.text


def test_only_so_many_near_misses_and_remedies_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_checks, "NEAREST_MAX", 1)
    monkeypatch.setattr(remedies, "REMEDIES_MAX", 2)
    trial = crowded()
    found = explain_ask(trial.partition, trial.app("app-1"), trial.partition.allocations["a10"], trial.now)
    assert len(found.nearest) == 1
    assert len(found.remedies) == 2


def test_only_so_many_ends_of_allocations_are_considered(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = crowded()
    ask = trial.partition.allocations["a10"]
    found = explain_ask(trial.partition, trial.app("app-1"), ask, trial.now)
    assert any(one.code == "release-allocation" for one in found.remedies)
    monkeypatch.setattr(remedies, "RELEASES_MAX", 0)
    found = explain_ask(trial.partition, trial.app("app-1"), ask, trial.now)
    assert not any(one.code == "release-allocation" for one in found.remedies)


def test_those_ahead_beyond_the_listed_ones_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "AHEAD_MAX", 1)
    trial = crowded()
    found = explain_ask(trial.partition, trial.app("app-4"), trial.partition.allocations["a40"], trial.now)
    assert [one.text for one in found.ahead][-1] == "2 more applications in root.a"
    monkeypatch.setattr(turn, "COMPARED_MAX", 2)  # app-0 and app-1
    found = explain_ask(trial.partition, trial.app("app-4"), trial.partition.allocations["a40"], trial.now)
    assert [one.application for one in found.ahead] == ["app-1"]


def test_only_so_many_groups_of_an_application_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanations, "GROUPS_MAX", 2)
    trial = crowded()
    found = explain_application(trial.partition, trial.app("app-1"), trial.now)
    assert [one.name for one in found.asks] == ["a10", "a11"]
    assert sum(found.reasons.values()) == 3


def test_only_so_many_groups_of_a_queue_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = crowded()
    trial.reconfigures("root.a max=memory:27; root.b")
    monkeypatch.setattr(explanations, "COUNTED_MAX", 4)
    found = explain_queue(trial.partition, trial.queue("root.a"), trial.now)
    assert (found.count, sum(found.reasons.values())) == (12, 4)
    assert len(found.asks) <= explanations.EXAMPLES_MAX
    assert "of the first 4" in found.summary


def test_only_so_many_allocations_within_reach_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = crowded().does(asks("app-b b1 memory=9 preemptor priority=-1")).waits(2)
    monkeypatch.setattr(preemption_checks, "REACH_MAX", 1)
    found = explain_ask(trial.partition, trial.app("app-b"), trial.partition.allocations["b1"], trial.now)
    check = next(one for one in found.checks if one.code.startswith("preemption"))
    assert "allocations examined" in check.text or check.code == "preemption-pause"
