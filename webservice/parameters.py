"""What the names and words in a path and a query may be, checked before anybody is asked.

Queue names are decoded a second time, with the rules of query strings, because the first decoding cannot let through
everything that a name may hold. Not here: whether what is named exists.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_plus

from common.names import GROUP, ILLEGAL_QUEUE, QUEUE, USER
from common.quoting import quoted
from webservice.errors import RequestError

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
