"""The document of the API at an address of the API.

Made once, when it is first asked for, for routes do not change while the process runs. Not here: making it
(`webservice/openapi/`).
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Final

import msgspec

from webservice.access import Access
from webservice.calls import ApiRoute, Call, Reply
from webservice.openapi.areas import AREAS
from webservice.openapi.document import document
from webservice.parameters import entity_tag, is_known
from webservice.router import Route

PATH: Final = "/ws/v1/openapi.json"
_TAG_LENGTH: Final = 32


def with_document(routes: Sequence[ApiRoute]) -> tuple[ApiRoute, ...]:
    """These routes, and one more that describes them and itself."""

    async def respond(call: Call) -> Reply:
        text, tag = made()
        headers = {"ETag": entity_tag(tag), "Cache-Control": "no-cache"}
        if is_known(call.headers.get("if-none-match"), tag):
            return Reply(b"", 304, headers=headers)
        return Reply(text, headers=headers)

    @cache
    def made() -> tuple[bytes, str]:
        text = msgspec.json.encode(document(every, AREAS, release=version("yunishard"))) + b"\n"
        return text, hashlib.sha256(text).hexdigest()[:_TAG_LENGTH]

    every: tuple[ApiRoute, ...] = (*routes, Route("GET", PATH, respond, Access.ANYBODY))
    return every
