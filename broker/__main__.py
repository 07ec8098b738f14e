"""`python -m broker`: routing, registrations and configurations."""

import sys

from broker.service import serve
from common.process import main, parser


def run() -> int:
    """Start, serve, stop; the exit status."""
    options = parser("broker", __doc__)
    options.add_argument("--listen", required=True, metavar="ADDRESS", help="where our processes connect, ipc://...")
    options.add_argument("--default-config", metavar="FILE", help="queues for resource managers that send none")
    args = options.parse_args()
    return main("broker", args, lambda life: serve(args, life))


if __name__ == "__main__":
    sys.exit(run())
