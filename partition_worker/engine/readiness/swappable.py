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
        self._offered: Order[Application] = Order()
        self._stuck: dict[int, Application] = {}
        """By rank: those for which no node would do when somebody looked."""
        self._seen = -1
        """The relief after which they were looked at."""

    def __contains__(self, application: Application) -> bool:
        return application in self._offered or application.rank in self._stuck

    def offer(self, application: Application) -> None:
        """One of its asks, or one of its placeholders, is new or another one than before."""
        self._stuck.pop(application.rank, None)
        # What is below a queue comes before what is in it; so two keys never differ first where one has left its path.
        self._offered.put(application, (*path_key(application.queue), inf, *application_key(application)))

    def drop(self, application: Application) -> None:
        """It has nothing to swap; nothing happens if that was known."""
        self._offered.drop(application)
        self._stuck.pop(application.rank, None)

    def set_aside(self, application: Application) -> None:
        """No node would do for what it has to swap, before something is freed."""
        self._offered.drop(application)
        self._stuck[application.rank] = application

    def first(self, reliefs: int) -> Application | None:
        """The most deserving that is worth a look, after so many reliefs; None if nobody is."""
        if self._stuck and self._seen != reliefs:
            for application in tuple(self._stuck.values()):
                self.offer(application)
        self._seen = reliefs
        return self._offered.first()

    def reorder(self) -> None:
        """Queues or policies are others than before: everybody is worth a look, in the new order."""
        waiting = (*self._offered, *self._stuck.values())
        self._offered = Order()
        for application in waiting:
            self.offer(application)
