"""The one documented way to write a resource manager: connect, send updates, read results (`docs/writing-an-rm.md`).

    async with await ResourceManager.connect("tcp://127.0.0.1:9090", rm_id="rm-1") as rm:
        await rm.update_nodes([node("n1", {"vcore": "8", "memory": "32Gi"})])
        async for partition, news in rm.results():
            ...

Every update takes effect once and every result arrives once, however often the connection breaks. Both directions are
bounded: an update waits while its partition has too much unacknowledged; results that nobody takes are not
acknowledged, and then the core stops allocating.

Not here: what to say when (`dialogue.py`; this file only waits), the socket (`connection.py`), programs without asyncio
(`blocking.py`), going on after the program died: a new process is a new session and reports everything anew.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from common.messages import (
    PREDICATES,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    Command,
    ConfigurationUpdated,
    NodeInfo,
    NodeRequest,
    RegisterResourceManager,
    RemoveApplicationRequest,
)
from common.wire import frames_of
from shim.batches import pieces
from shim.connection import Connection
from shim.dialogue import (
    READ_AHEAD_MESSAGES,
    Closed,
    ConfigurationRefused,
    Dialogue,
    OutcomeUnknown,
    RegistrationRefused,
    SessionLost,
)
from shim.predicates import Predicate
from shim.results import Callbacks, Result

__all__ = [
    "Callbacks",
    "Closed",
    "ConfigurationRefused",
    "OutcomeUnknown",
    "Predicate",
    "RegistrationRefused",
    "ResourceManager",
    "Result",
    "SessionLost",
]
# An exception to "no re-exports": who writes a resource manager should find all of it in one place.

RESUME_RETRY_S: Final = 5.0
"""How long the answer to a `Resume` may take before it is asked for again."""

CHANGE_MAX_S: Final = 60.0
"""How long the answer to another configuration may take: the core starts workers for new partitions meanwhile."""

_A = TypeVar("_A")
_B = TypeVar("_B")
_log = logging.getLogger(__name__)


class ResourceManager:
    """A registered resource manager; made by `connect`, used in one event loop."""

    def __init__(self, address: str, request: RegisterResourceManager, predicate: Predicate | None = None) -> None:
        self.address = address
        self._dialogue = Dialogue(request, session=secrets.token_hex(8), predicate=predicate)
        self._taking = False
        """The consumer waits for a result."""
        self._updates_waiting = 0
        """Updates that wait for room, and changes of the configuration that wait for their answer."""
        self._arrived = asyncio.Event()  # both only pulse: set and cleared at once, that wakes whoever waits just now
        self._room = asyncio.Event()
        self._retry: asyncio.TimerHandle | None = None
        self._connection = Connection(address, self)

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        rm_id: str,
        config: str = "",
        policy_group: str = "queues",
        version: str = "",
        build_info: Mapping[str, str] | None = None,
        extra_config: Mapping[str, str] | None = None,
        predicate: Predicate | None = None,
        timeout_s: float = 30.0,
    ) -> Self:
        """Connect and register. That removes all that an earlier process with the same `rm_id` had.

        `config` is the text of a `queues.yaml`; without one the core uses its own. With a `predicate` it has a say in
        which ask may run on which node (`shim/predicates.py`).

        Raises:
            RegistrationRefused: the core says why.
            ConnectionError: nothing answers at this address.
            TimeoutError: something is there, but the answer did not come in time.
        """
        request = RegisterResourceManager(
            rm_id=rm_id,
            version=version,
            policy_group=policy_group,
            build_info=dict(build_info or {}),
            config=config,
            extra_config=dict(extra_config or {}),
            capabilities=[] if predicate is None else [PREDICATES],
        )
        rm = cls(address, request, predicate)
        registered = False
        try:
            async with asyncio.timeout(timeout_s):
                await rm._registered()
            registered = True
        except TimeoutError:
            raise rm._silence(timeout_s) from None
        finally:
            if not registered:
                await rm.close()
        return rm

    @property
    def rm_id(self) -> str:
        return self._dialogue.session.rm_id

    @property
    def partitions(self) -> tuple[str, ...]:
        """The normalised names of the partitions that the configuration defines; they change with it."""
        return self._dialogue.session.partitions

    # Updates --------------------------------------------------------------------------------------------------------

    async def update_nodes(self, nodes: Sequence[NodeInfo]) -> None:
        """Nodes that join, change or go. Like every update it waits only while a partition has too much unacknowledged.

        Raises:
            SessionLost: connect again.
            Closed: `close` was called.
            WireError: a single item is larger than a message may be.
        """
        await self._update(lambda items, _: NodeRequest(nodes=items), nodes, ())

    async def update_applications(
        self, *, new: Sequence[AddApplicationRequest] = (), remove: Sequence[RemoveApplicationRequest] = ()
    ) -> None:
        """Applications that come and go; the new ones are handled first."""
        await self._update(lambda items, gone: ApplicationRequest(new=items, remove=gone), new, remove)

    async def update_allocations(
        self, *, allocations: Sequence[Allocation] = (), releases: Sequence[AllocationRelease] = ()
    ) -> None:
        """Asks, allocations that already run, and releases; the releases are handled last."""
        await self._update(_allocation_request, allocations, releases)

    async def update_configuration(
        self, text: str, *, extra_config: Mapping[str, str] | None = None, timeout_s: float = CHANGE_MAX_S
    ) -> ConfigurationUpdated:
        """Run with another `queues.yaml`, in all partitions or in none; waits until that is settled.

        `extra_config` replaces all settings sent before, even if the configuration is refused; None keeps them.

        Raises:
            ConfigurationRefused: the core says why, and goes on with what it has.
            OutcomeUnknown: the answer was lost, or did not come in time. Nothing is sent again by itself.
        """
        self._check()
        reference = self._dialogue.change(text, None if extra_config is None else dict(extra_config))
        self._flush()
        self._updates_waiting += 1
        self._connection.look()
        try:
            async with asyncio.timeout(timeout_s):
                while (outcome := self._dialogue.outcome(reference)) is None:
                    await self._arrived.wait()
                    if self._dialogue.outcome(reference) is None:
                        self._check()
        except TimeoutError:
            raise OutcomeUnknown(
                f"{self.address} did not say within {timeout_s:g} s whether {self.rm_id} has this configuration now: "
                "look at it (`yunishard config get`), or send it again"
            ) from None
        finally:
            self._updates_waiting -= 1
            self._dialogue.drop(reference)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    # Results --------------------------------------------------------------------------------------------------------

    def results(self) -> AsyncIterator[Result]:
        """What the core tells, in order, for one consumer at a time; ends after `close`.

        A result counts as dealt with when the next one is asked for.

        Raises:
            SessionLost: (when read) connect again.
        """
        return _Results(self._take)

    async def run(self, callbacks: Callbacks) -> None:
        """Call the callbacks for all results, until `close`. What a callback raises ends this and is raised here."""
        async for result in self.results():
            for answer in callbacks.tell(result):
                if answer is not None:
                    await answer

    # The end --------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Send what is left, then close. The core keeps what it knows: nodes and applications are yours to remove."""
        if self._dialogue.over is None:
            self._dialogue.acknowledge()
            self._flush()
        self._dialogue.end(Closed(f"{self.rm_id}: this resource manager was closed by its program"))
        self._wake()
        if self._retry is not None:
            self._retry.cancel()
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What the connection calls --------------------------------------------------------------------------------------

    @property
    def hungry(self) -> bool:
        """Whether the connection is to read on."""
        if self._dialogue.over is not None:
            return False
        return self._dialogue.backlog() < READ_AHEAD_MESSAGES or self._updates_waiting > 0

    def connected(self) -> None:
        """The connection is there, for the first time or again."""
        self._dialogue.connected()
        self._flush()
        _pulse(self._arrived)  # who waits for an answer to what was sent before

    def received(self, frames: list[bytes]) -> None:
        """A message came."""
        room = self._dialogue.received(frames)
        self._flush()
        _pulse(self._arrived)
        if room:
            _pulse(self._room)

    # Private --------------------------------------------------------------------------------------------------------

    async def _registered(self) -> None:
        while self._dialogue.session.state != "open":
            await self._arrived.wait()
            self._check()

    async def _update(
        self, make: Callable[[list[_A], list[_B]], Command], first: Sequence[_A], second: Sequence[_B]
    ) -> None:
        for command in pieces(make, first, second):
            await self._room_for(command)
            self._dialogue.update(command)
            self._flush()

    async def _room_for(self, command: Command) -> None:
        self._check()
        while self._dialogue.session.full(command):
            self._updates_waiting += 1
            self._connection.look()
            try:
                await self._room.wait()
            finally:
                self._updates_waiting -= 1
            self._check()

    async def _take(self) -> Result:
        if self._taking:
            raise RuntimeError(f"{self.rm_id}: results have one consumer, and it is waiting already")
        self._taking = True
        try:
            while (result := self._next()) is None:
                await self._arrived.wait()
        finally:
            self._taking = False
        return result

    def _next(self) -> Result | None:
        if isinstance(self._dialogue.over, Closed):
            raise StopAsyncIteration
        self._check()
        was_hungry = self.hungry
        result = self._dialogue.take()
        self._flush()
        if result is None:
            self._check()
        if not was_hungry:
            self._connection.look()
        return result

    def _check(self) -> None:
        over = self._dialogue.over
        if over is not None:
            raise type(over)(*over.args)  # a new one for each who hears it, or their tracebacks would grow together

    def _flush(self) -> None:
        for outgoing in self._dialogue.to_send():
            self._connection.send(frames_of(outgoing.header, outgoing.body))
        if self._dialogue.session.state == "resuming" and self._retry is None:
            _log.warning("%s: resuming the session with %s", self.rm_id, self.address)
            self._retry = asyncio.get_running_loop().call_later(RESUME_RETRY_S, self._resume_again)

    def _resume_again(self) -> None:
        self._retry = None
        if self._dialogue.session.state == "resuming":
            self._dialogue.resume()
            self._flush()

    def _wake(self) -> None:
        _pulse(self._arrived)
        _pulse(self._room)

    def _silence(self, timeout_s: float) -> OSError:
        if self._dialogue.session.state == "new":
            return ConnectionError(
                f"nothing answers at {self.address} within {timeout_s:g} s: is the core running there "
                "(`yunishard up`), and is this its port for resource managers (9090 unless configured otherwise)?"
            )
        return TimeoutError(
            f"{self.address} took the registration of {self.rm_id} and did not answer within {timeout_s:g} s: "
            "look at the core's log, then try again"
        )


class _Results(AsyncIterator[Result]):
    """Not a generator, so that nothing is left hanging when one consumer breaks off and another goes on."""

    def __init__(self, take: Callable[[], Awaitable[Result]]) -> None:
        self._take = take

    async def __anext__(self) -> Result:
        return await self._take()


def _allocation_request(allocations: list[Allocation], releases: list[AllocationRelease]) -> AllocationRequest:
    return AllocationRequest(
        allocations=allocations, releases=AllocationReleasesRequest(allocations_to_release=releases)
    )


def _pulse(event: asyncio.Event) -> None:
    event.set()
    event.clear()
