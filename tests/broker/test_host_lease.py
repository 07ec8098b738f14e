"""The lease of a host in a real database: only one of several systems with its name is that host."""

import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests import postgres
from yunishard.broker.candidacy import (
    FILE,
    TOKENS_MAX,
    HostFacts,
    HostLease,
    delete_host,
    read_refusals,
    record_refusal,
)
from yunishard.common.messages.control_messages import REFUSAL_SHOWN_S, PollLease, Rival
from yunishard.common.postgres.connection import Connection, Database

DURATION_S = 6.0


def facts(identity: str = "id-1") -> HostFacts:
    return HostFacts("a", identity, "tcp://10.0.0.1:9094", 4, 8 << 30)


@pytest.fixture
def store() -> str:
    return postgres.new_store()


@pytest.fixture
def database(store: str) -> Iterator[Database]:
    with closing(Database(store, "test")) as found:
        yield found


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with database.autocommit() as opened:
        yield opened


def renew(lease: HostLease, connection: Connection, ended: float | None = None) -> Rival | None:
    """Renew with a known outcome."""
    poll = PollLease(epoch=0, duration_s=DURATION_S, host_ended=ended)
    with connection.transaction():
        found = lease.renew(connection, poll)
    if found is None:
        lease.confirm()
    return found


def test_a_restarted_system_continues_at_once_and_an_earlier_copy_of_it_does_not(
    connection: Connection, tmp_path: Path
) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    assert renew(HostLease(facts(), original), connection) is None
    shutil.copytree(original, copy)
    assert renew(HostLease(facts(), original), connection) is None, "after kill -9, with nothing released"
    found = renew(HostLease(facts(), copy), connection)
    assert found is not None
    assert (found.is_copy, found.address) == (True, "tcp://10.0.0.1:9094")
    assert found.machine.startswith(socket.gethostname())
    assert 0 < found.left_s <= DURATION_S
    assert renew(HostLease(facts(), original), connection) is None, "the copy has changed nothing"


def test_of_two_copies_the_first_one_that_starts_is_the_host(connection: Connection, tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    assert renew(HostLease(facts(), original), connection) is None
    shutil.copytree(original, copy)
    assert renew(HostLease(facts(), copy), connection) is None
    assert renew(HostLease(facts(), original), connection) is not None
    assert renew(HostLease(facts(), copy), connection) is None


def test_of_a_machine_and_its_restored_snapshot_one_goes_on(connection: Connection) -> None:
    original, snapshot = HostLease(facts(), None), HostLease(facts(), None)
    assert renew(original, connection) is None
    snapshot._tokens = [*original._tokens]
    outcomes = [renew(lease, connection) is None for lease in (original, snapshot) * 2]
    assert outcomes == [True, False, True, False]


def test_another_state_directory_is_no_copy(connection: Connection) -> None:
    assert renew(HostLease(facts("id-1"), None), connection) is None
    found = renew(HostLease(facts("id-2"), None), connection)
    assert found is not None
    assert not found.is_copy


@pytest.mark.parametrize("jump", ["0", "1 hour", "-1 hour"])
def test_a_lease_that_has_ended_is_taken_unless_it_was_renewed(connection: Connection, jump: str) -> None:
    first, second = HostLease(facts(), None), HostLease(facts(), None)
    assert renew(first, connection) is None
    connection.execute("UPDATE leases SET expires_at = expires_at + %s::interval", (jump,))
    seen = renew(second, connection)
    assert seen is not None
    assert renew(first, connection) is None
    assert renew(second, connection, seen.expires) is not None, "the first one has renewed it"
    seen = renew(second, connection)
    assert seen is not None
    assert renew(second, connection, seen.expires) is None
    assert renew(first, connection) is not None


def test_a_rival_that_is_stopped_in_its_transaction_blocks_nothing(connection: Connection, store: str) -> None:
    lease, poll = HostLease(facts(), None), PollLease(epoch=0, duration_s=DURATION_S)
    assert renew(lease, connection) is None
    with closing(Database(store, "rival")) as other, other.transaction() as stopped:
        assert HostLease(facts(), None).renew(stopped, poll) is not None
        assert renew(lease, connection) is None


def test_of_two_systems_that_acquire_the_lease_at_once_one_looks_again(connection: Connection, store: str) -> None:
    first, second, name = HostLease(facts(), None), HostLease(facts("id-2"), None), f"second {id(store)}"
    assert renew(first, connection) is None
    first.release(connection)

    def acquire() -> None:
        with closing(Database(store, name)) as other, other.autocommit() as opened:
            renew(second, opened)

    with ThreadPoolExecutor(1) as thread:
        with connection.transaction():
            assert first.renew(connection, PollLease(epoch=0, duration_s=DURATION_S)) is None
            outcome = thread.submit(acquire)
            waits = f"SELECT 1 FROM pg_stat_activity WHERE application_name = '{name}' AND wait_event_type = 'Lock'"
            postgres.wait_for(postgres.server(), waits)
        with pytest.raises(OSError, match="another process has just changed the lease of host a"):
            outcome.result()


def test_a_released_lease_can_be_taken_at_once(connection: Connection) -> None:
    first, second = HostLease(facts(), None), HostLease(facts("id-2"), None)
    assert renew(first, connection) is None
    second.release(connection)
    assert renew(second, connection) is not None, "it may not release the lease of another system"
    first.release(connection)
    assert renew(second, connection) is None
    assert renew(first, connection) is not None


def test_a_renewal_of_unknown_outcome_is_known_later(connection: Connection, tmp_path: Path) -> None:
    lease, poll = HostLease(facts(), tmp_path), PollLease(epoch=0, duration_s=DURATION_S)
    assert renew(lease, connection) is None
    with connection.transaction():
        assert lease.renew(connection, poll) is None
    for _ in range(3 * TOKENS_MAX):  # it was carried out, and the connection broke; the next ones wait for its lock
        with connection.transaction(force_rollback=True):
            assert lease.renew(connection, poll) is None
    assert renew(HostLease(facts(), tmp_path), connection) is None


def test_after_too_many_starts_of_unknown_outcome_a_system_waits_for_the_end_of_its_own_lease(
    connection: Connection, tmp_path: Path
) -> None:
    poll = PollLease(epoch=0, duration_s=DURATION_S)
    assert renew(HostLease(facts(), tmp_path), connection) is None
    for _ in range(TOKENS_MAX):
        with connection.transaction(force_rollback=True):
            assert HostLease(facts(), tmp_path).renew(connection, poll) is None
    assert renew(HostLease(facts(), tmp_path), connection) is not None


def test_without_its_file_a_system_waits_for_the_end_of_its_own_lease(connection: Connection, tmp_path: Path) -> None:
    assert renew(HostLease(facts(), tmp_path), connection) is None
    (tmp_path / FILE).write_text("12 3x")
    found = renew(HostLease(facts(), tmp_path), connection)
    assert found is not None
    assert renew(HostLease(facts(), tmp_path), connection, found.expires) is None


def test_refusals_are_shown_for_an_hour(connection: Connection, database: Database) -> None:
    assert read_refusals(connection) == []
    for _ in range(2):
        record_refusal(database, facts())
    [found] = read_refusals(connection)
    assert (found.host, found.address, found.count) == ("a", "tcp://10.0.0.1:9094", 2)
    assert found.machine.startswith(socket.gethostname())
    aged = "UPDATE leases SET expires_at = expires_at - make_interval(secs => %s) WHERE name = 'refused a'"
    connection.execute(aged, (REFUSAL_SHOWN_S,))
    assert read_refusals(connection) == []


def test_nothing_is_left_of_a_deleted_host(connection: Connection, database: Database) -> None:
    lease = HostLease(facts(), None)
    assert renew(lease, connection) is None
    record_refusal(database, facts())
    delete_host(connection, "a")
    assert connection.execute("SELECT name FROM leases").fetchall() == []
    assert renew(lease, connection) is None, "it may return"
