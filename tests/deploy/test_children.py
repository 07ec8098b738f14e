"""Metrics of the processes."""

from tests.deploy.test_supervisor import SILENT_MAX_S, System, running, wanting, worker
from yunishard.common.names import BROKER, WORKER
from yunishard.deploy.children import Died, Failed

PROCESSES = "yunishard_supervisor_processes"
RESTARTS = "yunishard_supervisor_restarts_total"


def samples(system: System, name: str) -> dict[tuple[str, ...], float]:
    """Those that are not 0."""
    [found] = [family.samples for family in system.supervisor.metrics() if family.name == name]
    return {labels: value for labels, value in found if value}


def test_processes_are_told_by_role_and_phase() -> None:
    system = running("rm_a", "rm_b", spares=1)
    system(wanting("rm_a", "rm_b", "rm_c"))
    assert samples(system, PROCESSES) == {
        ("broker", "ready"): 1,
        ("rmproxy", "ready"): 1,
        ("webservice", "ready"): 1,
        ("partition_worker", "ready"): 2,
        ("spare", "ready"): 1,
        ("spare", "starting"): 1,
    }


def test_restarts_are_told_by_role_and_cause() -> None:
    system = running("rm_a", "rm_b")
    system(Died(worker(1), "SIGKILL"))
    system(Failed(worker(2), "no disk"), Died(worker(2), "exit status 2"))
    assert samples(system, RESTARTS) == {(WORKER, "ended"): 1, (WORKER, "failed"): 1}


def test_one_that_was_silent_is_told_as_such() -> None:
    system = running()
    system.silent.add(BROKER)
    system.wait(SILENT_MAX_S)
    system(Died(BROKER, "SIGKILL"))
    assert samples(system, RESTARTS) == {(BROKER, "silent"): 1}
