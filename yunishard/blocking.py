"""The SDK for programs without asyncio: the same resource manager, run in a thread, with plain callbacks.

    with BlockingResourceManager("tcp://127.0.0.1:9090", rm_id="rm-1", callbacks=Callbacks(allocated=print)) as rm:
        rm.update_nodes([node("n1", {"vcore": "8", "memory": "32Gi"})])
        rm.wait()

Two threads: one runs the event loop, the other the callbacks, one after the other. So a callback may take its time (the
core slows down for it) and may send updates itself. Not here: any behaviour of its own (`manager.py`).
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from common.rm_messages import (
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    ConfigurationUpdated,
    NodeInfo,
    RemoveApplicationRequest,
)
from yunishard.builders import check_seconds, check_text, wrong_type
from yunishard.client import CHANGE_MAX_S, LEAVE_MAX_S, ResourceManager
from yunishard.connection import StateDump
from yunishard.exceptions import Closed
from yunishard.results import Callbacks, Predicate, Result
from yunishard.session import Sync

NO_CALLBACKS: Final = Callbacks()

_T = TypeVar("_T")


class BlockingResourceManager:
    """A registered resource manager for any thread; made connected, with the arguments and errors of `connect`."""

    def __init__(
        self,
        address: str,
        *,
        rm_id: str,
        callbacks: Callbacks = NO_CALLBACKS,
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
    ) -> None:
        if not isinstance(callbacks, Callbacks):
            raise wrong_type("BlockingResourceManager()", "callbacks", callbacks, "Callbacks")
        connecting = ResourceManager.connect(
            address,
            rm_id=rm_id,
            config=config,
            policy_group=policy_group,
            version=version,
            build_info=build_info,
            extra_config=extra_config,
            predicate=predicate,
            state_dump=state_dump,
            events=events,
            keys=keys,
            timeout_s=timeout_s,
        )
        self._callbacks = callbacks
        self._caller = ThreadPoolExecutor(1, thread_name_prefix=f"{rm_id}-callbacks")
        self._caller_thread = 0
        """The thread that a callback runs in just now; 0 for none."""
        self._closing = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"{rm_id}-connection", daemon=True)
        self._thread.start()
        try:
            self._rm = self._result_of(connecting)
        except BaseException:
            self._stop_threads()
            raise
        self._run: Future[None] = asyncio.run_coroutine_threadsafe(self._consume(), self._loop)

    @property
    def rm_id(self) -> str:
        return self._rm.rm_id

    @property
    def partitions(self) -> tuple[str, ...]:
        """The normalised names of the partitions that the configuration defines; they change with it."""
        return self._rm.partitions

    def update_nodes(self, nodes: Sequence[NodeInfo]) -> None:
        """Nodes that join, change or go.

        Raises:
            Exception: (every update) what the asyncio one raises, or what a callback raised: none is called after that.
        """
        self._check()
        self._result_of(self._rm.update_nodes(nodes))

    def update_applications(
        self, *, new: Sequence[AddApplicationRequest] = (), remove: Sequence[RemoveApplicationRequest] = ()
    ) -> None:
        """Applications that come and go; the new ones are handled first."""
        self._check()
        self._result_of(self._rm.update_applications(new=new, remove=remove))

    def update_allocations(
        self, *, allocations: Sequence[Allocation] = (), releases: Sequence[AllocationRelease] = ()
    ) -> None:
        """Asks, allocations that already run, and releases; the releases are handled last."""
        self._check()
        self._result_of(self._rm.update_allocations(allocations=allocations, releases=releases))

    def update_configuration(
        self, text: str, *, extra_config: Mapping[str, str] | None = None, timeout_s: float = CHANGE_MAX_S
    ) -> ConfigurationUpdated:
        """Run with another `queues.yaml`; as in `ResourceManager`, with the same errors."""
        self._check()
        return self._result_of(self._rm.update_configuration(text, extra_config=extra_config, timeout_s=timeout_s))

    @contextmanager
    def resync(self, partition: str = "", *, reason: str = "") -> Iterator[Sync]:
        """Report everything of a partition, in the block; as in `ResourceManager`, with the same errors. A callback may
        do it, too.
        """
        self._check()
        report = self._rm.resync(partition, reason=reason)
        sync = self._result_of(report.__aenter__())
        try:
            yield sync
        except BaseException as error:
            self._result_of(report.__aexit__(type(error), error, error.__traceback__))
            raise
        self._result_of(report.__aexit__(None, None, None))

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait while the callbacks do the work, until another thread closes this.

        Raises:
            TimeoutError: it was for `timeout_s`, and nothing ended.
            Exception: the session was lost, or what a callback raised.
        """
        if timeout_s is not None:
            check_seconds("wait()", "timeout_s", timeout_s)
        self._run.result(timeout_s)

    def leave(self, reason: str = "", *, timeout_s: float = LEAVE_MAX_S) -> None:
        """Go for good, then close; as in `ResourceManager`, with the same errors."""
        check_text("leave()", "reason", reason)
        check_seconds("leave()", "timeout_s", timeout_s)
        self._check()
        try:
            self._result_of(self._rm.leave(reason, timeout_s=timeout_s))
        finally:
            self.close()

    def close(self) -> None:
        """Close, and wait for the callback that runs just now; raises what a callback raised, if one did."""
        if threading.get_ident() == self._caller_thread:
            raise RuntimeError("a callback cannot close its own resource manager: let it end, or raise")
        with self._closing:
            if self._loop.is_closed():
                return
            try:
                self._result_of(self._rm.close())
                self._run.result()
            except Closed:
                pass  # a callback was sending an update
            finally:
                self._stop_threads()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave, unless the block was left by an exception: then what the core knows stays to be looked at."""
        try:
            if error is None and not self._run.done():
                self._result_of(self._rm.__aexit__(None, None, None))
            self.close()
        except Exception:
            if error is None:
                raise

    # Private --------------------------------------------------------------------------------------------------------

    async def _consume(self) -> None:
        async for result in self._rm.results():
            await self._loop.run_in_executor(self._caller, self._tell, result)

    def _tell(self, result: Result) -> None:
        self._caller_thread = threading.get_ident()
        try:
            for answer in self._callbacks.tell(result):
                if answer is not None:
                    raise TypeError(
                        "these callbacks are plain functions; `async def` is for yunishard.client.ResourceManager"
                    )
        finally:
            self._caller_thread = 0

    def _check(self) -> None:
        if self._run.done():
            self._run.result()
            raise Closed(f"{self.rm_id}: this resource manager was closed by its program")

    def _result_of(self, coroutine: Coroutine[None, None, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _stop_threads(self) -> None:
        self._result_of(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._caller.shutdown()
