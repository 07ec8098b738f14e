"""A queue's own facts: name, path upwards, what its parent sees, who may submit."""

import pytest

from partition_worker.engine.queues.queue import NOTHING_PENDING
from partition_worker.engine.user_resolution import User
from tests.builders import apps, asks
from tests.trial import Trial

BOB = User("bob", ("dev",))


def test_the_ancestry_begins_with_the_queue_and_ends_with_the_root() -> None:
    queue = Trial("root.p.q.a").queue("root.p.q.a")
    assert [level.path for level in queue.ancestry()] == ["root.p.q.a", "root.p.q", "root.p", "root"]
    assert queue.name == "a"


@pytest.mark.parametrize(
    ("properties", "asked", "shown"),
    [
        ("", 3, 3),
        ("priority.offset=4", 3, 7),
        ("priority.offset=-4", 3, -1),
        ("priority.policy=fence priority.offset=4", 3, 4),
        ("priority.policy=fence", 3, 0),
        ("priority.offset=2147483647", 3, 2**31 - 1),
        ("priority.offset=-2147483647", -3, -(2**31)),
    ],
)
def test_the_parent_sees_the_highest_priority_with_offset_or_behind_the_fence(
    properties: str, asked: int, shown: int
) -> None:
    trial = Trial(f"root.a {properties}")
    trial.partition.apply(apps("app-1 root.a"), trial.now)
    trial.partition.apply(asks(f"app-1 a1 memory=1 priority={asked}"), trial.now)
    assert trial.queue("root.a").priority == shown


def test_a_queue_in_which_nothing_waits_shows_the_lowest_number_even_behind_a_fence() -> None:
    trial = Trial("root.a priority.policy=fence priority.offset=4")
    assert trial.queue("root.a").priority == NOTHING_PENDING
    assert trial.queue("root").priority == NOTHING_PENDING


def test_access_anywhere_above_is_access() -> None:
    trial = Trial("root submitacl=eve; root.p submitacl=bob; root.p.a; root.b")
    assert trial.queue("root.p.a").admits_submission(BOB)
    assert not trial.queue("root.b").admits_submission(BOB)


def test_nobody_may_submit_to_the_recovery_queue() -> None:
    trial = Trial("root submitacl=*")
    trial.partition.tree.create("root.@recovery@", BOB)
    assert trial.queue("root").admits_submission(BOB)
    assert not trial.queue("root.@recovery@").admits_submission(BOB)
