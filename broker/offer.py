"""The watched file of queues, offered to every RM that has its configuration from there.

Not here: watching the file (`watched_file.py`).
"""

from collections.abc import Iterable
from dataclasses import replace

from broker.askers import WatchedFile
from broker.books import Books
from broker.changes import Changes
from broker.judgement import understood
from broker.update import Wish, owned, update
from broker.versions import FROM_FILE
from common.config.checksum import checksum_of
from common.machine import Send


class Offer:
    """What the file says now, and to whom that is still news: an RM whose configuration is just being changed, or
    with a partition that is being taken down, is offered it afterwards.
    """

    def __init__(self, books: Books, changes: Changes) -> None:
        self._books = books
        self._changes = changes
        self._checksum = checksum_of(books.core_text)
        """Of what the core offers."""
        self._all = False
        """Whether that is new to everybody."""
        self._offered: dict[str, str] = {}
        """By RM id: checksum of the last text that it was offered, whether it took it or not."""

    def changed(self, text: str) -> None:
        """The file has another text. One that is no configuration is reported and otherwise ignored."""
        books = self._books
        books.file_checksum = checksum_of(text)
        if not text.strip():
            books.warnings.append(f"the file of queues {books.watched} is empty: the configuration in force stays")
            return
        problems = understood(text).problems
        if problems:
            lines = "; ".join(str(problem) for problem in problems)
            name = f"the file of queues {books.watched}"
            books.warnings.append(f"{name} is refused, the configuration in force stays: {lines}")
            return
        books.core_text, books.file_empty = text, False
        self._checksum, self._all = checksum_of(text), True

    def made(self, changed: Iterable[str], now: float) -> list[Send]:
        """The offers that are due now, where something has changed about these RMs."""
        books = self._books
        if not books.watched:
            return []
        rms = tuple(books.roster.registrations if self._all else changed)
        self._all = False
        return [send for rm in rms for send in self._made_to(rm, now)]

    def _made_to(self, rm: str, now: float) -> list[Send]:
        books, checksum = self._books, self._checksum
        registration = books.roster.registrations.get(rm)
        if registration is None:
            self._offered.pop(rm, None)
            return []
        if not registration.follows_core or self._offered.get(rm) == checksum:
            return []
        if self._changes.of(rm) or registration.leaving:
            return []
        self._offered[rm] = checksum
        if registration.passed_over:
            books.roster.put(replace(registration, passed_over=""))
        if registration.passed_over == checksum:
            return []
        latest = books.versions.history(rm).latest
        if registration.checksum == checksum:
            return owned(books, rm, checksum)
        if latest is not None and latest.base == checksum:
            return []
        wish = Wish(rm=rm, text=books.core_text, asker=WatchedFile("the file", FROM_FILE, books.watched))
        return update(books, self._changes, wish, now)
