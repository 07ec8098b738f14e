"""What every implementation of the broker's `Store` must do, and the endpoint through which the machine uses it.

Another implementation is another entry of `BACKENDS`. Not here: the files of SQLite (`test_sqlite_store.py`).
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Final, Protocol

import msgspec
import psycopg
import pytest
from msgspec.structs import replace

from tests import postgres
from tests.full_disk import full_disk
from tests.machines import RM, header, sent
from yunishard.broker import store as store_module
from yunishard.broker.config_versions import ConfigVersions
from yunishard.broker.hosts import HostRow
from yunishard.broker.postgres_store import PostgresStore
from yunishard.broker.registry import RmRecord
from yunishard.broker.sqlite_store import SqliteStore
from yunishard.broker.store import RecordEndpoint, Store, execute
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.control_messages import (
    ConfigVersion,
    HostRecorded,
    ManagerRecord,
    ProbeRecord,
    ReadVersion,
    RebaseVersion,
    Recorded,
    RecordHost,
    RemoveJournal,
    VersionEntry,
    VersionRead,
    WriteFile,
)
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.query_messages import Answer, ReadConfig
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body
from yunishard.common.names import RECORD
from yunishard.common.transport.event_loop import Transport

TEXT: Final = "partitions: []\r\n# Grüße\t'\";--\n"
WAIT_MAX_S: Final = 10.0


class Backend(Protocol):
    """One record, which can be opened several times."""

    def open(self) -> Store:
        """Open it, as another broker does."""

    def full(self) -> AbstractContextManager[None]:
        """While this is open, nothing can be written, as on a full disk."""


class SqliteBackend:
    """A file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "record.sqlite"

    def open(self) -> Store:
        return SqliteStore(self.path)

    def full(self) -> AbstractContextManager[None]:
        return full_disk(self.path.with_name(self.path.name + "-wal").stat().st_size)


class PostgresBackend:
    """A PostgreSQL server."""

    def __init__(self, folder: Path) -> None:
        self.store = postgres.new_store()

    def open(self) -> Store:
        return PostgresStore(self.store)

    def full(self) -> AbstractContextManager[None]:
        return postgres.full_disk(self.store, "leases", "managers", "texts", "versions")


BACKENDS: Final[dict[str, Callable[[Path], Backend]]] = {"sqlite": SqliteBackend, "postgresql": PostgresBackend}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return BACKENDS[request.param](tmp_path)


@pytest.fixture
def store(backend: Backend) -> Iterator[Store]:
    """The record of a broker that has begun."""
    with closing(backend.open()) as opened:
        assert opened.begin(1000) == (1000, "")
        yield opened


def facts(rm: str = RM, call: str = "c", order: int = 1) -> RmRecord:
    return RmRecord(rm=rm, session="s", registered_ns=1, call=call, order=order)


def version(number: int, text: str = TEXT, base: str = "base") -> ConfigVersion:
    checksum = compute_checksum(text)
    return ConfigVersion(
        number=number,
        checksum=checksum,
        at_ns=number,
        author="alice",
        origin="api",
        base=base,
        size=len(text.encode()),
        config=text,
    )


def entry(of: ConfigVersion) -> VersionEntry:
    """A version without its text."""
    fields = msgspec.structs.asdict(of)
    del fields["config"]
    return VersionEntry(**fields)


def read_latest(store: Store, rm: str = RM) -> str:
    """The text of the latest version."""
    latest = store.read_histories()[rm].latest
    assert latest is not None
    found = store.read_version(rm, latest.number)
    assert found is not None
    return found.config


def written(record: RmRecord | None, new: ConfigVersion | None = None, *, number: int = 1) -> ManagerRecord:
    """The message that writes this."""
    return ManagerRecord(number=number, facts=b"" if record is None else msgspec.json.encode(record), version=new)


def keep(store: Store, number: int, text: str, *, rm: str = RM) -> None:
    """Another version, which the RM runs from now on."""
    store.write(rm, written(facts(rm, text), version(number, text)))


# Hosts ----------------------------------------------------------------------------------------------------------------


def test_a_change_of_a_host_is_there_when_the_store_is_opened_again(tmp_path: Path) -> None:
    backend = PostgresBackend(tmp_path)
    with closing(backend.open()) as store, psycopg.connect(backend.store, autocommit=True) as connection:
        store.begin(1000)
        for name, age_s in (("b", 7), ("a", 0), ("old", 90_000), ("older", 90_000)):
            connection.execute(
                "INSERT INTO hosts VALUES (%s, 'id', 'tcp://h:1', 4, 5, '1.0', clock_timestamp() - %s * interval '1s')",
                (name, age_s),
            )
        for name in ("a", "b", "old"):
            store.change_host(name, "drain")
        store.change_host("b", "undrain")
        store.change_host("old", "remove")
        store.change_host("old", "remove")
        with pytest.raises(OSError, match="the store has no host c"):
            store.change_host("c", "drain")
    with closing(backend.open()) as store:
        found = store.read_hosts()
    assert [(one.name, one.is_draining) for one in found] == [("a", True), ("b", False), ("older", False)]
    assert [int(one.age_s) // 7 for one in found[:2]] == [0, 1]
    expected = HostRow(name="a", address="tcp://h:1", cores=4, memory_bytes=5, release="1.0", is_draining=True)
    assert replace(found[0], age_s=0.0) == expected


def test_a_store_of_one_host_cannot_drain_it(tmp_path: Path) -> None:
    with closing(SqliteBackend(tmp_path).open()) as store:
        store.begin(1000)
        assert store.read_hosts() == []
        wanted = message(RecordHost(host="local", change="drain"), ref="web 1")
        answer = execute(store, wanted)
    outcome = decode_body(HostRecorded, answer.body)
    assert (answer.header.ref, outcome.host, outcome.change) == ("web 1", "local", "drain")
    assert outcome.problem == "host local is the only one: partitions move between the hosts of one --store only"


# Records of RMs -------------------------------------------------------------------------------------------------------


def test_a_record_is_there_when_the_store_is_opened_again_the_first_registered_first(backend: Backend) -> None:
    whole = RmRecord(
        rm=RM,
        session="s-1",
        registered_ns=20,
        call="ab12",
        configs={"rm-1_gpu": None, "rm-1_a": None},
        build_info={"v": "1"},
        extra={"a": "'"},
        capabilities=["predicates"],
        follows_core=True,
        passed_over="x",
        rollout=7,
        generations={"rm-1_gpu": 3},
        last_generation=4,
        leaving=["rm-1_old"],
        order=2,
        leases={"rm-1_gpu": 1_800_000_000 * 2**20},
    )
    earlier = facts("rm-2")
    with closing(backend.open()) as store:
        store.write(RM, written(facts(RM, "before", order=3)))
        store.write(RM, written(whole))
        store.write("rm-2", written(earlier))
    with closing(backend.open()) as store:
        assert store.read_records() == [earlier, whole]
        store.write(RM, written(None))
        assert store.read_records() == [earlier]


def test_the_configuration_stays_if_a_record_comes_without_one(store: Store) -> None:
    keep(store, 1, TEXT)
    later = replace(facts(), rollout=8)
    store.write(RM, written(later))
    assert store.read_records() == [later]
    assert read_latest(store) == TEXT


def test_what_was_written_is_there_even_if_the_store_is_never_closed(backend: Backend, store: Store) -> None:
    keep(store, 1, "text")
    with closing(backend.open()) as another:
        assert another.read_records() == [facts(RM, "text")]
        assert read_latest(another) == "text"


# Versions -------------------------------------------------------------------------------------------------------------


def test_versions_are_there_when_the_store_is_opened_again(backend: Backend) -> None:
    with closing(backend.open()) as store:
        keep(store, 1, "first")
        keep(store, 2, TEXT)
        keep(store, 1, "of another", rm="rm-2")
        live = ConfigVersions(store.read_histories())
    with closing(backend.open()) as store:
        assert ConfigVersions(store.read_histories()).history(RM) == live.history(RM)
        assert list(store.read_histories()) == [RM, "rm-2"]
        assert store.read_histories()[RM].entries == [entry(version(1, "first")), entry(version(2, TEXT))]
        keep(store, 3, "third")
        assert store.read_histories()[RM].entries[-1] == entry(version(3, "third"))


def test_a_version_that_was_not_carried_out_may_be_written_anew(store: Store) -> None:
    keep(store, 1, "text")
    keep(store, 1, "another")
    assert read_latest(store) == "another"
    assert stored_texts(store) == 1


def run(store: Store, statement: str) -> list[tuple[object, ...]]:
    """Run a statement in the database of a store; its rows."""
    if isinstance(store, SqliteStore):
        return store._file.execute(statement).fetchall()
    assert isinstance(store, PostgresStore)
    with store._database.autocommit() as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def stored_texts(store: Store) -> int:
    """The number of texts in a store."""
    return len(run(store, "SELECT digest FROM texts"))


def test_a_text_is_stored_once_and_until_its_last_version_is_removed(store: Store) -> None:
    for number, text in enumerate(("a", "b", "a", "b"), 1):
        keep(store, number, text)
    keep(store, 1, "a", rm="rm-2")
    assert stored_texts(store) == 2
    store.remove_versions(RM, 3)
    assert [one.number for one in store.read_histories()[RM].entries] == [4]
    assert stored_texts(store) == 2, "rm-2 has the other one"
    store.remove_versions("rm-2", 7)
    store.remove_versions("rm-3", 7)
    assert list(store.read_histories()) == [RM]
    assert (stored_texts(store), read_latest(store)) == (1, "b")


def test_texts_with_the_same_checksum_are_stored_apart(store: Store) -> None:
    one, two = "checksum: a\n", "checksum: b\n"
    assert compute_checksum(one) == compute_checksum(two)
    keep(store, 1, one)
    keep(store, 1, two, rm="rm-2")
    assert (read_latest(store), read_latest(store, "rm-2")) == (one, two)


def test_a_new_version_replaces_later_ones_which_a_removal_that_failed_has_left(store: Store) -> None:
    for number in range(1, 5):
        keep(store, number, f"text {number}")
    keep(store, 2, "anew")
    assert [one.number for one in store.read_histories()[RM].entries] == [1, 2]
    assert (read_latest(store), stored_texts(store)) == ("anew", 2)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("UPDATE texts SET config = substr(config, 2)", "the text of version 1 of RM rm-1 is damaged"),
        ("DELETE FROM texts", "the text of version 1 of RM rm-1 is missing"),
    ],
)
def test_a_damaged_text_is_not_read_and_is_repaired_when_it_is_written_again(
    store: Store, damage: str, reason: str
) -> None:
    keep(store, 1, TEXT)
    run(store, damage)
    with pytest.raises(OSError, match=f"^{reason}$"):
        store.read_version(RM, 1)
    found = decode_body(VersionRead, execute(store, message(ReadVersion(version=1))).body)
    assert found == VersionRead(version=1, problem=reason)
    keep(store, 2, TEXT)
    assert store.read_version(RM, 1) == version(1)


def test_a_start_reads_no_text(backend: Backend) -> None:
    with closing(backend.open()) as store:
        store.begin(1000)
        keep(store, 1, TEXT)
        run(store, "ALTER TABLE texts RENAME TO unreadable")
    with closing(backend.open()) as store:
        assert store.begin(1001) == (1001, "")
        assert store.read_histories()[RM].entries == [entry(version(1))]
        assert store.read_records() == [facts(RM, TEXT)]


def test_a_new_base_is_recorded_for_the_latest_version(store: Store) -> None:
    keep(store, 1, "first")
    keep(store, 2, "second")
    store.rebase(RM, "another")
    store.rebase("rm-2", "of an RM that is not known")
    assert [one.base for one in store.read_histories()[RM].entries] == ["base", "another"]
    assert list(store.read_histories()) == [RM]


@pytest.mark.parametrize("number", [0, 2, -1, 2**63 - 1, 2**64 - 1])
def test_an_earlier_version_is_read_as_it_was_written_and_no_other_is_found(store: Store, number: int) -> None:
    keep(store, 1, TEXT)
    keep(store, 3, "third")
    assert store.read_version(RM, 1) == version(1)
    assert store.read_version(RM, number) is None
    assert store.read_version("rm-2", 1) is None


# Failures -------------------------------------------------------------------------------------------------------------


def test_a_write_that_fails_changes_nothing_and_the_next_one_may_succeed(backend: Backend, store: Store) -> None:
    keep(store, 1, "first")
    with backend.full():
        for write in (
            lambda: keep(store, 2, "second" * 10_000),
            lambda: store.write(RM, written(None, version(2))),
            lambda: store.rebase(RM, "another"),
            store.probe,
        ):
            with pytest.raises(OSError, match=r"^[^\n]+$"):
                write()
        assert store.read_records() == [facts(RM, "first")]
        assert [(one.number, one.base) for one in store.read_histories()[RM].entries] == [(1, "base")]
    store.probe()
    keep(store, 2, "another second")
    assert store.read_records() == [facts(RM, "another second")]
    assert store.read_version(RM, 2) == version(2, "another second")


def test_a_decision_and_its_version_are_written_together_or_not_at_all(backend: Backend, store: Store) -> None:
    with backend.full(), pytest.raises(OSError, match=r"."):
        keep(store, 1, "first" * 10_000)
    assert (store.read_records(), store.read_histories()) == ([], {})


# Incarnations ---------------------------------------------------------------------------------------------------------


def test_each_broker_has_an_incarnation_above_all_earlier_ones_even_if_the_clock_went_back(backend: Backend) -> None:
    found = []
    for unix_s in (1000, 1000, 500, 2000):
        with closing(backend.open()) as store:
            found.append(store.begin(unix_s))
    assert found == [(1000, ""), (1001, ""), (1002, ""), (2000, "")]


def test_a_broker_begins_on_a_full_disk_too(backend: Backend, store: Store) -> None:
    with backend.full():
        incarnation, problem = store.begin(2000)
        assert incarnation == 2000
        assert problem
        with closing(backend.open()) as another:
            assert another.begin(3000)[0] == 3000
    store.probe()
    with closing(backend.open()) as later:
        assert later.begin(1) == (2001, ""), "the probe has written what could not be written at the beginning"


def test_a_broker_that_another_one_has_replaced_writes_nothing_any_more(backend: Backend, store: Store) -> None:
    keep(store, 1, "first")
    with closing(backend.open()) as later:
        incarnation, _ = later.begin(1000)
        for write in (lambda: keep(store, 2, "late"), lambda: store.rebase(RM, "late"), store.probe):
            with pytest.raises(OSError, match=rf"^broker {incarnation} has taken the place of this one, 1000$"):
                write()
        assert later.read_records() == [facts(RM, "first")]
        keep(later, 2, "second")
        assert store.read_records() == [facts(RM, "second")]


# Messages -------------------------------------------------------------------------------------------------------------


def message(body: Message, **fields: str | int) -> Outgoing:
    return sent(RECORD, body, **{"session": "", **fields})


def recorded(answer: Incoming, rm: str = "") -> Recorded:
    assert (answer.source, answer.header) == (RECORD, header("Recorded", rm=rm, session=""))
    return decode_body(Recorded, answer.body)


def test_writes_are_answered_with_their_number_once_they_are_durable(backend: Backend, store: Store) -> None:
    answer = execute(store, message(written(facts(), version(1), number=7)))
    assert recorded(answer, RM) == Recorded(number=7)
    assert recorded(execute(store, message(RebaseVersion(base="x")))) == Recorded(number=0)
    assert recorded(execute(store, message(ProbeRecord(), rm=""))) == Recorded(number=0)
    assert recorded(execute(store, message(RemoveJournal(), rm="", partition="rm-1_gone"))) == Recorded(number=0)
    with closing(backend.open()) as another:
        assert another.read_records() == [facts()]
        assert another.read_histories()[RM].latest == entry(version(1, base="x"))


def test_failures_are_answered_with_their_reason(
    backend: Backend, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    keep(store, 1, "first")
    with backend.full():
        answers = [
            recorded(execute(store, message(written(facts(), number=7))), RM),
            recorded(execute(store, message(RebaseVersion(base="x")))),
            recorded(execute(store, message(ProbeRecord(), rm=""))),
        ]
    assert [one.number for one in answers] == [7, 0, 0]
    assert all(one.problem for one in answers)
    assert caplog.records == [], "the machine logs them, once for all that is tried again"


def test_a_version_is_answered_as_it_was_written_or_as_not_found(store: Store) -> None:
    keep(store, 1, TEXT)
    query = message(ReadConfig(what="version", version=1), ref="webservice 7")
    answer = execute(store, query)
    assert (answer.source, answer.header) == (RECORD, header("Answer", rm="", session="", ref="webservice 7"))
    found = decode_body(Answer, answer.body)
    assert found.status == 200
    assert msgspec.json.decode(found.body) == {"checksum": compute_checksum(TEXT), "config": TEXT, "extra": {}}
    missing = decode_body(Answer, execute(store, message(ReadConfig(what="version", version=2))).body)
    text = "RM rm-1 has no version 2 of its configuration, or no longer"
    assert missing == Answer(status=404, body=text.encode())


def test_a_message_that_no_record_receives_is_a_defect(store: Store) -> None:
    with pytest.raises(TypeError, match="WriteFile"):
        execute(store, message(WriteFile(text="", replaces="")))


# The endpoint ---------------------------------------------------------------------------------------------------------


class SlowStore(SqliteStore):
    """A store in which every write waits until the disk is there again."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.disk = threading.Event()
        self.threads: set[str] = set()

    def write(self, rm: str, record: ManagerRecord) -> None:
        self.threads.add(threading.current_thread().name)
        assert self.disk.wait(WAIT_MAX_S)
        super().write(rm, record)


async def hear(wire: Transport, count: int = 1) -> list[Incoming]:
    """The next answers."""
    found: list[Incoming] = []
    async with asyncio.timeout(WAIT_MAX_S):
        while len(found) < count:
            found += await wire.receive(WAIT_MAX_S)
    return found


def test_the_loop_goes_on_while_the_disk_does_not_and_the_answers_are_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        wire, store = Transport(), SlowStore(tmp_path / "record.sqlite")
        record = RecordEndpoint(store, wake=lambda: wire.wake(RECORD))
        wire.add(RECORD, record)
        for number in (1, 2):
            wire.send(message(written(facts(), version(number), number=number)))
        wire.send(message(ReadConfig(what="version", version=2), ref="webservice 7"))
        assert await wire.receive(0.0) == []
        assert await wire.receive(0.01) == [], "the disk is not there, and the loop has waited for something else"
        assert record.writes.slowest_s > 0.0
        store.disk.set()
        first, second, read = await hear(wire, 3)
        assert [recorded(one, RM).number for one in (first, second)] == [1, 2]
        assert decode_body(Answer, read.body).status == 200
        assert record.queued == 0
        assert store.threads == {"record_0"}
        record.close()
        store.close()

    asyncio.run(story())


def test_a_write_is_refused_if_too_much_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "QUEUED_BYTES_MAX", 4 << 20)
    large = "#" * (3 << 20)

    async def story() -> None:
        wire, store = Transport(), SlowStore(tmp_path / "record.sqlite")
        record = RecordEndpoint(store, wake=lambda: wire.wake(RECORD))
        wire.add(RECORD, record)
        wire.send(message(written(facts(), version(1, large * 2), number=1)))
        wire.send(message(written(facts(), version(2, large), number=2)))
        problem = "6 MiB of other changes wait for the disk"
        [refusal] = await hear(wire)
        assert recorded(refusal, RM) == Recorded(number=2, problem=problem)
        wire.send(message(ReadConfig(what="version", version=1)))
        [refusal] = await hear(wire)
        text = f"the record of configurations cannot be read: {problem}"
        assert decode_body(Answer, refusal.body) == Answer(status=503, body=text.encode())
        store.disk.set()
        [answer] = await hear(wire)
        assert recorded(answer, RM) == Recorded(number=1), "it is larger, but nothing waited before it"
        record.close()
        assert read_latest(store) == large * 2
        store.close()

    asyncio.run(story())


def test_an_endpoint_reports_deleted_files_without_a_write_of_the_broker(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"

    async def story() -> None:
        wire, store = Transport(), SqliteStore(path)
        record = RecordEndpoint(store, wake=lambda: wire.wake(RECORD))
        wire.add(RECORD, record)
        record.check_files()
        assert record.queued == 0
        path.unlink()
        path.write_text("another file")
        record.check_files()
        record.check_files()
        [answer] = await hear(wire)
        assert "is another file than the one" in recorded(answer).problem
        path.unlink()
        record.check_files()
        [answer] = await hear(wire)
        assert recorded(answer) == Recorded(number=0)
        record.close()
        store.close()

    asyncio.run(story())


def test_an_endpoint_that_is_closed_finishes_its_writes_first(tmp_path: Path) -> None:
    async def story() -> None:
        store = SlowStore(tmp_path / "record.sqlite")
        record = RecordEndpoint(store, wake=lambda: None)
        for number in (1, 2):
            record.send(message(written(facts(), version(number), number=number)))
        threading.Timer(0.01, store.disk.set).start()
        record.close()
        assert store.read_version(RM, 2) == version(2)
        store.close()

    asyncio.run(story())


def test_a_defect_in_the_thread_ends_the_process(tmp_path: Path) -> None:
    async def story() -> None:
        wire, store = Transport(), SqliteStore(tmp_path / "record.sqlite")
        record = RecordEndpoint(store, wake=lambda: wire.wake(RECORD))
        wire.add(RECORD, record)
        wire.send(message(WriteFile(text="", replaces="")))
        with pytest.raises(TypeError, match="WriteFile"):
            await hear(wire)
        record.close()
        store.close()

    asyncio.run(story())
