"""The audit log: lines, permissions, rotation, write errors, and that nothing changes without its line."""

import asyncio
import json
import os
from collections.abc import Coroutine
from ipaddress import ip_network
from pathlib import Path

import pytest

from tests.webservice.fakes import CHECKSUM, QUEUES, FakeLink, change, loopback_users, partition, request
from yunishard.common.messages.query_messages import Answer
from yunishard.webservice import audit
from yunishard.webservice.audit import FAILED_A_MINUTE_MAX, FILE_BYTES_MAX, FILES_MAX, AuditFile, AuditLog, Entry
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.broker_client import Change


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
    log = AuditLog(AuditFile(file), Clock())

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
    assert (
        first
        == f'{{"format":1,{time},"id":"1","outcome":"begun","user":"alice","from":"::1","method":"PUT","path":"/"}}'
    )
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


def test_a_file_of_a_later_release_is_left_alone_and_nothing_is_changed_over_rest(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    write(file, entry(1))
    later = file.read_text() + '{"format":2,"id":{"number":2}}\n{"torn'
    file.write_text(later)
    reason = "a later release wrote it: it has format 2, this release supports up to 1"
    with pytest.raises(OSError, match=reason):
        write(file, entry(3))
    assert asyncio.run(AuditLog(AuditFile(file)).problem()) == f"{file}: {reason}"
    assert (file.read_text(), [*tmp_path.iterdir()]) == (later, [file])
    file.rename(tmp_path / "audit.later")
    write(file, entry(3))
    assert ids(file) == ["3"]


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
    log = AuditLog(AuditFile(file))

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
    log = AuditLog(AuditFile(file), clock)
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
    log = AuditLog(AuditFile(file), Clock())
    asyncio.run(many(log, *(entry(outcome="refused") for _ in range(FAILED_A_MINUTE_MAX + 5))))

    async def both() -> None:
        await asyncio.gather(log.write(entry(901)), log.write(entry(902)))
        await log.write(entry(903))

    asyncio.run(both())
    found = [json.loads(line).get("unrecorded", 0) for line in file.read_text().splitlines()[-3:]]
    assert (sum(found), min(found)) == (5, 0)


def test_omitted_lines_are_counted_while_the_log_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "later" / "audit.log"
    log = AuditLog(AuditFile(file), Clock())
    asyncio.run(many(log, *(entry(outcome="refused") for _ in range(FAILED_A_MINUTE_MAX + 5))))
    file.parent.mkdir()
    asyncio.run(many(log, entry(901, user="bob", outcome="refused")))
    assert json.loads(file.read_text())["unrecorded"] == 5


def test_a_refusal_that_cannot_be_written_is_in_the_process_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(many(AuditLog(AuditFile(tmp_path / "none" / "audit.log")), entry(7, outcome="refused")))
    [line] = caplog.messages
    assert line.startswith("the audit log lacks that 7 was refused: ")


def test_its_bounds_are_those_that_are_documented() -> None:
    assert (audit.FILE_BYTES_MAX, audit.FILES_MAX) == (10 << 20, 10)


# Changes in the audit log ---------------------------------------------------------------------------------------------

CONFIG = "/ws/v1/config"
KILL = "/ws/v1/partition/default/application/app-1/kill"


def control(file: Path, uid: int = 1000) -> AccessControl:
    return AccessControl(loopback_users(uid), audit=AuditLog(AuditFile(file), lambda: 0.0))


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_change_has_a_line_for_its_beginning_and_one_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    seen: list[int] = []

    def changer(wanted: Change) -> Answer:
        seen.append(len(lines(file)))
        return change(wanted)

    link = FakeLink(partition(), changer=changer)
    answer = request(link, f"{CONFIG}?rm=rm-1", "PUT", body=QUEUES.encode(), control=control(file, 0))
    assert answer.status_code == 200
    assert seen == [1], "the beginning is on the disk before anything changes"
    what = {
        "time": "1970-01-01T00:00:00.000Z",
        "format": 1,
        "id": answer.headers["x-request-id"],
        "user": "root",
        "by": "loopback",
        "from": "127.0.0.1",
        "method": "PUT",
        "path": CONFIG,
        "query": "rm=rm-1",
    }
    made = {"status": 200, "checksum": CHECKSUM, "version": 4}
    assert lines(file) == [{**what, "outcome": "begun"}, {**what, "outcome": "done", **made}]


def test_a_failed_change_has_a_reason(tmp_path: Path) -> None:
    link = FakeLink(partition(), changer=lambda _: Answer(status=409, body=b"not\nnow " + b"x" * 999))
    request(link, KILL, "POST", control=control(tmp_path / "audit.log"))
    begun, failed = lines(tmp_path / "audit.log")
    assert (begun["outcome"], failed["outcome"], failed["status"]) == ("begun", "failed", 409)
    assert failed["reason"] == ("not now " + "x" * 999)[:200]


def test_a_reason_can_neither_write_lines_nor_command_a_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "core.rest")
    told = "no \x1b[31m application \u202e\n2026 FORGED"
    link = FakeLink(partition(), changer=lambda _: Answer(status=404, body=told.encode()))
    request(link, KILL, "POST", control=control(tmp_path / "audit.log"))
    [line] = caplog.messages
    assert line.isprintable()
    assert str(lines(tmp_path / "audit.log")[-1]["reason"]) == r"no \x1b[31m application \u202e 2026 FORGED"


@pytest.mark.parametrize(("uid", "status"), [(1000, 429), (0, 404)], ids=["anybody", "admin"])
def test_a_user_with_too_many_failed_changes_is_refused_for_a_while(tmp_path: Path, uid: int, status: int) -> None:
    link = FakeLink(partition(), changer=lambda _: Answer(status=404, body=b"no such application"))
    file, one = tmp_path / "audit.log", control(tmp_path / "audit.log", uid)
    for _ in range(FAILED_A_MINUTE_MAX):
        assert request(link, KILL, "POST", control=one).status_code == 404
    before = len(lines(file))
    assert request(link, KILL, "POST", control=one).status_code == status
    assert len(lines(file)) == before + (0 if status == 429 else 2)


def test_all_of_what_was_changed_is_there_or_nothing_is_changed(tmp_path: Path) -> None:
    link, file = FakeLink(partition()), tmp_path / "audit.log"
    move = KILL.replace("kill", f"move?padding={'x' * 1800}&queue=root.b")
    assert request(link, move, "POST", control=control(file)).status_code == 200
    assert str(lines(file)[-1]["query"]).endswith("&queue=root.b")
    longer = move.replace("x", "xx", 500)
    assert request(link, longer, "POST", control=control(file)).status_code == 400
    assert (lines(file)[-1]["outcome"], len(link.changes)) == ("refused", 1)


def test_the_forwarded_address_of_a_proxy_is_recorded(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    proxies = (ip_network("127.0.0.1"),)
    behind = {"X-Forwarded-User": "alice", "X-Forwarded-For": f"{'10.0.0.1, ' * 99}192.0.2.7"}
    one = AccessControl(loopback_users(), proxies=proxies, audit=AuditLog(AuditFile(file), lambda: 0.0))
    request(FakeLink(partition()), KILL, "POST", headers=behind, control=one)
    assert str(lines(file)[0]["forwardedFor"]).endswith(", 192.0.2.7")


def test_a_change_whose_end_was_missed_has_an_unknown_outcome(tmp_path: Path) -> None:
    def changer(_: object) -> Answer:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        request(FakeLink(partition(), changer=changer), KILL, "POST", control=control(tmp_path / "audit.log"))
    assert [one["outcome"] for one in lines(tmp_path / "audit.log")] == ["begun", "unknown"]


def test_an_attempt_that_is_refused_has_one_line(tmp_path: Path) -> None:
    file, link = tmp_path / "audit.log", FakeLink(partition())
    answer = request(link, f"{CONFIG}?%0A", "PUT", body=QUEUES.encode(), control=control(file))
    request(link, KILL, "POST", client=("10.0.0.7", 40000), control=control(file))
    known, unknown = lines(file)
    assert (known["user"], known["outcome"], known["status"], known["query"]) == ("alice", "refused", 403, "%0A")
    assert known["id"] == answer.headers["x-request-id"]
    assert ("user" in unknown, unknown["from"], unknown["status"]) == (False, "10.0.0.7", 403)
    assert link.changes == []


@pytest.mark.parametrize("path", ["/ws/v1/clusters", "/ws/v1/partition/default/queues", CONFIG])
def test_looking_leaves_no_line(tmp_path: Path, path: str) -> None:
    file = tmp_path / "audit.log"
    request(FakeLink(partition()), path, control=control(file, 0))
    request(FakeLink(partition()), "/ws/v1/validate-conf", "POST", body=b"x", control=control(file, 0))
    assert not file.exists()


def test_nothing_is_changed_that_cannot_be_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    link = FakeLink(partition())
    file = tmp_path / "none" / "audit.log"
    answer = request(link, KILL, "POST", control=control(file))
    assert (answer.status_code, link.changes) == (503, [])
    assert answer.json()["message"] == (
        f"Nothing was changed, as the audit log cannot be written: {file}: no such file or directory;"
        " solve that, then try again"
    )
    assert f"no change is made: {file}: no such file or directory" in caplog.messages


def test_one_that_was_made_stays_made_when_its_end_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "log" / "audit.log"
    file.parent.mkdir()

    def changer(_: object) -> Answer:
        file.unlink()
        file.parent.rmdir()
        return Answer(status=200, body=b"{}")

    assert request(FakeLink(partition(), changer=changer), KILL, "POST", control=control(file)).status_code == 200
    assert any(line.startswith("the audit log lacks that ") for line in caplog.messages)
