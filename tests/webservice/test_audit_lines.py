"""What every place for the lines of the audit log must do: the files of a host, and the store of several hosts.

Another implementation is another entry of `BACKENDS`. Not here: the lines (`test_audit.py`).
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Final, Protocol

import psycopg
import pytest

from tests import postgres
from tests.full_disk import full_disk
from tests.webservice.fakes import FakeLink, loopback_users, partition, request
from yunishard.common.messages.query_messages import Answer
from yunishard.webservice import audit, postgres_audit
from yunishard.webservice.audit import AuditFile, AuditLines, AuditLog, Entry
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.broker_client import Change
from yunishard.webservice.postgres_audit import PostgresAudit

KILL = "/ws/v1/partition/default/application/app-1/kill"


class Backend(Protocol):
    """One audit log, which several web services can write."""

    def open(self) -> AuditLines:
        """Open it, as another web service does."""

    def read(self) -> list[bytes]:
        """All lines, the oldest first."""

    def full(self) -> AbstractContextManager[None]:
        """While this is open, nothing can be written, as on a full disk."""

    def close(self) -> None:
        """Close everything that was opened."""


class FileBackend:
    """A file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "audit.log"

    def open(self) -> AuditLines:
        return AuditFile(self._path)

    def read(self) -> list[bytes]:
        return self._path.read_bytes().splitlines() if self._path.exists() else []

    def full(self) -> AbstractContextManager[None]:
        return full_disk(0)

    def close(self) -> None:
        pass


class PostgresBackend:
    """A PostgreSQL server."""

    def __init__(self, folder: Path) -> None:
        self._store = postgres.new_store()
        self._opened: list[AuditLines] = []

    def open(self) -> AuditLines:
        self._opened.append(PostgresAudit(self._store))
        return self._opened[-1]

    def read(self) -> list[bytes]:
        with psycopg.connect(self._store) as connection:
            return [line.encode() for (line,) in connection.execute("SELECT line FROM audit ORDER BY id").fetchall()]

    def full(self) -> AbstractContextManager[None]:
        return postgres.full_disk(self._store, "audit")

    def close(self) -> None:
        for one in self._opened:
            one.close()


BACKENDS: Final[dict[str, Callable[[Path], Backend]]] = {"files": FileBackend, "postgresql": PostgresBackend}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with closing(BACKENDS[request.param](tmp_path)) as one:
        yield one


def entry(number: int, reason: str = "") -> Entry:
    return Entry(id=str(number), address="::1", method="PUT", path="/", reason=reason)


def test_lines_of_several_web_services_are_in_the_order_of_their_writing(backend: Backend) -> None:
    logs = [AuditLog(backend.open(), lambda: 0.0) for _ in range(2)]

    async def write() -> None:
        for number in range(6):
            await logs[number % 2].write(entry(number, "Grüße\n\0%s"))

    asyncio.run(write())
    found = [json.loads(line) for line in backend.read()]
    assert [(one["id"], one["reason"]) for one in found] == [(str(number), "Grüße\n\0%s") for number in range(6)]


def test_a_line_is_written_before_anything_changes(backend: Backend) -> None:
    seen: list[str] = []

    def change(_: Change) -> Answer:
        seen.extend(json.loads(line)["outcome"] for line in backend.read())
        return Answer(status=200, body=b"{}")

    control = AccessControl(loopback_users(), audit=AuditLog(backend.open()))
    assert request(FakeLink(partition(), changer=change), KILL, "POST", control=control).status_code == 200
    assert seen == ["begun"]
    assert [json.loads(line)["outcome"] for line in backend.read()] == ["begun", "done"]


def test_without_room_nothing_is_changed_and_the_health_check_has_the_reason(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PROBE_S", 0.0)
    log, link = AuditLog(backend.open()), FakeLink(partition())
    with backend.full():
        answer = request(link, KILL, "POST", control=AccessControl(loopback_users(), audit=log))
        problem = asyncio.run(log.problem())
    assert (answer.status_code, link.changes, backend.read()) == (503, [], [])
    assert problem
    assert "\n" not in problem
    assert f"as the audit log cannot be written: {problem}; solve that" in answer.json()["message"]
    assert asyncio.run(log.problem()) == ""
    assert backend.read() == [], "a test leaves no line"


def test_the_host_is_in_lines_of_several_hosts(backend: Backend) -> None:
    asyncio.run(AuditLog(backend.open(), host="a").write(entry(1)))
    asyncio.run(AuditLog(backend.open()).write(entry(2)))
    assert [json.loads(line).get("host") for line in backend.read()] == ["a", None]


def test_the_oldest_lines_of_a_store_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_audit, "LINES_MAX", 3)
    backend = PostgresBackend(tmp_path)
    with closing(backend.open()) as lines:
        for number in range(10):
            lines.append(b"%d\n" % number)
    assert backend.read() == [b"7", b"8", b"9"]


def test_an_unreachable_store_is_the_reason_in_one_line() -> None:
    with pytest.raises(OSError, match=r"^the store cannot be used: [^\n]*refused[^\n]*$"):
        PostgresAudit("postgresql://127.0.0.1:1/x").append(b"line\n")
