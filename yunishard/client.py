"""The asyncio client of a resource manager (RM): connect, send updates, receive results.

    async with connect("tcp://127.0.0.1:9090", rm_id="rm-1") as rm:
        await rm.update_nodes([node("n1", {"vcore": "8", "memory": "32Gi"})])
        async for partition, news in rm.results():
            ...

Every update takes effect once and every result arrives once, also when the connection breaks. Flow control bounds both
directions: an update waits while its partition has too much unacknowledged, and the core stops allocating while the
program does not read results.

Not here: the protocol (`session.py`), the socket (`connection.py`), programs without asyncio (`blocking.py`). A program
that starts again is a new session, and reports everything again.
"""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from common.curve_keys import ClientKeys
from common.curve_keys import KeyFileError as InvalidKeyFile
from common.messages import Command
from common.names import normalise_partition_name
from common.rm_messages import (
    EVENTS,
    PREDICATES,
    STATE_DUMP,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    ConfigurationUpdated,
    NodeInfo,
    NodeRequest,
    RegisterResourceManager,
    ReleasesIgnored,
    RemoveApplicationRequest,
)
from common.wire import BODY_BYTES_MAX
from yunishard.builders import (
    check_callable,
    check_command,
    check_flag,
    check_items,
    check_one_of,
    check_seconds,
    check_text,
    check_text_map,
    wrong_type,
)
from yunishard.connection import Link, StateDump
from yunishard.exceptions import (
    AnswerTimeout,
    Closed,
    ConnectFailed,
    KeyFileError,
    OutcomeUnknown,
    ResyncFailed,
    SessionLost,
    UpdateTooLarge,
    registration_failure,
)
from yunishard.port_probe import probe
from yunishard.results import Callbacks, Predicate, Result, Results
from yunishard.session import Dialogue, Sync

ITEMS_MAX: Final = 10_000
"""Items in one message: a partition takes them at once, and is busy with them for a second at most."""

_A = TypeVar("_A")
_B = TypeVar("_B")
_RM = TypeVar("_RM", bound="ResourceManager")


def pieces(
    make: Callable[[list[_A], list[_B]], Command],
    first: Sequence[_A],
    second: Sequence[_B] = (),
    *,
    function: str = "pieces()",
    bytes_max: int = BODY_BYTES_MAX,
    items_max: int = ITEMS_MAX,
) -> list[Command]:
    """Return the command with these items, or several that carry them: all of `first` before all of `second`.

    Raises:
        TypeError: a field has a value that cannot be sent; names the function and the place.
        UpdateTooLarge: a single item is larger than a message may be.
    """
    command = make(list(first), list(second))
    size = check_command(function, command)
    items = len(first) + len(second)
    if size <= bytes_max and items <= items_max:
        return [command]
    half = items // 2
    if not half:
        raise UpdateTooLarge(f"an item takes {size} bytes, at most {bytes_max} are allowed in a message")
    cut = max(0, half - len(first))
    return [
        *pieces(make, first[:half], second[:cut], function=function, bytes_max=bytes_max, items_max=items_max),
        *pieces(make, first[half:], second[cut:], function=function, bytes_max=bytes_max, items_max=items_max),
    ]


LEAVE_MAX_S: Final = 10.0
"""How long the core may take to let a resource manager go."""

CHANGE_MAX_S: Final = 60.0
"""How long the answer to another configuration may take: the core starts workers for new partitions meanwhile."""

IGNORED_WARNING_S: Final = 60.0
"""Seconds between two warnings in the log about releases without an effect. Each is a result in any case."""

DIAGNOSE_AFTER_S: Final = 3.0
"""Seconds without a connection after which `connect` looks what listens at the address."""

KEYS_VARIABLE: Final = "YUNISHARD_KEYS"
"""The environment variable that names the resource manager's own secret key file."""

_log = logging.getLogger(__name__)


class ResourceManager:
    """A registered resource manager; made by `connect`, used in one event loop."""

    def __init__(
        self,
        address: str,
        request: RegisterResourceManager,
        predicate: Predicate | None = None,
        keys: ClientKeys | None = None,
        state_dump: StateDump | None = None,
    ) -> None:
        self.address = address
        self._dialogue = Dialogue(request, session=secrets.token_hex(8), predicate=predicate)
        self._taking = False
        """The consumer waits for a result."""
        self._found = ""
        """What listens at the address, as far as it was looked at."""
        self._warn_ignored_at_s = 0.0
        """Time of the event loop from which the next ignored release is worth a warning."""
        self._link = Link(address, self._dialogue, keys, state_dump)

    @classmethod
    def connect(
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
        state_dump: StateDump | None = None,
        events: bool = False,
        keys: str | Path | None = None,
        timeout_s: float = 30.0,
    ) -> "Connecting[Self]":
        """Connect and register. The core removes everything that an earlier process with the same `rm_id` had.

        Use `async with connect(...) as rm`, which leaves the core at the end, or `rm = await connect(...)`.

        Args:
            address: the native port of the core, such as `tcp://127.0.0.1:9090`.
            rm_id: the id of this resource manager.
            config: the text of a `queues.yaml`; empty for the core's own configuration.
            policy_group: the name of the configuration, as in the scheduler interface.
            version, build_info: of the program, shown over REST.
            extra_config: settings of the RM, such as `silence`.
            predicate: decides which ask may run on which node: `(allocation_key, node_id, allocate) -> reason or None`.
            state_dump: returns the state of the RM as the text of a JSON object, for a state dump: `() -> str`.
            events: whether to receive the events of the RM's partitions, which the core sends every two seconds.
            keys: the secret key file of the RM (`yunishard keys new`), for a core that requires keys; the core's
                `server.key` must be in the same directory. None uses the variable YUNISHARD_KEYS; "" means no keys.
            timeout_s: how long connecting and registering may take. Hundreds of partitions take minutes.

        Raises:
            TypeError, ValueError: an argument is wrong; raised before anything is sent.
            KeyFileError: a key file cannot be used.
            RegistrationRefused: (when awaited) the core refuses the RM; the text gives the reason.
            KeyRefused: the core and the RM do not accept each other's keys.
            ConnectFailed: nothing answers at this address; raised at once if the port speaks another protocol.
            AnswerTimeout: the core is there, and did not answer in time.
        """
        check_text("connect()", "address", address)
        check_one_of("connect()", "keys", keys, str | Path, "a path (str or Path) or None")
        check_seconds("connect()", "timeout_s", timeout_s)
        request = _registration(
            rm_id=rm_id,
            version=version,
            policy_group=policy_group,
            build_info=build_info,
            config=config,
            extra_config=extra_config,
            capabilities=_capabilities(predicate, state_dump, events=events),
        )
        file = os.environ.get(KEYS_VARIABLE) if keys is None else keys
        try:
            client_keys = ClientKeys.beside(Path(file)) if file else None
        except InvalidKeyFile as error:
            raise KeyFileError(*error.args) from None
        return Connecting(cls._connect(address, request, predicate, client_keys, state_dump, timeout_s))

    @classmethod
    async def _connect(
        cls,
        address: str,
        request: RegisterResourceManager,
        predicate: Predicate | None,
        keys: ClientKeys | None,
        state_dump: StateDump | None,
        timeout_s: float,
    ) -> Self:
        rm = cls(address, request, predicate, keys, state_dump)
        registered = False
        diagnosis = asyncio.create_task(rm._diagnose(min(DIAGNOSE_AFTER_S, timeout_s / 3)))
        try:
            async with asyncio.timeout(timeout_s):
                await rm._registered()
            registered = True
        except TimeoutError:
            raise rm._silence(timeout_s) from None
        finally:
            diagnosis.cancel()
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
            UpdateTooLarge: a single item is larger than a message may be.
            TypeError: an item has the wrong type, or a value that cannot be sent; nothing of this call is sent.
        """
        check_items("update_nodes()", "nodes", nodes, NodeInfo, "node")
        await self._update("update_nodes()", lambda items, _: NodeRequest(nodes=items), nodes, ())

    async def update_applications(
        self, *, new: Sequence[AddApplicationRequest] = (), remove: Sequence[RemoveApplicationRequest] = ()
    ) -> None:
        """Applications that come and go; the new ones are handled first."""
        function = "update_applications()"
        check_items(function, "new", new, AddApplicationRequest, "application")
        check_items(function, "remove", remove, RemoveApplicationRequest, "RemoveApplicationRequest")
        await self._update(function, lambda items, gone: ApplicationRequest(new=items, remove=gone), new, remove)

    async def update_allocations(
        self, *, allocations: Sequence[Allocation] = (), releases: Sequence[AllocationRelease] = ()
    ) -> None:
        """Asks, allocations that already run, and releases; the releases are handled last."""
        function = "update_allocations()"
        check_items(function, "allocations", allocations, Allocation, "ask")
        check_items(function, "releases", releases, AllocationRelease, "release")
        await self._update(function, _allocation_request, allocations, releases)

    async def update_configuration(
        self, text: str, *, extra_config: Mapping[str, str] | None = None, timeout_s: float = CHANGE_MAX_S
    ) -> ConfigurationUpdated:
        """Run with another `queues.yaml`, in all partitions or in none; waits until that is settled.

        `extra_config` replaces all settings sent before, even if the configuration is refused; None keeps them.

        Raises:
            ConfigurationRefused: the core says why, and goes on with what it has.
            OutcomeUnknown: the answer was lost, or did not come in time. Nothing is sent again by itself.
        """
        check_text("update_configuration()", "text", text)
        check_text_map("update_configuration()", "extra_config", extra_config)
        check_seconds("update_configuration()", "timeout_s", timeout_s)
        self._check()
        reference = self._dialogue.change(text, None if extra_config is None else dict(extra_config))
        self._link.flush()
        try:
            async with asyncio.timeout(timeout_s):
                await self._until(self._link.arrived, lambda: self._dialogue.outcome(reference) is not None)
            outcome = self._dialogue.outcome(reference)
        except TimeoutError:
            raise OutcomeUnknown(
                f"{self.address} did not say within {timeout_s:g} s whether {self.rm_id} has this configuration now: "
                "look at it (`yunishard config get`), or send it again"
            ) from None
        finally:
            self._dialogue.drop(reference)
        if not isinstance(outcome, ConfigurationUpdated):
            assert outcome is not None
            raise outcome
        return outcome

    @asynccontextmanager
    async def resync(self, partition: str = "", *, reason: str = "") -> AsyncIterator[Sync]:
        """Report everything of a partition, because one of the two does not know any more what the other has. What is
        sent to it within the block is the full report: nodes, applications, what runs and what waits. At the end of the
        block the core removes what was not in it, and goes on placing, which it does not do meanwhile.

        A block that raises leaves the partition waiting for another, complete report.

        Raises:
            ResyncFailed: (at the end of the block) the report is not taken; report again.
        """
        check_text("resync()", "partition", partition)
        check_text("resync()", "reason", reason)
        name = normalise_partition_name(self.rm_id, partition)
        await self._until(self._link.room, lambda: not self._dialogue.session.partition_full(name))
        sync = self._dialogue.sync_begin(name, reason)
        self._link.flush()
        yield sync
        await self._until(self._link.room, lambda: not self._dialogue.session.partition_full(name))
        self._dialogue.sync_end(sync)
        self._link.flush()
        await self._until(self._link.arrived, lambda: sync.outcome is not None)
        if isinstance(sync.outcome, ResyncFailed):
            raise sync.outcome

    # Results --------------------------------------------------------------------------------------------------------

    def results(self) -> AsyncIterator[Result]:
        """What the core tells, in order, for one consumer at a time; ends after `close`.

        A result counts as dealt with when the next one is asked for.

        Raises:
            SessionLost: (when read) connect again.
        """
        return Results(self._take)

    async def run(self, callbacks: Callbacks) -> None:
        """Call the callbacks for all results, until `close`. What a callback raises ends this and is raised here."""
        if not isinstance(callbacks, Callbacks):
            raise wrong_type("run()", "callbacks", callbacks, "Callbacks")
        async for result in self.results():
            for answer in callbacks.tell(result):
                if answer is not None:
                    await answer

    # The end --------------------------------------------------------------------------------------------------------

    async def leave(self, reason: str = "", *, timeout_s: float = LEAVE_MAX_S) -> None:
        """Leave the core for good: it ends all partitions of this RM with everything in them. Then close.

        Raises:
            AnswerTimeout: the core did not confirm in time. It ends the partitions once `pause-timeout` has passed.
        """
        check_text("leave()", "reason", reason)
        check_seconds("leave()", "timeout_s", timeout_s)
        self._check()
        self._dialogue.leave(reason)
        self._link.flush()
        try:
            async with asyncio.timeout(timeout_s):
                await self._until(self._link.arrived, lambda: self._dialogue.left)
        except TimeoutError:
            raise AnswerTimeout(
                f"{self.address} did not say within {timeout_s:g} s that nothing is left of {self.rm_id}"
            ) from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Send pending messages, then close. The core keeps the RM's state for `pause-timeout`, and places nothing
        meanwhile. Then it ends the RM's partitions, as after `leave`.
        """
        if self._dialogue.over is None:
            self._dialogue.acknowledge()
            self._link.flush()
        self._dialogue.end(Closed(f"{self.rm_id}: this resource manager was closed by its program"))
        self._link.wake()
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave, unless the block was left by an exception: then what the core knows stays to be looked at."""
        if error is None and self._dialogue.over is None:
            try:
                await self.leave()
            except (TimeoutError, SessionLost) as trouble:
                _log.warning("%s", trouble)
        await self.close()

    # Private --------------------------------------------------------------------------------------------------------

    async def _registered(self) -> None:
        while self._dialogue.session.state != "open":
            await self._link.arrived.wait()
            self._check()

    async def _diagnose(self, after_s: float) -> None:
        """Say early why there is no connection. Only where another protocol is spoken waiting ends: a core that starts
        just now may still come.
        """
        await asyncio.sleep(after_s)
        if self._dialogue.session.state != "new":
            return
        finding = await probe(self.address)
        if finding is None or self._dialogue.session.state != "new":
            return
        self._found = finding.text
        text = f"no answer from {self.address} within {after_s:.2g} s: {finding.text}"
        if finding.foreign:
            self._dialogue.end(ConnectFailed(f"{text}. Give the native port (9090 unless configured otherwise)"))
            self._link.wake()
        else:
            _log.warning("%s: %s; trying again", self.rm_id, text)

    async def _until(self, pulse: asyncio.Event, holds: Callable[[], bool]) -> None:
        """Wait until it holds, reading on however much nobody takes: what is waited for may be behind it."""
        while not holds():
            self._check()
            self._link.waiting += 1
            self._link.look()
            try:
                await pulse.wait()
            finally:
                self._link.waiting -= 1

    async def _update(
        self, function: str, make: Callable[[list[_A], list[_B]], Command], first: Sequence[_A], second: Sequence[_B]
    ) -> None:
        for command in pieces(make, first, second, function=function):
            await self._room_for(command)
            self._dialogue.update(command)
            self._link.flush()

    async def _room_for(self, command: Command) -> None:
        self._check()
        await self._until(self._link.room, lambda: not self._dialogue.session.full(command))
        self._check()

    async def _take(self) -> Result:
        if self._taking:
            raise RuntimeError(f"{self.rm_id}: results have one consumer, and it is waiting already")
        self._taking = True
        try:
            while (result := self._next()) is None:
                await self._link.arrived.wait()
        finally:
            self._taking = False
        return result

    def _next(self) -> Result | None:
        if isinstance(self._dialogue.over, Closed):
            raise StopAsyncIteration
        self._check()
        was_hungry = self._link.hungry
        result = self._dialogue.take()
        self._link.flush()
        if result is None:
            self._check()
        elif isinstance(result.news, ReleasesIgnored):
            self._warn_ignored(result.partition, result.news)
        if not was_hungry:
            self._link.look()
        return result

    def _warn_ignored(self, partition: str, news: ReleasesIgnored) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._warn_ignored_at_s or not news.ignored:
            return
        self._warn_ignored_at_s = now_s + IGNORED_WARNING_S
        first, others = news.ignored[0], len(news.ignored) + news.more - 1
        _log.warning(
            "%s: release of %r of application %r in partition %s had no effect: %s%s",
            *(self.rm_id, first.allocation_key, first.application_id, partition, first.message),
            f" (and {others} more)" if others else "",
        )

    def _check(self) -> None:
        over = self._dialogue.over
        if over is not None:
            raise type(over)(*over.args)  # a new one for each who hears it, or their tracebacks would grow together

    def _silence(self, timeout_s: float) -> Exception:
        dialogue = self._dialogue
        spoken = dialogue.session.state != "new"
        return registration_failure(
            self.address, self.rm_id, timeout_s, spoken=spoken, complaint=dialogue.complaint, found=self._found
        )


def _capabilities(predicate: Predicate | None, state_dump: StateDump | None, *, events: bool) -> list[str]:
    check_callable("connect()", "predicate", predicate)
    check_callable("connect()", "state_dump", state_dump)
    check_flag("connect()", "events", events)
    capabilities = {PREDICATES: predicate is not None, EVENTS: events, STATE_DUMP: state_dump is not None}
    return [name for name, wanted in capabilities.items() if wanted]


def _registration(
    *,
    rm_id: str,
    version: str,
    policy_group: str,
    build_info: Mapping[str, str] | None,
    config: str,
    extra_config: Mapping[str, str] | None,
    capabilities: list[str],
) -> RegisterResourceManager:
    texts = {"rm_id": rm_id, "version": version, "policy_group": policy_group, "config": config}
    for argument, value in texts.items():
        check_text("connect()", argument, value)
    check_text_map("connect()", "build_info", build_info)
    check_text_map("connect()", "extra_config", extra_config)
    return RegisterResourceManager(
        **texts, build_info=dict(build_info or {}), extra_config=dict(extra_config or {}), capabilities=capabilities
    )


def _allocation_request(allocations: list[Allocation], releases: list[AllocationRelease]) -> AllocationRequest:
    return AllocationRequest(
        allocations=allocations, releases=AllocationReleasesRequest(allocations_to_release=releases)
    )


class Connecting(Coroutine[None, None, _RM]):
    """A connection attempt, returned by `connect`: an async context manager, and an awaitable."""

    def __init__(self, coroutine: Coroutine[None, None, _RM]) -> None:
        self._coroutine = coroutine
        self._rm: _RM | None = None

    def __await__(self) -> Generator[None, None, _RM]:
        return self._coroutine.__await__()

    def send(self, value: None, /) -> None:
        return self._coroutine.send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        error: BaseException | object = None,
        trace: TracebackType | None = None,
        /,
    ) -> None:
        if isinstance(error, BaseException):
            kind = error
        return self._coroutine.throw(kind if isinstance(kind, BaseException) else kind())

    def close(self) -> None:
        self._coroutine.close()

    async def __aenter__(self) -> _RM:
        self._rm = await self._coroutine
        return self._rm

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._rm is not None
        await self._rm.__aexit__(kind, error, trace)


connect = ResourceManager.connect
