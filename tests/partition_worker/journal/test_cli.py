"""`yunishard journal`, on the journal of a real worker."""

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests import postgres
from tests.machines import PARTITION
from tests.partition_worker.bench import APP, NODES, NOW, ask
from tests.partition_worker.journal.hand import PATIENCE_S, found_in, sql
from tests.partition_worker.start import CONFIGURE, Start, closed
from yunishard.cli.main import main
from yunishard.common.messages.journal_messages import NO_RECORDS
from yunishard.common.messages.rm_messages import AllocationRelease, AllocationReleasesRequest, AllocationRequest
from yunishard.common.messages.wire import encode_body
from yunishard.common.postgres.connection import Database
from yunishard.partition_worker.journal.database import make_row
from yunishard.partition_worker.journal.files import Files
from yunishard.partition_worker.journal.postgres_journal import PostgresJournals
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournals

RELEASE = AllocationRequest(
    releases=AllocationReleasesRequest(
        allocations_to_release=[AllocationRelease(application_id="a", allocation_key="k1", termination_type=1)]
    )
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with the journal of one partition: two allocations, one of which was released."""
    (tmp_path / "journals").mkdir()

    async def worked() -> None:
        one = Start(tmp_path / "journals", 1)
        start = await one.begins()
        await one.goes_on(start, *CONFIGURE, (NODES, 1), (APP, 2), (ask("k1", "k2"), 3))
        one.give(start, start.worker.tick(NOW))
        await one.goes_on(start, (RELEASE, 4))
        closed(start)

    asyncio.run(worked())
    return tmp_path


def files_of(state: Path) -> Files:
    return Files(state / "journals", PARTITION)


def run(state: Path, *words: str) -> int:
    return main(["journal", words[0], PARTITION, *words[1:], "--state", str(state)])


def spoil(state: Path) -> None:
    file = sql(files_of(state))
    file.execute("UPDATE steps SET at = at + 1 WHERE number = 4")
    file.close()


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_steps_are_listed_with_their_changes_in_words(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "steps") == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["step", "time", "what", "changes"]
    assert [line.split(maxsplit=4)[3:] for line in lines] == [
        ["CommitConfig", "partition: added; queue root, root.batch: added"],
        ["NodeRequest", "node n1: added; sent 1 NodeResponse"],
        ["ApplicationRequest", "application a: added; sent 1 ApplicationResponse"],
        ["AllocationRequest", "ask k1, k2: added; application a: state New -> Accepted; sent 1 ApplicationResponse"],
        [
            "tick",
            (
                "allocation k1, k2: node n1; application a: state Accepted -> Running; "
                "sent 1 ApplicationResponse, 1 AllocationResponse"
            ),
        ],
        ["AllocationRequest", "allocation k1: removed; application a: updated; sent 1 AllocationResponse"],
    ]


def test_steps_for_programs_are_json(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "steps", "--json") == 0
    steps = lines_of(capsys)
    assert [(step["step"], step["received"]) for step in steps] == [(2, 0), (3, 1), (4, 2), (5, 3), (6, 3), (7, 4)]
    assert steps[4]["told"] == {"ApplicationResponse": 1, "AllocationResponse": 1}
    assert steps[1]["changes"] == "node n1: added"


def test_the_state_is_summarized(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "show", "--json") == 0
    (summary,) = lines_of(capsys)
    expected = {"partition": PARTITION, "rm": "rm-1", "last_step": 7, "received": 4, "sent": 6, "acknowledged": 0}
    counts = {"applications": {"Running": 1}, "asks": {"allocated": 1}, "nodes": {"schedulable": 1}, "queues": 2}
    assert summary.items() >= {**expected, **counts}.items()
    assert run(state, "show") == 0
    assert "applications  Running 1\n" in capsys.readouterr().out


def test_applications_asks_and_nodes_are_tables(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = {}
    for view in ("applications", "asks", "nodes"):
        assert run(state, "show", f"--{view}") == 0
        heading, row = capsys.readouterr().out.splitlines()
        cells[view] = dict(zip(heading.split(), re.split(" {2,}", row), strict=True))
    at = cells["asks"].pop("created")
    assert cells["applications"].pop("submitted") == at
    application = {"queue": "root.batch", "user": "u", "state": "Running", "pending": "0", "allocations": "1"}
    assert cells["applications"] == {"application": "a", **application, "allocated": "vcore 0.001"}
    ask = {"application": "a", "queue": "root.batch", "state": "allocated", "node": "n1", "resources": "vcore 0.001"}
    assert cells["asks"] == {"ask": "k2", **ask, "priority": "0"}
    node = {"state": "schedulable", "allocations": "1", "allocated": "vcore 0.001", "foreign": "-"}
    assert cells["nodes"] == {"node": "n1", **node, "capacity": "vcore 10"}


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        (["--asks", "--queue", "root"], 1),
        (["--asks", "--queue", "roo"], 0),
        (["--asks", "--in-state", "pending"], 0),
        (["--asks", "--application", "a", "--node", "n1"], 1),
        (["--applications", "--in-state", "Running"], 1),
        (["--nodes", "--node", "n"], 0),
    ],
)
def test_rows_can_be_filtered(state: Path, capsys: pytest.CaptureFixture[str], options: list[str], rows: int) -> None:
    assert run(state, "show", "--json", *options) == 0
    assert len(lines_of(capsys)) == rows


def test_a_filter_of_another_view_is_refused(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "show", "--nodes", "--queue", "root") == 2
    assert capsys.readouterr().err.endswith("--queue does not apply to --nodes\n")
    assert run(state, "show", "--queue", "root") == 2
    assert capsys.readouterr().err.endswith("--queue needs --applications, --asks, --queues or --nodes\n")


def test_what_is_left_out_of_a_table_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "journals").mkdir()

    async def worked() -> None:
        one = Start(tmp_path / "journals", 1)
        start = await one.begins()
        await one.goes_on(start, *CONFIGURE, (NODES, 1), (APP, 2), (ask("k1", "k2", "k3"), 3))
        closed(start)

    asyncio.run(worked())
    assert run(tmp_path, "show", "--asks", "--limit", "1") == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert told.err == "and 2 more (--limit 0 prints all)\n"


def test_what_happened_to_an_ask_is_told_with_the_messages(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "trace", "k1", "--json") == 0
    added, allocated, released = lines_of(capsys)
    assert (added["step"], added["sent"]) == (5, [])
    assert [(one["kind"], one["name"], one["after"]["node_id"]) for one in allocated["changes"]] == [
        ("allocation", "k1", "n1")
    ]
    assert [(one["number"], one["kind"], one["parts"]) for one in allocated["sent"]] == [
        (5, "AllocationResponse", ["new"])
    ]
    assert released["changes"][0]["after"]["record"] == "Removed"
    assert run(state, "trace", "k1") == 0
    out = capsys.readouterr().out
    assert out.startswith("k1: the journal has steps 2 to 7, up to ")
    assert "step 6  tick\n    allocation k1: node n1, bound " in out
    assert "    sent AllocationResponse 5 (new), not acknowledged\n" in out


@pytest.mark.parametrize(
    ("name", "steps"), [("k2", [5, 6]), ("a", [4, 5, 6, 7]), ("n1", [3, 6, 7]), ("root.batch", [2])]
)
def test_other_objects_can_be_traced(
    state: Path, capsys: pytest.CaptureFixture[str], name: str, steps: list[int]
) -> None:
    assert run(state, "trace", name, "--json") == 0
    assert [entry["step"] for entry in lines_of(capsys)] == steps


def test_an_acknowledgement_is_traced(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = files_of(state)
    step = next(step for step in found_in(files).steps if step.number == 7)
    row = make_row(7, step.at, step.kind, encode_body(msgspec.structs.replace(step, acknowledged=5)))
    file = sql(files)
    file.execute("UPDATE steps SET step = ?, checksum = ? WHERE number = 7", (row.step, row.checksum))
    file.close()
    assert run(state, "trace", "k2") == 0
    assert "sent AllocationResponse 5 (new), acknowledged by step 7, " in capsys.readouterr().out


def test_a_name_that_is_not_in_the_journal_is_refused_with_its_extent(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(state, "trace", "k9") == 2
    assert "nothing about k9: the journal has steps 2 to 7, up to " in capsys.readouterr().err


def test_after_a_snapshot_its_state_is_known(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def worked() -> None:
        one = Start(state / "journals", 2)
        start = await one.begins()
        assert start.journal is not None
        worker, files = start.worker, one.files
        closed(start)
        with closing(SqliteJournals(files.folder).open(PARTITION, 3)) as journal:
            journal.write_snapshot(7, worker.snapshot())
            assert journal.record_snapshot(7)
            journal.compact()

    asyncio.run(worked())
    assert run(state, "trace", "k2") == 0
    out = capsys.readouterr().out
    assert out.startswith("k2: the journal has a snapshot after step 7 and no later step, up to ")
    assert "step 7  snapshot\n    allocation k2: application a, " in out
    assert run(state, "steps") == 0
    assert capsys.readouterr().out.splitlines()[1].split(maxsplit=3)[3].split() == [
        *("snapshot", "the", "state", "after", "this", "step;", "sent"),
        *("1", "NodeResponse,", "3", "ApplicationResponse,", "2", "AllocationResponse"),
    ]


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        (["--last", "2"], [6, 7]),
        (["--from", "5"], [5, 6, 7]),
        (["--kind", "AllocationRequest"], [5, 7]),
        (["--kind", "AllocationRequest", "--last", "1"], [7]),
        (["--kind", "tick", "--from", "7"], []),
    ],
)
def test_a_part_of_them_is_shown(
    state: Path, capsys: pytest.CaptureFixture[str], options: list[str], steps: list[int]
) -> None:
    assert run(state, "steps", "--json", *options) == 0
    assert [json.loads(line)["step"] for line in capsys.readouterr().out.splitlines()] == steps


def test_where_no_step_is_meant_those_that_are_there_are_named(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "steps", "--kind", "Tick") == 0
    assert "no such step; the journal has steps 2 to 7, up to " in capsys.readouterr().err


def test_the_sums_are_those_of_the_partition(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "sums") == 0
    _, one, total, counted = capsys.readouterr().out.splitlines()
    assert one.split() == ["a", "2", "1", "1"]
    assert total.split() == ["total", "2", "1", "1"]
    assert counted == "allocated and released: since step 2; running: after the last step"
    assert run(state, "sums", "--json") == 0
    assert json.loads(capsys.readouterr().out)["applications"] == {"a": {"allocated": 2, "released": 1, "running": 1}}


def test_a_journal_that_is_whole_can_be_restored(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "verify", "--restore") == 0
    assert capsys.readouterr().out == f"{PARTITION}: whole: 6 steps up to 7\nrestored\n"


def test_programs_are_told_as_json_whether_it_is_whole(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "verify", "--json", "--restore") == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["whole"], verdict["steps"], verdict["last"], verdict["restored"]) == (True, 6, 7, True)
    spoil(state)
    assert run(state, "verify", "--json") == 1
    assert json.loads(capsys.readouterr().out) == {"whole": False, "problem": "step 4 does not match its checksum"}


def test_a_file_that_cannot_be_written_is_named(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "export", "--output", str(state / "none" / "steps.jsonl")) == 2
    assert capsys.readouterr().err.endswith("/none/steps.jsonl: No such file or directory\n")


def test_everything_can_be_exported(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "export", "--output", str(tmp_path / "steps.jsonl")) == 0
    assert run(state, "export") == 0
    text = capsys.readouterr().out
    assert (tmp_path / "steps.jsonl").read_text() == text
    steps = [json.loads(line) for line in text.splitlines()]
    assert steps[0]["session"]["rollout"] == 1
    assert [record["record"] for record in steps[0]["records"]] == ["Partition", "Queue", "Queue"]
    assert [(record["record"], record["node_id"]) for record in steps[1]["records"]] == [("Node", "n1")]
    assert (steps[4]["kind"], steps[4]["session"]) == ("tick", None)
    assert [told["kind"] for told in steps[4]["told"]] == ["ApplicationResponse", "AllocationResponse"]
    assert steps[4]["told"][1]["body"]["new"][0]["allocationKey"] == "k1"


def test_damage_is_told_with_its_place(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(state)
    for action in ("verify", "show", "steps", "sums", "export"):
        assert run(state, action) == 1
        assert capsys.readouterr().err.endswith("damaged: step 4 does not match its checksum\n")


@pytest.mark.parametrize(
    ("number", "field", "problem"),
    [
        (6, "told", "step 7 has message 6 to the RM after 3"),
        (4, "records", "its records do not fit together: AssertionError: status of application 1"),
    ],
)
def test_a_journal_that_cannot_be_restored_is_damage(
    state: Path, capsys: pytest.CaptureFixture[str], number: int, field: str, problem: str
) -> None:
    """A step without a part, as a defect might write it: the checksums do not show that."""
    step = next(step for step in found_in(files_of(state)).steps if step.number == number)
    step = msgspec.structs.replace(step, **{field: [] if field == "told" else NO_RECORDS})
    row = make_row(number, step.at, step.kind, encode_body(step))
    file = sql(files_of(state))
    file.execute("UPDATE steps SET step = ?, checksum = ? WHERE number = ?", (row.step, row.checksum, number))
    file.close()
    assert run(state, "verify") == 0
    assert run(state, "verify", "--restore") == 1
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("word", ["nobody", "./nobody.sqlite"])
def test_a_journal_that_is_not_there_is_answered_with_those_that_are(
    state: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    assert main(["journal", "verify", word, "--state", str(state)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "there are: rm-1_default" in told or "there is no such file" in told


def test_a_journal_can_be_named_by_its_path_also_one_that_was_put_aside(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aside = files_of(state).put_aside()
    assert main(["journal", "verify", str(aside / f"{PARTITION}.sqlite")]) == 0
    assert main(["journal", "verify", PARTITION, "--state", str(state)]) == 2
    assert str(aside) in capsys.readouterr().err


def test_a_file_that_is_no_database_is_damage(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files_of(state).database.write_bytes(b"something else" * 1000)
    assert run(state, "verify") == 1
    assert "not a database" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["show", "steps", "sums", "verify", "export"])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", b"milk, bread", "not the name of a journal"),
        ("rm 1_default.sqlite", b"", "not the name of a journal"),
        ("rm-1_default.sqlite", b"milk, bread", "the file has no SQLite header"),
        ("rm-1_default.sqlite", bytes(range(256)) * 20, "the file has no SQLite header"),
        ("rm-1_default.sqlite", b"", "the file is empty"),
    ],
)
def test_a_file_that_never_was_a_journal_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert main(["journal", action, str(path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"yunishard journal {action}: {path}: ")
    assert message in told.err
    assert told.err.count("\n") == 1


def test_another_database_or_a_journal_that_is_cut_off_is_one_clear_line(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, files = tmp_path / "rm-1_other.sqlite", files_of(state)
    with closing(sqlite3.connect(other)) as file:
        file.execute("CREATE TABLE t (x)")
    os.truncate(files.database, files.database.stat().st_size // 2)
    for path, problem in ((other, "it has format 0"), (files.database, "database disk image is malformed")):
        for action in ("show", "steps", "sums", "verify", "export"):
            assert main(["journal", action, str(path)]) == 2
            told = capsys.readouterr()
            assert (told.out, told.err.count("\n")) == ("", 1)
            assert f"{path}: not a journal that this release can read: {problem}" in told.err


def test_a_directory_is_no_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rm-1_default.sqlite").mkdir()
    assert main(["journal", "show", str(tmp_path / "rm-1_default.sqlite")]) == 2
    assert "it is a directory" in capsys.readouterr().err


def test_an_ephemeral_system_has_to_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("YUNISHARD_EPHEMERAL", "true")
    assert main(["journal", "show", PARTITION]) == 2
    assert "--state DIR" in capsys.readouterr().err


def test_a_worker_that_writes_is_not_disturbed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "journals").mkdir()

    async def worked() -> None:
        one = Start(tmp_path / "journals", 1)
        start = await one.begins()
        await one.goes_on(start, *CONFIGURE, (NODES, 1))
        assert run(tmp_path, "verify", "--restore") == 0
        await one.goes_on(start, (APP, 2))
        assert run(tmp_path, "verify", "--restore") == 0
        closed(start)

    asyncio.run(worked())
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()[::2]] == ["2", "3"]


def test_a_live_journal_is_followed(tmp_path: Path) -> None:
    """Also past a snapshot that replaces steps. Reading leaves no file behind."""
    (tmp_path / "journals").mkdir()
    command = [Path(sys.executable).with_name("yunishard"), "journal", "steps", PARTITION, "--follow"]

    async def worked() -> None:
        one = Start(tmp_path / "journals", 1)
        start = await one.begins()
        await one.goes_on(start, *CONFIGURE)
        names = {path.name for path in one.folder.iterdir()}
        follower = await asyncio.create_subprocess_exec(
            *command, "--state", str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert follower.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert b"changes" in await follower.stdout.readline()
            assert b"CommitConfig" in await follower.stdout.readline()
            await one.goes_on(start, (NODES, 1))
            assert b"node n1: added" in await follower.stdout.readline()
            assert {path.name for path in one.folder.iterdir()} == names
            closed(start)
            with closing(SqliteJournals(one.folder).open(PARTITION, 2)) as journal:
                journal.write_snapshot(3, start.worker.snapshot())
                journal.record_snapshot(3)
            assert b"-- the journal begins with a snapshot after step 3 now" in await follower.stdout.readline()
            follower.send_signal(signal.SIGINT)
            assert await follower.wait() == 130

    asyncio.run(worked())


# A store in PostgreSQL ------------------------------------------------------------------------------------------------


def copied(state: Path, *, until: int = 7) -> str:
    """A store with the same journal."""
    store = postgres.new_store()
    steps = [step for step in found_in(files_of(state)).steps if step.number <= until]
    with closing(PostgresJournals(store).open(PARTITION, 1)) as journal:
        journal.append([encode_body(step) for step in steps], fresh=True)
    return store


@pytest.mark.parametrize(
    "words",
    [
        ["show"],
        ["show", "--asks", "--json"],
        ["trace", "k1"],
        ["steps"],
        ["steps", "--last", "2"],
        ["sums"],
        ["verify", "--restore"],
        ["verify", "--json"],
        ["poison"],
        ["export"],
    ],
)
def test_a_store_is_read_like_a_file(state: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert run(state, *words) == 0
    told = capsys.readouterr()
    assert run(state, *words, "--store", copied(state)) == 0
    assert capsys.readouterr() == told


def test_the_store_of_the_settings_is_read_unless_a_directory_is_named(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YUNISHARD_STORE", copied(state, until=5))
    for words, last in (([], 5), (["--state", str(state)], 7)):
        assert main(["journal", "verify", PARTITION, "--json", *words]) == 0
        assert json.loads(capsys.readouterr().out)["last"] == last


def test_a_store_names_the_journals_that_it_has(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "show", "nobody", "--store", copied(state)]) == 2
    assert f"no journal of nobody in the store; there are: {PARTITION} (" in capsys.readouterr().err
    assert main(["journal", "show", PARTITION, "--store", "postgresql:///none?host=/none"]) == 2
    assert "the store cannot be used: " in capsys.readouterr().err


def test_damage_of_a_store_is_told_and_what_was_set_aside_can_be_read(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = copied(state)
    with closing(Database(store, "test")) as database, database.autocommit() as connection:
        connection.execute("UPDATE steps SET checksum = checksum + 1")
    assert run(state, "verify", "--store", store) == 1
    assert "damaged: step 2 or a later one up to 7 does not match its checksum\n" in capsys.readouterr().err
    PostgresJournals(store).set_aside(PARTITION, 1)
    assert run(state, "verify", "--store", store) == 2
    assert main(["journal", "verify", f"{PARTITION} (set aside)", "--store", store]) == 1
