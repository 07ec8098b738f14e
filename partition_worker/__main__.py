"""`python -m partition_worker`: the worker of one partition."""

import sys

from common.process import main, parser
from partition_worker.service import serve


def run() -> int:
    """Start, serve, stop; the exit status."""
    options = parser("partition_worker", __doc__)
    options.add_argument("--broker", required=True, metavar="ADDRESS", help="where the broker listens, ipc://...")
    options.add_argument("--partition", required=True, metavar="NAME", help="normalised name, <rm-id>_<name>")
    options.add_argument("--epoch", required=True, type=int, metavar="N", help="of the lease that the broker granted")
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
    options.add_argument("--disable-reservation", action="store_true", help="keep no node for an ask that fits none")
    options.add_argument("--manual", action="store_true", help="decide only when asked to")
    options.add_argument(
        "--predicates",
        default="",
        metavar="NAMES",
        help="plug-ins to load, with commas between (default: only the built-in predicates)",
    )
    args = options.parse_args()
    return main("partition_worker", args, lambda life: serve(args, life))


if __name__ == "__main__":
    sys.exit(run())
