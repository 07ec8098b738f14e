"""A small cluster as REST clients see it: real proxy, broker and worker machines under a virtual clock, filled by the
recorded scenario with applications in every state, gangs, reservations, preemption, limits, foreign allocations and a
history of some minutes.

Not here: the scenario (`tests/captures/`).
"""

from pathlib import Path
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from tests.captures.player import Player
from tests.captures.scenario import scenario
from tests.captures.system import SystemLink
from tests.webservice.fakes import CLIENT, SERVER, loopback_users
from yunishard.common.settings import Settings
from yunishard.webservice.api import Api
from yunishard.webservice.authn_authz import AccessControl
from yunishard.webservice.history.queries import HistoryReader

UNREGISTERED, EMPTY, FILLED = "unregistered", "empty", "main"
"""Moments of the scenario."""

HOST: Final = b"127.0.0.1:9080"


def api(moment: str, file: Path, link: type[SystemLink] = SystemLink) -> ASGIApp:
    """The API of that system at a moment, for a scheduler administrator on this machine; its history is in the file.
    The `link` may know of more than is there.
    """
    player = Player(scenario(), file)
    player.system.is_checked = False  # until then: the tests of the captures check the scenario
    next(group for group in player.play() if group == moment)
    player.system.is_checked = True
    answering = Api(link(player.system), Settings(debug=True), AccessControl(loopback_users(0)))
    if player.past is not None:
        player.past.close()
        answering.services.history = HistoryReader(player.past)

    async def local(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
        here = {"client": CLIENT, "server": SERVER, "headers": [(b"host", HOST), *headers]}
        await answering({**scope, **here}, receive, send)

    return local
