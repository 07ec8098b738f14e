"""Runs the shim: gives the machine what happens at the API server and in the core, and executes its actions.

One task per kind follows the API server, one takes the results of the core, one sends to the core in order, and
CONCURRENT_WRITES tasks write to the API server: side by side, except for writes to one object. No task waits for
another one's request, so a pod whose volume or node is slow delays no other.

Not here: decisions (`shim.py`), the command (`command.py`).
"""

import asyncio
import logging
import platform
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from yunishard.common.process import gc_tuning
from yunishard.common.process.logs import LogLevels
from yunishard.kubernetes_shim import objects
from yunishard.kubernetes_shim.actions import (
    Action,
    BindPod,
    CoreAction,
    CreatePod,
    DeletePod,
    EmitEvent,
    Failure,
    LogProblem,
    PatchPodStatus,
    PatchVolume,
    SendAllocations,
    SendApplications,
    SendConfiguration,
    SendNodes,
    SendReport,
    WriteAction,
)
from yunishard.kubernetes_shim.client import Body, KubernetesClient, KubernetesError, find_cause
from yunishard.kubernetes_shim.events import EventSender, format_time
from yunishard.kubernetes_shim.metrics import ShimMetrics
from yunishard.kubernetes_shim.objects import PODS, Kind, Object, ObjectEvent
from yunishard.kubernetes_shim.reflector import Reflector
from yunishard.kubernetes_shim.settings import Settings
from yunishard.kubernetes_shim.shim import Shim
from yunishard.sdk.client import ResourceManager, connect
from yunishard.sdk.exceptions import (
    AnswerTimeout,
    ConfigurationRefused,
    ConnectFailed,
    OutcomeUnknown,
    RegistrationRefused,
    ResyncFailed,
    SessionLost,
)
from yunishard.sdk.items import Update

CONCURRENT_WRITES: Final = 32
"""Writes to the API server in flight, bindings above all; more wait for their turn."""

CONNECT_S_MAX: Final = 30.0
"""Seconds that one attempt to register with the core may take; attempts never cease."""

RECONNECT_S: Final = 2.0
"""Seconds between attempts to register with a core that did not answer."""

REFUSED_S: Final = (2.0, 10.0, 60.0)
"""Seconds until the next attempt after each refusal in succession; the last one again and again. A refusal usually
stands until the configuration changes, which ends the wait."""

CLUSTER_KINDS: Final[tuple[Kind[Object], ...]] = (
    objects.NODES,
    objects.NAMESPACES,
    objects.PRIORITY_CLASSES,
    objects.PERSISTENT_VOLUMES,
    objects.PERSISTENT_VOLUME_CLAIMS,
    objects.STORAGE_CLASSES,
    objects.CSI_NODES,
    objects.CSI_DRIVERS,
    objects.CSI_STORAGE_CAPACITIES,
    objects.VOLUME_ATTACHMENTS,
)
"""The kinds that are followed in all namespaces, besides pods. Config maps are followed in the own namespace. YuniKorn
also follows services, replication controllers, replica sets and stateful sets, from which kube-scheduler takes
constraints of spreading that are preferences only: they refuse no node.
"""

RUNNING_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The pods that are followed. The API server reports one that ends as deleted, which it is for a scheduler: those that
have ended are never read."""

_log = logging.getLogger("shim.driver")

_O = TypeVar("_O", bound=Object)


class Driver:
    """Runs one shim, from the first list until it is cancelled. An exception of the machine ends it: the process that
    follows reports everything again.
    """

    def __init__(
        self,
        machine: Shim,
        client: KubernetesClient,
        events: EventSender,
        *,
        address: str,
        settings: Settings,
        namespace: str,
        keys: str | None = None,
        metrics: ShimMetrics | None = None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_ready` is called when the first full report is complete."""
        self._machine, self._client, self._events = machine, client, events
        self._address, self._settings, self._namespace, self._keys = address, settings, namespace, keys
        self._configuration, self._extra_config = settings.configuration, settings.extra_config
        self._reconfigured = asyncio.Event()
        """Whether these have changed since the last attempt to register."""
        self._on_ready, self._is_ready = on_ready, False
        self._levels = LogLevels("shim", "kubernetes")
        self._levels.apply(settings.extra_config)
        self._core = asyncio.Queue[CoreAction]()
        """Messages to the core, in order."""
        self._writes = _WriteQueue()
        self._metrics = metrics or ShimMetrics()
        self._metrics.count_waiting = self._count_waiting
        self._metrics.count_pods = machine.count_pods
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._rm: ResourceManager | None = None
        self._defect: asyncio.Future[None] = self._loop.create_future()
        """Raises what the machine raised while it answered a question."""

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            SessionLost: another process registered with this id.
        """
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONCURRENT_WRITES):
                tasks.create_task(self._write())
            tasks.create_task(self._events.run())
            tasks.create_task(self._serve_core())
            tasks.create_task(_raise_from(self._defect))
            listed = [
                self._follow(tasks, PODS, field_selector=RUNNING_PODS),
                *(self._follow(tasks, kind) for kind in CLUSTER_KINDS),
                self._follow(tasks, objects.CONFIG_MAPS, namespace=self._namespace),
            ]
            for event in listed:
                await event.wait()
            gc_tuning.collect_rarely()
            self._machine.handle_listed(self._loop.time())
            self._execute()

    # The machine ------------------------------------------------------------------------------------------------------

    def _follow(
        self, tasks: asyncio.TaskGroup, kind: Kind[_O], *, namespace: str = "", field_selector: str = ""
    ) -> asyncio.Event:
        """Give the objects of a kind to the machine, in a task; return what is set when the first list is there."""

        def receive(event: ObjectEvent, found: _O) -> None:
            self._machine.handle_object(event, found, self._loop.time())

        reflector = Reflector(
            self._client,
            kind,
            receive,
            after_batch=self._execute,
            namespace=namespace,
            field_selector=field_selector,
        )
        tasks.create_task(reflector.run())
        return reflector.listed

    def _execute(self) -> None:
        """Begin to execute the actions of the machine, and set the timer."""
        for action in self._machine.take_actions():
            if isinstance(action, EmitEvent):
                self._events.emit(action)
            elif isinstance(action, LogProblem):
                _log.warning("%s", action.text)
            elif isinstance(action, CoreAction):
                if isinstance(action, SendConfiguration):
                    self._configuration, self._extra_config = action.text, action.extra_config
                    self._reconfigured.set()
                    self._levels.apply(action.extra_config)
                elif isinstance(action, SendReport):  # it replaces what is not sent yet, except for configurations
                    waiting = [self._core.get_nowait() for _ in range(self._core.qsize())]
                    for configuration in (one for one in waiting if isinstance(one, SendConfiguration)):
                        self._core.put_nowait(configuration)
                self._core.put_nowait(action)
            else:
                self._writes.put(action)
        if self._timer is not None:
            self._timer.cancel()
        due = self._machine.next_deadline
        self._timer = self._loop.call_at(due, self._advance) if due < float("inf") else None

    def _advance(self) -> None:
        self._timer = None
        self._machine.advance(self._loop.time())
        self._execute()

    def _report(self, action: Action, failure: Failure | None) -> None:
        """Give the outcome of an action to the machine."""
        self._machine.handle_outcome(action, failure, self._loop.time())
        self._execute()

    # The core ---------------------------------------------------------------------------------------------------------

    async def _serve_core(self) -> None:
        """Register with the core, again whenever it drops the session, and serve each session."""
        while True:
            rm = await self._register()
            lost: BaseException | None = None
            self._metrics.is_registered.set(1)
            try:
                self._machine.handle_registered(self._loop.time())
                self._execute()
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._take_results(rm))
                    tasks.create_task(self._send_to_core(rm))
            except* SessionLost as group:
                lost = find_cause(group)
            finally:
                self._rm = None
                self._metrics.is_registered.set(0)
                await rm.close()
            if isinstance(lost, SessionLost) and lost.code == "superseded":
                text = (
                    f"another process has registered as resource manager {self._settings.cluster_id} with the core; "
                    "shims of several clusters need a service.clusterId each"
                )
                raise SessionLost(text)
            _log.warning("%s; registering again", lost)

    async def _register(self) -> ResourceManager:
        logged, refusals = "", 0
        while True:
            pause_s = RECONNECT_S
            self._reconfigured.clear()
            try:
                return await connect(
                    self._address,
                    rm_id=self._settings.cluster_id,
                    config=self._configuration,
                    policy_group=self._settings.policy_group,
                    extra_config=self._extra_config,
                    build_info=describe_build(),
                    predicate=self._may_run,
                    preemption_predicate=self._fits_without,
                    state_dump=self._dump_state,
                    events=True,
                    keys=self._keys,
                    timeout_s=CONNECT_S_MAX,
                )
            except (AnswerTimeout, ConnectFailed) as error:
                problem = str(error)
            except RegistrationRefused as error:
                where = f"{self._settings.policy_group}.yaml of namespace {self._namespace}"
                problem = f"the core refuses resource manager {self._settings.cluster_id} or {where}: {error}"
                pause_s = REFUSED_S[min(refusals, len(REFUSED_S) - 1)]
                refusals += 1
            if problem != logged:
                _log.warning("%s; trying again, at the latest after %g s", problem, max(pause_s, REFUSED_S[-1]))
                logged = problem
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._reconfigured.wait()

    async def _take_results(self, rm: ResourceManager) -> None:
        self._rm = rm
        async for partition, news in rm.results():
            self._handle_result(partition, news)

    def _handle_result(self, partition: str, news: Update) -> None:
        self._machine.handle_result(partition, news, self._loop.time())
        self._execute()

    def _may_run(self, key: str, node: str, allocate: bool) -> str | None:  # noqa: FBT001 - the SDK's signature
        self._catch_up()
        return self._machine.may_run(key, node, allocate)

    def _fits_without(self, key: str, node: str, victims: Sequence[str], start: int) -> int | str:
        self._catch_up()
        return self._machine.fits_without(key, node, victims, start)

    async def _dump_state(self) -> str:
        """Return the machine's state. The SDK calls this in a thread, and awaits the result in the event loop."""
        return self._machine.dump_state()

    def _catch_up(self) -> None:
        """Give the machine the results that arrived before a question: an allocation counts for the next ones."""
        try:
            while self._rm is not None and (result := self._rm.next_arrived()) is not None:
                self._handle_result(*result)
        except SessionLost:
            return  # `_take_results` gets it, too
        except Exception as error:  # the SDK would take it for a refusal of the pod
            if not self._defect.done():
                self._defect.set_exception(error)
            raise

    async def _send_to_core(self, rm: ResourceManager) -> None:
        while True:
            match await self._core.get():
                case SendNodes(nodes):
                    await rm.update_nodes(nodes)
                case SendApplications(new, remove):
                    await rm.update_applications(new=new, remove=remove)
                case SendAllocations(allocations, releases):
                    await rm.update_allocations(allocations=allocations, releases=releases)
                case SendConfiguration() as change:
                    self._report(change, await _change_configuration(rm, change))
                case SendReport() as report:
                    failure = await _send_report(rm, report)
                    if failure is None and not self._is_ready:
                        self._is_ready = True
                        self._on_ready()
                    self._report(report, failure)

    # The API server ---------------------------------------------------------------------------------------------------

    def _count_waiting(self) -> dict[str, int]:
        return {"core": self._core.qsize(), "writes": len(self._writes), "events": self._events.waiting}

    async def _write(self) -> None:
        """Execute writes, one at a time."""
        while True:
            action = await self._writes.next()
            failure = None
            try:
                await self._perform(action)
            except KubernetesError as error:
                failure = Failure(error.status, error.message)
            self._writes.end(action)
            if isinstance(action, BindPod):
                self._metrics.binds.labels("refused" if failure else "bound").inc()
            self._report(action, failure)

    async def _perform(self, action: WriteAction) -> None:
        client = self._client
        match action:
            case BindPod():
                await client.bind(action.namespace, action.name, action.uid, action.node)
            case CreatePod():
                await client.create(PODS, action.namespace, action.body)
            case DeletePod():
                await client.delete(PODS, action.namespace, action.name, uid=action.uid)
            case PatchPodStatus():
                body = _build_status_patch(action, time.time())
                await client.patch(
                    PODS, action.namespace, action.name, body, subresource="status", patch_type="strategic"
                )
            case PatchVolume():
                await client.patch(action.kind, action.namespace, action.name, action.body)


def _build_status_patch(action: PatchPodStatus, now: float) -> Body:
    """Return the patch, with the time at which its condition entered its status; without it, the known time stays."""
    status: dict[str, object] = dict(action.status)
    if action.condition:
        entered = {"lastTransitionTime": format_time(now)} if action.is_transition else {}
        status["conditions"] = [{**action.condition, **entered}]
    return {"metadata": {"uid": action.uid}, "status": status}


_GO_NAMES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def describe_build() -> dict[str, str]:
    """Return what `/ws/v1/clusters` shows of the shim, under YuniKorn's keys. A package has no commit of Git, so those
    are empty; it is as old as its files.
    """
    installed_at = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    return {
        "buildVersion": version("yunishard"),
        "buildDate": installed_at.strftime("%Y-%m-%dT%H:%M:%S+0000"),
        "isPluginVersion": "false",
        "goVersion": f"{platform.python_implementation()} {platform.python_version()}",
        "arch": _GO_NAMES.get(platform.machine(), platform.machine()),
        "coreSHA": "",
        "siSHA": "",
        "shimSHA": "",
    }


async def _raise_from(defect: asyncio.Future[None]) -> None:
    await defect


class _WriteQueue:
    """Writes to the API server: one at a time and in order for each object, side by side for different ones.

    Pods are deleted after everything else, and placeholders created after that: one gang may have thousands, and the
    pods of others are not to wait for them.
    """

    def __init__(self) -> None:
        self._of_object: dict[tuple[str, str, str], deque[WriteAction]] = {}
        """The first one of each object is being executed, or is in `_ready`."""
        self._ready: asyncio.PriorityQueue[tuple[int, int, WriteAction]] = asyncio.PriorityQueue()
        """By class, then by number."""
        self._numbers = count()

    def __len__(self) -> int:
        return sum(map(len, self._of_object.values()))

    def put(self, action: WriteAction) -> None:
        waiting = self._of_object.setdefault(_find_object(action), deque())
        waiting.append(action)
        if len(waiting) == 1:
            self._make_ready(action)

    def _make_ready(self, action: WriteAction) -> None:
        order = 2 if isinstance(action, CreatePod) else 1 if isinstance(action, DeletePod) else 0
        self._ready.put_nowait((order, next(self._numbers), action))

    async def next(self) -> WriteAction:
        return (await self._ready.get())[2]

    def end(self, action: WriteAction) -> None:
        """The action was executed."""
        key = _find_object(action)
        waiting = self._of_object[key]
        waiting.popleft()
        if waiting:
            self._make_ready(waiting[0])
        else:
            del self._of_object[key]


def _find_object(action: WriteAction) -> tuple[str, str, str]:
    """Return kind, namespace and name of the object that an action writes."""
    kind = action.kind.plural if isinstance(action, PatchVolume) else PODS.plural
    return kind, action.namespace, action.name


async def _send_report(rm: ResourceManager, report: SendReport) -> Failure | None:
    """Send a full report; return why the core refused it."""
    try:
        async with rm.resync(reason=report.reason):
            await rm.update_nodes(report.nodes)
            await rm.update_applications(new=report.applications)
            await rm.update_allocations(allocations=report.allocations)
    except ResyncFailed as error:
        return Failure(message=str(error))
    return None


async def _change_configuration(rm: ResourceManager, change: SendConfiguration) -> Failure | None:
    """Change the configuration of the core; return why it was refused."""
    try:
        await rm.update_configuration(change.text, extra_config=change.extra_config)
    except (ConfigurationRefused, OutcomeUnknown) as error:
        return Failure(message=str(error))
    return None
