"""The commands of `yunishard journal` that show what a journal holds: state, steps, one object, messages, damage."""

import argparse
import base64
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Final, TextIO

import msgspec
from msgspec.structs import asdict

from yunishard.common.messages.journal_messages import Step
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.rm_messages import AllocationResponse
from yunishard.common.messages.wire import WireError, decode_body
from yunishard.common.process.terminal import clean, print_table, write, write_text
from yunishard.deploy.settings import resolve_settings
from yunishard.journal_tools.export_file import SUFFIXES
from yunishard.journal_tools.sources import EPHEMERAL
from yunishard.journal_tools.views import (
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
    read_all,
    summarize,
    trace_object,
)
from yunishard.partition_worker.engine.durable_records import AllocationRecord
from yunishard.partition_worker.journal.quarantine import Quarantine
from yunishard.partition_worker.partition_host import ReceivedMessage
from yunishard.partition_worker.recovery import Recovery, read_records
from yunishard.partition_worker.service import make_worker

FOLLOWED: Final = 10
"""Steps with which `steps --follow` begins."""

POLL_S: Final = 0.5
"""Seconds between two readings of `steps --follow`."""

ROWS_SHOWN: Final = 100
"""Rows of a table that are printed without --limit."""

CHANGES_SHOWN: Final = 20
"""Changed objects of a step that `trace` prints."""

FILTERS: Final = {"application": "--application", "queue": "--queue", "node": "--node", "state": "--in-state"}
"""The options of `show` by the column that they filter."""

_COLUMNS: Final = "{:>8}  {:<23}  {:<18}  {}"


def print_json(value: object, file: TextIO | None = None) -> None:
    """Write a line of JSON."""
    (file or sys.stdout).write(msgspec.json.encode(value).decode() + "\n")


# Steps --------------------------------------------------------------------------------------------------------------


def list_steps(source: Source, args: argparse.Namespace) -> None:
    """Print a line for each step, or a JSON object."""
    replay = Replay(source, notify)
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
        sys.stderr.write(f"no such step; the journal {describe_extent(replay)}\n")


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


def describe_extent(replay: Replay) -> str:
    """How far a journal that was read reaches back."""
    meta, last = replay.meta, replay.recovery.last
    if meta is None or not last:
        return "is empty"
    snapshot = f"a snapshot after step {meta.snapshot}" if meta.snapshot else ""
    steps = f"steps {meta.begins} to {last}" if last >= meta.begins else "no later step"
    return f"has {' and '.join(filter(None, (snapshot, steps)))}, up to {format_time(replay.recovery.at)}"


def notify(text: str) -> None:
    """Report on the journal that is being read, between the lines of the output."""
    sys.stdout.flush()
    sys.stderr.write(f"-- {text}\n")


# State --------------------------------------------------------------------------------------------------------------


def show_state(source: Source, args: argparse.Namespace) -> None:
    """Print the counts, or a table of one kind of objects, after the last step."""
    print_state(read_all(source), args)


def print_state(replay: Replay, args: argparse.Namespace) -> None:
    """Print the counts, or a table of one kind of objects.

    Raises:
        OSError: a filter is not for this view.
    """
    if args.view is not None:
        view, columns = VIEWS[args.view]
        print_rows(args.view, columns, list(view(replay.recovery.image)), args)
    elif option := next((option for name, option in FILTERS.items() if getattr(args, f"only_{name}")), None):
        raise OSError(f"{option} needs --applications, --asks, --queues or --nodes")
    elif args.json:
        print_json(summarize(replay))
    else:
        for name, value in summarize(replay).items():
            write(f"{name.replace('_', ' '):<12}  {format_value(name, value)}")


def print_rows(view: str, columns: Sequence[str], rows: list[Row], args: argparse.Namespace) -> None:
    """Print the rows that the filters leave.

    Raises:
        OSError: a filter is not for this view.
    """
    for name, option in FILTERS.items():
        if (wanted := getattr(args, f"only_{name}")) is None:
            continue
        if name not in columns:
            raise OSError(f"{option} does not apply to --{view}")
        at, below = columns.index(name), f"{wanted}." if name == "queue" else None
        rows = [row for row in rows if row[at] == wanted or (below and f"{row[at]}".startswith(below))]
    shown = rows[: (ROWS_SHOWN if args.limit is None and not args.json else args.limit) or len(rows)]
    if args.json:
        for row in shown:
            print_json(dict(zip(columns, row, strict=True)))
    elif shown:
        cells = [[format_value(*cell) for cell in zip(columns, row, strict=True)] for row in shown]
        print_table([name.removesuffix("_ns") for name in columns], cells)
    if len(shown) < len(rows) or not rows:
        more = f"and {len(rows) - len(shown)} more (--limit 0 prints all)" if rows else f"no such {view}"
        sys.stderr.write(f"{more}\n")


# One object ---------------------------------------------------------------------------------------------------------


def print_trace(source: Source, args: argparse.Namespace) -> None:
    """Print what happened to an object: a paragraph for each step, or a JSON object.

    Raises:
        OSError: nothing did.
    """
    replay = Replay(source, notify)
    entries = trace_object(replay, args.name)
    name, extent = clean(args.name), f"the journal {describe_extent(replay)}"
    if not entries:
        raise OSError(f"nothing about {name}: {extent}")
    shown = entries if args.last is None else entries[max(0, len(entries) - args.last) :]
    if not args.json:
        left_out = len(entries) - len(shown)
        write(f"{name}: {extent}{f'; {left_out} earlier steps are left out' if left_out else ''}")
    for entry in shown:
        if args.json:
            print_json(entry)
        else:
            write_text(_format_entry(entry))


def _format_entry(entry: Entry) -> str:
    lines = [f"{one.kind} {clean(one.name)}: {describe_change(one)}" for one in entry.changes]
    if len(lines) > CHANGES_SHOWN:
        lines[CHANGES_SHOWN:] = [f"and {len(lines) - CHANGES_SHOWN} more (--json prints all)"]
    for sent in entry.sent:
        end = "not acknowledged"
        if sent.acknowledged is not None:
            end = f"acknowledged by step {sent.acknowledged[0]}, {format_time(sent.acknowledged[1])}"
        lines.append(f"sent {sent.kind} {sent.number} ({clean(', '.join(sent.parts))}), {end}")
    return "\n    ".join((f"\n{format_time(entry.time)}  step {entry.step}  {entry.what}", *lines))


# Messages and steps in full -----------------------------------------------------------------------------------------


def show_poisons(source: Source, args: argparse.Namespace) -> None:
    """Print the quarantined messages: a table with the reasons, or each in full as a JSON object."""
    path = None
    if source.folder is None:
        raise OSError("an export has no quarantined messages" if args.journal.endswith(SUFFIXES) else EPHEMERAL)
    for path, kept in Quarantine(source.folder, source.partition).read():
        if args.json:
            print_json({"file": str(path), "reason": kept.reason, "message": _expand_message(kept.message)})
            continue
        header = kept.message.header
        summary = f"{header.kind}  RM {clean(header.rm) or '-'}  sequence {header.seq or '-'}  {path}"
        sys.stdout.write(f"{format_time(kept.message.at)}  {summary}\n    {clean(kept.reason)}\n")
    if path is None and not args.json:
        sys.stdout.write("no message is quarantined\n")


def expand_step(step: Step) -> dict[str, object]:
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


def verify(source: Source, args: argparse.Namespace) -> None:
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
        print_json({"whole": True, **extent, "snapshotBytes": size, "restored": args.restore})
    elif args.restore:
        sys.stdout.write("restored\n")


def show_sums(source: Source, args: argparse.Namespace) -> None:
    """Count allocations by application: allocated and released since the snapshot, running after the last step."""
    allocated, released, running = Counter[str](), Counter[str](), Counter[str]()
    replay = Replay(source, notify)
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
        print_json({"firstStep": first, "applications": rows, "total": total})
        return
    cells = [(name, *map(str, row.values())) for name, row in (*rows.items(), ("total", total))]
    print_table(("application", *counts), cells)
    counted = f"since step {first}" if first else "since the snapshot, and there is no step after it"
    write(f"allocated and released: {counted}; running: after the last step")
