"""What operators changed, as far as the answers that they received say: stopped queues and cordoned nodes of each
partition, drains, and ended sessions.

    a request is sent                --> it may have an effect at any time from now on
    an answer with success arrives   --> it had its effect, which every crash keeps
    it is refused                    --> it never has one
    no answer, or a fault that loses journals --> nobody knows: it may have one at any time, or never

Each request has a reason of its own, so that a mark shows which request made it. From these facts alone follow which
marks a partition may have, and which queues and nodes take nothing new.

Not here: who sends requests (`asker.py`), the marks themselves (`partition_worker/engine/operator_marks.py`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from yunishard.broker.registry import Registry
from yunishard.common.messages.query_messages import Answer, ChangeNode, ChangeQueue
from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.user_resolution import is_forced

UNKNOWN: Final = b"before it could answer"
"""In the text of an answer that leaves open whether the request has an effect."""

INITIAL: Final = ""
"""In place of the reference of a request: nobody has made a mark yet."""


@dataclass(slots=True)
class Change:
    """A request to mark a queue or a node, or to remove its mark."""

    ref: str
    name: str
    """Path of the queue, or id of the node."""
    makes: bool
    """Whether it makes a mark; else it removes one."""
    sent_at: float
    over_at: float = NEVER
    """From when on it has no effect any more: it has had it."""
    is_certain: bool = False
    """Whether it was answered with success, and nothing may have been lost since."""
    is_lost: bool = False
    """Whether an answer to it counts for nothing, because of a fault."""


@dataclass(slots=True)
class Drain:
    """A drain of a node, and what ran there when it was sent."""

    ref: str
    partition: str
    node: str
    session: str
    keys: tuple[str, ...]


class _History:
    """The changes of one queue or node that may still matter."""

    def __init__(self, name: str) -> None:
        self.changes: dict[str, Change] = {INITIAL: Change(INITIAL, name, makes=False, sent_at=-NEVER, over_at=-NEVER)}

    def lose(self, now: float) -> None:
        """Everything so far may have been lost."""
        for one in self.changes.values():
            one.is_certain, one.is_lost = False, True
            one.over_at = one.over_at if one.over_at == NEVER else now

    def list_last(self) -> list[Change]:
        """The changes of which each may have been the last one that had an effect."""
        every = self.changes.values()
        latest = max((one.sent_at for one in every if one.is_certain), default=-NEVER)
        return [one for one in every if one.over_at >= latest]

    @property
    def is_marked(self) -> bool:
        """Whether it has a mark for certain."""
        return all(one.makes for one in self.list_last())


@dataclass(slots=True)
class _Marks:
    """Those of one partition."""

    queues: dict[str, _History] = field(default_factory=dict)
    nodes: dict[str, _History] = field(default_factory=dict)


class OperatorChanges:
    """What the answers to operators promise."""

    def __init__(self, read_clock: Callable[[], float]) -> None:
        self.judged = 0
        """How many placements were compared with marks."""
        self.drains: dict[str, Drain] = {}
        """By reference; those that were answered with success, and whose releases nothing has lost."""
        self._read_clock = read_clock
        self._partitions: dict[str, _Marks] = {}
        self._pending: dict[str, tuple[_History, Change]] = {}
        self._pending_drains: dict[str, Drain] = {}
        self._ended: dict[str, int] = {}
        """RM to the number of the last session that ended for certain."""
        self._pending_ends: dict[str, tuple[str, int]] = {}

    # Requests and answers -------------------------------------------------------------------------------------------

    def note_sent(self, ref: str, partition: str, message: ChangeQueue | ChangeNode) -> None:
        """An operator sends this request."""
        marks = self._partitions.setdefault(partition, _Marks())
        if isinstance(message, ChangeQueue):
            name, makes, histories = message.queue, message.action == "stop", marks.queues
        else:
            name, makes, histories = message.node_id, message.action != "uncordon", marks.nodes
        history = histories.setdefault(name, _History(name))
        change = Change(ref, name, makes, self._read_clock())
        history.changes[ref] = change
        self._pending[ref] = history, change

    def note_drain(self, drain: Drain) -> None:
        """The request is to drain a node."""
        self._pending_drains[drain.ref] = drain

    def note_end_sent(self, ref: str, rm: str, session: int) -> None:
        """An operator asks for the end of an RM's session, whose last session that has begun is this one."""
        self._pending_ends[ref] = rm, session

    def receive_answer(self, ref: str, answer: Answer) -> Iterator[str]:
        """The request of this reference is answered; what is wrong with that."""
        status = answer.status
        drain, (rm, session) = self._pending_drains.pop(ref, None), self._pending_ends.pop(ref, ("", 0))
        if status == 200 and drain is not None:
            self.drains[ref] = drain
        if status == 200 and rm:
            self._ended[rm] = max(session, self._ended.get(rm, 0))
        history, change = self._pending.pop(ref, (None, None))
        if history is None or change is None:
            return
        if status == 200:
            change.over_at, change.is_certain = self._read_clock(), not change.is_lost
            view = msgspec.json.decode(answer.body)
            mark = view.get("stopped") or view.get("cordoned") or {}
            if mark.get("reason") != (ref if change.makes else None) or (drain is not None and view.get("running")):
                yield f"{ref} about {change.name}: {view}"
        elif UNKNOWN not in answer.body:
            del history.changes[ref]

    def is_open(self, ref: str) -> bool:
        """Whether this is the reference, with or without the caller before it, of a request without an answer."""
        return ref.rpartition(" ")[2] in self._pending

    def list_names(self, partition: str, *, are_nodes: bool) -> list[str]:
        """The queues or nodes that requests were about."""
        marks = self._partitions.get(partition, _Marks())
        return list(marks.nodes if are_nodes else marks.queues)

    # Faults ---------------------------------------------------------------------------------------------------------

    def lose_partition(self, partition: str) -> None:
        """The partition ends, or a fault may have taken it back to any earlier state."""
        marks = self._partitions.get(partition, _Marks())
        for history in (*marks.queues.values(), *marks.nodes.values()):
            history.lose(self._read_clock())
        self.lose_drains(partition)

    def lose_drains(self, partition: str) -> None:
        """The partition starts empty, and the RM reports what runs: nothing of that is asked to leave."""
        for drains in (self.drains, self._pending_drains):
            for ref in [ref for ref, one in drains.items() if one.partition == partition]:
                del drains[ref]

    def lose_ends(self) -> None:
        """The broker's record may be an earlier one."""
        self._ended.clear()
        self._pending_ends.clear()

    # What follows ---------------------------------------------------------------------------------------------------

    def find_problems(self, partition: str, state: Partition | None) -> Iterator[str]:
        """What is wrong with the marks of a partition, or of nothing that should be one."""
        marks = self._partitions.get(partition, _Marks())
        stops, cordons = (state.tree.stops, state.nodes.cordons) if state is not None else ({}, {})
        for what, histories, found in (("queue", marks.queues, stops), ("node", marks.nodes, cordons)):
            for name in {**histories, **found}:
                history = histories.get(name, _History(name))
                mark = found.get(name)
                possible = [one.ref for one in history.list_last() if one.makes == (mark is not None)]
                if (not possible) if mark is None else (mark.reason not in possible):
                    last = [one.ref if one.makes else f"no mark ({one.ref})" for one in history.list_last()]
                    yield f"{what} {name} has the mark {mark}, and operators were told {' or '.join(last)}"

    def find_resurrected(self, rm: str, session: int) -> Iterator[str]:
        """What is wrong with this session of an RM being open."""
        if session <= self._ended.get(rm, 0):
            yield f"session {session} is open, and an operator has ended it"

    def find_misplaced(self, state: Partition, partition: str, after_ns: int) -> Iterator[str]:
        """What was placed after this stamp where operators were told before that nothing new is placed."""
        marks = self._partitions.get(partition)
        if marks is None:
            return
        for name in [name for name, history in marks.nodes.items() if history.is_marked]:
            node = state.nodes.get(name)
            for one in () if node is None else node.allocations.values():
                self.judged += 1
                if one.bound_ns > after_ns and not _may_be_on_cordoned(one):
                    yield f"{one.key} is placed on node {name}, which is cordoned"
        for path in [path for path, history in marks.queues.items() if history.is_marked]:
            for application in state.applications.values():
                if any(level.path == path for level in application.queue.ancestry()):
                    for one in application.allocations.values():
                        self.judged += 1
                        if one.bound_ns > after_ns:
                            yield f"{one.key} is placed in {application.queue.path}, and queue {path} is stopped"

    def find_admitted(self, state: Partition, partition: str, known: set[str]) -> Iterator[str]:
        """Which applications that were not `known` before were accepted by a stopped queue."""
        marks = self._partitions.get(partition)
        for path in [path for path, history in marks.queues.items() if history.is_marked] if marks is not None else ():
            for name, application in state.applications.items():
                if name not in known and any(level.path == path for level in application.queue.ancestry()):
                    self.judged += 1
                    if not is_forced(application.tags):
                        yield f"{name} is accepted by {application.queue.path}, and queue {path} is stopped"


def _may_be_on_cordoned(one: Allocation) -> bool:
    """Whether it requires the node, or replaces a placeholder."""
    return bool(one.shape.required_node) or bool(one.task_group and not one.placeholder)


class WatchedRegistry(Registry):
    """The broker's registry, which tells that a partition has ended, as its marks end with it."""

    def __init__(self, incarnation: int, has_store: bool, note_end: Callable[[str], None]) -> None:
        super().__init__(incarnation, has_store=has_store)
        self._note_end = note_end

    def free_slot(self, partition: str) -> None:
        self._note_end(partition)
        super().free_slot(partition)
