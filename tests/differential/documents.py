"""Everything that REST tells of one partition, and the answers to odd questions, in a form in which two systems can be
compared.

What is meant to be different (docs/compatibility.md) is levelled here rather than looked up afterwards: traces are
generated, so nobody knows beforehand where it will show. Not here: what a difference is (`known.py`).
"""

import http.client
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, urlsplit

import yaml

from tests.captures import canon
from tests.captures.answers import HEADERS
from tests.captures.canon import Document
from tests.captures.compare import NAMES
from tests.conformance.items import Item

TIMEOUT_S: Final = 30.0
PARTITION: Final = "/ws/v1/partition/default"
INSIDE: Final = re.compile(r"\[([\w-]+)\](\w+)")
"""How the reference calls a partition of an RM; here it is ID_NAME."""

OWN: Final = frozenset({"rmId", "awaySince", "drainingSince", "drainingApplications"})
"""Keys that only this system has."""

SHARED: Final = frozenset({"allocationLog", "schedulingAttempted"})
"""Keys of asks which here are those of all that are equal, and are not written again and again."""

CHECKS: Final = 9
"""So many checks of health are those of the reference."""

NOT_COMPARED: Final = re.compile(
    r"yunikorn_runtime_"  # there is no Go runtime
    r"|yunikorn_scheduler_\w+_milliseconds"  # how long something took
    r"|yunikorn_scheduler_\w+_node_usage_total"  # counted once a second
    r'|yunikorn_(scheduler_application_total|queue_app)\{.*state="completing"'  # removed ones stay there for ever
)


class Documents:
    """Asks one system."""

    def __init__(self, address: str) -> None:
        self._where = urlsplit(address).netloc

    def read(self, *, questions: list[Item], without: list[str]) -> dict[str, Document]:
        """Each document by its path."""
        found: dict[str, Document] = {}
        for path in self._paths():
            if not any(path.startswith(f"/ws/v1/{part}") or path.startswith(f"{PARTITION}/{part}") for part in without):
                found[path] = self._told({"path": path})
        for question in questions:
            found[f"{question.get('method', 'GET')} {question['path']} {_shown(question)}".strip()] = self._told(question)
        return found

    def _paths(self) -> Iterator[str]:
        yield from ("/ws/v1/clusters", "/ws/v1/partitions", "/ws/v1/scheduler/node-utilizations", "/ws/v1/metrics")
        yield from ("/ws/v1/scheduler/healthcheck", "/ws/v1/events/batch")
        for part in ("placementrules", "queues", "nodes", "usage/users", "usage/groups"):
            yield f"{PARTITION}/{part}"
        for state in ("active", "completed", "rejected"):
            yield f"{PARTITION}/applications/{state}"
        for status in canon.STATUSES and ("new", "accepted", "running", "completing", "failing", "resuming"):
            yield f"{PARTITION}/applications/active?status={status}"
        for queue in _queues(self._json(f"{PARTITION}/queues")):
            name = quote(quote(queue, safe=""), safe="")
            for more in ("", "?subtree", "/applications", "/applications/active"):
                yield f"{PARTITION}/queue/{name}{more}"
        for key, what in (("nodeID", "node"), ("applicationID", "application")):
            for name in self._names(f"{PARTITION}/{'nodes' if what == 'node' else 'applications/active'}", key):
                yield f"{PARTITION}/{what}/{quote(name, safe='')}"
        for key, what in (("userName", "user"), ("groupName", "group")):
            for name in self._names(f"{PARTITION}/usage/{what}s", key):
                yield f"{PARTITION}/usage/{what}/{quote(quote(name, safe=''), safe='')}"

    def _names(self, path: str, key: str) -> list[str]:
        return sorted(str(one[key]) for one in self._json(path) if isinstance(one, dict))

    def _json(self, path: str) -> "list[Document] | dict[str, Document]":
        status, _, text = self._ask({"path": path})
        found = json.loads(text) if status == http.HTTPStatus.OK else []
        return found if isinstance(found, list | dict) else []

    def _told(self, question: Item) -> Document:
        status, headers, text = self._ask(question)
        told = {name.lower(): value for name, value in sorted(headers.items()) if name.lower() in HEADERS}
        return {"status": status, "headers": dict(told), "body": _levelled(_body(question["path"], told, text))}

    def _ask(self, question: Item) -> tuple[int, Mapping[str, str], str]:
        connection = http.client.HTTPConnection(self._where, timeout=TIMEOUT_S)
        try:
            connection.putrequest(question.get("method", "GET"), question["path"], skip_accept_encoding=True)
            body = question.get("body", "").encode()
            for name, value in question.get("headers", {}).items():
                connection.putheader(name, value)
            if body or question.get("method") == "POST":
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            lines = question.get("lines")
            content = b"".join(answer.readline() for _ in range(lines)) if lines else answer.read()
            return answer.status, answer.headers, _unpacked(content).decode(errors="replace")
        finally:
            connection.close()


def _unpacked(content: bytes) -> bytes:
    import gzip

    while content.startswith(b"\x1f\x8b"):  # the reference packs metrics twice
        content = gzip.decompress(content)
    return content


def _shown(question: Item) -> str:
    return " ".join(str(question[key])[:60] for key in ("headers", "body") if key in question)


def _queues(document: "list[Document] | dict[str, Document]") -> Iterator[str]:
    if isinstance(document, dict):
        yield str(document["queuename"])
        children = document.get("children", [])
        for child in children if isinstance(children, list) else []:
            if isinstance(child, dict):
                yield from _queues(child)


def _body(path: str, headers: Mapping[str, str], text: str) -> Document:
    text = INSIDE.sub(r"\1_\2", text)
    kind = headers.get("content-type", "")
    if path.startswith("/ws/v1/metrics") and "version" in kind:
        found = canon.series(text)
        assert isinstance(found, dict)
        return {key: value for key, value in found.items() if value and not NOT_COMPARED.match(key)}
    if "yaml" in kind:
        told: Document = yaml.safe_load(text)
        return told
    if "json" in kind and text:
        try:
            if "stream" in path:
                return canon.stream(text)
            return canon.document(text, ordered="placementrules" in path or "config" in path)
        except ValueError:
            return text
    return text


def _levelled(value: Document) -> Document:
    match value:
        case dict():
            kept = {key: one for key, one in value.items() if key not in OWN and key not in SHARED}
            if isinstance(checks := kept.get("HealthChecks"), list):
                kept["HealthChecks"] = checks[:CHECKS]
            return {key: _levelled(one) for key, one in kept.items()}
        case list():
            members = [_levelled(one) for one in value]
            for name in NAMES:
                named = {str(one[name]): one for one in members if isinstance(one, dict) and name in one}
                if len(named) == len(members) and members:
                    return dict(sorted(named.items()))
            return members
    return value
