"""What every place for the history must do: the content of the tables after writes, and expired rows.

Another implementation is another entry of `BACKENDS`. Not here: the file of SQLite (`test_sqlite_store.py`), and the
tables of PostgreSQL (`test_postgres_store.py`).
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

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
from tests.webservice.history.backends import BACKENDS, Backend, write
from yunishard.common.messages.query_messages import Failing, PartitionEntry, Usage
from yunishard.webservice.history.collector import Gap, ReadPosition
from yunishard.webservice.history.queries import HistoryFilter, read_page
from yunishard.webservice.history.store import SLICES_MAX, HistoryTaken, delete_expired
from yunishard.webservice.history.writer import SLICE_ROWS, HistoryWriter


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with closing(BACKENDS[request.param](tmp_path)) as one:
        one.history.open_writer().close()
        yield one


@pytest.fixture
def store(backend: Backend) -> Iterator[HistoryWriter]:
    with closing(backend.history.open_writer()) as one:
        yield one


RUNS = "SELECT key, began, ended, how FROM allocations ORDER BY id"


# Allocations ----------------------------------------------------------------------------------------------------------


def test_an_allocation_is_a_row_from_its_beginning_to_its_end(backend: Backend) -> None:
    write(backend, portion(began("a"), began("b")))
    assert backend.read(RUNS) == [("a", NOW, None, ""), ("b", NOW, None, "")]
    write(backend, portion(gone("a", how="TIMEOUT")))
    assert backend.read(RUNS) == [("a", NOW, NOW + S, "TIMEOUT"), ("b", NOW, None, "")]
    [row] = backend.read("SELECT application, queue, user, node, resources FROM allocations WHERE key = 'a'")
    assert row == ("app-1", "root.a", "bob", "n1", '{"memory":4}')


def test_a_key_can_be_used_again(backend: Backend) -> None:
    write(backend, portion(began("a"), gone("a"), began("a", NOW + 5 * S)))
    assert backend.read(RUNS) == [("a", NOW, NOW + S, "STOPPED_BY_RM"), ("a", NOW + 5 * S, None, "")]


def test_an_allocation_that_is_reported_again_is_one_row(backend: Backend) -> None:
    write(backend, portion(began("a")), portion(began("a", NOW + 5 * S)))
    assert backend.read(RUNS) == [("a", NOW, None, "")]


def test_an_allocation_whose_beginning_was_missed_has_none(backend: Backend) -> None:
    write(backend, portion(gone("a")))
    assert backend.read(RUNS) == [("a", None, NOW + S, "STOPPED_BY_RM")]


def test_partitions_do_not_share_keys(backend: Backend) -> None:
    write(backend, portion(began("a")), portion(began("a"), partition=GPU), portion(gone("a"), partition=GPU))
    assert [ended for _, _, ended, _ in backend.read(RUNS)] == [None, NOW + S]


def test_a_full_name_that_goes_to_another_rm_takes_no_history_along(backend: Backend) -> None:
    first = PartitionEntry(full_name="a_b_c", name="b_c", rm_id="a")
    second = PartitionEntry(full_name="a_b_c", name="c", rm_id="a_b")
    before = replace(portion(began("k")), partition=first)
    after = replace(portion(began("k", NOW + S)), partition=second, at_ns=NOW + MINUTE)
    write(backend, before, after, portion(gone("k", NOW + 2 * S), partition=second, at_ns=NOW + MINUTE))
    rows = (
        "SELECT full_name, partitions.name, rm, key, how FROM allocations JOIN partitions ON partition = partitions.id"
    )
    assert backend.read(f"{rows} ORDER BY allocations.id") == [
        ("a_b_c~1.1", "b_c", "a", "k", "UNKNOWN"),
        ("a_b_c", "c", "a_b", "k", "STOPPED_BY_RM"),
    ]
    ended = PartitionEntry(full_name="a_b_c", name="", rm_id="")
    write(backend, portion(partition=ended, at_ns=NOW + MINUTE))
    assert backend.read("SELECT full_name FROM partitions ORDER BY id") == [("a_b_c~1.1",), ("a_b_c",)]


def test_an_allocation_that_no_longer_runs_has_an_unknown_end(backend: Backend) -> None:
    write(backend, portion(began("a"), began("b")), portion(began("c"), partition=GPU))
    write(backend, portion(keys=["b"], at_ns=NOW + MINUTE))
    assert backend.read(RUNS) == [("a", NOW, NOW + MINUTE, "UNKNOWN"), ("b", NOW, None, ""), ("c", NOW, None, "")]


# Applications ---------------------------------------------------------------------------------------------------------


def test_an_application_is_a_row_with_what_it_used_and_how_many_allocations_it_had(backend: Backend) -> None:
    write(backend, portion(began("a", NOW - S), gone("a"), began("b", NOW - S, app="app-2"), ended=[application()]))
    columns = "application, queue, user, groups, state, submitted, started, at, allocations, used"
    assert backend.read(f"SELECT {columns} FROM applications") == [
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


def test_the_reason_of_a_failure_is_stored_until_the_application_ends(backend: Backend) -> None:
    write(backend, portion(Failing(NOW - S, "app-1", "killed by op")))
    write(backend, portion(ended=[application(state="Failed"), application("app-2", state="Failed")]))
    assert backend.read("SELECT application, message FROM applications") == [("app-1", "killed by op"), ("app-2", "")]
    assert backend.read("SELECT * FROM reasons") == []


def test_why_an_earlier_one_of_the_same_name_failed_is_not_told_of_it(backend: Backend) -> None:
    write(backend, portion(Failing(NOW - MINUTE, "app-1", "too late"), ended=[application(message="")]))
    assert backend.read("SELECT message FROM applications") == [("",)]


def test_an_application_that_is_read_twice_is_there_once(backend: Backend) -> None:
    write(backend, portion(ended=[application()]), portion(ended=[application(), application(at_ns=NOW + MINUTE)]))
    assert backend.read("SELECT at FROM applications") == [(NOW,), (NOW + MINUTE,)]


# Samples and gaps -----------------------------------------------------------------------------------------------------


def test_a_sample_is_a_row_and_so_is_each_usage(backend: Backend) -> None:
    one = replace(portion(sample=sample()), usage=[("queues", usage("root")), ("users", usage("bob", 7))])
    write(backend, one)
    assert backend.read("SELECT at, running, allocated, released, capacity, used FROM totals") == [
        (NOW, 3, 20, 4, '{"memory":10}', '{"memory":4}')
    ]
    assert backend.read("SELECT at, name, running, allocated, pending FROM users") == [
        (NOW, "bob", 1, '{"memory":7}', "{}")
    ]


def test_the_latest_usage_is_read_without_zero_usage(backend: Backend) -> None:
    sampled = portion().position._replace(sampled_ns=NOW + S)
    earlier = replace(portion(), position=sampled, usage=[("queues", usage("root", 1)), ("queues", usage("root.a", 1))])
    later = replace(earlier, at_ns=NOW + S, usage=[("queues", usage("root", 2)), ("queues", Usage("root.a", 0, {}))])
    write(backend, earlier, later)
    with closing(backend.history.open_writer()) as store:
        assert store.latest() == {DEFAULT.full_name: {("queues", "root"): usage("root", 2)}}


def test_gaps_of_one_kind_that_follow_each_other_are_one(backend: Backend) -> None:
    lost = Gap("events", NOW, NOW + S, 5, "forgotten")
    next_one = replace(lost, since_ns=NOW + 2 * S, until_ns=NOW + 3 * S)
    much_later = replace(lost, since_ns=NOW + 10 * MINUTE, until_ns=NOW + 11 * MINUTE)
    other = replace(lost, what="samples")
    write(backend, *(replace(portion(), gaps=[gap]) for gap in (lost, next_one, much_later, other)))
    assert backend.read("SELECT what, at, until, missed FROM gaps") == [
        ("events", NOW, NOW + 3 * S, 10),
        ("events", NOW + 10 * MINUTE, NOW + 11 * MINUTE, 5),
        ("samples", NOW, NOW + S, 5),
    ]


# Where to go on -------------------------------------------------------------------------------------------------------


def test_the_place_is_there_after_a_restart(backend: Backend) -> None:
    place = ReadPosition("one", 7, NOW, NOW + 1, NOW + 2, unsure=True)
    write(backend, replace(portion(), position=place))
    with closing(backend.history.open_writer()) as store:
        assert store.positions() == {DEFAULT.full_name: place}


def test_a_portion_that_cannot_be_written_leaves_nothing_of_any(backend: Backend, store: HistoryWriter) -> None:
    store.write([portion(began("a"), next_event=1)])
    size = store.used_bytes()
    with backend.refusing("totals"), pytest.raises(OSError, match=r"no|full"):
        store.write([portion(began("b"), next_event=2), portion(partition=GPU, sample=sample())])
    assert backend.read("SELECT key FROM allocations") == [("a",)]
    assert backend.read("SELECT full_name, next_event FROM partitions") == [(DEFAULT.full_name, 1)]
    assert store.used_bytes() == size
    store.write([portion(partition=GPU, next_event=3)])
    assert (GPU.full_name, 3) in backend.read("SELECT full_name, next_event FROM partitions")


def test_one_web_service_writes_and_the_next_one_continues(backend: Backend) -> None:
    place = ReadPosition("one", 7)
    with closing(backend.history.open_writer()) as first:
        first.write([replace(portion(began("a")), position=place)])
        with pytest.raises(HistoryTaken):
            backend.another().open_writer()
        first.renew()
    with closing(backend.another().open_writer()) as second:
        assert second.positions() == {DEFAULT.full_name: place}
        second.write([portion(gone("a"))])
    assert backend.read(RUNS) == [("a", NOW, NOW + S, "STOPPED_BY_RM")]


def test_texts_are_stored_as_they_are(backend: Backend) -> None:
    odd = "Gr\u00fc\u00dfe '\";--%s\\u0000\n\t?"
    write(backend, portion(began(odd, user=odd, queue=odd), ended=[application(odd, message=odd, queue=odd)]))
    columns = "key, queue, user"
    assert backend.read(f"SELECT {columns} FROM allocations") == [(odd, odd, odd)]
    assert backend.read("SELECT application, queue, message FROM applications") == [(odd, odd, odd)]


def test_a_nul_is_replaced_and_found(backend: Backend) -> None:
    nul = "a\0b"
    write(backend, portion(began(nul, app=nul, user=nul)), portion(gone(nul, app=nul), ended=[application(nul)]))
    assert backend.read("SELECT key, user, how FROM allocations") == [("a\ufffdb", "a\ufffdb", "STOPPED_BY_RM")]
    for wanted in (HistoryFilter(application=nul), HistoryFilter(user=nul)):
        found = read_page(backend.history, "allocations", wanted, limit=9, after="").rows
        assert [row.application_id for row in found] == ["a\ufffdb"]


WRITER = """
import sys
from pathlib import Path
from tests.webservice.history.accounts import application, began, gone, portion
from yunishard.webservice.history.postgres_store import PostgresHistory
from yunishard.webservice.history.sqlite_store import SqliteHistory

place = sys.argv[1]
store = (PostgresHistory(place, "a") if "://" in place else SqliteHistory(Path(place))).open_writer()
number = store.positions()["rm-1_default"].next_event if store.positions() else 0
while True:
    number += 1
    events = [began(f"k{number}", number), gone(f"k{number}", number + 1)]
    store.write([portion(*events, ended=[application(f"app-{number}", number)], next_event=number)])
    print(number, flush=True)
"""


def test_a_writer_that_is_killed_loses_at_most_what_it_was_writing_and_doubles_nothing(backend: Backend) -> None:
    told = 0
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, backend.place],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        assert process.stdout is not None
        with process.stdout as lines:
            before = told
            while told < before + 20:
                told = int(lines.readline())
            os.kill(process.pid, signal.SIGKILL)
            told = int((lines.read().split() or [told])[-1])
        assert process.wait() == -signal.SIGKILL
        backend.history.open_writer().close()  # its last transaction is over now
        [(place,)] = backend.read("SELECT next_event FROM partitions")
        assert place in (told, told + 1)
        told = place
        numbers = [f"k{number}" for number in range(1, place + 1)]
        assert backend.read("SELECT key FROM allocations WHERE ended IS NOT NULL ORDER BY at") == [
            (key,) for key in numbers
        ]
        assert backend.read("SELECT count(*) FROM applications") == [(place,)]


HOUR = 60 * MINUTE
AMPLE = 1 << 40


def times(backend: Backend, table: str) -> list[object]:
    return [at for (at,) in backend.read(f"SELECT at FROM {table} ORDER BY at")]


def test_what_is_too_old_goes_from_every_table(backend: Backend, store: HistoryWriter) -> None:
    for at_ns in (NOW - 2 * HOUR, NOW - HOUR, NOW):
        store.write([portion(ended=[application(at_ns=at_ns)], at_ns=at_ns, sample=sample())])
    delete_expired(store, bytes_max=AMPLE, age_max_ns=HOUR, now_ns=NOW)
    assert times(backend, "applications") == times(backend, "totals") == [NOW - HOUR, NOW]


def test_a_removed_partition_goes_with_its_last_rows(backend: Backend, store: HistoryWriter) -> None:
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
    assert times(backend, "totals") == [NOW - HOUR]
    shown = "SELECT queues.name FROM queues JOIN partitions ON partitions.id = queues.partition"
    assert backend.read(shown) == []


def test_no_more_than_so_many_rows_go_at_a_time_and_the_rest_the_next_time(
    backend: Backend, store: HistoryWriter
) -> None:
    some = SLICE_ROWS * SLICES_MAX + 100
    store.write([portion(*(began(f"k{number}", number) for number in range(some)))])
    delete_expired(store, bytes_max=AMPLE, age_max_ns=HOUR, now_ns=NOW)
    assert times(backend, "allocations") == list(range(some - 100, some)), "the oldest first"
    delete_expired(store, bytes_max=AMPLE, age_max_ns=HOUR, now_ns=NOW)
    assert times(backend, "allocations") == []


def test_where_there_is_too_much_the_oldest_of_everything_goes(backend: Backend, store: HistoryWriter) -> None:
    for number in range(400):
        at_ns = NOW - HOUR + number * S
        events = [began(f"k{number}-{each}-{'x' * 100}", at_ns) for each in range(20)]
        store.write([portion(*events, at_ns=at_ns, sample=sample())])
    full = store.used_bytes()
    delete_expired(store, bytes_max=full // 2, age_max_ns=30 * HOUR, now_ns=NOW)
    assert full // 3 < store.used_bytes() <= full // 2
    left = times(backend, "allocations")
    assert (left[0], left[-1]) > (NOW - HOUR + 100 * S, NOW - HOUR + 398 * S)
    assert abs(times(backend, "totals")[0] - left[0]) <= 2 * MINUTE, "as old as the rest"


def test_what_fits_stays(backend: Backend, store: HistoryWriter) -> None:
    store.write([portion(began("a", NOW - HOUR))])
    delete_expired(store, bytes_max=store.used_bytes(), age_max_ns=30 * HOUR, now_ns=NOW)
    assert times(backend, "allocations") == [NOW - HOUR]
