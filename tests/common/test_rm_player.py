"""The player of resource managers: a termination delay, and a partition that loses its state meanwhile.

The tests of virtual time, the replay and the fake RM play it against the engine.
"""

import pytest

from tests.builders import apps, ask
from yunishard.common.messages.rm_messages import (
    PLACEHOLDER_REPLACED,
    PREEMPTED_BY_SCHEDULER,
    Allocation,
    AllocationRelease,
    AllocationResponse,
    PartitionRestarted,
)
from yunishard.common.rm_player import Observer, RmPlayer, Submission, Task


def playing(*, is_gang: bool) -> RmPlayer:
    """The task or the placeholder `a` of an application runs, and the core requests its release at 10."""
    player = RmPlayer(Observer(), termination_delay_s=5.0)
    task = Task(ask("app b memory=1 group=g" if is_gang else "app a memory=1"), 60.0)
    placeholders = (ask("app a memory=1 placeholder group=g"),) if is_gang else ()
    player.submit(Submission(apps("app root.a").new[0], (task,), placeholders))
    assert [one.allocation_key for one in player.due(0.0).asks] == ["a"]
    player.receive(AllocationResponse(new=[Allocation(allocation_key="a", node_id="n1")]), 1.0)
    kind = PLACEHOLDER_REPLACED if is_gang else PREEMPTED_BY_SCHEDULER
    requested = AllocationRelease(application_id="app", allocation_key="a", termination_type=kind)
    player.receive(AllocationResponse(released=[requested]), 10.0)
    return player


def test_a_release_is_confirmed_after_the_termination_delay_with_the_ask_that_follows() -> None:
    player = playing(is_gang=False)
    assert player.deadline == 15.0
    assert not player.due(14.0).releases
    batch = player.due(15.0)
    assert [(one.allocation_key, one.termination_type) for one in batch.releases] == [("a", PREEMPTED_BY_SCHEDULER)]
    assert [one.allocation_key for one in batch.asks] == ["a~2"]


@pytest.mark.parametrize("is_gang", [False, True])
def test_a_partition_that_has_lost_its_state_is_sent_no_confirmation_of_what_it_requested(*, is_gang: bool) -> None:
    player = playing(is_gang=is_gang)
    player.receive(PartitionRestarted(), 12.0)
    report = player.due(12.0)
    assert [one.application_id for one in report.applications] == ["app"]
    assert not report.asks
    batch = player.due(15.0)
    assert not batch.releases
    assert [one.allocation_key for one in batch.asks] == ([] if is_gang else ["a~2"])
