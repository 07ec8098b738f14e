"""A system in this process, under a virtual clock, to play traces to: no process, no socket, no waiting.

It has the machines of the proxy, the broker and the workers (`tests/world.py`) and the API of the web service. What it
does not have are the processes' drivers: a few traces are played through real ports, too (`test_traces.py`).
"""

import asyncio
from typing import Any, Final

from tests.captures.scenario import Request
from tests.captures.system import System, SystemLink
from tests.captures.visitor import visit
from tests.conformance.rest import Rest
from tests.conformance.wires import STREAMS, Hear, RefusedError
from tests.webservice.fakes import loopback_users
from tests.world_rm import RM
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import (
    AllocationResponse,
    ApplicationResponse,
    NodeResponse,
    Refused,
    Registered,
    RegisterResourceManager,
)
from yunishard.common.messages.wire import Outgoing
from yunishard.common.settings import Settings
from yunishard.rmproxy import grpc_conversion
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.webservice.api import Api
from yunishard.webservice.authn_authz import AccessControl

HOST: Final = {"Host": "127.0.0.1"}
RUNS_US: Final = 0
"""The user who runs the system, and may change configurations."""


class VirtualClock:
    """The clock of a virtual system: sleeping lets everything happen that is due within that time."""

    def __init__(self, system: System) -> None:
        self._system = system

    def now(self) -> float:
        return self._system.now

    def sleep(self, seconds: float) -> None:
        self._system.pass_by(seconds)


class VirtualRest(Rest):
    """The API of the web service, called without a socket."""

    def __init__(self, system: System) -> None:
        super().__init__("")
        self._api = Api(SystemLink(system), Settings(), AccessControl(loopback_users(RUNS_US)))

    def ask(self, path: str, *, post: str | None = None) -> tuple[int, str]:
        method = "GET" if post is None else "POST"
        request = Request(name="", path=path, method=method, headers=HOST, body=post or "")
        answered = asyncio.run(visit(self._api, request))
        return answered.status, answered.text


class _VirtualManager(RM):
    """Hands every response on, as a message of the scheduler interface."""

    def __init__(self, rm_id: str, session: str, config: str, extra: dict[str, str], hear: Hear) -> None:
        super().__init__(rm_id, session=session, config=config)
        self._extra = extra
        self._hear = hear

    def register(self) -> list[Outgoing]:
        request = RegisterResourceManager(
            rm_id=self.rm_id, version="1", policy_group="queues", config=self.config, extra_config=self._extra
        )
        return self._sends([self.session.register(request)])

    def hear(self, header: Header, body: bytes) -> list[Outgoing]:
        message = self.session.receive(header, body)
        match message:
            case Registered():
                return self._sends(self.session.retransmissions())
            case Refused():
                self.refusals.append(message)
            case NodeResponse() | ApplicationResponse() | AllocationResponse():
                self._hear(grpc_conversion.write_response(message))
        return self._sends(self.session.acknowledgements())


class VirtualWire:
    """A way to the scheduler: the session of the SDK without its connection."""

    def __init__(self, system: System, rm_id: str, config: str, extra: dict[str, str], hear: Hear) -> None:
        self._system = system
        self._rm = _VirtualManager(rm_id, f"session at {system.now}", config, extra, hear)
        system.join(self._rm)
        system.until(lambda: self._rm.open or bool(self._rm.refusals))
        if not self._rm.open:
            raise RefusedError(self._rm.refusals[0].reason)

    @property
    def failed(self) -> list[bool]:
        return [not self._rm.open] * len(STREAMS)

    def send(self, request: Any) -> None:
        match request:
            case pb.NodeRequest():
                command = grpc_conversion.read_nodes(request)
            case pb.ApplicationRequest():
                command = grpc_conversion.read_applications(request)
            case pb.AllocationRequest():
                command = grpc_conversion.read_allocations(request)
        self._system.carry(self._rm.peer, self._rm.update(command))

    def close(self) -> None:
        self._system.disconnect(self._rm)
