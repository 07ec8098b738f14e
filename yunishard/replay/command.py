"""Replay a workload log (Standard Workload Format, plain or .gz) through the
scheduler. Its sites become partitions, its groups and users queues, its jobs
applications that run for their logged time, compressed. A job asks for each
processor separately, with at most 128 asks.

examples:
  yunishard replay LOG.swf.gz --local         start a core for this replay only
  yunishard replay LOG.swf.gz                 through the core on this machine
  yunishard replay LOG.swf.gz --local --json  print only the summary, as JSON
  yunishard replay LOG.swf.gz --local --load 1.2 --speed 10000

exit codes:
  0  every job ran, and everything was released
  1  a job did not run, or something was not released
  2  wrong usage, or the file or the core cannot be used
"""

# The docstring is the help text. The options have a module of their own, so that the command line starts fast.
# Not here: running the replay (`run.py`).

import argparse
import math
import sys
from pathlib import Path
from typing import Final

from common.names import RM_ID
from yunishard.cli import COMMANDS, UNUSABLE, describe, format_missing, parse_whole
from yunishard.replay import workload

ADDRESS_DEFAULT: Final = "tcp://127.0.0.1:9090"


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard replay`."""
    describe(parser, __doc__)
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="the log")
    about = "log seconds per real second (default: about a minute for all, longer for many asks)"
    add("--speed", type=_parse_positive, metavar="N", help=about)
    default = workload.PARTITIONS_DEFAULT
    about = f"the N sites with most jobs get a partition each, all others share '{workload.OTHER}' (default: {default})"
    add("--partitions", type=parse_whole(1, workload.PARTITIONS_MAX), default=default, metavar="N", help=about)
    about = (
        "the share of a partition that the jobs would keep busy over the whole log, from which its nodes are computed; "
        f"the higher it is, the longer the queues (default: {workload.LOAD_DEFAULT})"
    )
    add("--load", type=_parse_positive, default=workload.LOAD_DEFAULT, metavar="X", help=about)
    about = f"N nodes of {workload.NODE_PROCESSORS} processors in each partition instead"
    add("--nodes", type=parse_whole(1, workload.NODES_MAX), metavar="N", help=about)
    add("--strict", action="store_true", help="refuse a log with a malformed line instead of skipping it")
    add("--json", action="store_true", help="print nothing but the summary, as one JSON document")
    add("--rm-id", type=_parse_rm_id, default="replay", metavar="ID", help="id of the RM (default: replay)")
    where = parser.add_mutually_exclusive_group()
    about = f"the native port of a running core (default: {ADDRESS_DEFAULT})"
    where.add_argument("--connect", dest="address", default=ADDRESS_DEFAULT, metavar="tcp://HOST:PORT", help=about)
    about = "the RM's secret key file; the core's server.key is in the same directory (default: $YUNISHARD_KEYS)"
    add("--keys", metavar="FILE", help=about)
    about = "start a core for this replay, and stop it afterwards"
    where.add_argument("--local", dest="address", action="store_const", const="", help=about)


def run_replay(args: argparse.Namespace) -> int:
    """Run the replay; return the exit status."""
    if not args.address and (missing := COMMANDS["up"].find_missing()):
        sys.stderr.write(f"yunishard replay --local: {format_missing(missing)}\n")
        return UNUSABLE
    from yunishard.replay.run import Options, replay_file

    return replay_file(Options.from_arguments(args))


def _parse_positive(text: str) -> float:
    number = float(text)
    if not (math.isfinite(number) and 0.001 <= number <= 1e9):
        raise argparse.ArgumentTypeError(f"{text} is not between 0.001 and 1000000000")
    return number


def _parse_rm_id(text: str) -> str:
    if not RM_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not made of up to 64 letters, digits and _ . : -")
    return text
