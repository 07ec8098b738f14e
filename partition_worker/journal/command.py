"""`yunishard journal`: look into the journal of a partition, and check it; of a system that runs, or of one that does
not.

Not here: what is shown (`listing.py`), what is checked (`checking.py`).
"""

import argparse
import os
import sqlite3
import sys
from contextlib import closing
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import msgspec

from common.names import PREDICATE_PLUGINS
from deploy.settings import settings_from
from deploy.values import Unusable
from partition_worker.engine.tuning import tuned
from partition_worker.journal import checking, listing
from partition_worker.journal.database import SCHEMA
from partition_worker.journal.files import DAMAGED, NAME, SUFFIX, Files, JournalDamaged
from partition_worker.plugins import chosen
from partition_worker.worker import Worker

FOLDER: Final = "journals"
"""In the state directory."""

_SQLITE: Final = b"SQLite format 3\0"
"""How every database of SQLite begins."""

NOT_WHOLE: Final = 1
WRONG: Final = 2

ABOUT: Final = """\
Look into the journal of a partition: every command and decision since its last
snapshot, and what the resource manager was told. It only reads, whether the
system runs or not."""

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
  0  done; what was verified is whole
  1  the journal is damaged, or playing it again leads to something else
  2  wrong usage, or there is no such journal"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description, parser.epilog = ABOUT, MORE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    for name, about in (
        ("show", "list its steps: what came, and what was told because of it"),
        ("sums", "count what was allocated and released, and what runs, per application"),
        ("verify", "check every step and the snapshot"),
        ("poison", "list the messages that were set aside as they ended the worker twice"),
        ("export", "write every step with all that is in it, as a line of JSON"),
    ):
        own = actions.add_parser(name, help=about, description=about, allow_abbrev=False)
        own.add_argument("journal", metavar="PARTITION|FILE", help="<rm-id>_<name>, or the path of a journal")
        own.add_argument("--state", metavar="DIR", help="where the system keeps its state (default: as of `up`)")
        match name:
            case "show":
                own.add_argument("--from", dest="first", type=int, metavar="N", help="the first step to be shown")
                own.add_argument("--last", type=int, metavar="N", help="only so many, the latest ones")
                own.add_argument("--kind", metavar="KIND", help="only steps of this kind, such as NodeRequest or tick")
                own.add_argument("--json", action="store_true", help="a JSON object for each step, in a line")
            case "sums":
                own.add_argument("--json", action="store_true", help="print JSON")
            case "poison":
                own.add_argument("--json", action="store_true", help="a JSON object for each message, in a line")
            case "verify":
                replay = "play it again, with the settings of here and now: does it lead to the same words?"
                own.add_argument("--replay", action="store_true", help=replay)
                own.add_argument("--json", action="store_true", help="print JSON")
            case "export":
                own.add_argument("--output", metavar="FILE", help="where to write (default: standard output)")


def main(args: argparse.Namespace) -> int:
    """Do it; the exit status."""
    try:
        return _done(args)
    except JournalDamaged as damage:
        if args.action == "verify" and args.json:
            _print_json(whole=False, problem=str(damage))
        sys.stderr.write(f"yunishard journal {args.action}: {args.journal}: damaged: {damage}\n")
        return NOT_WHOLE
    except (Unusable, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        sys.stderr.write(f"yunishard journal {args.action}: {where}{getattr(error, 'strerror', None) or error}\n")
        return WRONG


def _done(args: argparse.Namespace) -> int:
    files = _files(args)
    match args.action:
        case "show":
            listing.show(files, first=args.first, last=args.last, kind=args.kind, as_json=args.json)
        case "export":
            listing.export(files, None if args.output is None else Path(args.output))
        case "poison":
            listing.show_poisons(files, as_json=args.json)
        case "sums":
            checking.show_sums(*checking.sums(files, _worker(args, files)), as_json=args.json)
        case _:
            _verify(args, files)
    return 0


def _verify(args: argparse.Namespace, files: Files) -> None:
    extent = checking.verified(files)
    if not args.json:
        sys.stdout.write(extent.line() + "\n")
    if args.replay:
        checking.played(files, _worker(args, files))
    if args.json:
        _print_json(whole=True, **msgspec.to_builtins(extent), replayed=args.replay)
    elif args.replay:
        sys.stdout.write("played again: the same words\n")


def _print_json(**verdict: str | int | bool) -> None:
    sys.stdout.write(msgspec.json.encode(verdict).decode() + "\n")


def _files(args: argparse.Namespace) -> Files:
    """The journal that is meant.

    Raises:
        Unusable: there is none; with those there are.
    """
    path = Path(args.journal)
    if "/" in args.journal or path.suffix == SUFFIX:
        if not path.is_file():
            what = "it is a directory" if path.is_dir() else "there is no such file"
            raise Unusable(f"{path}: {what}; a journal lies in the state directory, in {FOLDER}/")
        _check_is_journal(path)
        return Files.of(path)
    state = settings_from({"state": args.state} if args.state else {}, os.environ).state
    if state is None:
        raise Unusable("an ephemeral system keeps its state in a directory of its own: say which, --state DIR")
    folder = state / FOLDER
    if (folder / f"{args.journal}{SUFFIX}").is_file():
        return Files(folder, args.journal)
    there = ", ".join(sorted(one.stem for one in folder.glob(f"*{SUFFIX}"))) or "none"
    aside = folder / f"{args.journal}{DAMAGED}"
    more = f"; one that was damaged lies in {aside}" if aside.is_dir() else ""
    raise Unusable(f"no journal of {args.journal} in {folder}; there are: {there}{more} (--state, if it is elsewhere)")


def _check_is_journal(path: Path) -> None:
    """Refuse a file that never was a journal. One that was, and is damaged, is told so by whoever reads it.

    Raises:
        Unusable: says what it is instead.
        OSError: it cannot be read.
    """
    where = f"a journal lies in the state directory, in {FOLDER}/, and is called <partition>{SUFFIX}"
    if path.suffix != SUFFIX or not NAME.fullmatch(path.stem):
        raise Unusable(f"{path}: no journal, by its name: {where}")
    if path.with_name(f"{path.name}-wal").exists():
        return  # all that was ever written may be there
    with path.open("rb") as opened:
        start = opened.read(len(_SQLITE))
    if start != _SQLITE:
        what = "it is empty" if not start else "it does not begin as an SQLite database does"
        raise Unusable(f"{path}: no journal, or its beginning is lost: {what}; {where}")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            tables = {name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    except (sqlite3.Error, UnicodeDecodeError):
        return  # it was one, perhaps
    if not tables & SCHEMA.keys():
        raise Unusable(f"{path}: no journal, but another SQLite database; {where}")


def _worker(args: argparse.Namespace, files: Files) -> Worker:
    """One that can play the journal again, with the settings that `up` would give it here and now."""
    settings = settings_from({"state": args.state} if args.state else {}, os.environ)
    return Worker(
        partition=files.partition,
        epoch=0,
        manual=settings.manual,
        plugins=chosen(settings.predicates, entry_points(group=PREDICATE_PLUGINS)),
        tuning=tuned(
            disable_reservation=settings.disable_reservation,
            preemption_pause_s=settings.preemption_pause_s,
            preemption_threshold_percent=settings.preemption_threshold_percent,
            asks_max=settings.asks_max,
        ),
        journalled=True,
    )
