"""The audit log of changes, and that nothing changes without its line."""

import json
from ipaddress import ip_network
from pathlib import Path

import pytest

from common.query_messages import Answer
from tests.webservice.fakes import CHECKSUM, QUEUES, FakeLink, change, loopback_users, partition, request
from webservice.audit import FAILED_A_MINUTE_MAX, AuditLog
from webservice.authn_authz import AccessControl
from webservice.broker_client import Change

CONFIG = "/ws/v1/config"
KILL = "/ws/v1/partition/default/application/app-1/kill"


def control(file: Path, uid: int = 1000) -> AccessControl:
    return AccessControl(loopback_users(uid), audit=AuditLog(file, lambda: 0.0))


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
    one = AccessControl(loopback_users(), proxies=proxies, audit=AuditLog(file, lambda: 0.0))
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
        f"Nothing was changed, for the audit log cannot be written: {file}: no such file or directory;"
        " make room, then try again"
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
