"""The auditor: while a partition runs it derives every sum again, a little at a time, and says so if one has drifted.

A round looks at every application, node, queue, user and group, and at last at the partition as a whole. Each is
checked against its own parts at that moment, between two steps; so it does not matter what changes between two looks.
What comes while a round is under way has its turn in the next one.

SLICE_ITEMS in SLICE_EVERY_S bound the work, to less than 1 % of the time (`benchmarks/auditor.py`). So a round takes
SLICE_EVERY_S for each SLICE_ITEMS of the partition, and no longer however much is going on. Only one object, such as a
queue with very many applications, is always looked at in one piece.

Rounds begin `every_s` after each other, and only if something has changed since: a partition that is left alone sleeps.
What a round found is its health (`health.py`). Drift is a defect of ours: it is told in the log and in the history.

Not here: what must be true (`invariants.py`), and mending anything.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from common import event_codes
from common.machine import NEVER
from partition_worker.engine.books import Books
from partition_worker.engine.checks import invariants
from partition_worker.engine.checks.health import Health

SLICE_EVERY_S: Final = 0.1
SLICE_ITEMS: Final = 500
"""Asks, allocations, applications and queues that are looked at in a slice; at least one object, whatever it has."""

TOLD_MAX: Final = 20
"""Drifts that are told in one round; all are counted."""


class _Look(NamedTuple):
    """At one object: what it is, how much that was, and what is wrong."""

    kind: int
    """What it is in an event."""
    name: str
    items: int
    problems: list[str]


class Auditor:
    """Goes round in one partition."""

    def __init__(self, books: Books) -> None:
        self.every_s = 0.0
        """From the beginning of one round to that of the next; 0 is never."""
        self.deadline = NEVER
        """When the next slice is due, in Unix seconds."""
        self.rounds = 0
        self.drift = 0
        """How much was found in all rounds; what is not mended is found in each."""
        self.health = Health()
        """What the latest complete round found."""
        self._began = books.now
        self._changed = False
        self._found = Health()
        self._round: Iterator[_Look] | None = None

    def expect(self, books: Books) -> None:
        """Something may have changed: there will be another round."""
        self._changed = True
        if self._round is None and self.deadline == NEVER and self.every_s > 0:
            self.deadline = max(books.now, self._began + self.every_s)

    def go_on(self, books: Books) -> None:
        """Look at the next objects of this round, or begin one."""
        if self._round is None:
            self._began, self._changed, self._found = books.now, False, Health()
            self._round = _looks(books, self._found)
        items = 0
        for look in self._round:
            self._take(books, look)
            items += look.items
            if items >= SLICE_ITEMS:
                self.deadline = books.now + SLICE_EVERY_S
                return
        self._end(books)

    def _take(self, books: Books, look: _Look) -> None:
        for problem in look.problems:
            self.drift += 1
            self._found.note_drift([problem])
            if len(self._found.drift) <= TOLD_MAX:
                text = f"audit: {problem}"
                books.tell_people(text)
                books.happened(look.kind, look.name, event_codes.NONE, event_codes.DETAILS_NONE, message=text)

    def _end(self, books: Books) -> None:
        self.health, self._round, self.deadline = self._found, None, NEVER
        self.rounds += 1
        if self._changed:
            self.expect(books)


def _looks(books: Books, found: Health) -> Iterator[_Look]:
    """Every object that there is when its kind has its turn and that is still there when it has its own."""
    for name in tuple(books.applications):
        application = books.applications.get(name)
        if application is not None:
            found.look_at_application(books, application)
            problems = list(invariants.of_application(books, application))
            yield _Look(event_codes.APP, name, 1 + len(application.requests) + len(application.allocations), problems)
    for node in tuple(books.fleet):
        if books.fleet.get(node.node_id) is node:
            found.look_at_node(books, node)
            problems = list(invariants.of_node(books, node))
            yield _Look(event_codes.NODE, node.node_id, 1 + len(node.allocations) + len(node.foreign), problems)
    for queue in books.tree:
        if books.tree.find(queue.path) is queue:
            items = 1 + len(queue.children) + len(queue.applications)
            yield _Look(event_codes.QUEUE, queue.path, items, list(invariants.of_queue(books, queue)))
    for kind, trackers in (("user", books.usage.users), ("group", books.usage.groups)):
        for tracker in tuple(trackers):
            if trackers.find(tracker.name) is tracker:
                problems = list(invariants.of_tracker(books, kind, tracker))
                items = len(tracker.levels) + len(tracker.accounts)
                yield _Look(event_codes.USERGROUP, tracker.name, items, problems)
    found.look_at_partition(books)
    items = len(books.applications) + len(books.fleet)
    yield _Look(event_codes.QUEUE, books.tree.root.path, items, list(invariants.of_partition(books)))
