"""Recording: rounds, restarts, and files that cannot be used."""

import asyncio
import fcntl
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.webservice.fakes import FakeLink
from tests.webservice.history.accounts import DEFAULT, GPU, MINUTE, NOW, S, account, began, gone, sample, usage
from yunishard.common.messages.query_messages import Account, Answer, Query
from yunishard.webservice.history.recorder import HistoryRecorder
from yunishard.webservice.history.sqlite_store import FORMAT, SqliteHistory
from yunishard.webservice.history.store import HistoryStore

AMPLE = 1 << 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


class World:
    """Workers with a few events each, a clock that goes on with each round, and a keeper that runs for some rounds."""

    def __init__(self, place: Path | HistoryStore, now_ns: int = NOW) -> None:
        self.history = SqliteHistory(place) if isinstance(place, Path) else place
        self.now_ns = now_ns
        self.link = FakeLink(DEFAULT, worker=self.answer)
        self.events = [began("a"), gone("a"), began("b")]

    def clock_ns(self) -> int:
        self.now_ns += 20 * S
        return self.now_ns

    def answer(self, query: Query) -> Answer:
        start = int(query.args["start"]) if query.args["instance"] == "one" else 0
        said = account(
            *self.events[start:],
            first=start,
            sample=sample(usage("root")) if "sample" in query.args else None,
            keys=["b"] if "keys" in query.args else None,
        )
        return Answer(status=200, body=msgspec.json.encode(said))

    def run(self, rounds: int, until: Callable[[HistoryRecorder], bool] = lambda _: True) -> HistoryRecorder:
        """Keep the history for so many rounds at least, and until this is so."""
        keeper = HistoryRecorder(
            self.history,
            bytes_max=AMPLE,
            age_max_s=1000 * 3600.0,
            clock_ns=self.clock_ns,
            round_s=0.0,
            retry_s=0.001,
        )

        async def kept() -> None:
            async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
                running = tasks.create_task(keeper.run(self.link))
                before = len(self.link.asked)
                while len(self.link.asked) < before + rounds or not until(keeper):  # noqa: ASYNC110 - of several things
                    await asyncio.sleep(0)
                running.cancel()

        asyncio.run(kept())
        return keeper


def read(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(sql).fetchall()


KEYS = "SELECT key, ended IS NOT NULL FROM allocations ORDER BY id"


def test_what_workers_tell_is_in_the_file(path: Path) -> None:
    keeper = World(path).run(8)
    assert keeper.problem == ""
    assert read(path, KEYS) == [("a", 1), ("b", 0)]
    assert read(path, "SELECT name FROM queues") == [("root",)]
    assert len(read(path, "SELECT at FROM totals")) >= 1


def test_recording_continues_after_a_restart_without_duplicates(path: Path) -> None:
    world = World(path)
    world.run(4)
    world.events.append(gone("b"))
    world.run(4)
    world.run(4)
    assert read(path, KEYS) == [("a", 1), ("b", 1)]


def test_the_time_in_which_nothing_ran_is_a_gap(path: Path) -> None:
    world = World(path)
    world.run(8)
    world.now_ns += 30 * MINUTE
    world.run(8)
    [(what, missed)] = read(path, "SELECT what, missed FROM gaps")
    assert what == "samples"
    assert isinstance(missed, int)
    assert missed >= 29


def test_a_partition_that_does_not_answer_costs_the_others_nothing(path: Path) -> None:
    world = World(path)
    world.link = FakeLink(DEFAULT, GPU, worker=world.answer)
    ask = world.link.ask

    class Half(FakeLink):
        async def ask(self, partition: str, query: Query) -> Answer:
            answered = await ask(partition, query)
            self.asked.append((partition, query))
            return Answer(status=503, body=b"the partition is starting") if partition == GPU.full_name else answered

    world.link = Half(DEFAULT, GPU)
    world.run(8)
    assert read(path, "SELECT full_name FROM partitions") == [(DEFAULT.full_name,)]
    assert read(path, KEYS) == [("a", 1), ("b", 0)]


def test_a_damaged_file_is_put_aside_and_a_new_one_begun(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"this was a history once" * 500)
    keeper = World(path).run(3, lambda one: not one.problem)
    assert keeper.problem == ""
    assert (path.parent / "history.sqlite.damaged").read_bytes().startswith(b"this was")
    assert read(path, KEYS) == [("a", 1), ("b", 0)]
    assert [record.levelname for record in caplog.records if "is damaged" in record.message] == ["ERROR"]


def test_a_failure_counts_until_something_is_written_again_or_all_had_nothing_to_write(path: Path) -> None:
    path.mkdir()
    world = World(path)

    def failed(keeper: HistoryRecorder) -> bool:
        if keeper.failure and path.is_dir():
            path.rmdir()
            return False
        return path.is_file() and not keeper.failure

    assert world.run(0, failed).failure == ""
    path.unlink()
    path.mkdir()
    world.link = FakeLink()
    assert World(path).run(0, failed).failure == ""


def test_a_file_of_a_later_release_is_left_alone_and_told_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version={FORMAT + 1}")
    keeper = World(path).run(0, lambda one: "a later release wrote it" in one.problem)
    assert "cannot be used: a later release wrote it" in keeper.problem
    assert len([record for record in caplog.records if "no history is recorded" in record.message]) == 1


def test_only_one_process_writes(path: Path) -> None:
    with (path.parent / "history.sqlite.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keeper = World(path).run(0, lambda one: "another process writes it" in one.problem)
    assert not path.exists()
    assert "another process writes it" in keeper.problem


def test_a_second_recorder_takes_over_when_the_first_ends(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    World(path).run(2)
    world = World(path)
    world.events.append(gone("b"))
    with (path.parent / "history.sqlite.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keeper = world.run(0, lambda one: not one.problem)
    assert (world.link.asked, keeper.failure, caplog.messages) == ([], "", []), "it only reads"
    world.run(2)
    assert read(path, "SELECT key FROM allocations WHERE ended IS NOT NULL ORDER BY key") == [("a",), ("b",)]


def test_recording_begins_once_the_file_is_usable_and_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(path)
    path.mkdir()  # something is in the way
    seen: list[str] = []

    def mended(keeper: HistoryRecorder) -> bool:
        if "cannot be used" in keeper.problem and path.is_dir():
            seen.append(keeper.problem)
            path.rmdir()
        return "the history is recorded again" in caplog.text

    keeper = world.run(0, mended)
    assert (keeper.problem, len(seen)) == ("", 1)
    assert read(path, KEYS) == [("a", 1), ("b", 0)]


def test_what_cannot_be_read_is_no_answer(path: Path) -> None:
    world = World(path)
    world.link = FakeLink(DEFAULT, worker=lambda _: Answer(status=200, body=b'{"instance": 7}'))
    keeper = world.run(3)
    assert (keeper.problem, read(path, "SELECT * FROM partitions")) == ("", [])


def test_how_large_it_is_and_how_far_behind_are_figures(path: Path) -> None:
    keeper = World(path).run(4)
    lag, size = keeper.collect()
    assert 0 <= lag.samples[0].value < 60
    assert size.samples[0].value >= path.stat().st_size > 0
    assert 0 < keeper.writes.slowest_s < 60


def test_an_account_is_read_as_a_worker_writes_it() -> None:
    said = account(began("a"), gone("a"), sample=sample(usage("root")), keys=["x"])
    assert msgspec.json.decode(msgspec.json.encode(said), type=Account) == said
