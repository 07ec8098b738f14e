"""The Standard Workload Format: one job a line, 18 numbers, comments behind `;`, -1 for what is not known.

Read as a stream and within bounds, because logs come from anywhere: a line that is not a job is a `Malformed` with its
number and the reason, and the next line is read. Format: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html

Not here: what the jobs are used for (`plan.py`). Columns that nobody needs yet (processor time, requested time,
executable, queue, dependencies, ...) are checked to be numbers and dropped.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import Final

COLUMNS: Final = 18
LINE_BYTES_MAX: Final = 4096
JOBS_MAX: Final = 5_000_000
SITES_MAX: Final = 10_000
VALUE_MAX: Final = 10**12
"""No column of a real log comes near it; products of two still fit 64 bits after scaling."""
MALFORMED_KEPT_MAX: Final = 20
QUOTED_CHARS_MAX: Final = 60
UNKNOWN: Final = -1

_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,18}(\.[0-9]{0,18})?([eE][+-]?[0-9]{1,2})?")
_COMMENT: Final = re.compile(r";\s*([A-Za-z]+):\s*(.*)")
_SITE_NAME: Final = re.compile(r"([0-9]{1,9})\s+(\S.*)")
_GZIP_MAGIC: Final = b"\x1f\x8b"


class SwfError(Exception):
    """A log that cannot be used at all; one line for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job line. Numbers are not negative, or `UNKNOWN`; number and submit time are always known."""

    line: int
    number: int
    submit_s: int
    """Since the start of the log."""
    wait_s: int
    run_s: int
    processors: int
    memory_kb: int
    """Used, for each processor."""
    processors_requested: int
    memory_requested_kb: int
    """For each processor."""
    status: int
    user: int
    group: int
    partition: int


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that is no job, and why; the text is shortened and safe to print."""

    line_number: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line_number}: {self.reason}: {self.text}"


@dataclass(frozen=True, slots=True)
class Comment:
    """A header line `; Key: value`, or any other comment with an empty key."""

    key: str
    value: str


@dataclass(slots=True)
class Log:
    """A whole log in memory."""

    jobs: list[Job] = field(default_factory=list)
    sites: dict[int, str] = field(default_factory=dict)
    """Names that the header gives to partitions."""
    malformed: list[Malformed] = field(default_factory=list)
    """The first `MALFORMED_KEPT_MAX` of them."""
    malformed_count: int = 0

    def take(self, entry: Job | Malformed | Comment, *, strict: bool = False) -> None:
        """Add what a line says.

        Raises:
            SwfError: too many jobs, or with `strict` a malformed line.
        """
        match entry:
            case Job():
                if len(self.jobs) >= JOBS_MAX:
                    raise SwfError(f"more than {JOBS_MAX} jobs")
                self.jobs.append(entry)
            case Malformed():
                if strict:
                    raise SwfError(str(entry))
                self.malformed_count += 1
                if len(self.malformed) < MALFORMED_KEPT_MAX:
                    self.malformed.append(entry)
            case Comment(key="Partition", value=value) if named := _SITE_NAME.fullmatch(value):
                if len(self.sites) < SITES_MAX:
                    self.sites[int(named[1])] = named[2]
            case Comment():
                pass


def load(path: Path, *, strict: bool = False) -> Log:
    """The log in a file, plain or packed with gzip.

    Raises:
        SwfError: unreadable, without any job, or with `strict` at the first malformed line.
    """
    log = Log()
    try:
        with path.open("rb") as file, closing(_unpacked(file)) as stream:
            for entry in entries(stream):
                log.take(entry, strict=strict)
    except OSError as error:  # includes gzip.BadGzipFile
        raise SwfError(f"cannot read {path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise SwfError(f"cannot read {path}: damaged gzip file ({error})") from None
    except SwfError as error:
        raise SwfError(f"{path}: {error}") from None
    if not log.jobs:
        first = f"; {log.malformed[0]}" if log.malformed else ""
        raise SwfError(f"{path}: no job in it ({log.malformed_count} malformed lines{first})")
    return log


def entries(stream: BufferedIOBase) -> Iterator[Job | Malformed | Comment]:
    """What the lines of a log say, in order; blank lines say nothing."""
    seen: set[int] = set()
    number = 0
    while raw := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(raw) > LINE_BYTES_MAX and not raw.endswith(b"\n"):
            _skip_line(stream)
            yield Malformed(number, _quoted(raw), f"longer than {LINE_BYTES_MAX} bytes")
            continue
        line = raw.strip()
        if not line:
            continue
        entry = _comment(line) if line.startswith(b";") else job_of(line, number)
        if isinstance(entry, Job) and not is_part(entry):
            if entry.number in seen:
                entry = Malformed(number, _quoted(line), f"job {entry.number} appeared before")
            else:
                seen.add(entry.number)
        yield entry


def job_of(line: bytes, number: int) -> Job | Malformed:
    """The job that a line describes, or what is wrong with it."""
    words = line.split()
    if len(words) != COLUMNS:
        return Malformed(number, _quoted(line), f"{len(words)} columns, expected {COLUMNS}")
    values: list[int] = []
    for column, word in enumerate(words, start=1):
        value = _value(word)
        if value is None:
            return Malformed(number, _quoted(line), f"column {column} is no number: {_quoted(word)}")
        if not UNKNOWN <= value <= VALUE_MAX:
            return Malformed(number, _quoted(line), f"column {column} is out of range: {_quoted(word)}")
        values.append(value)
    if UNKNOWN in values[:2]:
        return Malformed(number, _quoted(line), "job number and submit time must be known")
    return Job(
        line=number,
        number=values[0],
        submit_s=values[1],
        wait_s=values[2],
        run_s=values[3],
        processors=values[4],
        memory_kb=values[6],
        processors_requested=values[7],
        memory_requested_kb=values[9],
        status=values[10],
        user=values[11],
        group=values[12],
        partition=values[15],
    )


def is_part(job: Job) -> bool:
    """Whether the line is one stretch of a job that was swapped out; the whole job then has a line of its own."""
    return job.status in (2, 3, 4)


# Private ------------------------------------------------------------------------------------------------------------


def _unpacked(file: BufferedIOBase) -> BufferedIOBase:
    """The file's content; the first bytes tell whether it is packed, not its name."""
    packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    file.seek(0)
    return gzip.GzipFile(fileobj=file, mode="rb") if packed else file


def _skip_line(stream: BufferedIOBase) -> None:
    while (rest := stream.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
        pass


def _comment(line: bytes) -> Comment:
    text = line.decode("utf-8", errors="replace")
    named = _COMMENT.fullmatch(text)
    return Comment(named[1], named[2].strip()) if named else Comment("", text)


def _value(word: bytes) -> int | None:
    if not _NUMBER.fullmatch(word):
        return None
    # A few logs give fractions of seconds; whole ones are good enough. int() for the usual case, because it is exact.
    return int(word) if word.lstrip(b"+-").isdigit() else round(float(word))


def _quoted(text: bytes) -> str:
    """Shortened, without control characters: it goes to a terminal."""
    quoted = text.strip()[: QUOTED_CHARS_MAX + 1].decode("ascii", errors="replace")
    safe = "".join(char if char.isascii() and char.isprintable() else "?" for char in quoted)
    return safe if len(safe) <= QUOTED_CHARS_MAX else safe[:QUOTED_CHARS_MAX] + "..."
