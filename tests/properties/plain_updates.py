"""What an RM's word does to the plain scheduler's state.

Straight from the words of the specification: nodes (7), asks, releases and swaps (8). Not here: what follows for states
(`plain_states.py`), and decisions (`plain_scheduler.py`).
"""

from tests.properties.plain_model import PlainApp, PlainAsk, PlainGroup, PlainNode, PlainQueue
from tests.properties.plain_states import PlainStates
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    NODE_DECOMMISSION,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    PLACEHOLDER_REPLACED,
    TIMEOUT,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    UserGroupInformation,
)


class PlainUpdates(PlainStates):
    """Takes commands."""

    # Commands -------------------------------------------------------------------------------------------------------

    def apply(self, command: Command) -> None:
        match command:
            case NodeRequest():
                for info in command.nodes:
                    self._node(info)
            case ApplicationRequest():
                for new in command.new:
                    self._application(new)
                for gone in command.remove:
                    if gone.application_id in self.apps:
                        self._remove(self.apps[gone.application_id])
            case AllocationRequest():
                for message in command.allocations:
                    self._allocation(message)
                for release in command.releases.allocations_to_release:
                    self._release(release)

    def _application(self, new: AddApplicationRequest) -> None:
        groups = self._groups_of(new.ugi)
        queue = self.queues.get(new.queue_name)
        if new.application_id in self.apps or queue is None:
            return
        stamp = self.stamp()
        if new.placeholder_ask and not self._may_be_gang(queue, new):
            return
        app = PlainApp(new.application_id, queue, stamp, new.ugi.user, groups, gang=new.placeholder_ask)
        app.hard = new.gang_scheduling_style == "Hard"
        app.timeout = new.execution_timeout_milli_seconds / 1000 or app.timeout
        self.apps[app.name] = app
        queue.apps.append(app)

    @staticmethod
    def _may_be_gang(queue: PlainQueue, new: AddApplicationRequest) -> bool:
        if queue.setting("application.sort.policy") == "fair":
            return False
        maxima = [level.maximum or {} for level in queue.path_up() if level.parent is not None]
        return all(value <= most.get(kind, value) for most in maxima for kind, value in new.placeholder_ask.items())

    def _groups_of(self, ugi: UserGroupInformation) -> list[str]:
        """Those of the submission, or of the last one of this user that named any, or one with the user's name."""
        self._groups[ugi.user] = ugi.groups or self._groups.get(ugi.user, [ugi.user])
        return self._groups[ugi.user]

    def _remove(self, app: PlainApp) -> None:
        self._empty(app)
        if app.state not in ("Failing", "Resuming"):
            self._emptied(app)
        if app.name in self.apps:
            self.leave(app)

    def _empty(self, app: PlainApp, *, keeping_asks: bool = False) -> None:
        for real in tuple(app.swapping):
            self.unlink(real)
        if not keeping_asks:
            for ask in tuple(app.asks):
                self.take_ask(ask)
                self.timed_out(app, ask)
        for one in tuple(app.allocations):
            self.take_allocation(app, one)
            self.timed_out(app, one)

    def _emptied(self, app: PlainApp) -> None:
        app.times_out_at = None
        if app.state == "Failing":
            self.fire(app, "fail")
        elif app.state == "Completing":
            if not app.asks:
                self.fire(app, "complete")
        else:
            if app.state == "Resuming":
                self.fire(app, "run")
            self.complete_if_done(app)

    # Nodes ----------------------------------------------------------------------------------------------------------

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
            for ask in tuple(node.reserving):
                if not node.could_take(ask):
                    self.unreserve(ask)
        elif node is not None and info.action in (NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE):
            wanted = info.action == NODE_DRAIN_TO_SCHEDULABLE
            if wanted != node.schedulable:
                node.schedulable = wanted
                node.rescore(self.policy)
        elif node is not None and info.action == NODE_DECOMMISSION:
            self._decommission(node)

    def _decommission(self, node: PlainNode) -> None:
        for ask in tuple(node.reserving):
            self.unreserve(ask)
        for one in tuple(node.own):
            app = one.app
            assert app is not None
            if one in app.swapping:
                self.unlink(one)
                if app.state == "Completing":
                    self.fire(app, "run")
            elif one.partner is not None and one.partner.node != node.name:
                self._confirm(app, one)
            else:
                self._take_one(app, one)
        del self.nodes[node.name]

    # Asks and allocations -------------------------------------------------------------------------------------------

    def _allocation(self, message: Allocation) -> None:
        if message.node_id and message.node_id not in self.nodes:
            return
        if "foreign" in message.allocation_tags:
            for other in self.nodes.values():
                other.foreign.pop(message.allocation_key, None)
            self.nodes[message.node_id].foreign[message.allocation_key] = message.resource_per_alloc
            return
        app = self.apps.get(message.application_id)
        if app is None or app.state == "Failing":
            return
        node = self.nodes.get(message.node_id)
        everything = (*app.asks, *app.allocations, *app.swapping)
        known = next((one for one in everything if one.key == message.allocation_key), None)
        if known is not None:
            changed, known.resources = known.resources != message.resource_per_alloc, message.resource_per_alloc
            if changed and known.reserved and not self.nodes[known.reserved].could_take(known):
                self.unreserve(known)
            if node is not None and not known.node:
                self.take_ask(known)
                self.add_allocation(app, known, node)
            return
        ask = self._new_ask(app, message)
        if ask.placeholder:
            app.task_groups.setdefault(ask.group, PlainGroup(ask.resources)).count += 1
        app.submitted = min(app.submitted, ask.created)
        if node is not None:
            ask.recovered = True
            if app.state == "New":
                self.fire(app, "run")
            self.add_allocation(app, ask, node)
            return
        if app.state == "New":
            self.fire(app, "run")
        elif app.state == "Completing":
            may_start = app.queue.may_start(app) and self.limits.may_start(app)
            self.fire(app, "run" if may_start or any(app.held.values()) else "wait")
        app.insert(ask)

    def _new_ask(self, app: PlainApp, message: Allocation) -> PlainAsk:
        tags = message.allocation_tags
        created = tags.get("creationTime")
        forbidden = tags.get("yunishard/forbiddenNodes", "")
        return PlainAsk(
            message.allocation_key,
            message.resource_per_alloc,
            message.priority,
            int(created) * 10**9 if created else self.stamp(),
            tags.get("yunikorn.apache.org/requiredNode", ""),
            app=app,
            forbidden=tuple(forbidden.split(",")) if forbidden else (),
            group=message.task_group_name,
            placeholder=message.placeholder,
            agreed=message.preemption_policy is not None and message.preemption_policy.allow_preempt_self,
            originator=message.originator,
        )

    def _take_one(self, app: PlainApp, one: PlainAsk) -> None:
        """One allocation is gone."""
        if one.partner is not None:
            self.unlink(one.partner)
            if app.state == "Completing":
                self.fire(app, "run")
        self.take_allocation(app, one)
        self.timed_out(app, one)
        if one.placeholder:
            self.update_after_placeholder(app)
        elif app.state == "Failing":
            if not app.allocations:
                self.fire(app, "fail")
        else:
            if not app.allocations and not app.swapping:
                app.times_out_at = None
            self.complete_if_done(app)

    # Swaps ----------------------------------------------------------------------------------------------------------

    def _confirm(self, app: PlainApp, placeholder: PlainAsk) -> None:
        real = placeholder.partner
        assert real is not None
        begun = bool(app.allocated)
        self.take_allocation(app, placeholder)
        app.task_groups[placeholder.group].replaced += 1
        self.update_after_placeholder(app)
        real.partner = placeholder.partner = None
        app.swapping.remove(real)
        node = self.nodes[real.node]
        if real not in node.own:
            node.own.append(real)
            node.rescore(self.policy)
        app.allocations.append(real)
        app.counts = True
        if begun or app.state == "Completing":
            self.fire(app, "run")

    # Releases -------------------------------------------------------------------------------------------------------

    def _release(self, release: AllocationRelease) -> None:
        if not release.application_id:
            for node in self.nodes.values():
                node.foreign.pop(release.allocation_key, None)
            return
        app, kind = self.apps.get(release.application_id), release.termination_type
        if app is None:
            return
        if not release.allocation_key:
            self._empty(app, keeping_asks=kind == TIMEOUT)
            self._emptied(app)
            return
        everything = (*app.asks, *app.allocations, *app.swapping)
        known = next((one for one in everything if one.key == release.allocation_key), None)
        if known is None:
            return
        if kind == PLACEHOLDER_REPLACED and known.placeholder and known.partner is not None:
            self._confirm(app, known)
        elif known in app.allocations:
            self._take_one(app, known)
        elif kind != TIMEOUT:
            if known in app.swapping:
                self.unlink(known)
            self.take_ask(known)
            self.timed_out(app, known)
            if not app.held:
                self.complete_if_done(app)
