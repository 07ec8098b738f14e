"""The command `yunishard backup`: a copy of a state directory, also while the system runs.

    DIR/state/                      a state directory, to be put in the place of the damaged one
    DIR/settings/SETTING/NAME       the files and directories that settings name, such as keys and certificates
    DIR/manifest.json               releases, settings, and formats; partitions with their last steps

Each SQLite file is copied as it is at one moment, in a transaction that reads it. The transaction of a journal also
names the snapshot that belongs to it, which a running worker may replace meanwhile; then the journal is copied again.

The broker's record is copied after the journals: it then grants each partition the epoch of its journal or a later one.
A journal of a later epoch than the record would keep its own worker out.

Not here: backups of a store in PostgreSQL, which the programs of PostgreSQL make (docs/operating/backup.md).
"""

import argparse
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from yunishard.broker.store import RECORD_NAME
from yunishard.cli.main import CommandFailed, CommandUnusable
from yunishard.common.process.folders import lock_folder, remove_any, sync_path
from yunishard.common.settings import DIR, FILE, SETTINGS, Settings, SettingsError, read_settings
from yunishard.common.sqlite_file import LOCK_MAX_S, find_log
from yunishard.common.text_formats import describe_file_error, format_bytes, format_count
from yunishard.common.transport.curve_keys import ALLOWED
from yunishard.deploy.settings import resolve_settings
from yunishard.partition_worker.journal.database import Meta, read_meta
from yunishard.partition_worker.journal.files import SUFFIX, Files
from yunishard.partition_worker.recovery import JournalDamaged
from yunishard.webservice.audit import AUDIT

FORMAT: Final = 1
"""Of the manifest and the directories beside it."""

PIECE_BYTES: Final = 1 << 20

HISTORY: Final = "history/history.sqlite"

QUARANTINED: Final = "*.poison-*"
"""Files of quarantined messages. The attempts (`.attempts`) are not copied: they are those of one start."""

_NOT_COPIED: Final = ("state", "web-root")
"""Settings whose directories are copied otherwise, or come with a release."""


class _Partition(msgspec.Struct):
    """A journal in the manifest."""

    partition: str
    last_step: int
    snapshot: int
    epoch: int


class Manifest(msgspec.Struct, kw_only=True):
    """The content of `manifest.json`."""

    format: int = FORMAT
    release: str
    """Of the command that made the backup."""
    started: str
    finished: str = ""
    state: str
    """The path of the state directory."""
    settings: dict[str, str] = {}
    """Those that differ from their defaults."""
    formats: dict[str, int] = {}
    """By the path of an SQLite file in DIR: the format, which is its `user_version`."""
    partitions: list[_Partition] = []
    files: dict[str, str] = {}
    """By the path of a file or directory in DIR/settings: where it was."""
    missing: list[str] = []
    """Files that could not be copied, with the reasons."""


def add_backup_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard backup`."""
    parser.add_argument("dir", metavar="DIR", type=Path, help="directory that the backup creates")
    parser.add_argument("--state", metavar="DIR", help="state directory of the system (default: as for `up`)")


def run_backup(args: argparse.Namespace) -> int:
    """Copy the state directory of a system into a new directory, also while the system
    runs: journals with their snapshots, the broker's record, the history, the audit
    log, and the keys and other files that settings name. DIR contains secrets.

    examples:
      yunishard backup /backup/monday
      yunishard backup /backup/monday --state /var/lib/yunishard

    To restore it, stop the system, move its state directory away, and start it on a
    copy of the directory `state` in DIR:
      cp --archive /backup/monday/state /var/lib/yunishard

    A system with `store` has its state in PostgreSQL: use pg_dump or pg_basebackup.

    exit codes:
      0  done
      1  something is missing in the backup, or it failed
      2  wrong usage; nothing was written
    """
    try:
        state, settings = _find_system(args.state)
        manifest, size_bytes = _back_up(state, settings, args.dir)
    except SettingsError as error:
        raise CommandUnusable(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"{error.filename or args.dir}: {describe_file_error(error)}; there is no backup") from None
    except sqlite3.Error as error:
        raise CommandFailed(f"{error}; there is no backup") from None
    if manifest.missing:
        raise CommandFailed(f"{args.dir} is a backup without: {'; '.join(manifest.missing)}")
    count = format_count(len(manifest.partitions), "partition journal")
    sys.stdout.write(f"{args.dir}: {count}, record, history and audit log of {state}, {format_bytes(size_bytes)}\n")
    return 0


def _find_system(state: str | None) -> tuple[Path, Settings]:
    """Return the state directory, and the settings of the system that runs there or did so last.

    Raises:
        SettingsError: there is none, or its state is in PostgreSQL.
    """
    settings = resolve_settings({"state": state} if state else {}, os.environ)
    folder = settings.state
    if folder is None:
        raise SettingsError("an ephemeral system keeps no state; name the directory of another one with --state")
    if settings.store == "" or state:
        if not (folder / RECORD_NAME).exists() and not (folder / "run").exists():
            raise SettingsError(f"{folder}: is no state directory; name one with --state")
        with suppress(SettingsError):  # of another release: then those of this command count
            settings = read_settings(folder / "run" / "settings.json")
    if settings.store:
        raise SettingsError("the state is in PostgreSQL (`store`): back it up with pg_dump or pg_basebackup")
    return folder.absolute(), settings


def _back_up(state: Path, settings: Settings, target: Path) -> tuple[Manifest, int]:
    """Write the backup into a directory beside the target, and give it its name at the end; return the bytes, too."""
    if os.path.lexists(target):
        raise SettingsError(f"{target}: exists already; name a new directory")
    if target.absolute().resolve().is_relative_to(state.resolve()):
        raise SettingsError(f"{target}: is in the state directory; name another place")
    unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}")
    unfinished.mkdir(mode=0o700)
    try:
        backup = _Backup(state, unfinished)
        backup.copy_journals()
        for name in (RECORD_NAME, HISTORY):
            backup.copy_database(name)
        backup.copy_audit_log()
        backup.copy_settings(settings)
        backup.manifest.finished = _now()
        _write(unfinished / "manifest.json", msgspec.json.format(msgspec.json.encode(backup.manifest)))
        for folder, _, _ in os.walk(unfinished):
            sync_path(Path(folder))
        unfinished.rename(target)
        sync_path(target.absolute().parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return backup.manifest, sum(path.stat().st_size for path in target.rglob("*") if path.is_file())


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class _Backup:
    """Copies the parts of one state directory."""

    def __init__(self, state: Path, target: Path) -> None:
        self._state, self._target = state, target
        self.manifest = Manifest(release=version("yunishard"), started=_now(), state=str(state))

    # Journals ---------------------------------------------------------------------------------------------------------

    def copy_journals(self) -> None:
        """Copy all journals with their snapshots, and quarantined messages."""
        folder = self._state / "journals"
        self._make_folder("state/journals")
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            with self._reporting_damage(path):
                self._copy_journal(Files(folder, path.name.removesuffix(SUFFIX)))
        for path in sorted(folder.glob(QUARANTINED)):
            with suppress(FileNotFoundError), path.open("rb") as file:
                self._copy_file(file, path)

    def _copy_journal(self, files: Files) -> None:
        """Copy a journal with the snapshot that its meta row names, and earlier ones that are kept for replays."""
        while True:
            with ExitStack() as stack:
                file = stack.enter_context(_open_at_one_moment(files.database))
                meta = self._read_meta(file, files)
                snapshots: dict[int, BinaryIO] = {}
                for number, path in files.snapshots():
                    if path == files.snapshot(number) and (meta is None or number <= meta.snapshot):
                        with suppress(FileNotFoundError):
                            snapshots[number] = stack.enter_context(path.open("rb"))
                if meta is not None and meta.snapshot and meta.snapshot not in snapshots:
                    with _open_at_one_moment(files.database) as present:
                        if self._read_meta(present, files) != meta:  # a worker has just replaced it
                            continue
                    self.manifest.missing.append(f"{files.snapshot(meta.snapshot)}: the snapshot is not there")
                self._copy_content(file, files.database)
                for number, snapshot in snapshots.items():
                    self._copy_file(snapshot, files.snapshot(number))
                if meta is not None:
                    last = max(meta.last, meta.snapshot)
                    self.manifest.partitions.append(_Partition(files.partition, last, meta.snapshot, meta.epoch))
                return

    def _read_meta(self, file: sqlite3.Connection, files: Files) -> Meta | None:
        """The meta row; None if it cannot be read, and then the journal is copied as it is."""
        try:
            return read_meta(file, files.partition)
        except (JournalDamaged, OSError) as error:
            self.manifest.missing.append(f"{files.database}: {error}")
            return None

    @contextmanager
    def _reporting_damage(self, path: Path) -> Iterator[None]:
        """Continue without an SQLite file that is damaged, or that is gone because its partition has just ended."""
        try:
            yield
        except FileNotFoundError:
            pass
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
            self.manifest.missing.append(f"{path}: {error}")

    # Other files of the state directory -------------------------------------------------------------------------------

    def copy_database(self, name: str) -> None:
        """Copy an SQLite file of the state directory, if it is there."""
        self._make_folder(Path("state", name).parent)
        with self._reporting_damage(self._state / name), _open_at_one_moment(self._state / name) as file:
            self._copy_content(file, self._state / name)

    def copy_audit_log(self) -> None:
        """Copy the whole lines of the audit log, without keeping the web service from writing others."""
        with ExitStack() as stack:
            with lock_folder(self._state):  # no file gets another name meanwhile
                names = sorted(self._state.glob(f"{AUDIT}*"))
                files = [(stack.enter_context(path.open("rb")), path) for path in names if path.suffix != ".probe"]
                sizes = [os.fstat(file.fileno()).st_size for file, _ in files]
            for (file, path), size in zip(files, sizes, strict=True):
                self._copy_file(file, path, size)

    def _copy_content(self, source: sqlite3.Connection, path: Path) -> None:
        """Copy what a transaction of this connection reads."""
        target = self._find_target(path)
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(target, isolation_level=None)) as copied:
            copied.execute("PRAGMA synchronous=OFF")  # it is made durable as a whole
            source.backup(copied)
        sync_path(target)
        name = str(target.relative_to(self._target))
        self.manifest.formats[name] = source.execute("PRAGMA user_version").fetchone()[0]

    def _copy_file(self, source: BinaryIO, path: Path, size: int | None = None) -> None:
        """Copy a file of the state directory, at most so many bytes of it."""
        target = self._find_target(path)
        left = os.fstat(source.fileno()).st_size if size is None else size
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as copied:
            while piece := source.read(min(left, PIECE_BYTES)):
                copied.write(piece)
                left -= len(piece)
            copied.flush()
            os.fsync(copied.fileno())
        found = os.fstat(source.fileno())
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))

    def _find_target(self, path: Path) -> Path:
        return self._target / "state" / path.relative_to(self._state)

    def _make_folder(self, name: str | Path) -> None:
        """Make a directory of the backup; only its owner may enter it, as in the state directory."""
        path = self._target
        for part in Path(name).parts:
            path /= part
            path.mkdir(mode=0o700, exist_ok=True)

    # Settings ---------------------------------------------------------------------------------------------------------

    def copy_settings(self, settings: Settings) -> None:
        """Copy the settings file, and the files and directories that settings name."""
        named: dict[str, Path] = {}
        for one in settings.effective:
            if one.value and not settings.is_default(one.name):
                self.manifest.settings[one.name] = one.value
                if SETTINGS[one.name].kind in (FILE, DIR) and one.name not in _NOT_COPIED:
                    named[one.name] = Path(one.value)
                if one.origin.startswith(f"{one.name} in "):
                    named["settings"] = Path(one.source.rpartition(":")[0])
        if (keys := named.get("native-keys")) and keys.is_file() and "native-allowed" not in named:
            named["native-allowed"] = keys.with_name(ALLOWED)
        for name, path in named.items():
            copied = Path("settings", name, path.name)
            self._make_folder(copied.parent)
            self.manifest.files[str(copied)] = str(path.absolute())
            try:
                copy = shutil.copytree if path.is_dir() else shutil.copy2
                copy(path, self._target / copied)
            except (OSError, shutil.Error) as error:
                remove_any(self._target / copied)
                reason = describe_file_error(error) if isinstance(error, OSError) else str(error)
                self.manifest.missing.append(f"{path} ({name}): {reason}")


@contextmanager
def _open_at_one_moment(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an SQLite file for reading, in a transaction: all that is read is of the moment at which this returns.

    Raises:
        FileNotFoundError: there is none.
    """
    if not path.exists():
        raise FileNotFoundError(path)
    log = find_log(path)
    # A connection that only reads would leave a log behind where there is none, and one that may write would move a log
    # that a killed process has left into the file.
    mode = "ro" if log.exists() and log.stat().st_size else "rw"
    with closing(
        sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=LOCK_MAX_S)
    ) as file:
        file.execute("BEGIN")
        file.execute("SELECT 1 FROM sqlite_schema").fetchone()
        yield file


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    sync_path(path)
