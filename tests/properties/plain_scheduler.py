"""A second implementation of the order of decisions, as plain as it can be: lists, and a full sort for every decision.

It follows the words of the specification (queue descent, application order, ask order, node order, what refreshes the
score of a node) and shares nothing with the engine but messages. It is slow on purpose. Time stands still in it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import Any

from common.config.model import QueueConfig, amounts
from common.messages import (
    NODE_CREATE,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    TIMEOUT,
    Allocation,
    AllocationRelease,
    AllocationRequest,
    ApplicationRequest,
    Command,
    NodeInfo,
    NodeRequest,
    Resources,
    UserGroupInformation,
)
from tests.properties.plain_limits import PlainLimits, summed

NOTHING_PENDING = -(2**31)


@dataclass(eq=False)
class PlainAsk:
    key: str
    resources: Resources
    priority: int
    created: int
    required: str
    node: str = ""


@dataclass(eq=False)
class PlainApp:
    name: str
    queue: "PlainQueue"
    submitted: int
    user: str = ""
    groups: list[str] = field(default_factory=list)
    counts: bool = False
    """As running, for user and group."""
    state: str = "New"
    asks: list[PlainAsk] = field(default_factory=list)
    """In the order in which they are tried."""
    allocations: list[PlainAsk] = field(default_factory=list)

    @property
    def pending(self) -> Resources:
        return summed(ask.resources for ask in self.asks)

    @property
    def allocated(self) -> Resources:
        return summed(one.resources for one in self.allocations)

    @property
    def priority(self) -> int:
        return max((ask.priority for ask in self.asks), default=NOTHING_PENDING)

    def insert(self, ask: PlainAsk) -> None:
        """Priority descending, then time ascending; of equals behind them if they are last of all, else before them."""

        def place(one: PlainAsk) -> tuple[int, int]:
            return (-one.priority, one.created)

        if not self.asks or place(self.asks[-1]) <= place(ask):
            self.asks.append(ask)
            return
        index = next(index for index, one in enumerate(self.asks) if place(one) >= place(ask))
        self.asks.insert(index, ask)


@dataclass(eq=False)
class PlainQueue:
    path: str
    parent: "PlainQueue | None"
    config: QueueConfig
    children: list["PlainQueue"] = field(default_factory=list)
    apps: list[PlainApp] = field(default_factory=list)
    """In order of arrival."""

    def path_up(self) -> "Iterator[PlainQueue]":
        yield self
        if self.parent is not None:
            yield from self.parent.path_up()

    def all_apps(self) -> list[PlainApp]:
        return self.apps + [app for child in self.children for app in child.all_apps()]

    @property
    def allocated(self) -> Resources:
        return summed(app.allocated for app in self.all_apps())

    @property
    def pending(self) -> Resources:
        return summed(app.pending for app in self.all_apps())

    @property
    def maximum(self) -> Resources | None:
        return amounts(self.config.resources.max) or None

    @property
    def guaranteed(self) -> Resources:
        return amounts(self.config.resources.guaranteed)

    def setting(self, name: str) -> str:
        return self.config.properties.get(name, "")

    @property
    def sorts_by_priority(self) -> bool:
        switch = [queue.setting("application.sort.priority") for queue in self.path_up()]
        return next((value for value in switch if value), "") != "disabled"

    @property
    def priority(self) -> int:
        below = self.apps if not self.children else self.children
        current = max((one.priority for one in below), default=NOTHING_PENDING)
        offset = int(self.setting("priority.offset") or 0)
        if current == NOTHING_PENDING:
            return current
        return offset if self.setting("priority.policy") == "fence" else current + offset

    def may_start(self) -> bool:
        for queue in self.path_up():
            running = sum(app.state == "Running" for app in queue.all_apps())
            if queue.config.max_applications and running >= queue.config.max_applications:
                return False
        return True


@dataclass(eq=False)
class PlainNode:
    name: str
    capacity: Resources
    schedulable: bool = True
    own: list[PlainAsk] = field(default_factory=list)
    foreign: dict[str, Resources] = field(default_factory=dict)
    score: float = 0.0

    @property
    def available(self) -> Resources:
        used = summed(iter([*(one.resources for one in self.own), *self.foreign.values()]))
        return {kind: self.capacity.get(kind, 0) - used.get(kind, 0) for kind in {**self.capacity, **used}}

    def fits(self, wanted: Resources) -> bool:
        return all(value <= max(0, self.available.get(kind, 0)) for kind, value in wanted.items())

    def rescore(self, policy: str) -> None:
        kinds = [kind for kind in ("vcore", "memory") if self.capacity.get(kind)]
        used = sum(1.0 - self.available[kind] / self.capacity[kind] for kind in kinds) / len(kinds) if kinds else 0.0
        self.score = 1.0 - used if policy == "binpacking" else used


class PlainScheduler:
    """The whole partition. Commands as they come; a decision is `(key, node)`."""

    def __init__(self, root: QueueConfig, *, policy: str) -> None:
        self.policy = policy
        self.root = PlainQueue("root", None, root)
        self.queues = {"root": self.root}
        self._build(self.root)
        self.limits = PlainLimits()
        self.apps: dict[str, PlainApp] = {}
        self.nodes: dict[str, PlainNode] = {}
        self.keys: set[str] = set()
        self._clock = 10**18
        self._groups: dict[str, list[str]] = {}

    def _build(self, queue: PlainQueue) -> None:
        for config in queue.config.queues:
            child = PlainQueue(f"{queue.path}.{config.name}", queue, config)
            self.queues[child.path] = child
            queue.children.append(child)
            self._build(child)

    # Decisions ------------------------------------------------------------------------------------------------------

    def decide(self) -> tuple[str, str] | None:
        found = self._from_queue(self.root)
        if found is None:
            return None
        app, ask, node = found
        app.asks.remove(ask)
        self._run_on(app, ask, node)
        return ask.key, node.name

    def _from_queue(self, queue: PlainQueue) -> tuple[PlainApp, PlainAsk, PlainNode] | None:
        if not queue.children:
            return self._from_leaf(queue)
        for child in sorted((one for one in queue.children if one.pending), key=self._queue_key):
            found = self._from_queue(child)
            if found is not None:
                return found
        return None

    def _queue_key(self, queue: PlainQueue) -> tuple[float, float, int]:
        assert queue.parent is not None
        priority, share, waiting = -queue.priority, self._share(queue), -sum(queue.pending.values())
        return (priority, share, waiting) if queue.parent.sorts_by_priority else (share, priority, waiting)

    def _share(self, queue: PlainQueue) -> float:
        fair_maximum = self._fair_maximum(queue)
        shares = [0.0]
        for kind, used in queue.allocated.items():
            whole = queue.guaranteed.get(kind, fair_maximum.get(kind))
            if whole is not None:
                shares.append(used / whole if whole > 0 else float(used > 0))
        return max(shares)

    def _fair_maximum(self, queue: PlainQueue) -> Resources:
        if queue.parent is None:
            total = summed(node.capacity for node in self.nodes.values())
            return {kind: value for kind, value in total.items() if value}
        above = self._fair_maximum(queue.parent)
        return {**above, **(queue.maximum or {})} if above else {}

    def _from_leaf(self, leaf: PlainQueue) -> tuple[PlainApp, PlainAsk, PlainNode] | None:
        for app in sorted((app for app in leaf.apps if app.asks), key=_app_key(leaf)):
            if app.state == "Accepted" and not (leaf.may_start() and self.limits.may_start(app)):
                continue
            for ask in app.asks:
                allowed = self.limits.allow(app, ask.resources) and self._has_room(leaf, ask.resources)
                node = self._node_for(ask) if allowed else None
                if node is not None:
                    return app, ask, node
        return None

    def _has_room(self, leaf: PlainQueue, wanted: Resources) -> bool:
        total = self._fair_maximum(self.root)
        for queue in leaf.path_up():
            maximum = {**dict.fromkeys(wanted, 0), **total} if queue is self.root else queue.maximum or {}
            for kind, most in maximum.items():
                if wanted.get(kind, 0) > max(0, most - queue.allocated.get(kind, 0)):
                    return False
        return True

    def _node_for(self, ask: PlainAsk) -> PlainNode | None:
        if ask.required:
            node = self.nodes.get(ask.required)
            return node if node is not None and node.fits(ask.resources) else None
        in_order = sorted(self.nodes.values(), key=lambda node: (node.score, node.name))
        return next((node for node in in_order if node.schedulable and node.fits(ask.resources)), None)

    def _run_on(self, app: PlainApp, ask: PlainAsk, node: PlainNode) -> None:
        ask.node = node.name
        app.allocations.append(ask)
        app.counts = True
        node.own.append(ask)
        node.rescore(self.policy)
        app.state = "Running"

    # Commands -------------------------------------------------------------------------------------------------------

    def apply(self, command: Command) -> None:
        match command:
            case NodeRequest():
                for info in command.nodes:
                    self._node(info)
            case ApplicationRequest():
                for new in command.new:
                    groups = self._groups_of(new.ugi)
                    if new.application_id not in self.apps and new.queue_name in self.queues:
                        queue = self.queues[new.queue_name]
                        app = PlainApp(new.application_id, queue, self._now(), new.ugi.user, groups)
                        self.apps[app.name] = app
                        app.queue.apps.append(app)
            case AllocationRequest():
                for message in command.allocations:
                    self._allocation(message)
                for release in command.releases.allocations_to_release:
                    self._release(release)

    def _groups_of(self, ugi: UserGroupInformation) -> list[str]:
        """Those of the submission, or of the last one of this user that named any, or one with the user's name."""
        self._groups[ugi.user] = ugi.groups or self._groups.get(ugi.user, [ugi.user])
        return self._groups[ugi.user]

    def _now(self) -> int:
        self._clock += 1
        return self._clock

    def _node(self, info: NodeInfo) -> None:
        node = self.nodes.get(info.node_id)
        capacity = {kind: value for kind, value in (info.schedulable_resource or {}).items() if value}
        if info.action == NODE_CREATE:
            if node is None:
                node = self.nodes[info.node_id] = PlainNode(info.node_id, capacity)
                node.rescore(self.policy)
        elif node is not None and info.action == NODE_UPDATE and capacity != node.capacity:
            node.capacity = capacity
            node.rescore(self.policy)
        elif node is not None and info.action in (NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE):
            wanted = info.action == NODE_DRAIN_TO_SCHEDULABLE
            if wanted != node.schedulable:
                node.schedulable = wanted
                node.rescore(self.policy)

    def _allocation(self, message: Allocation) -> None:
        if message.node_id and message.node_id not in self.nodes:
            return
        if "foreign" in message.allocation_tags:
            for other in self.nodes.values():
                other.foreign.pop(message.allocation_key, None)
            self.nodes[message.node_id].foreign[message.allocation_key] = message.resource_per_alloc
            return
        app = self.apps.get(message.application_id)
        if app is None:
            return
        node = self.nodes.get(message.node_id)
        known = next((one for one in (*app.asks, *app.allocations) if one.key == message.allocation_key), None)
        if known is not None:
            known.resources = message.resource_per_alloc
            if node is not None and not known.node:
                app.asks.remove(known)
                self._run_on(app, known, node)
            return
        ask = self._new_ask(message)
        app.submitted = min(app.submitted, ask.created)
        if node is not None:
            self._run_on(app, ask, node)
            return
        app.state = {"New": "Accepted", "Completing": "Running"}.get(app.state, app.state)
        app.insert(ask)

    def _new_ask(self, message: Allocation) -> PlainAsk:
        created = message.allocation_tags.get("creationTime")
        return PlainAsk(
            message.allocation_key,
            message.resource_per_alloc,
            message.priority,
            int(created) * 10**9 if created else self._now(),
            message.allocation_tags.get("yunikorn.apache.org/requiredNode", ""),
        )

    def _release(self, release: AllocationRelease) -> None:
        if not release.application_id:
            for node in self.nodes.values():
                node.foreign.pop(release.allocation_key, None)
            return
        app = self.apps.get(release.application_id)
        if app is None:
            return
        for one in [one for one in app.allocations if one.key == release.allocation_key]:
            app.allocations.remove(one)
            self.nodes[one.node].own.remove(one)
            self.nodes[one.node].rescore(self.policy)
            app.counts = app.counts and bool(app.asks or app.allocations)
        if release.termination_type != TIMEOUT:
            app.asks = [ask for ask in app.asks if ask.key != release.allocation_key]
        if app.state in ("Accepted", "Running") and not app.asks and not app.allocations:
            app.state = "Completing"


def _app_key(leaf: PlainQueue) -> Callable[[PlainApp], Any]:
    """Sort key of applications; applications come in order of arrival and sorting is stable."""

    def by_share(left: PlainApp, right: PlainApp) -> int:
        return compared(shares(left.allocated, leaf.guaranteed), shares(right.allocated, leaf.guaranteed))

    fair = leaf.setting("application.sort.policy") == "fair"
    main: Callable[[PlainApp], Any] = cmp_to_key(by_share) if fair else lambda app: app.submitted
    if leaf.sorts_by_priority:
        return lambda app: (-app.priority, main(app))
    return lambda app: (main(app), -app.priority)


def shares(used: Resources, total: Resources) -> list[float]:
    return sorted(value / total[kind] if total.get(kind) else float(value) for kind, value in used.items())


def compared(left: list[float], right: list[float]) -> int:
    """From the largest down, the first difference decides; of leftovers the first that is not zero."""
    left, right = left[::-1], right[::-1]
    for one, other in zip(left, right, strict=False):
        if one != other:
            return -1 if one < other else 1
    if any(left[len(right) :]):
        return 1
    return -1 if any(right[len(left) :]) else 0
