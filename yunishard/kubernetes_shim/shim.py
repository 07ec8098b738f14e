"""The machine of the shim: events of the API server and results of the core in, actions out.

It owns the cluster (`cluster.py`) that predicates read, and the applications, tasks and nodes that the core has.
It reads no clock, and never waits: what has to happen later has a deadline (`next_deadline`, `advance`).

The driver calls, in any order after the start:

- `handle_object` for each object of the API server that is new, changed or gone. Until `handle_listed` the objects are
  only stored;
- `handle_listed` once, when all kinds were listed; `handle_registered` for each new session with the core. After both,
  the machine sends a full report;
- `handle_result` for each result of the session, `handle_outcome` for each action that has an outcome;
- `advance` at `next_deadline`;

and after each of them executes `take_actions()`. `may_run` answers the core's question where an ask may run.

Not here: executing actions (`driver.py`), what pods mean (`pods.py`), predicates (`predicates`).
"""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final, TypeVar

from msgspec.json import encode

from yunishard.common.messages import event_codes, rm_messages
from yunishard.common.messages.rm_messages import AddApplicationRequest, Allocation, NodeInfo
from yunishard.common.names import normalise_partition_name
from yunishard.common.resources import QuantityError
from yunishard.kubernetes_shim import applications, asks, gangs, nodes, tasks
from yunishard.kubernetes_shim.actions import (
    Action,
    BindPod,
    CreatePod,
    DeletePod,
    Failure,
    LogProblem,
    PatchPodStatus,
    PatchVolume,
    SendConfiguration,
    SendReport,
)
from yunishard.kubernetes_shim.objects import (
    ConfigMap,
    Namespace,
    Node,
    Object,
    ObjectEvent,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PriorityClass,
)
from yunishard.kubernetes_shim.pods import is_ours, is_placeholder, name_of
from yunishard.kubernetes_shim.predicates.evaluation import count_victims, refuse
from yunishard.kubernetes_shim.settings import (
    CONFIG_MAPS_READ,
    Settings,
    SettingsError,
    find_keys_for_restart,
    read_config_maps,
    read_settings,
)
from yunishard.kubernetes_shim.state import Application, ApplicationState, ShimState, Task, TaskState
from yunishard.sdk.items import Update

INFORMATIONAL: Final = "Informational"
"""The action of the events that come from the core."""

_NODE_EVENTS: Final = (
    (event_codes.NODE, event_codes.ADD, event_codes.DETAILS_NONE),
    (event_codes.NODE, event_codes.REMOVE, event_codes.NODE_DECOMISSION),
)
"""The events of the core about nodes that are shown: others are about single allocations."""


RETRY_S: Final = 1.0
"""Seconds after which a report that failed is repeated."""

DUMPED_MAX: Final = 500
"""Objects of a kind in a state dump, of which the core takes 1 MiB; the others are only counted."""


NAME_DUMPED_MAX: Final = 253
"""Characters of an application id in a state dump. Labels have fewer; an annotation may have 256 KiB."""


class Shim:
    """The shim of one cluster."""

    def __init__(self, settings: Settings) -> None:
        """`settings` are those with which the driver registers."""
        self._state: Final = ShimState(settings)
        self._outbox: Final = self._state.outbox
        self._partition: Final = normalise_partition_name(settings.cluster_id, "")
        self._config_maps: Final[dict[str, ConfigMap]] = {}
        self._restart_keys: list[str] = []
        """Settings whose values in the config maps take effect after a restart."""
        self._waiting_pods: Final[dict[str, Pod]] = {}
        """Pods listed before the start, by uid."""
        self._is_listed = self._is_registered = False

    def take_actions(self) -> list[Action]:
        """Return the actions to execute now, in order."""
        self._settle()
        return self._outbox.take()

    @property
    def next_deadline(self) -> float:
        """The time at which `advance` has to be called; infinity if nothing is due."""
        return self._state.next_deadline

    # The API server -------------------------------------------------------------------------------------------------

    def handle_object(self, event: ObjectEvent, obj: Object, now: float) -> None:
        """Handle an object that was added, modified or deleted; a deletion has the last known object."""
        state, is_gone = self._state, event == "deleted"
        state.now = now
        if is_gone:
            state.cluster.remove_object(obj)
        else:
            state.cluster.set_object(obj)
        asks.note_object(state, obj, is_gone=is_gone)
        match obj:
            case Pod():
                self._handle_pod(obj, is_gone=is_gone)
            case Node():
                self._handle_node(obj, is_gone=is_gone)
            case Namespace():
                _store(state.namespaces, obj.metadata.name, obj, is_gone=is_gone)
            case PriorityClass():
                _store(state.priority_classes, obj.metadata.name, obj, is_gone=is_gone)
            case ConfigMap() if obj.metadata.name in CONFIG_MAPS_READ:
                _store(self._config_maps, obj.metadata.name, obj, is_gone=is_gone)
                if self._is_listed:
                    self._apply_config_maps()
            case PersistentVolumeClaim():
                for task in state.blocked.values():
                    state.changed[task.application_id] = None
                tasks.check_volumes(state)
            case PersistentVolume():
                tasks.check_volumes(state)
            case _:
                pass

    def _handle_pod(self, pod: Pod, *, is_gone: bool) -> None:
        state, uid = self._state, pod.metadata.uid
        if not state.is_started:
            _store(self._waiting_pods, uid, pod, is_gone=is_gone)
            return
        task = state.tasks.get(uid)
        try:
            if not is_ours(pod):
                if is_gone:
                    nodes.remove_foreign(state, uid)
                else:
                    nodes.set_foreign(state, pod)
            elif is_gone:
                state.gated.pop(uid, None)
                if task is not None:
                    task.pod = pod
                    tasks.end_task(state, task)
            elif task is not None:
                tasks.update_pod(state, task, pod)
            else:
                applications.add_pod(state, pod)
        except QuantityError as error:  # the API server accepts no such pod
            self._outbox.write(LogProblem(f"pod {name_of(pod)} is ignored: {error}"))

    def _handle_node(self, node: Node, *, is_gone: bool) -> None:
        try:
            if is_gone:
                nodes.remove_node(self._state, node.metadata.name)
            else:
                nodes.set_node(self._state, node)
        except QuantityError as error:
            self._outbox.write(LogProblem(f"node {node.metadata.name} is ignored: {error}"))

    def _apply_config_maps(self) -> None:
        """Send the configuration to the core if it has changed. Values that cannot be read change nothing."""
        state = self._state
        if not state.settings.enable_config_hot_refresh:
            return
        try:
            maps = read_config_maps(self._config_maps)
            settings = read_settings(maps, current=state.settings)
        except SettingsError as error:
            self._outbox.write(LogProblem(f"config maps: the previous settings stay: {error}"))
            return
        restart_keys = find_keys_for_restart(settings, maps)
        if restart_keys and restart_keys != self._restart_keys:
            text = f"config maps: changes of {', '.join(restart_keys)} take effect when the shim is restarted"
            self._outbox.write(LogProblem(text))
        self._restart_keys = restart_keys
        change = SendConfiguration(settings.configuration, settings.extra_config)
        if change != SendConfiguration(state.settings.configuration, state.settings.extra_config):
            self._outbox.send_configuration(change)
        state.settings = settings

    # The start ------------------------------------------------------------------------------------------------------

    def handle_listed(self, now: float) -> None:
        """All kinds were listed once."""
        self._state.now, self._is_listed = now, True
        self._apply_config_maps()
        self._start("the shim has started")

    def handle_registered(self, now: float) -> None:
        """A new session with the core began, which has nothing of this shim."""
        self._state.now, self._is_registered = now, True
        self._start("the shim has a new session")

    def _start(self, reason: str) -> None:
        if not (self._is_listed and self._is_registered):
            return
        state = self._state
        state.is_started = True
        pods = sorted(self._waiting_pods.values(), key=lambda one: (one.metadata.creation_timestamp, one.metadata.uid))
        self._waiting_pods.clear()
        for is_second in (False, True):  # an application is that of its first real pod
            for pod in pods:
                if is_placeholder(pod) is is_second:
                    self._handle_pod(pod, is_gone=False)
        begin_report(state, reason)

    # The core -------------------------------------------------------------------------------------------------------

    def handle_result(self, partition: str, news: Update, now: float) -> None:
        """Handle a result of the core."""
        state = self._state
        state.now = now
        if partition and partition != self._partition:
            return
        match news:
            case rm_messages.AllocationResponse():
                applications.handle_allocations(state, news)
            case rm_messages.ApplicationResponse():
                applications.handle_response(state, news)
            case rm_messages.NodeResponse():
                nodes.handle_node_response(state, news)
            case rm_messages.SchedulingStateResponse():
                for update in news.updated:
                    tasks.handle_unschedulable(state, update)
            case rm_messages.EventResponse():
                for record in news.events:
                    self._handle_event(record)
            case rm_messages.PartitionRestarted():
                begin_report(state, f"the partition has restarted: {news.reason}")
            case _:
                pass

    def _handle_event(self, record: rm_messages.EventRecord) -> None:
        """Show an event of the core about an ask on its pod, and that it added or removed a node on the node."""
        state = self._state
        if record.type == event_codes.REQUEST:
            if task := state.tasks.get(record.object_id):
                state.emit_pod_event(task.pod, INFORMATIONAL, record.message)
        elif (record.type, record.event_change_type, record.event_change_detail) in _NODE_EVENTS:
            known = state.nodes.get(record.object_id)
            state.emit_node_event(record.object_id, known.uid if known else "", INFORMATIONAL, record.message)

    # Outcomes and time ----------------------------------------------------------------------------------------------

    def handle_outcome(self, action: Action, failure: Failure | None, now: float) -> None:
        """Handle the outcome of an action; `failure` is None if it succeeded."""
        state = self._state
        state.now = now
        match action:
            case BindPod():
                tasks.handle_bind_outcome(state, action, failure)
            case DeletePod():
                tasks.handle_delete_outcome(state, action, failure)
            case PatchPodStatus() | PatchVolume():
                tasks.handle_patch_outcome(state, action, failure)
            case CreatePod():
                gangs.handle_create_outcome(state, action, failure)
            case SendReport() if action is self._outbox.report:
                if failure is None:
                    self._outbox.end_report()
                else:
                    state.report_due = now + RETRY_S
            case SendConfiguration() if failure is not None:
                text = f"the core refuses the configuration, the previous one stays: {failure.message}"
                self._outbox.write(LogProblem(text))
            case _:
                pass

    def advance(self, now: float) -> None:
        """Do what is due."""
        state = self._state
        state.now = now
        while state.deletions and state.deletions[0][0] <= now:
            self._outbox.write(state.deletions.popleft()[1])
        tasks.check_volumes(state)
        if now >= state.repeat_due:
            asks.repeat(state)
        if now >= state.report_due:
            begin_report(state, "the last report failed")

    def _settle(self) -> None:
        """Move all applications about which something changed as far as they can go."""
        state = self._state
        asks.widen(state)  # before the asks of new pods, which may repel those that wait
        while state.is_started and state.changed:
            changed, state.changed = state.changed, {}
            for application_id in changed:
                application = state.applications.get(application_id)
                if application is not None:
                    applications.advance(state, application)

    # Questions ------------------------------------------------------------------------------------------------------

    def may_run(self, key: str, node: str, allocate: bool) -> str | None:  # noqa: FBT001 - the SDK's signature
        """Return why an ask may not run on a node, or None. The placeholder that it would replace does not count."""
        without = () if allocate else gangs.find_placeholder(self._state, key, node)
        refusal = refuse(self._state.cluster, key, node, allocate=allocate, without=without)
        if refusal is not None:
            asks.note_refusal(self._state, key)
        return refusal

    def fits_without(self, key: str, node: str, victims: Sequence[str], start: int) -> int | str:
        """Return the index of the last victim that must go before an ask fits on a node, or why it never fits."""
        count = count_victims(self._state.cluster, key, node, victims, start + 1)
        if count is None:
            asks.note_refusal(self._state, key)
            return refuse(self._state.cluster, key, node, without=victims) or "no victims make it fit"
        return count - 1

    def count_pods(self) -> dict[str, int]:
        """Return the numbers of pods of this scheduler, by their state."""
        return Counter(one.state for one in self._state.tasks.values())

    def dump_state(self) -> str:
        """Return the state as the text of a JSON object, for a state dump of the core: numbers of everything, and at
        most DUMPED_MAX of the applications, of the pods that are not bound, and of the nodes that take no pods.
        """
        state = self._state
        orphans = state.list_orphans()
        unbound = [one for one in state.tasks.values() if one.state is not TaskState.BOUND]
        closed = [name for name, one in state.nodes.items() if not (one.is_in_core and one.is_schedulable)]
        return encode(
            {
                "isReporting": self._outbox.report is not None,
                "applicationsByState": Counter(one.state for one in state.applications.values()),
                "podsByState": self.count_pods(),
                "nodes": len(state.nodes),
                "foreignPods": len(state.foreign),
                "gatedPods": len(state.gated),
                "orphans": len(orphans),
                "applications": [_describe_application(one) for one in islice(state.applications.values(), DUMPED_MAX)],
                "unboundPods": [_describe_task(one) for one in unbound[:DUMPED_MAX]],
                "closedNodes": closed[:DUMPED_MAX],
                "orphanUids": orphans[:DUMPED_MAX],
            }
        ).decode()


_K = TypeVar("_K")
_V = TypeVar("_V")


def _store(objects: dict[_K, _V], key: _K, obj: _V, *, is_gone: bool) -> None:
    if is_gone:
        objects.pop(key, None)
    else:
        objects[key] = obj


def _describe_application(application: Application) -> dict[str, object]:
    return {
        "applicationID": application.application_id[:NAME_DUMPED_MAX],
        "namespace": application.namespace,
        "state": application.state,
        "pods": len(application.tasks),
        "placeholders": len(application.placeholders),
    }


def _describe_task(task: Task) -> dict[str, object]:
    found: dict[str, object] = {"pod": name_of(task.pod), "uid": task.uid, "state": task.state}
    if task.node:
        found["node"] = task.node
    if task.is_placeholder:
        found["placeholder"] = True
    if task.termination:
        found["termination"] = task.termination
    return found


# The full report ------------------------------------------------------------------------------------------------------


def begin_report(state: ShimState, reason: str) -> None:
    """Report everything: at the start, and when a partition lost its state.

    The core allocates nothing until a report is complete, so that it never allocates what running pods use. A report
    has all nodes, all live applications, all pods that run, and the asks that the core had. Messages to the core follow
    when it has ended; pods that were not asked for yet follow when their applications have been accepted.
    """
    state.report_due = float("inf")
    listed = _list_nodes(state), _list_applications(state), _list_allocations(state)
    state.outbox.begin_report(SendReport(reason, *listed))


def _list_nodes(state: ShimState) -> list[NodeInfo]:
    found = []
    for name, record in state.nodes.items():
        record.is_in_core = True
        action = rm_messages.NODE_CREATE if record.is_schedulable else rm_messages.NODE_CREATE_DRAIN
        found.append(nodes.build_node(name, record, action))
    return found


def _list_applications(state: ShimState) -> list[AddApplicationRequest]:
    found: list[AddApplicationRequest] = []
    for application in state.applications.values():
        if application.state is ApplicationState.NEW and application.tasks:
            application.enter(ApplicationState.SUBMITTED)
        if application.state in tasks.IN_CORE:
            found.append(applications.build_request(application))
        elif application.state is ApplicationState.FAILING:  # a core without it reports no end
            application.enter(ApplicationState.FAILED)
            state.changed[application.application_id] = None
    return found


def _list_allocations(state: ShimState) -> list[Allocation]:
    """Return what runs, then the asks, both in order of creation."""
    running: list[Allocation] = []
    waiting: list[Allocation] = []
    for foreign in state.foreign.values():
        foreign.is_in_core = state.has_node(foreign.allocation.node_id)
        if foreign.is_in_core:
            running.append(foreign.allocation)
    for application in state.applications.values():
        for task in application.tasks.values():
            task.is_in_core, task.is_unconfirmed, task.releases_due = False, False, 0
        if application.state in tasks.IN_CORE:
            _add_allocations(state, application, running, waiting)
    return running + waiting


def _add_allocations(
    state: ShimState, application: Application, running: list[Allocation], waiting: list[Allocation]
) -> None:
    for task in sorted(application.tasks.values(), key=lambda one: one.rank):
        node = task.used_node
        if node and state.has_node(node):
            tasks.place(state, task, node)
            task.is_unconfirmed = True
            running.append(asks.build_allocation(state, task, node))
        elif not node and task.state is TaskState.SCHEDULING:
            waiting.append(asks.build_ask(state, task))
