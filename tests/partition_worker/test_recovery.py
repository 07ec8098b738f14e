"""What a worker begins from: its journal, or nothing and a problem."""

import asyncio
import logging
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from tests.machines import config_of
from tests.partition_worker.bench import APP, NODES, NOW
from tests.partition_worker.journal.hand import found_in, sql
from tests.partition_worker.start import CONFIGURE, Start, closed
from yunishard.common.messages.control_messages import Hello, Repeat
from yunishard.common.messages.journal_messages import TICK, Kept, SessionRecord, SnapshotTaken, Step
from yunishard.common.messages.rm_messages import NodeRequest
from yunishard.common.messages.wire import decode_body, encode_body
from yunishard.common.names import PREDICATE_PLUGINS
from yunishard.partition_worker.engine import restoring
from yunishard.partition_worker.engine.durable_records import (
    ApplicationRecord,
    PartitionRecord,
    Record,
    ReportRecord,
    StatusRecord,
)
from yunishard.partition_worker.engine.predicates.predicate import NodeView, Predicate
from yunishard.partition_worker.journal.database import FORMAT_MIN
from yunishard.partition_worker.journal.protocol import Fenced
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournal
from yunishard.partition_worker.service import PluginError, StartedWorker, load_plugins


def hello_of(start: StartedWorker) -> Hello:
    return decode_body(Hello, start.worker.make_hello().body)


def test_a_worker_goes_on_where_the_last_one_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        first = Start(tmp_path, 1)
        start = await first.begins()
        assert hello_of(start) == Hello(role="worker")
        await first.goes_on(start, *CONFIGURE, (NODES, 1))
        closed(start)
        second = Start(tmp_path, 2)
        start = await second.begins()
        assert hello_of(start) == Hello(role="worker", rollout=1, recovered=True)
        assert start.worker.partition is not None
        assert start.worker.partition.nodes.get("n1")
        assert (start.steps, start.took_s > 0) == (2, True)
        assert "rm-1_default: recovered 2 journal steps (no snapshot) in " in caplog.text
        await second.goes_on(start, (Repeat(), 0), (NodeRequest(), 2))
        assert start.worker.host.channel.received == 2
        closed(start)

    asyncio.run(test())


def test_a_worker_that_is_asked_to_end_leaves_a_snapshot_and_the_next_one_adds_steps_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        first = Start(tmp_path, 1)
        start = await first.begins()
        await first.goes_on(start, *CONFIGURE, (NODES, 1))
        first.give(start, start.worker.stop(NOW))
        closed(start)
        second = Start(tmp_path, 2)
        start = await second.begins()
        assert start.journal is not None
        assert found_in(second.files).steps == []
        assert start.worker.partition is not None
        assert start.worker.partition.nodes.get("n1")
        assert start.worker.barrier is not None
        assert start.worker.barrier.last == 3
        assert re.search(r"recovered 0 journal steps \(a snapshot at step 3\) in ", caplog.text)
        await second.goes_on(start, (Repeat(), 0), (APP, 2))
        closed(start)
        start = await Start(tmp_path, 3).begins()
        assert start.worker.partition is not None
        assert start.worker.partition.nodes.get("n1")
        assert "a" in start.worker.partition.applications
        assert start.worker.host.channel.received == 2
        assert re.search(r"recovered 1 journal step \(a snapshot at step 3\) in ", caplog.text)
        closed(start)

    asyncio.run(test())


def step_with(*records: Record) -> Step:
    return Step(number=1, at=NOW, kind=TICK, records=Raw(msgspec.msgpack.encode(records)), session=SessionRecord())


PARTITION_RECORD = PartitionRecord(config=config_of(), resolver="", created_ns=0)
STATUS = StatusRecord(rank=0, queue="root.batch", state="Resting", submitted_ns=0)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (Step(number=2, at=NOW, kind=TICK), "step 1 is missing"),
        (
            step_with(PARTITION_RECORD, ReportRecord(), msgspec.structs.replace(STATUS, state="Running")),
            "its records do not fit together: AssertionError: status of application 0",
        ),
        (
            step_with(PARTITION_RECORD, ApplicationRecord(application_id="a", rank=0, user="u"), STATUS),
            "its records do not fit together: ValueError: 'Resting' is not a valid AppState",
        ),
        (
            Step(number=1, at=NOW, kind=TICK, records=Raw(msgspec.msgpack.encode([{"record": "Licence"}]))),
            "step 1 cannot be decoded: Invalid value 'Licence' - at `$[0].record`",
        ),
        (
            Step(number=1, at=NOW, kind=TICK, records=Raw(msgspec.msgpack.encode([{"record": "Node"}]))),
            "step 1 cannot be decoded: Object missing required field `node_id` - at `$[0]`",
        ),
    ],
)
def test_a_journal_that_cannot_be_restored_is_put_aside(tmp_path: Path, written: Step, problem: str) -> None:
    async def test() -> None:
        one = Start(tmp_path, 3)
        database = SqliteJournal(one.files, 2)
        database.append([encode_body(written)], fresh=False)
        database.close()
        start = await one.begins()
        assert hello_of(start).problem == f"its journal cannot be used: {problem}"
        assert start.worker.partition is None
        await one.goes_on(start, *CONFIGURE)
        closed(start)
        assert (one.files.damaged / one.files.database.name).exists()
        again = Start(tmp_path, 4)
        start = await again.begins()
        assert hello_of(start) == Hello(role="worker", rollout=1, recovered=True)
        closed(start)

    asyncio.run(test())


def test_a_journal_whose_restoration_fails_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As each later start would fail, too."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    async def test() -> None:
        first = Start(tmp_path, 1)
        start = await first.begins()
        await first.goes_on(start, *CONFIGURE, (NODES, 1))
        closed(start)
        monkeypatch.setattr(restoring, "refresh_fair_maximum", fail)
        start = await Start(tmp_path, 2).begins()
        reason = "its records do not fit together: ZeroDivisionError: division by zero"
        assert hello_of(start).problem == f"its journal cannot be used: {reason}"
        closed(start)

    asyncio.run(test())


def test_a_snapshot_that_cannot_be_read_counts_as_damage(tmp_path: Path) -> None:
    async def test() -> None:
        one = Start(tmp_path, 1)
        start = await one.begins()
        await one.goes_on(start, *CONFIGURE)
        one.give(start, start.worker.stop(NOW))
        while (incoming := await one.hears(start)).header.kind != "SnapshotTaken":
            assert incoming.header.kind == Kept.__name__
        number = decode_body(SnapshotTaken, incoming.body).number
        closed(start)
        one.files.snapshot(number).write_bytes(b"something else")
        start = await Start(tmp_path, 2).begins()
        assert "snapshot" in hello_of(start).problem
        closed(start)

    asyncio.run(test())


def test_a_partition_that_another_worker_has_is_left_alone(tmp_path: Path) -> None:
    async def test() -> None:
        closed(await Start(tmp_path, 2).begins())
        with pytest.raises(Fenced):
            await Start(tmp_path, 1).begins()
        assert not Start(tmp_path, 1).files.damaged.exists()

    asyncio.run(test())


def test_a_journal_of_another_format_is_put_aside(tmp_path: Path) -> None:
    async def test() -> None:
        one = Start(tmp_path, 1)
        start = await one.begins()
        await one.goes_on(start, *CONFIGURE)
        closed(start)
        file = sql(one.files)
        file.execute(f"PRAGMA user_version={FORMAT_MIN - 1}")
        file.close()
        start = await Start(tmp_path, 2).begins()
        reason = f"it has format {FORMAT_MIN - 1}, and this release reads formats from {FORMAT_MIN} on"
        assert hello_of(start).problem == f"its journal cannot be used: {reason}"
        assert (one.files.damaged / one.files.database.name).exists()
        closed(start)

    asyncio.run(test())


ROOT = Path(__file__).parents[2]
PLUGINS = "tests.partition_worker.engine.predicates.plugins"
OBJECT = object()


def raises() -> None:
    raise RuntimeError("no licence\nserver")


class Explodes:
    def __init__(self) -> None:
        raises()


def point(name: str, value: str, group: str = PREDICATE_PLUGINS) -> EntryPoint:
    return EntryPoint(name, value, group)


INSTALLED = (
    point("rack", f"{PLUGINS}:Rack"),
    point("again", f"{PLUGINS}:Rack"),
    point("broken", f"{PLUGINS}:Broken"),
    point("gone", f"{PLUGINS}:Gone"),
    point("nowhere", "no_such_package:Thing"),
    point("explodes", "tests.partition_worker.test_recovery:Explodes"),
    point("object", "tests.partition_worker.test_recovery:OBJECT"),
    point("console", f"{PLUGINS}:Rack", "console_scripts"),
)


def test_those_that_are_chosen_are_loaded_in_this_order() -> None:
    assert [one.name for one in load_plugins(["broken", "rack"], INSTALLED)] == ["broken", "rack"]
    assert load_plugins([], INSTALLED) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("racks", "no plug-in 'racks' is installed"),
        ("console", "no plug-in 'console' is installed"),
        ("gone", "gone (tests.partition_worker.engine.predicates.plugins:Gone) cannot be loaded: AttributeError: "),
        ("nowhere", "nowhere (no_such_package:Thing) cannot be loaded: ModuleNotFoundError: "),
        ("explodes", "cannot be loaded: RuntimeError: no licence server"),
        ("object", "is no predicate: it needs `name`, `read` and `refuses`"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(name: str, reason: str) -> None:
    with pytest.raises(PluginError) as raised:
        load_plugins(["rack", name], INSTALLED)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_those_that_are_there_are_named() -> None:
    with pytest.raises(PluginError, match=r"there are: again, broken, explodes, gone, nowhere, object, rack$"):
        load_plugins(["racks"], INSTALLED)


def test_two_predicates_of_one_name_are_refused() -> None:
    with pytest.raises(PluginError, match="two are called 'rack'"):
        load_plugins(["rack", "again"], INSTALLED)


def test_the_example_of_the_documentation_is_a_predicate() -> None:
    page = (ROOT / "docs" / "predicates.md").read_text()
    block = next(block for block in page.split("```python\n") if "class Licences" in block)
    found: dict[str, type[Predicate]] = {}
    exec(block[: block.index("```")], found)
    example = found["Licences"]()
    assert isinstance(example, Predicate)
    node = NodeView("n1", {"licences": "matlab ansys"}, {})
    demands = [example.read(tags) for tags in ({"licence": "ansys"}, {"licence": "abaqus"}, {})]
    assert [example.refuses(demand, node) for demand in demands] == ["", "node has no licence for abaqus", ""]
    with pytest.raises(ValueError, match="name one"):
        example.read({"licence": ""})


@pytest.mark.processes
def test_a_worker_without_its_plug_in_does_not_start_and_says_why() -> None:
    where = ("--broker", "ipc:///nowhere")
    command = [sys.executable, "-P", "-m", "yunishard.partition_worker", *where, "--predicates", "racks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    line = (
        "partition_worker: predicates: no plug-in 'racks' is installed (entry point yunishard.predicates); there are: "
    )
    assert (done.returncode, done.stderr.startswith(line), done.stderr.count("\n")) == (2, True, 1)
