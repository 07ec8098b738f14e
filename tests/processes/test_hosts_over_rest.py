"""Two hosts of one store: both web services give the same answers, also about what the other one has done, and the one
that remains continues after a host is lost.
"""

import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests import postgres
from tests.common.test_cluster_port import Hosts
from tests.deploy.system import FREE_PORTS, Up, free_ports, up
from tests.processes.test_live_configuration import MORE, ONE, Web
from yunishard.common.transport.curve_keys import ALLOWED
from yunishard.sdk.blocking import BlockingResourceManager
from yunishard.sdk.items import application, ask, node, release

pytestmark = pytest.mark.processes

NAMES: Final = "ab"


class Running:
    """A host, and its REST port."""

    def __init__(self, name: str, system: Up, endpoints: Mapping[str, str]) -> None:
        self.name = name
        self.system = system
        self.native = endpoints["native"]
        self.web = Web(endpoints["rest"])

    def rows(self, query: str) -> list[dict[str, object]]:
        """Rows of the history; none while it cannot be read."""
        with suppress(OSError):
            status, text = self.web.ask(f"/ws/v1/history/{query}")
            if status == 200:
                found: list[dict[str, object]] = json.loads(text)["rows"]
                return found
        return []

    def allocations(self) -> dict[object, object]:
        """How each allocation has ended, by its key; None for one that runs."""
        return {row["allocationKey"]: row.get("terminationType") for row in self.rows("allocations?rm=rm-1")}

    def kill(self) -> None:
        """Kill all of its processes at once."""
        children = self.system.children
        self.system.process.kill()
        for number in children:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


def list_options(store: str, name: str, folder: Path) -> list[str]:
    """The options of a host; its folder has its keys and its state."""
    options = {
        "state": folder / "state",
        "store": store,
        "host-name": name,
        "cluster-address": f"tcp://127.0.0.1:{free_ports(1)[0]}",
        "cluster-keys": folder,
        "lease-timeout": "3s",
        "silence": "2s",
    }
    return [*FREE_PORTS, *(f"--{option}={value}" for option, value in options.items())]


@pytest.fixture
def store() -> str:
    return postgres.new_store()


@pytest.fixture
def hosts(tmp_path: Path, store: str) -> Iterator[list[Running]]:
    keys = Hosts(tmp_path)
    for name in NAMES[1:]:
        shutil.copy(keys["a"] / ALLOWED, keys[name] / ALLOWED)
    with ExitStack() as stack:
        systems = []
        for name in NAMES:
            keys[name].chmod(0o700)
            systems.append(stack.enter_context(up(*list_options(store, name, keys[name]), folder=keys[name])))
        yield [Running(name, one, one.announced()) for name, one in zip(NAMES, systems, strict=True)]


def audit(store: str) -> list[tuple[str, str]]:
    """The host and the outcome of each line of the audit log."""
    with psycopg.connect(store) as connection:
        lines = [json.loads(line) for (line,) in connection.execute("SELECT line FROM audit ORDER BY id").fetchall()]
    return [(line["host"], line["outcome"]) for line in lines]


def recorder(store: str) -> str:
    """The host whose web service records the history."""
    with psycopg.connect(store) as connection:
        row = connection.execute("SELECT holder FROM leases WHERE name = 'history'").fetchone()
    return "" if row is None else str(row[0]).removeprefix("webservice/")


def test_web_services_of_two_hosts_give_the_same_answers_and_one_continues_alone(
    hosts: list[Running], store: str
) -> None:
    a, b = hosts
    with BlockingResourceManager(b.native, rm_id="rm-1", config=ONE) as rm:
        rm.update_nodes([node("n1", {"vcore": "8"})])
        rm.update_applications(new=[application("app-1", "root.a", user="alice")])
        rm.update_allocations(allocations=[ask(key, "app-1", {"vcore": "1"}) for key in ("k1", "k2")])
        for host in hosts:
            host.system.until(lambda host=host: host.allocations() == {"k1": None, "k2": None})

        assert a.web.ask("/ws/v1/config?rm=rm-1", put=MORE)[0] == 200
        assert b.web.ask("/ws/v1/config/rollback?rm=rm-1&version=1", post="")[0] == 200
        assert audit(store) == [("a", "begun"), ("a", "done"), ("b", "begun"), ("b", "done")]
        for path in ("history?rm=rm-1", "version/1?rm=rm-1", "version/2?rm=rm-1"):
            assert a.web.ask(f"/ws/v1/config/{path}") == b.web.ask(f"/ws/v1/config/{path}")
        assert [one["version"] for one in a.web.read("/ws/v1/config/history?rm=rm-1")] == [3, 2, 1]

    lost, left = (a, b) if recorder(store) == "a" else (b, a)
    lost.kill()
    with BlockingResourceManager(left.native, rm_id="rm-1", config=ONE) as rm:
        rm.update_nodes([node("n1", {"vcore": "8"})])
        rm.update_applications(new=[application("app-1", "root.a", user="alice")])
        rm.update_allocations(allocations=[ask("k3", "app-1", {"vcore": "1"})])
        left.system.until(lambda: "k3" in left.allocations())
        rm.update_allocations(releases=[release("app-1", "k3")])
        left.system.until(lambda: left.allocations()["k3"] == "STOPPED_BY_RM")
        assert recorder(store) == left.name
        assert len(left.web.read("/ws/v1/config/history?rm=rm-1")) >= 3
        assert left.web.ask("/ws/v1/config?rm=rm-1", put=MORE)[0] == 200
        assert audit(store)[-2:] == [(left.name, "begun"), (left.name, "done")]
