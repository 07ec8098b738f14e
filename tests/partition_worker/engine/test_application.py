"""An application: its totals, summary and state machine."""

import pytest

from tests.builders import apps, ask, asks, gone, nodes, released
from tests.partition_worker.engine.allocations import received
from tests.trial import Trial
from yunishard.common.messages.rm_messages import NODE_DECOMMISSION
from yunishard.partition_worker.engine import ledger
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.amounts import amounts_of
from yunishard.partition_worker.engine.application import (
    ENDED,
    LINGER_S,
    RETENTION_S,
    AppEvent,
    Application,
    AppState,
    Use,
    find_queue_lack,
    next_state,
)
from yunishard.partition_worker.engine.effects import LogLine
from yunishard.partition_worker.engine.queues.queue import NOTHING_PENDING
from yunishard.partition_worker.engine.user_resolution import User

STAMP_NS = 1_000 * 10**9


def application() -> Application:
    queue = Trial().queue("root.a")
    return Application(application_id="app-1", rank=1, user=User("bob"), queue=queue, submitted_ns=STAMP_NS)


def wanted(words: str) -> Allocation:
    return received(ask(f"app-1 {words}"), STAMP_NS + 1)


def test_pending_is_the_sum_of_asks() -> None:
    app = application()
    one, other = wanted("a1 memory=3"), wanted("a2 memory=4 gpu=1 priority=2")
    app.add_ask(one)
    app.add_ask(other)
    assert (app.pending, app.priority) == ({"memory": 7, "gpu": 1}, 2)
    app.remove_ask(other)
    assert (app.pending, app.priority) == ({"memory": 3}, 0)
    app.remove_ask(one)
    assert app.priority == NOTHING_PENDING


def test_allocated_is_the_sum_of_allocations_and_its_peak_is_kept_per_type() -> None:
    app = application()
    one, other = wanted("a1 memory=3"), wanted("a2 gpu=2")
    app.add_allocation(one)
    app.remove_allocation(one)
    app.add_allocation(other)
    app.grow_allocated(amounts_of({"gpu": -1}), placeholder=False)
    assert (app.allocated, app.max_allocated) == ({"gpu": 1}, {"memory": 3, "gpu": 2})


def test_an_ask_or_allocation_is_found_by_its_key() -> None:
    app = application()
    one, other = wanted("a1 memory=3"), wanted("a2 memory=3")
    app.add_ask(one)
    app.add_allocation(other)
    assert (app.find("a1"), app.find("a2"), app.find("a3")) == (one, other, None)


def test_the_earliest_ask_or_allocation_makes_the_application_older() -> None:
    app = application()
    app.add_ask(wanted("a1 memory=3"))
    assert app.submitted_ns == STAMP_NS
    app.add_ask(wanted("a2 memory=3 created=500"))
    assert app.submitted_ns == 500 * 10**9
    app.add_allocation(wanted("a3 memory=3 created=400"))
    assert app.submitted_ns == 400 * 10**9


# Usage history --------------------------------------------------------------------------------------------------------

M5 = "m5.large"


def trial() -> Trial:
    """Something that stays, so that the application goes on, on a node that names its instance type."""
    one = Trial().takes(nodes(f"n1 memory=100 tag.si/instance-type={M5}", "n2 memory=100"), apps("app-1 root.a"))
    return one.takes(asks("app-1 stays memory=1 on=n1"))


def test_amounts_are_multiplied_by_the_whole_seconds_that_they_were_held() -> None:
    one = trial().takes(asks("app-1 a1 memory=4 gpu=2 on=n1")).waits(2.9).takes(released("app-1 a1"))
    assert one.app("app-1").history == {(Use.REAL, M5): {"memory": 8, "gpu": 4}}
    one.takes(asks("app-1 a2 memory=1 on=n1")).waits(10.1).takes(released("app-1 a2"))
    assert one.app("app-1").history == {(Use.REAL, M5): {"memory": 18, "gpu": 4}}


def test_what_ran_for_less_than_a_second_is_told_of_with_zeros() -> None:
    one = trial().takes(asks("app-1 a1 memory=4 on=n1")).waits(0.9).takes(released("app-1 a1"))
    assert one.app("app-1").history == {(Use.REAL, M5): {"memory": 0}}


def test_each_instance_type_is_counted_by_itself_and_a_node_that_goes_counts_too() -> None:
    one = trial().takes(asks("app-1 a1 memory=4 on=n1", "app-1 a2 memory=3 on=n2")).waits(1.1)
    one.takes(released("app-1 a1"), nodes("n2", action=NODE_DECOMMISSION))
    assert one.app("app-1").history == {(Use.REAL, M5): {"memory": 4}, (Use.REAL, "UNKNOWN"): {"memory": 3}}


def test_victims_and_placeholders_are_counted_by_themselves() -> None:
    one = trial().takes(asks("app-1 a1 memory=4 on=n1", "app-1 p1 placeholder group=tg memory=3 on=n1"))
    one.takes(asks("app-1 p2 placeholder group=tg memory=2 on=n1"))
    for key in ("a1", "p2"):
        ledger.mark_preempted(one.partition, one.app("app-1"), one.partition.allocations[key])
    one.waits(1.1).takes(released("app-1 a1 type=PREEMPTED_BY_SCHEDULER", "app-1 p1", "app-1 p2"))
    assert one.app("app-1").history == {(Use.PREEMPTED, M5): {"memory": 6}, (Use.PLACEHOLDER, M5): {"memory": 3}}


def test_an_application_that_ended_has_it_still() -> None:
    one = trial().waits(5).takes(released("app-1")).waits(30)
    (ended,) = one.partition.ended.values()
    assert ended.history == {(Use.REAL, M5): {"memory": 4}}


# Summary in the log ---------------------------------------------------------------------------------------------------


def summaries(one: Trial) -> list[str]:
    notes = (effect.part for effect in one.effects if isinstance(effect.part, LogLine))
    return [note.text for note in notes if note.text.startswith("summary") and note.for_operators]


def test_an_application_that_ran_leaves_a_line_with_what_it_used() -> None:
    one = Trial().does(nodes("n1 memory=10 tag.si/instance-type=large"), apps("app-1 root.a user=bob"))
    one.does(asks("app-1 a1 memory=4")).waits(5.5).does(released("app-1 a1")).waits(30)
    (line,) = summaries(one)
    assert line == (
        "summary of application app-1: Completed, user bob, queue root.a, submitted 2023-11-14T22:13:20+00:00, "
        "started 2023-11-14T22:13:20+00:00, finished 2023-11-14T22:13:55+00:00, used {large: memory=20}, "
        "preempted {}, placeholders {} (amounts times seconds, by type of instance)"
    )
    (ended,) = one.partition.ended.values()
    assert ended.history == {(Use.REAL, "large"): {"memory": 20}}, "for those who keep a history"


def test_one_that_was_killed_leaves_one_too() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4")).waits(2.5)
    one.kills("app-1")
    (line,) = summaries(one)
    assert line.startswith("summary of application app-1: Failed, ")
    assert "used {UNKNOWN: memory=8}" in line


def test_one_that_never_ran_leaves_none() -> None:
    one = Trial().does(apps("app-1 root.a"), asks("app-1 a1 memory=4"), gone("app-1"))
    assert summaries(one) == []


# Application states ---------------------------------------------------------------------------------------------------


TABLE = """
runApplication       New, Resuming                   Accepted
runApplication       Accepted, Running, Completing   Running
runApplication       Starting                        Running
completeApplication  Accepted, Running, Starting     Completing
completeApplication  Completing                      Completed
failApplication      New, Accepted, Running          Failing
failApplication      Starting                        Failing
failApplication      Failing                         Failed
waitApplication      Completing                      Accepted
resumeApplication    New, Accepted                   Resuming
rejectApplication    New                             Rejected
expireApplication    Completed, Failed, Rejected     Expired
"""
ROWS = {
    (AppState(state.strip(",")), AppEvent(event)): AppState(target)
    for event, *states, target in (line.split() for line in TABLE.strip().splitlines())
    for state in states
}


@pytest.mark.parametrize("event", AppEvent)
@pytest.mark.parametrize("state", AppState)
def test_an_event_leads_where_the_table_says_and_otherwise_nowhere(state: AppState, event: AppEvent) -> None:
    assert next_state(state, event) == ROWS.get((state, event))


@pytest.mark.parametrize("event", AppEvent)
@pytest.mark.parametrize("state", AppState)
def test_one_that_begins_slowly_is_starting_first_and_nothing_else_is_different(
    state: AppState, event: AppEvent
) -> None:
    begins = (state, event) == (AppState.ACCEPTED, AppEvent.RUN)
    assert next_state(state, event, state_aware=True) == (AppState.STARTING if begins else ROWS.get((state, event)))


def test_every_state_but_new_can_be_reached() -> None:
    assert set(ROWS.values()) | {AppState.STARTING} == set(AppState) - {AppState.NEW}


def test_what_an_application_waits_for_by_itself_can_happen_to_it() -> None:
    assert all(next_state(state, event) for state, (_, event) in LINGER_S.items())


def test_starting_lasts_five_minutes() -> None:
    assert LINGER_S[AppState.STARTING] == (300, AppEvent.RUN)


def test_completing_lasts_half_a_minute_and_what_has_ended_is_remembered_for_three_days() -> None:
    assert LINGER_S[AppState.COMPLETING][0] == 30
    assert RETENTION_S == 259_200


def test_an_application_that_has_ended_never_runs_again() -> None:
    assert {next_state(state, event) for state in ENDED for event in AppEvent} == {None, AppState.EXPIRED}


def test_victims_free_room_in_the_queues_above_them() -> None:
    trial = Trial("root.p max=memory:4; root.p.a; root.p.b; root.c").does(nodes("n1 memory=9"))
    trial.does(apps("a root.p.a", "c root.c"), asks("a a1 memory=2", "a a2 memory=2", "c c1 memory=3"))
    running = trial.partition.allocations

    def frees(amount: int, *keys: str) -> bool:
        victims = [running[key] for key in keys]
        return (
            find_queue_lack(
                trial.partition.applications, trial.queue("root.p.b"), amounts_of({"memory": amount}), victims
            )
            is None
        )

    assert frees(2, "a1")
    assert not frees(3, "a1")
    assert frees(4, "a1", "a2")
    assert not frees(2, "c1"), "it is not below the full queue"
    assert not frees(3, "c1", "a1")
