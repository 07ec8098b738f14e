"""Which applications have a real ask that may take the place of a placeholder, in the order in which they are served.

That is the order of the regular cycle: queue by queue from the root down, then by the policy of the leaf. An
application keeps the place that it deserved when it came; while there is anything to swap nothing else is placed, so
shares hardly change meanwhile.

Not here: which ask takes which place (`swaps.py`).
"""

from math import inf

from partition_worker.engine.applications.application import Application
from partition_worker.engine.order import Order
from partition_worker.engine.queues.fairness import path_key
from partition_worker.engine.readiness.readiness import application_key


class Swappable:
    """Applications that may have something to swap. Finding the first costs nothing where there is none."""

    def __init__(self) -> None:
        self.offered: Order[Application] = Order()
        self.stuck: dict[int, Application] = {}
        """By rank: those for which no node would do when somebody looked."""
        self.seen = -1
        """The relief after which they were looked at."""

    def __contains__(self, application: Application) -> bool:
        return application in self.offered or application.rank in self.stuck

    def offer(self, application: Application) -> None:
        """One of its asks, or one of its placeholders, is new or another one than before."""
        self.stuck.pop(application.rank, None)
        # What is below a queue comes before what is in it; so two keys never differ first where one has left its path.
        self.offered.put(application, (*path_key(application.queue), inf, *application_key(application)))

    def drop(self, application: Application) -> None:
        """It has nothing to swap; nothing happens if that was known."""
        self.offered.drop(application)
        self.stuck.pop(application.rank, None)

    def set_aside(self, application: Application) -> None:
        """No node would do for what it has to swap, before something is freed."""
        self.offered.drop(application)
        self.stuck[application.rank] = application

    def first(self, reliefs: int) -> Application | None:
        """The most deserving that is worth a look, after so many reliefs; None if nobody is."""
        if self.stuck and self.seen != reliefs:
            for application in tuple(self.stuck.values()):
                self.offer(application)
        self.seen = reliefs
        return self.offered.first()

    def reorder(self) -> None:
        """Queues or policies are others than before: everybody is worth a look, in the new order."""
        waiting = (*self.offered, *self.stuck.values())
        self.offered = Order()
        for application in waiting:
            self.offer(application)
