"""Machines that must not be hosts of a cluster, with real processes: a clone of one, one without an address, and one
with the keys of another cluster. The hosts that run are undisturbed.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests import postgres
from tests.common.test_cluster_port import Hosts
from tests.deploy.system import FREE_PORTS, up
from tests.processes.test_hosts_over_rest import Running, list_options
from yunishard.common.transport.curve_keys import ALLOWED, HOST, host_file, read_pair, write_pair
from yunishard.deploy.supervisor import CANNOT_START

pytestmark = pytest.mark.processes


@pytest.fixture
def store() -> str:
    return postgres.new_store()


@pytest.fixture
def keys(tmp_path: Path) -> Hosts:
    found = Hosts(tmp_path)
    for name in "bc":
        shutil.copy(found["a"] / ALLOWED, found[name] / ALLOWED)
    return found


@contextmanager
def host(store: str, name: str, folder: Path) -> Iterator[Running]:
    """A host that runs."""
    folder.chmod(0o700)
    with up(*list_options(store, name, folder), folder=folder) as system:
        yield Running(name, system, system.announced())


def end(options: Sequence[str], folder: Path) -> str:
    """Start a system that ends because it cannot start; the last line of its log."""
    folder.chmod(0o700)
    with up(*options, folder=folder) as system:
        assert system.process.wait(60) == CANNOT_START, system.errors
        assert system.process.stdout is not None
        assert system.process.stdout.read() == "", "it was never ready"
        return system.errors.splitlines()[-1]


def epochs(store: str) -> list[tuple[object, ...]]:
    """The host that leads, and how often the leases of leader and hosts were acquired."""
    with psycopg.connect(store) as connection:
        query = "SELECT name, holder, epoch FROM leases WHERE name = 'broker' OR name LIKE 'host %' ORDER BY name"
        return connection.execute(query).fetchall()


def copy_host(source: Path, target: Path) -> None:
    """Clone a machine: its state directory, its keys."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock", "errors"))


def test_a_cloned_host_is_refused_while_the_other_one_runs_and_takes_its_place_once_that_was_killed(
    store: str, keys: Hosts, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    with host(store, "b", keys["b"]) as b:
        with host(store, "a", keys["a"]) as a:
            copy_host(keys["a"], clone)
            before = epochs(store)
            reason = end(list_options(store, "a", clone), clone)
            assert "yunishard up: host a runs on " in reason
            assert "with the same host id: this machine or its state directory is a copy" in reason
            assert epochs(store) == before
            assert "has replaced it" not in a.system.errors + b.system.errors
            b.system.until(lambda: all(_shows_the_refusal(one) for one in (a, b)))
            a.kill()
        with host(store, "a", keys["a"]):
            pass  # its own lease has not ended yet, but nobody else has renewed it
        with host(store, "a", clone):
            assert "yunishard up: host a runs on " in end(list_options(store, "a", keys["a"]), keys["a"])


def _shows_the_refusal(running: Running) -> bool:
    """Whether each view of a host shows that another machine was refused."""
    hosts = running.web.read("/ws/v1/hosts")["hosts"]
    health = running.web.read("/ws/v1/scheduler/healthcheck")["HealthChecks"]
    refused = {one["name"]: one["refused"] for one in hosts}
    [check] = [one for one in health if one["Name"] == "Hosts"]
    return "1 time, last at" in refused["a"] and not refused["b"] and refused["a"] in check["DiagnosisMessage"]


def test_a_host_without_an_address_is_refused_in_a_cluster(store: str, keys: Hosts) -> None:
    with host(store, "a", keys["a"]):
        options = [*FREE_PORTS, f"--store={store}", f"--state={keys['b'] / 'state'}", "--host-name=b"]
        reason = end([*options, "--lease-timeout=3s", "--silence=2s"], keys["b"])
    assert "leads the system of this store, and this host has no address at which others reach it" in reason


def test_a_host_with_the_keys_of_another_cluster_is_not_ready_until_it_has_the_right_ones(
    store: str, keys: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = keys["c"]
    own = (host_file(folder).read_text(), (folder / ALLOWED).read_text())
    for file in folder.glob(f"{HOST}.key*"):
        file.unlink()
    write_pair(folder, HOST)
    (folder / ALLOWED).write_text(f"{read_pair(host_file(folder)).public}  c\n")
    folder.chmod(0o700)
    with host(store, "a", keys["a"]), up(*list_options(store, "c", folder), folder=folder) as foreign:
        foreign.until(lambda: foreign.says("is not allowed there") and foreign.says("this host is not ready"))
        for text, file in zip(own, (host_file(folder), folder / ALLOWED), strict=True):
            new = file.with_suffix(".new")
            new.write_text(text)
            new.chmod(0o600)
            new.replace(file)
        foreign.announced()


def test_a_removed_host_is_not_listed_any_more(store: str, keys: Hosts) -> None:
    with host(store, "a", keys["a"]) as a:
        with host(store, "b", keys["b"]) as b:
            a.system.until(lambda: len(_states(a)) == 2)
            assert a.web.ask("/ws/v1/hosts/b/remove", post="")[0] == 409
            b.kill()
        a.system.until(lambda: _states(a) == {"a": "ready", "b": "lost"})
        # Shown as lost, b may still have sent a heartbeat lately, and is not removed then.
        a.system.until(lambda: a.web.ask("/ws/v1/hosts/b/remove", post="")[0] == 200)
        assert _states(a) == {"a": "ready"}
        with psycopg.connect(store) as connection:
            assert connection.execute("SELECT name FROM hosts").fetchall() == [("a",)]


def _states(running: Running) -> dict[str, str]:
    return {one["name"]: one["state"] for one in running.web.read("/ws/v1/hosts")["hosts"]}
