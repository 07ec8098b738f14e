"""The audit log: one JSON line for each outcome of a request that changes something, with its sender and address.

A change has two lines with one ID: `begun`, which is durable before anything changes (or the change is refused), and
its outcome. A refused request has one line. Each line has the number of its format. Changes by resource managers and by
the watched file are in the broker's record.

The lines are in files of the state directory (`AuditFile`), or in the store of several hosts (`postgres_audit.py`).
"""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

import msgspec

from yunishard.common.process.folders import lock_folder
from yunishard.common.process.health import WriteTimes

AUDIT: Final = "audit.log"
"""The current file, in the state directory."""

FORMAT: Final = 1
"""The format of a line. A file whose last line has a later one is not written."""

LINE_BYTES_MAX: Final = 1 << 16
"""Bytes at the end of the file in which its last line is looked for."""

FILE_BYTES_MAX: Final = 10 << 20
FILES_MAX: Final = 10
"""Including the current one; its predecessors are `audit.log.1` (the latest) and so on."""

WRITE_MAX_S: Final = 5.0
"""Seconds to write a line; a slower disk or database counts as failed."""

PROBE_S: Final = 5.0
"""Seconds for which `problem` returns the outcome of the last write instead of trying again."""

PROBE_BYTES: Final = 4096
"""Bytes of a test write: a block, more than a line."""

FAILED_A_MINUTE_MAX: Final = 60
"""Logged failures of one user (all unknown callers count as one user), so that no one can push other lines out of the
files. Further refusals are counted in the next line.
"""

_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

_log = logging.getLogger("core.rest")


class Entry(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A line. Fields that are unknown or do not apply are omitted."""

    format: int = 0
    time: str = ""
    """UTC, to the millisecond, as in `2026-03-01T12:00:00.123Z`."""
    id: str
    """Of the request, as in the header X-Request-Id of its answer."""
    host: str = ""
    """The host whose web service received the request, if the log is that of several hosts."""
    outcome: str = ""
    """`begun`, then `done`, `failed` (with the status) or `unknown` (the service stopped in the middle); or `refused`.
    """
    user: str = ""
    by: str = ""
    """Method of authentication: token, certificate, proxy, or loopback for the owner of a connection from this machine.
    """
    address: str = msgspec.field(name="from")
    forwarded_for: str = msgspec.field(name="forwardedFor", default="")
    """The client address that a proxy reports."""
    method: str
    path: str
    query: str = ""
    status: int = 0
    reason: str = ""
    checksum: str = ""
    """Of the configuration in force after the change."""
    version: int = 0
    """The number of that configuration."""
    unrecorded: int = 0
    """Refused requests before this one that have no line."""


class _LineFormat(msgspec.Struct):
    format: int = 0


class AuditLines(Protocol):
    """Where the lines are. Used by one thread at a time."""

    name: str
    """Of the file or database, for error messages."""

    def append(self, lines: bytes) -> None:
        """Append one or more lines, each with a newline at its end. They are durable then.

        Raises:
            OSError: lines may be missing; the text is the reason, in one line.
        """

    def read(self) -> Iterator[bytes]:
        """All lines, the oldest first, each with a newline at its end. Raises OSError."""

    def probe(self) -> None:
        """Test whether a line could be appended. Raises OSError, as `append` does."""

    def close(self) -> None:
        """Close what is open."""


class AuditLog:
    """Writes entries, in a thread, and limits those of failed requests."""

    def __init__(self, lines: AuditLines, clock: Callable[[], float] = time.time, *, host: str = "") -> None:
        self._lines = lines
        self._clock = clock
        self._host = host
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self.writes = WriteTimes()
        self._minute = 0
        self._failed: Counter[str] = Counter()
        """Failed requests of that minute, by user."""
        self._unrecorded = 0
        self._problem = ""
        """Why the last attempt to write failed; empty if it did not."""
        self._tried_at = -PROBE_S
        """When the last write was tried, in monotonic seconds."""

    async def write(self, entry: Entry) -> None:
        """Write a line with the present time, and wait until it is durable.

        Raises:
            OSError: the line may be missing; the text is the reason, in one line.
        """
        now = self._clock()
        entry.time = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"
        entry.format, entry.unrecorded, self._unrecorded = FORMAT, self._unrecorded, 0
        entry.host = self._host
        if problem := await self._try(partial(self._lines.append, msgspec.json.encode(entry) + b"\n")):
            self._unrecorded += entry.unrecorded
            raise OSError(problem)

    async def problem(self) -> str:
        """Why no line can be written at present; empty if one can. It is tested at most once in PROBE_S."""
        if time.monotonic() - self._tried_at < PROBE_S:
            return self._problem
        return await self._try(self._lines.probe)

    def close(self) -> None:
        """Write no further lines; those that wait are written."""
        self._thread.submit(self._lines.close)
        self._thread.shutdown(wait=False)

    async def _try(self, work: Callable[[], None]) -> str:
        """Run this in the thread. Returns and stores the reason of a failure; empty without one."""
        problem = ""

        def measured() -> None:
            with self.writes.measure():
                work()

        try:
            async with asyncio.timeout(WRITE_MAX_S):
                await asyncio.get_running_loop().run_in_executor(self._thread, measured)
        except TimeoutError:
            problem = f"{self._lines.name}: no line was written within {WRITE_MAX_S:g} s"
        except OSError as error:
            problem = str(error)
        self._tried_at, self._problem = time.monotonic(), problem
        return problem

    def is_over_limit(self, user: str) -> bool:
        """Whether another request of this user is refused, because so many have failed in this minute."""
        minute = int(self._clock() // 60)
        if self._minute != minute:
            self._minute, self._failed = minute, Counter()
        return self._failed[user] >= FAILED_A_MINUTE_MAX

    async def record_outcome(self, entry: Entry) -> None:
        """Write the outcome of a change or the refusal of a request; too many refusals are only counted. A write error
        goes to the process log: the change cannot be undone, and a refused request has failed anyway.
        """
        if self.is_over_limit(entry.user) and entry.outcome == "refused":
            self._unrecorded += 1
            return
        self._failed[entry.user] += entry.outcome in ("refused", "failed")
        try:
            await self.write(entry)
        except OSError as error:
            _log.error("the audit log lacks that %s was %s: %s", entry.id, entry.outcome, error)


class AuditFile:
    """The current file and its predecessors. Only their owner may read them. A full file is renamed with a number and a
    new one begins; the oldest is deleted.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.name = str(file)

    def append(self, lines: bytes) -> None:
        with self._naming_file(), lock_folder(self._file.parent) as folder:  # another web service may write it, too
            is_new = not self._file.exists()
            with self._open() as (_, size, _):
                is_full = size + len(lines) > FILE_BYTES_MAX
            if is_full:
                self._rotate()
            self._write(lines)
            if is_new or is_full:  # make the names of the files durable
                os.fsync(folder)

    def read(self) -> Iterator[bytes]:
        """All lines of all files, the oldest first."""
        with self._naming_file():
            for file in reversed(self._files()):
                with suppress(FileNotFoundError), file.open("rb") as lines:
                    yield from (line.removesuffix(b"\n") + b"\n" for line in lines)

    def probe(self) -> None:
        """Open the file, and write a block to another file beside it: the log itself only has whole lines."""
        beside = self._file.with_name(f"{self._file.name}.probe")
        with self._naming_file():
            with self._open():
                pass
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                if os.write(descriptor, bytes(PROBE_BYTES)) != PROBE_BYTES:
                    raise OSError(None, "no space left for a whole line")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
                beside.unlink(missing_ok=True)

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        """Raise errors with the path of the file and the reason."""
        try:
            yield
        except OSError as error:
            raise OSError(f"{self.name}: {(error.strerror or str(error)).lower()}") from error

    def close(self) -> None:
        pass  # the file is open during a write only

    @contextmanager
    def _open(self) -> Iterator[tuple[int, int, bytes]]:
        """Open the file for appending: its descriptor, its size, and what follows its last whole line.

        Raises:
            OSError: the last whole line is of a later format.
        """
        descriptor = os.open(self._file, _FLAGS, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            lines = os.pread(descriptor, min(size, LINE_BYTES_MAX), max(0, size - LINE_BYTES_MAX)).split(b"\n")
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, IndexError):
                found = msgspec.json.decode(lines[-2], type=_LineFormat).format
                if found > FORMAT:
                    text = f"a later release wrote it: it has format {found}, this release supports up to {FORMAT}"
                    raise OSError(None, text)
            yield descriptor, size, lines[-1]
        finally:
            os.close(descriptor)

    def _write(self, lines: bytes) -> None:
        with self._open() as (descriptor, size, torn):
            if torn:  # the machine stopped in the middle of a line
                lines = b"\n" + lines
            try:
                if os.write(descriptor, lines) != len(lines):
                    raise OSError(None, "no space left for a whole line")
                os.fsync(descriptor)
            except OSError:
                with suppress(OSError):  # the next write repairs what cannot be undone
                    os.ftruncate(descriptor, size)
                raise

    def _rotate(self) -> None:
        """Start a new file."""
        for earlier, later in reversed([*pairwise(self._files())]):
            with suppress(FileNotFoundError):
                earlier.replace(later)

    def _files(self) -> list[Path]:
        """The current file and its predecessors, which may not exist."""
        return [self._file, *(self._file.with_name(f"{self._file.name}.{number}") for number in range(1, FILES_MAX))]
