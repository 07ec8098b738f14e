"""The command `yunishard journal`: show, export, and verify a partition's journal, also of a running system."""

import argparse
import base64
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Final, TextIO

import msgspec
from msgspec.structs import asdict

from common.journal_messages import Step
from common.messages import Header, Message
from common.rm_messages import AllocationResponse
from common.settings import Settings, SettingsError
from common.tables import print_table, write
from common.wire import WireError, decode_body
from deploy.settings import resolve_settings
from partition_worker.engine.durable_records import AllocationRecord
from partition_worker.journal.database import JournalReader
from partition_worker.journal.files import DAMAGED, NAME, SUFFIX, Files
from partition_worker.journal.quarantine import Quarantine
from partition_worker.journal.views import (
    SNAPSHOT,
    VIEWS,
    Change,
    Entry,
    Replay,
    Row,
    Source,
    describe_change,
    describe_changes,
    format_time,
    format_value,
    make_printable,
    read_all,
    summarize,
    trace_object,
)
from partition_worker.partition_host import ReceivedMessage
from partition_worker.recovery import JournalDamaged, Recovery, read_records
from partition_worker.service import make_worker

FOLDER: Final = "journals"
"""The directory of all journals, in the state directory."""

FOLLOWED: Final = 10
"""Steps with which `steps --follow` begins."""

POLL_S: Final = 0.5
"""Seconds between two readings of `steps --follow`."""

ROWS_SHOWN: Final = 100
"""Rows of a table that `show` prints without --limit."""

CHANGES_SHOWN: Final = 20
"""Changed objects of a step that `trace` prints."""

_FILTERS: Final = {"application": "--application", "queue": "--queue", "node": "--node", "state": "--in-state"}
"""The options of `show` by the column that they filter."""

_EPHEMERAL: Final = "an ephemeral system has a state directory of its own: name it with --state DIR"
_COLUMNS: Final = "{:>8}  {:<23}  {:<18}  {}"
_SQLITE: Final = b"SQLite format 3\0"
"""The first bytes of an SQLite database."""


def add_journal_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    for name, (_, about, json_help) in _ACTIONS.items():
        own = actions.add_parser(name, help=about, description=about, allow_abbrev=False)
        own.add_argument("journal", metavar="PARTITION|FILE", help="<rm-id>_<name>, or the path of a journal")
        if name == "trace":
            own.add_argument("name", metavar="NAME", help="key of an ask, application id, node id, or path of a queue")
        own.add_argument("--state", metavar="DIR", help="state directory of the system (default: as for `up`)")
        own.add_argument("--store", metavar="URI", help="PostgreSQL database of the system (default: as for `up`)")
        match name:
            case "show":
                _add_view_arguments(own)
            case "steps":
                own.add_argument("--from", dest="first", type=_parse_count, metavar="N", help="first step to list")
                own.add_argument("--last", type=_parse_count, metavar="N", help="list only the latest N steps")
                own.add_argument("--kind", metavar="KIND", help="only steps of this kind, such as NodeRequest or tick")
                follow = f"continue with new steps until Ctrl-C, after the latest {FOLLOWED}; reads every {POLL_S} s"
                own.add_argument("--follow", action="store_true", help=follow)
            case "trace":
                own.add_argument("--last", type=_parse_count, metavar="N", help="print only the latest N steps")
            case "verify":
                own.add_argument("--restore", action="store_true", help="also restore the partition from it")
            case "export":
                own.add_argument("--output", metavar="FILE", help="file to write (default: standard output)")
        if json_help:
            own.add_argument("--json", action="store_true", help=json_help)


def _add_view_arguments(parser: argparse.ArgumentParser) -> None:
    views = parser.add_mutually_exclusive_group()
    for name in VIEWS:
        what = "asks and allocations" if name == "asks" else name
        views.add_argument(f"--{name}", dest="view", action="store_const", const=name, help=f"list the {what}")
    for name, option in _FILTERS.items():
        about = "only those of this queue, or below it" if name == "queue" else f"only those of this {name}"
        parser.add_argument(option, metavar=name.upper(), dest=f"only_{name}", help=about)
    about = f"rows to print; 0 for all (default: {ROWS_SHOWN}, with --json all)"
    parser.add_argument("--limit", type=_parse_count, metavar="N", help=about)


def _parse_count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text[:32]!r}")
    return int(text)


def run_journal(args: argparse.Namespace) -> int:
    """Show or verify the journal of a partition: its state, what changed step by step
    since the last snapshot, and the messages sent to the resource manager. The
    command only reads, and works whether the system runs or not.

    examples:
      yunishard journal show rm-1_default            counts of everything
      yunishard journal show rm-1_default --asks --state pending --queue root.batch
      yunishard journal trace rm-1_default pod-17    what happened to this ask
      yunishard journal steps rm-1_default --last 20
      yunishard journal steps rm-1_default --follow  also what a worker adds
      yunishard journal sums rm-1_default            allocations per application
      yunishard journal verify rm-1_default --restore
      yunishard journal poison rm-1_default          messages that ended the worker
      yunishard journal export rm-1_default --output steps.jsonl
      yunishard journal show DIR/rm-1_default.damaged/rm-1_default.sqlite --nodes
      yunishard journal verify rm-1_default --store postgresql://yunishard@db1,db2/yunishard

    exit codes:
      0    success
      1    the journal is damaged
      2    usage error, there is no such journal, or nothing of that name in it
      130  interrupted
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


def _find_journal(args: argparse.Namespace) -> Source:
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
        return _make_source(Files(path.parent, path.stem))
    settings = resolve_settings(
        {name: value for name in ("state", "store") if (value := getattr(args, name))}, os.environ
    )
    if args.store or (settings.store and not args.state):
        return _find_in_store(settings, args.journal)
    if settings.state is None:
        raise OSError(_EPHEMERAL)
    folder = settings.state / FOLDER
    if (folder / f"{args.journal}{SUFFIX}").is_file():
        return _make_source(Files(folder, args.journal))
    there = ", ".join(sorted(one.stem for one in folder.glob(f"*{SUFFIX}"))) or "none"
    aside = folder / f"{args.journal}{DAMAGED}"
    more = f"; a damaged one is in {aside}" if aside.is_dir() else ""
    raise OSError(f"no journal of {args.journal} in {folder}; there are: {there}{more} (or name another --state)")


def _make_source(files: Files) -> Source:
    return Source(files.partition, files.folder, partial(JournalReader, files))


def _find_in_store(settings: Settings, partition: str) -> Source:
    """Find the journal in the database. Quarantined messages are in the state directory of the worker's host."""
    from partition_worker.journal.postgres_journal import (
        PostgresJournals,  # needs a library of `yunishard[cluster]`
        PostgresReader,
    )

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


# Steps --------------------------------------------------------------------------------------------------------------


def _list_steps(source: Source, args: argparse.Namespace) -> None:
    """Print a line for each step, or a JSON object."""
    replay = Replay(source, _notify)
    last = FOLLOWED if args.follow and (args.first, args.last) == (None, None) else args.last
    if not args.json:
        write(_COLUMNS.format("step", "time", "what", "changes"))
    is_listed = args.follow or args.json
    while True:
        lines = (_format_step(*found, in_json=args.json) for found in replay.read() if _is_wanted(found[0], args))
        for line in lines if last is None else deque(lines, maxlen=last):
            write(line)
            is_listed = True
        if not args.follow:
            break
        last = None
        sys.stdout.flush()
        time.sleep(POLL_S)
        while not source.exists():  # the partition has ended, or its journal is put aside at this moment
            time.sleep(POLL_S)
    if not is_listed:
        sys.stderr.write(f"no such step; the journal {_describe_extent(replay)}\n")


def _is_wanted(step: Step, args: argparse.Namespace) -> bool:
    return args.kind in (None, step.kind) and step.number >= (args.first or 0)


def _format_step(step: Step, changes: Iterable[Change], *, in_json: bool) -> str:
    words = "the state after this step" if step.kind == SNAPSHOT else describe_changes(changes)
    told = Counter(sent.kind for sent in step.told)
    if in_json:
        document = {"step": step.number, "time": step.at, "what": step.kind, "received": step.received}
        return msgspec.json.encode({**document, "changes": words, "told": told}).decode()
    sent = f"sent {', '.join(f'{count} {kind}' for kind, count in told.items())}" if told else ""
    text = "; ".join(filter(None, (words, sent))) or "-"
    return _COLUMNS.format(step.number, format_time(step.at), step.kind, text)


def _describe_extent(replay: Replay) -> str:
    """How far a journal that was read reaches back."""
    meta, last = replay.meta, replay.recovery.last
    if meta is None or not last:
        return "is empty"
    snapshot = f"a snapshot after step {meta.snapshot}" if meta.snapshot else ""
    steps = f"steps {meta.begins} to {last}" if last >= meta.begins else "no later step"
    return f"has {' and '.join(filter(None, (snapshot, steps)))}, up to {format_time(replay.recovery.at)}"


def _notify(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"-- {text}\n")


# State --------------------------------------------------------------------------------------------------------------


def _show_state(source: Source, args: argparse.Namespace) -> None:
    """Print the counts, or a table of one kind of objects."""
    replay = read_all(source)
    if args.view is not None:
        view, columns = VIEWS[args.view]
        _print_rows(columns, list(view(replay.recovery.image)), args)
    elif option := next((option for name, option in _FILTERS.items() if getattr(args, f"only_{name}")), None):
        raise OSError(f"{option} needs --applications, --asks or --nodes")
    elif args.json:
        _print_json(summarize(replay))
    else:
        for name, value in summarize(replay).items():
            write(f"{name.replace('_', ' '):<12}  {format_value(name, value)}")


def _print_rows(columns: Sequence[str], rows: list[Row], args: argparse.Namespace) -> None:
    """Print the rows that the filters leave.

    Raises:
        OSError: a filter is not for this view.
    """
    for name, option in _FILTERS.items():
        if (wanted := getattr(args, f"only_{name}")) is None:
            continue
        if name not in columns:
            raise OSError(f"{option} does not apply to --{args.view}")
        at, below = columns.index(name), f"{wanted}." if name == "queue" else None
        rows = [row for row in rows if row[at] == wanted or (below and f"{row[at]}".startswith(below))]
    shown = rows[: (ROWS_SHOWN if args.limit is None and not args.json else args.limit) or len(rows)]
    if args.json:
        for row in shown:
            _print_json(dict(zip(columns, row, strict=True)))
    elif shown:
        cells = [[format_value(*cell) for cell in zip(columns, row, strict=True)] for row in shown]
        print_table([name.removesuffix("_ns") for name in columns], cells)
    if len(shown) < len(rows) or not rows:
        more = f"and {len(rows) - len(shown)} more (--limit 0 prints all)" if rows else f"no such {args.view}"
        sys.stderr.write(f"{more}\n")


# One object ---------------------------------------------------------------------------------------------------------


def _trace_object(source: Source, args: argparse.Namespace) -> None:
    """Print what happened to an object: a paragraph for each step, or a JSON object.

    Raises:
        OSError: nothing did.
    """
    replay = Replay(source, _notify)
    entries = trace_object(replay, args.name)
    name, extent = make_printable(args.name), f"the journal {_describe_extent(replay)}"
    if not entries:
        raise OSError(f"nothing about {name}: {extent}")
    shown = entries if args.last is None else entries[max(0, len(entries) - args.last) :]
    if not args.json:
        left_out = len(entries) - len(shown)
        write(f"{name}: {extent}{f'; {left_out} earlier steps are left out' if left_out else ''}")
    for entry in shown:
        if args.json:
            _print_json(entry)
        else:
            write(_format_entry(entry))


def _format_entry(entry: Entry) -> str:
    lines = [f"{one.kind} {make_printable(one.name)}: {describe_change(one)}" for one in entry.changes]
    if len(lines) > CHANGES_SHOWN:
        lines[CHANGES_SHOWN:] = [f"and {len(lines) - CHANGES_SHOWN} more (--json prints all)"]
    for sent in entry.sent:
        end = "not acknowledged"
        if sent.acknowledged is not None:
            end = f"acknowledged by step {sent.acknowledged[0]}, {format_time(sent.acknowledged[1])}"
        lines.append(f"sent {sent.kind} {sent.number} ({make_printable(', '.join(sent.parts))}), {end}")
    return "\n    ".join((f"\n{format_time(entry.time)}  step {entry.step}  {entry.what}", *lines))


# Messages and steps in full -----------------------------------------------------------------------------------------


def _show_poisons(source: Source, args: argparse.Namespace) -> None:
    """Print the quarantined messages: a table with the reasons, or each in full as a JSON object."""
    path = None
    if source.folder is None:
        raise OSError(_EPHEMERAL)
    for path, kept in Quarantine(source.folder, source.partition).read():
        if args.json:
            _print_json({"file": str(path), "reason": kept.reason, "message": _expand_message(kept.message)})
            continue
        header = kept.message.header
        summary = f"{header.kind}  RM {header.rm or '-'}  sequence {header.seq or '-'}  {path}"
        sys.stdout.write(f"{format_time(kept.message.at)}  {summary}\n    {kept.reason}\n")
    if path is None and not args.json:
        sys.stdout.write("no message is quarantined\n")


def _export_steps(source: Source, args: argparse.Namespace) -> None:
    """Write every step as a line of JSON."""
    with (
        nullcontext(sys.stdout) if args.output is None else open(args.output, "w", encoding="utf-8") as file,
        closing(source.open()) as reader,
    ):
        for step in reader.read_steps(reader.find_first()):
            _print_json(_expand(step), file)


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


def _verify(source: Source, args: argparse.Namespace) -> None:
    """Verify every step and the snapshot; print a line of text or JSON."""
    with closing(source.open()) as reader:
        meta, stream = reader.open_snapshot()
        content = None if stream is None else list(stream)
        count = last = 0
        for step in reader.read_steps(reader.find_first()):
            read_records(step)
            count, last = count + 1, step.number
    if content is not None:
        Recovery().read_snapshot(content)
    size = sum(map(len, content or ()))
    if not args.json:
        steps = f"{count} steps up to {last}" if count else "no steps"
        base = f", and a snapshot of {size} bytes after step {meta.snapshot}" if meta.snapshot else ""
        sys.stdout.write(f"{source.partition}: whole: {steps}{base}\n")
    if args.restore:  # with the settings that `up` would use now
        settings = resolve_settings({"state": args.state} if args.state else {}, os.environ)
        read_all(source).recovery.restore(make_worker(settings, source.partition, epoch=0).host)
    if args.json:
        extent = {"partition": source.partition, "steps": count, "last": last, "snapshot": meta.snapshot}
        _print_json({"whole": True, **extent, "snapshotBytes": size, "restored": args.restore})
    elif args.restore:
        sys.stdout.write("restored\n")


def _show_sums(source: Source, args: argparse.Namespace) -> None:
    """Count allocations by application: allocated and released since the snapshot, running after the last step."""
    allocated, released, running = Counter[str](), Counter[str](), Counter[str]()
    replay = Replay(source, _notify)
    for step, _ in replay.read():
        for sent in step.told if step.kind != SNAPSHOT else ():
            if sent.kind == AllocationResponse.__name__:
                response = decode_body(AllocationResponse, sent.body)
                allocated.update(one.application_id for one in response.new)
                released.update(one.application_id for one in response.released)
    records = replay.recovery.image.of(AllocationRecord)
    running.update(one.application_id for one in records if one.node_id and not one.replaces)
    counts = {"allocated": allocated, "released": released, "running": running}
    rows = {name: {what: one[name] for what, one in counts.items()} for name in sorted(allocated | released | running)}
    total = {what: one.total() for what, one in counts.items()}
    first = replay.meta.begins if replay.meta is not None and replay.meta.begins <= replay.recovery.last else 0
    if args.json:
        _print_json({"firstStep": first, "applications": rows, "total": total})
        return
    cells = [(name, *map(str, row.values())) for name, row in (*rows.items(), ("total", total))]
    print_table(("application", *counts), cells)
    counted = f"since step {first}" if first else "since the snapshot, and there is no step after it"
    write(f"allocated and released: {counted}; running: after the last step")


_ACTIONS: Final[dict[str, tuple[Callable[[Source, argparse.Namespace], None], str, str]]] = {
    "show": (_show_state, "print the state: counts, or applications, asks or nodes", "print one line of JSON per row"),
    "trace": (
        _trace_object,
        "print what happened to an ask, application, node or queue, and the messages about it",
        "print one line of JSON per step",
    ),
    "steps": (_list_steps, "list the steps: what changed, and the messages sent", "print one line of JSON per step"),
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
