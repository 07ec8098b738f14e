"""The command `yunishard journal`: its arguments, actions and exit codes.

show, steps, trace, sums, poison, verify, export    `inspection.py`
replay                                              `replay.py`
"""

import argparse
import sys
from collections.abc import Callable
from typing import Final

from yunishard.common.settings import SettingsError
from yunishard.journal_tools.config_diff import replay_with_config
from yunishard.journal_tools.export import export_journal
from yunishard.journal_tools.inspection import (
    FILTERS,
    FOLLOWED,
    POLL_S,
    ROWS_SHOWN,
    list_steps,
    print_json,
    print_trace,
    show_poisons,
    show_state,
    show_sums,
    verify,
)
from yunishard.journal_tools.replay import parse_moment, replay_journal
from yunishard.journal_tools.sources import find_journal
from yunishard.journal_tools.story import print_story
from yunishard.journal_tools.views import VIEWS, Source
from yunishard.partition_worker.recovery import JournalDamaged

_WITH_HISTORY: Final = ("replay", "story", "export")
"""The actions that read what the setting `journal-history` keeps."""


def add_journal_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    for name, (_, about, json_help) in _ACTIONS.items():
        own = actions.add_parser(name, help=about, description=about, allow_abbrev=False)
        own.add_argument("journal", metavar="PARTITION|FILE", help="<rm-id>_<name>, or the path of a journal or export")
        if name == "story":
            own.add_argument("ask", metavar="ASK", help="key of an ask, also of one that has ended")
        elif name == "trace":
            own.add_argument("name", metavar="NAME", help="key of an ask, application id, node id, or path of a queue")
        own.add_argument("--state", metavar="DIR", help="state directory of the system (default: as for `up`)")
        own.add_argument("--store", metavar="URI", help="PostgreSQL database of the system (default: as for `up`)")
        match name:
            case "show":
                _add_view_arguments(own)
            case "replay":
                _add_view_arguments(own)
                _add_moment_arguments(own)
            case "steps":
                own.add_argument("--from", dest="first", type=_parse_count, metavar="N", help="first step to list")
                own.add_argument("--last", type=_parse_count, metavar="N", help="list only the latest N steps")
                own.add_argument("--kind", metavar="KIND", help="only steps of this kind, such as NodeRequest or tick")
                follow = f"continue with new steps until Ctrl-C, after the latest {FOLLOWED}; reads every {POLL_S} s"
                own.add_argument("--follow", action="store_true", help=follow)
            case "story":
                leave_out = "leave out why it waited, for which the partition is restored several times"
                own.add_argument("--no-reasons", dest="reasons", action="store_false", help=leave_out)
            case "trace":
                own.add_argument("--last", type=_parse_count, metavar="N", help="print only the latest N steps")
            case "verify":
                own.add_argument("--restore", action="store_true", help="also restore the partition from it")
            case "export":
                _add_export_arguments(own)
        if json_help:
            own.add_argument("--json", action="store_true", help=json_help)


def _add_export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", metavar="FILE", help="file to write (default: standard output); .gz is compressed")
    forms = parser.add_mutually_exclusive_group()
    about = "also the snapshot, so that every action of this command can read the file in place of a journal"
    forms.add_argument("--complete", action="store_true", help=about)
    about = "the same with pseudonyms in place of all names, and without free texts, for a bug report"
    forms.add_argument("--anonymise", action="store_true", help=about)
    about = "with --anonymise: write the name of each pseudonym to this file, which you keep"
    parser.add_argument("--names", metavar="FILE", help=about)


def _add_moment_arguments(parser: argparse.ArgumentParser) -> None:
    moment = parser.add_mutually_exclusive_group()
    about = "the state at this time: 2026-01-31T12:00:00, Unix seconds, or 90s before the journal's end"
    moment.add_argument("--until", type=parse_moment, metavar="TIME", help=about)
    moment.add_argument("--step", type=_parse_count, metavar="N", help="the state after this step")
    about = "what this queues.yaml decides from there on, with the recorded commands of the RM, in virtual time"
    parser.add_argument("--config", metavar="FILE", help=about)
    about = "with --config: compare the decisions with those of the recorded configuration"
    parser.add_argument("--diff", action="store_true", help=about)
    parser.add_argument("--check", action="store_true", help="also restore the partition, and verify all of its sums")


def _add_view_arguments(parser: argparse.ArgumentParser) -> None:
    views = parser.add_mutually_exclusive_group()
    for name in VIEWS:
        what = "asks and allocations" if name == "asks" else name
        views.add_argument(f"--{name}", dest="view", action="store_const", const=name, help=f"list the {what}")
    for name, option in FILTERS.items():
        about = "only those of this queue, or below it" if name == "queue" else f"only those of this {name}"
        parser.add_argument(option, metavar=name.upper(), dest=f"only_{name}", help=about)
    about = f"rows to print; 0 for all (default: {ROWS_SHOWN}, with --json all)"
    parser.add_argument("--limit", type=_parse_count, metavar="N", help=about)


def _find_journal(args: argparse.Namespace) -> Source:
    with_history = args.action in _WITH_HISTORY
    return find_journal(args.journal, state=args.state, store=args.store, with_history=with_history)


def _replay(source: Source, args: argparse.Namespace) -> None:
    """Replay a journal as it was, or with another configuration.

    Raises:
        OSError: the options contradict each other.
    """
    if args.config is None and args.diff:
        raise OSError("--diff needs --config FILE")
    if args.config is not None and args.check:
        raise OSError("--check does not apply to --config")
    (replay_journal if args.config is None else replay_with_config)(source, args)


def _parse_count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text[:32]!r}")
    return int(text)


def run_journal(args: argparse.Namespace) -> int:
    """Show, replay, verify or export the journal of a partition: its state now and at an
    earlier moment, what changed step by step since the last snapshot, the story of an
    ask, and the messages sent to the resource manager. The command only reads, and
    works whether the system runs or not.

    examples:
      yunishard journal show rm-1_default            counts of everything
      yunishard journal show rm-1_default --asks --in-state pending --queue root.batch
      yunishard journal replay rm-1_default --until 90s --asks
      yunishard journal replay rm-1_default --step 40 --check
      yunishard journal replay rm-1_default --until 1h --config other.yaml --diff
      yunishard journal story rm-1_default pod-17    what happened to it, and why it waited
      yunishard journal trace rm-1_default pod-17    each change of it, and the messages
      yunishard journal steps rm-1_default --last 20
      yunishard journal steps rm-1_default --follow  also what a worker adds
      yunishard journal sums rm-1_default            allocations per application
      yunishard journal verify rm-1_default --restore
      yunishard journal poison rm-1_default          messages that ended the worker
      yunishard journal export rm-1_default --output steps.jsonl
      yunishard journal export rm-1_default --anonymise --output bug.jsonl.gz
      yunishard journal replay bug.jsonl.gz --step 40
      yunishard journal show DIR/rm-1_default.damaged/rm-1_default.sqlite --nodes
      yunishard journal verify rm-1_default --store postgresql://yunishard@db1,db2/yunishard

    exit codes:
      0    success
      1    the journal is damaged
      2    usage error, there is no such journal, or nothing of that name in it, or
           a moment that it does not hold, or a configuration that cannot be used
      130  interrupted
    """
    try:
        _ACTIONS[args.action][0](_find_journal(args), args)
    except JournalDamaged as damage:
        if args.action == "verify" and args.json:
            print_json({"whole": False, "problem": str(damage)})
        sys.stderr.write(f"yunishard journal {args.action}: {args.journal}: damaged: {damage}\n")
        return 1
    except (SettingsError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        sys.stderr.write(f"yunishard journal {args.action}: {where}{getattr(error, 'strerror', None) or error}\n")
        return 2
    return 0


_ACTIONS: Final[dict[str, tuple[Callable[[Source, argparse.Namespace], None], str, str]]] = {
    "show": (
        show_state,
        "print the state: counts, or applications, asks, queues or nodes",
        "print one line of JSON per row",
    ),
    "trace": (
        print_trace,
        "print what happened to an ask, application, node or queue, and the messages about it",
        "print one line of JSON per step",
    ),
    "replay": (
        _replay,
        "print the state at an earlier moment, or what another configuration decides from there on",
        "print one line of JSON: everything, or one per row",
    ),
    "story": (
        print_story,
        "tell what happened to an ask, and why it waited, in sentences with times",
        "print one line of JSON per sentence",
    ),
    "steps": (list_steps, "list the steps: what changed, and the messages sent", "print one line of JSON per step"),
    "sums": (show_sums, "count allocated, released and running allocations per application", "print JSON"),
    "verify": (verify, "verify every step and the snapshot", "print JSON"),
    "poison": (
        show_poisons,
        "list quarantined messages, which ended the worker twice",
        "print one line of JSON per message",
    ),
    "export": (export_journal, "write every step in full as a line of JSON, or one file for a replay", ""),
}
"""By name: function, help, and help of the option --json."""
