"""Taking away what an application has or asks for; what follows for its state, and for swaps under way."""

from partition_worker.engine.allocation_updates import end_allocation, remove_everything, withdraw_ask
from partition_worker.engine.application import AppState
from tests.builders import apps, asks, nodes
from tests.trial import Trial


def trial(*texts: str) -> Trial:
    one = Trial().does(nodes("n1 memory=100"), apps("app-1 root.a"), asks(*texts))
    one.told()
    one.partition.begin_step(one.now)
    return one


def test_what_ran_is_counted_as_released_and_an_empty_application_completes() -> None:
    one = trial("app-1 a1 memory=1", "app-1 a2 memory=1")
    app = one.app("app-1")
    end_allocation(one.partition, app, app.allocations["a1"])
    assert (one.queue("root.a").released, app.state) == (1, AppState.RUNNING)
    end_allocation(one.partition, app, app.allocations["a2"])
    assert (one.queue("root.a").released, app.state) == (2, AppState.COMPLETING)


def test_an_ask_that_is_taken_back_may_be_the_last() -> None:
    one = trial("app-1 a1 memory=500", "app-1 a2 memory=500")
    app = one.app("app-1")
    withdraw_ask(one.partition, app, app.requests["a1"])
    assert app.state is AppState.ACCEPTED
    withdraw_ask(one.partition, app, app.requests["a2"])
    assert app.state is AppState.COMPLETING


def test_a_placeholder_that_goes_lets_its_ask_wait_again() -> None:
    one = trial("app-1 p1 memory=5 placeholder group=g", "app-1 r1 memory=5 group=g")
    app = one.app("app-1")
    assert app.swapping
    end_allocation(one.partition, app, app.allocations["p1"])
    assert (list(app.requests), app.swapping, app.allocations) == (["r1"], {}, {})


def test_everything_goes_at_once_and_what_follows_is_for_the_caller() -> None:
    one = trial("app-1 p1 memory=5 placeholder group=g", "app-1 r1 memory=5 group=g", "app-1 a1 memory=500")
    app, state = one.app("app-1"), one.app("app-1").state
    assert [gone.key for gone in remove_everything(one.partition, app)] == ["p1"]
    assert (app.requests, app.swapping, app.allocations, app.state) == ({}, {}, {}, state)


def test_everything_that_runs_may_go_without_what_is_asked_for() -> None:
    one = trial("app-1 p1 memory=5 placeholder group=g", "app-1 r1 memory=5 group=g", "app-1 a1 memory=500")
    app = one.app("app-1")
    remove_everything(one.partition, app, keeping_asks=True)
    assert sorted(app.requests) == ["a1", "r1"]
