"""A world in one process: the machine of the shim between a model of the API server and a real partition of the core.

Nothing arrives by itself: each step delivers one message, executes one write or lets the core decide, so that a test
chooses the order. `settle` delivers everything, and `check` compares the books of all three.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence

from msgspec import convert, to_builtins
from msgspec.structs import replace

from tests.builders import config
from tests.invariants import check as check_partition
from tests.kubernetes_shim.shim_builders import make_node
from tests.trial import ADMIN, START_S
from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Command, News
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
from yunishard.kubernetes_shim.objects import (
    Node,
    Object,
    ObjectEvent,
    Pod,
)
from yunishard.kubernetes_shim.pods import is_ours, is_placeholder
from yunishard.kubernetes_shim.settings import Settings
from yunishard.kubernetes_shim.shim import Shim
from yunishard.kubernetes_shim.state import ShimState, TaskState
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition

PARTITION = "mycluster_default"
NAMESPACE = "default"
Watched = tuple[ObjectEvent, Object]


def has_ended(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


class ApiServer:
    """Pods and nodes, and what a watch reports of them. A pod that ends is reported as deleted: the shim follows only
    pods that have not ended.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.watch: dict[str, deque[Watched]] = {"pods": deque(), "nodes": deque()}
        self.binds: dict[str, list[str]] = {}
        """The nodes to which each pod was bound, by uid."""
        self.count = 0

    def set_pod(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        was_shown = uid in self.pods and not has_ended(self.pods[uid])
        self.pods[uid] = pod
        if not has_ended(pod):
            self.watch["pods"].append(("modified" if was_shown else "added", pod))
        elif was_shown:
            self.watch["pods"].append(("deleted", pod))

    def remove_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        if not has_ended(pod):
            self.watch["pods"].append(("deleted", pod))
        for other in list(self.pods.values()):
            if any(owner.uid == uid for owner in other.metadata.owner_references):
                self.remove_pod(other.metadata.uid)

    def change_pod(self, uid: str, *, node: str = "", phase: str = "", deleted: bool = False) -> None:
        pod = self.pods[uid]
        if node:
            pod = replace(pod, spec=replace(pod.spec, node_name=node))
        if phase:
            pod = replace(pod, status=replace(pod.status, phase=phase))
        if deleted:
            pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-01-31T13:00:00Z"))
        self.set_pod(pod)

    def set_node(self, node: Node) -> None:
        event: ObjectEvent = "modified" if node.metadata.name in self.nodes else "added"
        self.nodes[node.metadata.name] = node
        self.watch["nodes"].append((event, node))

    def remove_node(self, name: str) -> None:
        self.watch["nodes"].append(("deleted", self.nodes.pop(name)))

    def list_objects(self) -> Iterator[Object]:
        """Yield what a shim that starts receives first."""
        yield from self.nodes.values()
        yield from (pod for pod in self.pods.values() if not has_ended(pod))

    def step_controllers(self) -> bool:
        """Let the controllers of the cluster do something; False if there is nothing to do."""
        return False

    def find(self, name: str) -> Pod | None:
        return next((one for one in self.pods.values() if one.metadata.name == name), None)

    # Writes of the shim ---------------------------------------------------------------------------------------------

    def execute(self, action: WriteAction) -> Failure | None:
        match action:
            case CreatePod():
                if self.find(action.name) is not None:
                    return Failure(409, f'pods "{action.name}" already exists')
                self.create(action.body)
                return None
            case BindPod() | DeletePod() | PatchPodStatus():
                pod = self.find(action.name)
                if isinstance(action, DeletePod) and (pod is None or pod.metadata.uid != action.uid):
                    return None
                if pod is None:
                    return Failure(404, f'pods "{action.name}" not found')
                if pod.metadata.uid != action.uid:
                    return Failure(409)
                return self._write(action, pod)
            case _:
                return None  # claims and volumes: tests change them

    def _write(self, action: BindPod | DeletePod | PatchPodStatus, pod: Pod) -> Failure | None:
        uid = pod.metadata.uid
        match action:
            case BindPod():
                if pod.spec.node_name == action.node:
                    return None
                if pod.spec.node_name:
                    text = f'pod {action.name} is already assigned to node "{pod.spec.node_name}"'
                    return Failure(409, text)
                if pod.metadata.deletion_timestamp is not None:
                    return Failure(409, f"pod {action.name} is being deleted, cannot be assigned to a host")
                self.binds.setdefault(uid, []).append(action.node)
                self.change_pod(uid, node=action.node)
            case DeletePod() if pod.spec.node_name and not has_ended(pod):
                self.change_pod(uid, deleted=True)  # its kubelet has to stop it
            case DeletePod():
                self.remove_pod(uid)
            case PatchPodStatus():
                status = to_builtins(pod.status) | action.status
                if action.condition:
                    others = [one for one in status["conditions"] if one["type"] != action.condition["type"]]
                    status["conditions"] = [*others, action.condition]
                self.set_pod(replace(pod, status=convert(status, type(pod.status))))
        return None

    def create(self, body: dict[str, object]) -> Pod:
        self.count += 1
        number = f"{self.count:04d}"
        pod = convert(body, Pod)
        meta = replace(pod.metadata, uid=f"uid-{number}", creation_timestamp=f"2026-01-31T12:00:00.{number}Z")
        pod = replace(pod, metadata=meta, status=replace(pod.status, phase="Pending"))
        owners = {owner.uid for owner in pod.metadata.owner_references}
        self.set_pod(pod)
        if any(owner not in self.pods for owner in owners):
            self.remove_pod(meta.uid)  # the garbage collector
        return pod


class World:
    """The three, and everything between them."""

    def __init__(
        self,
        queues: str = "root.a",
        *,
        settings: Settings | None = None,
        asks: bool = False,
        api: ApiServer | None = None,
    ) -> None:
        """With `asks` the core asks about predicates."""
        self.asks = asks
        self.now = START_S
        self.settings = settings or Settings()
        self.config = config(queues)
        self.api = api or ApiServer()
        self.events: list[EmitEvent] = []
        self.problems: list[str] = []
        self.asked: list[tuple[str, str]] = []
        """Pods and nodes about which the core has asked."""
        self.start_core()
        self.start_shim()

    def start_core(self) -> None:
        self.core = Partition(self.config, name=PARTITION, now=self.now)
        self.core.nodes.predicates.asks_manager = self.asks
        self.to_core: deque[tuple[Command, SendReport | None]] = deque()
        self.from_core: deque[News | tuple[SendReport, Failure | None]] = deque()

    def start_shim(self) -> None:
        """Start a new process of the shim: it lists, and registers a new session."""
        self.writes: list[WriteAction] = []
        self.outcomes: deque[tuple[Action, Failure | None]] = deque()
        for changes in self.api.watch.values():
            changes.clear()
        self.shim = Shim(self.settings)
        for obj in self.api.list_objects():
            self._give("added", obj)
        self.shim.handle_listed(self.now)
        self.take()
        self.register()

    def register(self) -> None:
        """Begin a new session: the core has nothing."""
        self.start_core()
        self.shim.handle_registered(self.now)
        self.take()

    def restart_partition(self) -> None:
        """Let the partition lose its state."""
        self.start_core()
        self.from_core.append(rm_messages.PartitionRestarted(reason="lost"))

    @property
    def state(self) -> ShimState:
        return self.shim._state

    # Steps ----------------------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Take the actions of the shim."""
        for action in self.shim.take_actions():
            match action:
                case EmitEvent():
                    self.events.append(action)
                case LogProblem(text):
                    self.problems.append(text)
                case SendNodes() | SendApplications() | SendAllocations() | SendReport() | SendConfiguration():
                    self._send(action)
                case _:
                    self.writes.append(action)

    def _send(self, action: CoreAction) -> None:
        match action:
            case SendNodes(nodes):
                self.to_core.append((rm_messages.NodeRequest(nodes), None))
            case SendApplications(new, remove):
                self.to_core.append((rm_messages.ApplicationRequest(new, remove), None))
            case SendAllocations(allocations, releases):
                self.to_core.append((_request(allocations, releases), None))
            case SendReport(reason, nodes, applications, allocations):
                self.to_core.clear()
                self.to_core.append((rm_messages.SyncBegin(reason=reason), None))
                self.to_core.append((rm_messages.NodeRequest(nodes), None))
                self.to_core.append((rm_messages.ApplicationRequest(applications), None))
                self.to_core.append((_request(allocations), None))
                counts = rm_messages.SyncEnd(
                    nodes=len(nodes), applications=len(applications), allocations=len(allocations)
                )
                self.to_core.append((counts, action))
            case SendConfiguration():
                pass

    def step_to_core(self) -> None:
        if self.to_core:
            command, report = self.to_core.popleft()
            if isinstance(command, rm_messages.PredicatesAnswered):
                self._collect(self.core.apply_verdicts(command, self.now))
            else:
                self._collect(self.core.apply(command, self.now), report)

    def step_core(self, budget: int = 1) -> None:
        """Let the core decide once, and check its own books."""
        self._collect(self.core.step(self.now, budget))

    def _collect(self, effects: Sequence[Effect], report: SendReport | None = None) -> None:
        for effect in effects:
            match part := effect.part:
                case rm_messages.AcceptedNode():
                    self.from_core.append(rm_messages.NodeResponse(accepted=[part]))
                case rm_messages.RejectedNode():
                    self.from_core.append(rm_messages.NodeResponse(rejected=[part]))
                case rm_messages.AcceptedApplication():
                    self.from_core.append(rm_messages.ApplicationResponse(accepted=[part]))
                case rm_messages.RejectedApplication():
                    self.from_core.append(rm_messages.ApplicationResponse(rejected=[part]))
                case rm_messages.UpdatedApplication():
                    self.from_core.append(rm_messages.ApplicationResponse(updated=[part]))
                case rm_messages.Allocation():
                    self.from_core.append(rm_messages.AllocationResponse(new=[part]))
                case rm_messages.AllocationRelease():
                    self.from_core.append(rm_messages.AllocationResponse(released=[part]))
                case rm_messages.RejectedAllocation():
                    self.from_core.append(rm_messages.AllocationResponse(rejected_allocations=[part]))
                case rm_messages.UpdateContainerSchedulingState():
                    self.from_core.append(rm_messages.SchedulingStateResponse(updated=[part]))
                case rm_messages.PredicatesAsked():
                    self.from_core.append(part)
                case rm_messages.SyncDone():
                    assert report is not None
                    failure = Failure(message=part.problem) if part.problem else None
                    self.from_core.append((report, failure))
                case _:
                    pass

    def step_from_core(self) -> None:
        if self.from_core:
            news = self.from_core.popleft()
            if isinstance(news, tuple):
                self.shim.handle_outcome(*news, self.now)
            elif isinstance(news, rm_messages.PredicatesAsked):
                self._answer(news)
            else:
                self.shim.handle_result(PARTITION, news, self.now)  # type: ignore[arg-type]
            self.take()

    def _answer(self, question: rm_messages.PredicatesAsked) -> None:
        """Answer a question of the core."""
        verdicts = []
        for key, node, allocate in ((one.allocation_key, one.node_id, one.allocate) for one in question.asked):
            self.asked.append((key, node))
            refusal = self.shim.may_run(key, node, allocate) or ""
            verdicts.append(rm_messages.Verdict(allocation_key=key, node_id=node, allocate=allocate, refusal=refusal))
        self.to_core.append((rm_messages.PredicatesAnswered(question=question.question, verdicts=verdicts), None))

    def step_watch(self, kind: str, *, twice: bool = False) -> None:
        if self.api.watch[kind]:
            event, obj = self.api.watch[kind].popleft()
            for _ in range(2 if twice else 1):
                self._give(event, obj)
            self.take()

    def _give(self, event: ObjectEvent, obj: Object) -> None:
        self.shim.handle_object(event, obj, self.now)

    def step_write(self, number: int = 0, fault: str = "") -> None:
        """Execute a write. After the fault `lost` the client has repeated it, as the answer was lost; `unreached` is an
        error of the API server, and `refused` a right that is missing.
        """
        if not self.writes:
            return
        action = self.writes[number % len(self.writes)]
        first = next(one for one in self.writes if one.name == action.name)  # in order for each object
        self.writes.remove(first)
        if fault == "unreached":
            failure: Failure | None = Failure(503)
        elif fault == "refused" and isinstance(first, BindPod | CreatePod):
            failure = Failure(403)
        else:
            failure = self.api.execute(first)
            if fault == "lost" and isinstance(first, PatchVolume):
                failure = self.api.execute(first)
        self.outcomes.append((first, failure))

    def step_outcome(self) -> None:
        if self.outcomes:
            self.shim.handle_outcome(*self.outcomes.popleft(), self.now)
            self.take()

    def step_kubelets(self) -> None:
        """Remove the pods that are being deleted."""
        for pod in list(self.api.pods.values()):
            if pod.metadata.deletion_timestamp is not None:
                self.api.remove_pod(pod.metadata.uid)

    def kill(self, application_id: str) -> None:
        """Let an operator kill an application in the core."""
        self._collect(self.core.kill(application_id, ADMIN, self.now))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with every deadline at its own moment."""
        until = self.now + seconds
        while (due := min(self.core.next_timer, self.shim.next_deadline)) <= until:
            self.now = max(self.now, due)
            if self.shim.next_deadline <= self.now:
                self.shim.advance(self.now)
                self.take()
            if self.core.next_change <= self.now:
                self.step_core(0)
            elif self.core.next_timer <= self.now:
                self._collect(self.core.audit(self.now))
        self.now = until

    @property
    def is_at_rest(self) -> bool:
        """Whether the core has nothing to decide and nothing to ask now."""
        return self.core.idle and self.core.next_change > self.now

    # The end --------------------------------------------------------------------------------------------------------

    def settle(self, *, kubelets: bool = True) -> None:
        """Deliver everything, until nothing more happens."""
        for _ in range(10_000):
            if not (self.to_core or self.from_core or self.writes or self.outcomes or any(self.api.watch.values())):
                if kubelets and any(one.metadata.deletion_timestamp for one in self.api.pods.values()):
                    self.step_kubelets()
                elif self.api.step_controllers():
                    continue
                elif self.is_at_rest and self.shim.next_deadline == float("inf"):
                    return
                elif self.is_at_rest:
                    self.pass_time(self.shim.next_deadline - self.now)
            while self.to_core:
                self.step_to_core()
            if not self.is_at_rest:
                self.step_core(10)
            while self.from_core:
                self.step_from_core()
            while self.writes:
                self.step_write()
            while self.outcomes:
                self.step_outcome()
            for kind in self.api.watch:
                while self.api.watch[kind]:
                    self.step_watch(kind)
        raise AssertionError("the world does not come to rest")

    def settle_until(self, is_there: Callable[[], bool]) -> None:
        """Deliver one thing after the other until a condition holds."""
        for _ in range(1_000):
            if is_there():
                return
            for step in (self.step_to_core, self.step_from_core, self.step_outcome):
                step()
            for kind in self.api.watch:
                self.step_watch(kind)
            if not self.is_at_rest:
                self.step_core(10)
        raise AssertionError("it does not happen")

    def check(self) -> None:
        """Compare the books after everything was delivered."""
        check_partition(self.core)
        live = {uid: pod for uid, pod in self.api.pods.items() if not has_ended(pod)}
        ours = {uid for uid, pod in live.items() if is_ours(pod) and uid not in self.state.gated}
        assert set(self.state.tasks) == ours, "the shim has other tasks than there are pods"
        for uid, nodes in self.api.binds.items():
            assert len(nodes) == 1, f"{uid} was bound to {nodes}"
        in_core = {key for key, task in self.state.tasks.items() if task.is_in_core}
        has = set(self.core.allocations)
        assert has == in_core, f"the core alone has {has - in_core}, it lacks {in_core - has}"
        for uid, task in self.state.tasks.items():
            node = live[uid].spec.node_name
            assert task.releases_due == 0, f"{uid} expects a release that does not come"
            if task.is_in_core and node:
                assert self.core.allocations[uid].node_id == node, uid
            if node and node in self.api.nodes and task.state is not TaskState.FAILED:
                states = ("Submitted", "Accepted", "Reserving", "Resuming", "Running")
                if self.state.applications[task.application_id].state in states:
                    assert task.is_in_core, f"{uid} runs and the core does not have it"
            assert task.state in (TaskState.NEW, TaskState.SCHEDULING, TaskState.BOUND, TaskState.FAILED), task
        foreign = {uid for uid, pod in live.items() if not is_ours(pod) and pod.spec.node_name in self.api.nodes}
        assert set(self.core.foreign) == foreign, "the core has other foreign pods than there are"
        assert set(self.state.applications) >= set(self.core.applications)
        for application in self.state.applications.values():
            found = application.tasks.items()
            assert application.new | application.new_placeholders == {
                uid: task for uid, task in found if task.state is TaskState.NEW
            }
            assert application.placeholders == {uid: task for uid, task in found if task.is_placeholder}
            assert +application.bound == Counter(
                task.task_group for _, task in found if task.is_placeholder and task.state is TaskState.BOUND
            )

    def check_end(self) -> None:
        """Check that nothing is left over, after gangs had the time to time out. Pods may wait that others repel."""
        live = [one for one in self.api.pods.values() if not has_ended(one) and is_ours(one)]
        applications = self.state.applications
        real = {self.state.tasks[one.metadata.uid].application_id for one in live if not is_placeholder(one)}
        for pod in live:
            application = applications[self.state.tasks[pod.metadata.uid].application_id]
            if is_placeholder(pod):
                assert application.application_id in real, f"placeholder {pod.metadata.name} is left over"
        queue = self.core.tree.find("root.a")
        assert queue is not None
        has_room = queue.allocated.get("vcore", 0) + 1000 <= (queue.maximum or {}).get("vcore", 10**9) and any(
            node.available.get("vcore", 0) >= 1000 for node in self.core.nodes
        )
        for task in self.state.tasks.values():
            if has_room and not task.scope and applications[task.application_id].state not in ("Failing", "Failed"):
                assert task.state in (TaskState.BOUND, TaskState.FAILED), f"{task.uid} waits in state {task.state}"

    def actions_of_events(self, name: str) -> list[str]:
        """Return the actions of the events on a pod or node, in order."""
        return [one.action for one in self.events if one.name == name]

    @property
    def bound(self) -> dict[str, str]:
        """The node of each pod of the shim that has one, by name, without placeholders."""
        ours = (one for one in self.api.pods.values() if is_ours(one) and not is_placeholder(one))
        return {one.metadata.name: one.spec.node_name for one in ours if one.spec.node_name}

    @property
    def placeholders(self) -> list[Pod]:
        return [one for one in self.api.pods.values() if is_placeholder(one)]


def _request(
    allocations: list[rm_messages.Allocation], releases: Sequence[rm_messages.AllocationRelease] = ()
) -> rm_messages.AllocationRequest:
    return rm_messages.AllocationRequest(allocations, rm_messages.AllocationReleasesRequest(list(releases)))


def with_nodes(
    *names: str, queues: str = "root.a", cpu: str = "8", settings: Settings | None = None, asks: bool = False
) -> World:
    """Return a world with these nodes, after the start."""
    world = World(queues, settings=settings, asks=asks)
    for name in names:
        world.api.set_node(make_node(name, cpu=cpu))
    world.settle()
    return world
