"""Serves the files of a web UI from a directory, at the same origin as the API, so that YuniKorn's own UI works
unchanged.

Only regular files inside the directory are served, whose path has no hidden part; symbolic links are followed within
it. A page of a single-page application has an address without a file, and gets `index.html`.
"""

import base64
import hashlib
import posixpath
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path, PurePosixPath
from typing import Final

from webservice.parameters import entity_tag, is_known

FILE_BYTES_MAX: Final = 32 << 20
"""A larger file is as if it were not there: it is read as a whole, and no UI has one."""

INDEX: Final = "index.html"

_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".eot": "application/vnd.ms-fontobject",
    ".gif": "image/gif",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".map": "application/json; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".otf": "font/otf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".xml": "application/xml; charset=utf-8",
}
"""By the end of the name; not those of the operating system, which differ from one to the next."""

_UNKNOWN_TYPE: Final = "application/octet-stream"

_LATE_STYLES: Final = base64.b64encode(hashlib.sha256(b"this.media='all'").digest()).decode()
"""The one handler that builds of Angular write into the page: it puts styles in force that have been loaded late."""

_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        f"script-src 'self' 'unsafe-hashes' 'sha256-{_LATE_STYLES}'",
        "style-src 'self' 'unsafe-inline'",  # components bring their styles along
        "img-src 'self' data:",
        "font-src 'self' data:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_SAFETY: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",  # may be kept, but is asked for again: the tag says whether it is still the same
}


@dataclass(frozen=True, slots=True)
class Served:
    """A file, or that the asker has it already (304)."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def is_api(path: str) -> bool:
    """Whether a path, however it is written, belongs to the API, be there such a route or not.

    >>> [is_api(path) for path in ("/ws/v1/x", "//WS", "/a/../debug/", "/wsx", "/", "/assets/ws")]
    [True, True, True, False, False, False]
    """
    first = posixpath.normpath("/" + path.strip("/")).lower().split("/")[1]
    return first in ("ws", "debug")


def serve_file(root: Path, path: str, headers: Mapping[str, str]) -> Served | None:
    """What is at a path (decoded, from a slash on); None if nothing is. Reads files, so call it in a thread.

    Header names are in lower case.
    """
    found = _file(root, path)
    if found is None and _is_page(path, headers.get("accept", "")):
        found = _file(root, INDEX)
    if found is None:
        return None
    try:
        body = found.read_bytes()
        changed = found.stat().st_mtime
    except OSError:  # it went, or may not be read: as if it were not there
        return None
    tag = hashlib.sha256(body).hexdigest()[:32]
    told = {
        **_SAFETY,
        "Content-Type": _TYPES.get(found.suffix.lower(), _UNKNOWN_TYPE),
        "ETag": entity_tag(tag),
        "Last-Modified": format_datetime(datetime.fromtimestamp(int(changed), UTC), usegmt=True),
    }
    return Served(304, b"", told) if _is_had(headers, tag, int(changed)) else Served(200, body, told)


def _file(root: Path, path: str) -> Path | None:
    """The regular file at a path, if it lies within the root and no part of its path is hidden."""
    parts = PurePosixPath(path.lstrip("/") or INDEX).parts
    if "\0" in path or _is_hidden(parts):
        return None
    try:
        base = root.resolve(strict=True)
        found = base.joinpath(*parts).resolve(strict=True)
        if not found.is_relative_to(base) or _is_hidden(found.relative_to(base).parts):
            return None
        about = found.stat()
    except (OSError, RuntimeError):  # nothing there, a name that is too long, links that lead to themselves
        return None
    return found if stat.S_ISREG(about.st_mode) and about.st_size <= FILE_BYTES_MAX else None


def _is_hidden(parts: tuple[str, ...]) -> bool:
    """Whether a part begins with a dot; so `..` is out of the question too."""
    return any(part.startswith(".") for part in parts)


def _is_page(path: str, accept: str) -> bool:
    """Whether somebody wants to look at a page of the application, not load a file for one."""
    wanted = [one.partition(";")[0].strip().lower() for one in accept.split(",")]
    return "." not in path.rpartition("/")[2] and "text/html" in wanted and not _is_hidden(PurePosixPath(path).parts)


def _is_had(headers: Mapping[str, str], tag: str, changed: int) -> bool:
    """Whether the asker has this version; the tag decides where there is one."""
    if "if-none-match" in headers:
        return is_known(headers["if-none-match"], tag)
    try:
        return changed <= parsedate_to_datetime(headers["if-modified-since"]).timestamp()
    except (KeyError, ValueError, OverflowError, OSError):  # not said, or no time
        return False
