"""The command `yunishard journal replay`: the state of a partition at a moment that its journal holds.

A journal begins with its latest snapshot, or with an empty partition, so nothing before it can be replayed.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from typing import Final

from yunishard.common.messages.journal_messages import Step
from yunishard.common.messages.query_messages import WorkerHealth
from yunishard.common.process.terminal import write
from yunishard.common.text_formats import format_count, parse_duration
from yunishard.journal_tools.inspection import describe_extent, print_json, print_rows, print_state
from yunishard.journal_tools.views import SNAPSHOT, VIEWS, Replay, Source, format_time, read_all, summarize
from yunishard.partition_worker.engine.auditor import check_objects
from yunishard.partition_worker.engine.durable_records import PartitionRecord
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.state import DEFAULT
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.recovery import JournalDamaged, Recovery

PRINTED_MS_S: Final = 0.001
"""Times are printed in whole milliseconds, so a step counts as reached within the millisecond of `--until`."""

Moment = Callable[[float], float]
"""From the time of the journal's end, in Unix seconds, to another time."""


def parse_moment(text: str) -> Moment:
    """Parse a time for the `type` of an option: `90s` before the end of the journal, Unix seconds, or a local time."""
    if (duration := parse_duration(text.removeprefix("-"))) is not None:
        return lambda end: end - duration
    with suppress(ValueError):
        at = float(text)
        return lambda _: at
    with suppress(ValueError):
        at = datetime.fromisoformat(text).astimezone().timestamp()
        return lambda _: at
    wanted = "a time such as 2026-01-31T12:00:00, Unix seconds, or 90s for that long before the journal's end"
    raise argparse.ArgumentTypeError(f"expected {wanted}, got {text[:32]!r}")


def replay_until(source: Source, *, until: Moment | None = None, step: int | None = None) -> Replay:
    """Read a journal up to a moment: the steps until this time, those up to this number, or all.

    Raises:
        JournalDamaged, OSError: it cannot be read, or begins later.
    """
    is_wanted: Callable[[Step], bool] = lambda _: True  # noqa: E731
    if until is not None:
        at = until(_find_end(source)) + PRINTED_MS_S
        is_wanted = lambda one: one.at < at  # noqa: E731
    elif step is not None:
        is_wanted = lambda one: one.number <= step  # noqa: E731
    replay = Replay(source, lambda _: None)
    holds_it = False
    for read, _ in replay.read(is_wanted):
        holds_it = holds_it or read.kind != SNAPSHOT or is_wanted(read)
    if not holds_it:
        raise OSError(f"the journal does not hold this moment: it {describe_extent(read_all(source))}")
    recovery = replay.recovery
    if step is not None and recovery.last < step:
        raise OSError(f"there is no step {step}: the journal {describe_extent(replay)}")
    return replay


def _find_end(source: Source) -> float:
    """The time of the latest step, in Unix seconds."""
    end: float | None = None
    with closing(source.open()) as reader:
        meta = reader.read_meta()
        for step in reader.read_steps(max(meta.begins, meta.last)):
            end = step.at
    return read_all(source).recovery.at if end is None else end


def restore(recovery: Recovery, name: str) -> Partition:
    """Build the partition of a recovery, with default settings and without plug-ins.

    Raises:
        JournalDamaged: there is none, or its records do not fit together.
    """
    if recovery.image.find(PartitionRecord) is None:
        raise JournalDamaged("at this moment there is no partition yet")
    host = PartitionHost(partition=name, epoch=0, tuning=DEFAULT)
    recovery.restore(host)
    assert host.partition is not None
    return host.partition


def verify_partition(partition: Partition) -> tuple[int, list[str]]:
    """Recompute every total of a partition; return the number of objects, and those that differ in words."""
    found = list(check_objects(partition, WorkerHealth()))
    return len(found), [problem for one in found for problem in one.drift]


# The command ----------------------------------------------------------------------------------------------------------


def replay_journal(source: Source, args: argparse.Namespace) -> None:
    """Print the state at a moment: counts and queues, or a table of one kind of objects; as JSON everything."""
    replay = replay_until(source, until=args.until, step=args.step)
    if args.view is not None:
        print_state(replay, args)
    elif args.json:
        rows = {
            name: [dict(zip(columns, row, strict=True)) for row in view(replay.recovery.image)]
            for name, (view, columns) in VIEWS.items()
        }
        checked = {"checked": _check(replay)} if args.check else {}
        print_json({"counts": summarize(replay), **rows, **checked})
        return
    else:
        recovery = replay.recovery
        write(f"{source.partition} after step {recovery.last}, {format_time(recovery.at)}\n")
        print_state(replay, args)
        write("")
        view, columns = VIEWS["queues"]
        print_rows("queues", columns, list(view(recovery.image)), args)
    if args.check:
        sys.stderr.write(f"restored: {format_count(_check(replay), 'object')} verified\n")


def _check(replay: Replay) -> int:
    """Restore the partition, and verify all of its sums; return the number of verified objects.

    Raises:
        JournalDamaged: it cannot be restored, or a sum differs.
    """
    count, problems = verify_partition(restore(replay.recovery, replay.source.partition))
    if problems:
        raise JournalDamaged(f"the restored partition has wrong sums: {'; '.join(problems)}")
    return count
