"""The state of the plain scheduler, how long things last in it, and what follows from one change for others.

Straight from the words of the specification: the states of applications (2), and what placing or removing something
does to them. Not here: what an RM says (`plain_updates.py`), and decisions (`plain_scheduler.py`).
"""

from tests.properties.plain_limits import PlainLimits
from tests.properties.plain_model import PlainApp, PlainAsk, PlainNode, PlainQueue, summed
from yunishard.common.config.model import QueueConfig

COMPLETING_S = 30.0
RESERVATION_S = 7200.0
PASSED_OVER_PERCENT = 5
"""Of the nodes that may be reserved over time for asks that others passed over."""

VICTIMS_S = 600.0
"""How long an ask waits for its victims to leave."""

EVENTS = {
    "run": {"New": "Accepted", "Resuming": "Accepted", "Accepted": "Running", "Completing": "Running"},
    "wait": {"Completing": "Accepted"},
    "complete": {"Accepted": "Completing", "Running": "Completing", "Completing": "Completed"},
    "fail": {"New": "Failing", "Accepted": "Failing", "Running": "Failing", "Failing": "Failed"},
    "resume": {"New": "Resuming", "Accepted": "Resuming"},
}


class PlainStates:
    """Everything a partition knows."""

    def __init__(self, root: QueueConfig, *, policy: str, now: float, reservation_s: float = RESERVATION_S) -> None:
        self.reservation_s = reservation_s
        self.policy = policy
        self.now = now
        self.check_at = 0.0
        """When the next ask that is placed is compared with those that it passes over."""
        self.root = PlainQueue("root", None, root)
        self.queues = {"root": self.root}
        self._build(self.root)
        self.limits = PlainLimits()
        self.apps: dict[str, PlainApp] = {}
        self.nodes: dict[str, PlainNode] = {}
        self._stamps = 0
        self._groups: dict[str, list[str]] = {}

    def _build(self, queue: PlainQueue) -> None:
        for config in queue.config.queues:
            child = PlainQueue(f"{queue.path}.{config.name}", queue, config)
            self.queues[child.path] = child
            queue.children.append(child)
            self._build(child)

    def stamp(self) -> int:
        self._stamps += 1
        return int(self.now * 1e9) + self._stamps

    # Time -----------------------------------------------------------------------------------------------------------

    def elapse(self, now: float) -> None:
        """What is due happens, in order."""
        self.now = now
        while True:
            due = [(app.completes_at, 0, app) for app in self.apps.values() if app.completes_at is not None]
            due += [(app.times_out_at, 1, app) for app in self.apps.values() if app.times_out_at is not None]
            due = [one for one in due if one[0] <= now]
            if not due:
                break
            _, kind, app = min(due, key=lambda one: one[:2])
            if kind == 0:
                self._lingered(app)
            else:
                self._placeholders_timed_out(app)
        for ask in [ask for node in self.nodes.values() for ask in node.reserving]:
            if ask.reserved_at + self.reservation_s <= now or (ask.triggered and ask.triggered_at + VICTIMS_S <= now):
                self.unreserve(ask)
                assert ask.app is not None
                ask.app.reserves_anew_at = now

    def _lingered(self, app: PlainApp) -> None:
        app.completes_at = None
        if app.held and any(app.held.values()):
            self._let_go(app)
        else:
            self.fire(app, "complete")

    def _placeholders_timed_out(self, app: PlainApp) -> None:
        app.times_out_at = None
        if app.state == "Accepted" and self._had_all_placeholders(app):
            self.fire(app, "run")
        if app.state in ("Running", "Completing"):
            self._let_go(app)
            return
        self.fire(app, "fail" if app.hard else "resume")
        if app.hard:
            for real in tuple(app.swapping):
                self.unlink(real)
        for one in app.allocations:
            one.released = one.released or not one.preempted
        for ask in tuple(app.asks):
            self.take_ask(ask)
            self.timed_out(app, ask)
        self.update_after_placeholder(app)

    @staticmethod
    def _had_all_placeholders(app: PlainApp) -> bool:
        """Counting those that were replaced."""
        groups = [group for group in app.task_groups.values() if group.replaced]
        placed = summed([app.held, *(group.least for group in groups for _ in range(group.replaced))])
        return bool(groups) and all(placed.get(kind, 0) >= amount for kind, amount in app.gang.items())

    def _let_go(self, app: PlainApp) -> None:
        for one in app.allocations:
            one.released = one.released or one.free

    # States ---------------------------------------------------------------------------------------------------------

    def fire(self, app: PlainApp, event: str) -> None:
        after = EVENTS[event].get(app.state)
        if after is None:
            return
        app.state = after
        app.completes_at = self.now + COMPLETING_S if after == "Completing" else None
        if after == "Running" and app in app.queue.allocating:
            app.queue.allocating.remove(app)
        if after == "Running" and not any(app.held.values()):
            app.times_out_at = None
        if after == "Completing" and any(app.held.values()) and app not in app.queue.allocating:
            app.queue.allocating.append(app)
        if after in ("Completed", "Failed"):
            self.leave(app)

    def leave(self, app: PlainApp) -> None:
        del self.apps[app.name]
        app.queue.apps.remove(app)
        if app in app.queue.allocating:
            app.queue.allocating.remove(app)
        app.times_out_at = app.completes_at = None

    def complete_if_done(self, app: PlainApp) -> None:
        if app.state in ("Accepted", "Running") and not app.asks and not app.allocated:
            self.fire(app, "complete")

    def update_after_placeholder(self, app: PlainApp) -> None:
        """Rule 7."""
        if app.held:
            return
        if not (app.hard and app.state == "Accepted" and (app.allocations or app.swapping)):
            app.times_out_at = None
        if app.state == "Failing":
            if not app.allocations:
                self.fire(app, "fail")
        elif app.state == "Resuming":
            self.fire(app, "run")
        elif app.state == "Completing":
            if not app.swapping:
                self.fire(app, "complete")
        else:
            self.complete_if_done(app)

    def _forget_if_empty(self, app: PlainApp) -> None:
        if not app.allocations and not app.asks and app.state != "Resuming":
            app.counts = False

    # What runs and what waits ---------------------------------------------------------------------------------------

    def take_ask(self, ask: PlainAsk) -> None:
        """It is not asked for any more."""
        assert ask.app is not None
        if ask.reserved:
            self.unreserve(ask)
        ask.app.asks.remove(ask)

    def unreserve(self, ask: PlainAsk) -> None:
        """A node that comes back into the order has its score of now, as if it had been drained."""
        if ask.keeping and not ask.triggered:
            pause = (self.now - ask.reserved_at) * (100 / (PASSED_OVER_PERCENT * max(1, len(self.nodes))) - 1)
            self.check_at = max(self.check_at, self.now + pause)
        node, ask.reserved, ask.triggered, ask.keeping = self.nodes[ask.reserved], "", False, False
        node.reserving.remove(ask)
        if not node.reserving:
            node.rescore(self.policy)

    def add_allocation(self, app: PlainApp, one: PlainAsk, node: PlainNode) -> None:
        """It runs on the node."""
        one.node = node.name
        node.own.append(one)
        node.rescore(self.policy)
        if one.placeholder and app.state == "Accepted" and not app.held and app.times_out_at is None:
            app.times_out_at = self.now + app.timeout
        app.allocations.append(one)
        app.counts = True
        if not one.placeholder or app.held == app.gang:
            self.fire(app, "run")

    def take_allocation(self, app: PlainApp, one: PlainAsk) -> None:
        app.allocations.remove(one)
        node = self.nodes[one.node]
        node.own.remove(one)
        node.rescore(self.policy)
        if not one.placeholder and not app.allocated and not app.asks:
            app.counts = False
        self._forget_if_empty(app)

    @staticmethod
    def timed_out(app: PlainApp, one: PlainAsk) -> None:
        if one.placeholder:
            app.task_groups[one.group].timed_out += 1

    def unlink(self, real: PlainAsk) -> None:
        """The real ask waits again."""
        app, placeholder = real.app, real.partner
        assert app is not None
        assert placeholder is not None
        node = self.nodes[real.node]
        if real in node.own:
            node.own.remove(real)
            node.rescore(self.policy)
        real.partner = placeholder.partner = None
        real.node = ""
        app.swapping.remove(real)
        app.insert(real)
