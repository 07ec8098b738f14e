"""What each process does about each signal, as the table in docs/operating/monitoring.md has it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.system import FREE_PORTS, Up, eventually, gone, up
from tests.processes.system import System
from tests.processes.test_hostile_grpc import play, registered
from yunishard.common.process.main import IGNORED

pytestmark = pytest.mark.processes

NOTHING_HAPPENS: Final = (*IGNORED, signal.SIGWINCH, signal.SIGURG, signal.SIGCHLD, signal.SIGCONT)
ROLES: Final = ("broker", "rmproxy", "webservice", "partition_worker")
STACKS: Final = "(most recent call first):"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system without a terminal and with a worker: of a resource manager that is away for now."""
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path_factory.mktemp("system"), prefix=("setsid",)) as running:
        found = System(running, running.announced())

        async def story() -> None:
            async with registered(found):
                pass

        play(story)
        running.until(lambda: any(" partition_worker " in one for one in running.children.values()))
        yield found
        assert running.stop() == 0


def process(running: Up, role: str) -> int:
    return running.process.pid if role == "up" else running.child(f" {role} ")


def handled(number: int, name: signal.Signals) -> bool:
    """Whether a process has received a signal that was sent to it."""
    lines = Path(f"/proc/{number}/status").read_text().splitlines()
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return not any(one >> (name - 1) & 1 for one in pending)


@pytest.mark.parametrize("role", ["up", *ROLES])
def test_signals_that_mean_nothing_are_ignored(system: System, role: str) -> None:
    number = process(system.up, role)
    with system.unharmed():
        for name in NOTHING_HAPPENS:
            os.kill(number, name)
            eventually(lambda name=name: gone(number) or handled(number, name))
            assert not gone(number), f"{name.name} ends it"


@pytest.mark.parametrize("role", ["up", *ROLES])
def test_sigusr1_writes_stacks_to_the_log_and_nothing_else_happens(system: System, role: str) -> None:
    before = system.up.errors
    with system.unharmed():
        os.kill(process(system.up, role), signal.SIGUSR1)
        lowest = f"/{'deploy' if role == 'up' else role}/__main__.py"
        system.up.until(lambda: STACKS in system.up.errors[len(before) :].partition(lowest)[0])
        system.up.until(lambda: lowest in system.up.errors[len(before) :])


@pytest.mark.parametrize("role", ROLES)
def test_sighup_does_nothing_to_the_processes_of_a_system(system: System, role: str) -> None:
    number = process(system.up, role)
    with system.unharmed():
        os.kill(number, signal.SIGHUP)
        eventually(lambda: gone(number) or handled(number, signal.SIGHUP))
        assert not gone(number)


def test_sighup_without_a_terminal_says_what_is_reloaded_anyway(system: System) -> None:
    with system.unharmed():
        system.up.process.send_signal(signal.SIGHUP)
        system.up.until(lambda: system.up.says("SIGHUP: there is nothing to reload; "))


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT], ids=lambda name: name.name)
def test_processes_that_a_signal_ends_are_started_again(system: System, name: signal.Signals) -> None:
    before = {role: process(system.up, role) for role in ROLES}
    for number in before.values():
        os.kill(number, name)
    system.up.until(lambda: all(map(gone, before.values())))
    system.up.until(lambda: all(f" {role} " in " ".join(system.up.children.values()) for role in ROLES))


@pytest.mark.parametrize("name", [signal.SIGQUIT, signal.SIGXCPU, signal.SIGRTMIN], ids=str)
def test_a_signal_that_ends_the_supervisor_at_once_leaves_no_process_behind(tmp_path: Path, name: int) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path) as running:
        running.announced()
        children = running.children
        running.process.send_signal(name)
        assert running.process.wait(timeout=30) == -name
        eventually(lambda: all(map(gone, children)))
