"""The leading broker's port for several hosts, on real sockets: who gets in, and keys that change."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import pytest
import zmq

from yunishard.broker import cluster_port
from yunishard.broker.cluster_port import ClusterPort
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import LINK_LOST, BrokerAddress, Incoming, Outgoing
from yunishard.common.transport import cluster_connection, zap
from yunishard.common.transport.curve_keys import ALLOWED, HOST, KeyPair, host_file, read_pair, write_pair
from yunishard.common.transport.event_loop import BrokerConnection, Transport

TEST_MAX_S = 10
AGAIN_S = 0.5
"""Time after which a message counts as lost with its connection."""

NUMBERS = count(1)
HEADER = Header(kind="Hello", seq=5)
LOST = Incoming("broker", Header(kind=LINK_LOST), b"")


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TEST_MAX_S):
            await story()

    asyncio.run(bounded())


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zap, "CHECK_EVERY_S", 0.01)
    monkeypatch.setattr(cluster_port, "KEYS_CHECK_S", 0.01)
    monkeypatch.setattr(cluster_connection, "KEYS_CHECK_S", 0.01)


class Hosts:
    """The directories of the keys of three hosts."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in "abc":
            (place / name).mkdir()
            write_pair(place / name, HOST)
        self.allow("a", "b", "c")

    def __getitem__(self, name: str) -> Path:
        return self.place / name

    def public(self, name: str) -> str:
        return read_pair(host_file(self[name])).public

    def renew(self, name: str) -> None:
        (self[name] / f"{HOST}.key").unlink()
        host_file(self[name]).unlink()
        write_pair(self[name], HOST)

    def allow(self, *names: str, more: str = "") -> None:
        """Allow the present keys of these hosts at the broker, which runs on `a`."""
        new = self["a"] / "new"
        new.write_text("".join(f"{self.public(name)} {name}\n" for name in names) + more)
        new.replace(self["a"] / ALLOWED)


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


@asynccontextmanager
async def leading(hosts: Hosts, address: str = "tcp://127.0.0.1:0") -> AsyncIterator[tuple[Transport, ClusterPort]]:
    wire = Transport()
    local = f"ipc://{hosts.place}/s"
    port = ClusterPort(local, wake=wire.wake, cluster_address=address, keys=hosts["a"])
    wire.add("", port)
    try:
        yield wire, port
    finally:
        port.close()


def address_of(port: ClusterPort, hosts: Hosts) -> BrokerAddress:
    return BrokerAddress(port.cluster_address, hosts.public("a"))


@asynccontextmanager
async def connected(broker: BrokerAddress, name: str, keys: Path) -> AsyncIterator[tuple[Transport, BrokerConnection]]:
    wire = Transport()
    link = BrokerConnection(broker, name=name, wake=wire.wake, keys=keys)
    wire.add("broker", link)
    try:
        yield wire, link
    finally:
        link.close()


async def arrival(wire: Transport) -> Incoming:
    while True:
        if found := await wire.receive(float("inf")):
            [incoming] = found
            return incoming


async def lost(wire: Transport) -> None:
    """Wait until the connection was made again."""
    while LOST not in await wire.receive(float("inf")):
        pass


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing signals it
        await asyncio.sleep(0.001)


async def talk(server: Transport, client: Transport, name: str) -> None:
    """A message in each direction, sent again as after LINK_LOST: a change of keys may end a connection twice."""
    while True:
        body = f"message {next(NUMBERS)}".encode()
        up, down = Incoming(name, HEADER, body), Incoming("broker", HEADER, body)
        client.send(Outgoing("broker", HEADER, body))
        if up not in await server.receive(AGAIN_S):
            continue
        server.send(Outgoing(name, HEADER, body))
        if down in await client.receive(AGAIN_S):
            return


def test_processes_of_its_own_host_and_of_others_connect_under_their_names(hosts: Hosts) -> None:
    async def story() -> None:
        async with (
            leading(hosts) as (server, port),
            connected(BrokerAddress(port.address), "rmproxy/a", hosts["a"]) as (local, _),
            connected(address_of(port, hosts), "rmproxy/b", hosts["b"]) as (remote, _),
        ):
            assert await arrival(local) == LOST
            assert await arrival(remote) == LOST
            for _ in range(2):
                await talk(server, local, "rmproxy/a")
                await talk(server, remote, "rmproxy/b")
            port.pause()
            port.resume()
            async with connected(BrokerAddress(port.address), "worker/a.1-1", hosts["a"]) as (late, _):
                assert await arrival(late) == LOST
                await talk(server, late, "worker/a.1-1")

    play(story)


def test_a_process_keeps_its_name_on_a_new_connection(hosts: Hosts) -> None:
    async def story() -> None:
        async with (
            leading(hosts) as (server, port),
            connected(address_of(port, hosts), "rmproxy/b", hosts["b"]) as (one, _),
        ):
            assert await arrival(one) == LOST
            await talk(server, one, "rmproxy/b")
            async with connected(BrokerAddress(port.address), "rmproxy/b", hosts["b"]) as (other, _):
                assert await arrival(other) == LOST
                await talk(server, other, "rmproxy/b")

    play(story)


@contextmanager
def intruder(address: str, server: str = "", own: KeyPair | None = None) -> Iterator["zmq.Socket[bytes]"]:
    """A plain socket that names itself as a process of host b, and has sent a message."""
    one: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    one.setsockopt(zmq.ROUTING_ID, b"rmproxy/b")
    if own is not None:
        one.curve_publickey, one.curve_secretkey = own.public.encode(), own.secret.encode()
        one.curve_serverkey = server.encode()
    one.connect(address)
    try:
        yield one
    finally:
        one.close(linger=0)


@pytest.mark.parametrize("case", ["no key", "an unknown key", "another key of the broker"])
def test_without_the_right_keys_nothing_gets_in(case: str, hosts: Hosts) -> None:
    async def story() -> None:
        async with (
            leading(hosts) as (server, port),
            connected(address_of(port, hosts), "rmproxy/b", hosts["b"]) as (remote, _),
        ):
            assert await arrival(remote) == LOST
            own = None if case == "no key" else KeyPair.new()
            if case == "another key of the broker":
                own = read_pair(host_file(hosts["b"]))
            expected = hosts.public("a") if case == "an unknown key" else KeyPair.new().public
            with intruder(port.cluster_address, expected, own) as socket, socket.get_monitor_socket() as monitor:
                socket.send_multipart([b"YSH1", b"x", b""])
                ended = {zmq.Event.DISCONNECTED, zmq.Event.HANDSHAKE_FAILED_AUTH, zmq.Event.HANDSHAKE_FAILED_PROTOCOL}
                seen: set[int] = set()
                while not seen & ended:
                    assert await asyncio.to_thread(monitor.poll, TEST_MAX_S * 1000)
                    seen.add(int.from_bytes(monitor.recv_multipart()[0][:2], "little"))
                socket.disable_monitor()
                assert zmq.Event.HANDSHAKE_SUCCEEDED not in seen
                await talk(server, remote, "rmproxy/b")

    play(story)


def test_a_connection_whose_key_is_removed_ends_and_others_stay(hosts: Hosts) -> None:
    async def story() -> None:
        async with (
            leading(hosts) as (server, port),
            connected(address_of(port, hosts), "rmproxy/b", hosts["b"]) as (b, _),
            connected(address_of(port, hosts), "rmproxy/c", hosts["c"]) as (c, gone),
            connected(address_of(port, hosts), "worker/c.1-1", hosts["c"]) as (silent, gone_too),
        ):
            for one in (b, c, silent):
                assert await arrival(one) == LOST
            await talk(server, b, "rmproxy/b")
            await talk(server, c, "rmproxy/c")
            hosts.allow("a", "b")
            for wire, link in ((c, gone), (silent, gone_too)):
                await until(lambda wire=wire, link=link: wire.send(Outgoing("broker", HEADER, b"x")) or link.dropped)
            received = asyncio.create_task(arrival(b))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await arrival(c)
            assert not received.done()
            received.cancel()
            hosts.allow("a", "b", "c")
            assert await arrival(c) == LOST
            while (got := await server.receive(float("inf"))) and got[-1].source != "rmproxy/c":
                c.send(Outgoing("broker", HEADER, b"again"))

    play(story)


def test_hosts_change_their_keys_while_they_are_connected(hosts: Hosts) -> None:
    """First the broker's own, then that of another host, whose old key stays allowed for a while."""

    async def story() -> None:
        async with (
            leading(hosts) as (server, port),
            connected(address_of(port, hosts), "rmproxy/b", hosts["b"]) as (b, link),
        ):
            assert await arrival(b) == LOST
            await talk(server, b, "rmproxy/b")
            old = address_of(port, hosts)
            hosts.renew("a")
            hosts.allow("a", "b", "c")
            await until(lambda: not b.send(Outgoing("broker", HEADER, b"x")) and link.dropped > 0)
            new = address_of(port, hosts)
            assert new.address == old.address
            assert new.key != old.key
            link.move(new)
            await lost(b)
            await talk(server, b, "rmproxy/b")

            before = hosts.public("b")
            hosts.renew("b")
            hosts.allow("a", "b", "c", more=f"{before} b\n")
            await lost(b)
            await talk(server, b, "rmproxy/b")
            hosts.allow("a", "b", "c")
            await talk(server, b, "rmproxy/b")

    play(story)


def test_a_name_is_resolved_to_an_address_of_this_machine(hosts: Hosts) -> None:
    async def story() -> None:
        async with leading(hosts, "tcp://localhost:0") as (server, port):
            assert "localhost" not in port.cluster_address
            name = f"tcp://localhost:{port.cluster_address.rpartition(':')[2]}"
            async with connected(BrokerAddress(name, hosts.public("a")), "rmproxy/b", hosts["b"]) as (b, _):
                assert await arrival(b) == LOST
                await talk(server, b, "rmproxy/b")

    play(story)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("tcp://192.0.2.1:0", "does not have"),
        ("tcp://no-such-host.invalid:1", "not known|resolution|No address"),
    ],
)
def test_an_address_that_is_not_of_this_machine_is_an_error(address: str, problem: str, hosts: Hosts) -> None:
    async def story() -> None:
        with pytest.raises(OSError, match=problem):
            async with leading(hosts, address):
                pass
        async with leading(hosts):
            pass  # nothing of the first attempt is left

    play(story)


def test_files_that_cannot_be_used_are_errors_that_name_them(hosts: Hosts) -> None:
    async def story() -> None:
        for name in (ALLOWED, f"{HOST}.key_secret"):
            (hosts["a"] / name).rename(hosts["a"] / "aside")
            with pytest.raises(OSError, match=name):
                async with leading(hosts):
                    pass
            (hosts["a"] / "aside").rename(hosts["a"] / name)

    play(story)
