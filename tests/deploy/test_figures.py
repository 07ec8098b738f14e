"""Which processes there are, and why some had to be started again."""

from common.control_messages import WorkersWanted
from deploy.children import BROKER, WORKER, Died, Failed
from tests.deploy.test_supervisor import SILENT_MAX_S, System, running

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
