"""What the broker answers about an RM's configuration: what is in force, and what was.

Not here: the texts of earlier versions, which only the record has (`record.py`).
"""

from typing import Final

import msgspec

from broker.books import NOT_FOUND, Books
from broker.said import answer
from broker.versions import Entry
from common.config.checksum import checksum_of
from common.machine import Delivery, Send
from common.messages import Header
from common.names import RECORD
from common.query_messages import ReadConfig
from common.rest_records import VersionView

_FORGOTTEN: Final = Entry(0, "", 0, "", "", "")
"""The version of an RM of which too many others made us forget the history."""


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration in force, with the RM's settings; `config` as it was written."""

    rm: str
    version: int
    checksum: str
    at: int
    author: str
    origin: str
    config: str
    extra: dict[str, str]


class Default(msgspec.Struct, frozen=True, kw_only=True):
    """What an RM gets that sends no configuration; `config` as it was written."""

    checksum: str
    config: str
    file: str
    """The watched file that it is from; empty for the built-in one."""


def read(books: Books, delivery: Delivery, asked: ReadConfig) -> Send:
    """The answer, or the question to whom can answer it."""
    header = delivery.header
    match asked.what:
        case "current":
            return _current(books, header.rm, delivery.source, header.ref)
        case "history":
            return _history(books, header.rm, delivery.source, header.ref)
        case "default":
            document = Default(checksum=checksum_of(books.core_text), config=books.core_text, file=books.watched)
            return answer(delivery.source, header.ref, 200, msgspec.json.encode(document))
        case "version":
            onward = Header(kind="ReadConfig", rm=header.rm, ref=f"{delivery.source} {header.ref}")
            return Send(RECORD, onward, delivery.body)
    text = f"unknown question {asked.what!r}, expected current, default, history or version"
    return answer(delivery.source, header.ref, 400, text.encode())


def _current(books: Books, rm: str, to: str, ref: str) -> Send:
    """What the RM runs."""
    registration = books.roster.registrations.get(rm)
    if registration is None:
        return _unknown(rm, to, ref)
    latest = books.versions.history(rm).latest or _FORGOTTEN
    document = Current(
        rm=rm,
        version=latest.number,
        checksum=registration.checksum,
        at=latest.at_ns,
        author=latest.author,
        origin=latest.origin,
        config=registration.text,
        extra=registration.extra,
    )
    return answer(to, ref, 200, msgspec.json.encode(document))


def _history(books: Books, rm: str, to: str, ref: str) -> Send:
    """What the RM has run, the latest first; also of an RM that is away now."""
    entries = books.versions.history(rm).entries
    if not entries:
        return _unknown(rm, to, ref)
    current = entries[-1].number if rm in books.roster.registrations else 0
    versions = [
        VersionView(
            version=one.number,
            checksum=one.checksum,
            at=one.at_ns,
            author=one.author,
            origin=one.origin,
            current=one.number == current,
        )
        for one in reversed(entries)
    ]
    return answer(to, ref, 200, msgspec.json.encode(versions))


def _unknown(rm: str, to: str, ref: str) -> Send:
    return answer(to, ref, NOT_FOUND, f"RM {rm} is not registered".encode())
