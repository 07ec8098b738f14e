"""What several routes share: parameters, statuses, headers, and what the named segments of paths may be.

Not here: the checks themselves (`webservice/parameters.py`), which decide.
"""

from collections.abc import Mapping
from typing import Final

from common.names import GROUP, QUEUE, RM_ID, USER
from webservice.openapi.operation import Parameter, Schema
from webservice.parameters import ACTIVE, ACTIVE_STATUSES, LIMIT_MAX, PARTITION_STATES, STARTING

NAME: Final[Schema] = {"type": "string", "minLength": 1}

_DECODED_TWICE: Final = "It is decoded twice, so write a `%` or `+` in it as `%25`, `%2B`, and escape that once more."

SEGMENTS: Final[Mapping[str, tuple[str, Schema]]] = {
    "partition": (
        "Its plain name, which means the one that was registered first, or `RM_NAME`, or `[RM]NAME`.",
        {"type": "string", "minLength": 1, "examples": ["default"]},
    ),
    "queue": (
        f"Full path from `root`; case does not matter. {_DECODED_TWICE}",
        {"type": "string", "pattern": f"^{QUEUE.pattern}([.]{QUEUE.pattern})*$"},
    ),
    "application": ("Its id, as it was submitted.", NAME),
    "node": ("Its id, as it was registered.", NAME),
    "user": (f"A user's name. {_DECODED_TWICE}", {"type": "string", "pattern": f"^{USER.pattern}$"}),
    "group": (f"A group's name. {_DECODED_TWICE}", {"type": "string", "pattern": f"^{GROUP.pattern}$"}),
    "state": ("Case does not matter.", {"type": "string", "enum": [*PARTITION_STATES]}),
    "number": ("The number of a version, from 1.", {"type": "integer", "minimum": 1, "maximum": 999_999_999}),
}
"""What each named segment of a path means, and what it may be."""

ONLY_ACTIVE: Final[Schema] = {"type": "string", "enum": [ACTIVE]}

RM: Final = Parameter(
    "rm",
    "Only what this resource manager has; a plain partition name is one of its own then. If empty, everything is meant;"
    " or, where only one RM can be, the one that the setting `default-rm` names, else the one that registered first.",
    {"type": "string", "pattern": f"^({RM_ID.pattern})?$"},
)
STATUS: Final = Parameter(
    "status",
    "Only applications in this state, of those that are active; case does not matter.",
    {"type": "string", "enum": [*ACTIVE_STATUSES, STARTING, ""]},
)
LIMIT: Final = Parameter("limit", "How many entries at most.", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX})
AFTER: Final = Parameter("after", "Where to go on, as the header `Link` says; only with `limit`.")
IF_NONE_MATCH: Final = Parameter("If-None-Match", "An `ETag`: 304 if the answer would be the same.", place="header")
IF_MATCH: Final = Parameter(
    "If-Match",
    "The checksum that must be in force still, or nothing changes (412).",
    {"type": "string", "pattern": '^([*]|"[0-9A-Fa-f]{64}")$'},
    place="header",
)
UNCHANGED: Final[Mapping[int, str]] = {304: "The asker has it already."}
LINK: Final = "The address of the next page; left out at the end."
