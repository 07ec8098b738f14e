"""The fake RM: which applications it submits, and what became of them. A machine without clock or socket.

It submits the applications of a workload at their times, unless a queue has too many already. `RmPlayer` runs them: one
for each partition. The core completes an application after its last task.

Not here: what an RM does (`common/rm_player.py`), waiting and sending (`run.py`), what is submitted (`workload.py`).
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Message, Resources
from yunishard.common.messages.wire import NEVER
from yunishard.common.names import normalise_partition_name
from yunishard.common.rm_player import Batch, Eviction, Observer, RmPlayer, Submission
from yunishard.common.simulated_nodes import build_simulated_nodes
from yunishard.workloads.fake_rm.workload import Workload

OPEN_IN_QUEUE_MAX: Final = 50
"""Applications of one queue that have not ended; more if the load needs more. Another one is not submitted, so that a
queue that is too small for the load does not grow for ever."""

OPEN_FACTOR: Final = 4
"""Applications that have not ended in all queues, as a multiple of those of which all tasks run on average. An
application lasts until its longest task ends, which takes about two and a half times the mean, and some wait."""

LATE_S: Final = 1.0
"""After a pause of the program that is longer, the fake RM does not catch up with the workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeNodes:
    """The nodes of each partition, all alike."""

    partitions: tuple[str, ...]
    """As the configuration names them."""
    names: tuple[str, ...]
    """Empty if the partitions have nodes without a report, see `common/simulated_nodes.py`."""
    resources: Resources


@dataclass(slots=True)
class Counts:
    """Events since the start."""

    submitted: int = 0
    completed: int = 0
    rejected: int = 0
    ended_by_core: int = 0
    held_back: int = 0
    """Applications that were not submitted because of `OPEN_IN_QUEUE_MAX`."""
    preempted: int = 0
    """Tasks."""


class FakeRM(Observer):
    """A resource manager. Call `due` when `deadline` has passed or an answer was received, and send the batch."""

    def __init__(self, nodes: FakeNodes, workload: Workload, *, rm_id: str) -> None:
        self.counts = Counts()
        self.problem = ""
        """The latest refusal; cleared by the driver."""
        self.rate = workload.rate
        """Applications a minute."""
        self.players = {
            name: RmPlayer(
                self,
                partition=name,
                nodes=build_simulated_nodes(nodes.names, nodes.resources, partition=name),
                resubmits="preempted",
                removes=False,
            )
            for name in nodes.partitions
        }
        self._partitions = {normalise_partition_name(rm_id, name): name for name in nodes.partitions}
        self._places: dict[str, tuple[str, str]] = {}
        """Partition and queue of all and only applications that have not ended."""
        self._open = Counter[tuple[str, str]]()
        """Their number, by partition and queue."""
        self._open_max = max(OPEN_IN_QUEUE_MAX, OPEN_FACTOR * workload.mean_running // workload.queue_count)
        self._source = workload.draw_submissions()
        self._next = next(self._source, None)
        self._began = 0.0
        """The time at which the workload begins, later after each pause of the program."""

    def begin_session(self) -> None:
        """Send everything to partitions that are empty, because the core has dropped the session before."""
        for player in self.players.values():
            player.send_everything()

    @property
    def deadline(self) -> float:
        """When something is due next, unless an answer arrives before."""
        submission_at = NEVER if self._next is None else self._began + self._next[0]
        return min(submission_at, *(player.deadline for player in self.players.values()))

    @property
    def tasks_by_state(self) -> Counter[str]:
        """Number of tasks that are running and waiting, without placeholders."""
        return Counter(
            "running" if task.node_id else "waiting"
            for player in self.players.values()
            for task in player.tasks.values()
            if not task.ask.placeholder
        )

    @property
    def applications_open(self) -> int:
        return len(self._places)

    def due(self, now: float) -> Batch:
        """Return the updates to send now."""
        while self._next is not None and self._began + self._next[0] <= now:
            if now - (self._began + self._next[0]) > LATE_S:
                self._began = now - self._next[0]
            self._submit(self._next[1])
            self._next = next(self._source, None)
        batch = Batch()
        for player in self.players.values():
            batch.extend(player.due(now))
        return batch

    def receive(self, partition: str, news: Message, now: float) -> None:
        """Handle an answer from a partition (its normalised name)."""
        match news:
            case rm_messages.NodeResponse(rejected=[first, *_]):
                self.problem = f"node {first.node_id} refused: {first.reason}"
            case rm_messages.Refused():
                self.problem = f"message {news.seq} refused ({news.code}): {news.reason}"
            case _ if partition in self._partitions:
                self.players[self._partitions[partition]].receive(news, now)

    def _submit(self, new: Submission) -> None:
        place = (new.application.partition_name, new.application.queue_name)
        if self._open[place] >= self._open_max:
            self.counts.held_back += 1
            return
        self.counts.submitted += 1
        self._open[place] += 1
        self._places[new.application.application_id] = place
        self.players[new.application.partition_name].submit(new)

    # What becomes of applications -----------------------------------------------------------------------------------

    def evicted(self, eviction: Eviction, at: float) -> None:
        self.counts.preempted += eviction.is_again

    def rejected(self, application_id: str, key: str, reason: str, at: float) -> None:
        if key:
            self.problem = f"ask {key} refused: {reason}"
        else:
            self.problem = f"application {application_id} refused: {reason}"
            self.counts.rejected += self._drop(application_id)

    def failed(self, application_id: str, reason: str, at: float) -> None:
        self.counts.ended_by_core += self._drop(application_id)

    def removed(self, application_id: str, at: float) -> None:
        self.counts.completed += self._drop(application_id)

    def _drop(self, application_id: str) -> bool:
        """Count that an application has ended; whether it had not before."""
        place = self._places.pop(application_id, None)
        if place is not None:
            self._open[place] -= 1
        return place is not None
