"""`yunishard replay`: its options. Kept apart from what it does, so that the command line starts fast.

Not here: everything else; start reading at `drive.py`.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Final

from common.names import RM_ID
from yunishard.cli import COMMANDS, UNUSABLE, needs_server
from yunishard.replay.workload import (
    LOAD_DEFAULT,
    NODE_PROCESSORS,
    NODES_MAX,
    OTHER,
    PARTITIONS_DEFAULT,
    PARTITIONS_MAX,
    TASKS_MAX,
)

ADDRESS_DEFAULT: Final = "tcp://127.0.0.1:9090"


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Replay a workload log (Standard Workload Format, plain or .gz) through the scheduler: its sites become "
        "partitions, its groups and users queues, its jobs applications that run for their logged time, compressed. "
        f"A job asks for each processor by itself, with at most {TASKS_MAX} asks. Exit status: 0 if every job ran and "
        "everything was released, 1 if not, 2 if the file or the core cannot be used."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the log")
    parser.add_argument(
        "--speed",
        type=_positive,
        metavar="N",
        help="log seconds in a second (default: about a minute for all, longer if there is much to ask for)",
    )
    parser.add_argument(
        "--partitions",
        type=_partitions,
        default=PARTITIONS_DEFAULT,
        metavar="N",
        help="the N sites with most jobs get a partition each, "
        f"all others share '{OTHER}' (default: {PARTITIONS_DEFAULT})",
    )
    parser.add_argument(
        "--load",
        type=_positive,
        default=LOAD_DEFAULT,
        metavar="X",
        help="how busy the jobs would keep a partition over the whole log; from this its nodes are reckoned, "
        f"and the higher it is, the longer the queues (default: {LOAD_DEFAULT})",
    )
    parser.add_argument(
        "--nodes", type=_nodes, metavar="N", help=f"N nodes of {NODE_PROCESSORS} processors in each partition instead"
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse a log with a malformed line instead of skipping it"
    )
    parser.add_argument("--json", action="store_true", help="print nothing but the summary, as one JSON document")
    parser.add_argument(
        "--rm-id", type=_rm_id, default="replay", metavar="ID", help="register under this name (default: replay)"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--connect",
        default=ADDRESS_DEFAULT,
        metavar="tcp://HOST:PORT",
        help=f"the native port of a running core (default: {ADDRESS_DEFAULT})",
    )
    parser.add_argument(
        "--keys",
        metavar="FILE",
        help="our secret key file for it, with the core's server.key beside (default: $YUNISHARD_KEYS)",
    )
    where.add_argument("--local", action="store_true", help="start a core for this replay, and stop it afterwards")


def run_replay(args: argparse.Namespace) -> int:
    """Run it; the exit status."""
    if args.local and (missing := COMMANDS["up"].find_missing()):
        sys.stderr.write(f"yunishard replay --local: {needs_server(missing)}\n")
        return UNUSABLE
    from yunishard.replay.run import Options, replay_file

    return replay_file(
        Options(
            file=args.file,
            address="" if args.local else args.connect,
            keys=args.keys,
            rm_id=args.rm_id,
            speed=args.speed,
            partitions=args.partitions,
            load=args.load,
            nodes=args.nodes,
            strict=args.strict,
            json=args.json,
        )
    )


# Private ------------------------------------------------------------------------------------------------------------


def _positive(text: str) -> float:
    number = float(text)
    if not (math.isfinite(number) and 0.001 <= number <= 1e9):
        raise argparse.ArgumentTypeError(f"{text} is not between 0.001 and 1000000000")
    return number


def _partitions(text: str) -> int:
    return _between(text, least=1, most=PARTITIONS_MAX)


def _nodes(text: str) -> int:
    return _between(text, least=1, most=NODES_MAX)


def _between(text: str, *, least: int, most: int) -> int:
    number = int(text)
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"{text} is not between {least} and {most}")
    return number


def _rm_id(text: str) -> str:
    if not RM_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not made of up to 64 letters, digits and _ . : -")
    return text
