"""Brokers that stand for election, with a real database: one leads, the next one follows."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from broker.candidacy import LeasePoller, find_silent_hosts, renew_host
from common.control_messages import LeasePolled, PollLease
from common.curve_keys import read_public, write_pair
from common.host_facts import HostFacts, read_host_facts
from common.names import LEASE
from common.postgres import Connection
from common.settings import Settings, replace_settings
from common.wire import decode_body, make_outgoing
from tests import postgres

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
        with closing(
            LeasePoller(store, facts("b"), keys_of(tmp_path, "b"), answer_max_s=PATIENCE_S, wake=woken.set)
        ) as standby:
            with closing(
                LeasePoller(store, facts("a"), keys_of(tmp_path, "a"), answer_max_s=PATIENCE_S, wake=woken.set)
            ) as leader:
                first = await poll(leader, woken)
                assert first.epoch > 0
                assert (await poll(leader, woken, first.epoch)).epoch == first.epoch
                seen = await poll(standby, woken)
                assert (seen.epoch, seen.holder) == (0, "a")
                assert (seen.endpoint, seen.public_key) == ("tcp://a:9094", read_public(tmp_path / "a" / "host.key"))
                assert 0 < seen.left_s <= DURATION_S
                for file in (tmp_path / "a").iterdir():
                    file.unlink()
                write_pair(tmp_path / "a", "host")
                await poll(leader, woken, first.epoch)
                assert (await poll(standby, woken)).public_key == read_public(tmp_path / "a" / "host.key"), (
                    "the new one"
                )
                leader.release(first.epoch)
            second = await poll(standby, woken)
            assert second.epoch > first.epoch
            with closing(
                LeasePoller(store, facts("a"), keys_of(tmp_path, "a"), answer_max_s=PATIENCE_S, wake=woken.set)
            ) as former:
                assert (await poll(former, woken, first.epoch)).holder == "b", "it was replaced"

    asyncio.run(story())


def test_an_unreachable_store_is_a_problem_and_no_end() -> None:
    async def story() -> None:
        woken = asyncio.Event()
        with closing(
            LeasePoller("postgresql:///x?host=/nowhere", facts("a"), None, answer_max_s=PATIENCE_S, wake=woken.set)
        ) as poller:
            assert "the store cannot be used" in (await poll(poller, woken)).problem

    asyncio.run(story())


def test_a_host_writes_its_row_and_no_other_host_may_have_its_name(connection: Connection) -> None:
    assert renew_host(connection, facts("a"), DURATION_S) == ""
    assert renew_host(connection, facts("a"), DURATION_S) == ""
    reason = "another system uses this store as host a: stop it, or choose another --host-name for this one"
    assert renew_host(connection, facts("a", "2"), DURATION_S) == reason
    connection.execute("UPDATE hosts SET heartbeat = clock_timestamp() - make_interval(secs => %s)", (2 * DURATION_S,))
    assert renew_host(connection, facts("a", "2"), DURATION_S) == ""
    assert connection.execute("SELECT name, id, address, cores FROM hosts").fetchall() == [
        ("a", "2", "tcp://a:9094", 4)
    ]


def test_hosts_that_have_not_polled_are_found(connection: Connection) -> None:
    for name in ("a", "b"):
        assert renew_host(connection, facts(name), DURATION_S) == ""
    aged = "UPDATE hosts SET heartbeat = clock_timestamp() - make_interval(secs => %s) WHERE name = 'b'"
    connection.execute(aged, (2 * DURATION_S,))
    assert find_silent_hosts(connection, 2 * DURATION_S) == ["b"]
    assert find_silent_hosts(connection, 3 * DURATION_S) == []


def test_a_host_keeps_its_id_and_has_processors_and_memory(tmp_path: Path) -> None:
    settings = replace_settings(Settings(), {"state": tmp_path, "host_name": "a"})
    found = read_host_facts(settings)
    assert read_host_facts(settings) == found
    assert (found.name, found.address) == ("a", "")
    assert found.cores >= 1
    assert found.memory_bytes > 1 << 20
    assert read_host_facts(Settings()).id != found.id
