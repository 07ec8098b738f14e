"""Asking a running system over REST, for the commands that look at it or change it.

It is asked directly, never through a proxy of the environment: who may change what is decided by who opened the
connection, or by a token, which is not passed on to another address. Times and sizes are bounded. Every failure is one
line that says what to do next.

Not here: what is asked (`config.py`, `app.py`, `settings.py`).
"""

import argparse
import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from yunishard.commands.console import REFUSED, UNUSABLE
from yunishard.port_probe import FIRST_BYTES, TLS_ALERT, describe_peer

REST_DEFAULT: Final = "http://127.0.0.1:9080"
ANSWER_MAX_S: Final = 15.0
CHANGE_MAX_S: Final = 90.0
"""A change may take longer than a question: the core starts workers for new partitions meanwhile."""
BODY_BYTES_MAX: Final = 64 * 2**20

TOKEN_FILE: Final = "YUNISHARD_TOKEN_FILE"  # noqa: S105 - its name
"""The variable that names the file with the token, unless an option does."""

TOKEN_BYTES_MAX: Final = 8 << 10
"""Longer ones are taken nowhere."""

UNKNOWN: Final = 401
NOT_FOUND: Final = 404
NO_PARTITION: Final = "Partition not found"
"""What the system says of a partition that it does not have."""
PRECONDITION_FAILED: Final = 412

_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
"""What OpenSSL calls an answer that is not TLS, depending on its version and the answer."""

REST_PORT: Final = "the REST port, 9080 unless configured otherwise"


class NotHttpError(http.client.HTTPException):
    """Something answered, but not in HTTP; with its first bytes."""

    def __init__(self, start: bytes) -> None:
        super().__init__(start)
        self.start = start


_HUNG_UP: Final = (ConnectionResetError, http.client.BadStatusLine, NotHttpError)
"""How a port that speaks TLS takes plain HTTP: it closes the connection, or answers what is no HTTP."""


class _Response(http.client.HTTPResponse):
    """An answer whose first bytes are looked at before it is read as HTTP, which would wait for the end of a line."""

    def begin(self) -> None:
        start = self.fp.peek(FIRST_BYTES)[:FIRST_BYTES]
        if start and not start.startswith(b"HTTP/"[: len(start)]):
            raise NotHttpError(start)
        super().begin()


class _Connection(http.client.HTTPConnection):
    response_class = _Response


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Connect; called by the opener."""
        return self.do_open(_Connection, req)


class Failed(Exception):
    """It did not come to what was asked for; the text is for people, `status` what to exit with."""

    def __init__(
        self, text: str, *, status: int = REFUSED, code: int = 0, problems: list[dict[str, object]] | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        """Of HTTP; 0 if there was no answer."""
        self.problems = problems or []
        """What is wrong with a configuration, as the system lists it."""

    def with_hint(self, hint: str) -> "Failed":
        """The same with what to do next."""
        return Failed(f"{self}{hint}", status=self.status, code=self.code, problems=self.problems)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the system said."""

    body: bytes
    tag: str = ""
    """The checksum in its `ETag`, if it has one."""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", errors="replace")

    def as_json(self) -> object:
        """Decode the body."""
        try:
            found: object = json.loads(self.body)
        except ValueError:
            raise Failed("the answer is no JSON: is this the web service of yunishard?", status=UNUSABLE) from None
        return found

    def as_object(self) -> dict[str, object]:
        """Decode the body; empty unless it is a JSON object."""
        found = self.as_json()
        return found if isinstance(found, dict) else {}

    def as_list(self) -> list[dict[str, object]]:
        """Decode the body; the objects of a JSON list, empty unless it is one."""
        found = self.as_json()
        return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def add_rest(parser: argparse.ArgumentParser) -> None:
    """Describe where the system is."""
    parser.add_argument("--rest", metavar="URL", default=REST_DEFAULT, help=f"the system (default: {REST_DEFAULT})")
    parser.add_argument("--ca", metavar="FILE", help="who signed its certificate (default: those this machine trusts)")
    add_token_file(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_token_file(parser: argparse.ArgumentParser) -> None:
    """Describe what says who asks."""
    about = f"who asks, as `yunishard token` makes it (default: ${TOKEN_FILE}, or none)"
    parser.add_argument("--token-file", metavar="FILE", help=about)


class Rest:
    """A running system. Without a file of a token that of the environment counts, if there is one."""

    def __init__(self, url: str, ca: str | None = None, token_file: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._token = _token(token_file)
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).netloc:
            raise Failed(f"--rest: expected a URL such as {REST_DEFAULT}, got {url!r}", status=UNUSABLE)
        self._open = _opener(self.url, ca)

    def get(self, *path: str, **query: str) -> Answer:
        """Ask for what is at this path, whose segments are given as they are."""
        return self._ask("GET", path, query, timeout_s=ANSWER_MAX_S)

    def rm_ids(self) -> list[str]:
        """The resource managers that are registered."""
        found = [cluster.get("rmBuildInformation") for cluster in self.get("clusters").as_list()]
        builds = [build for one in found if isinstance(one, list) for build in one]
        return sorted({str(build.get("rmId", "")) for build in builds if isinstance(build, dict)} - {""})

    def partitions(self) -> list[str]:
        """The partitions, by the names that paths take."""
        return [str(one["partition"]) for one in self.get("clusters").as_list() if "partition" in one]

    def in_partition(self, name: str, *path: str, query: Mapping[str, str]) -> Answer:
        """Have something changed in a partition; where there is none of that name, the failure says which there are."""
        try:
            return self.change("POST", "partition", name, *path, query=query)
        except Failed as failed:
            if failed.code == NOT_FOUND and str(failed) == NO_PARTITION:
                raise failed.with_hint(f": {name} (there are {', '.join(self.partitions()) or 'none'})") from None
            raise

    def change(
        self, method: str, *path: str, body: bytes = b"", if_match: str = "", query: Mapping[str, str] | None = None
    ) -> Answer:
        """Have something changed."""
        headers = {"Content-Type": "application/x-yaml"} if body else {}
        if if_match:
            headers["If-Match"] = if_match if if_match == "*" else f'"{if_match}"'
        return self._ask(method, path, query or {}, timeout_s=CHANGE_MAX_S, body=body, headers=headers)

    def _ask(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, str],
        *,
        timeout_s: float,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        where = f"{self.url}/ws/v1/{'/'.join(quote(segment, safe='') for segment in path)}"
        asked = {name: value for name, value in query.items() if value}
        url = f"{where}?{urlencode(asked)}" if asked else where
        request = urllib.request.Request(url, data=body, method=method, headers=dict(headers or {}))  # noqa: S310 - http(s) only, see above
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with self._open(request, timeout_s) as response:
                return Answer(_bounded(response), _tag(response.headers.get("ETag")))
        except urllib.error.HTTPError as error:
            with error:
                _refuse(error.code, _bounded(error))
        except urllib.error.URLError as error:
            raise self._unreachable(error.reason, method) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error, method) from None

    def _unreachable(self, reason: object, method: str) -> Failed:
        if isinstance(reason, ssl.SSLCertVerificationError):
            text = f"{self.url}: its certificate is not trusted ({reason.verify_message}): name who signed it with --ca"
        elif isinstance(reason, ssl.SSLError) and reason.reason in _NO_TLS:
            text = f"{self.url}: there is no TLS at this port: is it http://{urlsplit(self.url).netloc}?"
        elif isinstance(reason, NotHttpError) and not reason.start.startswith(TLS_ALERT):
            what = describe_peer(reason.start)
            text = f"{self.url}: something listens there that is not yunishard's web service: {what}. Give {REST_PORT}"
        elif isinstance(reason, TimeoutError):
            unsure = "" if method == "GET" else ": whether anything changed is not known, look before you try again"
            text = f"{self.url} did not answer in time{unsure}"
        else:
            said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            if isinstance(reason, NotHttpError):
                said = "what answers there does not speak plain HTTP"
            said = " ".join(said.lower().split())
            next_step = "is the system running there (`yunishard up`)? If elsewhere, --rest URL"
            if self.url.startswith("http:") and isinstance(reason, _HUNG_UP):
                address = urlsplit(self.url).netloc
                next_step = f"if TLS is spoken there, --rest https://{address} with --ca FILE; else {next_step}"
            text = f"{self.url}: {said}: {next_step}"
        return Failed(text, status=UNUSABLE)


def _token(file: str | None) -> str:
    """The token in a file; empty if none is named."""
    source = "--token-file" if file else TOKEN_FILE
    path = file or os.environ.get(TOKEN_FILE, "")
    if not path:
        return ""
    try:
        with Path(path).open("rb") as opened:
            text = opened.read(TOKEN_BYTES_MAX + 1).decode("ascii", errors="replace").strip()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Failed(f"{source}: {path}: cannot be read: {reason}", status=UNUSABLE) from None
    if not text or len(text) > TOKEN_BYTES_MAX or not text.isascii() or not text.isprintable() or " " in text:
        raise Failed(f"{source}: {path}: holds no token: `yunishard token USER > {path}` makes one", status=UNUSABLE)
    return text


def _opener(url: str, ca: str | None) -> Callable[[urllib.request.Request, float], http.client.HTTPResponse]:
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _HttpHandler()]
    if url.startswith("https:"):
        try:
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)))
        except OSError as error:
            raise Failed(f"--ca {ca}: cannot be used: {(error.strerror or str(error)).lower()}", status=2) from None
    opener = urllib.request.build_opener(*handlers)

    def opened(request: urllib.request.Request, timeout_s: float) -> http.client.HTTPResponse:
        response: http.client.HTTPResponse = opener.open(request, timeout=timeout_s)
        return response

    return opened


def _bounded(response: http.client.HTTPResponse | urllib.error.HTTPError) -> bytes:
    body: bytes = response.read(BODY_BYTES_MAX + 1)
    if len(body) > BODY_BYTES_MAX:
        raise Failed(f"the answer is larger than {BODY_BYTES_MAX:,} bytes", status=UNUSABLE)
    return body


def _tag(header: str | None) -> str:
    return (header or "").removeprefix("W/").strip('"')


def _refuse(status: int, body: bytes) -> NoReturn:
    """Raise what the system said, in its own words."""
    text, problems = body.decode("utf-8", errors="replace").strip(), []
    try:
        found = json.loads(body)
        if isinstance(found, dict):
            text = str(found.get("message", text))
            problems = [problem for problem in found.get("problems", []) if isinstance(problem, dict)]
    except ValueError:
        pass  # plain text is as good
    if status == UNKNOWN:
        how = f"--token-file FILE or {TOKEN_FILE} (`yunishard token USER > FILE` makes one)"
        text = f"{text.partition('. ')[0]}: say who you are by {how}"
    if status == PRECONDITION_FAILED:
        text += ": somebody has changed it meanwhile; look at it (`yunishard config get`), then try again"
    raise Failed(" ".join(text.split()) or f"refused with status {status}", code=status, problems=problems)
