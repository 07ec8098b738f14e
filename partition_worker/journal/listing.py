"""The steps of a journal for people, and for programs.

Not here: whether they are whole and lead to the same (`checking.py`).
"""

import base64
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final, TextIO

import msgspec

from common.journal_messages import TICK, Step
from common.messages import Header, Message
from common.wire import WireError, decoded
from partition_worker.journal import poisons
from partition_worker.journal.database import Row
from partition_worker.journal.files import Files
from partition_worker.journal.reading import Reader, step_of

COLUMNS: Final = "{:>10}  {:<23}  {:<20}  {:<16}  {:>8}  {:>8}  {}"
HEADINGS: Final = ("step", "time", "what", "RM", "sequence", "bytes", "told")


class _Line(msgspec.Struct):
    """A step in one line."""

    step: int
    time: str
    what: str
    rm: str
    sequence: int
    bytes: int
    told: dict[str, int]
    """How many news of each kind."""


class _Poison(msgspec.Struct):
    """A message that was set aside."""

    file: str
    reason: str
    message: "_Whole"


class _Told(msgspec.Struct):
    """A piece of news."""

    number: int
    kind: str
    body: Message | dict[str, str]


class _Whole(msgspec.Struct):
    """A step with all that is in it, in the field names of the scheduler interface."""

    number: int
    at: float
    source: str
    header: dict[str, str | int]
    body: Message | dict[str, str] | None
    budget: int
    told: list[_Told]
    acknowledged: int


def show(files: Files, *, first: int | None, last: int | None, kind: str | None, as_json: bool) -> None:
    """A table of the steps, or a JSON object for each.

    Raises:
        JournalDamaged, OSError: as `Reader`.
    """
    if not as_json:
        sys.stdout.write(COLUMNS.format(*HEADINGS) + "\n")
    row = None
    for row in _rows(files, first, last, kind):
        line = _line(row)
        if as_json:
            sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
            continue
        told = ", ".join(f"{count} {name}" for name, count in line.told.items()) or "-"
        cells = (line.step, line.time, line.what, line.rm or "-", line.sequence or "-", line.bytes, told)
        sys.stdout.write(COLUMNS.format(*cells) + "\n")
    if row is None and not as_json:
        sys.stderr.write(f"no such step: {_extent(files)}\n")


def show_poisons(files: Files, *, as_json: bool) -> None:
    """The messages that were set aside: a table with the reasons, or a JSON object for each with all that is in it.

    Raises:
        JournalDamaged, OSError: one cannot be read.
    """
    found = 0
    for path, kept in poisons.kept(files):
        found += 1
        if as_json:
            entry = _Poison(file=str(path), reason=kept.reason, message=_whole(kept.step))
            sys.stdout.write(msgspec.json.encode(entry).decode() + "\n")
            continue
        time = datetime.fromtimestamp(kept.step.at).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]
        header = kept.step.header
        sys.stdout.write(f"{time}  {header.kind}  RM {header.rm or '-'}  sequence {header.seq or '-'}  {path}\n")
        sys.stdout.write(f"    {kept.reason}\n")
    if not found and not as_json:
        sys.stdout.write("no message was set aside\n")


def _extent(files: Files) -> str:
    """Which steps there are, for whoever asked for others."""
    with closing(Reader(files)) as reader:
        first, last = reader.first(), reader.meta().last
        kinds = ", ".join(sorted({row.kind for row in reader.rows(first)}))
    return f"there are {first} to {last}, of these kinds: {kinds}" if kinds else "all are in the snapshot"


def export(files: Files, path: Path | None) -> None:
    """Every step in a line of JSON.

    Raises:
        JournalDamaged, OSError: as `Reader`; the file cannot be written.
    """
    if path is None:
        _export(files, sys.stdout)
        return
    with path.open("w", encoding="utf-8") as file:
        _export(files, file)


def _export(files: Files, file: TextIO) -> None:
    for row in _rows(files, None, None, None):
        file.write(msgspec.json.encode(_whole(step_of(row))).decode() + "\n")


def _rows(files: Files, first: int | None, last: int | None, kind: str | None) -> Iterator[Row]:
    """Those that are wanted; of a kind, the latest ones of that kind."""
    with closing(Reader(files)) as reader:
        begin = max(first or 0, reader.first())
        if last is not None and kind is None:
            begin = max(begin, reader.meta().last - last + 1)
        rows = (row for row in reader.rows(begin) if kind in (None, row.kind))
        if last is not None and kind is not None:
            latest: dict[int, Row] = {}
            for row in rows:
                latest[row.number] = row
                if len(latest) > last:
                    del latest[next(iter(latest))]
            rows = (row for row in latest.values())
        yield from rows


def _line(row: Row) -> _Line:
    step = step_of(row)
    time = datetime.fromtimestamp(step.at).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]
    what = step.header.kind
    if what == TICK and step.budget:
        what = f"{TICK} ({step.budget} decisions)"
    told = dict(Counter(kind for _, kind, _ in step.told))
    return _Line(step.number, time, what, step.header.rm, step.header.seq, len(row.step), told)


def _whole(step: Step) -> _Whole:
    return _Whole(
        number=step.number,
        at=step.at,
        source=step.source,
        header={name: value for name in Header.__struct_fields__ if (value := getattr(step.header, name))},
        body=None if step.header.kind == TICK else _message(step.header.kind, step.body),
        budget=step.budget,
        told=[_Told(number, kind, _message(kind, body)) for number, kind, body in step.told],
        acknowledged=step.acknowledged,
    )


def _message(kind: str, body: bytes) -> Message | dict[str, str]:
    """What the body says; of one that cannot be read its bytes, and why."""
    if kind not in Message.kinds:
        return {"problem": f"{kind} is unknown", "bytes": base64.b64encode(body).decode()}
    try:
        return decoded(Message.kinds[kind], body)
    except WireError as error:
        return {"problem": str(error), "bytes": base64.b64encode(body).decode()}
