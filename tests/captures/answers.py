"""All answers to the requests of the scenario, ours and the recorded ones, in the form in which they are compared.

Not here: which differences are meant (`deliberate.py`).
"""

import asyncio
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml

from tests.captures import canon
from tests.captures.canon import Document
from tests.captures.player import Player
from tests.captures.scenario import DATA, Recorded, Request, scenario
from tests.captures.visitor import Answered, streaming, visit
from tests.webservice.fakes import loopback_users
from yunishard.common.settings import Settings
from yunishard.webservice.api import Api
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.history.queries import HistoryReader

HEADERS: Final = frozenset(
    {
        "content-type",
        "content-encoding",
        "vary",
        "location",
        "allow",
        "x-content-type-options",
        "access-control-allow-origin",
        "access-control-allow-methods",
        "access-control-allow-headers",
    }
)
"""Those that are compared; others are about how the body is sent, or our own."""

ORDERED: Final = ("config", "history", "placementrules")
"""How the names of requests begin in whose answer every list has an order."""

LOWEST: Final = "@low"
"""In a path: the number of the first event that is still there."""

Key = tuple[str, str]
"""Group and name of a request."""


@cache
def given() -> dict[Key, Answered]:
    """What we answer, all of it; the scenario is played once."""
    with TemporaryDirectory() as directory:
        return _played(Path(directory) / "history.sqlite")


def _played(history: Path) -> dict[Key, Answered]:
    played = scenario()
    player = Player(played, history)
    api = Api(player.link, Settings(debug=True), AccessControl(loopback_users()))
    found: dict[Key, Answered] = {}
    for group in player.play():
        if player.past is not None and api.services.history is None:
            api.services.history = HistoryReader(player.past)
        for request in played.captures[group]:
            found[group, request.name] = asyncio.run(_answer(api, request))
    if player.past is not None and api.services.history is not None:
        api.services.history.close()
        player.past.close()
    return found


async def _answer(api: Api, request: Request) -> Answered:
    if LOWEST in request.path:
        events = await visit(api, Request(name="", path="/ws/v1/events/batch"))
        document = canon.document(events.text)
        assert isinstance(document, dict)
        path = request.path.replace(LOWEST, str(document["LowestID"]))
        return await visit(api, Request(name=request.name, path=path))
    if request.while_streaming:
        async with streaming(api):
            return await visit(api, request)
    return await visit(api, request)


def recorded_document(one: Recorded) -> Document:
    """What the reference answered."""
    text = (DATA / "answers" / one.file).read_text() if one.file else ""
    return _document(one, one.status, one.headers, text)


def given_document(one: Recorded) -> Document:
    """What we answered to the same."""
    answered = given()[one.group, one.name]
    if answered.status == one.status:
        return _document(one, answered.status, answered.headers, answered.text)
    return {"status": answered.status, "headers": _headers(answered.headers), "body": answered.text}


def _document(one: Recorded, status: int, headers: dict[str, str], text: str) -> Document:
    return {"status": status, "headers": _headers(headers), "body": _body(one, text)}


def _headers(headers: dict[str, str]) -> Document:
    return {name.lower(): value for name, value in sorted(headers.items()) if name.lower() in HEADERS}


def _body(one: Recorded, text: str) -> Document:
    if one.status == 200 and "metrics" in one.name:
        return canon.series(text)
    match one.file.rpartition(".")[2]:
        case "json":
            return canon.document(text, ordered=one.name.startswith(ORDERED))
        case "jsonl":
            return canon.stream(text)
        case "yaml":
            found: Document = yaml.safe_load(text)
            return found
    return text
