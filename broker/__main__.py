"""`python -m broker`: routing, sessions and configurations."""

import sys

from broker.service import serve
from broker.state import PARTITIONS_MAX
from common.process import main, parser


def run() -> int:
    """Start, serve, stop; the exit status."""
    options = parser("broker", __doc__)
    for option, default, metavar, about in (
        ("--default-config", "", "FILE", "queues for resource managers that send none; watched for changes"),
        ("--record", ":memory:", "FILE", "where everything is kept that has to be known at the next start"),
        ("--allowed-rms", "*", "ID,ID", "resource managers that may register; * stands for any characters"),
    ):
        options.add_argument(option, default=default, metavar=metavar, help=about)
    options.add_argument("--listen", required=True, metavar="ADDRESS", help="where our processes connect, ipc://...")
    for option, default_s, about in (
        ("--silence", 3.0, "resource managers and proxies that have been silent for so long are away"),
        ("--pause-timeout", 900.0, "the partitions of a resource manager that has been away for so long end"),
        ("--lease-timeout", 10.0, "a worker that has been silent for so long loses its partition to another one"),
    ):
        options.add_argument(
            option, type=float, default=default_s, metavar="SECONDS", help=f"{about} (default: {default_s:g})"
        )
    options.add_argument(
        "--partitions-max",
        type=int,
        default=PARTITIONS_MAX,
        metavar="N",
        help=f"partitions of all resource managers together (default: {PARTITIONS_MAX})",
    )
    options.add_argument(
        "--same-hierarchy",
        choices=("off", "warn", "enforce"),
        default="warn",
        help="what to do about a queue that has another parent in another partition (default: warn)",
    )
    args = options.parse_args()
    return main("broker", args, lambda life: serve(args, life))


if __name__ == "__main__":
    sys.exit(run())
