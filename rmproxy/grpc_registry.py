"""Which resource managers are registered over gRPC, and which are about to be.

    nobody --register--> registering --Registered--> registered --register, Refused--> registered, as it was
                          |                             |--register, Registered or no answer--> the next one, or nobody
                          +--Refused, no answer--> nobody <--the core lost track, leave--+

A registration goes on to its end whether or not the caller waits for it. Not here: streams and calls (`grpc_port.py`).
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from common.control_messages import ManagerAway
from common.machine import Delivery, Send
from common.messages import Header
from common.rm_messages import Registered, RegisterResourceManager
from common.wire import body_of
from rmproxy import grpc_endings as endings
from rmproxy.grpc_endings import EndedError, Ending
from rmproxy.grpc_rm import PEER, STREAMLESS_S, GrpcRm, SessionLostError, session_of

REGISTRATION_S: Final = 60.0
"""How long a registration may take: the core starts a worker for each partition meanwhile."""


class Registry:
    """Who is registered. It answers nobody any more once it is `stopping`."""

    def __init__(
        self,
        deliver: Callable[[Delivery], None],
        *,
        new_session: Callable[[], str] = secrets.token_hex,
        registration_s: float = REGISTRATION_S,
        streamless_s: float = STREAMLESS_S,
    ) -> None:
        self._deliver = deliver
        self._new_session = new_session
        self._registration_s = registration_s
        self._streamless_s = streamless_s
        self._stopping = False
        self._registered: dict[str, GrpcRm] = {}
        """RM id to its registration; an RM stays in it until the core has answered the next one with yes."""
        self._registering: dict[str, GrpcRm] = {}
        """RM id to the registration that the core has not answered."""
        self._outcomes: set[asyncio.Task[None]] = set()
        """The same ones, as they wait for their answers."""

    def receive(self, message: Send) -> None:
        """Take what the proxy's machine says to the peer `grpc:<rm-id>`."""
        rm_id, header = message.to.removeprefix(PEER), message.header
        session = header.session or session_of(header.ref)
        for rms in (self._registering, self._registered):
            rm = rms.get(rm_id)
            if rm is not None and rm.session.session == session:
                try:
                    rm.receive(header, message.body)
                except SessionLostError as lost:
                    rm.end(endings.lost(str(lost)))
                if rm.ending is not None and self._registered.get(rm_id) is rm:
                    del self._registered[rm_id]
                return
        if header.kind == Registered.__name__:  # too late: nobody speaks for this session
            away = Header(kind=ManagerAway.__name__, rm=rm_id, session=header.session)
            self._deliver(Delivery(message.to, away, body_of(ManagerAway())))

    async def register(self, request: RegisterResourceManager) -> None:
        """Join, or join anew.

        Raises:
            EndedError: the registration came to nothing.
        """
        rm_id = request.rm_id
        if self._stopping:
            raise EndedError(endings.stopping())
        if rm_id in self._registering:
            raise EndedError(endings.in_progress(rm_id))
        rm = GrpcRm(rm_id=rm_id, session=self._new_session(), deliver=self._deliver, streamless_s=self._streamless_s)
        self._registering[rm_id] = rm
        rm.register(request)
        outcome = asyncio.create_task(self._outcome(rm))
        self._outcomes.add(outcome)
        outcome.add_done_callback(self._outcomes.discard)
        await asyncio.shield(outcome)
        if rm.ending is not None:
            raise EndedError(rm.ending)

    def find(self, rm_id: str, request: str) -> GrpcRm:
        """Who is registered under this id; `request` is what came from it.

        Raises:
            EndedError: nobody is, or not yet.
        """
        if self._stopping:
            raise EndedError(endings.stopping())
        if rm_id in self._registering:
            raise EndedError(endings.in_progress(rm_id))
        rm = self._registered.get(rm_id)
        if rm is None:
            raise EndedError(endings.unregistered(request, rm_id))
        return rm

    def stop(self, ending: Ending) -> None:
        """End everything; nobody is answered any more."""
        self._stopping = True
        for rm in (*self._registering.values(), *self._registered.values()):
            rm.end(ending)

    async def _outcome(self, rm: GrpcRm) -> None:
        try:
            async with asyncio.timeout(self._registration_s):
                await rm.answered.wait()
        except TimeoutError:
            rm.end(endings.unanswered(self._registration_s))
        self._settle(rm)

    def _settle(self, rm: GrpcRm) -> None:
        """A registration has come to something. If it was refused, the earlier one stays; otherwise that one is over.

        No answer ends the earlier one too: what the core made of it is not known, and the earlier session may be gone.
        """
        rm_id = rm.session.rm_id
        del self._registering[rm_id]
        if rm.session.state != "refused" and (earlier := self._registered.pop(rm_id, None)) is not None:
            earlier.end(endings.registered_again(rm_id))
        if rm.ending is None:
            self._registered[rm_id] = rm
