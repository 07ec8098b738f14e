"""Serves the files of web UIs at the same origin as the API: the dashboard below `/ui/`, and the one in the directory
of the setting `web-root`, such as YuniKorn's own, which works unchanged.

Only regular files inside the directory are served, whose path has no hidden part; symbolic links are followed within
it. A page of a single-page application has an address without a file, and is answered with `index.html`.
"""

import base64
import hashlib
import posixpath
import stat
from collections.abc import Mapping
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path, PurePosixPath
from typing import Final

from yunishard.webservice.calls import Reply
from yunishard.webservice.parameters import entity_tag, is_known

FILE_BYTES_MAX: Final = 32 << 20
"""A larger file counts as missing: files are read as a whole, and no UI has one."""

INDEX: Final = "index.html"

_TYPES: Final[Mapping[str, str]] = {
    **{f".{kind}": f"font/{kind}" for kind in ("otf", "ttf", "woff", "woff2")},
    **{f".{kind}": f"image/{kind}" for kind in ("gif", "jpeg", "png", "webp")},
    **{f".{kind}": f"text/{kind}; charset=utf-8" for kind in ("css", "html")},
    **{f".{kind}": f"application/{kind}; charset=utf-8" for kind in ("json", "xml")},
    ".eot": "application/vnd.ms-fontobject",
    ".ico": "image/x-icon",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".map": "application/json; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
}
"""By suffix; not those of the operating system, which differ from one to the next."""

_LATE_STYLES: Final = base64.b64encode(hashlib.sha256(b"this.media='all'").digest()).decode()
"""The hash of the one inline handler in pages built by Angular: it applies styles that were loaded late."""

_POLICY: Final = (
    f"default-src 'self'; script-src 'self' 'unsafe-hashes' 'sha256-{_LATE_STYLES}'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; font-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self';"
    " frame-ancestors 'none'"
)
"""Styles may be inline: Angular components have some."""

DASHBOARD: Final = Path(__file__).parent / "ui"
"""The directory with the files of the dashboard."""

_DASHBOARD_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The dashboard has no inline scripts or styles, and loads nothing from elsewhere."""

_SAFETY: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",  # a browser may cache it, and revalidates it by its tag
}


def is_api(path: str) -> bool:
    """Whether a path, in any spelling, belongs to the API, even if there is no such route.

    >>> [is_api(path) for path in ("/ws/v1/x", "//WS", "/a/../debug/", "/wsx", "/", "/assets/ws")]
    [True, True, True, False, False, False]
    """
    first = posixpath.normpath("/" + path.strip("/")).lower().split("/")[1]
    return first in ("ws", "debug")


def is_dashboard(path: str) -> bool:
    """Whether a decoded path belongs to the dashboard.

    >>> [is_dashboard(path) for path in ("/ui", "/ui/", "/ui/app.js", "/uis", "/", "/UI/")]
    [True, True, True, False, False, False]
    """
    return path == "/ui" or path.startswith("/ui/")


def serve_file(root: Path, path: str, headers: Mapping[str, str]) -> Reply | None:
    """The file at a decoded path, which begins with a slash, or the index for a page of the application; 304 if the
    client has it, None without a file. Reads files, so call it in a thread. Header names are in lower case.
    """
    found = _find_file(root, path)
    if found is None and _is_page(path, headers.get("accept", "")):
        found = _find_file(root, INDEX)
    return None if found is None else _read_file(found, headers, _POLICY)


def serve_dashboard(path: str, headers: Mapping[str, str]) -> Reply | None:
    """The file of the dashboard at a decoded path, or a redirect from `/ui`; None without a file. Its pages have
    addresses with a fragment, so that it also works below the path prefix of a proxy. Reads files, as above.
    """
    if path == "/ui":
        return Reply(b"", 301, headers={"Location": "ui/"})  # relative, because of the prefix
    found = _find_file(DASHBOARD, path.removeprefix("/ui/"))
    return None if found is None else _read_file(found, headers, _DASHBOARD_POLICY)


def _read_file(found: Path, headers: Mapping[str, str], policy: str) -> Reply | None:
    """The reply with a file; None if it cannot be read."""
    try:
        body = found.read_bytes()
        changed = int(found.stat().st_mtime)
    except OSError:  # it was removed, or must not be read
        return None
    tag = entity_tag(hashlib.sha256(body).hexdigest()[:32])
    kind = _TYPES.get(found.suffix.lower(), "application/octet-stream")
    answer = {
        **_SAFETY,
        "Content-Security-Policy": policy,
        "ETag": tag,
        "Last-Modified": formatdate(changed, usegmt=True),
    }
    return Reply(b"", 304, kind, answer) if _is_current(headers, tag, changed) else Reply(body, 200, kind, answer)


def _find_file(root: Path, path: str) -> Path | None:
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
    except (OSError, RuntimeError):  # there is none, the name is too long, or links form a loop
        return None
    return found if stat.S_ISREG(about.st_mode) and about.st_size <= FILE_BYTES_MAX else None


def _is_hidden(parts: tuple[str, ...]) -> bool:
    """Whether a part begins with a dot, which includes `..`."""
    return any(part.startswith(".") for part in parts)


def _is_page(path: str, accept: str) -> bool:
    """Whether a browser wants a page of the application, not a file that belongs to one."""
    wanted = [one.partition(";")[0].strip().lower() for one in accept.split(",")]
    return "." not in path.rpartition("/")[2] and "text/html" in wanted and not _is_hidden(PurePosixPath(path).parts)


def _is_current(headers: Mapping[str, str], tag: str, changed: int) -> bool:
    """Whether the client has this version; by the tag if the request has one, else by the time."""
    if "if-none-match" in headers:
        return is_known(headers["if-none-match"], tag)
    try:
        return changed <= parsedate_to_datetime(headers["if-modified-since"]).timestamp()
    except (KeyError, ValueError, OverflowError, OSError):  # there is no time, or a malformed one
        return False
