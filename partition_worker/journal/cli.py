"""The command `yunishard journal`: show, export, verify and replay a partition's journal, also of a running system."""

import argparse
import base64
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, TextIO

import msgspec

from common.journal_messages import TICK, Step
from common.messages import Header, Message
from common.names import PREDICATE_PLUGINS
from common.rm_messages import AllocationResponse
from common.settings import SettingsError
from common.wire import WireError, decode_body
from deploy.settings import resolve_settings
from partition_worker.bootstrap import load_plugins
from partition_worker.engine.bounds import tuned
from partition_worker.journal.database import SCHEMA, JournalReader, Row, decode_step
from partition_worker.journal.files import DAMAGED, NAME, SUFFIX, Files, JournalDamaged
from partition_worker.journal.poison_files import read_poisons
from partition_worker.outbox_barrier import ReplayDiverged
from partition_worker.snapshot import SnapshotInvalid
from partition_worker.worker import Worker

FOLDER: Final = "journals"
"""The directory of all journals, in the state directory."""

_SQLITE: Final = b"SQLite format 3\0"
"""The first bytes of an SQLite database."""

DAMAGED_STATUS: Final = 1
USAGE_STATUS: Final = 2

ABOUT: Final = """\
Show or verify the journal of a partition: every command and decision since its
last snapshot, and the messages sent to the resource manager. The command only
reads, and works whether the system runs or not."""

MORE: Final = """\
examples:
  yunishard journal show rm-1_default --last 20
  yunishard journal show rm-1_default --kind AllocationRequest --json
  yunishard journal sums rm-1_default            allocations per application
  yunishard journal verify rm-1_default --replay
  yunishard journal poison rm-1_default          messages that ended the worker
  yunishard journal export rm-1_default --output steps.jsonl
  yunishard journal verify DIR/rm-1_default.damaged/rm-1_default.sqlite

exit codes:
  0  success
  1  the journal is damaged, or its replay has another result
  2  usage error, or there is no such journal"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    parser.description, parser.epilog = ABOUT, MORE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    for name, about in (
        ("show", "list the steps: each message received, and the messages sent for it"),
        ("sums", "count allocated, released and running allocations per application"),
        ("verify", "verify every step and the snapshot"),
        ("poison", "list quarantined messages, which ended the worker twice"),
        ("export", "write every step in full, as a line of JSON"),
    ):
        own = actions.add_parser(name, help=about, description=about, allow_abbrev=False)
        own.add_argument("journal", metavar="PARTITION|FILE", help="<rm-id>_<name>, or the path of a journal")
        own.add_argument("--state", metavar="DIR", help="state directory of the system (default: as for `up`)")
        match name:
            case "show":
                own.add_argument("--from", dest="first", type=int, metavar="N", help="first step to show")
                own.add_argument("--last", type=int, metavar="N", help="show only the latest N steps")
                own.add_argument("--kind", metavar="KIND", help="only steps of this kind, such as NodeRequest or tick")
                own.add_argument("--json", action="store_true", help="print one line of JSON per step")
            case "sums":
                own.add_argument("--json", action="store_true", help="print JSON")
            case "poison":
                own.add_argument("--json", action="store_true", help="print one line of JSON per message")
            case "verify":
                again = "replay it with the present settings, and compare the messages sent"
                own.add_argument("--replay", action="store_true", help=again)
                own.add_argument("--json", action="store_true", help="print JSON")
            case "export":
                own.add_argument("--output", metavar="FILE", help="file to write (default: standard output)")


def main(args: argparse.Namespace) -> int:
    """Run the command; returns the exit status."""
    try:
        return _run(args)
    except JournalDamaged as damage:
        if args.action == "verify" and args.json:
            _print_json(whole=False, problem=str(damage))
        sys.stderr.write(f"yunishard journal {args.action}: {args.journal}: damaged: {damage}\n")
        return DAMAGED_STATUS
    except (SettingsError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        sys.stderr.write(f"yunishard journal {args.action}: {where}{getattr(error, 'strerror', None) or error}\n")
        return USAGE_STATUS


def _run(args: argparse.Namespace) -> int:
    files = _find_journal(args)
    match args.action:
        case "show":
            show_steps(files, first=args.first, last=args.last, kind=args.kind, as_json=args.json)
        case "export":
            export_steps(files, None if args.output is None else Path(args.output))
        case "poison":
            show_poisons(files, as_json=args.json)
        case "sums":
            show_sums(*count_allocations(files, _make_worker(args, files)), as_json=args.json)
        case _:
            _verify(args, files)
    return 0


def _verify(args: argparse.Namespace, files: Files) -> None:
    extent = verify(files)
    if not args.json:
        sys.stdout.write(extent.line() + "\n")
    if args.replay:
        replay(files, _make_worker(args, files))
    if args.json:
        _print_json(whole=True, **msgspec.to_builtins(extent), replayed=args.replay)
    elif args.replay:
        sys.stdout.write("replayed: the same messages\n")


def _print_json(**verdict: str | int | bool) -> None:
    sys.stdout.write(msgspec.json.encode(verdict).decode() + "\n")


def _find_journal(args: argparse.Namespace) -> Files:
    """Find the journal by partition name or path.

    Raises:
        OSError: there is no such journal; the message lists those that exist.
    """
    path = Path(args.journal)
    if "/" in args.journal or path.suffix == SUFFIX:
        if not path.is_file():
            what = "it is a directory" if path.is_dir() else "there is no such file"
            raise OSError(f"{path}: {what}; journals are in the state directory, in {FOLDER}/")
        _check_is_journal(path)
        return Files.of(path)
    state = resolve_settings({"state": args.state} if args.state else {}, os.environ).state
    if state is None:
        raise OSError("an ephemeral system has a state directory of its own: name it with --state DIR")
    folder = state / FOLDER
    if (folder / f"{args.journal}{SUFFIX}").is_file():
        return Files(folder, args.journal)
    there = ", ".join(sorted(one.stem for one in folder.glob(f"*{SUFFIX}"))) or "none"
    aside = folder / f"{args.journal}{DAMAGED}"
    more = f"; a damaged one is in {aside}" if aside.is_dir() else ""
    raise OSError(f"no journal of {args.journal} in {folder}; there are: {there}{more} (or name another --state)")


def _check_is_journal(path: Path) -> None:
    """Reject a file that never was a journal. A damaged journal passes: the reader reports the damage.

    Raises:
        OSError: it cannot be read, or is something else.
    """
    where = f"journals are in the state directory, in {FOLDER}/, with the name <partition>{SUFFIX}"
    if path.suffix != SUFFIX or not NAME.fullmatch(path.stem):
        raise OSError(f"{path}: not the name of a journal: {where}")
    if path.with_name(f"{path.name}-wal").exists():
        return  # the write-ahead log may hold everything
    with path.open("rb") as opened:
        start = opened.read(len(_SQLITE))
    if start != _SQLITE:
        what = "the file is empty" if not start else "the file has no SQLite header"
        raise OSError(f"{path}: not a journal: {what}; {where}")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            tables = {name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    except (sqlite3.Error, UnicodeDecodeError):
        return  # possibly a damaged journal
    if not tables & SCHEMA.keys():
        raise OSError(f"{path}: not a journal, but another SQLite database; {where}")


def _make_worker(args: argparse.Namespace, files: Files) -> Worker:
    """A worker that can replay the journal, with the settings that `up` would use now."""
    settings = resolve_settings({"state": args.state} if args.state else {}, os.environ)
    return Worker(
        partition=files.partition,
        epoch=0,
        manual=settings.manual,
        plugins=load_plugins(settings.predicates, entry_points(group=PREDICATE_PLUGINS)),
        tuning=tuned(
            disable_reservation=settings.disable_reservation,
            preemption_pause_s=settings.preemption_pause_s,
            preemption_threshold_percent=settings.preemption_threshold_percent,
            asks_max=settings.asks_max,
        ),
        journalled=True,
    )


# Steps --------------------------------------------------------------------------------------------------------------

COLUMNS: Final = "{:>10}  {:<23}  {:<20}  {:<16}  {:>8}  {:>8}  {}"
HEADINGS: Final = ("step", "time", "what", "RM", "sequence", "bytes", "told")


class _StepLine(msgspec.Struct):
    """A step as one line of the table."""

    step: int
    time: str
    what: str
    rm: str
    sequence: int
    bytes: int
    told: dict[str, int]
    """Number of sent messages by kind."""


class _PoisonEntry(msgspec.Struct):
    """A quarantined message."""

    file: str
    reason: str
    message: "_FullStep"


class _SentMessage(msgspec.Struct):
    """A message that was sent to the RM."""

    number: int
    kind: str
    body: Message | dict[str, str]


class _FullStep(msgspec.Struct):
    """A step in full, with the field names of the scheduler interface."""

    number: int
    at: float
    source: str
    header: dict[str, str | int]
    body: Message | dict[str, str] | None
    budget: int
    told: list[_SentMessage]
    acknowledged: int


def show_steps(files: Files, *, first: int | None, last: int | None, kind: str | None, as_json: bool) -> None:
    """Print a table of the steps, or a JSON object for each.

    Raises:
        JournalDamaged, OSError: as `JournalReader`.
    """
    if not as_json:
        sys.stdout.write(COLUMNS.format(*HEADINGS) + "\n")
    row = None
    for row in _rows(files, first, last, kind):
        line = _summarize(row)
        if as_json:
            sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
            continue
        told = ", ".join(f"{count} {name}" for name, count in line.told.items()) or "-"
        cells = (line.step, line.time, line.what, line.rm or "-", line.sequence or "-", line.bytes, told)
        sys.stdout.write(COLUMNS.format(*cells) + "\n")
    if row is None and not as_json:
        sys.stderr.write(f"no such step: {_describe_extent(files)}\n")


def show_poisons(files: Files, *, as_json: bool) -> None:
    """Print the quarantined messages: a table with the reasons, or each in full as a JSON object.

    Raises:
        JournalDamaged, OSError: a file cannot be read.
    """
    found = 0
    for path, kept in read_poisons(files):
        found += 1
        if as_json:
            entry = _PoisonEntry(file=str(path), reason=kept.reason, message=_expand(kept.step))
            sys.stdout.write(msgspec.json.encode(entry).decode() + "\n")
            continue
        time = datetime.fromtimestamp(kept.step.at).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]
        header = kept.step.header
        sys.stdout.write(f"{time}  {header.kind}  RM {header.rm or '-'}  sequence {header.seq or '-'}  {path}\n")
        sys.stdout.write(f"    {kept.reason}\n")
    if not found and not as_json:
        sys.stdout.write("no message is quarantined\n")


def _describe_extent(files: Files) -> str:
    """Describe the steps in the journal, for a caller who asked for others."""
    with closing(JournalReader(files)) as reader:
        first, last = reader.first(), reader.meta().last
        kinds = ", ".join(sorted({row.kind for row in reader.rows(first)}))
    return f"there are {first} to {last}, of these kinds: {kinds}" if kinds else "all are in the snapshot"


def export_steps(files: Files, path: Path | None) -> None:
    """Write every step as a line of JSON.

    Raises:
        JournalDamaged, OSError: as `JournalReader`; the file cannot be written.
    """
    if path is None:
        _write_export(files, sys.stdout)
        return
    with path.open("w", encoding="utf-8") as file:
        _write_export(files, file)


def _write_export(files: Files, file: TextIO) -> None:
    for row in _rows(files, None, None, None):
        file.write(msgspec.json.encode(_expand(decode_step(row))).decode() + "\n")


def _rows(files: Files, first: int | None, last: int | None, kind: str | None) -> Iterator[Row]:
    """The requested steps; with a kind, `last` counts steps of that kind."""
    with closing(JournalReader(files)) as reader:
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


def _summarize(row: Row) -> _StepLine:
    step = decode_step(row)
    time = datetime.fromtimestamp(step.at).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]
    what = step.header.kind
    if what == TICK and step.budget:
        what = f"{TICK} ({step.budget} decisions)"
    told = dict(Counter(kind for _, kind, _ in step.told))
    return _StepLine(step.number, time, what, step.header.rm, step.header.seq, len(row.step), told)


def _expand(step: Step) -> _FullStep:
    return _FullStep(
        number=step.number,
        at=step.at,
        source=step.source,
        header={name: value for name in Header.__struct_fields__ if (value := getattr(step.header, name))},
        body=None if step.header.kind == TICK else _decode_body(step.header.kind, step.body),
        budget=step.budget,
        told=[_SentMessage(number, kind, _decode_body(kind, body)) for number, kind, body in step.told],
        acknowledged=step.acknowledged,
    )


def _decode_body(kind: str, body: bytes) -> Message | dict[str, str]:
    """Decode a body; if that fails, its bytes and the error."""
    if kind not in Message.kinds:
        return {"problem": f"{kind} is unknown", "bytes": base64.b64encode(body).decode()}
    try:
        return decode_body(Message.kinds[kind], body)
    except WireError as error:
        return {"problem": str(error), "bytes": base64.b64encode(body).decode()}


# Verification and replay --------------------------------------------------------------------------------------------

READ_ATTEMPTS: Final = 3
"""Attempts to read a journal whose worker replaces the snapshot meanwhile."""


class AllocationCounts(msgspec.Struct):
    """Allocations of an application: allocated and released since the snapshot, running after the last step."""

    allocated: int = 0
    released: int = 0
    running: int = 0


class Extent(msgspec.Struct, rename="camel"):
    """What an undamaged journal contains."""

    partition: str
    steps: int
    last: int
    """The number of the latest step; 0 for none."""
    snapshot: int
    """The step after which the snapshot was taken; 0 without a snapshot."""
    snapshot_bytes: int

    def line(self) -> str:
        """One line of text for the terminal."""
        steps = f"{self.steps} steps up to {self.last}" if self.steps else "no steps"
        base = f", and a snapshot of {self.snapshot_bytes} bytes after step {self.snapshot}" if self.snapshot else ""
        return f"{self.partition}: whole: {steps}{base}"


def verify(files: Files) -> Extent:
    """Verify every step and the snapshot.

    Raises:
        JournalDamaged, OSError: the journal is damaged, or cannot be read.
    """
    with closing(JournalReader(files)) as reader:
        meta, snapshot = reader.snapshot()
        count = last = 0
        for row in reader.rows(reader.first()):
            decode_step(row)
            count, last = count + 1, row.number
    return Extent(files.partition, count, last, meta.snapshot, len(snapshot or b""))


def replay(files: Files, worker: Worker) -> list[Step]:
    """Restore a worker from the journal; returns the replayed steps.

    Raises:
        JournalDamaged: also if the replay has another result.
    """
    snapshot, steps = _read_consistently(files)
    try:
        worker.recover(snapshot, steps)
    except (ReplayDiverged, SnapshotInvalid) as error:
        raise JournalDamaged(str(error)) from error
    return steps


def _read_consistently(files: Files) -> tuple[bytes | None, list[Step]]:
    """Read the snapshot and the steps after it; a running worker may replace the snapshot in between."""
    with closing(JournalReader(files)) as reader:
        for _ in range(READ_ATTEMPTS):
            meta, snapshot = reader.snapshot()
            steps = [decode_step(row) for row in reader.rows(meta.begins)]
            if reader.meta().begins == meta.begins:
                return snapshot, steps
    raise OSError(f"{files.database}: its worker replaced the snapshot while it was read; try again")


def count_allocations(files: Files, worker: Worker) -> tuple[int, dict[str, AllocationCounts]]:
    """Count allocations by application ID; also returns the first step counted, 0 if there is none.

    Raises:
        JournalDamaged, OSError: as `replay`.
    """
    found: dict[str, AllocationCounts] = {}
    steps = replay(files, worker)
    for step in steps:
        for _, kind, body in step.told:
            if kind != AllocationResponse.__name__:
                continue
            response = decode_body(AllocationResponse, body)
            for allocation in response.new:
                found.setdefault(allocation.application_id, AllocationCounts()).allocated += 1
            for release in response.released:
                found.setdefault(release.application_id, AllocationCounts()).released += 1
    if worker.partition is not None:
        for application in worker.partition.applications.values():
            if application.allocations or application.application_id in found:
                found.setdefault(application.application_id, AllocationCounts()).running = len(application.allocations)
    return steps[0].number if steps else 0, dict(sorted(found.items()))


def show_sums(first: int, found: dict[str, AllocationCounts], *, as_json: bool) -> None:
    """Print the counts, with the total at the end."""
    total = AllocationCounts(
        *(sum(getattr(one, name) for one in found.values()) for name in AllocationCounts.__struct_fields__)
    )
    if as_json:
        whole = {"firstStep": first, "applications": found, "total": total}
        sys.stdout.write(msgspec.json.encode(whole).decode() + "\n")
        return
    width = max(map(len, (*found, "application")))
    sys.stdout.write(f"{'application':<{width}}  {'allocated':>9}  {'released':>9}  {'running':>9}\n")
    for name, one in (*found.items(), ("total", total)):
        sys.stdout.write(f"{name:<{width}}  {one.allocated:>9}  {one.released:>9}  {one.running:>9}\n")
    counted = f"since step {first}" if first else "since the snapshot, and there is no step after it"
    sys.stdout.write(f"allocated and released: {counted}; running: after the last step\n")
