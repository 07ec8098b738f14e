"""A second implementation of the order of decisions, as plain as it can be: lists, and a full sort for every decision.

It follows the words of the specification (4: the cycle with its three phases, node selection, reservations, required
nodes, placeholders, back-off; 5.3: preemption for a required node) and shares nothing with the engine but messages. It
is slow on purpose. Where the specification leaves an order open it says what may come next, not what does.

Not here: preemption for a guarantee (`plain_preemption.py`).
"""

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, NamedTuple

from tests.properties.plain_model import PlainApp, PlainAsk, PlainNode, PlainQueue, fits, summed
from tests.properties.plain_updates import PlainUpdates
from yunishard.common.messages.kinds import Command, Resources

RESERVE_AFTER_S = 2.0
PASSED_OVER_AFTER_S, PASSED_OVER_EVERY_S = 60.0, 10.0


class Decision(NamedTuple):
    """What happens to an ask: it is placed on a node, reserves it, takes the place of another one (on the node of that
    one, or of its own), or others are released or preempted for it.
    """

    what: str
    ask: str
    node: str = ""
    others: tuple[str, ...] = ()
    keeps: bool = False
    """Whether the queues of an ask that reserves keep room for it."""


class PlainScheduler(PlainUpdates):
    """The whole partition. Commands as they come; decisions one at a time."""

    def apply(self, command: Command) -> None:
        super().apply(command)
        for ask in [ask for node in self.nodes.values() for ask in node.reserving if ask.triggered]:
            node = self.nodes[ask.reserved]
            freed = summed([node.available, *(one.resources for one in node.own if one.preempted)])
            is_open = node.schedulable or bool(ask.required)
            if not (is_open and fits(freed, ask.resources) and self._without_room(ask, []) is None):
                self.unreserve(ask)

    def choices(self) -> list[Decision]:
        """What may be decided next; nothing if nothing can be. More than one only where the order is open."""
        if not any(value > 0 for value in self._fair_maximum(self.root).values()):
            return []
        self._give_way()
        found = self._from_reserved() or self._from_placeholders()
        if found:
            return found
        self.passed_over = []
        regular = self._from_queue(self.root)
        if regular is not None and regular.what == "place" and self._is_check_due():
            return [self._for_passed_over(self._find(regular.ask)) or regular]
        return [] if regular is None else [regular]

    def commit(self, decision: Decision) -> None:
        ask = self._find(decision.ask)
        app = ask.app
        assert app is not None
        if decision.what in ("swap", "release"):
            others = [self._find(key) for key in decision.others]
            for one in others:
                one.released = True
            if decision.what == "swap":
                self._swap(app, ask, others[0], self.nodes[decision.node])
            return
        node = self.nodes[decision.node]
        if ask.required:
            for other in [other for other in node.reserving if not other.required]:
                self.unreserve(other)
        if not ask.reserved and decision.what in ("place", "reserve") and self._is_check_due():
            self.check_at = self.now + PASSED_OVER_EVERY_S
        if decision.what == "place":
            self.take_ask(ask)
            self.add_allocation(app, ask, node)
        elif decision.what == "reserve":
            self._reserve(ask, node)
            ask.keeping = ask.keeping or decision.keeps
        else:
            self._reserve(ask, node)
            ask.triggered, ask.triggered_at = True, self.now
            for key in decision.others:
                self._find(key).preempted = True
        if app.state == "Accepted" and app not in app.queue.allocating:
            app.queue.allocating.append(app)

    def _reserve(self, ask: PlainAsk, node: PlainNode) -> None:
        if ask.reserved != node.name:
            node.reserving.append(ask)
            node.rescore(self.policy)
            ask.reserved, ask.reserved_at = node.name, self.now
            ask.reserved_rank = 1 + max(one.reserved_rank for app in self.apps.values() for one in app.asks)

    def _swap(self, app: PlainApp, ask: PlainAsk, placeholder: PlainAsk, node: PlainNode) -> None:
        self.take_ask(ask)
        app.swapping.append(ask)
        ask.partner, placeholder.partner = placeholder, ask
        ask.node = node.name
        if node.name != placeholder.node:
            node.own.append(ask)
            node.rescore(self.policy)

    def _find(self, key: str) -> PlainAsk:
        everything = (one for app in self.apps.values() for one in (*app.asks, *app.allocations, *app.swapping))
        return next(one for one in everything if one.key == key)

    # Asks with a reservation ----------------------------------------------------------------------------------------

    def _give_way(self) -> None:
        """A reservation that could not be used ends, and so do the newest of an application beyond its share; but none
        for which others were asked to go.
        """
        for ask in [one for node in self.nodes.values() for one in node.reserving if not one.triggered]:
            assert ask.app is not None
            may_use = self._may_run(ask.app) and self.limits.allow(ask.app, ask.resources)
            is_possible = self._may_fit(ask) if ask.keeping else self._has_room(ask.app.queue, ask, in_cluster=False)
            if not (may_use and is_possible):
                self.unreserve(ask)
        for app in self.apps.values():
            for ask in self._of_share(app)[self._share_of_nodes() :]:
                self.unreserve(ask)

    def _of_share(self, app: PlainApp) -> list[PlainAsk]:
        """The asks with a reservation that counts toward the share of the application, the oldest first."""
        found = [ask for ask in app.asks if ask.reserved and not ask.required and not ask.triggered]
        return sorted(found, key=lambda ask: ask.reserved_rank)

    def _share_of_nodes(self) -> int:
        return max(1, len(self.nodes) // 4)

    def _from_reserved(self) -> list[Decision]:
        reserved = [ask for node in self.nodes.values() for ask in node.reserving]
        found = [self._for_reserved(ask) for ask in reserved]
        return [one for one in found if one is not None]

    def _for_reserved(self, ask: PlainAsk) -> Decision | None:
        app, node = ask.app, self.nodes[ask.reserved]
        assert app is not None
        if not self._may_run(app) or not self.limits.allow(app, ask.resources):
            return None
        has_room = self._has_room(app.queue, ask)
        if node.takes(ask):
            return Decision("place", ask.key, node.name) if has_room else None
        if ask.required:
            if fits(node.available, ask.resources) or ask.triggered:
                return None
            victims = self._victims(node, ask)
            return Decision("preempt", ask.key, node.name, tuple(one.key for one in victims)) if victims else None
        other = self._node_for(ask) or self._reserved_node_for(ask) if has_room else None
        return None if other is None else Decision("place", ask.key, other.name)

    def _victims(self, node: PlainNode, ask: PlainAsk) -> list[PlainAsk]:
        def may_go(one: PlainAsk) -> bool:
            related = any(kind in ask.resources for kind in one.resources)
            return not (one.required or one.preempted or one.released) and one.priority <= ask.priority and related

        def reluctance(one: PlainAsk) -> tuple[int, int, int, int]:
            sort = 3 if one.originator else 1 if one.agreed else 2
            return (sort, one.priority, -one.created, sum(one.resources.values()))

        def covers(amount: Resources) -> bool:
            return fits(amount, ask.resources)

        def enough(taken: list[PlainAsk]) -> bool:
            return covers(summed([node.available, *(one.resources for one in taken)]))

        def is_elsewhere(one: PlainAsk) -> bool:
            assert one.app is not None
            return queue not in one.app.queue.path_up()

        taken: list[PlainAsk] = []
        for one in sorted(filter(may_go, node.own), key=reluctance):
            if not (enough(taken) and covers(summed(other.resources for other in taken))):
                taken.append(one)
        queue = self._without_room(ask, taken)
        if not enough(taken) or queue is None:
            return taken if enough(taken) else []
        taken = []
        for one in sorted(filter(may_go, node.own), key=lambda one: (is_elsewhere(one), reluctance(one))):
            is_covered = covers(summed(other.resources for other in taken))
            if not (enough(taken) and is_covered and self._without_room(ask, taken) is None):
                taken.append(one)
        return taken if enough(taken) and self._without_room(ask, taken) is None else []

    # Real asks and placeholders -------------------------------------------------------------------------------------

    def _from_placeholders(self) -> list[Decision]:
        found = [self._swap_of(app) for app in self.apps.values()]
        return [one for one in found if one is not None]

    def _swap_of(self, app: PlainApp) -> Decision | None:
        refused: list[tuple[PlainAsk, PlainAsk]] = []
        for ask in app.asks:
            if ask.placeholder or not ask.group:
                continue
            small: list[PlainAsk] = []
            for placeholder in app.allocations:
                if not placeholder.free or placeholder.group != ask.group:
                    continue
                if not fits(placeholder.resources, ask.resources):
                    small.append(placeholder)
                elif placeholder.node in ask.forbidden:
                    refused.append((ask, placeholder))
                elif small:
                    break
                else:
                    return Decision("swap", ask.key, placeholder.node, (placeholder.key,))
            if small:
                return Decision("release", ask.key, "", tuple(one.key for one in small))
        for ask, placeholder in refused[:1]:
            node = self._node_for(ask)
            if node is not None:
                return Decision("swap", ask.key, node.name, (placeholder.key,))
        return None

    # Asks that others pass over -------------------------------------------------------------------------------------

    passed_over: list[PlainAsk]
    """Asks that were tried before the one that is placed, and for which the cluster or a queue has no room."""

    def _is_check_due(self) -> bool:
        sharing = any(self._of_share(app) for app in self.apps.values())
        return self.now >= self.check_at and not sharing

    def _for_passed_over(self, placed: PlainAsk) -> Decision | None:
        assert placed.app is not None
        taken = tuple(placed.app.queue.path_up())
        for ask in self.passed_over:
            assert ask.app is not None
            if not any(queue in taken for queue in self._full_queues(ask.app.queue, ask)) or not self._may_fit(ask):
                continue
            is_late = self.now >= max(ask.created / 1e9, ask.app.reserves_anew_at) + PASSED_OVER_AFTER_S
            found = self._best_to_reserve(ask) if is_late else None
            if found is not None:
                return found._replace(keeps=True)
        return None

    def _may_fit(self, ask: PlainAsk) -> bool:
        """Whether its queues would have room for it if they were empty."""
        assert ask.app is not None
        most = [queue.maximum or {} for queue in ask.app.queue.path_up() if queue is not self.root]
        return all(value <= maximum.get(kind, value) for maximum in most for kind, value in ask.resources.items())

    # All other asks -------------------------------------------------------------------------------------------------

    def _from_queue(self, queue: PlainQueue) -> Decision | None:
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

    def _from_leaf(self, leaf: PlainQueue) -> Decision | None:
        for app in sorted((app for app in leaf.apps if app.asks), key=_app_key(leaf)):
            if self._may_run(app) and self.now >= app.back_off_until:
                found = self._from_app(leaf, app)
                if found is not None:
                    return found
        return None

    def _may_run(self, app: PlainApp) -> bool:
        return app.state != "Accepted" or (app.queue.may_start(app) and self.limits.may_start(app))

    def _from_app(self, leaf: PlainQueue, app: PlainApp) -> Decision | None:
        enough, failed = _back_off_after(leaf), 0
        placed = [one for one in (*app.allocations, *app.swapping) if not one.recovered] if enough else []
        for ask in sorted([*app.asks, *placed], key=lambda one: one.place):
            if enough and failed >= enough:
                app.back_off_until = self.now + _BACK_OFF_S
                return None
            if ask.node or app.can_replace(ask) or not self.limits.allow(app, ask.resources):
                continue
            if not self._has_room(app.queue, ask):
                found = self._on_full_node(ask) if ask.required else None
                if not (ask.required or ask.reserved):
                    self.passed_over.append(ask)
            elif ask.required:
                found = self._on_required_node(ask)
            else:
                found = self._on_any_node(ask)
                failed += found is None
            if found is not None:
                return found
        return None

    def _on_required_node(self, ask: PlainAsk) -> Decision | None:
        node = self.nodes.get(ask.required)
        if node is None or ask.reserved:
            return None
        if node.takes(ask) and not any(other.required for other in node.reserving):
            return Decision("place", ask.key, node.name)
        assert ask.app is not None
        is_possible = node.could_take(ask) and node.name not in ask.forbidden
        is_due = self.now >= ask.app.reserves_anew_at + RESERVE_AFTER_S
        return Decision("reserve", ask.key, node.name) if is_possible and is_due else None

    def _on_full_node(self, ask: PlainAsk) -> Decision | None:
        """A daemon without room in its queues may still preempt on its node, if the victims make room in both."""
        node = self.nodes.get(ask.required)
        if node is None or ask.reserved or ask.triggered:
            return None
        if fits(node.available, ask.resources) or not node.could_take(ask) or node.name in ask.forbidden:
            return None
        assert ask.app is not None
        if self.now < ask.app.reserves_anew_at + RESERVE_AFTER_S:
            return None
        victims = self._victims(node, ask)
        return Decision("preempt", ask.key, node.name, tuple(one.key for one in victims)) if victims else None

    def _on_any_node(self, ask: PlainAsk) -> Decision | None:
        node = self._node_for(ask) or self._reserved_node_for(ask)
        if node is not None:
            return Decision("place", ask.key, node.name)
        assert ask.app is not None
        if ask.reserved or self.now < max(ask.created / 1e9, ask.app.reserves_anew_at) + RESERVE_AFTER_S:
            return None
        if len(self._of_share(ask.app)) >= self._share_of_nodes():
            return None
        return self._best_to_reserve(ask)

    def _best_to_reserve(self, ask: PlainAsk) -> Decision | None:
        candidates = [one for one in self._open_nodes() if one.could_take(ask) and one.name not in ask.forbidden]
        best = min(candidates, key=lambda one: _left_over(one, ask), default=None)
        return None if best is None else Decision("reserve", ask.key, best.name)

    def _node_for(self, ask: PlainAsk) -> PlainNode | None:
        return next((node for node in self._open_nodes() if node.takes(ask)), None)

    def _reserved_node_for(self, ask: PlainAsk) -> PlainNode | None:
        """A node on which only asks of lower priority wait for room, unless others were asked to go for one of them."""
        nodes = [node for node in self._in_order() if node.schedulable and node.reserving and node.takes(ask)]
        return next(
            (node for node in nodes if all(not one.triggered and outranks(ask, one) for one in node.reserving)), None
        )

    def _open_nodes(self) -> list[PlainNode]:
        return [node for node in self._in_order() if node.schedulable and not node.reserving]

    def _in_order(self) -> list[PlainNode]:
        return sorted(self.nodes.values(), key=lambda node: (node.score, node.name))

    def _has_room(self, leaf: PlainQueue, ask: PlainAsk, *, in_cluster: bool = True) -> bool:
        return not self._full_queues(leaf, ask, in_cluster=in_cluster)

    def _full_queues(self, leaf: PlainQueue, ask: PlainAsk, *, in_cluster: bool = True) -> list[PlainQueue]:
        """The queues from the leaf up that have no room for the ask."""
        full: list[PlainQueue] = []
        total, wanted = self._fair_maximum(self.root) if in_cluster else {}, ask.resources
        for queue in leaf.path_up():
            maximum = total if queue is self.root else queue.maximum or {}
            kept, leaving = ({}, {}) if queue is self.root else (queue.kept, queue.leaving)
            for kind, most in maximum.items():
                own = wanted.get(kind, 0) + leaving.get(kind, 0) if ask.has_kept else 0
                used = queue.allocated.get(kind, 0) + max(0, kept.get(kind, 0) - own)
                if wanted.get(kind, 0) > max(0, most - used) and queue not in full:
                    full.append(queue)
        return full

    def _without_room(self, ask: PlainAsk, victims: list[PlainAsk]) -> PlainQueue | None:
        """The lowest queue that has none for an ask even once these victims and all earlier ones have left."""
        assert ask.app is not None
        total, wanted = self._fair_maximum(self.root), ask.resources
        for queue in ask.app.queue.path_up():
            maximum, kept = (total, {}) if queue is self.root else (queue.maximum or {}, queue.kept)
            everything = [one for app in queue.all_apps() for one in app.allocations]
            staying = summed(one.resources for one in everything if not one.preempted and one not in victims)
            for kind, most in maximum.items():
                own = wanted.get(kind, 0) if ask.has_kept else 0
                used = staying.get(kind, 0) + max(0, kept.get(kind, 0) - own)
                if wanted.get(kind, 0) > max(0, most - used):
                    return queue
        return None


_BACK_OFF_S = 30.0


def _back_off_after(leaf: PlainQueue) -> int:
    return next(
        (int(text) for queue in leaf.path_up() if (text := queue.setting("application.unschedasks.backoff"))), 0
    )


def outranks(ask: PlainAsk, other: PlainAsk) -> bool:
    """Whether it has the higher priority, as seen where the paths of their queues meet."""
    mine, theirs = _priorities_up(ask), _priorities_up(other)
    queue = next(queue for queue in mine if queue in theirs)
    return mine[queue] > theirs[queue]


def _priorities_up(ask: PlainAsk) -> dict[PlainQueue, int]:
    """What priority it has in each queue, from the leaf up."""
    assert ask.app is not None
    seen, priority = {}, ask.priority
    for queue in ask.app.queue.path_up():
        seen[queue] = priority
        inside = 0 if queue.setting("priority.policy") == "fence" else priority
        priority = inside + int(queue.setting("priority.offset") or 0)
    return seen


def _left_over(node: PlainNode, ask: PlainAsk) -> float:
    """How much of each type would be left of what is available: little is good."""
    return sum(
        1.0 if ask.resources.get(kind, 0) <= 0 else max(0.0, (room - ask.resources[kind]) / room)
        for kind, room in node.available.items()
        if room > 0
    )


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
