"""`python -m broker`: routing, registrations and configurations."""

import sys

from broker.service import serve
from common.process import main, parser


def run() -> int:
    """Start, serve, stop; the exit status."""
    options = parser("broker", __doc__)
    for option, default, metavar, about in (
        ("--default-config", "", "FILE", "queues for resource managers that send none; watched for changes"),
        ("--record", ":memory:", "FILE", "where the versions of configurations are kept"),
        ("--allowed-rms", "*", "ID,ID", "resource managers that may register; * stands for any characters"),
    ):
        options.add_argument(option, default=default, metavar=metavar, help=about)
    options.add_argument("--listen", required=True, metavar="ADDRESS", help="where our processes connect, ipc://...")
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
