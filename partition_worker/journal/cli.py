"""The command `yunishard journal`: show, export, and verify a partition's journal, also of a running system."""

import argparse
import base64
import os
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Final, TextIO

import msgspec
from msgspec.structs import asdict

from common.journal_messages import Step
from common.messages import Header, Message
from common.rm_messages import AllocationResponse
from common.settings import SettingsError
from common.wire import WireError, decode_body
from deploy.settings import resolve_settings
from partition_worker.engine.durable_records import Record, Removed, kind_of
from partition_worker.journal.database import JournalReader, Row, decode_step
from partition_worker.journal.files import DAMAGED, NAME, SUFFIX, Files
from partition_worker.journal.quarantine import Quarantine
from partition_worker.partition_host import ReceivedMessage
from partition_worker.recovery import JournalDamaged, Recovery, read_records
from partition_worker.service import make_worker
from partition_worker.worker import Worker

FOLDER: Final = "journals"
"""The directory of all journals, in the state directory."""

_SQLITE: Final = b"SQLite format 3\0"
"""The first bytes of an SQLite database."""


def add_journal_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    for name, (_, about, json_help) in _ACTIONS.items():
        own = actions.add_parser(name, help=about, description=about, allow_abbrev=False)
        own.add_argument("journal", metavar="PARTITION|FILE", help="<rm-id>_<name>, or the path of a journal")
        own.add_argument("--state", metavar="DIR", help="state directory of the system (default: as for `up`)")
        match name:
            case "show":
                own.add_argument("--from", dest="first", type=int, metavar="N", help="first step to show")
                own.add_argument("--last", type=int, metavar="N", help="show only the latest N steps")
                own.add_argument("--kind", metavar="KIND", help="only steps of this kind, such as NodeRequest or tick")
            case "verify":
                own.add_argument("--restore", action="store_true", help="also restore the partition from it")
            case "export":
                own.add_argument("--output", metavar="FILE", help="file to write (default: standard output)")
        if json_help:
            own.add_argument("--json", action="store_true", help=json_help)


def run_journal(args: argparse.Namespace) -> int:
    """Show or verify the journal of a partition: what changed since its last snapshot,
    step by step, and the messages sent to the resource manager. The command only
    reads, and works whether the system runs or not.

    examples:
      yunishard journal show rm-1_default --last 20
      yunishard journal show rm-1_default --kind AllocationRequest --json
      yunishard journal sums rm-1_default            allocations per application
      yunishard journal verify rm-1_default --restore
      yunishard journal poison rm-1_default          messages that ended the worker
      yunishard journal export rm-1_default --output steps.jsonl
      yunishard journal verify DIR/rm-1_default.damaged/rm-1_default.sqlite

    exit codes:
      0  success
      1  the journal is damaged
      2  usage error, or there is no such journal
    """
    try:
        _ACTIONS[args.action][0](_find_journal(args), args)
    except JournalDamaged as damage:
        if args.action == "verify" and args.json:
            _print_json({"whole": False, "problem": str(damage)})
        sys.stderr.write(f"yunishard journal {args.action}: {args.journal}: damaged: {damage}\n")
        return 1
    except (SettingsError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        sys.stderr.write(f"yunishard journal {args.action}: {where}{getattr(error, 'strerror', None) or error}\n")
        return 2
    return 0


def _print_json(value: object, file: TextIO | None = None) -> None:
    (file or sys.stdout).write(msgspec.json.encode(value).decode() + "\n")


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
        return Files(path.parent, path.stem)
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
    problem = ""
    if path.suffix != SUFFIX or not NAME.fullmatch(path.stem):
        problem = "not the name of a journal"
    elif not path.with_name(f"{path.name}-wal").exists():  # else the write-ahead log may hold everything
        with path.open("rb") as opened:
            start = opened.read(len(_SQLITE))
        if start != _SQLITE:
            problem = f"not a journal: {'the file has no SQLite header' if start else 'the file is empty'}"
    if problem:
        raise OSError(
            f"{path}: {problem}; journals are in the state directory, in {FOLDER}/, with the name <partition>{SUFFIX}"
        )


# Steps --------------------------------------------------------------------------------------------------------------

_COLUMNS: Final = "{:>10}  {:<23}  {:<20}  {:>8}  {:>8}  {:<40}  {}\n"
_NAMES: Final = ("step", "time", "what", "received", "bytes", "changed", "told")


def _show_steps(files: Files, args: argparse.Namespace) -> None:
    """Print a table of the steps, or a JSON object for each."""
    if not args.json:
        sys.stdout.write(_COLUMNS.format(*_NAMES))
    row = None
    for row in _select_rows(files, args.first, args.last, args.kind):
        step = decode_step(row)
        changed = Counter(map(_describe_record, read_records(step)))
        told = Counter(sent.kind for sent in step.told)
        cells = (step.number, _format_time(step.at), step.kind, step.received, len(row.step))
        if args.json:
            _print_json(dict(zip(_NAMES, (*cells, dict(changed), dict(told)), strict=True)))
            continue
        counts = (", ".join(f"{count} {name}" for name, count in one.items()) or "-" for one in (changed, told))
        sys.stdout.write(_COLUMNS.format(*(cell or "-" for cell in cells), *counts))
    if row is None and not args.json:
        with closing(JournalReader(files)) as reader:
            first, last = reader.find_first(), reader.read_meta().last
            kinds = ", ".join(sorted({row.kind for row in reader.read_rows(first)}))
        extent = f"there are {first} to {last}, of these kinds: {kinds}" if kinds else "all are in the snapshot"
        sys.stderr.write(f"no such step: {extent}\n")


def _describe_record(record: Record) -> str:
    if isinstance(record, Removed):
        return f"{record.kind} removed"
    return kind_of(type(record))


def _select_rows(files: Files, first: int | None, last: int | None, kind: str | None) -> Iterator[Row]:
    """Return the requested steps; with a kind, `last` counts steps of that kind."""
    with closing(JournalReader(files)) as reader:
        begin = max(first or 0, reader.find_first())
        if last is not None and kind is None:
            begin = max(begin, reader.read_meta().last - last + 1)
        rows = (row for row in reader.read_rows(begin) if kind in (None, row.kind))
        yield from rows if last is None or kind is None else deque(rows, maxlen=last)


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]


def _show_poisons(files: Files, args: argparse.Namespace) -> None:
    """Print the quarantined messages: a table with the reasons, or each in full as a JSON object."""
    path = None
    for path, kept in Quarantine(files.folder, files.partition).read():
        if args.json:
            _print_json({"file": str(path), "reason": kept.reason, "message": _expand_message(kept.message)})
            continue
        header = kept.message.header
        summary = f"{header.kind}  RM {header.rm or '-'}  sequence {header.seq or '-'}  {path}"
        sys.stdout.write(f"{_format_time(kept.message.at)}  {summary}\n    {kept.reason}\n")
    if path is None and not args.json:
        sys.stdout.write("no message is quarantined\n")


def _export_steps(files: Files, args: argparse.Namespace) -> None:
    """Write every step as a line of JSON."""
    with nullcontext(sys.stdout) if args.output is None else open(args.output, "w", encoding="utf-8") as file:
        for row in _select_rows(files, None, None, None):
            _print_json(_expand(decode_step(row)), file)


def _expand(step: Step) -> dict[str, object]:
    """A step with its records and decoded messages."""
    told = [asdict(sent) | {"body": _decode(sent.kind, sent.body)} for sent in step.told]
    return asdict(step) | {"records": read_records(step), "told": told}


def _expand_message(message: ReceivedMessage) -> dict[str, object]:
    """A quarantined message, decoded, with the field names of the scheduler interface."""
    header = {name: value for name in Header.__struct_fields__ if (value := getattr(message.header, name))}
    return {
        "at": message.at,
        "source": message.source,
        "header": header,
        "body": _decode(message.header.kind, message.body),
    }


def _decode(kind: str, body: bytes) -> Message | dict[str, str]:
    """Decode a body; if that fails, return its bytes and the error."""
    try:
        return decode_body(Message.kinds[kind], body)
    except (KeyError, WireError) as error:
        problem = f"{kind} is unknown" if isinstance(error, KeyError) else str(error)
        return {"problem": problem, "bytes": base64.b64encode(body).decode()}


# Verification ----------------------------------------------------------------------------------------------------


def _verify(files: Files, args: argparse.Namespace) -> None:
    """Verify every step and the snapshot; print a line of text or JSON."""
    with closing(JournalReader(files)) as reader:
        meta, stream = reader.open_snapshot()
        content = None if stream is None else list(stream)
        count = last = 0
        for row in reader.read_rows(reader.find_first()):
            read_records(decode_step(row))
            count, last = count + 1, row.number
    if content is not None:
        Recovery().read_snapshot(content)
    size = sum(map(len, content or ()))
    if not args.json:
        steps = f"{count} steps up to {last}" if count else "no steps"
        base = f", and a snapshot of {size} bytes after step {meta.snapshot}" if meta.snapshot else ""
        sys.stdout.write(f"{files.partition}: whole: {steps}{base}\n")
    if args.restore:
        _restore(files, args)
    if args.json:
        extent = {"partition": files.partition, "steps": count, "last": last, "snapshot": meta.snapshot}
        _print_json({"whole": True, **extent, "snapshotBytes": size, "restored": args.restore})
    elif args.restore:
        sys.stdout.write("restored\n")


def _restore(files: Files, args: argparse.Namespace) -> tuple[Worker, list[Step]]:
    """Restore a worker from the journal, with the settings that `up` would use now; also returns the steps.

    Raises:
        JournalDamaged: it cannot be restored.
        OSError: the journal cannot be read, or its worker replaces the snapshot again and again.
    """
    settings = resolve_settings({"state": args.state} if args.state else {}, os.environ)
    worker = make_worker(settings, files.partition, epoch=0)
    with closing(JournalReader(files)) as reader:
        for _ in range(3):  # the worker may replace the snapshot meanwhile
            meta, stream = reader.open_snapshot()
            content = None if stream is None else list(stream)
            steps = list(reader.read_steps(meta.begins))
            if reader.read_meta().begins == meta.begins:
                break
        else:
            raise OSError(f"{files.database}: its worker replaced the snapshot while it was read; try again")
    worker.recover(content, steps)
    return worker, steps


def _show_sums(files: Files, args: argparse.Namespace) -> None:
    """Count allocations by application: allocated and released since the snapshot, running after the last step."""
    worker, steps = _restore(files, args)
    names = ("allocated", "released", "running")
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(names, 0))
    for sent in (sent for step in steps for sent in step.told):
        if sent.kind == AllocationResponse.__name__:
            response = decode_body(AllocationResponse, sent.body)
            for allocation in response.new:
                found[allocation.application_id]["allocated"] += 1
            for release in response.released:
                found[release.application_id]["released"] += 1
    for application in worker.partition.applications.values() if worker.partition is not None else ():
        if application.allocations or application.application_id in found:
            found[application.application_id]["running"] = len(application.allocations)
    applications = dict(sorted(found.items()))
    total = {name: sum(one[name] for one in applications.values()) for name in names}
    if args.json:
        _print_json({"firstStep": steps[0].number if steps else 0, "applications": applications, "total": total})
        return
    width = max(map(len, (*applications, "application")))
    sys.stdout.write(f"{'application':<{width}}  {'allocated':>9}  {'released':>9}  {'running':>9}\n")
    for name, one in (*applications.items(), ("total", total)):
        sys.stdout.write(f"{name:<{width}}  {one['allocated']:>9}  {one['released']:>9}  {one['running']:>9}\n")
    counted = f"since step {steps[0].number}" if steps else "since the snapshot, and there is no step after it"
    sys.stdout.write(f"allocated and released: {counted}; running: after the last step\n")


_ACTIONS: Final[dict[str, tuple[Callable[[Files, argparse.Namespace], None], str, str]]] = {
    "show": (
        _show_steps,
        "list the steps: each message received, and the messages sent for it",
        "print one line of JSON per step",
    ),
    "sums": (_show_sums, "count allocated, released and running allocations per application", "print JSON"),
    "verify": (_verify, "verify every step and the snapshot", "print JSON"),
    "poison": (
        _show_poisons,
        "list quarantined messages, which ended the worker twice",
        "print one line of JSON per message",
    ),
    "export": (_export_steps, "write every step in full, as a line of JSON", ""),
}
"""By name: function, help, and help of the option --json."""
