"""Brokers that stand for election, with a real database: one leads, the next one follows."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests import postgres
from yunishard.broker.candidacy import HostFacts, HostLease, LeasePoller, read_heartbeats, read_host_facts, write_host
from yunishard.common.messages.control_messages import LeasePolled, PollLease
from yunishard.common.messages.wire import decode_body, make_outgoing
from yunishard.common.names import LEASE
from yunishard.common.postgres.connection import Connection
from yunishard.common.settings import Settings, replace_settings
from yunishard.common.transport.curve_keys import read_public, write_pair

DURATION_S = 60.0
PATIENCE_S = 20.0


def facts(name: str, identity: str = "1") -> HostFacts:
    return HostFacts(name, identity, f"tcp://{name}:9094", 4, 8 << 30)


def keys_of(folder: Path, name: str) -> Path:
    """The directory with the keys of a host, made if it is missing."""
    keys = folder / name
    if not keys.exists():
        keys.mkdir()
        write_pair(keys, "host")
    return keys


@pytest.fixture
def store() -> str:
    return postgres.new_store()


@pytest.fixture
def connection(store: str) -> Iterator[Connection]:
    with psycopg.connect(store, autocommit=True) as opened:
        yield opened


def poller(store: str, name: str, keys: Path | None, woken: asyncio.Event) -> LeasePoller:
    host = facts(name)
    lease = HostLease(host, None)
    return LeasePoller(store, host, lease, keys, answer_max_s=PATIENCE_S, wake=woken.set)


async def poll(poller: LeasePoller, woken: asyncio.Event, epoch: int = 0) -> LeasePolled:
    poller.send(make_outgoing(LEASE, PollLease(epoch=epoch, duration_s=DURATION_S)))
    async with asyncio.timeout(PATIENCE_S):
        while (incoming := poller.receive()) is None:
            woken.clear()
            await woken.wait()
    assert incoming.source == LEASE
    return decode_body(LeasePolled, incoming.body)


def test_a_standby_leads_as_soon_as_the_lease_is_released(store: str, tmp_path: Path) -> None:
    async def story() -> None:
        woken = asyncio.Event()
        with closing(poller(store, "b", keys_of(tmp_path, "b"), woken)) as standby:
            with closing(poller(store, "a", keys_of(tmp_path, "a"), woken)) as leader:
                first = await poll(leader, woken)
                assert first.epoch > 0
                renewed = await poll(leader, woken, first.epoch)
                assert (renewed.epoch, [*renewed.heartbeats], renewed.refusals) == (first.epoch, ["a"], [])
                seen = await poll(standby, woken)
                assert (seen.epoch, seen.holder, seen.heartbeats) == (0, "a", {})
                assert (seen.endpoint, seen.public_key) == ("tcp://a:9094", read_public(tmp_path / "a" / "host.key"))
                assert 0 < seen.left_s <= DURATION_S
                for file in (tmp_path / "a").iterdir():
                    file.unlink()
                write_pair(tmp_path / "a", "host")
                await poll(leader, woken, first.epoch)
                changed = await poll(standby, woken)
                assert changed.public_key == read_public(tmp_path / "a" / "host.key"), "the new one"
                assert changed.expires > seen.expires
                leader.release(first.epoch)
            second = await poll(standby, woken)
            assert second.epoch > first.epoch
            with closing(poller(store, "a", keys_of(tmp_path, "a"), woken)) as former:
                assert (await poll(former, woken, first.epoch)).holder == "b", "it was replaced"

    asyncio.run(story())


def test_an_unreachable_store_is_a_problem_and_no_end() -> None:
    async def story() -> None:
        woken = asyncio.Event()
        with closing(poller("postgresql:///x?host=/nowhere", "a", None, woken)) as standby:
            assert "the store cannot be used" in (await poll(standby, woken)).problem

    asyncio.run(story())


def test_each_poll_of_a_host_changes_its_heartbeat(connection: Connection) -> None:
    write_host(connection, facts("a"))
    write_host(connection, facts("b"))
    before = read_heartbeats(connection)
    connection.execute("UPDATE hosts SET heartbeat = heartbeat + interval '1 hour'")
    write_host(connection, facts("a")._replace(cores=8))
    after = read_heartbeats(connection)
    assert [name for name in "ab" if after[name] - before[name] < 3600] == ["a"]
    assert connection.execute("SELECT cores FROM hosts ORDER BY name").fetchall() == [(8,), (4,)]


def test_a_host_keeps_its_id_and_has_processors_and_memory(tmp_path: Path) -> None:
    settings = replace_settings(Settings(), {"state": tmp_path, "host_name": "a"})
    found = read_host_facts(settings)
    assert read_host_facts(settings) == found
    assert (found.name, found.address) == ("a", "")
    assert found.cores >= 1
    assert found.memory_bytes > 1 << 20
    assert read_host_facts(Settings()).id != found.id
