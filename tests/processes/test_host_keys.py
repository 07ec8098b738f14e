"""Two hosts whose keys are replaced while a resource manager works; one is excluded in the end."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psycopg
import pytest

from tests import postgres
from tests.deploy.system import FREE_PORTS, WAIT_MAX_S, Up, free_ports, up
from yunishard import AllocationResponse, ResourceManager, application, ask, connect, node
from yunishard.cli.main import main
from yunishard.common.transport.curve_keys import fingerprint, read_public

pytestmark = pytest.mark.processes

QUEUES = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]"


class Hosts:
    """Two hosts with keys of `yunishard cluster`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.store = postgres.new_store()
        self.keys = folder / "keys"
        self.change("init", "a", "b")
        self.systems: dict[str, Up] = {}
        for name in "ab":
            (folder / name).mkdir()
            options = {
                "state": folder / name / "state",
                "store": self.store,
                "host-name": name,
                "cluster-address": f"tcp://127.0.0.1:{free_ports(1)[0]}",
                "cluster-keys": self.keys / name,
                "lease-timeout": "3s",
                "silence": "2s",
                "history": "false",
            }
            words = [f"--{option}={value}" for option, value in options.items()]
            self.systems[name] = stack.enter_context(up(*FREE_PORTS, *words, folder=folder / name))
        endpoints = {name: system.announced() for name, system in self.systems.items()}
        self.native = {name: found["native"] for name, found in endpoints.items()}
        self._rest = {name: found["rest"] for name, found in endpoints.items()}

    def change(self, action: str, *words: str) -> None:
        assert main(["cluster", action, str(self.keys), *words]) == 0

    def public(self, name: str) -> str:
        return read_public(self.keys / name / "host.key")

    def has_web_service(self, name: str) -> bool:
        """Whether the web service of a host is connected, the last of its processes."""
        return httpx.get(f"{self._rest[name]}/ws/v1/readyz").status_code == httpx.codes.OK

    def leader(self) -> tuple[str, str]:
        """The host that leads, and its key in the store."""
        with psycopg.connect(self.store) as connection:
            row = connection.execute("SELECT holder, public_key FROM leases WHERE name = 'broker'").fetchone()
        assert row is not None
        return str(row[0]), str(row[1])


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with ExitStack() as stack:
        yield Hosts(tmp_path, stack)


class Asks:
    """A resource manager that asks for one allocation after the other."""

    def __init__(self, rm: ResourceManager) -> None:
        self.placed: list[str] = []
        self._rm = rm
        self._sent = 0

    async def place(self, count: int = 1) -> None:
        for _ in range(count):
            self._sent += 1
            await self._rm.update_allocations(allocations=[ask(f"k{self._sent}", "app", {"vcore": "1"})])
            async with asyncio.timeout(WAIT_MAX_S):
                async for _, message in self._rm.results():
                    if isinstance(message, AllocationResponse):
                        self.placed += [one.allocation_key for one in message.new]
                        break

    async def place_until(self, holds: Callable[[], bool]) -> None:
        """Ask until this holds, and once more."""
        async with asyncio.timeout(WAIT_MAX_S):
            while not holds():
                await self.place()
        await self.place(3)

    def verify(self) -> None:
        assert self.placed == [f"k{number + 1}" for number in range(self._sent)], "each once"


def test_keys_are_replaced_while_a_resource_manager_works_and_a_host_is_excluded(hosts: Hosts) -> None:
    leader, key = hosts.leader()
    assert key == hosts.public(leader)
    other = "b" if leader == "a" else "a"

    async def story() -> None:
        async with connect(hosts.native[other], rm_id="rm-1", config=QUEUES) as rm:
            await rm.update_nodes([node("n1", {"vcore": "1000000"})])
            await rm.update_applications(new=[application("app", "root.batch", user="ann")])
            asks = Asks(rm)
            await asks.place_until(lambda: hosts.has_web_service(other))

            old = hosts.public(other)
            hosts.change("rotate", other)
            await asks.place_until(lambda: hosts.systems[other].errors.count("the host has a new key") >= 3)
            hosts.change("prune")
            ended = f"no longer {fingerprint(old)}"
            await asks.place_until(lambda: hosts.systems[leader].says(ended))

            hosts.change("rotate", leader)
            await asks.place_until(lambda: hosts.leader() == (leader, hosts.public(leader)))
            hosts.change("prune")
            await asks.place(10)
            asks.verify()

    asyncio.run(story())
    for file in (hosts.keys / other).iterdir():
        if file.name != "host.key_secret":
            file.unlink()
    hosts.change("prune")
    excluded = hosts.systems[other]
    excluded.until(lambda: excluded.says("of this host is not allowed there"))
