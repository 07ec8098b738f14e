"""The command `yunishard store`: create, convert and check a store in PostgreSQL, and copy a stopped system.

A copy goes through the protocols of each part of the state, so it works in both directions and between two of a kind.

Not here: the copies of the history and the audit log (`history_copy.py`), the tables
(`common/postgres/store_formats/`).
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from yunishard.broker.sqlite_store import SqliteStore
from yunishard.broker.store import RECORD_NAME, Store
from yunishard.cli.main import CommandFailed, CommandUnusable
from yunishard.common.messages.control_messages import ManagerRecord
from yunishard.common.messages.wire import encode_body
from yunishard.common.settings import STORE, Settings, SettingsError, replace_settings
from yunishard.common.text_formats import format_count
from yunishard.deploy.settings import resolve_settings
from yunishard.deploy.state_directory import claim_state_directory
from yunishard.partition_worker.journal.protocol import Journal, Journals
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournals
from yunishard.partition_worker.recovery import JournalDamaged
from yunishard.store.history_copy import copy_audit_log, copy_history, is_empty
from yunishard.webservice.audit import AUDIT, AuditFile, AuditLines
from yunishard.webservice.history.sqlite_store import SqliteHistory
from yunishard.webservice.history.store import HistoryDamaged, HistoryStore

SQLITE: Final = "sqlite:"
"""The scheme of a state directory."""

COPY: Final = "store"
"""The name of this command in the lease of the history."""

GROUP_BYTES: Final = 2 << 20
"""Bytes of steps that are copied in one transaction."""


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard store`."""
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    for name, about in (
        ("init", "create the tables in an empty database"),
        ("migrate", "convert the tables to the format of this release"),
        ("check", "test whether the store can be used, and show what is in it"),
    ):
        own = actions.add_parser(name, help=about, allow_abbrev=False)
        own.add_argument("store", metavar="URI", nargs="?", help="the database (default: the setting `store`)")
    copy = actions.add_parser("copy", help="copy a stopped system to another, empty store", allow_abbrev=False)
    copy.add_argument("source", metavar="FROM", help=f"{SQLITE}STATE-DIRECTORY or postgresql://...")
    copy.add_argument("target", metavar="TO", help="the same")


def run_store(args: argparse.Namespace) -> int:
    """Create, convert and check the PostgreSQL database that `yunishard up --store`
    uses, and move a stopped system into it or back.

    examples:
      yunishard store init postgresql://yunishard@db1,db2/yunishard
      yunishard store check
      yunishard store copy sqlite:/var/lib/yunishard postgresql://yunishard@db1/yunishard

    exit codes:
      0  done
      1  a journal, the record or the history cannot be read or copied
      2  wrong usage, or a store cannot be used; nothing has changed
    """
    try:
        match args.action:
            case "init" | "migrate" | "check":
                _administer(args.action, args.store or _configured_store())
            case "copy":
                _copy(args.source, args.target)
    except SettingsError as error:
        raise CommandUnusable(str(error)) from None
    except (JournalDamaged, HistoryDamaged) as error:
        raise CommandFailed(str(error)) from None
    except OSError as error:
        raise CommandUnusable(error.strerror or str(error)) from None
    return 0


def _configured_store() -> str:
    settings = resolve_settings({}, os.environ)
    if not settings.store:
        raise SettingsError("no store: name one, as in postgresql://yunishard@db1/yunishard")
    return settings.store


def _administer(action: str, uri: str) -> None:
    from yunishard.common.postgres import connection  # needs a library that other systems do not have

    store = _parse(uri)
    if action == "check":
        _check(store)
        return
    before = connection.convert(store, is_new=action == "init")
    done = "already" if before == connection.FORMAT else f"now, before {before}" if before else "now"
    _say(f"the store has format {connection.FORMAT} {done}")


def _check(store: str) -> None:
    """Read what is in the store, also while a system uses it. Raises CommandFailed for rows that cannot be read."""
    from yunishard.broker.postgres_store import PostgresStore
    from yunishard.common.postgres import connection
    from yunishard.partition_worker.journal.postgres_journal import PostgresJournals, PostgresReader

    server = connection.check_store(store)
    partitions = PostgresJournals(store).epochs()
    problems = []
    with closing(PostgresStore(store)) as record:
        records = record.read_records()
        unreadable = record.count_rms() - len(records) - len(record.read_histories())
        leader = record.find_leader()
    if unreadable:
        count = format_count(unreadable, "record")
        problems.append(f"{count} of RMs and versions cannot be read: these RMs register again when a broker starts")
    for partition in partitions:
        try:
            with closing(PostgresReader(store, partition)) as reader:
                reader.read_meta()
        except JournalDamaged as damage:
            problems.append(f"the journal of {partition} is put aside by its next worker: {damage}")
    if problems:
        raise CommandFailed("; ".join(problems))
    used = f"; host {leader} uses it" if leader else ""
    _say(f"{server}; format {connection.FORMAT}; {_count(len(partitions), len(records))}{used}")


def _count(partitions: int, rms: int) -> str:
    return f"{format_count(partitions, 'partition journal')} and {format_count(rms, 'resource manager')}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


# Copying --------------------------------------------------------------------------------------------------------------


class _Opened(NamedTuple):
    record: Store
    journals: Journals
    history: HistoryStore
    audit: AuditLines


def _parse(uri: str) -> str:
    try:
        return STORE.parse(uri)
    except ValueError as error:
        raise SettingsError(f"URI: {error}") from None  # without the text, which may contain a password


@contextmanager
def _open(uri: str) -> Iterator[_Opened]:
    """Open a store for copying; a state directory is locked, so no system runs in it."""
    with ExitStack() as stack:
        record: Store
        journals: Journals
        history: HistoryStore
        audit: AuditLines
        if uri.startswith(SQLITE):
            folder = Path(uri.removeprefix(SQLITE))
            if not folder.is_dir():
                raise SettingsError(f"{folder}: is no state directory")
            settings = replace_settings(Settings(), {"state": folder})
            state = claim_state_directory(settings, stack)
            record, journals = SqliteStore(state.folder / RECORD_NAME), SqliteJournals(state.folder / "journals")
            stack.callback(record.close)
            assert settings.history_file is not None
            history = SqliteHistory(settings.history_file)
            audit = AuditFile(state.folder / AUDIT)
        else:
            from yunishard.broker.postgres_store import PostgresStore
            from yunishard.partition_worker.journal.postgres_journal import PostgresJournals
            from yunishard.webservice.history.postgres_store import PostgresHistory
            from yunishard.webservice.postgres_audit import PostgresAudit

            record, journals = PostgresStore(_parse(uri)), PostgresJournals(_parse(uri))
            stack.callback(record.close)
            history, audit = PostgresHistory(_parse(uri), COPY), PostgresAudit(_parse(uri))
            if host := record.find_leader():
                raise SettingsError(f"{uri}: host {host} uses it; stop all of its hosts first")
        stack.callback(history.close)
        stack.callback(audit.close)
        yield _Opened(record, journals, history, audit)


def _copy(source: str, target: str) -> None:
    with _open(source) as old, _open(target) as new:
        is_used = new.journals.epochs() or new.record.read_records() or new.record.read_histories()
        if is_used or not is_empty(new.history, new.audit):
            raise SettingsError(f"{target}: is not empty; nothing was copied")
        partitions = old.journals.epochs()
        for partition, epoch in partitions.items():
            _copy_journal(old.journals, new.journals, partition, epoch)
        if old.history.exists():
            copy_history(old.history, new.history)
        copy_audit_log(old.audit, new.audit)
        rms = _copy_record(old.record, new.record)  # last: without it, the copy is no system yet
    _say(f"copied {_count(len(partitions), rms)}, the history and the audit log")


def _copy_journal(old: Journals, new: Journals, partition: str, epoch: int) -> None:
    with closing(old.open(partition, epoch)) as source, closing(new.open(partition, epoch)) as target:
        found = source.statistics()
        if (snapshot := source.read_snapshot()) is not None:
            target.write_snapshot(found.snapshot, snapshot)
            target.record_snapshot(found.snapshot)
        for fresh, group in _group_steps(source, found.begins, fresh=not found.snapshot):
            target.append(group, fresh=fresh)


def _group_steps(journal: Journal, first: int, *, fresh: bool) -> Iterator[tuple[bool, list[bytes]]]:
    """The steps from this one on, in groups; whether the first one starts from an empty partition."""
    group: list[bytes] = []
    size = 0
    for step in journal.read_steps(first):
        group.append(encode_body(step))
        size += len(group[-1])
        if size >= GROUP_BYTES:
            yield fresh, group
            group, size, fresh = [], 0, False
    if group:
        yield fresh, group


def _copy_record(old: Store, new: Store) -> int:
    """Copy the broker's record; the number of RMs. A broker that starts later has a later incarnation."""
    records, histories = old.read_records(), old.read_histories()
    new.begin(old.begin(0)[0])
    for rm, history in histories.items():
        for entry in history.entries:
            version = old.read_version(rm, entry.number)
            new.write(rm, ManagerRecord(number=0, facts=b"", version=version))
    for record in records:
        new.write(record.rm, ManagerRecord(number=0, facts=msgspec.json.encode(record)))
    return len(records)
