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
from itertools import compress
from pathlib import Path
from typing import Final, Self, TypeVar

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.rm_messages import CAPABILITIES
from yunishard.common.messages.wire import BODY_BYTES_MAX
from yunishard.common.names import normalise_partition_name
from yunishard.common.transport import curve_keys as key_files
from yunishard.sdk import exceptions
from yunishard.sdk.connection import Endpoint, SessionDriver, StateDump
from yunishard.sdk.items import (
    Callbacks,
    Predicate,
    PreemptionPredicate,
    Result,
    Results,
    check_arguments,
    check_command,
)
from yunishard.sdk.port_probe import probe
from yunishard.sdk.session import ClientSession, Sync

ITEMS_MAX: Final = 10_000
"""Items in one message, which a partition handles in a second at most."""

_A = TypeVar("_A")
_B = TypeVar("_B")
_RM = TypeVar("_RM", bound="ResourceManager")


def split_by_size(
    function: str,
    make: Callable[[list[_A], list[_B]], Command],
    first: Sequence[_A],
    second: Sequence[_B] = (),
) -> list[tuple[Command, bytes]]:
    """Return the command with these items and its encoded body, or several: all of `first` before all of `second`.

    Raises:
        TypeError: a field has a value that cannot be sent; names the function and the place.
        UpdateTooLarge: a single item is larger than a message may be.
    """
    command, count = make(list(first), list(second)), len(first) + len(second)
    body = check_command(function, command)
    if len(body) <= BODY_BYTES_MAX and count <= ITEMS_MAX:
        return [(command, body)]
    if count <= 1:
        text = f"an item takes {len(body)} bytes, at most {BODY_BYTES_MAX} are allowed in a message"
        raise exceptions.UpdateTooLarge(text)
    half = count // 2
    cut = max(0, half - len(first))
    begin = split_by_size(function, make, first[:half], second[:cut])
    return begin + split_by_size(function, make, first[half:], second[cut:])


LEAVE_MAX_S: Final = 10.0
"""Seconds that the core may take to remove a resource manager."""

CHANGE_MAX_S: Final = 60.0
"""Seconds that a change of the configuration may take, as the core starts workers for new partitions."""

IGNORED_WARNING_S: Final = 60.0
"""Seconds between two warnings in the log about releases without an effect. Each is a result in any case."""

DIAGNOSE_AFTER_S: Final = 3.0
"""Seconds without a connection after which `connect` probes the addresses."""

ADDRESSES_MAX: Final = 32

KEYS_VARIABLE: Final = "YUNISHARD_KEYS"
"""The environment variable that names the resource manager's own secret key file."""

_log = logging.getLogger(__name__)


class ResourceManager:
    """A registered resource manager; made by `connect`, used in one event loop."""

    def __init__(self, driver: SessionDriver) -> None:
        self._driver = driver
        self._session = driver.session
        self._is_consumed = False
        """Whether a consumer waits for a result."""
        self._finding = ""
        """Result of the probe of the addresses."""
        self._next_warning_s = 0.0
        """Time of the event loop from which an ignored release is logged again."""

    @classmethod
    @check_arguments
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
        preemption_predicate: PreemptionPredicate | None = None,
        state_dump: StateDump | None = None,
        events: bool = False,
        keys: str | Path | None = None,
        timeout_s: float = 30.0,
    ) -> "Connecting[Self]":
        """Connect and register. The core removes everything that an earlier process with the same `rm_id` had.

        Use `async with connect(...) as rm`, which leaves the core at the end, or `rm = await connect(...)`.

        Args:
            address: the native port of the core, such as `tcp://127.0.0.1:9090`, or several of them with commas
                between: the session continues at the next one when the present one fails.
            rm_id: the id of this resource manager.
            config: the text of a `queues.yaml`; empty for the core's own configuration.
            policy_group: the name of the configuration, as in the scheduler interface.
            version, build_info: of the program, shown over REST.
            extra_config: settings that an RM may send, such as `event.trackingEnabled`; the core ignores unknown keys.
            predicate: decides which ask may run on which node: `(allocation_key, node_id, allocate) -> reason or None`.
            preemption_predicate: decides who has to go: `(allocation_key, node_id, victims, start) -> index or reason`.
            state_dump: returns the state of the RM as the text of a JSON object, for a state dump: `() -> str`.
            events: whether to receive the events of the RM's partitions, which the core sends every two seconds.
            keys: the secret key file of the RM (`yunishard keys new`), for a core that requires keys; the core's
                `server.key` must be in the same directory, or `server-HOST.key` for the address with this host. None
                uses the variable YUNISHARD_KEYS; "" means no keys.
            timeout_s: how long connecting and registering may take. Hundreds of partitions take minutes.

        Raises:
            TypeError, ValueError: an argument is wrong; raised before anything is sent.
            KeyFileError: a key file cannot be used.
            RegistrationRefused: (when awaited) the core refuses the RM; the text gives the reason.
            KeyRefused: the core and the RM do not accept each other's keys.
            ConnectFailed: nothing answers at any address; raised at once if all ports have another protocol.
            AnswerTimeout: the core is there, and did not answer in time.
        """
        if preemption_predicate is not None and predicate is None:
            raise ValueError("connect(): preemption_predicate needs a predicate, too")
        request = rm_messages.RegisterResourceManager(
            rm_id=rm_id,
            version=version,
            policy_group=policy_group,
            build_info=dict(build_info or {}),
            config=config,
            extra_config=dict(extra_config or {}),
            capabilities=list(compress(CAPABILITIES, (predicate, preemption_predicate, events, state_dump))),
        )
        session = ClientSession(request, secrets.token_hex(8), predicate, preemption_predicate)
        driver = SessionDriver(_find_endpoints(address, keys), session, state_dump)
        return Connecting(cls(driver)._register(timeout_s))

    @property
    def address(self) -> str:
        """The present one of the addresses."""
        return self._driver.address

    @property
    def rm_id(self) -> str:
        return self._session.protocol.rm_id

    @property
    def partitions(self) -> tuple[str, ...]:
        """The normalised names of the partitions that the configuration defines; they change with it."""
        return self._session.protocol.partitions

    # Updates --------------------------------------------------------------------------------------------------------

    @check_arguments
    def update_nodes(self, nodes: Sequence[rm_messages.NodeInfo]) -> Coroutine[None, None, None]:
        """Create, change or remove nodes. Like every update it waits only for flow control, not for an answer.

        Raises:
            TypeError: an item has the wrong type, or a value that cannot be sent; nothing of this call is sent.
            SessionLost: (when awaited) connect again.
            Closed: `close` was called.
            UpdateTooLarge: a single item is larger than a message may be.
        """
        return self._send(split_by_size("update_nodes()", lambda part, _: rm_messages.NodeRequest(part), nodes))

    @check_arguments
    def update_applications(
        self,
        *,
        new: Sequence[rm_messages.AddApplicationRequest] = (),
        remove: Sequence[rm_messages.RemoveApplicationRequest] = (),
    ) -> Coroutine[None, None, None]:
        """Submit applications and remove others; the core handles the new ones first."""
        return self._send(split_by_size("update_applications()", rm_messages.ApplicationRequest, new, remove))

    @check_arguments
    def update_allocations(
        self,
        *,
        allocations: Sequence[rm_messages.Allocation] = (),
        releases: Sequence[rm_messages.AllocationRelease] = (),
    ) -> Coroutine[None, None, None]:
        """Send asks, allocations that already run, and releases; the core handles the releases last."""
        return self._send(split_by_size("update_allocations()", _build_allocation_request, allocations, releases))

    @check_arguments
    async def update_configuration(
        self, text: str, *, extra_config: Mapping[str, str] | None = None, timeout_s: float = CHANGE_MAX_S
    ) -> rm_messages.ConfigurationUpdated:
        """Replace the `queues.yaml` in all partitions or, if one refuses it, in none; waits for the outcome.

        `extra_config` replaces all settings sent before, even if the configuration is refused; None keeps them.

        Raises:
            ConfigurationRefused: the core keeps the configuration in force; the text gives the reason.
            OutcomeUnknown: the answer was lost or late. The SDK does not send the change again.
        """
        self._driver.check()
        change = self._session.request_configuration(text, None if extra_config is None else dict(extra_config))
        self._driver.flush()
        try:
            await self._driver.wait_until(lambda: change.outcome is not None, timeout_s)
        except TimeoutError:
            raise exceptions.OutcomeUnknown(
                f"{self.address} did not answer within {timeout_s:g} s whether {self.rm_id} has this configuration now:"
                " check it (`yunishard config get`), or send it again"
            ) from None
        finally:
            self._session.discard_change(change)
        if not isinstance(change.outcome, rm_messages.ConfigurationUpdated):
            assert change.outcome is not None
            raise change.outcome
        return change.outcome

    @check_arguments
    @asynccontextmanager
    async def resync(self, partition: str = "", *, reason: str = "") -> AsyncIterator[Sync]:
        """Report everything in a partition again, because the partition or the RM lost its state.

        The updates within the block are the full report: nodes, applications, running allocations and asks. At the end
        of the block the core removes everything that was not in it. The partition allocates nothing until then. A block
        that raises leaves the partition waiting for another, complete report.

        Raises:
            ResyncFailed: (at the end of the block) the partition refused the report; report again.
        """
        name = normalise_partition_name(self.rm_id, partition)
        await self._driver.wait_until(lambda: not self._session.protocol.is_full(name))
        sync = self._session.begin_sync(name, reason)
        self._driver.flush()
        yield sync
        await self._driver.wait_until(lambda: not self._session.protocol.is_full(name))
        self._session.end_sync(sync)
        self._driver.flush()
        await self._driver.wait_until(lambda: sync.outcome is not None)
        if isinstance(sync.outcome, exceptions.ResyncFailed):
            raise sync.outcome

    # Results --------------------------------------------------------------------------------------------------------

    def results(self) -> AsyncIterator[Result]:
        """Iterate over the results in order, for one consumer at a time; ends after `close`.

        A result counts as handled when the next one is requested.

        Raises:
            SessionLost: (when read) connect again.
        """
        return Results(self._take)

    def next_arrived(self) -> Result | None:
        """Return the next result if it has arrived; it counts as handled when the next one is requested.

        A predicate whose answers depend on earlier allocations takes all of these first: the core sends an allocation
        before a question that follows from it, and a consumer of `results` may not have had its turn yet.

        Raises:
            SessionLost: connect again.
        """
        result = self._driver.next_result()
        if result is not None and isinstance(result.news, rm_messages.ReleasesIgnored):
            self._warn_ignored(result.partition, result.news)
        return result

    @check_arguments
    async def run(self, callbacks: Callbacks) -> None:
        """Call the callbacks for all results, until `close`. An exception in a callback ends this, and is raised."""
        async for result in self.results():
            for answer in callbacks.dispatch(result):
                if answer is not None:
                    await answer

    # The end --------------------------------------------------------------------------------------------------------

    @check_arguments
    async def leave(self, reason: str = "", *, timeout_s: float = LEAVE_MAX_S) -> None:
        """Leave the core permanently: it removes all partitions of this RM with everything in them. Then close.

        Raises:
            AnswerTimeout: the core did not confirm in time. It removes the partitions after `pause-timeout`.
        """
        self._driver.check()
        self._session.leave(reason)
        self._driver.flush()
        try:
            await self._driver.wait_until(lambda: isinstance(self._session.end_reason, exceptions.Closed), timeout_s)
        except TimeoutError:
            raise exceptions.AnswerTimeout(
                f"{self.address} did not confirm within {timeout_s:g} s that it removed {self.rm_id}"
            ) from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Send pending messages, then close. The core keeps the RM's state for `pause-timeout`, and allocates nothing
        meanwhile. Then it removes the RM's partitions, as after `leave`.
        """
        if self._session.end_reason is None:
            self._session.acknowledge()
            self._driver.flush()
        self._driver.end(exceptions.Closed(f"{self.rm_id}: this resource manager was closed by its program"))
        await self._driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Leave; after an exception only close, so that an operator can inspect the state in the core."""
        if error is None and self._session.end_reason is None:
            try:
                await self.leave()
            except (TimeoutError, exceptions.SessionLost) as trouble:
                _log.warning("%s", trouble)
        await self.close()

    # Private --------------------------------------------------------------------------------------------------------

    async def _register(self, timeout_s: float) -> Self:
        """Connect and wait until the core has answered the registration; close if that fails."""
        self._driver.open()
        diagnosis = asyncio.create_task(self._diagnose(min(DIAGNOSE_AFTER_S, timeout_s / 3)))
        try:
            await self._driver.wait_until(lambda: self._session.protocol.state == "open", timeout_s)
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise self._explain_timeout(timeout_s) from None
            raise
        finally:
            diagnosis.cancel()
        return self

    async def _diagnose(self, after_s: float) -> None:
        """Log early why there is no connection. If no port has this protocol, stop; otherwise the core may still
        start.
        """
        await asyncio.sleep(after_s)
        if self._session.protocol.state != "new":
            return
        addresses = [address for address, _ in self._driver.endpoints]
        found = await asyncio.gather(*map(probe, addresses))
        findings = [(address, finding) for address, finding in zip(addresses, found, strict=True) if finding]
        if not findings or self._session.protocol.state != "new":
            return
        texts = "; ".join(f"{one.text}" if len(found) == 1 else f"{address}: {one.text}" for address, one in findings)
        self._finding = f" ({texts})"
        text = f"no answer from {', '.join(addresses)} within {after_s:.2g} s: {texts}"
        if all(finding is not None and finding.is_foreign for finding in found):
            reason = f"{text}. Give the native port (9090 unless configured otherwise)"
            self._driver.end(exceptions.ConnectFailed(reason))
        else:
            _log.warning("%s: %s; trying again", self.rm_id, text)

    def _explain_timeout(self, timeout_s: float) -> Exception:
        """Build the exception for a registration without an answer in time."""
        if self._session.pause_reason:
            return exceptions.RegistrationRefused(f"{self._session.pause_reason} (tried for {timeout_s:g} s)")
        if self._session.protocol.state == "new":
            return exceptions.ConnectFailed(
                f"nothing answers at {', '.join(address for address, _ in self._driver.endpoints)}"
                f" within {timeout_s:g} s{self._finding}: is the core running there "
                "(`yunishard up`), and is this its port for resource managers (9090 unless configured otherwise)?"
            )
        return exceptions.AnswerTimeout(
            f"{self.address} received the registration of {self.rm_id} and did not answer within {timeout_s:g} s: check"
            " the core's log, then try again; hundreds of partitions take minutes, so give them a longer timeout_s"
        )

    async def _send(self, commands: Sequence[tuple[Command, bytes]]) -> None:
        for command, body in commands:
            await self._driver.wait_until(lambda: self._session.protocol.has_room(command))  # noqa: B023 - awaited here
            self._driver.check()
            self._session.send_update(command, body)
            self._driver.flush()

    async def _take(self) -> Result:
        """Wait for the next result."""
        if self._is_consumed:
            raise exceptions.UsageError(f"{self.rm_id}: results have one consumer, and it is waiting already")
        self._is_consumed = True
        try:
            while (result := self.next_arrived()) is None:
                await self._driver.changed.wait()
        except exceptions.Closed:
            raise StopAsyncIteration from None
        finally:
            self._is_consumed = False
        return result

    def _warn_ignored(self, partition: str, news: rm_messages.ReleasesIgnored) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_warning_s or not news.ignored:
            return
        self._next_warning_s = now_s + IGNORED_WARNING_S
        first, others = news.ignored[0], len(news.ignored) + news.more - 1
        _log.warning(
            "%s: release of %r of application %r in partition %s had no effect: %s%s",
            *(self.rm_id, first.allocation_key, first.application_id, partition, first.message),
            f" (and {others} more)" if others else "",
        )


def _find_endpoints(addresses: str, keys: str | Path | None) -> list[Endpoint]:
    """Return each address of a list with its keys.

    Raises:
        ValueError: the list has an empty address, or too many.
        KeyFileError: a key file cannot be used.
    """
    keys = os.environ.get(KEYS_VARIABLE) if keys is None else keys
    try:
        return [
            Endpoint(address, key_files.ClientKeys.beside(Path(keys), _host_of(address)) if keys else None)
            for address in split_addresses(addresses)
        ]
    except key_files.KeyFileError as error:
        raise exceptions.KeyFileError(*error.args) from None


def split_addresses(text: str) -> list[str]:
    """Return the different addresses of a list with commas between them.

    Raises:
        ValueError: the list has an empty address, or too many.
    """
    found = list(dict.fromkeys(address.strip() for address in text.split(",")))
    if "" in found or len(found) > ADDRESSES_MAX:
        what = f"expected one address or up to {ADDRESSES_MAX} with commas between, as in tcp://a:9090,tcp://b:9090"
        raise ValueError(f"{what}, got {text[:200]!r}")
    return found


def _host_of(address: str) -> str:
    """Return the host as it is written in an address; empty if it has none."""
    return address.partition("://")[2].rpartition(":")[0].strip("[]")


def _build_allocation_request(
    allocations: list[rm_messages.Allocation], releases: list[rm_messages.AllocationRelease]
) -> rm_messages.AllocationRequest:
    return rm_messages.AllocationRequest(allocations, rm_messages.AllocationReleasesRequest(releases))


class Connecting(Coroutine[None, None, _RM]):
    """A connection attempt, returned by `connect`: an async context manager, and an awaitable."""

    def __init__(self, coroutine: Coroutine[None, None, _RM]) -> None:
        self._coroutine = coroutine
        self._rm: _RM | None = None

    def __await__(self) -> Generator[None, None, _RM]:
        return self._coroutine.__await__()

    def send(self, value: None, /) -> None:
        return self._coroutine.send(value)

    def throw(self, error: type[BaseException] | BaseException, /, *_: object) -> None:
        return self._coroutine.throw(error)

    def close(self) -> None:
        self._coroutine.close()

    async def __aenter__(self) -> _RM:
        self._rm = await self._coroutine
        return self._rm

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._rm is not None
        await self._rm.__aexit__(kind, error, trace)


connect = ResourceManager.connect
