"""What the names and words in a path and a query may be, checked before anybody is asked.

Queue names are decoded a second time, with the rules of query strings, because the first decoding cannot let through
everything that a name may hold. Not here: whether what is named exists.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final
from urllib.parse import unquote_plus

from common.durations import seconds
from common.messages import INT64_MAX
from common.names import GROUP, ILLEGAL_QUEUE, QUEUE, USER
from common.quoting import quoted
from webservice.views import RequestError

ACTIVE: Final = "active"
PARTITION_STATES: Final = (ACTIVE, "rejected", "completed")
ACTIVE_STATUSES: Final = ("new", "accepted", "running", "completing", "failing", "resuming")
"""Those that YuniKorn has, and names when it is asked for another one."""

LIMIT_MAX: Final = 10_000
"""The most entries that one page may have."""

STARTING: Final = "starting"
"""That of applications that begin to run in a queue sorted by `stateaware`; YuniKorn has no such status any more."""

_ESCAPE_BYTES: Final = 3
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)


def has_bad_escape(raw_path: str) -> bool:
    """Whether a path as it came, or a part of a query, holds a percent sign without two hexadecimal digits."""
    return _BAD_ESCAPE.search(raw_path) is not None


def decoded(text: str) -> str:
    """The text after the second decoding.

    Raises:
        RequestError: a percent sign without two hexadecimal digits.
    """
    bad = _BAD_ESCAPE.search(text)
    if bad:
        three = bad.group().encode(errors="surrogateescape")[:_ESCAPE_BYTES]
        raise RequestError(400, f"invalid URL escape {quoted(three)}")
    return unquote_plus(text)


def values(query: str) -> dict[str, str]:
    """The values of a query by name; of several with one name the first counts. A part that cannot be decoded, or has a
    semicolon in it, is as if it were not there.
    """
    found: dict[str, str] = {}
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if part and ";" not in part and not has_bad_escape(part):
            found.setdefault(unquote_plus(name), unquote_plus(value))
    return found


def queue_path(text: str) -> str:
    """The path of a queue, in lower case as paths are kept.

    Raises:
        RequestError: it cannot be decoded, or a part of it is not a name.
    """
    return queue_name(decoded(text))


def queue_name(path: str) -> str:
    """The path of a queue that is decoded already, in lower case as paths are kept.

    Raises:
        RequestError: a part of it is not a name.
    """
    if not all(QUEUE.fullmatch(part) for part in path.split(".")):
        raise RequestError(400, ILLEGAL_QUEUE)
    return path.lower()


def user_name(text: str) -> str:
    """The name of a user.

    Raises:
        RequestError: it cannot be decoded, or is no name that a user can have.
    """
    user = decoded(text)
    if not USER.fullmatch(user):
        raise RequestError(400, "Invalid user name")
    return user


def group_name(text: str) -> str:
    """The name of a group.

    Raises:
        RequestError: it cannot be decoded, or is no name that a group can have.
    """
    group = decoded(text)
    if not GROUP.fullmatch(group):
        raise RequestError(400, "Invalid group name")
    return group


def application_state(text: str, allowed: tuple[str, ...]) -> str:
    """The state by which a list of applications is chosen.

    Raises:
        RequestError: it is not one of those allowed.
    """
    state = text.lower()
    if state not in allowed:
        raise RequestError(400, f"Only following application states are allowed: {', '.join(allowed)}")
    return state


def active_status(text: str) -> str:
    """The status by which active applications are narrowed down; empty for all.

    Raises:
        RequestError: there is no such status.
    """
    status = text.lower()
    if status and status not in (*ACTIVE_STATUSES, STARTING):
        raise RequestError(400, f"Only following active statuses are allowed: {','.join(ACTIVE_STATUSES)}")
    return status


def page(query: Mapping[str, str]) -> dict[str, str]:
    """Which part of a list is wanted: `limit`, how many entries at most, and `after`, the key of the one before them.
    Nothing if all of it is.

    Raises:
        RequestError: the limit is no number, or no possible one; or there is only the key.
    """
    text = query.get("limit")
    if text is None and "after" in query:
        raise RequestError(400, "after is for pages of a list: say with limit how many entries one has")
    if text is None:
        return {}
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= LIMIT_MAX:
        raise RequestError(400, f"limit must be a number from 1 to {LIMIT_MAX}")
    return {"limit": str(int(text)), "after": query.get("after", "")}


_CHECKSUM: Final = re.compile(r"[0-9A-Fa-f]{64}")


def entity_tag(checksum: str) -> str:
    """The header value that stands for a checksum."""
    return f'"{checksum}"'


def expected_checksum(if_match: str | None) -> str:
    """The checksum that must be in force for a change; empty when any will do: no header, or `*`.

    Quotes may be left out. What is no checksum is refused and not compared, so that a mistake is told as one.

    Raises:
        RequestError: the header does not hold one checksum.
    """
    if if_match is None or if_match.strip() == "*":
        return ""
    text = if_match.strip()
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if not _CHECKSUM.fullmatch(bare):
        wanted = "one checksum of 64 hexadecimal digits, as the header ETag of GET /ws/v1/config?rm=ID has it, or *"
        raise RequestError(400, f"If-Match is {if_match!r}, but must be {wanted}")
    return bare.upper()


def is_known(if_none_match: str | None, checksum: str) -> bool:
    """Whether the asker already has this version: `*`, or a list of tags that holds it, weak ones too."""
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in if_none_match.split(",")]
    return "*" in tags or checksum in tags


LENGTH_MAX: Final = 500
"""Characters of it that are kept."""


def written(text: bytes | str, query: bytes = b"", *, length_max: int = LENGTH_MAX) -> str:
    """A path or a query or both, or the text of a header, in one line of ASCII."""
    shown = text if isinstance(text, str) else text.decode("latin-1")
    if query:
        shown += "?" + query.decode("latin-1")
    return ascii(shown)[1:-1][:length_max]


_EPOCH: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+ -][0-9]{2}:[0-9]{2})"
)
_NS: Final = 10**9


def moment_ns(text: str, now_ns: int) -> int | None:
    """In Unix nanoseconds; None if the text is none.

    >>> [moment_ns(text, 90 * 10**9) for text in ("-1m", "7.5", "1970-01-01T00:00:01Z", "1970-01-01T01:00:01+01:00")]
    [30000000000, 7500000000, 1000000000, 1000000000]
    """
    if text.startswith("-"):
        ago_s = seconds(text)
        return None if ago_s is None else _bounded(now_ns + round(ago_s * _NS))
    if _EPOCH.fullmatch(text):
        whole, _, fraction = text.partition(".")
        return _bounded(int(whole) * _NS + int(fraction.ljust(9, "0")))
    return _rfc3339_ns(text) if _RFC3339.fullmatch(text) else None


def _rfc3339_ns(text: str) -> int | None:
    """A plus that nobody escaped in a query has become a blank."""
    given = text[:-6] + text[-6:].replace(" ", "+")
    try:
        return _bounded(round(datetime.fromisoformat(given.upper()).timestamp() * 10**6) * 1000)
    except (ValueError, OverflowError):
        return None


def _bounded(at_ns: int) -> int:
    return max(0, min(at_ns, INT64_MAX))
