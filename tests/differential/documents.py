"""Everything that REST tells of one partition, and the answers to odd questions, in a form in which two systems can be
compared.

What is meant to be different (docs/compatibility.md) is levelled here rather than looked up afterwards: traces are
generated, so nobody knows beforehand where it will show. Not here: what a difference is (`known.py`).
"""

import gzip
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
from tests.conformance.rest import Rest
from tests.conformance.steps import LONG_S, Play
from tests.conformance.wires import Dial
from yunishard.common.messages.event_codes import (
    ALLOC_NODEREMOVED,
    ALLOC_TIMEOUT,
    APP_CANNOTRUN_QUEUE,
    APP_RUNNABLE_QUEUE,
    REQUEST_CANCEL,
    UG_GROUP_LIMIT,
    UG_GROUP_RESOURCE,
    UG_USER_LIMIT,
    UG_USER_RESOURCE,
)
from yunishard.webservice.parameters import ACTIVE_STATUSES

TIMEOUT_S: Final = 30.0
PARTITION: Final = "/ws/v1/partition/default"
INSIDE: Final = re.compile(r"\[([\w-]+)\](\w+)")
"""How the reference calls a partition of an RM; here it is ID_NAME."""

OWN: Final = frozenset({"rmId", "awaySince", "drainingSince", "drainingApplications"})
"""Keys that only this system has."""

SHARED: Final = frozenset({"allocationLog", "schedulingAttempted"})
"""Keys of asks which here are those of all that are equal, and are not written again and again."""

TIMED: Final = frozenset({"triggeredScaleUp", "resourceHistory", "allocationDelay"})
"""Keys of what depends on how fast somebody is."""

ESCAPING: Final = "; escaping=underscores"
"""What versions of the reference after the published one add to the type of metrics."""

SHARED_WORDS: Final = re.compile(
    r"(does not fit|has become schedulable) in queue|(exceeds|fits in) the available user quota"
)
"""In events that here are told of one ask for all that are equal."""

ON_PURPOSE: Final = frozenset(
    {
        UG_USER_RESOURCE,
        UG_GROUP_RESOURCE,
        UG_USER_LIMIT,
        UG_GROUP_LIMIT,
        APP_CANNOTRUN_QUEUE,
        APP_RUNNABLE_QUEUE,
    }
)
"""Details of events that are not told as often here: what users and groups use, how they are limited, and whether an
application can run.
"""

TOLD: Final = frozenset({"eventChangeType", "eventChangeDetail", "message", "resource"})
"""What is compared of an event."""

ROOMS: Final = ("available", "occupied")
"""Amounts of nodes, which are told without zeros."""

CHECKS: Final = 9
"""So many checks of health are those of the reference."""

NOT_COMPARED: Final = re.compile(
    r"yunikorn_runtime_"  # there is no Go runtime
    r"|yunikorn_queue_app_total"  # later versions have it
    r"|yunikorn_scheduler_\w+_milliseconds"  # how long something took
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
            if not any(path.startswith((f"/ws/v1/{part}", f"{PARTITION}/{part}")) for part in without):
                found[path] = self._told({"path": path})
        for number, question in enumerate(questions):
            found[f"{number}: {_shown(question)}"] = self._told(question)
        return found

    def _paths(self) -> Iterator[str]:
        yield from ("/ws/v1/clusters", "/ws/v1/partitions", "/ws/v1/scheduler/node-utilizations", "/ws/v1/metrics")
        yield from ("/ws/v1/scheduler/healthcheck", "/ws/v1/events/batch")
        for part in ("placementrules", "queues", "nodes", "usage/users", "usage/groups"):
            yield f"{PARTITION}/{part}"
        for state in ("active", "completed", "rejected"):
            yield f"{PARTITION}/applications/{state}"
        for status in ACTIVE_STATUSES:
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
        """Null if the system closes the connection instead."""
        try:
            status, headers, text = self._ask(question)
        except http.client.RemoteDisconnected:
            return None
        told = {
            name.lower(): value.replace(ESCAPING, "")
            for name, value in sorted(headers.items())
            if name.lower() in HEADERS
        }
        return {"status": status, "headers": dict(told), "body": levelled(body(question["path"], told, text))}

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
            return answer.status, dict(answer.headers.items()), _unpacked(content).decode(errors="replace")
        finally:
            connection.close()


class PlayWithDocuments(Play):
    """A trace that may have a step `documents`, with `questions` of its own and paths that it goes `without`."""

    def __init__(self, dial: Dial, rest: Rest, documents: Documents) -> None:
        super().__init__(dial, rest)
        self._documents = documents

    def step(self, step: Item) -> None:
        if "documents" not in step:
            super().step(step)
            return
        self._quiet(LONG_S)
        body = step["documents"] or {}
        self.recorded.append(self._documents.read(questions=body.get("questions", []), without=body.get("without", [])))


def _unpacked(content: bytes) -> bytes:
    while content.startswith(b"\x1f\x8b"):  # the reference packs metrics twice
        content = gzip.decompress(content)
    return content


def _shown(question: Item) -> str:
    return " ".join(str(question[key]) for key in ("method", "path", "headers", "body") if key in question)


def _queues(document: "list[Document] | dict[str, Document]") -> Iterator[str]:
    if isinstance(document, dict):
        yield str(document["queuename"])
        children = document.get("children", [])
        for child in children if isinstance(children, list) else []:
            if isinstance(child, dict):
                yield from _queues(child)


def body(path: str, headers: Mapping[str, str], text: str) -> Document:
    text = INSIDE.sub(r"\1_\2", text)
    kind = headers.get("content-type", "")
    if path.startswith("/ws/v1/metrics") and "version" in kind:
        found = canon.series(text)
        assert isinstance(found, dict)
        return {
            key: value
            for key, value in found.items()
            if isinstance(value, float) and value and not NOT_COMPARED.match(key)
        }
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


def levelled(value: Document) -> Document:
    match value:
        case {"EventRecords": list(records)}:
            return {"EventRecords": _by_object(records)}
        case dict():
            kept = {key: one for key, one in value.items() if key not in OWN | SHARED | TIMED}
            if isinstance(checks := kept.get("HealthChecks"), list):
                kept["HealthChecks"] = checks[:CHECKS]
            return {key: _plain(key, one) for key, one in kept.items() if key not in ROOMS or _is_something(one)}
        case list():
            members = [levelled(one) for one in value]
            for name in NAMES:
                named = {str(one[name]): one for one in members if isinstance(one, dict) and name in one}
                if len(named) == len(members) and members:
                    return dict(sorted(named.items()))
            return members
    return value


def _by_object(records: list[Document]) -> Document:
    """What was told of each object and reference, in order: that of several is often a matter of chance."""
    found: dict[str, dict[str, list[Document]]] = {}
    for record in records:
        if isinstance(record, dict) and not _differs_on_purpose(record):
            about = f"{record.get('type', 0)} {record.get('objectID', '')}"
            reference = found.setdefault(about, {}).setdefault(str(record.get("referenceID", "")), [])
            if reference and _is_late(record, reference[-1]):
                continue
            reference.append({key: one for key, one in record.items() if key in TOLD})
    return {about: {reference: list(told) for reference, told in each.items()} for about, each in found.items()}


def _differs_on_purpose(record: dict[str, Document]) -> bool:
    shared = SHARED_WORDS.search(str(record.get("message", "")))
    return shared is not None or record.get("eventChangeDetail") in ON_PURPOSE


def _is_late(record: dict[str, Document], before: Document) -> bool:
    """Whether it is the end of a request for what went with its node or its time: here nobody knows of that."""
    gone = isinstance(before, dict) and before.get("eventChangeDetail") in (ALLOC_TIMEOUT, ALLOC_NODEREMOVED)
    return gone and record.get("eventChangeDetail") == REQUEST_CANCEL


def _plain(key: str, value: Document) -> Document:
    """Amounts of nodes without zeros."""
    if key in ROOMS and isinstance(value, dict):
        return {kind: amount for kind, amount in value.items() if amount}
    return levelled(value)


def _is_something(amounts: Document) -> bool:
    return isinstance(amounts, dict) and any(amounts.values())
