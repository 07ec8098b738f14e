"""What is forgotten, by age and by size, a piece at a time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.webservice.history.accounts import MINUTE, NOW, S, application, began, portion, sample
from webservice.history import retention
from webservice.history.retention import SLICE_ROWS, SLICES_MAX, tidy
from webservice.history.schema import TIMED
from webservice.history.store import Store

HOUR = 60 * MINUTE
AMPLE = 1 << 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    one = Store(tmp_path / "history.sqlite")
    yield one
    one.close()


def times(store: Store, table: str) -> list[int]:
    return [at for (at,) in store.file.execute(f"SELECT at FROM {table} ORDER BY at").fetchall()]


def test_what_is_too_old_goes_from_every_table(store: Store) -> None:
    for at_ns in (NOW - 2 * HOUR, NOW - HOUR, NOW):
        store.write([replace(portion(ended=[application(at_ns=at_ns)]), at_ns=at_ns, sample=sample())])
    tidy(store, bytes_max=AMPLE, age_max_ns=HOUR, now_ns=NOW)
    assert times(store, "applications") == times(store, "totals") == [NOW - HOUR, NOW]


def test_no_more_than_so_many_rows_go_at_a_time_and_the_rest_the_next_time(store: Store) -> None:
    some = SLICE_ROWS * SLICES_MAX + 100
    store.write([portion(*(began(f"k{number}", number) for number in range(some)))])
    tidy(store, bytes_max=AMPLE, age_max_ns=HOUR, now_ns=NOW)
    assert times(store, "allocations") == list(range(some - 100, some)), "the oldest first"
    tidy(store, bytes_max=AMPLE, age_max_ns=HOUR, now_ns=NOW)
    assert times(store, "allocations") == []


def test_where_there_is_too_much_the_oldest_of_everything_goes(store: Store) -> None:
    for number in range(400):
        at_ns = NOW - HOUR + number * S
        events = [began(f"k{number}-{each}-{'x' * 100}", at_ns) for each in range(20)]
        store.write([replace(portion(*events), at_ns=at_ns, sample=sample())])
    full = retention.used_bytes(store)
    tidy(store, bytes_max=full // 2, age_max_ns=30 * HOUR, now_ns=NOW)
    assert full // 3 < retention.used_bytes(store) <= full // 2
    left = times(store, "allocations")
    assert (left[0], left[-1]) > (NOW - HOUR + 100 * S, NOW - HOUR + 398 * S)
    assert abs(times(store, "totals")[0] - left[0]) <= 2 * MINUTE, "as old as the rest"


def test_what_fits_stays(store: Store) -> None:
    store.write([portion(began("a", NOW - HOUR))])
    tidy(store, bytes_max=retention.used_bytes(store), age_max_ns=30 * HOUR, now_ns=NOW)
    assert times(store, "allocations") == [NOW - HOUR]


def test_room_is_used_again_so_that_the_file_grows_no_further(store: Store) -> None:
    sizes = []
    for day in range(30):
        at_ns = NOW + day * HOUR
        store.write([portion(*(began(f"k{day}-{number}", at_ns + number) for number in range(2000)))])
        tidy(store, bytes_max=1_000_000, age_max_ns=30 * HOUR, now_ns=at_ns + MINUTE)
        sizes.append(retention.file_bytes(store))
    assert max(sizes) < 2_500_000


def test_a_bound_that_became_lower_gives_room_back_to_the_disk_piece_by_piece(store: Store) -> None:
    store.write([portion(*(began(f"k{number}-{'x' * 200}", NOW - HOUR + number) for number in range(20_000)))])
    before = retention.file_bytes(store)
    for _ in range(10):
        tidy(store, bytes_max=1_000_000, age_max_ns=30 * HOUR, now_ns=NOW)
    assert retention.file_bytes(store) <= 1_100_000 < before


def test_every_table_with_a_time_is_tidied(store: Store) -> None:
    named = store.file.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    assert {name for (name,) in named.fetchall()} == {"partitions", *TIMED}
