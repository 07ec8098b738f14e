"""What is said about the routes that read and change configurations (`webservice/config_routes.py`)."""

from typing import Final

from common.names import QUEUE
from common.rest_records import ChangedView, VersionView
from webservice.openapi.operation import (
    ANY_OBJECT,
    ANY_TEXT,
    BINARY,
    BYTES,
    TEXT,
    YAML,
    Area,
    Content,
    Operation,
    Parameter,
    Schema,
)
from webservice.openapi.words import IF_MATCH, IF_NONE_MATCH, RM, UNCHANGED
from webservice.views import SettingView, VerdictView

_NUMBER: Final = Parameter(
    "version",
    "The number of the earlier version.",
    {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    required=True,
)
_FORCE: Final = Parameter(
    "force",
    "Whether to overwrite the watched file even if it has an edit that is not in force.",
    {"type": "boolean", "default": False},
)
_CHANGING: Final = {
    409: "It is not possible now, the watched file has an edit that is not in force (see `force`), or there are "
    "several RMs and neither `rm` nor the setting `default-rm` names one.",
    412: "Another configuration is in force than `If-Match` says.",
    413: "The body is too large.",
}
_QUEUE: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {"name": {"type": ["string", "number", "boolean"], "pattern": f"^{QUEUE.pattern}$"}},
    "required": ["name"],
}
_PARTITION: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {
        "name": {"type": ["string", "number", "boolean", "null"]},
        "queues": {"type": "array", "items": _QUEUE},
    },
    "required": ["queues"],
}
_CONFIGURATION: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {"partitions": {"type": ["array", "null"], "items": _PARTITION}},
}
"""As lenient as YAML is: any scalar is a name, and nothing at all is a configuration without partitions."""

_BODY: Final = (Content(ANY_TEXT, TEXT), Content(_CONFIGURATION, YAML), Content(BYTES, BINARY))
"""The body is YAML whatever type it is sent with. Text comes first and bytes are offered because clients that
generators make can send those, and not YAML: openapi-generator takes the first type that a body may have,
openapi-python-client leaves out a route unless a body may be bytes (or JSON).
"""

_CHANGE: Final = Operation(
    "Give a resource manager another configuration",
    (Content(ChangedView),),
    says="For all its partitions or none. All that is wrong with it is listed in `problems`.",
    parameters=(RM, _FORCE, IF_MATCH),
    body=_BODY,
    statuses=_CHANGING,
    headers={"ETag": "The checksum of what is in force now."},
)

CONFIGURATION: Final = Area(
    "configuration",
    "The configuration of each resource manager, and what the system was told when it started.",
    {
        "GET /ws/v1/config": Operation(
            "The configuration in force",
            (Content(ANY_OBJECT, YAML), Content(ANY_OBJECT)),
            says="JSON if `Accept` is exactly `application/json`, else YAML. As it was understood; with `rm`, in YAML,"
            " as it was written.",
            parameters=(RM, IF_NONE_MATCH),
            statuses={**UNCHANGED, 500: "What is in force cannot be read."},
            headers={"ETag": "The checksum of the text, with `rm`."},
        ),
        "PUT /ws/v1/config": _CHANGE,
        "POST /ws/v1/config": _CHANGE,
        "GET /ws/v1/config/default": Operation(
            "The configuration of resource managers that send none, as it was written",
            (Content(_CONFIGURATION, YAML),),
            says="The text of the watched file, the last that could be used, or the built-in queues.",
            parameters=(IF_NONE_MATCH,),
            statuses=UNCHANGED,
            headers={"ETag": "The checksum of the text."},
        ),
        "GET /ws/v1/config/history": Operation(
            "The versions of a configuration, the newest first",
            (Content(list[VersionView]),),
            parameters=(RM,),
        ),
        "GET /ws/v1/config/version/{number}": Operation(
            "A version of a configuration, as it was written",
            (Content(_CONFIGURATION, YAML),),
            parameters=(RM, IF_NONE_MATCH),
            statuses=UNCHANGED,
            headers={"ETag": "The checksum of the text."},
        ),
        "POST /ws/v1/config/rollback": Operation(
            "Go back to an earlier configuration, as a new version",
            (Content(ChangedView),),
            parameters=(_NUMBER, RM, _FORCE, IF_MATCH),
            statuses=_CHANGING,
            headers={"ETag": "The checksum of what is in force now."},
        ),
        "POST /ws/v1/validate-conf": Operation(
            "Whether a configuration would be taken; nothing changes",
            (Content(VerdictView),),
            body=(Content(ANY_TEXT, TEXT), Content({}, YAML), Content(BYTES, BINARY)),
            body_required=False,
            statuses={413: "The body is too large."},
        ),
        "GET /ws/v1/settings": Operation(
            "What the system was told when it started, and what resource managers have set",
            (Content(list[SettingView]),),
        ),
    },
)
