"""Find the journal that a command names: by partition in the state directory or the store, or by the path of a file."""

import os
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from yunishard.common.settings import Settings
from yunishard.deploy.settings import resolve_settings
from yunishard.journal_tools.export_file import SUFFIXES, ExportReader, is_export
from yunishard.journal_tools.views import Source
from yunishard.partition_worker.journal.database import HistoryReader, JournalReader
from yunishard.partition_worker.journal.files import DAMAGED, NAME, SUFFIX, Files
from yunishard.partition_worker.recovery import JournalDamaged

FOLDER: Final = "journals"
"""The directory of all journals, in the state directory."""

EPHEMERAL: Final = "an ephemeral system has a state directory of its own: name it with --state DIR"
_SQLITE: Final = b"SQLite format 3\0"
"""The first bytes of an SQLite database."""


def find_journal(name: str, *, state: str | None, store: str | None, with_history: bool = False) -> Source:
    """Find a journal by partition name or path, as the options `--state` and `--store` name its place. With
    its history, it begins with the oldest snapshot that was kept.

    Raises:
        OSError: there is no such journal; the message lists those that exist.
    """
    path = Path(name)
    if name.endswith(SUFFIXES):
        return _open_export(path)
    if "/" in name or path.suffix == SUFFIX:
        if not path.is_file():
            what = "it is a directory" if path.is_dir() else "there is no such file"
            raise OSError(f"{path}: {what}; journals are in the state directory, in {FOLDER}/")
        _check_is_journal(path)
        return _make_source(Files(path.parent, path.stem), with_history=with_history)
    given = {"state": state, "store": store}
    settings = resolve_settings({option: value for option, value in given.items() if value}, os.environ)
    if store or (settings.store and not state):
        return _find_in_store(settings, name)
    if settings.state is None:
        raise OSError(EPHEMERAL)
    folder = settings.state / FOLDER
    if (folder / f"{name}{SUFFIX}").is_file():
        return _make_source(Files(folder, name), with_history=with_history)
    there = ", ".join(sorted(one.stem for one in folder.glob(f"*{SUFFIX}"))) or "none"
    aside = folder / f"{name}{DAMAGED}"
    more = f"; a damaged one is in {aside}" if aside.is_dir() else ""
    raise OSError(f"no journal of {name} in {folder}; there are: {there}{more} (or name another --state)")


def _make_source(files: Files, *, with_history: bool) -> Source:
    return Source(files.partition, files.folder, partial(HistoryReader if with_history else JournalReader, files))


def _open_export(path: Path) -> Source:
    """Find the journal in an export.

    Raises:
        JournalDamaged, OSError: the file is none, or cannot be read.
    """
    if not is_export(path):
        how = "yunishard journal export --complete or --anonymise"
        raise OSError(f"{path}: not an export that can be replayed: {how} writes one")
    with closing(ExportReader(path)) as reader:
        partition = reader.head.partition
    return Source(partition, None, partial(ExportReader, path))


def _find_in_store(settings: Settings, partition: str) -> Source:
    """Find the journal in the database. Quarantined messages are in the state directory of the worker's host."""
    from yunishard.partition_worker.journal.postgres_journal import PostgresJournals, PostgresReader

    source = Source(partition, settings.journals, partial(PostgresReader, settings.store, partition))
    if not source.exists():
        there = ", ".join(PostgresJournals(settings.store).epochs()) or "none"
        raise OSError(f"no journal of {partition} in the store; there are: {there} (or name another --store)")
    return source


def _check_is_journal(path: Path) -> None:
    """Reject a file that never was a journal. A damaged journal passes: the reader reports the damage.

    Raises:
        OSError: it cannot be read, or is something else.
    """
    problem = ""
    if path.suffix != SUFFIX or not NAME.fullmatch(path.stem):
        problem = "not the name of a journal"
    elif not path.with_name(f"{path.name}-wal").exists():  # else the write-ahead log may hold everything
        with path.open("rb") as opened:
            start = opened.read(len(_SQLITE))
        if start != _SQLITE:
            problem = f"not a journal: {'the file has no SQLite header' if start else 'the file is empty'}"
    if not problem:
        try:
            with closing(JournalReader(Files(path.parent, path.stem))) as reader:
                reader.read_meta()
        except JournalDamaged as damage:
            problem = f"not a journal that this release can read: {damage}"
    if problem:
        raise OSError(
            f"{path}: {problem}; journals are in the state directory, in {FOLDER}/, with the name <partition>{SUFFIX}"
        )
