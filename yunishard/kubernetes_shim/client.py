"""A client of the Kubernetes API: list, watch, create, patch, delete and bind, over HTTP/1.1.

    async with KubernetesClient(find_access(os.environ)) as client:
        pods = await client.list(PODS)
        async for changes in client.watch(PODS, pods.resource_version):
            ...

Answers become the structs of `objects.py`. Requests carry dictionaries: a patch names the fields that it changes, and
an object that was read in part is never written back. All requests can be repeated without another effect, so a request
without an answer is sent again until there is one: an API server that is away delays the caller, and is no error. A
caller that cannot wait uses `asyncio.timeout`.

Not here: where the API server is (`kubeconfig.py`), keeping a list up to date (`reflector.py`).
"""

import asyncio
import errno
import logging
import os
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, Literal, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from yunishard.kubernetes_shim.kubeconfig import Access, AccessError
from yunishard.kubernetes_shim.metrics import ApiMetrics
from yunishard.kubernetes_shim.objects import PODS, Kind, Object, ObjectEvent, decode_object

REQUESTS_PER_S: Final = 1000.0
"""Requests a second, the setting `kubernetes.qps`; more wait for their turn."""

BURST: Final = 1000
"""Requests that may be sent at once after a pause, the setting `kubernetes.burst`."""

CONNECTIONS_MAX: Final = 32
"""Connections for requests other than watches, and thereby requests in flight; more wait for their turn."""

CONNECT_S_MAX: Final = 10.0
"""Seconds that a connection may take; then the request is tried again."""

ANSWER_S_MAX: Final = 60.0
"""Seconds that the API server may be silent before or within an answer; then the request is tried again."""

RETRY_AFTER_S_MAX: Final = 60.0
"""The longest pause that the API server can ask for with `Retry-After`."""

FIRST_PAUSE_S: Final = 0.1
"""Seconds before the first repetition of a request. Each pause is twice the one before."""

LONGEST_PAUSE_S: Final = 15.0
"""The longest pause between repetitions of a request."""

SERVER_ERRORS_MAX: Final = 8
"""Answers 5xx to a request, in succession, after which the error is the caller's: about ten seconds."""

PAGE: Final = 500
"""Objects in one answer to a list."""

WATCH_S: Final = (300, 600)
"""Bounds of the seconds after which the API server ends a watch. Each watch draws its own, so that they end apart."""

SILENCE_S_MAX: Final = 150.0
"""Seconds without a byte after which a watch counts as dead. The API server sends a bookmark each minute."""

READ_BUFFER_BYTES: Final = 1 << 20
"""Bytes of an answer that are received ahead of their use."""

_log = logging.getLogger("kubernetes.client")

_O = TypeVar("_O", bound=Object)

Body = Mapping[str, object]
"""An object or a part of one, as it is sent."""

JsonPatch = Sequence[Mapping[str, object]]
"""The steps of a JSON patch."""

PatchType = Literal["json", "merge", "strategic"]

_CONTENT_TYPES: Final[dict[str, str]] = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}

Event = ObjectEvent | Literal["bookmark"]

_EVENTS: Final[dict[str, Event]] = {
    "ADDED": "added",
    "MODIFIED": "modified",
    "DELETED": "deleted",
    "BOOKMARK": "bookmark",
}


_UNANSWERED: Final = (aiohttp.ClientError, AccessError, TimeoutError, OSError)
"""The exceptions of a request that has no answer."""


class KubernetesError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, reason: str, message: str, request: str = "") -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.request = request
        """The method and URL; empty for an error within a watch."""
        self.status = status
        """The status of HTTP, or the code in a watch, such as 409."""
        self.reason = reason
        """The reason in one word, such as `AlreadyExists`; empty if the answer has none."""
        self.message = message


class Listing(msgspec.Struct, Generic[_O], frozen=True):
    """The objects of a kind at one moment."""

    items: list[_O]
    resource_version: str
    """Where a watch continues."""


class Change(NamedTuple, Generic[_O]):
    """One event of a watch. A bookmark has only a resource version."""

    event: Event
    object: _O


class _PageMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "next": "continue"}):
    resource_version: str = ""
    next: str = ""


class _Page(msgspec.Struct, Generic[_O]):
    metadata: _PageMeta
    items: list[_O]


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    code: int = 0


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


# Pure parts -----------------------------------------------------------------------------------------------------------


class LineSplitter:
    """Splits chunks of bytes into lines. A line may be longer than many chunks."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def split(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without empty ones."""
        head, separator, tail = chunk.rpartition(b"\n")
        if not separator:
            self._rest.append(chunk)
            return []
        lines = b"".join([*self._rest, head]).split(b"\n")
        self._rest = [tail] if tail else []
        return [line for line in lines if line]


def read_error(status: int, data: bytes, request: str = "") -> KubernetesError:
    """Return the error that an answer describes; what is no `Status` of the API, from a proxy perhaps, is quoted."""
    try:
        found = msgspec.json.decode(data, type=_Status)
    except msgspec.DecodeError:
        text = data[:500].decode(errors="replace").strip()
        return KubernetesError(status, "", text or "no text in the answer", request)
    return KubernetesError(status, found.reason, found.message, request)


def build_path(kind: Kind[_O], namespace: str, name: str = "", subresource: str = "") -> str:
    """Return the path of a collection, an object or a part of it; without a namespace, of all namespaces."""
    parts = [kind.path.strip("/")]
    if namespace and kind.namespaced:
        parts += ["namespaces", quote(namespace, safe="")]
    parts += [kind.plural, quote(name, safe=""), subresource]
    return "/" + "/".join(part for part in parts if part)


class RequestRate:
    """Bounds requests in time: `per_s` a second, and up to `burst` at once after a pause."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._interval_s = 1 / per_s
        self._ahead_s = (burst - 1) / per_s
        self._next_at = 0.0

    def reserve(self, now: float) -> float:
        """Return the seconds after which the caller may send its request."""
        at = max(self._next_at, now - self._ahead_s)
        self._next_at = at + self._interval_s
        return max(0.0, at - now)


class Backoff:
    """Pauses between repetitions: each twice the one before, up to a bound, and drawn between half of it and all."""

    def __init__(self, longest_s: float = LONGEST_PAUSE_S) -> None:
        self._longest_s = longest_s
        self._next_s = FIRST_PAUSE_S

    def next_pause(self) -> float:
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._longest_s)
        return pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def reset(self) -> None:
        self._next_s = FIRST_PAUSE_S


# The client -----------------------------------------------------------------------------------------------------------


class KubernetesClient:
    """A client of one API server, in one event loop. Watches have connections of their own."""

    def __init__(
        self,
        access: Access,
        *,
        per_s: float = REQUESTS_PER_S,
        burst: int = BURST,
        connections: int = CONNECTIONS_MAX,
        user_agent: str = "yunishard-k8s",
        metrics: ApiMetrics | None = None,
    ) -> None:
        """`metrics` may be shared by several clients."""
        self.access = access
        self.metrics = metrics or ApiMetrics()
        self._rate = RequestRate(per_s, burst)
        self._connections = connections
        self._user_agent = user_agent
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        self._trouble = ""
        """Why the API server does not answer now; empty if it does."""

    async def close(self) -> None:
        for session in (self._requests, self._watches):
            if session is not None:
                await session.close()

    async def __aenter__(self) -> Self:
        """Read the credentials and prepare connections.

        Raises:
            AccessError: the credentials cannot be read.
        """
        await self.access.refresh(asyncio.get_running_loop().time())
        self._requests = self._make_session(self._connections, ANSWER_S_MAX)
        self._watches = self._make_session(0, SILENCE_S_MAX)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _make_session(self, connections: int, silence_s: float) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ttl_dns_cache=60),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S_MAX, sock_read=silence_s),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": self._user_agent},
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
        )

    # Reading ----------------------------------------------------------------------------------------------------------

    async def list(
        self,
        kind: Kind[_O],
        namespace: str = "",
        *,
        page: int = PAGE,
        field_selector: str = "",
    ) -> Listing[_O]:
        """Return all objects of a kind, read in pages of one moment.

        Raises:
            KubernetesError: the API server refuses the request.
        """
        chosen = {"fieldSelector": field_selector} if field_selector else {}
        path, found = build_path(kind, namespace), list[_O]()
        query: dict[str, str] = {**chosen, "limit": str(page)}
        while True:
            try:
                part = decode_object(await self._send("GET", path, query=query), _Page[kind.struct])  # type: ignore[name-defined]
            except KubernetesError as error:
                if error.status != 410 or "continue" not in query:
                    raise
                query, found = chosen, []  # the pages have expired, as the list took minutes: read it in one
                continue
            found += part.items
            if not part.metadata.next:
                return Listing(found, part.metadata.resource_version)
            query = {**query, "continue": part.metadata.next}

    async def get(self, kind: Kind[_O], namespace: str, name: str) -> _O:
        """Return an object.

        Raises:
            KubernetesError: there is no such object (404), or the API server refuses the request.
        """
        return decode_object(await self._send("GET", build_path(kind, namespace, name)), kind.struct)

    async def watch(
        self, kind: Kind[_O], resource_version: str, namespace: str = "", *, field_selector: str = ""
    ) -> AsyncGenerator[Sequence[Change[_O]]]:
        """Iterate over the changes after a resource version, in the batches in which they arrive, until the API server
        ends the watch.

        Raises:
            KubernetesError: the API server refuses the watch, or ends it with an error; 410 if it no longer has the
                changes since that version.
            ConnectionError: the connection broke, or nothing arrived for SILENCE_S_MAX.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(random.randint(*WATCH_S)),  # noqa: S311 - no secret
        }
        if field_selector:
            query["fieldSelector"] = field_selector
        splitter = LineSplitter()
        try:
            async with self._begin(self._watches, "GET", build_path(kind, namespace), query=query) as response:
                if response.status != 200:
                    await self._check_refused(response.status)
                    error = read_error(response.status, await response.read())
                    if response.status in (401, 429) or response.status >= 500:  # nothing is wrong with the version
                        await asyncio.sleep(_parse_pause(response.headers.get("Retry-After")))
                        raise ConnectionError(str(error))
                    raise error
                async for chunk in response.content.iter_any():
                    if lines := splitter.split(chunk):
                        yield [_read_change(kind.struct, line) for line in lines]
        except _UNANSWERED as error:
            raise ConnectionError(f"watch of {kind.plural}: {describe(error)}") from None

    # Writing ----------------------------------------------------------------------------------------------------------

    async def create(self, kind: Kind[_O], namespace: str, body: Body) -> _O:
        """Create an object with a name.

        Raises:
            KubernetesError: it is there already (409 `AlreadyExists`), or the API server refuses it.
        """
        tries = _Tries()
        try:
            data = await self._send("POST", build_path(kind, namespace), body=body, tries=tries)
        except KubernetesError as error:
            name = msgspec.convert(body["metadata"], dict[str, object]).get("name")
            if error.reason != "AlreadyExists" or not tries.unanswered or not isinstance(name, str):
                raise
            return await self.get(kind, namespace, name)  # an earlier try created it, and its answer was lost
        return decode_object(data, kind.struct)

    async def patch(
        self,
        kind: Kind[_O],
        namespace: str,
        name: str,
        body: Body | JsonPatch,
        *,
        subresource: str = "",
        patch_type: PatchType = "merge",
    ) -> _O:
        """Change some fields of an object, such as its `status` as a subresource. A `resourceVersion` in the metadata
        makes it a precondition (409 `Conflict`).

        Raises:
            KubernetesError: there is no such object (404), or the API server refuses the change.
        """
        path = build_path(kind, namespace, name, subresource)
        data = await self._send("PATCH", path, body=body, content_type=_CONTENT_TYPES[patch_type])
        return decode_object(data, kind.struct)

    async def delete(
        self, kind: Kind[_O], namespace: str, name: str, *, uid: str = "", grace_s: int | None = None
    ) -> None:
        """Delete an object, with its own period of grace unless another one is given. One that is gone, also one that
        has been replaced by another of that name (with `uid`), is no error.

        Raises:
            KubernetesError: the API server refuses the request.
        """
        options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            await self._send("DELETE", build_path(kind, namespace, name), body=options)
        except KubernetesError as error:
            if error.status != 404 and not (uid and error.status == 409):
                raise

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Bind a pod to a node. One that is bound to that node already is no error.

        Raises:
            KubernetesError: the pod is gone (404), is another one or has another node (409), or the API server refuses.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._send("POST", build_path(PODS, namespace, name, "binding"), body=body)
        except KubernetesError as error:
            if error.status != 409:
                raise
            pod = await self.get(PODS, namespace, name)  # an earlier try may have bound it
            if pod.metadata.uid != uid or pod.spec.node_name != node:
                raise error from None

    # Requests ---------------------------------------------------------------------------------------------------------

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Body | JsonPatch | None = None,
        content_type: str = "application/json",
        tries: "_Tries | None" = None,
    ) -> bytes:
        """Send a request until there is an answer; return its body."""
        data = None if body is None else msgspec.json.encode(body)
        tries, backoff = tries or _Tries(), Backoff()
        while True:
            try:
                async with self._begin(self._requests, method, path, query, data, content_type) as response:
                    status, answer, pause = response.status, await response.read(), response.headers.get("Retry-After")
            except _UNANSWERED:
                tries.unanswered += 1
                await asyncio.sleep(backoff.next_pause())
                continue
            if status < 300:
                return answer
            if not tries.may_repeat(status):
                raise read_error(status, answer, f"{method} {self.access.server}{path}")
            if not await self._check_refused(status):
                await asyncio.sleep(_parse_pause(pause) or backoff.next_pause())

    @asynccontextmanager
    async def _begin(
        self,
        session: aiohttp.ClientSession | None,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        data: bytes | None = None,
        content_type: str = "",
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Wait for the request's turn, send it, and give the answer within the block."""
        if session is None:
            raise RuntimeError("this client is not open: use `async with`")
        loop, headers = asyncio.get_running_loop(), {"Content-Type": content_type} if data is not None else {}
        try:
            await self.access.refresh(loop.time())
            if pause_s := self._rate.reserve(loop.time()):
                await asyncio.sleep(pause_s)
            if self.access.token:
                headers["Authorization"] = f"Bearer {self.access.token}"
            begun = loop.time()
            response = await session.request(
                method,
                URL(f"{self.access.server}{path}{f'?{urlencode(query)}' if query else ''}", encoded=True),
                data=data,
                headers=headers,
                ssl=self.access.tls or True,
                server_hostname=self.access.tls_server_name,
                allow_redirects=False,
            )
        except _UNANSWERED as error:
            self.metrics.record(method, 0, 0.0)
            self._log_trouble(describe(error))
            raise
        self.metrics.record(method, response.status, loop.time() - begun)
        self._log_trouble("")
        try:
            yield response
        except BaseException:
            response.close()  # the rest of it may never arrive
            raise
        response.release()

    async def _check_refused(self, status: int) -> bool:
        """Read the credentials again if they were refused; return whether they were."""
        if status == 401:
            await self.access.refresh(asyncio.get_running_loop().time(), refused=True)
        return status == 401

    def _log_trouble(self, trouble: str) -> None:
        if trouble and not self._trouble:
            _log.warning("%s does not answer: %s; trying again until it does", self.access.server, trouble)
        elif self._trouble and not trouble:
            _log.info("%s answers again", self.access.server)
        self._trouble = trouble


@dataclass(slots=True)
class _Tries:
    """The outcomes of a request so far."""

    unanswered: int = 0
    refused: int = 0
    server_errors: int = 0

    def may_repeat(self, status: int) -> bool:
        """Whether to send the request again after this answer."""
        if status == 401:
            self.refused += 1
            return self.refused == 1
        if status >= 500:
            self.server_errors += 1
            return self.server_errors < SERVER_ERRORS_MAX
        return status == 429


def _read_change(kind: type[_O], line: bytes) -> Change[_O]:
    """Decode a line of a watch.

    Raises:
        KubernetesError: it reports an error.
    """
    found = msgspec.json.decode(line, type=_Line)
    if found.type == "ERROR":
        status = msgspec.json.decode(found.object, type=_Status)
        raise KubernetesError(status.code, status.reason, status.message)
    return Change(_EVENTS[found.type], decode_object(found.object, kind))


def _parse_pause(text: str | None) -> float:
    """Return the seconds of a `Retry-After`; 0 without one in seconds."""
    return min(float(text), RETRY_AFTER_S_MAX) if text is not None and text.isdecimal() else 0.0


def describe(error: BaseException) -> str:
    """Describe an error of a connection: the cause, as the texts of aiohttp name objects of the program."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not one of the configured authority ({error.certificate_error})"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        is_local = cause.errno is not None and cause.errno in errno.errorcode  # not one of the name service
        return (os.strerror(cause.errno or 0) if is_local else cause.strerror or str(cause)).lower()
    return str(error) or type(error).__name__


def find_cause(error: BaseException) -> BaseException:
    """Return an exception, or the first one in a group, however deep: one ends all tasks of the group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
