"""`python -m partition_worker`: the worker of one partition."""

import sys

from common.process import Life, main, parser
from partition_worker.bootstrap import wait_for_assignment
from partition_worker.engine.bounds import ASKS_MAX
from partition_worker.journal.writer import BYTES_MAX
from partition_worker.service import serve


def run() -> int:
    """Start, serve, stop; the exit status."""
    options = parser("partition_worker", __doc__)
    options.add_argument("--broker", required=True, metavar="ADDRESS", help="where the broker listens, ipc://...")
    which = options.add_mutually_exclusive_group(required=True)
    which.add_argument("--partition", metavar="NAME", help="normalised name, <rm-id>_<name>")
    which.add_argument("--spare", action="store_true", help="wait until the supervisor gives it a partition")
    options.add_argument("--epoch", default=0, type=int, metavar="N", help="of the lease that the broker granted")
    options.add_argument("--journal", metavar="DIR", help="where the partition's journal is (default: none is kept)")
    options.add_argument(
        "--journal-max",
        type=int,
        default=BYTES_MAX,
        metavar="BYTES",
        help=f"how large it may become (default: {BYTES_MAX})",
    )
    options.add_argument(
        "--preemption-threshold",
        type=int,
        default=0,
        metavar="PERCENT",
        help="no ask makes others go while less of the cluster is used (default: 0)",
    )
    options.add_argument(
        "--preemption-pause",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="time between two searches of an ask for others that could go (default: 15)",
    )
    options.add_argument(
        "--asks-max",
        type=int,
        default=ASKS_MAX,
        metavar="N",
        help=f"asks and allocations that it keeps, the next one is refused (default: {ASKS_MAX})",
    )
    options.add_argument("--disable-reservation", action="store_true", help="keep no node for an ask that fits none")
    options.add_argument("--manual", action="store_true", help="decide only when asked to")
    options.add_argument(
        "--predicates",
        default="",
        metavar="NAMES",
        help="plug-ins to load, with commas between (default: only the built-in predicates)",
    )
    args = options.parse_args()

    async def start(life: Life) -> None:
        if not args.spare or await wait_for_assignment(args, life):
            await serve(args, life)

    return main("partition_worker", args, start)


if __name__ == "__main__":
    sys.exit(run())
