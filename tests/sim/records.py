"""Whether the records of a worker lead to what it has: a second worker is recovered from them and compared, each time
that a worker ends, and at the end of a run.

Not here: what a wrong recovery leads to, which the auditor hears and `convergence.py` finds.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tests.invariants import find_violations
from tests.likeness import differences
from tests.recorded import snapshot
from tests.sim.auditor import Violation
from tests.sim.operator_changes import OperatorChanges
from yunishard.common.messages.journal_messages import Step
from yunishard.common.messages.wire import Incoming, Outgoing
from yunishard.common.names import BROKER
from yunishard.partition_worker.worker import Worker

_STEP = msgspec.msgpack.Decoder(Step)


class WatchedWorker(Worker):
    """A worker that is seen to place nothing while its RM is away, and to repeat what its RM lacks, and whose records
    are kept until it ends.
    """

    away = False
    content: bytes | None = None
    """The snapshot that the steps follow."""
    steps: Sequence[bytes] = ()
    """Every step after it."""
    changes: OperatorChanges | None = None
    """What operators were told."""
    is_latest: Callable[[], bool] = staticmethod(lambda: False)
    """Whether no other worker has opened the journal since."""
    acknowledged = 0
    """The number of the RM's last acknowledged message, when a record was made last."""

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        match incoming.header.kind:
            case "Pause":
                self.away = True
            case "Repeat" | "CommitConfig":
                self.away = False
        known = self._list_known(incoming.header.kind)
        sends = super().handle(incoming, now)
        if known is not None and self.changes is not None and self.partition is not None and self.is_latest():
            for problem in self.changes.find_admitted(self.partition, self.name, known):
                raise Violation("an operator was told otherwise", f"{self.name}: {problem}", (self.name,))
        if incoming.header.kind == "Repeat" and not self._paused and incoming.header.life == self.host.channel.life:
            self._check_repeated(incoming.header.ack, sends)
        return sends

    def tick(self, now: float) -> list[Outgoing]:
        before = self._placed
        latest_ns = self.partition.latest_stamp_ns if self.partition is not None else 0
        sends = super().tick(now)
        if self.away and self._placed > before:
            raise Violation("something is placed for an RM that is away", self.name, (self.name,))
        if self.changes is not None and self.partition is not None and self._placed > before and self.is_latest():
            for problem in self.changes.find_misplaced(self.partition, self.name, latest_ns):
                raise Violation("an operator was told otherwise", f"{self.name}: {problem}", (self.name,))
        return sends

    def _list_known(self, kind: str) -> set[str] | None:
        """The applications that there are before a message that may add some; None if it may not, or if the RM reports
        what it has.
        """
        if kind not in ("ApplicationRequest", "GroupsFound") or self.partition is None or self.partition.report:
            return None
        return set(self.partition.applications)

    @property
    def _placed(self) -> int:
        return self.partition.counters.allocated if self.partition is not None else 0

    def _check_repeated(self, acknowledged: int, sends: list[Outgoing]) -> None:
        every = (*sends, *(one for _, one in self.barrier.held))
        numbers = [one.header.seq for one in every if one.to == BROKER and one.header.seq]
        outbox = self.host.channel.outbox
        last, acknowledged = outbox.last, max(acknowledged, outbox.acknowledged)  # a resumption may arrive late
        if numbers != list(range(acknowledged + 1, last + 1)):
            text = f"{self.name}: {numbers}, of {last} messages the RM has acknowledged {acknowledged}"
            raise Violation("what is repeated is not what the RM lacks", text, (self.name,))

    # Records --------------------------------------------------------------------------------------------------------

    def recover_from(self, content: bytes | None, steps: Sequence[bytes]) -> None:
        """Recover, and keep what it was recovered from."""
        self.content, self.steps = content, list(steps)
        self.recover(None if content is None else [content], [_STEP.decode(step) for step in steps])
        self.acknowledged = self.host.channel.outbox.acknowledged

    def snapshot(self) -> Iterator[bytes]:
        self.content, self.steps = b"".join(super().snapshot()), []
        self.acknowledged = self.host.channel.outbox.acknowledged
        return iter([self.content])

    def _record_step(self, kind: str, now: float, *, has_number: bool = False) -> None:
        before = self.barrier.last
        if self.host.is_fresh:
            self.content, self.steps = None, []
        super()._record_step(kind, now, has_number=has_number)
        if self.barrier.last > before:
            self.steps = [*self.steps, self.barrier._lazy[-1]]
            self.acknowledged = self.host.channel.outbox.acknowledged


def compare(
    worker: WatchedWorker, again: WatchedWorker, content: bytes | None, steps: Sequence[bytes]
) -> Iterator[str]:
    """What differs between a worker and an empty one that is recovered from a snapshot and the steps after it."""
    again.recover_from(content, steps)
    if again.partition is None or worker.partition is None:
        if again.partition is not worker.partition:
            yield "the records lead to nothing"
        return
    host, other = worker.host, again.host
    if host.session != other.session:
        yield f"after a recovery, the session is {other.session} and was {host.session}"
    channels = [(one.session, one.life, one.received, one.outbox.last) for one in (host.channel, other.channel)]
    if channels[0] != channels[1]:
        yield f"the records lead to other numbers: {channels}"
    mine, its = list(host.channel.outbox.unacknowledged()), list(other.channel.outbox.unacknowledged())
    if its[len(its) - len(mine) :] != mine or len(its) != host.channel.outbox.last - worker.acknowledged:
        yield f"after a recovery, {[one[0] for one in its]} are unacknowledged, and {[one[0] for one in mine]} were"
    for problem in find_violations(again.partition):
        yield f"after a recovery: {problem}"
    records, others = snapshot(worker.partition), snapshot(again.partition)
    for key in {**records, **others}:
        if records.get(key) != others.get(key):
            yield f"after a recovery, {key} is {others.get(key)} and was {records.get(key)}"
    again.partition.now = worker.partition.now  # time that changed nothing is no step
    again.partition.nodes.predicates.asks_manager = worker.partition.nodes.predicates.asks_manager
    again.partition.nodes.predicates.asks_about_victims = worker.partition.nodes.predicates.asks_about_victims
    for difference in differences(worker.partition, again.partition):
        yield f"after a recovery, {difference}"
