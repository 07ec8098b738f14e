"""One file with a whole journal, as lines of JSON. `yunishard journal export --complete` or `--anonymise` writes it.
Every command of `yunishard journal` reads it in place of a journal.

    {"journal": ...}     the head: format, partition, extent
    {"snapshot": ...}    the head of the snapshot, if there is one, then
    {"record": ...}      its records
    {"step": ...}        each step, with its records and its messages to the RM decoded
    {"end": ...}         the number of the lines before it; a file without it is cut off

A name that ends with `.gz` is compressed. Lines of JSON, so that the sender can read the content of the file.
"""

import base64
import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Final, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from yunishard.common.messages.journal_messages import NO_RECORDS, SentMessage, SessionRecord, Step
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.wire import WireError, decode_body, encode_body
from yunishard.partition_worker.engine.durable_records import AnyRecord, Record
from yunishard.partition_worker.journal.protocol import Extent, ReadableJournal
from yunishard.partition_worker.recovery import JournalDamaged, SnapshotHead, decode_stream, encode_stream, read_records

SUFFIXES: Final = (".jsonl", ".jsonl.gz")
"""The ends of the names of such files."""

FORMAT: Final = 1

_START: Final = b'{"journal":'
_GZIP: Final = b"\x1f\x8b"
_GZIP_ERRORS: Final = (EOFError, gzip.BadGzipFile, zlib.error)


class ExportHead(Struct, frozen=True, omit_defaults=True):
    """The first line: the extent of the journal, and how it was written."""

    format: int
    partition: str
    begins: int
    snapshot: int
    last: int
    anonymised: bool = False
    release: str = ""
    """The release that wrote the file."""


class _Sent(Struct, frozen=True, omit_defaults=True):
    """A message to the RM, decoded; one that cannot be decoded as its bytes in Base64."""

    number: int
    kind: str
    body: Raw = Raw()
    encoded: str = ""


class _SnapshotLine(Struct, frozen=True, omit_defaults=True):
    step: int
    at: float
    session: SessionRecord
    cause: int = 0
    received: int = 0
    told: int = 0
    unacknowledged: list[_Sent] = []


class _StepLine(Struct, frozen=True, omit_defaults=True):
    number: int
    at: float
    kind: str
    received: int = 0
    acknowledged: int = 0
    cause: int = 0
    told: list[_Sent] = []
    records: list[AnyRecord] = []
    session: SessionRecord | None = None


class _Line(Struct, frozen=True, omit_defaults=True):
    journal: ExportHead | None = None
    snapshot: _SnapshotLine | None = None
    record: AnyRecord | None = None
    step: _StepLine | None = None
    end: int = 0


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Line).decode
_pack: Final = msgspec.msgpack.Encoder().encode


# Writing --------------------------------------------------------------------------------------------------------------


class Transform(Struct, frozen=True):
    """How what is written differs from the journal."""

    record: Callable[[Record], Record] = lambda record: record
    message: Callable[[Message], Message] = lambda message: message
    session: Callable[[SessionRecord], SessionRecord] = lambda session: session
    keeps_unknown: bool = True
    """Whether messages that cannot be decoded are written as they are, or without their body."""


def write_export(
    write: Callable[[bytes], object], reader: ReadableJournal, head: Callable[[Extent], ExportHead], change: Transform
) -> int:
    """Write the snapshot and the steps after it; return the number of the last step.

    Raises:
        JournalDamaged, OSError: the journal cannot be read, or the file cannot be written.
    """
    count = 0

    def put(line: _Line) -> None:
        nonlocal count
        count += 1
        write(_encode(line) + b"\n")

    extent, content = reader.open_snapshot()
    put(_Line(journal=head(extent)))
    last = extent.snapshot
    if content is not None:
        try:
            start, records = decode_stream(content)
            put(_Line(snapshot=_build_snapshot_line(start, change)))
            for record in records:
                put(_Line(record=cast(AnyRecord, change.record(record))))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise JournalDamaged(f"the snapshot cannot be decoded: {error}") from None
    for step in reader.read_steps(extent.begins):
        put(_Line(step=_build_step_line(step, change)))
        last = step.number
    put(_Line(end=count))
    return last


def _build_snapshot_line(head: SnapshotHead, change: Transform) -> _SnapshotLine:
    *numbers, _ = astuple(head)
    line = _SnapshotLine(*numbers)
    unacknowledged = [_build_sent(one, change) for one in head.unacknowledged]
    return msgspec.structs.replace(line, session=change.session(head.session), unacknowledged=unacknowledged)


def _build_step_line(step: Step, change: Transform) -> _StepLine:
    return _StepLine(
        number=step.number,
        at=step.at,
        kind=step.kind,
        received=step.received,
        acknowledged=step.acknowledged,
        cause=step.cause,
        told=[_build_sent(one, change) for one in step.told],
        records=[cast(AnyRecord, change.record(record)) for record in read_records(step)],
        session=None if step.session is None else change.session(step.session),
    )


def _build_sent(sent: SentMessage, change: Transform) -> _Sent:
    try:
        message = decode_body(Message.kinds[sent.kind], sent.body)
    except (KeyError, WireError):  # of another release
        kept = base64.b64encode(sent.body).decode() if change.keeps_unknown else ""
        return _Sent(sent.number, sent.kind, encoded=kept)
    return _Sent(sent.number, sent.kind, body=Raw(_encode(change.message(message))))


@contextmanager
def open_to_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for an export; only its owner may read it. A compressed file has neither its name nor a time inside.

    Raises:
        OSError: it cannot be written.
    """
    path.touch(mode=0o600)
    with path.open("wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
            yield cast(IO[bytes], compressed)


def make_head(partition: str, *, anonymised: bool) -> Callable[[Extent], ExportHead]:
    """Return the function that describes the extent of a journal."""
    release = version("yunishard")
    return lambda extent: ExportHead(
        FORMAT, partition, extent.begins, extent.snapshot, extent.last, anonymised, release
    )


# Reading --------------------------------------------------------------------------------------------------------------


def is_export(path: Path) -> bool:
    """Whether a file is an export, or a compressed file that is damaged. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        if path.suffix == ".gz" and file.read(len(_GZIP)) != _GZIP:
            return False
    try:
        with _open_to_read(path) as file:
            return file.read(len(_START)) == _START
    except _GZIP_ERRORS:
        return True


def _open_to_read(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


class ExportReader(ReadableJournal):
    """An export, read as a journal."""

    def __init__(self, path: Path) -> None:
        """Read the head. Raises JournalDamaged, OSError."""
        self._path = path
        head = next(self._read_lines()).journal
        assert head is not None, path
        self.head = head

    def _read_lines(self) -> Iterator[_Line]:
        """The lines in their order, after the first one only if the file is whole.

        Raises:
            JournalDamaged: a line cannot be decoded, or the file is cut off.
        """
        number, line = 0, _Line()
        try:
            with _open_to_read(self._path) as file:
                for number, text in enumerate(file, start=1):
                    line = _decode(text)
                    if number == 1:
                        self._check_head(line)
                    yield line
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, *_GZIP_ERRORS) as error:
            raise JournalDamaged(f"line {number} cannot be decoded: {error}") from None
        if not number or line.end != number - 1:
            raise JournalDamaged(f"it is cut off after line {number}")

    def _check_head(self, line: _Line) -> None:
        if line.journal is None:
            raise JournalDamaged("its first line does not describe a journal")
        if line.journal.format > FORMAT:
            raise OSError(
                f"{self._path}: it has format {line.journal.format}, and this release reads formats up to {FORMAT}"
            )

    def read_meta(self) -> Extent:
        return self.head

    def open_snapshot(self) -> tuple[Extent, Iterator[bytes] | None]:
        lines = self._read_lines()
        for line in lines:
            if line.snapshot is not None:
                return self.head, self._encode_snapshot(line.snapshot, lines)
            if line.step is not None:
                break
        return self.head, None

    def _encode_snapshot(self, line: _SnapshotLine, lines: Iterator[_Line]) -> Iterator[bytes]:
        values = {name: getattr(line, name) for name in line.__struct_fields__}
        head = SnapshotHead(**values | {"unacknowledged": list(map(_restore_sent, line.unacknowledged))})
        return encode_stream(head, (one.record for one in lines if one.record is not None))

    def find_first(self) -> int:
        return self.head.begins

    def read_steps(self, first: int) -> Iterator[Step]:
        for line in self._read_lines():
            if line.step is not None and line.step.number >= first:
                yield _restore_step(line.step)

    def close(self) -> None:
        """Nothing is open between two calls."""


def _restore_step(line: _StepLine) -> Step:
    return Step(
        number=line.number,
        at=line.at,
        kind=line.kind,
        received=line.received,
        acknowledged=line.acknowledged,
        cause=line.cause,
        told=list(map(_restore_sent, line.told)),
        records=Raw(_pack(line.records)) if line.records else NO_RECORDS,
        session=line.session,
    )


def _restore_sent(sent: _Sent) -> SentMessage:
    body = base64.b64decode(sent.encoded)
    if bytes(sent.body):
        body = encode_body(msgspec.json.decode(sent.body, type=Message.kinds[sent.kind]))
    return SentMessage(sent.number, sent.kind, body)
