"""What is said about the routes that are about one partition (`webservice/partition_routes.py`)."""

from collections.abc import Mapping
from typing import Final

from common.rest_views import ApplicationView, GroupView, NodeView, PreemptionView, QueueView, RuleView, UserView
from webservice.openapi.operation import Area, Content, Operation, Parameter, Schema
from webservice.openapi.words import AFTER, IF_NONE_MATCH, LIMIT, LINK, ONLY_ACTIVE, RM, STATUS, UNCHANGED

_PARTITION: Final = "GET /ws/v1/partition/{partition}"
_TAG: Final = {"ETag": "Stays the same while nothing in the partition changes."}
_ANY_NAME: Final = "While there is one partition any name means it."


def _asked(
    summary: str,
    shown: type[object],
    *parameters: Parameter,
    says: str = "",
    segments: Mapping[str, Schema] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Operation:
    """A question to a partition."""
    return Operation(
        summary,
        (Content(shown),),
        says=says,
        parameters=(*parameters, RM, IF_NONE_MATCH),
        segments=segments or {},
        statuses=UNCHANGED,
        headers={**_TAG, **(headers or {})},
    )


def _listed(
    summary: str,
    shown: type[object],
    *parameters: Parameter,
    says: str = "",
    segments: Mapping[str, Schema] | None = None,
) -> Operation:
    """A list, of which a page may be asked for."""
    return _asked(summary, shown, *parameters, LIMIT, AFTER, says=says, segments=segments, headers={"Link": LINK})


PARTITIONS: Final = Area(
    "partition",
    "One partition: its queues, applications, nodes, users and groups.",
    {
        f"{_PARTITION}/placementrules": _asked(
            "The placement rules, in the order in which they are tried", list[RuleView]
        ),
        f"{_PARTITION}/queues": _asked("All queues, as a tree from the root", QueueView),
        f"{_PARTITION}/queue/{{queue}}": _asked(
            "One queue",
            QueueView,
            Parameter("subtree", "With it, whatever its value, all queues below are shown too."),
        ),
        f"{_PARTITION}/queue/{{queue}}/applications": _listed(
            "The applications in a queue", list[ApplicationView], says="None in a queue that has queues below it."
        ),
        f"{_PARTITION}/queue/{{queue}}/applications/{{state}}": _listed(
            "The active applications in a queue", list[ApplicationView], STATUS, segments={"state": ONLY_ACTIVE}
        ),
        f"{_PARTITION}/queue/{{queue}}/application/{{application}}": _asked(
            "One active application of a queue", ApplicationView
        ),
        f"{_PARTITION}/applications/{{state}}": _listed(
            "The applications that are active, rejected or completed",
            list[ApplicationView],
            Parameter(STATUS.name, f"{STATUS.says} Of no account for others, whatever it is."),
        ),
        f"{_PARTITION}/application/{{application}}": _asked("One active application", ApplicationView),
        f"{_PARTITION}/nodes": _listed("All nodes with what runs on them", list[NodeView]),
        f"{_PARTITION}/node/{{node}}": _asked("One node", NodeView),
        f"{_PARTITION}/preemptions": _listed("Who had to go for whom, the newest first", list[PreemptionView]),
        f"{_PARTITION}/usage/users": _listed("What users use and may use", list[UserView], says=_ANY_NAME),
        f"{_PARTITION}/usage/user/{{user}}": _asked("What a user uses and may use", UserView, says=_ANY_NAME),
        f"{_PARTITION}/usage/groups": _listed("What groups use and may use", list[GroupView], says=_ANY_NAME),
        f"{_PARTITION}/usage/group/{{group}}": _asked("What a group uses and may use", GroupView, says=_ANY_NAME),
    },
)
