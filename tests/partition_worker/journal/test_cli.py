"""`yunishard journal`, on the journal of a real worker."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from common.journal_messages import NO_RECORDS
from common.rm_messages import AllocationRelease, AllocationReleasesRequest, AllocationRequest
from common.wire import encode_body
from partition_worker.journal.database import make_row
from partition_worker.journal.files import Files
from tests.machines import PARTITION
from tests.partition_worker.bench import APP, NODES, NOW, ask
from tests.partition_worker.journal.hand import found_in, sql
from tests.partition_worker.start import CONFIGURE, Start, closed
from yunishard.cli import main

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


def test_the_steps_are_shown_with_their_records_and_messages(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "show") == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["step", "time", "what", "received", "bytes", "changed", "told"]
    words = [line.split() for line in lines]
    assert [line[3] for line in words] == [
        *("CommitConfig", "NodeRequest", "ApplicationRequest", "AllocationRequest", "tick"),
        "AllocationRequest",
    ]
    assert words[0][-5:] == ["1", "Partition,", "2", "Queue", "-"]
    assert words[1][4] == "1"
    assert words[1][-4:] == ["1", "Node", "1", "NodeResponse"]


def test_records_and_messages_are_counted_by_kind(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "show", "--json") == 0
    steps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(step["step"], step["received"]) for step in steps] == [(2, 0), (3, 1), (4, 2), (5, 3), (6, 3), (7, 4)]
    assert steps[3]["changed"] == {"Allocation": 2, "ApplicationStates": 1, "ApplicationStatus": 1}
    assert steps[4]["told"] == {"ApplicationResponse": 1, "AllocationResponse": 1}
    assert steps[5]["changed"] == {"Allocation removed": 1, "ApplicationStatus": 1}


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
    assert run(state, "show", "--json", *options) == 0
    assert [json.loads(line)["step"] for line in capsys.readouterr().out.splitlines()] == steps


def test_where_no_step_is_meant_those_that_are_there_are_named(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(state, "show", "--kind", "Tick") == 0
    assert "there are 2 to 7, of these kinds: AllocationRequest, ApplicationRequest, " in capsys.readouterr().err


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
    for action in ("verify", "show", "sums", "export"):
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


@pytest.mark.parametrize("action", ["show", "sums", "verify", "export"])
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
