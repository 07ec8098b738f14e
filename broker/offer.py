"""The watched file of queues, offered to every RM that has its configuration from there.

Not here: watching the file (`watched_file.py`).
"""

from broker.askers import WatchedFile
from broker.books import Books, understood
from broker.changes import Changes
from broker.update import Wish, owned, update
from broker.versions import FROM_FILE
from common.config.checksum import checksum_of
from common.config.problems import ConfigError
from common.machine import Send


class Offer:
    """What the file says now, and to whom that is still news: an RM whose configuration is just being changed, or
    with a partition that is being taken down, is offered it afterwards.
    """

    def __init__(self, books: Books, changes: Changes) -> None:
        self._books = books
        self._changes = changes
        self._text = self._checksum = ""
        """What the core offered when this was last looked at."""
        self._offered: dict[str, str] = {}
        """By RM id: checksum of the last text that it was offered, whether it took it or not."""

    def changed(self, text: str) -> None:
        """The file has another text. One that is no configuration is reported and otherwise ignored."""
        books = self._books
        books.file_checksum = checksum_of(text)
        if not text.strip():
            books.warnings.append(f"the file of queues {books.watched} is empty now: the configuration in force stays")
            return
        try:
            understood(text)
        except ConfigError as error:
            lines = "; ".join(str(problem) for problem in error.problems)
            name = f"the file of queues {books.watched}"
            books.warnings.append(f"{name} is refused, the configuration in force stays: {lines}")
            return
        books.core_text, books.file_empty = text, False

    def made(self, now: float) -> list[Send]:
        """The offers that are due now."""
        books = self._books
        if not books.watched:
            return []
        if books.core_text is not self._text:  # for this is asked after every message
            self._text, self._checksum = books.core_text, checksum_of(books.core_text)
        checksum, sends = self._checksum, []
        for registration in tuple(books.roster.registrations.values()):
            rm = registration.rm
            if not registration.follows_core or self._offered.get(rm) == checksum:
                continue
            if self._changes.of(rm) or any(one.rm == rm for one in books.roster.leaving.values()):
                continue
            self._offered[rm] = checksum
            passed_over, registration.passed_over = registration.passed_over, ""
            if passed_over == checksum:
                continue
            latest = books.versions.history(rm).latest
            if registration.checksum == checksum:
                sends += owned(books, rm, checksum)
            elif latest is None or latest.base != checksum:
                wish = Wish(rm=rm, text=books.core_text, asker=WatchedFile("the file", FROM_FILE, books.watched))
                sends += update(books, self._changes, wish, now)
        return sends
