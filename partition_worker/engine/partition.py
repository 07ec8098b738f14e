"""A partition: the way into the engine.

    effects = partition.apply(command, now)      an update of the RM
    effects = partition.elapse(now)              timers that are due
    effects = partition.schedule(now, budget)    up to `budget` decisions
    when    = partition.deadline                 when to call again if nothing arrives

Pure: it reads no clock, sends nothing and logs nothing; `now` is Unix seconds and never goes back. What it knows is in
`books.py`, what each kind of input does in `node_updates.py`, `application_updates.py` and `allocation_updates.py`, and
what a decision is in `cycle.py`.
"""

from common.config.model import PartitionConfig
from common.machine import NEVER
from common.messages import AllocationRequest, ApplicationRequest, Command, NodeRequest
from partition_worker.engine import allocation_updates, application_updates, cycle, lifecycle, node_updates
from partition_worker.engine.applications.states import AppEvent
from partition_worker.engine.books import Books
from partition_worker.engine.effects import Effect


class Partition(Books):
    """Everything of one partition, and the only way to change it."""

    def __init__(self, config: PartitionConfig, *, name: str, now: float) -> None:
        super().__init__(config, name=name, now=now)
        self._idle = True

    @property
    def deadline(self) -> float:
        """When to call `elapse` or `schedule` next: at once while there may be something to decide."""
        return self.next_timer if self._idle else 0.0

    @property
    def next_timer(self) -> float:
        """When `elapse` has something to do."""
        return min(self.timers.deadline, self.clean_at, self.next_forgetting)

    @property
    def idle(self) -> bool:
        """Whether the last `schedule` left nothing to decide, and nothing has come in since."""
        return self._idle

    def apply(self, command: Command, now: float) -> list[Effect]:
        """Take an update of the RM; every item of it takes effect or is refused by itself.

        Raises:
            TypeError: for a command that is none of a partition's.
        """
        self.begin(now)
        match command:
            case NodeRequest():
                node_updates.handle(self, command)
            case ApplicationRequest():
                application_updates.handle(self, command)
            case AllocationRequest():
                allocation_updates.handle(self, command)
            case _:
                raise TypeError(command)
        self._idle = False
        return self.taken()

    def elapse(self, now: float) -> list[Effect]:
        """Let every timer go off that is due."""
        self.begin(now)
        while (application := self.timers.due(now)) is not None:
            lifecycle.timed_out(self, application)
            self._idle = False
        for application in self.expired():
            lifecycle.fire(self, application, AppEvent.EXPIRE)
        if self.clean_at <= now:
            self.clean_at = NEVER
            for queue in self.tree.remove_empty():
                self.readiness.forget_queue(queue)
                self.counters.fold(queue.path, queue.path.rpartition(".")[0])
            if self.tree.has_temporary():
                self.expect_cleaning()
        return self.taken()

    def schedule(self, now: float, budget: int) -> list[Effect]:
        """Make up to `budget` decisions; fewer means that nothing more can be placed now."""
        self.begin(now)
        self._idle = cycle.run(self, budget) < budget
        return self.taken()
