"""The content of the file after writes, expired rows, and files that cannot be used."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from common.history_records import Failing, Usage
from common.query_messages import PartitionEntry
from common.sqlite_file import LaterFormat
from tests.webservice.history.accounts import (
    DEFAULT,
    GPU,
    MINUTE,
    NOW,
    S,
    application,
    began,
    gone,
    portion,
    sample,
    usage,
)
from webservice.history.collector import Gap, ReadPosition, RowBatch
from webservice.history.store import (
    SLICE_ROWS,
    SLICES_MAX,
    TIMED,
    HistoryDamaged,
    HistoryUnusable,
    Store,
    delete_expired,
)

Rows = list[tuple[object, ...]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def write(path: Path, *portions: RowBatch) -> None:
    store = Store(path)
    store.write(portions)
    store.close()


def read(path: Path, sql: str) -> Rows:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(sql).fetchall()


RUNS = "SELECT key, began, ended, how FROM allocations ORDER BY id"


# Allocations ----------------------------------------------------------------------------------------------------------


def test_an_allocation_is_a_row_from_its_beginning_to_its_end(path: Path) -> None:
    write(path, portion(began("a"), began("b")))
    assert read(path, RUNS) == [("a", NOW, None, ""), ("b", NOW, None, "")]
    write(path, portion(gone("a", how="TIMEOUT")))
    assert read(path, RUNS) == [("a", NOW, NOW + S, "TIMEOUT"), ("b", NOW, None, "")]
    [row] = read(path, "SELECT application, queue, user, node, resources FROM allocations WHERE key = 'a'")
    assert row == ("app-1", "root.a", "bob", "n1", '{"memory":4}')


def test_a_key_can_be_used_again(path: Path) -> None:
    write(path, portion(began("a"), gone("a"), began("a", NOW + 5 * S)))
    assert read(path, RUNS) == [("a", NOW, NOW + S, "STOPPED_BY_RM"), ("a", NOW + 5 * S, None, "")]


def test_an_allocation_that_is_reported_again_is_one_row(path: Path) -> None:
    write(path, portion(began("a")), portion(began("a", NOW + 5 * S)))
    assert read(path, RUNS) == [("a", NOW, None, "")]


def test_an_allocation_whose_beginning_was_missed_has_none(path: Path) -> None:
    write(path, portion(gone("a")))
    assert read(path, RUNS) == [("a", None, NOW + S, "STOPPED_BY_RM")]


def test_partitions_do_not_share_keys(path: Path) -> None:
    write(path, portion(began("a")), portion(began("a"), partition=GPU), portion(gone("a"), partition=GPU))
    assert [ended for _, _, ended, _ in read(path, RUNS)] == [None, NOW + S]


def test_a_full_name_that_goes_to_another_rm_takes_no_history_along(path: Path) -> None:
    first = PartitionEntry(full_name="a_b_c", name="b_c", rm_id="a")
    second = PartitionEntry(full_name="a_b_c", name="c", rm_id="a_b")
    before = replace(portion(began("k")), partition=first)
    after = replace(portion(began("k", NOW + S)), partition=second, at_ns=NOW + MINUTE)
    write(path, before, after, portion(gone("k", NOW + 2 * S), partition=second, at_ns=NOW + MINUTE))
    assert read(
        path, "SELECT full_name, name, rm, key, how FROM allocations JOIN partitions ON partition = partitions.id"
    ) == [
        ("a_b_c~1.1", "b_c", "a", "k", "UNKNOWN"),
        ("a_b_c", "c", "a_b", "k", "STOPPED_BY_RM"),
    ]
    ended = PartitionEntry(full_name="a_b_c", name="", rm_id="")
    write(path, portion(partition=ended, at_ns=NOW + MINUTE))
    assert read(path, "SELECT full_name FROM partitions ORDER BY id") == [("a_b_c~1.1",), ("a_b_c",)]


def test_an_allocation_that_no_longer_runs_has_an_unknown_end(path: Path) -> None:
    write(path, portion(began("a"), began("b")), portion(began("c"), partition=GPU))
    write(path, portion(keys=["b"], at_ns=NOW + MINUTE))
    assert read(path, RUNS) == [("a", NOW, NOW + MINUTE, "UNKNOWN"), ("b", NOW, None, ""), ("c", NOW, None, "")]


# Applications ---------------------------------------------------------------------------------------------------------


def test_an_application_is_a_row_with_what_it_used_and_how_many_allocations_it_had(path: Path) -> None:
    write(path, portion(began("a", NOW - S), gone("a"), began("b", NOW - S, app="app-2"), ended=[application()]))
    columns = "application, queue, user, groups, state, submitted, started, at, allocations, used"
    assert read(path, f"SELECT {columns} FROM applications") == [
        (
            "app-1",
            "root.a",
            "bob",
            '["dev"]',
            "Completed",
            NOW - 10 * S,
            NOW - 9 * S,
            NOW,
            1,
            '{"resourceUsage":{"large":{"memory":20}}}',
        )
    ]


def test_the_reason_of_a_failure_is_stored_until_the_application_ends(path: Path) -> None:
    write(path, portion(Failing(NOW - S, "app-1", "killed by op")))
    write(path, portion(ended=[application(state="Failed"), application("app-2", state="Failed")]))
    assert read(path, "SELECT application, message FROM applications") == [("app-1", "killed by op"), ("app-2", "")]
    assert read(path, "SELECT * FROM reasons") == []


def test_why_an_earlier_one_of_the_same_name_failed_is_not_told_of_it(path: Path) -> None:
    write(path, portion(Failing(NOW - MINUTE, "app-1", "too late"), ended=[application(message="")]))
    assert read(path, "SELECT message FROM applications") == [("",)]


def test_an_application_that_is_read_twice_is_there_once(path: Path) -> None:
    write(path, portion(ended=[application()]), portion(ended=[application(), application(at_ns=NOW + MINUTE)]))
    assert read(path, "SELECT at FROM applications") == [(NOW,), (NOW + MINUTE,)]


# Samples and gaps -----------------------------------------------------------------------------------------------------


def test_a_sample_is_a_row_and_so_is_each_usage(path: Path) -> None:
    one = replace(portion(sample=sample()), usage=[("queues", usage("root")), ("users", usage("bob", 7))])
    write(path, one)
    assert read(path, "SELECT at, running, allocated, released, capacity, used FROM totals") == [
        (NOW, 3, 20, 4, '{"memory":10}', '{"memory":4}')
    ]
    assert read(path, "SELECT at, name, running, allocated, pending FROM users") == [
        (NOW, "bob", 1, '{"memory":7}', "{}")
    ]


def test_the_latest_usage_is_read_without_zero_usage(path: Path) -> None:
    sampled = portion().position._replace(sampled_ns=NOW + S)
    earlier = replace(portion(), position=sampled, usage=[("queues", usage("root", 1)), ("queues", usage("root.a", 1))])
    later = replace(earlier, at_ns=NOW + S, usage=[("queues", usage("root", 2)), ("queues", Usage("root.a", 0, {}))])
    write(path, earlier, later)
    store = Store(path)
    assert store.latest() == {DEFAULT.full_name: {("queues", "root"): usage("root", 2)}}
    store.close()


def test_gaps_of_one_kind_that_follow_each_other_are_one(path: Path) -> None:
    lost = Gap("events", NOW, NOW + S, 5, "forgotten")
    next_one = replace(lost, since_ns=NOW + 2 * S, until_ns=NOW + 3 * S)
    much_later = replace(lost, since_ns=NOW + 10 * MINUTE, until_ns=NOW + 11 * MINUTE)
    other = replace(lost, what="samples")
    write(path, *(replace(portion(), gaps=[gap]) for gap in (lost, next_one, much_later, other)))
    assert read(path, "SELECT what, at, until, missed FROM gaps") == [
        ("events", NOW, NOW + 3 * S, 10),
        ("events", NOW + 10 * MINUTE, NOW + 11 * MINUTE, 5),
        ("samples", NOW, NOW + S, 5),
    ]


# Where to go on -------------------------------------------------------------------------------------------------------


def test_the_place_is_there_after_a_restart(path: Path) -> None:
    place = ReadPosition("one", 7, NOW, NOW + 1, NOW + 2, unsure=True)
    write(path, replace(portion(), position=place))
    store = Store(path)
    assert store.positions() == {DEFAULT.full_name: place}
    store.close()


def test_a_portion_that_cannot_be_written_leaves_nothing_of_any(path: Path) -> None:
    store = Store(path)
    store.write([portion(began("a"), next_event=1)])
    store.file.execute("CREATE TRIGGER no BEFORE INSERT ON totals BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(HistoryUnusable, match="no"):
        store.write([portion(began("b"), next_event=2), portion(partition=GPU, sample=sample())])
    assert read(path, "SELECT key FROM allocations") == [("a",)]
    assert read(path, "SELECT full_name, next_event FROM partitions") == [(DEFAULT.full_name, 1)]
    store.write([portion(partition=GPU, next_event=3)])
    store.close()
    assert (GPU.full_name, 3) in read(path, "SELECT full_name, next_event FROM partitions")


WRITER = """
import sys
from pathlib import Path
from tests.webservice.history.accounts import application, began, gone, portion
from webservice.history.store import Store

store = Store(Path(sys.argv[1]))
number = store.positions()["rm-1_default"].next_event if store.positions() else 0
while True:
    number += 1
    events = [began(f"k{number}", number), gone(f"k{number}", number + 1)]
    store.write([portion(*events, ended=[application(f"app-{number}", number)], next_event=number)])
    print(number, flush=True)
"""


def test_a_writer_that_is_killed_loses_at_most_what_it_was_writing_and_doubles_nothing(path: Path) -> None:
    told = 0
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )
        assert process.stdout is not None
        with process.stdout as lines:
            before = told
            while told < before + 20:
                told = int(lines.readline())
            os.kill(process.pid, signal.SIGKILL)
            told = int((lines.read().split() or [told])[-1])
        assert process.wait() == -signal.SIGKILL
        [(place,)] = read(path, "SELECT next_event FROM partitions")
        assert place in (told, told + 1)
        told = place
        numbers = [f"k{number}" for number in range(1, place + 1)]
        assert read(path, "SELECT key FROM allocations WHERE ended ORDER BY at") == [(key,) for key in numbers]
        assert read(path, "SELECT count(*) FROM applications") == [(place,)]


# Files that cannot be used --------------------------------------------------------------------------------------------


def test_the_file_is_private(path: Path) -> None:
    Store(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_of_a_later_release_is_left_alone(path: Path) -> None:
    write(path, portion())
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    with pytest.raises(LaterFormat, match="it has format 99, this release supports up to 1"):
        Store(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"no database at all, but a text of some length" * 9, None])
def test_what_is_no_history_is_damaged(path: Path, content: bytes | None) -> None:
    if content is None:
        with closing(sqlite3.connect(path)) as file:
            file.execute("CREATE TABLE other (id)")
    else:
        path.write_bytes(content)
    with pytest.raises(HistoryDamaged):
        Store(path)


def test_a_page_that_is_not_as_it_was_is_damage(path: Path) -> None:
    write(path, portion(*(began(f"key-{number:04}") for number in range(500))))
    raw = bytearray(path.read_bytes())
    for start in range(4096 * 3, len(raw), 4096):
        raw[start : start + 2000] = b"\x7f" * 2000
    path.write_bytes(raw)
    with pytest.raises(HistoryDamaged):
        Store(path)


def test_a_disk_that_is_full_is_no_damage(path: Path) -> None:
    store = Store(path)
    store.file.execute("PRAGMA max_page_count=60")
    with pytest.raises(HistoryUnusable, match="full"):
        store.write([portion(*(began(f"key-{number:04}") for number in range(5000)))])
    store.close()
    assert read(path, "SELECT count(*) FROM allocations") == [(0,)]


HOUR = 60 * MINUTE
AMPLE = 1 << 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    one = Store(tmp_path / "history.sqlite")
    yield one
    one.close()


def file_bytes(store: Store) -> int:
    return store.pragma("page_count") * store.pragma("page_size")


def times(store: Store, table: str) -> list[int]:
    return [at for (at,) in store.file.execute(f"SELECT at FROM {table} ORDER BY at").fetchall()]


def test_what_is_too_old_goes_from_every_table(store: Store) -> None:
    for at_ns in (NOW - 2 * HOUR, NOW - HOUR, NOW):
        store.write([portion(ended=[application(at_ns=at_ns)], at_ns=at_ns, sample=sample())])
    delete_expired(store, bytes_max=AMPLE, age_max_ns=HOUR, now_ns=NOW)
    assert times(store, "applications") == times(store, "totals") == [NOW - HOUR, NOW]


def test_a_removed_partition_goes_with_its_last_rows(store: Store) -> None:
    partitions = [PartitionEntry(full_name=f"rm_{number}", name=str(number), rm_id="rm") for number in range(4)]
    for partition, instance in zip(partitions, ("", "", "", "here"), strict=True):
        at_ns = NOW - HOUR if partition is partitions[0] else NOW - 3 * HOUR
        position = ReadPosition(instance, 7, sampled_ns=at_ns)
        store.write([replace(portion(at_ns=at_ns, sample=sample()), partition=partition, position=position)])
    position = ReadPosition(sampled_ns=NOW - 3 * HOUR)
    store.write([replace(portion(), partition=partitions[1], position=position, usage=[("queues", usage("root"))])])
    for _ in range(3):
        delete_expired(store, bytes_max=AMPLE, age_max_ns=2 * HOUR, now_ns=NOW)
    assert list(store.positions()) == ["rm_0", "rm_3"]
    assert (times(store, "totals"), times(store, "queues")) == ([NOW - HOUR], [])


def test_no_more_than_so_many_rows_go_at_a_time_and_the_rest_the_next_time(store: Store) -> None:
    some = SLICE_ROWS * SLICES_MAX + 100
    store.write([portion(*(began(f"k{number}", number) for number in range(some)))])
    delete_expired(store, bytes_max=AMPLE, age_max_ns=HOUR, now_ns=NOW)
    assert times(store, "allocations") == list(range(some - 100, some)), "the oldest first"
    delete_expired(store, bytes_max=AMPLE, age_max_ns=HOUR, now_ns=NOW)
    assert times(store, "allocations") == []


def test_where_there_is_too_much_the_oldest_of_everything_goes(store: Store) -> None:
    for number in range(400):
        at_ns = NOW - HOUR + number * S
        events = [began(f"k{number}-{each}-{'x' * 100}", at_ns) for each in range(20)]
        store.write([portion(*events, at_ns=at_ns, sample=sample())])
    full = store.used_bytes()
    delete_expired(store, bytes_max=full // 2, age_max_ns=30 * HOUR, now_ns=NOW)
    assert full // 3 < store.used_bytes() <= full // 2
    left = times(store, "allocations")
    assert (left[0], left[-1]) > (NOW - HOUR + 100 * S, NOW - HOUR + 398 * S)
    assert abs(times(store, "totals")[0] - left[0]) <= 2 * MINUTE, "as old as the rest"


def test_what_fits_stays(store: Store) -> None:
    store.write([portion(began("a", NOW - HOUR))])
    delete_expired(store, bytes_max=store.used_bytes(), age_max_ns=30 * HOUR, now_ns=NOW)
    assert times(store, "allocations") == [NOW - HOUR]


def test_room_is_used_again_so_that_the_file_grows_no_further(store: Store) -> None:
    sizes = []
    for day in range(30):
        at_ns = NOW + day * HOUR
        store.write([portion(*(began(f"k{day}-{number}", at_ns + number) for number in range(2000)))])
        delete_expired(store, bytes_max=1_000_000, age_max_ns=30 * HOUR, now_ns=at_ns + MINUTE)
        sizes.append(file_bytes(store))
    assert max(sizes) < 2_500_000


def test_a_bound_that_became_lower_gives_room_back_to_the_disk_piece_by_piece(store: Store) -> None:
    store.write([portion(*(began(f"k{number}-{'x' * 200}", NOW - HOUR + number) for number in range(20_000)))])
    before = file_bytes(store)
    for _ in range(10):
        delete_expired(store, bytes_max=1_000_000, age_max_ns=30 * HOUR, now_ns=NOW)
    assert file_bytes(store) <= 1_100_000 < before


def test_every_table_with_a_time_is_tidied(store: Store) -> None:
    named = store.file.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    assert {name for (name,) in named.fetchall()} == {"partitions", *TIMED}
