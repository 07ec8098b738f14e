"""Restart delays and metrics of the processes."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from common.control_messages import WorkersWanted
from deploy.children import BROKER, FIRST_S, LONGEST_S, STEADY_S, WORKER, Died, Failed, RestartDelay
from tests.deploy.test_supervisor import SILENT_MAX_S, System, running


def test_pauses_double_up_to_the_longest() -> None:
    restarts = RestartDelay()
    pauses = [restarts.next_delay(lifetime_s=1.0) for _ in range(10)]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_a_process_that_lived_long_enough_starts_at_once_and_is_well_again() -> None:
    restarts = RestartDelay()
    for _ in range(5):
        restarts.next_delay(lifetime_s=STEADY_S - 0.1)
    assert restarts.next_delay(lifetime_s=STEADY_S) == 0.0
    assert restarts.next_delay(lifetime_s=1.0) == FIRST_S
    assert restarts.next_delay(lifetime_s=1.0) == 2 * FIRST_S


@given(st.lists(st.floats(min_value=0, max_value=1e9)))
def test_every_pause_is_between_the_bounds_and_none_shrinks_without_a_long_life(lives: list[float]) -> None:
    restarts = RestartDelay()
    pauses = [restarts.next_delay(life) for life in lives]
    for life, pause in zip(lives, pauses, strict=True):
        assert pause == 0.0 if life >= STEADY_S else FIRST_S <= pause <= LONGEST_S
    for (before, after), life in zip(itertools.pairwise(pauses), lives[1:], strict=False):
        assert after >= before or life >= STEADY_S


PROCESSES = "yunishard_supervisor_processes"
RESTARTS = "yunishard_supervisor_restarts_total"


def samples(system: System, name: str) -> dict[tuple[str, ...], float]:
    """Those that are not 0."""
    [found] = [family.samples for family in system.supervisor.metrics() if family.name == name]
    return {labels: value for labels, value in found if value}


def test_processes_are_told_by_role_and_phase() -> None:
    system = running(rm_a=1, rm_b=1, spares=1)
    system(WorkersWanted(partitions={"rm_a": 1, "rm_b": 1, "rm_c": 1}))
    assert samples(system, PROCESSES) == {
        ("broker", "ready"): 1,
        ("rmproxy", "ready"): 1,
        ("webservice", "ready"): 1,
        ("partition_worker", "ready"): 2,
        ("partition_worker", "starting"): 1,
        ("spare", "starting"): 1,
    }


def test_restarts_are_told_by_role_and_cause() -> None:
    system = running(rm_a=1, rm_b=1)
    system(Died(f"{WORKER} rm_a#1", "SIGKILL"))
    system(Failed(f"{WORKER} rm_b#1", "no disk"), Died(f"{WORKER} rm_b#1", "exit status 2"))
    assert samples(system, RESTARTS) == {(WORKER, "ended"): 1, (WORKER, "failed"): 1}


def test_one_that_was_silent_is_told_as_such() -> None:
    system = running()
    system.silent.add(BROKER)
    system.wait(SILENT_MAX_S)
    system(Died(BROKER, "SIGKILL"))
    assert samples(system, RESTARTS) == {(BROKER, "silent"): 1}
