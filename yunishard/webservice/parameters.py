"""Parses and checks the values in a request: path segments, query parameters, conditional headers, times.

The parameters that several routes share are declared beside the functions that parse them, so that the OpenAPI document
and the checks stay together. Queue, user and group names are percent-decoded twice: the first decoding cannot produce
every character that a name may have. Whether the named thing exists is decided elsewhere.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, Union
from urllib.parse import unquote_plus

from yunishard.common.messages.kinds import INT64_MAX
from yunishard.common.names import GROUP, HOST_NAME, ILLEGAL_QUEUE, QUEUE, RM_ID, USER
from yunishard.common.text_formats import parse_duration, quote
from yunishard.webservice.views import RequestError

Json = Union[Mapping[str, "Json"], Sequence["Json"], str, int, float, bool, None]  # noqa: UP007 - refers to itself
Schema = Mapping[str, Json]
"""A JSON schema, as OpenAPI 3.1 uses it."""

ANY_TEXT: Final[Schema] = {"type": "string"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or request header, as the OpenAPI document describes it."""

    name: str
    description: str
    schema: Schema = field(default_factory=lambda: ANY_TEXT)
    place: Literal["query", "header"] = "query"
    required: bool = False


# Values of a query ----------------------------------------------------------------------------------------------------

LOG_LENGTH_MAX: Final = 500
"""Characters of a value from the network that a log line has."""

_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)


def has_bad_escape(raw_path: str) -> bool:
    """Whether an undecoded path or query part contains a percent sign without two hexadecimal digits."""
    return _BAD_ESCAPE.search(raw_path) is not None


def decode_segment(text: str) -> str:
    """Decode a path segment a second time.

    Raises:
        RequestError: it contains a percent sign without two hexadecimal digits.
    """
    bad = _BAD_ESCAPE.search(text)
    if bad:
        three = bad.group().encode(errors="surrogateescape")[:3]
        raise RequestError(400, f"invalid URL escape {quote(three)}")
    return unquote_plus(text)


def parse_query(query: str) -> dict[str, str]:
    """The values of a query by name. The first of several values with one name counts. A part that cannot be decoded
    or contains a semicolon is ignored.
    """
    found: dict[str, str] = {}
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if part and ";" not in part and not has_bad_escape(part):
            found.setdefault(unquote_plus(name), unquote_plus(value))
    return found


def escape_for_log(text: bytes | str, query: bytes = b"", *, length_max: int = LOG_LENGTH_MAX) -> str:
    """A path, a query, both, or a header value as one line of ASCII, so that no client can forge log lines."""
    shown = text if isinstance(text, str) else text.decode("latin-1")
    if query:
        shown += "?" + query.decode("latin-1")
    return ascii(shown)[1:-1][:length_max]


def whole_number(text: str, number_max: int, error: str) -> int:
    """The whole number from 1 to this one in a text.

    Raises:
        RequestError: there is none; with this error.
    """
    if not re.fullmatch(r"[0-9]{1,9}", text) or not 1 <= int(text) <= number_max:
        raise RequestError(400, error)
    return int(text)


SHOWN_MAX: Final = 64
"""Characters of a refused value that an error repeats."""


def declare_flag(name: str, description: str) -> Parameter:
    """Declare a query parameter that is `true` or `false`, which is the default."""
    return Parameter(name, description, {"type": "boolean", "default": False})


def read_flag(query: Mapping[str, str], name: str) -> bool:
    """The value of a parameter of `declare_flag`.

    Raises:
        RequestError: it is neither `true` nor `false`.
    """
    value = query.get(name, "false")
    if value not in ("true", "false"):
        raise RequestError(400, f"{name} is {value[:SHOWN_MAX]!r}, expected true or false")
    return value == "true"


# Names ----------------------------------------------------------------------------------------------------------------

_DECODED_TWICE: Final = "It is decoded twice: write `%` and `+` as `%25` and `%2B`, and escape those once more."
_NAME: Final[Schema] = {"type": "string", "minLength": 1}
VERSION_NUMBER: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 999_999_999}

ACTIVE: Final = "active"
PARTITION_STATES: Final = (ACTIVE, "rejected", "completed")
ACTIVE_STATUSES: Final = ("new", "accepted", "running", "completing", "failing", "resuming")
"""YuniKorn's statuses, which it lists in the error about an unknown one."""

STARTING: Final = "starting"
"""The status of applications that start in a queue sorted by `stateaware`; current YuniKorn versions lack it."""

SEGMENTS: Final[Mapping[str, tuple[str, Schema]]] = {
    "partition": (
        "Its plain name, which means the partition that was registered first, or `RM_NAME`, or `[RM]NAME`.",
        {"type": "string", "minLength": 1, "examples": ["default"]},
    ),
    "queue": (
        f"Full path from `root`; case does not matter. {_DECODED_TWICE}",
        {"type": "string", "pattern": f"^{QUEUE.pattern}([.]{QUEUE.pattern})*$"},
    ),
    "application": ("The application ID, as submitted.", _NAME),
    "ask": ("The allocation key of the ask, as submitted.", _NAME),
    "node": ("The node ID, as registered.", _NAME),
    "user": (f"The name of a user. {_DECODED_TWICE}", {"type": "string", "pattern": f"^{USER.pattern}$"}),
    "group": (f"The name of a group. {_DECODED_TWICE}", {"type": "string", "pattern": f"^{GROUP.pattern}$"}),
    "state": ("Case does not matter.", {"type": "string", "enum": [*PARTITION_STATES]}),
    "rm": ("The ID of a resource manager.", {"type": "string", "pattern": f"^{RM_ID.pattern}$"}),
    "host": ("The name of a host.", {"type": "string", "pattern": f"^{HOST_NAME.pattern}$"}),
    "number": ("The number of a version, from 1.", VERSION_NUMBER),
}
"""The meaning and the schema of each named path segment."""

RM: Final = Parameter(
    "rm",
    "Only what this resource manager has; a plain partition name then means one of its partitions. If empty: every RM;"
    " or, where only one RM can be meant, the RM that the setting `default-rm` names, else the one that registered"
    " first.",
    {"type": "string", "pattern": f"^({RM_ID.pattern})?$"},
)
_STATUS: Final[Schema] = {"type": "string", "enum": [*ACTIVE_STATUSES, STARTING, ""]}
STATUS: Final = Parameter("status", "Only active applications in this state; case does not matter.", _STATUS)


def queue_path(text: str) -> str:
    """The path of a queue from a path segment, in lower case.

    Raises:
        RequestError: it cannot be decoded, or a part of it is not a valid queue name.
    """
    return queue_name(decode_segment(text))


def queue_name(path: str) -> str:
    """The path of a queue from decoded text, in lower case.

    Raises:
        RequestError: a part of it is not a valid queue name.
    """
    if not all(QUEUE.fullmatch(part) for part in path.split(".")):
        raise RequestError(400, ILLEGAL_QUEUE)
    return path.lower()


def principal_name(kind: Literal["user", "group"], text: str) -> str:
    """The name of a user or group.

    Raises:
        RequestError: it cannot be decoded, or is not a valid name.
    """
    name = decode_segment(text)
    if not (USER if kind == "user" else GROUP).fullmatch(name):
        raise RequestError(400, f"Invalid {kind} name")
    return name


def application_state(text: str, allowed: tuple[str, ...]) -> str:
    """The state that selects a list of applications.

    Raises:
        RequestError: it is not one of those allowed.
    """
    state = text.lower()
    if state not in allowed:
        raise RequestError(400, f"Only following application states are allowed: {', '.join(allowed)}")
    return state


def active_status(text: str) -> str:
    """The status that filters active applications; empty for all.

    Raises:
        RequestError: there is no such status.
    """
    status = text.lower()
    if status and status not in (*ACTIVE_STATUSES, STARTING):
        raise RequestError(400, f"Only following active statuses are allowed: {','.join(ACTIVE_STATUSES)}")
    return status


# Pages of lists -------------------------------------------------------------------------------------------------------

LIMIT_MAX: Final = 10_000
"""The most entries of one page."""

LIMIT: Final = Parameter("limit", "How many entries at most.", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX})
AFTER: Final = Parameter("after", "Where to continue, as in the header `Link`; only with `limit`.")


def page(query: Mapping[str, str]) -> dict[str, str]:
    """The requested page of a list: `limit`, the most entries, and `after`, the key of the entry before them. Empty for
    the whole list.

    Raises:
        RequestError: the limit is not a number in range, or `after` comes without it.
    """
    text = query.get("limit")
    if text is None and "after" in query:
        raise RequestError(400, "after is for pages of a list: say with limit how many entries one has")
    if text is None:
        return {}
    limit = whole_number(text, LIMIT_MAX, f"limit must be a number from 1 to {LIMIT_MAX}")
    return {"limit": str(limit), "after": query.get("after", "")}


# Conditional requests -------------------------------------------------------------------------------------------------

IF_NONE_MATCH: Final = Parameter("If-None-Match", "An `ETag`: 304 if the answer would be the same.", place="header")
_IF_MATCH: Final[Schema] = {"type": "string", "pattern": '^([*]|"[0-9A-Fa-f]{64}")$'}
IF_MATCH: Final = Parameter(
    "If-Match", "The checksum that must be in force, or nothing changes (412).", _IF_MATCH, place="header"
)

_CHECKSUM: Final = re.compile(r"[0-9A-Fa-f]{64}")


def entity_tag(checksum: str) -> str:
    """The header value that stands for a checksum. It names the version, so a compressed body has the same tag."""
    return f'"{checksum}"'


def expected_checksum(if_match: str | None) -> str:
    """The checksum that must be in force for a change; empty without a precondition: no header, or `*`. The quotes are
    optional.

    Raises:
        RequestError: the header does not contain one checksum. It is not compared, so the caller learns of the mistake.
    """
    if if_match is None or if_match.strip() == "*":
        return ""
    text = if_match.strip()
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    if not _CHECKSUM.fullmatch(bare):
        wanted = "one checksum of 64 hexadecimal digits, as the header ETag of GET /ws/v1/config?rm=ID has it, or *"
        raise RequestError(400, f"If-Match is {if_match!r}, but must be {wanted}")
    return bare.upper()


def is_known(if_none_match: str | None, own_tag: str | None) -> bool:
    """Whether `If-None-Match` names this tag: `*`, or a list that contains it. `W/` does not count, nor do the quotes
    of a strong tag.
    """
    if if_none_match is None or own_tag is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return not tags.isdisjoint({"*", own_tag.removeprefix("W/"), own_tag.strip('"')})


# Times ----------------------------------------------------------------------------------------------------------------

_EPOCH: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+ -][0-9]{2}:[0-9]{2})"
)
_NS: Final = 10**9


def moment_ns(text: str, now_ns: int) -> int | None:
    """A time in Unix nanoseconds, from RFC 3339, seconds since the epoch, or a duration before now; None if the text is
    none of these.

    >>> [moment_ns(text, 90 * 10**9) for text in ("-1m", "7.5", "1970-01-01T00:00:01Z", "1970-01-01T01:00:01+01:00")]
    [30000000000, 7500000000, 1000000000, 1000000000]
    """
    if text.startswith("-") and (ago_s := parse_duration(text)) is not None:
        at_ns = now_ns + round(ago_s * _NS)
    elif _EPOCH.fullmatch(text):
        whole, _, fraction = text.partition(".")
        at_ns = int(whole) * _NS + int(fraction.ljust(9, "0"))
    elif _RFC3339.fullmatch(text):
        given = text[:-6] + text[-6:].replace(" ", "+")  # a plus sign that the client did not escape is a blank here
        try:
            at_ns = round(datetime.fromisoformat(given.upper()).timestamp() * 10**6) * 1000
        except (ValueError, OverflowError):
            return None
    else:
        return None
    return max(0, min(at_ns, INT64_MAX))
