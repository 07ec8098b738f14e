"""Processes are killed and restarted under load: core and API server have the same pods on the same nodes afterwards,
no pod has moved, and no placeholder is left."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kubernetes.controlplane import Json, build_pod, eventually
from tests.kubernetes.system import Site
from tests.kubernetes.test_applications import gang, site_group

PODS = 300
"""Pods created while something is killed."""

PROCESSES = {"worker": "partition_worker mycluster_default#", "broker": " broker ", "rmproxy": " rmproxy "}
"""Words of the command lines of the core's processes."""


@contextmanager
def load(site: Site) -> Iterator[list[Json]]:
    """Create PODS pods in groups meanwhile, and some gangs; the pods are complete at the end of the block."""
    created: list[Json] = []

    def create() -> None:
        for number in range(PODS // 10):
            bodies = [site.build(f"pod-{number}-{one}", app=f"app-{number % 7}") for one in range(10)]
            created.extend(site.plane.create_all("pods", bodies))
            if number % 10 == 3:
                changes = site_group(site, gang(4))
                bodies = [site.build(f"gang-{number}-{one}", app=f"gang-{number}", **changes) for one in range(4)]
                created.extend(site.plane.create_all("pods", bodies))

    thread = threading.Thread(target=create)
    thread.start()
    try:
        yield created
    finally:
        thread.join()


def check(site: Site, created: list[Json], before: dict[str, str]) -> None:
    site.plane.wait_until_bound(created, within_s=120)
    after = site.bound()
    moved = {name for name, node in before.items() if name.startswith(("pod", "gang")) and after.get(name) != node}
    assert not moved
    eventually(lambda: not site.placeholders())
    eventually(lambda: site.system.has_equal_state(site.name), what="core and API server differ")


def watch_half(site: Site) -> dict[str, str]:
    """Wait until a part of the pods have nodes; return those."""
    eventually(lambda: len(site.bound()) >= PODS // 4)
    return site.bound()


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_of_the_core_is_killed(site: Site, name: str) -> None:
    site.add_nodes(10)
    with load(site) as created:
        before = watch_half(site)
        os.kill(site.system.core.child(PROCESSES[name]), signal.SIGKILL)
    check(site, created, before)


def test_the_shim_is_killed(site: Site) -> None:
    site.add_nodes(10)
    with load(site) as created:
        before = watch_half(site)
        site.system.restart_shim()
    check(site, created, before)


def test_the_shim_is_killed_again_and_again(site: Site) -> None:
    site.add_nodes(10)
    with load(site) as created:
        before = watch_half(site)
        for _ in range(3):
            site.system.restart_shim()
            time.sleep(0.5)
    check(site, created, before)


def test_pods_that_end_while_the_shim_is_away_make_room(site: Site) -> None:
    site.add_nodes(1, {"cpu": "1", "memory": "4Gi", "pods": "110"})
    pods = site.create_many(10)
    site.plane.wait_until_bound(pods)
    late = site.create("late")
    site.system.shim.kill()
    for pod in pods[:5]:
        site.delete(pod)
    foreign = build_pod("foreign", site.name, schedulerName="other", nodeName=site.nodes[0])
    site.plane.create("pods", foreign)
    site.system.restart_shim()
    site.plane.wait_until_bound([late])
    eventually(lambda: site.system.has_equal_state(site.name))


def test_the_api_server_is_killed(site: Site) -> None:
    site.add_nodes(10)
    created = site.create_many(PODS)
    eventually(lambda: len(site.bound()) >= PODS // 4)
    before = site.bound()
    site.plane.kill("kube-apiserver")
    time.sleep(1)
    site.plane.start_process("kube-apiserver")
    site.plane.wait_until_ready()
    check(site, created, before)


def test_everything_is_killed(site: Site) -> None:
    site.add_nodes(10)
    created = site.create_many(PODS)
    eventually(lambda: len(site.bound()) >= PODS // 4)
    before = site.bound()
    site.plane.kill("kube-apiserver")
    for words in PROCESSES.values():
        os.kill(site.system.core.child(words), signal.SIGKILL)
    site.system.shim.kill()
    site.plane.start_process("kube-apiserver")
    site.plane.wait_until_ready()
    site.system.restart_shim()
    check(site, created, before)


def test_another_shim_waits_for_the_lease_and_takes_over(site: Site) -> None:
    site.add_nodes(1)
    site.plane.wait_until_bound([site.create("first")])
    second = site.system.start_shim()
    eventually(lambda: "waiting for the lease" in second.log)
    assert site.system.shim.stop() == 0
    site.system.shim = second
    second.wait_until_ready()
    site.plane.wait_until_bound([site.create("second")])
    eventually(lambda: site.system.has_equal_state(site.name))
