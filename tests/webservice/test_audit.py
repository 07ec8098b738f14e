"""The audit log as a file: lines, permissions, rotation, and write errors."""

import asyncio
import json
import os
from collections.abc import Coroutine
from pathlib import Path

import pytest

from webservice import audit
from webservice.audit import FAILED_A_MINUTE_MAX, FILE_BYTES_MAX, FILES_MAX, AuditLog, Entry


class Clock:
    now = 1_700_000_000.1239

    def __call__(self) -> float:
        return self.now


def entry(number: int = 1, *, user: str = "alice", outcome: str = "begun", reason: str = "") -> Entry:
    return Entry(id=str(number), outcome=outcome, user=user, address="::1", method="PUT", path="/", reason=reason)


def write(
    file: Path,
    *entries: Entry,
) -> None:
    log = AuditLog(file, Clock())

    async def run() -> None:
        for one in entries:
            await log.write(one)

    asyncio.run(run())


def ids(file: Path) -> list[str]:
    return [json.loads(line)["id"] for line in file.read_text().splitlines()]


def test_each_entry_is_a_line_with_what_is_known(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    write(file, entry(1), entry(2, reason="two\nlines", user=""))
    write(file, entry(3))
    first, second, third = file.read_text().splitlines()
    time = '"time":"2023-11-14T22:13:20.123Z"'
    assert first == f'{{{time},"id":"1","outcome":"begun","user":"alice","from":"::1","method":"PUT","path":"/"}}'
    assert json.loads(second)["reason"] == "two\nlines"
    assert "user" not in json.loads(second)
    assert json.loads(third)["id"] == "3"


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write(tmp_path / "audit.log", entry())
    finally:
        os.umask(before)
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_torn_does_not_spoil_the_next(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    file.write_text('{"time":"T","id":"1"')
    write(file, entry(2))
    torn, whole = file.read_text().splitlines()
    assert (torn, json.loads(whole)["id"]) == ('{"time":"T","id":"1"', "2")


def test_a_full_file_gets_a_number_and_the_oldest_goes(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    for number in range(FILES_MAX + 2):
        write(file, entry(number))
        with file.open("r+b") as opened:
            opened.seek(FILE_BYTES_MAX - 1)  # the gap takes no room
            opened.write(b"\n")
    files = [file, *(tmp_path / f"audit.log.{number}" for number in range(1, FILES_MAX))]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    newest = FILES_MAX + 1
    firsts = [one.open("rb") for one in files]
    assert [json.loads(opened.readline())["id"] for opened in firsts] == [str(newest - age) for age in range(FILES_MAX)]
    for opened in firsts:
        opened.close()


def test_a_file_that_was_moved_away_is_created_again(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    log = AuditLog(file)

    async def run() -> None:
        await log.write(entry(1))
        file.rename(tmp_path / "elsewhere")
        await log.write(entry(2))

    asyncio.run(run())
    assert (ids(tmp_path / "elsewhere"), ids(file)) == (["1"], ["2"])


@pytest.mark.parametrize("what", ["folder", "link", "nowhere"])
def test_where_it_cannot_be_written_that_is_one_line(tmp_path: Path, what: str) -> None:
    file = tmp_path / "audit.log"
    match what:
        case "folder":
            file.mkdir()
        case "link":
            file.symlink_to(tmp_path / "other")
        case "nowhere":
            file = tmp_path / "none" / "audit.log"
    with pytest.raises(OSError, match=f"^{file}: [^\n]*$"):
        write(file, entry())
    assert not (tmp_path / "other").exists()


def test_a_line_that_does_not_fit_on_the_disk_is_taken_back() -> None:
    with pytest.raises(OSError, match="no space left"):
        write(Path("/dev/full"), entry())


def many(log: AuditLog, *entries: Entry) -> Coroutine[None, None, None]:
    async def run() -> None:
        for one in entries:
            one.outcome = "refused"
            await log.record_outcome(one)

    return run()


@pytest.mark.parametrize("who", ["", "mallory"])
def test_one_user_cannot_push_out_other_lines_and_omitted_lines_are_counted(tmp_path: Path, who: str) -> None:
    file, clock = tmp_path / "audit.log", Clock()
    log = AuditLog(file, clock)
    refusals = [entry(number, user=who, outcome="refused") for number in range(FAILED_A_MINUTE_MAX + 5)]
    asyncio.run(many(log, *refusals))
    assert len(ids(file)) == FAILED_A_MINUTE_MAX
    asyncio.run(many(log, entry(900, outcome="refused")))
    assert json.loads(file.read_text().splitlines()[-1])["unrecorded"] == 5
    clock.now += 60
    asyncio.run(many(log, entry(901, user=who, outcome="refused")))
    assert ids(file)[-2:] == ["900", "901"]
    assert "unrecorded" not in json.loads(file.read_text().splitlines()[-1])


def test_what_is_left_out_is_counted_once_however_many_write_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    log = AuditLog(file, Clock())
    asyncio.run(many(log, *(entry(outcome="refused") for _ in range(FAILED_A_MINUTE_MAX + 5))))

    async def both() -> None:
        await asyncio.gather(log.write(entry(901)), log.write(entry(902)))
        await log.write(entry(903))

    asyncio.run(both())
    found = [json.loads(line).get("unrecorded", 0) for line in file.read_text().splitlines()[-3:]]
    assert (sum(found), min(found)) == (5, 0)


def test_omitted_lines_are_counted_while_the_log_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "later" / "audit.log"
    log = AuditLog(file, Clock())
    asyncio.run(many(log, *(entry(outcome="refused") for _ in range(FAILED_A_MINUTE_MAX + 5))))
    file.parent.mkdir()
    asyncio.run(many(log, entry(901, user="bob", outcome="refused")))
    assert json.loads(file.read_text())["unrecorded"] == 5


def test_a_refusal_that_cannot_be_written_is_in_the_process_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(many(AuditLog(tmp_path / "none" / "audit.log"), entry(7, outcome="refused")))
    [line] = caplog.messages
    assert line.startswith("the audit log lacks that 7 was refused: ")


def test_its_bounds_are_those_that_are_documented() -> None:
    assert (audit.FILE_BYTES_MAX, audit.FILES_MAX) == (10 << 20, 10)
