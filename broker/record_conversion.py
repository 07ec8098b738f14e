"""Conversion of the broker's record from formats up to 3, which have the text of a configuration in each row.

Such a record had no limit in bytes. So the rows to keep are chosen by their sizes, which SQLite finds without reading
the texts, and only those are copied, one at a time, to a new file, which then takes the place of the old one. A
conversion that is interrupted has changed nothing.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from yunishard.broker.config_versions import ConfigVersions, VersionHistory
from yunishard.broker.rm_records import decode_record
from yunishard.broker.store import compute_digest
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.control_messages import VersionEntry
from yunishard.common.process.folders import sync_folder
from yunishard.common.sqlite_file import decode_text, find_log, open_file, remove_database, sync_file, transaction

LAST_WITH_TEXTS: Final = 3
"""The last format of this kind."""

UNLIMITED: Final = 1 << 62
"""In place of the limit of the whole record, which is a setting that the machine applies."""

NEW: Final = ".new"
"""Behind the name of a file that is to take the place of the record once it is complete."""


def convert_record(path: Path, formats: Path) -> None:
    """Convert a record to the latest format. Raises sqlite3.Error and OSError, and has changed nothing then."""
    new = path.with_name(path.name + NEW)
    remove_database(new)
    try:
        with closing(open_file(path, formats, [], latest=LAST_WITH_TEXTS, checked=("incarnations",))) as old:
            with closing(open_file(new, formats, ["synchronous=OFF"])) as target, transaction(target):
                _copy(old, target)
            sync_file(new)
        if find_log(path).exists():
            raise OSError("another process has it open: end that first")
        new.replace(path)
    finally:
        remove_database(new)
    sync_folder(path.parent)


def _copy(old: sqlite3.Connection, target: sqlite3.Connection) -> None:
    old.text_factory = decode_text
    histories: dict[str, VersionHistory] = {}
    rows: dict[tuple[str, int], int] = {}
    query = "SELECT rowid, rm, number, checksum, at_ns, author, origin, base FROM versions ORDER BY rm, number"
    for row, rm, number, checksum, at_ns, author, origin, base in old.execute(query):
        with old.blobopen("versions", "config", row, readonly=True) as blob:
            size = len(blob)
        entry = VersionEntry(
            number=number, checksum=checksum, at_ns=at_ns, author=author, origin=origin, base=base, size=size
        )
        histories.setdefault(rm, VersionHistory()).entries.append(entry)
        rows[rm, number] = row
    registered = [rm for (rm,) in old.execute("SELECT rm FROM managers")]
    versions = ConfigVersions(histories)
    versions.plan_removals(registered, UNLIMITED)
    for rm, history in histories.items():
        for entry in history.entries:
            query = "SELECT CAST(config AS BLOB) FROM versions WHERE rowid=?"
            (config,) = old.execute(query, (rows[rm, entry.number],)).fetchone()
            _insert(target, rm, entry, config)
    for rm, entry, config in _find_unversioned(old, registered, versions):
        _insert(target, rm, entry, config)
    facts = old.execute("SELECT rm, CAST(facts AS BLOB) FROM managers")
    target.executemany("INSERT INTO managers VALUES (?, CAST(? AS TEXT))", facts)
    target.executemany("INSERT INTO incarnations VALUES (?)", old.execute("SELECT number FROM incarnations"))


def _find_unversioned(
    old: sqlite3.Connection, registered: list[str], versions: ConfigVersions
) -> Iterator[tuple[str, VersionEntry, bytes]]:
    """The configurations in force of RMs that are not their latest versions: of so many RMs, the versions of the first
    ones were deleted.
    """
    for rm in registered:
        query = "SELECT CAST(facts AS BLOB), CAST(text AS BLOB) FROM managers WHERE rm=?"
        facts, config = old.execute(query, (rm,)).fetchone()
        try:
            at_ns, checksum = decode_record(facts).registered_ns, compute_checksum(config.decode())
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # the broker has this RM register again
        latest = versions.history(rm).latest
        if latest is not None and latest.checksum == checksum:
            continue
        yield (
            rm,
            VersionEntry(
                number=latest.number + 1 if latest is not None else 1,
                checksum=checksum,
                at_ns=at_ns,
                author=f"RM {rm}",
                origin="registration",
                base=checksum,
                size=len(config),
            ),
            config,
        )


def _insert(target: sqlite3.Connection, rm: str, entry: VersionEntry, config: bytes) -> None:
    digest = compute_digest(config)
    target.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", (digest, config))
    values = (rm, *msgspec.structs.astuple(entry), digest)
    target.execute("INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
