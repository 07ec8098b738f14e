"""An application keeps its own books."""

import pytest

from partition_worker.engine.applications.allocation import Allocation, from_message
from partition_worker.engine.applications.application import Application
from partition_worker.engine.ask_shapes import Needs
from partition_worker.engine.queues.queue import NOTHING_PENDING
from partition_worker.engine.user_resolution import User
from tests.builders import ask
from tests.trial import Trial

STAMP_NS = 1_000 * 10**9


def application() -> Application:
    queue = Trial().queue("root.a")
    return Application(application_id="app-1", rank=1, user=User("bob"), queue=queue, submitted_ns=STAMP_NS)


def wanted(words: str) -> Allocation:
    return from_message(ask(f"app-1 {words}"), None, stamp_ns=STAMP_NS + 1, needs=Needs())


def test_pending_is_the_sum_of_asks() -> None:
    app = application()
    one, other = wanted("a1 memory=3"), wanted("a2 memory=4 gpu=1 priority=2")
    app.add_ask(one)
    app.add_ask(other)
    assert (app.pending, app.priority) == ({"memory": 7, "gpu": 1}, 2)
    app.remove_ask(other)
    assert (app.pending, app.priority) == ({"memory": 3, "gpu": 0}, 0)
    app.remove_ask(one)
    assert app.priority == NOTHING_PENDING


def test_allocated_is_the_sum_of_allocations_and_its_peak_is_kept_per_type() -> None:
    app = application()
    one, other = wanted("a1 memory=3"), wanted("a2 gpu=2")
    app.add_allocation(one)
    app.remove_allocation(one)
    app.add_allocation(other)
    app.grow_allocated({"gpu": -1}, placeholder=False)
    assert (app.allocated, app.max_allocated) == ({"memory": 0, "gpu": 1}, {"memory": 3, "gpu": 2})


def test_an_ask_or_allocation_is_found_by_its_key() -> None:
    app = application()
    one, other = wanted("a1 memory=3"), wanted("a2 memory=3")
    app.add_ask(one)
    app.add_allocation(other)
    assert (app.find("a1"), app.find("a2"), app.find("a3")) == (one, other, None)


def test_a_key_is_used_once() -> None:
    app = application()
    app.add_ask(wanted("a1 memory=3"))
    with pytest.raises(AssertionError, match="a1"):
        app.add_allocation(wanted("a1 memory=3"))
    with pytest.raises(AssertionError, match="a1"):
        app.add_ask(wanted("a1 memory=3"))


def test_the_earliest_ask_or_allocation_makes_the_application_older() -> None:
    app = application()
    app.add_ask(wanted("a1 memory=3"))
    assert app.submitted_ns == STAMP_NS
    app.add_ask(wanted("a2 memory=3 created=500"))
    assert app.submitted_ns == 500 * 10**9
    app.add_allocation(wanted("a3 memory=3 created=400"))
    assert app.submitted_ns == 400 * 10**9
