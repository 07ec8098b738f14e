"""Leases of time in a real database: one holder at a time, whatever the clock of the database does."""

from collections.abc import Iterator

import pytest

from tests import postgres
from yunishard.common.lease_watch import RELEASED
from yunishard.common.postgres.connection import Connection, Database
from yunishard.common.postgres.leases import HeldLease, acquire_lease, read_lease, release_lease, renew_lease

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


def test_one_host_holds_the_lease_until_another_one_has_seen_its_end(connection: Connection) -> None:
    assert read_lease(connection, NAME) is None
    assert acquire_lease(connection, NAME, wanted("a")) == 1000
    assert acquire_lease(connection, NAME, wanted("b", epoch=5000)) == 0
    held = read_lease(connection, NAME)
    assert held is not None
    assert (held.holder, held.epoch, held.endpoint, held.public_key) == ("a", 1000, "tcp://a:9094", "key of a")
    assert LONG_S - 10 < held.left_s <= LONG_S
    assert renew_lease(connection, NAME, 1000, LONG_S)
    assert acquire_lease(connection, NAME, wanted("b"), held.expires) == 0, "it was renewed since"
    renewed = read_lease(connection, NAME)
    assert renewed is not None
    assert acquire_lease(connection, NAME, wanted("b", epoch=5), renewed.expires) == 1001
    assert not renew_lease(connection, NAME, 1000, LONG_S)
    assert acquire_lease(connection, NAME, wanted("a")) == 0


@pytest.mark.parametrize("jump", ["1 hour", "-1 hour"])
def test_a_jump_of_the_clock_ends_no_lease(connection: Connection, jump: str) -> None:
    assert acquire_lease(connection, NAME, wanted("a")) == 1000
    connection.execute("UPDATE leases SET expires_at = expires_at - %s::interval", (jump,))
    assert acquire_lease(connection, NAME, wanted("b")) == 0
    assert renew_lease(connection, NAME, 1000, LONG_S)


def test_a_released_lease_can_be_acquired_at_once(connection: Connection) -> None:
    assert acquire_lease(connection, NAME, wanted("a")) == 1000
    release_lease(connection, NAME, 1000)
    released = read_lease(connection, NAME)
    assert released is not None
    assert released.expires == RELEASED
    assert acquire_lease(connection, NAME, wanted("b")) == 1001


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
