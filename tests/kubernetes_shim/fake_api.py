"""An API server for tests, in the process of the test: objects in memory, list in pages, watch, create, patch, delete,
bind, and faults on demand. It validates nothing; `tests/kubernetes` has a real one.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from yunishard.kubernetes_shim.kubeconfig import Access

Json = dict[str, Any]


@dataclass
class Answer:
    """An answer instead of the ordinary one, to the next request with this method whose path or query contains a
    text."""

    method: str
    path: str
    status: int
    body: Json | bytes = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    after: bool = False
    """Whether the request takes effect first; with status 0 the connection is closed in any case."""


class _Place:
    """What a path names: the collection, an object of it, a subresource."""

    def __init__(self, path: str) -> None:
        parts = path.strip("/").split("/")
        size = 2 if parts[0] == "api" else 3
        self.group, parts = "/".join(parts[:size]), parts[size:]
        self.namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            self.namespace, parts = parts[1], parts[2:]
        self.collection = f"{self.group}/{parts[0]}"
        self.name = parts[1] if len(parts) > 1 else ""
        self.subresource = parts[2] if len(parts) > 2 else ""


class FakeApi:
    def __init__(self) -> None:
        self.version = 0
        self.objects: dict[str, dict[tuple[str, str], Json]] = {}
        """By collection, such as `api/v1/pods`, then by namespace and name."""
        self.history: list[tuple[int, str, str, Json]] = []
        """Version, type, collection, object."""
        self.compacted = 0
        """The latest version whose changes are gone."""
        self.requests: list[str] = []
        """Method and path, with the query, of each request."""
        self.answers: deque[Answer] = deque()
        self.chunk_bytes = 0
        """How many bytes a watch sends at once; 0 for whole lines."""
        self.access = Access(server="", namespace="default")
        self.watches: list[asyncio.Queue[bytes | None]] = []

    # For tests --------------------------------------------------------------------------------------------------------

    def put(self, collection: str, body: Json) -> Json:
        """Create or replace an object."""
        metadata = body.setdefault("metadata", {})
        key = (metadata.get("namespace", ""), metadata["name"])
        known = self.objects.setdefault(collection, {})
        former = known.get(key)
        self.version += 1
        metadata.setdefault("uid", former["metadata"]["uid"] if former else f"uid-{metadata['name']}-{self.version}")
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        metadata["resourceVersion"] = str(self.version)
        known[key] = body
        self._announce("MODIFIED" if former else "ADDED", collection, body)
        return body

    def remove(self, collection: str, name: str, namespace: str = "") -> None:
        body = json.loads(json.dumps(self.objects[collection].pop((namespace, name))))
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self._announce("DELETED", collection, body)

    def compact(self) -> None:
        """Discard all changes so far, as etcd does after some minutes."""
        self.compacted = self.version

    def send_to_watches(self, line: Json | bytes) -> None:
        data = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
        for queue in self.watches:
            queue.put_nowait(data)

    def end_watches(self) -> None:
        for queue in self.watches:
            queue.put_nowait(None)

    def _announce(self, event: str, collection: str, body: Json) -> None:
        copy = json.loads(json.dumps(body))
        self.history.append((self.version, event, collection, copy))
        for queue in self.watches:
            if queue.collection == collection:  # type: ignore[attr-defined]
                queue.put_nowait(json.dumps({"type": event, "object": copy}).encode() + b"\n")

    # The server -------------------------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path_qs}")
        place = _Place(request.path)
        fits = (one for one in self.answers if one.method == request.method and one.path in request.path_qs)
        scripted = next(fits, None)
        if scripted is not None:
            self.answers.remove(scripted)
            if scripted.after:
                await self._respond(request, place)
            if scripted.status == 0:
                assert request.transport is not None
                request.transport.abort()
            body = scripted.body if isinstance(scripted.body, bytes) else json.dumps(scripted.body).encode()
            return web.Response(status=scripted.status or 200, body=body, headers=scripted.headers)
        return await self._respond(request, place)

    async def _respond(self, request: web.Request, place: _Place) -> web.StreamResponse:
        if request.method == "GET" and not place.name:
            return await self._watch(request, place) if "watch" in request.query else self._list(request, place)
        known = self.objects.setdefault(place.collection, {})
        body: Any = await request.json() if request.can_read_body else {}
        key = (place.namespace, place.name)
        if request.method == "POST" and not place.name:
            body["metadata"].setdefault("namespace", place.namespace)
            if (place.namespace, body["metadata"]["name"]) in known:
                return _refuse(409, "AlreadyExists")
            return web.json_response(self.put(place.collection, body), status=201)
        if key not in known:
            return _refuse(404, "NotFound")
        found = known[key]
        wanted = body.get("metadata", {}).get("uid") if isinstance(body, dict) else None
        wanted = body.get("preconditions", {}).get("uid", wanted) if isinstance(body, dict) else wanted
        if wanted and wanted != found["metadata"]["uid"]:
            return _refuse(409, "Conflict")
        if place.subresource == "binding":
            if found.get("spec", {}).get("nodeName"):
                return _refuse(409, "Conflict")
            found.setdefault("spec", {})["nodeName"] = body["target"]["name"]
        elif request.method == "DELETE":
            self.remove(place.collection, place.name, place.namespace)
            return web.json_response(found)
        elif request.method == "PATCH":
            fields = {step["path"].strip("/"): step["value"] for step in body} if isinstance(body, list) else {}
            version = fields.pop("metadata/resourceVersion", None) if fields else _version_of(body)
            if version and version != found["metadata"]["resourceVersion"]:
                return _refuse(409, "Conflict")
            found.update(fields)  # a JSON patch replaces whole fields
            _merge(found, {} if fields else body)
        if request.method != "GET":
            self.put(place.collection, found)
        return web.json_response(found, status=201 if place.subresource == "binding" else 200)

    def _list(self, request: web.Request, place: _Place) -> web.Response:
        found = [
            body
            for (namespace, _), body in sorted(self.objects.get(place.collection, {}).items())
            if not place.namespace or namespace == place.namespace
        ]
        first, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", "0")) or len(found)
        more = str(first + limit) if first + limit < len(found) else ""
        metadata = {"resourceVersion": str(self.version), **({"continue": more} if more else {})}
        return web.json_response({"metadata": metadata, "items": found[first : first + limit]})

    async def _watch(self, request: web.Request, place: _Place) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self.compacted:
            return _refuse(410, "Expired")
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        queue.collection = place.collection  # type: ignore[attr-defined]
        for version, event, collection, body in self.history:
            if version > since and collection == place.collection:
                queue.put_nowait(json.dumps({"type": event, "object": body}).encode() + b"\n")
        self.watches.append(queue)
        response = web.StreamResponse()
        try:
            await response.prepare(request)
            while (data := await queue.get()) is not None:
                size = self.chunk_bytes or len(data)
                for at in range(0, len(data), size):
                    await response.write(data[at : at + size])
                    await asyncio.sleep(0)
        finally:
            self.watches.remove(queue)
        return response


def _refuse(status: int, reason: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": status, "reason": reason, "message": reason}, status=status)


def _version_of(body: Json) -> str | None:
    found: str | None = body.get("metadata", {}).get("resourceVersion")
    return found


def _merge(into: Json, patch: Json) -> None:
    for name, value in patch.items():
        if isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        elif value is None:
            into.pop(name, None)
        else:
            into[name] = value


@asynccontextmanager
async def serve_fake_api() -> AsyncIterator[FakeApi]:
    api = FakeApi()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    api.access.server = f"http://{host}:{port}"
    try:
        yield api
    finally:
        api.end_watches()
        await runner.cleanup()


def make_pod(name: str, namespace: str = "default", **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"schedulerName": "yunikorn", **spec}}
