"""The route table: the declared routes of all groups, and the route of the OpenAPI document that describes them.

To add a route, write a handler in one of the `*_routes.py` modules; nothing else has to change.
"""

import hashlib
from functools import cache
from importlib.metadata import version
from typing import Final

import msgspec

from webservice import cluster_routes, config_routes, debug_routes, history_routes, partition_routes
from webservice.api_document import api_document
from webservice.calls import Call, Reply
from webservice.parameters import IF_NONE_MATCH, UNCHANGED, entity_tag, is_known
from webservice.router import ANY_OBJECT, Access, Route, RouteGroup

GROUPS: Final[tuple[RouteGroup, ...]] = (
    cluster_routes.CLUSTER,
    partition_routes.PARTITION,
    partition_routes.EVENTS,
    history_routes.HISTORY,
    config_routes.CONFIGURATION,
    partition_routes.CHANGES,
    debug_routes.DEBUG,
)

_TAG_LENGTH: Final = 32


@cluster_routes.CLUSTER.route(
    "GET",
    "/ws/v1/openapi.json",
    Access.ANYBODY,
    ANY_OBJECT,
    parameters=(IF_NONE_MATCH,),
    statuses=UNCHANGED,
    headers={"ETag": "Changes when the document does."},
)
async def openapi(call: Call) -> Reply:
    """This document."""
    text, tag = _document()
    headers = {"ETag": entity_tag(tag), "Cache-Control": "no-cache"}
    if is_known(call.headers.get("if-none-match"), tag):
        return Reply(b"", 304, headers=headers)
    return Reply(text, headers=headers)


@cache
def _document() -> tuple[bytes, str]:
    """The document and its tag, generated on first use: routes do not change while the process runs."""
    text = msgspec.json.encode(api_document(GROUPS, release=version("yunishard"))) + b"\n"
    return text, hashlib.sha256(text).hexdigest()[:_TAG_LENGTH]


ROUTES: Final[tuple[Route, ...]] = tuple(route for group in GROUPS for route in group.routes)


def routes(*, debug: bool) -> tuple[Route, ...]:
    """The routes that exist with the setting `debug`, or without it."""
    return ROUTES if debug else tuple(route for route in ROUTES if not route.debug_only)
