"""Leases of time in a real database: one holder at a time, by the clock of the database."""

from collections.abc import Iterator

import pytest

from common.postgres import Connection, Database
from common.postgres_leases import HeldLease, acquire_lease, read_lease, renew_lease
from tests import postgres

NAME = "broker"
LONG_S = 60.0


def wanted(holder: str, *, epoch: int = 1000, left_s: float = LONG_S) -> HeldLease:
    return HeldLease(holder, epoch, left_s, f"tcp://{holder}:9094", f"key of {holder}")


@pytest.fixture
def connection() -> Iterator[Connection]:
    database = Database(postgres.new_store(), "test")
    with database.autocommit() as opened:
        yield opened
    database.close()


def expire(connection: Connection) -> None:
    connection.execute("UPDATE leases SET expires_at = clock_timestamp() - interval '1 ms'")


def test_one_host_holds_the_lease_until_it_ends(connection: Connection) -> None:
    assert read_lease(connection, NAME) is None
    assert acquire_lease(connection, NAME, wanted("a")) == 1000
    assert acquire_lease(connection, NAME, wanted("b", epoch=5000)) == 0
    held = read_lease(connection, NAME)
    assert held is not None
    assert (held.holder, held.epoch, held.endpoint, held.public_key) == ("a", 1000, "tcp://a:9094", "key of a")
    assert LONG_S - 10 < held.left_s <= LONG_S
    expire(connection)
    assert acquire_lease(connection, NAME, wanted("b", epoch=5)) == 1001
    assert not renew_lease(connection, NAME, 1000, LONG_S)
    assert acquire_lease(connection, NAME, wanted("a")) == 0


def test_the_epoch_is_at_least_the_one_that_was_wanted(connection: Connection) -> None:
    assert acquire_lease(connection, NAME, wanted("a", epoch=1000)) == 1000
    assert acquire_lease(connection, NAME, wanted("a", epoch=2000)) == 2000


def test_the_next_process_of_the_holder_need_not_wait(connection: Connection) -> None:
    assert acquire_lease(connection, NAME, wanted("a")) == 1000
    assert acquire_lease(connection, NAME, wanted("a")) == 1001


def test_a_renewed_lease_lasts_longer(connection: Connection) -> None:
    assert acquire_lease(connection, NAME, wanted("a", left_s=0.001)) == 1000
    assert renew_lease(connection, NAME, 1000, LONG_S)
    assert acquire_lease(connection, NAME, wanted("b")) == 0


def test_leases_of_other_names_are_independent(connection: Connection) -> None:
    assert acquire_lease(connection, NAME, wanted("a")) == 1000
    assert acquire_lease(connection, "history", wanted("b")) == 1000
