"""The SDK for programs without asyncio: the same resource manager in a thread of its own, with plain callbacks.

    with BlockingResourceManager("tcp://127.0.0.1:9090", rm_id="rm-1", callbacks=Callbacks(allocated=print)) as rm:
        rm.update_nodes([node("n1", {"vcore": "8", "memory": "32Gi"})])
        rm.wait()

There are two threads: one runs the event loop, the other calls the callbacks one after the other. So a callback may
block, which slows the core down, and may send updates. Not here: any behaviour of its own (`client.py`).
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypedDict, TypeVar, Unpack

from yunishard.sdk.client import LEAVE_MAX_S, ResourceManager
from yunishard.sdk.connection import StateDump
from yunishard.sdk.exceptions import Closed, UsageError
from yunishard.sdk.items import Callbacks, Predicate, PreemptionPredicate, Result, check_arguments
from yunishard.sdk.session import Sync

NO_CALLBACKS: Final = Callbacks()

_P = ParamSpec("_P")
_T = TypeVar("_T")


class ConnectOptions(TypedDict, total=False):
    """The optional arguments of `connect`."""

    config: str
    policy_group: str
    version: str
    build_info: Mapping[str, str] | None
    extra_config: Mapping[str, str] | None
    predicate: Predicate | None
    preemption_predicate: PreemptionPredicate | None
    state_dump: StateDump | None
    events: bool
    keys: str | Path | None
    timeout_s: float


def _forward(
    method: Callable[Concatenate[ResourceManager, _P], Coroutine[None, None, _T]],
) -> "Callable[Concatenate[BlockingResourceManager, _P], _T]":
    """Build a method that runs this one in the event loop and waits for its result."""

    @wraps(method)
    def call(self: "BlockingResourceManager", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        self._check()
        return self._run(method(self._rm, *args, **kwargs))

    return call


class BlockingResourceManager:
    """A registered resource manager for any thread. The constructor connects, with the arguments and errors of
    `connect`; `callbacks` are plain functions. Methods raise the errors of `ResourceManager`, or what a callback
    raised; no callback is called then.
    """

    def __init__(
        self, address: str, *, rm_id: str, callbacks: Callbacks = NO_CALLBACKS, **options: Unpack[ConnectOptions]
    ) -> None:
        connecting = ResourceManager.connect(address, rm_id=rm_id, **options)
        self._callbacks = callbacks
        self._callback_executor = ThreadPoolExecutor(1, thread_name_prefix=f"{rm_id}-callbacks")
        self._callback_thread = 0
        """The thread that runs a callback now; 0 for none."""
        self._close_lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"{rm_id}-connection", daemon=True)
        self._thread.start()
        try:
            self._rm = self._run(connecting)
        except BaseException:
            self._stop_threads()
            raise
        self._consumer: Future[None] = asyncio.run_coroutine_threadsafe(self._consume(), self._loop)

    @property
    def address(self) -> str:
        """The present one of the addresses."""
        return self._rm.address

    @property
    def rm_id(self) -> str:
        return self._rm.rm_id

    @property
    def partitions(self) -> tuple[str, ...]:
        """The normalised names of the partitions that the configuration defines; they change with it."""
        return self._rm.partitions

    update_nodes = _forward(ResourceManager.update_nodes)
    update_applications = _forward(ResourceManager.update_applications)
    update_allocations = _forward(ResourceManager.update_allocations)
    update_configuration = _forward(ResourceManager.update_configuration)

    @contextmanager
    def resync(self, partition: str = "", *, reason: str = "") -> Iterator[Sync]:
        """Report everything in a partition again, in the block; as in `ResourceManager`, with the same errors.

        A callback may do it, too.
        """
        self._check()
        report = self._rm.resync(partition, reason=reason)
        sync = self._run(report.__aenter__())
        try:
            yield sync
        except BaseException as error:
            self._run(report.__aexit__(type(error), error, error.__traceback__))
            raise
        self._run(report.__aexit__(None, None, None))

    @check_arguments
    def wait(self, timeout_s: float | None = None) -> None:
        """Wait while the callbacks do the work, until another thread closes this.

        Raises:
            TimeoutError: `timeout_s` seconds have passed.
            Exception: the session was lost, or what a callback raised.
        """
        self._consumer.result(timeout_s)

    def leave(self, reason: str = "", *, timeout_s: float = LEAVE_MAX_S) -> None:
        """Leave permanently, then close; as in `ResourceManager`, with the same errors."""
        self._check()
        try:
            self._run(self._rm.leave(reason, timeout_s=timeout_s))
        finally:
            self.close()

    def close(self) -> None:
        """Close, and wait for the present callback; raises what a callback raised, if one did."""
        if threading.get_ident() == self._callback_thread:
            raise UsageError("a callback cannot close its own resource manager: let it end, or raise")
        with self._close_lock:
            if self._loop.is_closed():
                return
            try:
                self._run(self._rm.close())
                self._consumer.result()
            except Closed:
                pass  # a callback was sending an update
            finally:
                self._stop_threads()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Leave; after an exception only close, so that an operator can inspect the state in the core."""
        try:
            if error is None and not self._consumer.done():
                self._run(self._rm.__aexit__(None, None, None))
            self.close()
        except Exception:
            if error is None:
                raise

    # Private --------------------------------------------------------------------------------------------------------

    async def _consume(self) -> None:
        async for result in self._rm.results():
            await self._loop.run_in_executor(self._callback_executor, self._call_callbacks, result)

    def _call_callbacks(self, result: Result) -> None:
        self._callback_thread = threading.get_ident()
        try:
            for answer in self._callbacks.dispatch(result):
                if answer is not None:
                    raise TypeError("these callbacks are plain functions; `async def` is for yunishard.ResourceManager")
        finally:
            self._callback_thread = 0

    def _check(self) -> None:
        if self._consumer.done():
            self._consumer.result()
            raise Closed(f"{self.rm_id}: this resource manager was closed by its program")

    def _run(self, coroutine: Coroutine[None, None, _T]) -> _T:
        """Run a coroutine in the event loop, and return its result."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _stop_threads(self) -> None:
        self._run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._callback_executor.shutdown()
