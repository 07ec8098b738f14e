"""REST client for the commands that show or change a running system.

It connects directly, never through a proxy of the environment, and follows no redirect, because a request is authorized
by its connection or by a token. Times and sizes are bounded. Every failure is one line that names the next step.

With several addresses, requests go to the first one that is ready, and to the others in turn if that fails. A change is
never sent twice: another address is tried only if no connection was made.

Not here: the requests (`administration.py`, `settings.py`).
"""

import argparse
import http
import http.client
import os
import socket
import ssl
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from yunishard.cli.main import CommandFailed, CommandUnusable, suggest
from yunishard.common.text_formats import describe_file_error, format_bytes
from yunishard.sdk.port_probe import FIRST_BYTES, TLS_ALERT, describe_peer

_T = TypeVar("_T")
REST_DEFAULT: Final = "http://127.0.0.1:9080"
ANSWER_MAX_S: Final = 15.0
AGE_MAX_S: Final = 1
"""The oldest table that is shown: what a command changed is in the next list. All who list the same share an answer."""
CONNECT_MAX_S: Final = 3.0
"""Timeout of a connection, if there are further addresses."""
CHANGE_MAX_S: Final = 90.0
"""Timeout of a change, which may start workers for new partitions."""
BODY_BYTES_MAX: Final = 64 * 2**20
LINE_BYTES_MAX: Final = 1 << 20
"""A longer line of a stream is read in pieces, which are no valid lines; an event has a few KiB."""

REST_URL: Final = "YUNISHARD_URL"
"""The variable that names the address of the system, unless an option does. (YUNISHARD_REST is a setting of `up`: where
the web service listens.)"""

TOKEN_FILE: Final = "YUNISHARD_TOKEN_FILE"  # noqa: S105 - its name
"""The variable that names the file with the token, unless an option does."""

TOKEN_BYTES_MAX: Final = 8 << 10
"""The web service refuses larger tokens."""

NOT_FOUND: Final = 404
NO_PARTITION: Final = "Partition not found"
"""The system's message for an unknown partition."""

NOT_READY: Final = frozenset(
    {http.HTTPStatus.BAD_GATEWAY, http.HTTPStatus.SERVICE_UNAVAILABLE, http.HTTPStatus.GATEWAY_TIMEOUT}
)
"""Statuses after which another address may have the answer."""

_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's errors for a peer without TLS; they depend on its version and on the peer."""


class NotHttpError(http.client.HTTPException):
    """The peer does not speak HTTP."""

    def __init__(self, start: bytes) -> None:
        super().__init__(start)
        self.start = start
        """First bytes of its answer."""


_HANGS_UP: Final = (ConnectionResetError, http.client.BadStatusLine, NotHttpError)
"""Errors for plain HTTP to a port with TLS: it closes the connection, or sends an alert."""


class _Response(http.client.HTTPResponse):
    """An answer whose first bytes are checked before it is read as HTTP, which waits for the end of a line."""

    def begin(self) -> None:
        start = self.fp.peek(FIRST_BYTES)[:FIRST_BYTES]
        if start and not start.startswith(b"HTTP/"[: len(start)]):
            raise NotHttpError(start)
        super().begin()


class RequestFailed(CommandFailed):
    """The system refused a request."""

    def __init__(self, text: str, *, code: int, problems: Sequence[object] = ()) -> None:
        super().__init__(text)
        self.code = code
        """Status of HTTP."""
        self.problems = problems
        """Problems of a configuration."""


@contextmanager
def hint_if_missing(find_hint: Callable[[str], str]) -> Iterator[None]:
    """Add a next step to the message of a failure because something does not exist; `find_hint` gets the message."""
    try:
        yield
    except RequestFailed as failed:
        if failed.code != NOT_FOUND:
            raise
        raise RequestFailed(f"{failed}{find_hint(str(failed))}", code=failed.code) from None


class _Unreachable(CommandUnusable):
    """An address does not answer."""

    def __init__(self, text: str, hint: str = "", *, is_sent: bool) -> None:
        super().__init__(text + hint)
        self.text = text
        self.hint = hint
        """The next step."""
        self.is_sent = is_sent
        """Whether the system may have received the request."""


class _Cluster(msgspec.Struct, rename="camel"):
    """The part in use of an entry of `clusters`, one for each partition."""

    partition: str
    rm_build_information: list[dict[str, str]] = []


class _Error(msgspec.Struct):
    """The part in use of the body of a refusal."""

    message: str = ""
    problems: list[dict[str, object]] = []


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    body: bytes
    tag: str = ""
    """The checksum in its `ETag`, if it has one."""
    is_unchanged: bool = False
    """Whether the resource still has the tag of the request, and the body is left out."""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", errors="replace")

    def print(self) -> int:
        """Print the body as it is; return the exit status 0."""
        sys.stdout.write(self.text)
        return 0

    def decode(self, kind: type[_T]) -> _T:
        """Decode the body, a JSON document of this type."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except msgspec.MsgspecError:
            text = "the answer is not the expected JSON: is this the web service of yunishard?"
            raise CommandUnusable(text) from None


def find_url() -> str:
    """Return the address that the environment names; empty if it names none."""
    return os.environ.get(REST_URL, "")


def add_rest(parser: argparse.ArgumentParser, *, has_json: bool = True) -> None:
    """Add the options for the address of the system, for authentication, and for JSON."""
    about = f"the system, or several addresses of it with commas between (default: ${REST_URL}, or {REST_DEFAULT})"
    parser.add_argument("--rest", metavar="URL", default=find_url() or REST_DEFAULT, help=about)
    about = "CA certificates that sign the server's certificate (default: those of this machine)"
    parser.add_argument("--ca", metavar="FILE", help=about)
    add_token_file(parser)
    if has_json:
        parser.add_argument("--json", action="store_true", help="print JSON")


def add_token_file(parser: argparse.ArgumentParser) -> None:
    """Add the option for authentication."""
    about = f"authenticate with this token, made by `yunishard token` (default: ${TOKEN_FILE}, or none)"
    parser.add_argument("--token-file", metavar="FILE", help=about)


class Rest:
    """A running system, at one URL or several with commas between. Without `token_file`, the environment names the
    file, if it names one.
    """

    def __init__(
        self,
        urls: str,
        ca: str | None = None,
        token_file: str | None = None,
        *,
        answer_max_s: float = ANSWER_MAX_S,
    ) -> None:
        self._answer_max_s = answer_max_s
        """Timeout of a request that changes nothing."""
        self._urls = deque(url.strip().rstrip("/") for url in urls.split(","))
        """The one that answered last is the first."""
        self._has_probed = False
        """Whether it has looked for a URL that is ready."""
        self._token = _read_token(token_file)
        self._connect_tls: Callable[[str], http.client.HTTPConnection] | None = None
        for url in map(urlsplit, self._urls):
            if url.scheme not in ("http", "https") or not url.netloc:
                raise CommandUnusable(f"--rest: expected a URL such as {REST_DEFAULT}, got {urls!r}")
        try:
            if any(url.startswith("https:") for url in self._urls):
                self._connect_tls = partial(http.client.HTTPSConnection, context=ssl.create_default_context(cafile=ca))
        except OSError as error:
            raise CommandUnusable(f"--ca {ca}: cannot be used: {describe_file_error(error)}") from None

    @property
    def url(self) -> str:
        """The URL that answered last, or the first one."""
        return self._urls[0]

    @classmethod
    def from_arguments(cls, args: argparse.Namespace) -> Self:
        """Build it from the options of `add_rest`."""
        return cls(args.rest, args.ca, args.token_file)

    def get(self, *path: str, **query: str) -> Answer:
        """Request the resource at this path, given as unquoted segments."""
        return self.send("GET", *path, query=query)

    def poll(self, tag: str, *path: str, **query: str) -> Answer:
        """Request a resource of which the version with this tag is known; `is_unchanged` if that is the present one."""
        return self.send("GET", *path, if_none_match=tag, query=query)

    @contextmanager
    def open_stream(self, *path: str, **query: str) -> Iterator[Iterator[bytes]]:
        """Request an endless answer; it is read line by line while the context is open, until the connection ends.

        Raises:
            CommandUnusable: the system does not answer; the next call tries the next address.
            RequestFailed: it refused the request.
        """
        target, headers = _build_target(path, query), self._build_headers()
        try:
            with self._request("GET", target, b"", headers, keeps_alive=True) as response:
                if response.status >= http.HTTPStatus.MULTIPLE_CHOICES:
                    content = response.read(BODY_BYTES_MAX)
                    raise _build_failure(response.status, content, response.headers.get("Location", ""))
                yield _read_lines(response)
        except _Unreachable:
            self._urls.rotate(-1)
            raise

    def rm_ids(self) -> list[str]:
        """Return the ids of the registered resource managers."""
        clusters = self.get("clusters").decode(list[_Cluster])
        return sorted({build["rmId"] for one in clusters for build in one.rm_build_information if "rmId" in build})

    def partitions(self) -> list[str]:
        """Return the names of the partitions, as paths use them."""
        return [one.partition for one in self.get("clusters").decode(list[_Cluster])]

    def in_partition(self, name: str, *path: str, query: Mapping[str, str], method: str = "POST") -> Answer:
        """Change something in a partition, or read it; for an unknown partition the failure lists the known ones."""
        with self.hint_of_partitions(name):
            return self.send(method, "partition", name, *path, query=query)

    @contextmanager
    def hint_of_partitions(self, name: str) -> Iterator[None]:
        """Add the known partitions to the message of a failure because there is no partition of this name."""

        def find_hint(message: str) -> str:
            if message != NO_PARTITION:
                return ""
            known = self.partitions()
            return f": {name} (partitions: {', '.join(known) or 'none'}){suggest(name, known).replace(':', ';')}"

        with hint_if_missing(find_hint):
            yield

    def send(
        self,
        method: str,
        *path: str,
        body: bytes = b"",
        if_match: str = "",
        if_none_match: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request; any method but GET is a change."""
        target = _build_target(path, query or {})
        headers = self._build_headers(
            {
                "Content-Type": "application/x-yaml" if body else "",
                "If-Match": if_match if if_match in ("", "*") else f'"{if_match}"',
                "If-None-Match": f'"{if_none_match}"' if if_none_match else "",
                "Cache-Control": f"max-age={AGE_MAX_S}" if method == "GET" else "",
            }
        )
        if len(self._urls) > 1 and not self._has_probed:
            self._has_probed = True
            with suppress(RequestFailed):  # none is ready, or the system has no such route
                self.get("readyz")
        unreachable: list[_Unreachable] = []
        not_ready: RequestFailed | None = None
        for _ in range(len(self._urls)):
            try:
                return self._send_once(method, target, body, headers)
            except _Unreachable as failed:
                if method != "GET" and failed.is_sent:
                    raise
                unreachable.append(failed)
            except RequestFailed as failed:
                if method != "GET" or failed.code not in NOT_READY:
                    raise
                not_ready = not_ready or failed
            self._urls.rotate(-1)
        if not_ready is not None:
            raise not_ready
        hints = dict.fromkeys(one.hint for one in unreachable)
        raise CommandUnusable("; ".join(one.text for one in unreachable) + "".join(hints))

    def _send_once(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a request to the first address.

        Raises:
            _Unreachable: it did not answer.
            RequestFailed: it refused the request.
        """
        with self._request(method, target, body, headers) as response:
            content = response.read(BODY_BYTES_MAX + 1)
        if len(content) > BODY_BYTES_MAX:
            raise CommandUnusable(f"the answer is larger than {format_bytes(BODY_BYTES_MAX)}")
        is_unchanged = response.status == http.HTTPStatus.NOT_MODIFIED
        if response.status >= http.HTTPStatus.MULTIPLE_CHOICES and not is_unchanged:
            raise _build_failure(response.status, content, response.headers.get("Location", ""))
        return Answer(content, response.headers.get("ETag", "").removeprefix("W/").strip('"'), is_unchanged)

    @contextmanager
    def _request(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str], *, keeps_alive: bool = False
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request to the first address, and close the connection at the end. With `keeps_alive` there is no time
        limit for reading; the operating system probes whether the peer is still there.

        Raises:
            _Unreachable: it did not answer, or the connection failed while its answer was read.
        """
        address, has_more = urlsplit(self.url), len(self._urls) > 1
        connect = self._connect_tls if address.scheme == "https" and self._connect_tls else http.client.HTTPConnection
        timeout_s = self._answer_max_s if method == "GET" else CHANGE_MAX_S
        is_sent = False
        try:
            with closing(connect(address.netloc)) as connection:
                connection.response_class = _Response
                connection.timeout = min(CONNECT_MAX_S, timeout_s) if has_more else timeout_s
                connection.connect()
                peer = connection.sock
                peer.settimeout(timeout_s)
                is_sent = True
                connection.request(method, f"{address.path}{target}", body, headers)
                response = connection.getresponse()
                if keeps_alive:
                    _probe_peer(peer)
                yield response
        except (OSError, http.client.HTTPException) as error:
            raise self._describe_unreachable(error, is_sent=is_sent, is_change=method != "GET") from None

    def _build_headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self._token}" if self._token else "", **(more or {})}
        return {name: value for name, value in headers.items() if value}

    def _describe_unreachable(self, reason: Exception, *, is_sent: bool, is_change: bool) -> _Unreachable:
        address, hint = urlsplit(self.url).netloc, ""
        unsure = ": whether anything changed is not known, check before you try again" if is_change and is_sent else ""
        if isinstance(reason, ssl.SSLCertVerificationError):
            text = f": its certificate is not trusted ({reason.verify_message}): name who signed it with --ca"
        elif isinstance(reason, ssl.SSLError) and reason.reason in _NO_TLS:
            text = f": there is no TLS at this port: is it http://{address}?"
        elif isinstance(reason, NotHttpError) and not reason.start.startswith(TLS_ALERT):
            text = (
                f": something listens there that is not yunishard's web service: {describe_peer(reason.start)}."
                " Give the REST port, 9080 unless configured otherwise"
            )
        elif isinstance(reason, TimeoutError):
            text, hint = " did not answer in time", unsure
        else:
            cause = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            if isinstance(reason, NotHttpError):
                cause = "the peer does not speak plain HTTP"
            next_step = "is the system running there (`yunishard up`)? If elsewhere, --rest URL"
            if self.url.startswith("http:") and isinstance(reason, _HANGS_UP):
                next_step = f"if TLS is spoken there, --rest https://{address} with --ca FILE; else {next_step}"
            text, hint = f": {' '.join(cause.lower().split())}", unsure or f": {next_step}"
        return _Unreachable(f"{self.url}{text}", hint, is_sent=is_sent)


def _build_target(path: Sequence[str], query: Mapping[str, str]) -> str:
    """The path and the query of a request; parameters without a value are left out."""
    target = f"/ws/v1/{'/'.join(quote(segment, safe='') for segment in path)}"
    parameters = urlencode({name: value for name, value in query.items() if value})
    return f"{target}?{parameters}" if parameters else target


def _probe_peer(connection: socket.socket) -> None:
    """Let reading fail within a minute once the peer is gone without closing the connection."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # Linux; other systems have defaults of their own
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _read_lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while line := response.readline(LINE_BYTES_MAX):
        yield line


def _read_token(file: str | None) -> str:
    """Return the token in the named file; empty if no file is named."""
    source = "--token-file" if file else TOKEN_FILE
    path = file or os.environ.get(TOKEN_FILE, "")
    if not path:
        return ""
    try:
        with Path(path).open("rb") as opened:
            text = opened.read(TOKEN_BYTES_MAX + 1).decode("ascii", errors="replace").strip()
    except OSError as error:
        raise CommandUnusable(f"{source}: {path}: cannot be read: {describe_file_error(error)}") from None
    if not text or len(text) > TOKEN_BYTES_MAX or not text.isascii() or not text.isprintable() or " " in text:
        raise CommandUnusable(f"{source}: {path}: holds no token: `yunishard token USER > {path}` makes one")
    return text


def _build_failure(code: int, body: bytes, location: str) -> RequestFailed:
    """Build the failure from the system's message, or from the location that a redirect names."""
    try:
        error = msgspec.json.decode(body, type=_Error)
    except msgspec.MsgspecError:
        error = _Error(message=body.decode("utf-8", errors="replace"))  # plain text
    text = error.message.strip()
    if code == http.HTTPStatus.UNAUTHORIZED:
        how = f"--token-file FILE or {TOKEN_FILE} (`yunishard token USER > FILE` makes one)"
        text = f"{text.partition('. ')[0]}: authenticate with {how}"
    if code == http.HTTPStatus.PRECONDITION_FAILED:
        text += ": it was changed meanwhile; check it (`yunishard config get`), then try again"
    if location:
        text = f"it is at {location}: name that address with --rest"
    return RequestFailed(" ".join(text.split()) or f"refused with status {code}", code=code, problems=error.problems)
