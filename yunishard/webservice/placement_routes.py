"""The REST route that explains where an application would be placed, before it is submitted."""

import re
from typing import Final

from msgspec import DecodeError, convert
from msgspec.json import decode, encode

from yunishard.common.rest.explain import PlacementExplanationView
from yunishard.webservice.calls import Call, Reply, ask_partition, find_partition
from yunishard.webservice.parameters import RM, Parameter
from yunishard.webservice.router import Access, Route, RouteGroup
from yunishard.webservice.views import RequestError

PLACEMENT: Final = RouteGroup("placement", "Placement of applications, explained before they are submitted.")

PART_SHOWN_MAX: Final = 100
"""Characters of a wrong tag that an error repeats."""

_USER: Final = Parameter("user", "The user of the application.")
_GROUPS: Final = Parameter(
    "groups",
    "The groups of the user, with commas between, the primary one first. Without "
    "groups they are looked up, as for a submission without groups.",
)
_QUEUE: Final = Parameter("queue", "The queue that the application names.")
_TAGS: Final = Parameter("tags", "The tags of the application: `k=v,k2=v2`, or a JSON object with texts.")


@Route(
    PLACEMENT,
    "GET",
    "/ws/v1/partition/{partition}/explain/placement",
    Access.SEEN,
    (PlacementExplanationView,),
    parameters=(_USER, _GROUPS, _QUEUE, _TAGS, RM),
    statuses={403: "The caller is no administrator, and the user or a group is not the caller's own."},
)
async def placement(call: Call) -> Reply:
    """Where an application would be placed, or why it would be rejected.

    Nothing is submitted. The answer has each placement rule with its checks, the queue, its access control list,
    template and limits.
    """
    tags = parse_tags(call.query.get("tags", ""))
    args = {name: call.query[name] for name in ("user", "groups", "queue") if call.query.get(name)}
    if tags:
        args["tags"] = encode(tags).decode()
    return await ask_partition(call, await find_partition(call), "placement", **args)


def parse_tags(text: str) -> dict[str, str]:
    """Parse tags.

    >>> parse_tags("namespace=team-a, application.type=spark"), parse_tags('{"a": "1,2"}')
    ({'namespace': 'team-a', 'application.type': 'spark'}, {'a': '1,2'})

    Raises:
        RequestError: the text has another form.
    """
    if text.lstrip().startswith("{"):
        try:
            return convert(decode(text), dict[str, str])
        except (DecodeError, ValueError, RecursionError) as error:
            raise RequestError(400, f"tags are no JSON object with texts: {error}") from None
    found: dict[str, str] = {}
    for part in re.split(r",\s*", text.strip()) if text.strip() else ():
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise RequestError(
                400, f"tags must be k=v,k2=v2, or a JSON object if a value has a comma; not {part[:100]!r}"
            )
        found[name] = value
    return found
